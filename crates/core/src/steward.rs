//! What is one for the whole process: how many clients and servers there are, and who gets the next permit.
//!
//! Each server connection of any worker holds a permit from before its connect until after its end, so no limit is ever
//! exceeded. Wants are served in the order of their oldest waiting client, whichever worker it waits on. Knows no
//! connections: those are the workers'.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::WorkerId;
use crate::mail::Letter;
use crate::pool::PoolName;
use crate::settings::Settings;
use crate::time::{Duration, Time};

/// How much longer another worker's client must have waited before a server is handed over: below this, handing over
/// would cost more than the wait it saves.
pub(crate) const HAND_OVER_SLACK: Duration = Duration::from_millis(5);
/// All awake workers busier than this: one more is woken.
const BUSY_PERMILLE: u16 = 700;
/// Awake workers together so idle that one less would do.
const IDLE_PERMILLE: u16 = 300;
/// Connections that have not said who they are yet, beyond `max_client_conn`.
pub(crate) const UNKNOWN_CLIENTS_MAX: u32 = 1000;

#[derive(Debug)]
struct Ledger {
    /// Permits that each worker holds. Two workers' letters about one server may overtake each other, so that one may seem to
    /// hold fewer than none for a moment; the sum is always right.
    held: Vec<i32>,
}

impl Ledger {
    fn servers(&self) -> u32 {
        self.held.iter().sum::<i32>().max(0) as u32
    }

    fn held_by_others(&self, worker: WorkerId) -> bool {
        self.held.iter().enumerate().any(|(other, &held)| held > 0 && other != usize::from(worker.0))
    }
}

#[derive(Debug, Clone)]
struct Want {
    since: Time,
    worker: WorkerId,
    pool: Arc<PoolName>,
}

/// Whether one more server fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    Yes,
    /// The pool has its size.
    PoolFull,
    /// The pool has not, its database or user has.
    ShareFull,
}

#[derive(Debug)]
pub(crate) struct Steward {
    workers: u16,
    ledgers: BTreeMap<Arc<PoolName>, Ledger>,
    database_servers: BTreeMap<Arc<str>, u32>,
    user_servers: BTreeMap<Arc<str>, u32>,
    wants: Vec<Want>,
    clients: u32,
    database_clients: BTreeMap<Arc<str>, u32>,
    user_clients: BTreeMap<Arc<str>, u32>,
    /// Accepted connections on each worker, whoever they are.
    sockets: Vec<u32>,
    loads: Vec<u16>,
    /// How many evictions were asked for, so that victims take turns.
    evictions: usize,
    awake: u16,
    pub(crate) letters: Vec<(WorkerId, Letter)>,
}

impl Steward {
    pub(crate) fn new(workers: u16) -> Self {
        Self {
            workers,
            ledgers: BTreeMap::new(),
            database_servers: BTreeMap::new(),
            user_servers: BTreeMap::new(),
            wants: Vec::new(),
            clients: 0,
            database_clients: BTreeMap::new(),
            user_clients: BTreeMap::new(),
            sockets: vec![0; usize::from(workers)],
            loads: vec![0; usize::from(workers)],
            evictions: 0,
            awake: 1,
            letters: Vec::new(),
        }
    }

    fn ledger(&mut self, pool: &Arc<PoolName>) -> &mut Ledger {
        let workers = usize::from(self.workers);
        self.ledgers.entry(Arc::clone(pool)).or_insert_with(|| Ledger { held: vec![0; workers] })
    }

    // Servers.

    pub(crate) fn want(&mut self, now: Time, settings: &Settings, from: WorkerId, pool: Arc<PoolName>, since: Time) {
        self.wants.retain(|want| want.worker != from || want.pool != pool);
        let want = Want { since, worker: from, pool };
        self.wants.push(want.clone());
        // Whoever waited longer comes first, also at an empty place.
        self.serve(now, settings);
        if !self.wants.iter().any(|left| left.worker == want.worker && left.pool == want.pool) {
            return;
        }
        self.recall(now, &want);
        if self.room(now, settings, &want.pool, Some(since)) == Room::ShareFull {
            self.evict_for(&want.pool);
            // Another pool's server may become free at any time: asking again is of use.
            self.refuse(&want, false);
        }
    }

    pub(crate) fn fill(&mut self, now: Time, settings: &Settings, from: WorkerId, pool: &Arc<PoolName>) {
        let smallest = min_pool_size(pool, settings);
        if self.ledger(pool).servers() < smallest && self.room(now, settings, pool, None) == Room::Yes {
            self.permit(pool, from, true);
        }
    }

