//! All pools of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::names::PoolName;
use crate::pool::Pool;
use crate::time::{Duration, Time};

/// Pools of a worker above which one that nobody uses gives way to a new one.
const POOLS_KEPT: usize = 1024;
/// Pools whose logins failed that are looked at for one that nobody uses.
const FAILED_LOOKED_AT_MAX: usize = 16;
/// How often it is looked for pools that nobody uses: at most, and at least.
const LOOKS_AFTER: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// A worker's pools: an index that never moves, found by name.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    list: Vec<Pool>,
    by_name: BTreeMap<Arc<PoolName>, u32>,
    /// Those that nobody could log in to yet; some may be used again.
    failed: BTreeSet<u32>,
    /// Those that were forgotten.
    vacant: Vec<u32>,
}

impl Pools {
    pub(crate) fn find(&self, name: &PoolName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Whether there is one of this database.
    pub(crate) fn has_database(&self, database: &Arc<str>) -> bool {
        let first = PoolName::new(Arc::clone(database), "".into());
        self.by_name.range(Arc::new(first)..).next().is_some_and(|(name, _)| name.database == *database)
    }

    /// Takes the place of a pool that was forgotten, or of one that nobody uses, once there are many: `*` makes one of any name that a client thinks of.
    pub(crate) fn add(&mut self, pool: Pool) -> u32 {
        let name = Arc::clone(&pool.name);
        let vacant = self.vacant.pop().map(|index| index as usize);
        let unused = vacant
            .or_else(|| self.take_failed())
            .or_else(|| if self.list.len() < POOLS_KEPT { None } else { self.list.iter().position(Pool::is_unused) });
        let index = match unused {
            Some(index) => {
                let replaced = std::mem::replace(&mut self.list[index], pool);
                if !replaced.forgotten {
                    self.by_name.remove(&replaced.name);
                }
                index as u32
            }
            None => {
                self.list.push(pool);
                (self.list.len() - 1) as u32
            }
        };
        self.by_name.insert(name, index);
        index
    }

    /// Forgets those that nobody has used for as long as their limits say: their names, and for how long, in no more than one look late.
    pub(crate) fn forget_unused(&mut self, now: Time) -> Vec<(Arc<PoolName>, Duration)> {
        let mut forgotten = Vec::new();
        for index in self.indexes() {
            let is_unused = !self[index].forgotten && self.is_unused(index);
            let pool = &mut self[index];
            let Some(limit) = pool.limits.forgotten_after.filter(|_| is_unused) else {
                pool.unused_since = None;
                continue;
            };
            let unused = now.since(*pool.unused_since.get_or_insert(now));
            if unused < limit {
                continue;
            }
            pool.forget();
            let name = Arc::clone(&pool.name);
            self.by_name.remove(&name);
            self.failed.remove(&index);
            self.vacant.push(index);
            forgotten.push((name, unused));
        }
        forgotten
    }

    /// When it is time for that again, if ever: often enough for the shortest limit.
    pub(crate) fn look_for_unused_after(&self) -> Option<Duration> {
        let limit = self.iter().filter_map(|pool| pool.limits.forgotten_after).min()?;
        Some(Duration((limit.0 / 4).clamp(LOOKS_AFTER.0.0, LOOKS_AFTER.1.0)))
    }

    /// No login to this pool's servers has succeeded yet, and one failed: its place is the first to be taken.
    pub(crate) fn note_failed(&mut self, index: u32) {
        if self[index].welcome.is_none() {
            self.failed.insert(index);
        }
    }

    /// A cluster's entry is used by whoever is at one of its nodes: what is known of them, and of the cluster, is there.
    fn is_unused(&self, index: u32) -> bool {
        let pool = &self[index];
        let is_cluster = pool.limits.route.is_some() && pool.name.destination.is_entry();
        let is_used_by = |other: &Pool| !other.is_unused() && other.name.is_for_those_of(&pool.name);
        pool.is_unused() && !(is_cluster && self.iter().any(is_used_by))
    }

    fn take_failed(&mut self) -> Option<usize> {
        let unused = |index: &u32| self.is_unused(*index);
        let index = self.failed.iter().copied().take(FAILED_LOOKED_AT_MAX).find(unused)?;
        self.failed.remove(&index);
        self.list[index as usize].welcome.is_none().then_some(index as usize)
    }

    /// But for those that were forgotten.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.list.iter().filter(|pool| !pool.forgotten)
    }

