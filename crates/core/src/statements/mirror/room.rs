//! Which statements a server closes so that there is room for another.

use super::{Evicted, Known, Mirror};
use crate::owed::{OwedQueue, Touched};

/// So many of which is not known whether they are there are walked for each that is prepared.
const DOUBTED_MAX: usize = 512;

impl Mirror {
    /// Those of which is not known whether they are there are so many that it is better to wait for that.
    pub(crate) fn is_crowded(&self, limit: usize, owed: &OwedQueue) -> bool {
        let shared = self.known.len() - self.private.len();
        shared > limit.max(1) + DOUBTED_MAX && owed.awaits_earlier()
    }

    /// Those that go so that there is room for another: private ones of earlier batches, then others, the least recently used first; never one
    /// of which is not known whether it is there. Those that the batch under way alone has are as many as its client wants.
    pub(crate) fn make_room(&mut self, limit: usize, owed: &OwedQueue) -> Vec<Evicted> {
        let limit = limit.max(1);
        let too_many = (self.known.len() + 1).saturating_sub(limit);
        if too_many == 0 {
            return Vec::new();
        }
        // Their numbers grow with those of their batches.
        let private = self.private.iter().filter_map(|id| self.known.get(id));
        let done = private.take_while(|known| owed.touched(known.batch) == Touched::Answered);
        let mut gone = least_used(done, too_many);
        let shared = self.known.len() - self.private.len();
        let too_many = (shared + 1).saturating_sub(limit).min(too_many - gone.len());
        let certain = |known: &&Known| !known.statement.private && owed.touched(known.batch) != Touched::InDoubt;
        gone.append(&mut least_used(self.known.values().filter(certain), too_many));
        gone.into_iter().filter_map(|id| self.close(id, owed.batch())).collect()
    }
}

impl Mirror {
    /// Of some of them it is not known whether they are there.
    pub(crate) fn is_in_doubt(&self, owed: &OwedQueue) -> bool {
        let in_doubt = |known: &Known| owed.touched(known.batch) == Touched::InDoubt;
        owed.touched_in(self.closed_in) == Touched::InDoubt || self.known.values().any(in_doubt)
    }

    /// All of them go.
    pub(crate) fn close_all(&mut self, batch: u64) -> Vec<Evicted> {
        let all: Vec<_> = self.known.keys().copied().collect();
        all.into_iter().filter_map(|id| self.close(id, batch)).collect()
    }
}

/// So many of them, in the order of their last use.
fn least_used<'a>(known: impl Iterator<Item = &'a Known>, count: usize) -> Vec<u64> {
    let id = |known: &Known| known.statement.id;
    match count {
        0 => Vec::new(),
        1 => known.min_by_key(|known| known.used).map(id).into_iter().collect(),
        _ => {
            let mut used: Vec<_> = known.map(|known| (known.used, id(known))).collect();
            used.sort_unstable();
            used.into_iter().take(count).map(|(_, id)| id).collect()
        }
    }
}