    pub(crate) fn permit_back(&mut self, now: Time, settings: &Settings, from: WorkerId, pool: &Arc<PoolName>) {
        let ledger = self.ledger(pool);
        debug_assert!(ledger.servers() > 0, "{from:?} gives back a permit of {pool:?} that nobody holds");
        ledger.held[usize::from(from.0)] -= 1;
        count_down(&mut self.database_servers, &pool.database);
        count_down(&mut self.user_servers, &pool.user);
        let settled = self.ledger(pool).held.iter().all(|&held| held == 0);
        if settled && !self.wants.iter().any(|want| want.pool == *pool) {
            self.ledgers.remove(pool);
        }
        self.serve(now, settings);
    }

    pub(crate) fn gave(&mut self, from: WorkerId, to: WorkerId, pool: &Arc<PoolName>) {
        let ledger = self.ledger(pool);
        ledger.held[usize::from(from.0)] -= 1;
        ledger.held[usize::from(to.0)] += 1;
        self.not_alone(pool, to);
    }

    /// Gives permits to the oldest wants that there is room for.
    pub(crate) fn serve(&mut self, now: Time, settings: &Settings) {
        self.wants.sort_by_key(|want| (want.since, want.worker));
        for want in std::mem::take(&mut self.wants) {
            if self.room(now, settings, &want.pool, Some(want.since)) == Room::Yes {
                self.permit(&want.pool, want.worker, false);
            } else {
                self.wants.push(want);
            }
        }
    }

    fn permit(&mut self, pool: &Arc<PoolName>, to: WorkerId, fill: bool) {
        self.ledger(pool).held[usize::from(to.0)] += 1;
        *self.database_servers.entry(Arc::clone(&pool.database)).or_default() += 1;
        *self.user_servers.entry(Arc::clone(&pool.user)).or_default() += 1;
        self.letters.push((to, Letter::Permit { pool: Arc::clone(pool), fill }));
        self.not_alone(pool, to);
    }

    /// That worker has servers of the pool now: whoever was told that his are all there are is told otherwise, so that
    /// he asks for one in time.
    fn not_alone(&mut self, pool: &Arc<PoolName>, holder: WorkerId) {
        for want in self.wants.iter().filter(|want| want.pool == *pool && want.worker != holder) {
            self.letters.push((want.worker, Letter::Full { pool: Arc::clone(pool), alone: false }));
        }
    }

    fn refuse(&mut self, want: &Want, alone: bool) {
        self.letters.push((want.worker, Letter::Full { pool: Arc::clone(&want.pool), alone }));
    }

    /// Asks the workers that hold servers of the pool for one, if this client has waited long enough or its worker
    /// has none at all.
    fn recall(&mut self, now: Time, want: &Want) {
        let ledger = self.ledger(&want.pool);
        let alone = !ledger.held_by_others(want.worker);
        let none = ledger.held[usize::from(want.worker.0)] == 0;
        let holders: Vec<_> = (0..ledger.held.len()).filter(|&worker| ledger.held[worker] > 0).collect();
        self.refuse(want, alone);
        if none || now.since(want.since) >= HAND_OVER_SLACK {
            for worker in holders.into_iter().filter(|&worker| worker != usize::from(want.worker.0)) {
                let pool = Arc::clone(&want.pool);
                let recall = Letter::Recall { pool, to: want.worker, since: want.since };
                self.letters.push((WorkerId(worker as u16), recall));
            }
        }
    }

    /// Asks for the place of one idle server of another pool that shares the limit; each renewed want asks the next one.
    fn evict_for(&mut self, wanting: &Arc<PoolName>) {
        let shares = |pool: &PoolName| pool.database == wanting.database || pool.user == wanting.user;
        let victims: Vec<_> = self
            .ledgers
            .iter()
            .filter(|(pool, _)| *pool != wanting && shares(pool))
            .flat_map(|(pool, ledger)| {
                let holders = ledger.held.iter().enumerate().filter(|(_, held)| **held > 0);
                holders.map(move |(worker, _)| (WorkerId(worker as u16), Arc::clone(pool)))
            })
            .collect();
        if victims.is_empty() {
            return;
        }
        self.evictions = self.evictions.wrapping_add(1);
        let (worker, pool) = victims[self.evictions % victims.len()].clone();
        self.letters.push((worker, Letter::Evict { pool }));
    }

    fn room(&self, now: Time, settings: &Settings, pool: &PoolName, since: Option<Time>) -> Room {
        let servers = self.ledgers.get(pool).map_or(0, Ledger::servers);
        let database = settings.database(&pool.database);
        let user = settings.users.get(&pool.user);
        let waited = since.map_or(Duration::ZERO, |since| now.since(since));
        let size = pool_size(pool, settings);
        let reserve = reserve_pool_size(pool, settings);
        let reserve_open = reserve > 0 && waited >= settings.reserve_pool_timeout;
        if servers >= size + if reserve_open { reserve } else { 0 } {
            return Room::PoolFull;
        }
        let in_database = self.database_servers.get(&pool.database).copied().unwrap_or(0);
        let of_user = self.user_servers.get(&pool.user).copied().unwrap_or(0);
        let database_limit =
            database.and_then(|database| database.max_db_connections).unwrap_or(settings.max_db_connections);
        let user_limit = user.and_then(|user| user.max_user_connections).unwrap_or(settings.max_user_connections);
        let fits = |count: u32, limit: u32| limit == 0 || count < limit;
        if fits(in_database, database_limit) && fits(of_user, user_limit) { Room::Yes } else { Room::ShareFull }
    }

