//! Limits on servers: how many a pool, a database and a user may have, and who holds those that count against one.
//!
//! Knows what the settings say and what it is told. Who gets one more is decided in `steward.rs`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::id::WorkerId;
use crate::names::PoolName;
use crate::settings::Settings;
use crate::time::Duration;

/// What can hold up a want for one more server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    /// The pool has its size, or logins to it fail.
    Pool(Arc<PoolName>),
    Database(Arc<str>),
    User(Arc<str>),
}

impl Limit {
    pub(crate) fn of_database(pool: &PoolName) -> Self {
        Self::Database(Arc::clone(&pool.database))
    }

    pub(crate) fn of_user(pool: &PoolName) -> Self {
        Self::User(Arc::clone(&pool.user))
    }
}

/// The servers that count against the limit of a database or a user.
#[derive(Debug, Default)]
pub(crate) struct Holders {
    pub(crate) servers: i32,
    holders: BTreeSet<(Arc<PoolName>, WorkerId)>,
    /// Who was last asked to make room.
    asked: Option<(Arc<PoolName>, WorkerId)>,
}

impl Holders {
    /// That worker has so many more of the pool's; `holds`: and has some now.
    pub(crate) fn count(&mut self, pool: &Arc<PoolName>, worker: WorkerId, change: i32, holds: bool) {
        self.servers += change;
        let holder = (Arc::clone(pool), worker);
        if holds {
            self.holders.insert(holder);
        } else {
            self.holders.remove(&holder);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.servers == 0 && self.holders.is_empty()
    }

    /// Who has servers of another pool than this one; each time the next one.
    pub(crate) fn next_other(&mut self, pool: &PoolName) -> Option<(Arc<PoolName>, WorkerId)> {
        let is_other = |(held, _): &&(Arc<PoolName>, WorkerId)| **held != *pool;
        let after = self.asked.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.holders.range((after, Bound::Unbounded)).find(is_other);
        let next = next.or_else(|| self.holders.iter().find(is_other)).cloned();
        self.asked.clone_from(&next);
        next
    }
}

pub(crate) fn pool_size(pool: &PoolName, settings: &Settings) -> u32 {
    let user = settings.users.get(&pool.user).and_then(|user| user.pool_size);
    let database = settings.database(&pool.database).and_then(|database| database.pool_size);
    user.or(database).unwrap_or(settings.default_pool_size)
}

/// Where nobody has to wait for the reserve (`reserve_pool_timeout = 0`), there is none.
pub(crate) fn reserve_pool_size(pool: &PoolName, settings: &Settings) -> u32 {
    let user = settings.users.get(&pool.user).and_then(|user| user.reserve_pool_size);
    let database = settings.database(&pool.database).and_then(|database| database.reserve_pool_size);
    let none = settings.reserve_pool_timeout == Duration::ZERO;
    if none { 0 } else { user.or(database).unwrap_or(settings.reserve_pool_size) }
}

/// `None`: no limit.
pub(crate) fn database_limit(database: &Arc<str>, settings: &Settings) -> Option<u32> {
    let own = settings.database(database).and_then(|database| database.max_db_connections);
    Some(own.unwrap_or(settings.max_db_connections)).filter(|limit| *limit != 0)
}

pub(crate) fn user_limit(user: &Arc<str>, settings: &Settings) -> Option<u32> {
    let own = settings.users.get(user).and_then(|user| user.max_user_connections);
    Some(own.unwrap_or(settings.max_user_connections)).filter(|limit| *limit != 0)
}

pub(crate) fn min_pool_size(pool: &PoolName, settings: &Settings) -> u32 {
    settings.database(&pool.database).and_then(|database| database.min_pool_size).unwrap_or(settings.min_pool_size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(database: &str) -> Arc<PoolName> {
        Arc::new(PoolName { database: database.into(), user: "alice".into() })
    }

    #[test]
    fn all_others_are_asked_in_turn() {
        let mut holders = Holders::default();
        assert_eq!(holders.next_other(&pool("a")), None);
        for (database, worker) in [("a", 0), ("a", 1), ("b", 0), ("c", 1)] {
            holders.count(&pool(database), WorkerId(worker), 1, true);
        }
        let mut asked = |wanting: &str| {
            let (pool, worker) = holders.next_other(&pool(wanting)).unwrap();
            (pool.database.to_string(), worker.0)
        };
        assert_eq!([asked("b"), asked("b"), asked("b")], [("a".into(), 0), ("a".into(), 1), ("c".into(), 1)]);
        assert_eq!([asked("a"), asked("a"), asked("a")], [("b".into(), 0), ("c".into(), 1), ("b".into(), 0)]);
    }

    #[test]
    fn letters_about_one_server_may_overtake_each_other() {
        let mut holders = Holders::default();
        holders.count(&pool("a"), WorkerId(0), 1, true);
        // It went to worker 1, and its end there is heard of first.
        holders.count(&pool("a"), WorkerId(1), -1, false);
        assert!(!holders.is_empty());
        holders.count(&pool("a"), WorkerId(0), -1, false);
        holders.count(&pool("a"), WorkerId(1), 1, false);
        assert!(holders.is_empty());
    }
}
