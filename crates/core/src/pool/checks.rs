//! Idle servers that are asked whether they still answer, before somebody gets them (`server_check_query`).

use crate::id::ServerId;

#[derive(Debug, Default)]
pub(crate) struct Checks {
    /// Whoever waits may count on these.
    prompt: Vec<ServerId>,
    /// They take so long that others are asked.
    late: Vec<ServerId>,
}

impl Checks {
    pub(crate) fn begins(&mut self, id: ServerId) {
        self.prompt.push(id);
    }

    pub(crate) fn has(&self, id: ServerId) -> bool {
        self.prompt.contains(&id) || self.late.contains(&id)
    }

    pub(crate) fn prompt(&self) -> usize {
        self.prompt.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.late.is_empty()
    }

    /// Nobody counts on its answer any more; false where nobody has.
    pub(crate) fn is_late(&mut self, id: ServerId) -> bool {
        let counted = self.takes(id);
        if counted {
            self.late.push(id);
        }
        counted
    }

    /// It is over. Whether somebody may have counted on it.
    pub(crate) fn ends(&mut self, id: ServerId) -> bool {
        self.late.retain(|late| *late != id);
        self.takes(id)
    }

    fn takes(&mut self, id: ServerId) -> bool {
        let place = self.prompt.iter().position(|prompt| *prompt == id);
        place.map(|place| self.prompt.swap_remove(place)).is_some()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ServerId> {
        self.prompt.iter().chain(&self.late).copied()
    }
}
