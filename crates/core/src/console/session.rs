//! What one session of the console holds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::WorkerId;

use super::command::Command;
use super::report::Answer;

/// Statements and portals that one console session may hold.
pub(super) const NAMES_MAX: usize = 64;

/// How the command in hand came, and so how its answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// RowDescription, rows, CommandComplete, ReadyForQuery.
    Simple,
    /// Rows and CommandComplete; the client has described it and will sync.
    Extended { binary: bool },
}

#[derive(Debug)]
pub(super) struct Pending {
    pub(super) command: Command,
    pub(super) form: Form,
    pub(super) answers_due: u16,
    pub(super) answer: Answer,
    /// Rows that are told in portions go on with this worker, from this slot on.
    pub(super) rest: Option<(WorkerId, u32)>,
    /// Who was asked for the last of them.
    pub(super) asked: WorkerId,
}

impl Pending {
    pub(super) fn asks_for_portions(&self) -> bool {
        matches!(self.command, Command::Show(show) if show.has_portions())
    }
}

#[derive(Debug, Clone)]
pub(super) struct Portal {
    pub(super) line: Arc<str>,
    pub(super) binary: bool,
}

/// One session of the console.
#[derive(Debug)]
pub(crate) struct Console {
    pub(super) user: Arc<str>,
    /// May do everything; otherwise only SHOW.
    pub(super) admin: bool,
    pub(super) statements: BTreeMap<Vec<u8>, Arc<str>>,
    pub(super) portals: BTreeMap<Vec<u8>, Portal>,
    /// After an error in the extended protocol, up to the next Sync.
    pub(super) skipping: bool,
    pub(super) pending: Option<Box<Pending>>,
}

impl Console {
    pub(crate) fn new(user: Arc<str>, admin: bool) -> Self {
        let (statements, portals) = (BTreeMap::new(), BTreeMap::new());
        Self { user, admin, statements, portals, skipping: false, pending: None }
    }

    /// A command has yet to be answered, also where nobody sends another.
    pub(crate) fn is_busy(&self) -> bool {
        self.pending.is_some() && !self.waits()
    }

    /// Its command waits for what others do, for as long as they like: whoever leaves meanwhile leaves.
    pub(crate) fn waits(&self) -> bool {
        self.pending
            .as_ref()
            .is_some_and(|pending| matches!(pending.command, Command::Pause(_) | Command::WaitClose(_)))
    }

    pub(crate) fn user(&self) -> &Arc<str> {
        &self.user
    }

    /// Rows that were asked for have come, and there are more.
    pub(crate) fn has_rest(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| pending.rest.is_some())
    }

    /// What PgBouncer's console reports, and tools look at.
    pub(crate) fn parameters(version: &str) -> [(&'static str, String); 8] {
        [
            ("server_version", format!("{version}/bouncer")),
            ("client_encoding", "UTF8".to_owned()),
            ("server_encoding", "UTF8".to_owned()),
            ("DateStyle", "ISO".to_owned()),
            ("TimeZone", "GMT".to_owned()),
            ("standard_conforming_strings", "on".to_owned()),
            ("integer_datetimes", "on".to_owned()),
            ("is_superuser", "on".to_owned()),
        ]
    }
}
