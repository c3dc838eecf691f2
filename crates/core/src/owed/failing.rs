//! What is sent so that it fails: its client gets an error of ours, where PostgreSQL's own would come.

use weir_wire::report::Report;

use super::{Note, Owed, OwedQueue};

impl Owed {
    pub(crate) fn is_to_fail(&self) -> bool {
        matches!(self.note.as_deref(), Some(Note::Fails(_)))
    }
}

impl OwedQueue {
    /// The request that was sent last is to fail.
    pub(crate) fn last_is_to_fail(&self) -> bool {
        self.queue.back().is_some_and(Owed::is_to_fail)
    }

    /// The request in front has failed, as it was to: what its client is told. A simple query's ReadyForQuery comes behind that.
    pub(crate) fn take_failure(&mut self) -> Option<Report> {
        let front = self.queue.front_mut().filter(|owed| owed.is_to_fail())?;
        match front.note.take().map(|note| *note) {
            Some(Note::Fails(report)) => Some(*report),
            _ => None,
        }
    }
}
