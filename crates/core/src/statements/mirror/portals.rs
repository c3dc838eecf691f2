//! What portals are bound to, as far as that is known for certain. Another one may be of any statement that has a name
//! (`ClientStatements::described_one`); one whose name was never bound is a cursor that SQL has declared.

use std::collections::BTreeMap;

use super::{Bound, Mirror};

/// Portals of one transaction whose statements are known when they are described.
const PORTALS_MAX: usize = 4096;

/// Names that were bound in the transaction that is open, and some of those before.
#[derive(Debug, Default)]
pub(super) struct Portals {
    by_name: BTreeMap<Box<[u8]>, Named>,
    /// The number of the last Bind.
    binds: u64,
    /// What was bound up to this one may have been taken away since.
    forgotten: u64,
    /// The last batch in which there were too many names.
    full_in: u64,
    /// The last that has failed: what was bound up to it may not be what is there. What later ones bind is as they say, where they are carried out.
    failed_in: u64,
}

#[derive(Debug)]
struct Named {
    bound: Bound,
    number: u64,
}

/// What a portal is bound to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Portal {
    Of(Bound),
    /// It is that, or a cursor that SQL has declared since: under that name no other portal can be there.
    OfOrCursor(Bound),
    /// Of any statement, for all that is known.
    Unknown,
    /// It is none, or a cursor that SQL has declared.
    Never,
}

impl Mirror {
    /// The unnamed portal was bound.
    pub(crate) fn binds(&mut self, bound: Bound) {
        self.bound = bound;
    }

    /// A portal with a name was.
    pub(crate) fn binds_portal(&mut self, portal: &[u8], bound: Bound) {
        let until = self.transactions_until;
        let portals = &mut self.portals;
        if portals.by_name.values().next().is_some_and(|first| first.bound.batch <= until) {
            portals.by_name.retain(|_, named| named.bound.batch > until);
        }
        if portals.by_name.len() >= PORTALS_MAX {
            portals.full_in = bound.batch;
            portals.by_name.clear();
        }
        portals.binds += 1;
        portals.by_name.insert(portal.into(), Named { bound, number: portals.binds });
    }

    /// A simple query has a portal of its own under that name, and leaves it there where it fails in a transaction
    /// (`exec_simple_query`, src/backend/tcop/postgres.c).
    #[inline]
    pub(crate) fn replaces_portal(&mut self) {
        self.bound.batch = 0;
    }

    /// A portal with a name is closed: what comes under its name is another, unless this is skipped.
    pub(crate) fn closes_portal(&mut self, portal: &[u8]) {
        if let Some(named) = self.portals.by_name.get_mut(portal) {
            named.number = 0;
        }
    }

    /// Any may be another by now.
    #[inline]
    pub(crate) fn forget_portals(&mut self) {
        self.bound.batch = 0;
        self.forget_named_portals();
    }

    /// Messages of this batch were skipped.
    pub(crate) fn forget_portals_until(&mut self, batch: u64) {
        if self.bound.batch <= batch {
            self.bound.batch = 0;
        }
        self.portals.failed_in = batch;
    }

    #[inline]
    pub(crate) fn forget_named_portals(&mut self) {
        self.portals.forgotten = self.portals.binds;
    }

    /// What a portal is bound to, if it is still there: an error would have taken it with its transaction.
    pub(crate) fn bound_to(&self, portal: &[u8]) -> Portal {
        let is_there = |batch: u64| batch > self.transactions_until;
        if portal.is_empty() {
            return if is_there(self.bound.batch) { Portal::Of(self.bound) } else { Portal::Unknown };
        }
        let portals = &self.portals;
        match portals.by_name.get(portal) {
            Some(named) if !is_there(named.bound.batch) => Portal::Never,
            Some(named) if named.bound.batch <= portals.failed_in => Portal::Unknown,
            Some(named) if named.number > portals.forgotten => Portal::Of(named.bound),
            Some(named) => Portal::OfOrCursor(named.bound),
            None if is_there(portals.full_in) => Portal::Unknown,
            None => Portal::Never,
        }
    }

    /// What the unnamed portal was bound to in this batch: of another one nothing is known.
    pub(crate) fn bound_in(&self, batch: u64) -> Bound {
        if self.bound.batch == batch { self.bound } else { Bound::default() }
    }
}