    /// All places, those of forgotten pools among them: these have nobody.
    pub(crate) fn places(&self) -> &[Pool] {
        &self.list
    }

    pub(crate) fn indexes(&self) -> std::ops::Range<u32> {
        0..self.list.len() as u32
    }
}

impl std::ops::Index<u32> for Pools {
    type Output = Pool;
    fn index(&self, index: u32) -> &Pool {
        &self.list[index as usize]
    }
}

impl std::ops::IndexMut<u32> for Pools {
    fn index_mut(&mut self, index: u32) -> &mut Pool {
        &mut self.list[index as usize]
    }
}

impl Pools {
    /// Each worker may come to have a server that listens in each pool, and somebody has to do the work.
    pub(crate) fn have_room_for_listeners(&self, index: u32, workers: u16) -> bool {
        let pool = &self[index];
        let of = |same: fn(&PoolName, &PoolName) -> bool| {
            let listens = |other: &&Pool| other.limits.keeps && !other.limits.refuses && same(&other.name, &pool.name);
            self.iter().filter(listens).count() as u32
        };
        let in_database = of(|one, other| one.database == other.database);
        let of_user = of(|one, other| one.user == other.user);
        pool.limits.has_room_for_listeners(u32::from(workers), in_database, of_user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Destination;
    use crate::settings::{Database, Route, Settings};

    fn pool(number: u32) -> Pool {
        let name = Arc::new(PoolName::new(number.to_string().into(), "alice".into()));
        Pool::new(name, Arc::new(Database::at(Vec::new())), &Settings::default())
    }

    #[test]
    fn pools_that_nobody_could_log_in_to_leave_nothing_behind() {
        let mut pools = Pools::default();
        for number in 0..5000 {
            let index = pools.add(pool(number));
            pools.note_failed(index);
        }
        assert_eq!((pools.list.len(), pools.by_name.len()), (1, 1));
    }

    /// Credentials, and when the catalogue is read next, are the entry's.
    #[test]
    fn a_cluster_s_entry_is_used_while_a_node_is() {
        let mut pools = Pools::default();
        let at = |destination| {
            let mut pool = pool(1);
            pool.name = Arc::new(pool.name.at(destination));
            (pool.limits.forgotten_after, pool.limits.route) = (Some(Duration::ZERO), Some(Route::Owner));
            pool
        };
        let (entry, node) = (pools.add(at(Destination::default())), pools.add(at(Destination::at(Some(1)))));
        pools[node].clients = 1;
        assert!(pools.forget_unused(Time(1)).is_empty());
        pools[node].clients = 0;
        assert_eq!(pools.forget_unused(Time(2)).len(), 2);
        assert!(pools[entry].forgotten);
    }

    /// Its place is the next one's, and what took its name elsewhere keeps it.
    #[test]
    fn a_forgotten_pool_comes_again() {
        let (mut pools, limit) = (Pools::default(), Duration::from_secs(10));
        let forgettable = |number| {
            let mut pool = pool(number);
            pool.limits.forgotten_after = Some(limit);
            pool
        };
        let (first, used) = (pools.add(forgettable(1)), pools.add(forgettable(2)));
        pools[used].clients = 1;
        let third = pools.add(forgettable(3));
        pools.note_failed(first);
        let forget = |pools: &mut Pools, secs| pools.forget_unused(Time(0) + Duration::from_secs(secs)).len();
        assert_eq!((forget(&mut pools, 5), forget(&mut pools, 14), forget(&mut pools, 15)), (0, 0, 2));
        assert_eq!((forget(&mut pools, 100), pools.iter().count(), pools.find(&pools[third].name)), (0, 1, None));
        // One takes the other's place, and that one's place goes to a stranger.
        let again = pools.add(forgettable(1));
        assert_eq!((again, pools.add(forgettable(4))), (third, first));
        assert_eq!((pools.find(&pools[again].name), pools.list.len()), (Some(again), 3));
    }
}
