//! Who waits for one more server: each worker's want of a pool, in the order of their oldest clients.
//!
//! A want stands in one queue, that of the limit which was found to hold it up. So when there is room under a limit again, only
//! those are looked at whom that may help, oldest first, and no further than the room goes. What the limits are is
//! known to `steward/mod.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::WorkerId;
use crate::names::PoolName;
use crate::pool::limits::Limit;
use crate::time::Time;

#[derive(Debug, Clone)]
pub(super) struct Want {
    /// Since when its oldest client waits.
    pub(super) since: Time,
    pub(super) worker: WorkerId,
    pub(super) pool: Arc<PoolName>,
    /// How often it was asked for in a row, so that holders take turns.
    pub(super) turn: usize,
    /// Its worker was told that all servers there are are its own.
    pub(super) told_alone: bool,
    pub(super) held_up_by: Limit,
}

/// In the order they are served.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    since: Time,
    worker: WorkerId,
    pool: Arc<PoolName>,
}

impl Rank {
    fn of(want: &Want) -> Self {
        Self { since: want.since, worker: want.worker, pool: Arc::clone(&want.pool) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Wants {
    /// One for each pool and worker.
    list: BTreeMap<(Arc<PoolName>, WorkerId), Want>,
    queues: BTreeMap<Limit, BTreeSet<Rank>>,
    /// How many there are of each database and of each user, whatever holds them up.
    counts: BTreeMap<Limit, u32>,
}

impl Wants {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn get(&self, pool: &Arc<PoolName>, worker: WorkerId) -> Option<&Want> {
        self.list.get(&(Arc::clone(pool), worker))
    }

    /// Whoever wants one of the pool's.
    pub(super) fn of_pool(&self, pool: &Arc<PoolName>) -> impl Iterator<Item = &Want> {
        let end = |worker| (Arc::clone(pool), WorkerId(worker));
        self.list.range(end(0)..=end(u16::MAX)).map(|(_, want)| want)
    }

    pub(super) fn put(&mut self, want: Want) {
        self.take(&want.pool, want.worker);
        for limit in [Limit::of_database(&want.pool), Limit::of_user(&want.pool)] {
            *self.counts.entry(limit).or_default() += 1;
        }
        self.queues.entry(want.held_up_by.clone()).or_default().insert(Rank::of(&want));
        self.list.insert((Arc::clone(&want.pool), want.worker), want);
    }

    pub(super) fn take(&mut self, pool: &Arc<PoolName>, worker: WorkerId) -> Option<Want> {
        let want = self.list.remove(&(Arc::clone(pool), worker))?;
        if let Some(queue) = self.queues.get_mut(&want.held_up_by) {
            queue.remove(&Rank::of(&want));
            if queue.is_empty() {
                self.queues.remove(&want.held_up_by);
            }
        }
        for limit in [Limit::of_database(pool), Limit::of_user(pool)] {
            let count = self.counts.entry(limit.clone()).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&limit);
            }
        }
        Some(want)
    }

    /// How many places of a database or a user are wanted.
    pub(super) fn count(&self, limit: &Limit) -> u32 {
        self.counts.get(limit).copied().unwrap_or(0)
    }

    /// The oldest of those that one of these limits holds up.
    pub(super) fn take_oldest(&mut self, limits: &[Limit]) -> Option<Want> {
        let oldest = limits.iter().filter_map(|limit| self.queues.get(limit)?.first()).min()?.clone();
        self.take(&oldest.pool, oldest.worker)
    }

    /// All of them, in the order they are served.
    pub(super) fn take_all(&mut self) -> Vec<Want> {
        self.queues.clear();
        self.counts.clear();
        let mut wants: Vec<_> = std::mem::take(&mut self.list).into_values().collect();
        wants.sort_by_key(Rank::of);
        wants
    }

    /// What its worker is told.
    pub(super) fn tell_alone(&mut self, pool: &Arc<PoolName>, worker: WorkerId, alone: bool) {
        if let Some(want) = self.list.get_mut(&(Arc::clone(pool), worker)) {
            want.told_alone = alone;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mail::Letter;
    use crate::names::Destination;
    use crate::settings::Settings;
    use crate::steward::Steward;

    const POOLS: u64 = 800;

    fn pool(database: &str, user: &str) -> Arc<PoolName> {
        Arc::new(PoolName::new(database.into(), user.into()))
    }

    fn want(since: u64, worker: u16, held_up_by: &Limit) -> Want {
        let (pool, worker) = (pool("app", "alice"), WorkerId(worker));
        Want { since: Time(since), worker, pool, turn: 0, told_alone: false, held_up_by: held_up_by.clone() }
    }

    /// The permits that were given, by database, and who was told to wait.
    fn given(steward: &mut Steward) -> (Vec<String>, usize) {
        let letters: Vec<_> = steward.letters.drain(..).map(|(_, letter)| letter).collect();
        let told_to_wait = letters.iter().filter(|letter| matches!(letter, Letter::Full { .. })).count();
        let permit = |letter: &Letter| match letter {
            Letter::Permit { pool, .. } => Some(pool.database.to_string()),
            _ => None,
        };
        (letters.iter().filter_map(permit).collect(), told_to_wait)
    }

    #[test]
    fn the_oldest_goes_first_and_none_is_counted_twice() {
        let (database, user) = (Limit::Database("app".into()), Limit::User("alice".into()));
        let mut wants = Wants::default();
        for (since, worker, limit) in [(3, 0, &database), (1, 1, &user), (2, 2, &database), (9, 2, &user)] {
            wants.put(want(since, worker, limit));
        }
        assert_eq!(wants.len(), 3, "worker 2 has renewed its want");
        assert_eq!(wants.of_pool(&pool("app", "alice")).count(), 3);
        assert_eq!((wants.count(&database), wants.count(&Limit::User("bob".into()))), (3, 0));
        assert_eq!(wants.take_oldest(std::slice::from_ref(&database)).unwrap().since, Time(3));
        assert!(wants.take_oldest(std::slice::from_ref(&database)).is_none());
        assert_eq!(wants.take_oldest(&[database, user]).unwrap().since, Time(1));
        assert_eq!(wants.take_all().len(), 1);
        assert!(wants.len() == 0 && wants.queues.is_empty() && wants.counts.is_empty());
    }

    /// A user with two servers whose clients each ask for another database.
    fn crowd(settings: Settings) -> Steward {
        let mut steward = Steward::new(1, Arc::new(settings), false);
        for number in 0..POOLS {
            let pool = pool(&number.to_string(), "alice");
            steward.want(Time(number), WorkerId(0), pool, (Time(number), true));
        }
        assert_eq!(given(&mut steward).0, ["0", "1"]);
        steward
    }

    #[test]
    fn wants_that_a_limit_holds_up_are_not_looked_at_for_each_other() {
        let settings = Settings { max_user_connections: 2, ..Settings::default() };
        let mut steward = crowd(settings);
        assert_eq!(steward.take_tried(), POOLS, "each its own only");
        for number in 2..POOLS {
            let pool = pool(&number.to_string(), "alice");
            steward.want(Time(POOLS), WorkerId(0), pool, (Time(number), true));
        }
        assert_eq!((steward.take_tried(), given(&mut steward)), (POOLS - 2, (vec![], POOLS as usize - 2)));
        // Somebody else's come and go, and one that is in the way.
        steward.want(Time(POOLS), WorkerId(0), pool("5", "bob"), (Time(POOLS), true));
        steward.permit_back(Time(POOLS), WorkerId(0), &pool("5", "bob"), None);
        assert_eq!((steward.take_tried(), given(&mut steward).0), (1, vec!["5".to_owned()]));
        steward.permit_back(Time(POOLS), WorkerId(0), &pool("1", "alice"), None);
        assert_eq!((steward.take_tried(), given(&mut steward).0), (2, vec!["2".to_owned()]));
    }

    #[test]
    fn a_reload_serves_whoever_there_is_room_for_now() {
        let settings = |max_user_connections| Settings { max_user_connections, ..Settings::default() };
        let mut steward = crowd(settings(2));
        steward.new_settings(Time(POOLS), Arc::new(settings(4)));
        assert_eq!(given(&mut steward).0, ["2", "3"]);
        steward.new_settings(Time(POOLS), Arc::new(settings(0)));
        assert_eq!(given(&mut steward).0.len() as u64, POOLS - 4);
        assert_eq!(steward.wants(), 0);
    }

    /// Where a want needs a place of its database and one of its user, one alone would go to somebody else.
    #[test]
    fn others_are_asked_for_a_place_under_each_limit() {
        let settings = Settings { max_user_connections: 1, max_db_connections: 1, ..Settings::default() };
        let mut steward = Steward::new(1, Arc::new(settings), false);
        for (since, database, user) in [(1, "a", "alice"), (2, "b", "bob"), (3, "a", "bob")] {
            steward.want(Time(since), WorkerId(0), pool(database, user), (Time(since), true));
        }
        let evicted: Vec<_> =
            steward.letters.iter().filter(|(_, letter)| matches!(letter, Letter::Evict { .. })).collect();
        assert_eq!(evicted.len(), 2, "{evicted:?}");
    }

    /// A want that needs places under two limits gets them one after the other, if nobody keeps servers for later there.
    #[test]
    fn a_smallest_size_takes_no_place_that_is_wanted() {
        let settings =
            Settings { max_user_connections: 1, max_db_connections: 1, min_pool_size: 1, ..Settings::default() };
        let mut steward = Steward::new(1, Arc::new(settings), false);
        for (since, database, user) in [(1, "a", "alice"), (2, "b", "bob"), (3, "a", "bob")] {
            steward.want(Time(since), WorkerId(0), pool(database, user), (Time(since), true));
        }
        given(&mut steward);
        for (database, user, then) in [("a", "alice", vec![]), ("b", "bob", vec!["a".to_owned()])] {
            steward.permit_back(Time(9), WorkerId(0), &pool(database, user), None);
            steward.fill(Time(9), WorkerId(0), &pool(database, user));
            assert_eq!(given(&mut steward).0, then);
        }
        steward.fill(Time(9), WorkerId(0), &pool("b", "alice"));
        assert_eq!(given(&mut steward).0, ["b"]);
    }

    /// Where there is no room for that, somebody else gives way.
    #[test]
    fn a_pool_that_is_to_be_looked_at_gets_one_server() {
        let settings = Settings { max_db_connections: 1, ..Settings::default() };
        let mut steward = Steward::new(1, Arc::new(settings), false);
        let (entry, node) = (pool("a", "alice"), Arc::new(pool("a", "alice").at(Destination::at(Some(1)))));
        steward.fill(Time(1), WorkerId(0), &entry);
        assert!(given(&mut steward).0.is_empty(), "nobody keeps one");
        steward.want(Time(2), WorkerId(0), Arc::clone(&node), (Time(2), true));
        assert_eq!(given(&mut steward).0.len(), 1);
        steward.fill_one(Time(3), WorkerId(0), &entry);
        let is_evicted = |(_, letter): &(_, Letter)| matches!(letter, Letter::Evict { pool } if *pool == node);
        assert!(steward.letters.iter().any(is_evicted), "{:?}", steward.letters);
        steward.permit_back(Time(4), WorkerId(0), &node, None);
        given(&mut steward);
        steward.fill_one(Time(5), WorkerId(0), &entry);
        assert_eq!(given(&mut steward).0, ["a"]);
        steward.fill_one(Time(6), WorkerId(0), &entry);
        assert!(given(&mut steward).0.is_empty(), "it has one");
    }

    /// What holds a want up may be another limit each time it is looked at.
    #[test]
    fn a_want_is_served_when_all_its_limits_have_room() {
        let settings = Settings { max_user_connections: 1, max_db_connections: 1, ..Settings::default() };
        let mut steward = Steward::new(2, Arc::new(settings), false);
        let mut now = 0;
        let mut wants = |steward: &mut Steward, database: &str, user: &str| {
            now += 1;
            steward.want(Time(now), WorkerId(1), pool(database, user), (Time(now), true));
            given(steward).0
        };
        assert_eq!(wants(&mut steward, "a", "alice"), ["a"]);
        assert_eq!(wants(&mut steward, "b", "bob"), ["b"]);
        assert!(wants(&mut steward, "a", "bob").is_empty());
        assert!(wants(&mut steward, "b", "alice").is_empty());
        steward.permit_back(Time(9), WorkerId(1), &pool("a", "alice"), None);
        assert!(given(&mut steward).0.is_empty(), "bob has his one, and database b");
        steward.permit_back(Time(9), WorkerId(1), &pool("b", "bob"), None);
        assert_eq!(given(&mut steward).0, ["a", "b"], "the older first");
        assert_eq!(steward.wants(), 0);
    }
}
