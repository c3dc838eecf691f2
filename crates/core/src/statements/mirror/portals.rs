//! What portals are bound to, as far as that is known.

use super::{Bound, Mirror};

/// Portals of one transaction whose statements are known when they are described.
const PORTALS_MAX: usize = 4096;

impl Mirror {
    /// The unnamed portal was bound.
    pub(crate) fn binds(&mut self, bound: Bound) {
        self.bound = bound;
    }

    /// A portal with a name was.
    pub(crate) fn binds_portal(&mut self, portal: &[u8], bound: Bound) {
        if self.portals.len() >= PORTALS_MAX || self.portals.values().next().is_some_and(|bound| !self.is_there(bound))
        {
            let until = self.transactions_until;
            self.portals.retain(|_, bound| bound.batch > until);
        }
        // Of one too many nothing is known, nor of what its name was bound to before.
        self.portals.remove(portal);
        if self.portals.len() < PORTALS_MAX {
            self.portals.insert(portal.into(), bound);
        } else {
            self.portals_lost_in = bound.batch;
        }
    }

    /// A simple query has a portal of its own under that name, and leaves it there where it fails in a transaction
    /// (`exec_simple_query`, src/backend/tcop/postgres.c).
    #[inline]
    pub(crate) fn replaces_portal(&mut self) {
        self.bound.batch = 0;
    }

    /// A portal with a name is closed: what comes under its name is another.
    pub(crate) fn closes_portal(&mut self, portal: &[u8]) {
        self.portals.remove(portal);
    }

    /// What they are bound to is not known, up to the end of the transaction.
    pub(crate) fn forget_portals(&mut self, batch: u64) {
        self.bound = Bound::default();
        self.portals.clear();
        self.portals_lost_in = batch;
    }

    /// Whether one that is not known may be there.
    pub(crate) fn has_lost_portals(&self) -> bool {
        self.portals_lost_in > self.transactions_until
    }

    fn is_there(&self, bound: &Bound) -> bool {
        bound.batch > self.transactions_until
    }

    /// What a portal was bound to, if it is still there: an error would have taken it with its transaction.
    pub(crate) fn bound_to(&self, portal: &[u8]) -> Bound {
        let bound = if portal.is_empty() { self.bound } else { self.portals.get(portal).copied().unwrap_or_default() };
        if self.is_there(&bound) { bound } else { Bound::default() }
    }

    /// What the unnamed portal was bound to in this batch: of another one nothing is known.
    pub(crate) fn bound_in(&self, batch: u64) -> Bound {
        if self.bound.batch == batch { self.bound } else { Bound::default() }
    }
}
