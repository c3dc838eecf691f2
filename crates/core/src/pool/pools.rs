//! All pools of a worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::names::PoolName;
use crate::pool::Pool;

/// Pools of a worker above which one that nobody uses gives way to a new one.
const POOLS_KEPT: usize = 1024;
/// Pools whose logins failed that are looked at for one that nobody uses.
const FAILED_LOOKED_AT_MAX: usize = 16;

/// A worker's pools: an index that never moves, found by name.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    list: Vec<Pool>,
    by_name: BTreeMap<Arc<PoolName>, u32>,
    /// Those that nobody could log in to yet; some may be used again.
    failed: BTreeSet<u32>,
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

    /// Takes the place of a pool that nobody uses, once there are many: `*` makes one of any name that a client thinks of.
    pub(crate) fn add(&mut self, pool: Pool) -> u32 {
        let name = Arc::clone(&pool.name);
        let unused = self
            .take_failed()
            .or_else(|| if self.list.len() < POOLS_KEPT { None } else { self.list.iter().position(Pool::is_unused) });
        let index = match unused {
            Some(index) => {
                let replaced = std::mem::replace(&mut self.list[index], pool);
                self.by_name.remove(&replaced.name);
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

    /// No login to this pool's servers has succeeded yet, and one failed: its place is the first to be taken.
    pub(crate) fn note_failed(&mut self, index: u32) {
        if self[index].welcome.is_none() {
            self.failed.insert(index);
        }
    }

    fn take_failed(&mut self) -> Option<usize> {
        let unused = |index: &u32| self.list[*index as usize].is_unused();
        let index = self.failed.iter().copied().take(FAILED_LOOKED_AT_MAX).find(unused)?;
        self.failed.remove(&index);
        self.list[index as usize].welcome.is_none().then_some(index as usize)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pool> {
        self.list.iter()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Database, Settings};

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
}
