//! Limits on servers: how many a pool, a database and a user may have, and who holds those that count against one.
//!
//! Knows what the settings say and what it is told. Who gets one more is decided in `steward/mod.rs`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use weir_cluster::topology::COORDINATOR;

use crate::id::WorkerId;
use crate::names::{Destination, PoolName};
use crate::settings::{Database, PoolMode, Route, SessionState, Settings, UserSettings};
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

/// What the settings allow a pool, resolved once for each set of settings: by user, by database, or for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolLimits {
    pub(crate) mode: PoolMode,
    /// What a client leaves in a session stays its own, whichever server it gets next.
    pub(crate) keeps: bool,
    /// And it may leave nothing.
    pub(crate) refuses: bool,
    /// The database is a cluster's, and transactions go to one node or another.
    pub(crate) route: Option<Route>,
    /// Servers for what needs rows of several nodes, where those are others.
    pub(crate) fan_out: Option<u32>,
    /// They are at a node of it that is not the coordinator.
    pub(crate) elsewhere: bool,
    /// What a client asks is looked at before it has a server.
    pub(crate) looks_first: bool,
    pub(crate) size: u32,
    /// `min_pool_size`.
    pub(crate) least: u32,
    /// Servers beyond the size, for whoever has waited so long. Where nobody has to wait (`reserve_pool_timeout = 0`), there are none.
    pub(crate) reserve: u32,
    pub(crate) reserve_after: Duration,
    /// Of all pools of its database, and of all of its user; `None`: no limit.
    pub(crate) database: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) server_lifetime: Duration,
    pub(crate) server_idle_timeout: Duration,
    /// After so long without clients and servers it is forgotten.
    pub(super) forgotten_after: Option<Duration>,
    /// A server that was idle for so long is asked whether it still answers before somebody gets it.
    pub(crate) check_after: Duration,
}

impl PoolLimits {
    /// Whether each of so many workers may have a server that listens, in each of so many pools of the database and of the user, and as many
    /// may do the work.
    pub(super) fn has_room_for_listeners(&self, workers: u32, in_database: u32, of_user: u32) -> bool {
        let is_enough = |limit: Option<u32>, pools: u32| limit.is_none_or(|limit| limit > 2 * pools * workers);
        let shared = is_enough(self.database, in_database) && is_enough(self.user, of_user);
        self.mode == PoolMode::Transaction && self.keeps && !self.refuses && self.size > workers && shared
    }

    pub(crate) fn of(pool: &PoolName, settings: &Settings) -> Self {
        let (user, database) = (settings.users.get(&pool.user), settings.database(&pool.database));
        let of_user = |limit: fn(&UserSettings) -> Option<u32>| user.and_then(limit);
        let of_database = |limit: fn(&Database) -> Option<u32>| database.and_then(|database| limit(database));
        let unless_zero = |limit: u32| (limit != 0).then_some(limit);
        let size = of_user(|user| user.pool_size).or(of_database(|database| database.pool_size));
        let reserve = of_user(|user| user.reserve_pool_size).or(of_database(|database| database.reserve_pool_size));
        let no_reserve = settings.reserve_pool_timeout == Duration::ZERO;
        let in_database = of_database(|database| database.max_db_connections);
        let of_one_user = of_user(|user| user.max_user_connections);
        let mode = user.and_then(|user| user.pool_mode).or(database.and_then(|database| database.pool_mode));
        let mode = if pool.looks_up { PoolMode::Transaction } else { mode.unwrap_or(settings.pool_mode) };
        let is_routed =
            mode != PoolMode::Session && !pool.looks_up && database.is_some_and(|database| database.cluster.is_some());
        // Whoever is at a node when that ends leaves it behind the transaction.
        let mode = if !pool.destination.is_entry() && mode == PoolMode::Session { PoolMode::Transaction } else { mode };
        let state = user.and_then(|user| user.session_state).or(database.and_then(|database| database.session_state));
        // What a connect_query leaves would be taken for its first client's.
        let can_keep = mode == PoolMode::Transaction
            && !pool.looks_up
            && database.is_none_or(|database| database.connect_query.is_none());
        let state = state.unwrap_or(settings.session_state);
        let route = user.and_then(|user| user.route).or(database.and_then(|database| database.route));
        let fan_out = of_user(|user| user.fan_out_pool_size).or(of_database(|database| database.fan_out_pool_size));
        let least = of_database(|database| database.min_pool_size).unwrap_or(settings.min_pool_size);
        let lifetime = database.and_then(|database| database.server_lifetime);
        Self {
            mode,
            keeps: can_keep && state != SessionState::Pgbouncer,
            refuses: can_keep && state == SessionState::Refuse,
            route: is_routed.then(|| route.unwrap_or(Route::Owner)),
            elsewhere: pool.destination.node.is_some_and(|node| node != COORDINATOR.0),
            looks_first: is_routed || !pool.destination.is_entry() || settings.disable_pqexec,
            fan_out,
            size: fan_out.filter(|_| pool.destination.fan_out).or(size).unwrap_or(settings.default_pool_size),
            least: match pool.destination {
                _ if pool.looks_up => 0,
                // One to read the catalogue on.
                destination if destination.is_entry() && is_routed => least.max(1),
                Destination { fan_out: true, .. } => 0,
                _ => least,
            },
            reserve: if no_reserve { 0 } else { reserve.unwrap_or(settings.reserve_pool_size) },
            reserve_after: settings.reserve_pool_timeout,
            database: unless_zero(in_database.unwrap_or(settings.max_db_connections)),
            user: unless_zero(of_one_user.unwrap_or(settings.max_user_connections)),
            server_lifetime: lifetime.unwrap_or(settings.server_lifetime),
            server_idle_timeout: settings.server_idle_timeout,
            forgotten_after: forgotten_after(pool, settings, least),
            check_after: settings
                .server_check_query
                .as_ref()
                .map_or(Duration(u64::MAX), |_| settings.server_check_delay),
        }
    }
}

/// One that is filled without a client is not forgotten; one of a database that is none any more is at once.
fn forgotten_after(pool: &PoolName, settings: &Settings, least: u32) -> Option<Duration> {
    let Some(database) = settings.database(&pool.database) else { return Some(Duration::ZERO) };
    let is_auto = !settings.databases.contains_key(&pool.database);
    let auto = settings.autodb_idle_timeout.limit().filter(|_| is_auto);
    let is_filled = database.forced_user.is_some() && least > 0 && !is_auto;
    let any = settings.pool_idle_timeout.limit().filter(|_| !is_filled);
    auto.into_iter().chain(any).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(database: &str) -> Arc<PoolName> {
        Arc::new(PoolName::new(database.into(), "alice".into()))
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
