//! Which databases are paused and which are disabled, as the console or a signal said last; and how often they were killed or
//! reconnected.
//!
//! PAUSE concerns servers: nobody gets one. DISABLE concerns logins: nobody is let in, and whoever is in goes on, so that a
//! database drains. Knows no clients and no servers.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Nothing is read of clients.
    suspended: bool,
}

impl Gates {
    pub(crate) fn of(&self, database: &str) -> Gate {
        if self.all_paused || self.paused.contains(database) { Gate::Paused } else { Gate::Open }
    }

    pub(crate) fn all_paused(&self) -> bool {
        self.all_paused
    }

    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended
    }

    /// The error is PgBouncer's (`admin_cmd_suspend`).
    pub(crate) fn suspend(&mut self) -> Result<(), String> {
        if self.suspended || self.all_paused {
            return Err("already suspended/paused".to_owned());
        }
        self.suspended = true;
        Ok(())
    }

    pub(crate) fn read_on(&mut self) {
        self.suspended = false;
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
            None if !self.all_paused && self.paused.is_empty() && !self.suspended => {
                Err("pooler is not paused/suspended".to_owned())
            }
            None => {
                (self.all_paused, self.suspended) = (false, false);
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

/// How often a command was given, for one database or for all: what was on its way between two workers then tells by this, when
/// it comes, that it was meant too.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    of_all: u32,
    by_database: BTreeMap<Arc<str>, u32>,
}

impl Rounds {
    /// Once more, for one database or all.
    pub(crate) fn begin(&mut self, name: Option<&str>) {
        match name {
            Some(name) => *self.by_database.entry(name.into()).or_default() += 1,
            None => self.of_all += 1,
        }
    }

    pub(crate) fn of(&self, database: &str) -> u32 {
        self.of_all + self.by_database.get(database).copied().unwrap_or(0)
    }
}
