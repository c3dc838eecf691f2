//! Idle servers that are asked whether they still answer, before somebody gets them (`server_check_query`).

use crate::id::ServerId;

#[derive(Debug, Default)]
pub(crate) struct Checks(Vec<Check>);

#[derive(Debug)]
struct Check {
    server: ServerId,
    /// It takes so long that others are asked. Whoever waits may count on the rest.
    late: bool,
}

impl Checks {
    pub(crate) fn begins(&mut self, server: ServerId) {
        self.0.push(Check { server, late: false });
    }

    pub(crate) fn has(&self, server: ServerId) -> bool {
        self.iter().any(|checked| checked == server)
    }

    /// How many whoever waits may count on.
    #[inline]
    pub(crate) fn prompt(&self) -> usize {
        if self.0.is_empty() { 0 } else { self.count_prompt() }
    }

    #[cold]
    fn count_prompt(&self) -> usize {
        self.0.iter().filter(|check| !check.late).count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Nobody counts on its answer any more; false where nobody has.
    pub(crate) fn is_late(&mut self, server: ServerId) -> bool {
        let check = self.0.iter_mut().find(|check| check.server == server);
        check.is_some_and(|check| !std::mem::replace(&mut check.late, true))
    }

    /// It is over. Whether somebody may have counted on it.
    pub(crate) fn ends(&mut self, server: ServerId) -> bool {
        let place = self.0.iter().position(|check| check.server == server);
        place.is_some_and(|place| !self.0.swap_remove(place).late)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = ServerId> {
        self.0.iter().map(|check| check.server)
    }
}