    // Clients.

    /// Where a connection that was just accepted goes; `None` where there are too many that said nothing.
    pub(crate) fn accept(&mut self, settings: &Settings) -> Option<WorkerId> {
        let sockets: u32 = self.sockets.iter().sum();
        if sockets >= settings.max_client_conn.saturating_add(UNKNOWN_CLIENTS_MAX) {
            return None;
        }
        let worker = (0..self.awake).min_by_key(|&worker| self.sockets[usize::from(worker)])?;
        self.sockets[usize::from(worker)] += 1;
        Some(WorkerId(worker))
    }

    /// Counts a client in, or names the limit that is reached.
    pub(crate) fn admit(
        &mut self,
        settings: &Settings,
        database: &Arc<str>,
        user: &Arc<str>,
    ) -> Option<(u32, &'static str)> {
        let database_limit = settings
            .database(database)
            .and_then(|database| database.max_db_client_connections)
            .unwrap_or(settings.max_db_client_connections);
        let user_limit = settings
            .users
            .get(user)
            .and_then(|user| user.max_user_client_connections)
            .unwrap_or(settings.max_user_client_connections);
        let full = |count: Option<&u32>, limit: u32| limit != 0 && count.copied().unwrap_or(0) >= limit;
        if self.clients >= settings.max_client_conn {
            return Some((settings.max_client_conn, "max_client_conn"));
        }
        if full(self.database_clients.get(database), database_limit) {
            return Some((database_limit, "max_db_client_connections"));
        }
        if full(self.user_clients.get(user), user_limit) {
            return Some((user_limit, "max_user_client_connections"));
        }
        self.clients += 1;
        *self.database_clients.entry(Arc::clone(database)).or_default() += 1;
        *self.user_clients.entry(Arc::clone(user)).or_default() += 1;
        None
    }

    pub(crate) fn gone(&mut self, from: WorkerId, admitted: Option<(Arc<str>, Arc<str>)>) {
        let sockets = &mut self.sockets[usize::from(from.0)];
        *sockets = sockets.saturating_sub(1);
        if let Some((database, user)) = admitted {
            self.withdraw(&database, &user);
        }
    }

    /// Gives back a client's place.
    pub(crate) fn withdraw(&mut self, database: &Arc<str>, user: &Arc<str>) {
        self.clients = self.clients.saturating_sub(1);
        count_down(&mut self.database_clients, database);
        count_down(&mut self.user_clients, user);
    }

    /// Load decides how many workers take new clients: few awake workers make large batches and few wake-ups.
    pub(crate) fn load(&mut self, from: WorkerId, busy_permille: u16) {
        self.loads[usize::from(from.0)] = busy_permille;
        let awake = &self.loads[..usize::from(self.awake)];
        let total: u32 = awake.iter().map(|&load| u32::from(load)).sum();
        if awake.iter().all(|&load| load > BUSY_PERMILLE) && self.awake < self.workers {
            self.awake += 1;
        } else if self.awake > 1 && total < u32::from(IDLE_PERMILLE) * u32::from(self.awake - 1) {
            self.awake -= 1;
        }
    }
}

fn count_down(counts: &mut BTreeMap<Arc<str>, u32>, name: &Arc<str>) {
    if let Some(count) = counts.get_mut(name) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(name);
        }
    }
}

pub(crate) fn pool_size(pool: &PoolName, settings: &Settings) -> u32 {
    let user = settings.users.get(&pool.user).and_then(|user| user.pool_size);
    let database = settings.database(&pool.database).and_then(|database| database.pool_size);
    user.or(database).unwrap_or(settings.default_pool_size)
}

pub(crate) fn reserve_pool_size(pool: &PoolName, settings: &Settings) -> u32 {
    let user = settings.users.get(&pool.user).and_then(|user| user.reserve_pool_size);
    let database = settings.database(&pool.database).and_then(|database| database.reserve_pool_size);
    user.or(database).unwrap_or(settings.reserve_pool_size)
}

pub(crate) fn min_pool_size(pool: &PoolName, settings: &Settings) -> u32 {
    settings.database(&pool.database).and_then(|database| database.min_pool_size).unwrap_or(settings.min_pool_size)
}
