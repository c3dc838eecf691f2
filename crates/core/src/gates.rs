//! Which databases are paused and which are disabled, as the console or a signal said last.
//!
//! PAUSE concerns servers: nobody gets one. DISABLE concerns logins: nobody is let in, and whoever is in goes on, so that a
//! database drains. Knows no clients and no servers.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether a pool gives servers to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Paused,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Gates {
    /// All are paused, those of databases that nobody has used yet among them.
    all_paused: bool,
    paused: BTreeSet<Arc<str>>,
    disabled: BTreeSet<Arc<str>>,
}

impl Gates {
    pub(crate) fn of(&self, database: &str) -> Gate {
        if self.all_paused || self.paused.contains(database) { Gate::Paused } else { Gate::Open }
    }

    pub(crate) fn all_paused(&self) -> bool {
        self.all_paused
    }

    pub(crate) fn is_disabled(&self, database: &str) -> bool {
        self.disabled.contains(database)
    }

    /// One database, or all.
    pub(crate) fn pause(&mut self, name: Option<&str>) {
        match name {
            Some(name) => drop(self.paused.insert(name.into())),
            None => self.all_paused = true,
        }
    }

    /// One database, or all that are paused in whichever way. The error is PgBouncer's (`admin_cmd_resume`, src/admin.c of
    /// 1.25.2).
    pub(crate) fn resume(&mut self, name: Option<&str>) -> Result<(), String> {
        match name {
            Some(name) if !self.paused.remove(name) => Err(format!("database {name} is not paused")),
            Some(_) => Ok(()),
            None if !self.all_paused && self.paused.is_empty() => Err("pooler is not paused/suspended".to_owned()),
            None => {
                self.all_paused = false;
                self.paused.clear();
                Ok(())
            }
        }
    }

    pub(crate) fn disable(&mut self, database: &Arc<str>, disabled: bool) {
        if disabled {
            self.disabled.insert((&**database).into());
        } else {
            self.disabled.remove(database);
        }
    }
}
