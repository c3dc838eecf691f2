//! What is one for the whole process: how many clients and servers there are, and who gets the next permit.
//!
//! Each server connection of any worker holds a permit from before its connect until after its end, so no limit is ever
//! exceeded. Wants are served in the order of their oldest waiting client, whichever worker it waits on. Knows no
//! connections: those are the workers'.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_wire::Report;

use crate::console::Census;
use crate::homes::{BUSY_PERMILLE, Change, Homes, Loads};
use crate::id::WorkerId;
use crate::login::CONSOLE;
use crate::mail::{Letter, Moved, Wait};
use crate::pool::{PoolName, pool_mode_of};
use crate::retries::{Retries, Setback, Try};
use crate::settings::{PoolMode, Settings};
use crate::shares::Share;
use crate::time::{Duration, Time};
use crate::whereabouts::{Directory, News, birthplace};

/// How much longer another worker's client must have waited before a server is handed over: below this, handing over
/// would cost more than the wait it saves.
pub(crate) const HAND_OVER_SLACK: Duration = Duration::from_millis(5);
/// Connections that have not said who they are yet, beyond `max_client_conn`.
pub(crate) const UNKNOWN_CLIENTS_MAX: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Ledger {
    /// Permits that each worker holds. Two workers' letters about one server may overtake each other, so that one may seem to
    /// hold fewer than none for a moment; the sum is always right.
    pub(crate) held: Vec<i32>,
    /// What each worker was told of its share.
    pub(crate) told: Vec<Share>,
    homes: Homes,
}

impl Ledger {
    fn servers(&self) -> u32 {
        self.held.iter().sum::<i32>().max(0) as u32
    }

    /// The other workers that have servers, those with most of them first.
    fn other_holders(&self, worker: WorkerId) -> Vec<WorkerId> {
        let others = (0..self.held.len() as u16).map(WorkerId).filter(|&other| other != worker);
        let mut holders: Vec<_> = others.filter(|other| self.held[usize::from(other.0)] > 0).collect();
        holders.sort_by_key(|other| std::cmp::Reverse(self.held[usize::from(other.0)]));
        holders
    }
}

#[derive(Debug, Clone)]
struct Want {
    since: Time,
    worker: WorkerId,
    pool: Arc<PoolName>,
    /// How often it was asked for in a row, so that holders take turns.
    turn: usize,
    /// Its worker was told that all servers there are are its own.
    told_alone: bool,
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
    pub(crate) workers: u16,
    pub(crate) ledgers: BTreeMap<Arc<PoolName>, Ledger>,
    database_servers: BTreeMap<Arc<str>, u32>,
    user_servers: BTreeMap<Arc<str>, u32>,
    wants: Vec<Want>,
    clients: u32,
    database_clients: BTreeMap<Arc<str>, u32>,
    user_clients: BTreeMap<Arc<str>, u32>,
    /// Accepted connections on each worker, whoever they are. Two workers' letters about one that moved may overtake each
    /// other; the sum is always right.
    sockets: Vec<i32>,
    /// More servers stand than the limits allow: those of a reload.
    pub(crate) over: bool,
    loads: Loads,
    directory: Directory,
    /// How many evictions were asked for, so that victims take turns.
    evictions: usize,
    retries: Retries,
    /// When loads are to be looked at again without news of them.
    pub(crate) look_at: Time,
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
            over: false,
            loads: Loads::new(workers),
            directory: Directory::default(),
            evictions: 0,
            retries: Retries::default(),
            look_at: Time::NEVER,
            letters: Vec::new(),
        }
    }

    fn ledger(&mut self, pool: &Arc<PoolName>) -> &mut Ledger {
        let workers = usize::from(self.workers);
        self.ledgers.entry(Arc::clone(pool)).or_insert_with(|| Ledger {
            held: vec![0; workers],
            told: vec![Share::default(); workers],
            homes: Homes::default(),
        })
    }

    // Servers.

    /// `bound`: whoever waits cannot go to where the pool lives.
    pub(crate) fn want(
        &mut self,
        now: Time,
        settings: &Settings,
        from: WorkerId,
        pool: Arc<PoolName>,
        (since, bound): (Time, bool),
    ) {
        let is_same = |want: &Want| want.worker == from && want.pool == pool;
        let turn = self.wants.iter().find(|want| is_same(want)).map_or(0, |want| want.turn + 1);
        self.wants.retain(|want| !is_same(want));
        if let Try::NotYet(setback) = self.retries.may_try(now, &pool)
            && self.held_elsewhere(&pool, from) <= 0
        {
            return self.tell_setback(from, &pool, setback);
        }
        if !self.is_home(settings, &pool, from) && !bound {
            let mut homes = self.ledger(&pool).homes.workers.clone();
            // One of them has room, or that worker would have become one.
            homes.retain(|&home| !self.loads.is_full(home));
            return self.letters.push((from, Letter::Homes { pool, homes }));
        }
        let want = Want { since, worker: from, pool, turn, told_alone: false };
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
        let servers = self.ledgers.get(pool).map_or(0, Ledger::servers);
        let alone = match self.retries.may_try(now, pool) {
            Try::Freely => false,
            Try::Alone => true,
            Try::AfterAnother | Try::NotYet(_) => return,
        };
        if servers < smallest && self.room(now, settings, pool, None) == Room::Yes {
            let first = self.ledger(pool).homes.workers.first().copied();
            let home = if self.is_home(settings, pool, from) { from } else { first.unwrap_or(from) };
            self.permit(settings, pool, home, true, alone);
        }
    }

    /// Whether this worker may have servers of the pool to keep. The first to ask for one is the pool's first home.
    fn is_home(&mut self, settings: &Settings, pool: &Arc<PoolName>, worker: WorkerId) -> bool {
        if self.workers == 1 || pool_mode_of(pool, settings) == PoolMode::Session {
            return true;
        }
        self.ledger(pool);
        let Some(ledger) = self.ledgers.get_mut(pool) else { return true };
        let homes = &mut ledger.homes;
        if !homes.has(worker) && homes.workers.iter().all(|&home| self.loads.is_full(home)) {
            self.loads.settle(homes, worker);
            // It may think otherwise, from an earlier life of the pool.
            let homes = homes.workers.clone();
            self.letters.push((worker, Letter::Homes { pool: Arc::clone(pool), homes }));
            return true;
        }
        homes.has(worker)
    }

    pub(crate) fn permit_back(&mut self, now: Time, settings: &Settings, from: WorkerId, pool: &Arc<PoolName>) {
        let ledger = self.ledger(pool);
        debug_assert!(ledger.servers() > 0, "{from:?} gives back a permit of {pool:?} that nobody holds");
        ledger.held[usize::from(from.0)] -= 1;
        count_down(&mut self.database_servers, &pool.database);
        count_down(&mut self.user_servers, &pool.user);
        self.retries.gave_up(pool, from);
        let settled = self.ledger(pool).held.iter().all(|&held| held == 0);
        if settled
            && !self.wants.iter().any(|want| want.pool == *pool)
            && let Some(ledger) = self.ledgers.remove(pool)
        {
            self.loads.forget(&ledger.homes);
        }
        self.share_out(settings, pool);
        self.serve(now, settings);
    }

    pub(crate) fn gave(&mut self, settings: &Settings, from: WorkerId, to: WorkerId, pool: &Arc<PoolName>) {
        let ledger = self.ledger(pool);
        ledger.held[usize::from(from.0)] -= 1;
        ledger.held[usize::from(to.0)] += 1;
        self.not_alone(pool, to);
        self.share_out(settings, pool);
    }

    /// Gives permits to the oldest wants that there is room for.
    pub(crate) fn serve(&mut self, now: Time, settings: &Settings) {
        self.wants.sort_by_key(|want| (want.since, want.worker));
        for want in std::mem::take(&mut self.wants) {
            let room = self.room(now, settings, &want.pool, Some(want.since)) == Room::Yes;
            match self.retries.may_try(now, &want.pool) {
                Try::Freely if room => self.permit(settings, &want.pool, want.worker, false, false),
                Try::Alone if room => self.permit(settings, &want.pool, want.worker, false, true),
                _ => self.wants.push(want),
            }
        }
    }

    /// Servers that other workers have, or make.
    fn held_elsewhere(&self, pool: &PoolName, worker: WorkerId) -> i32 {
        let Some(ledger) = self.ledgers.get(pool) else { return 0 };
        ledger.held.iter().sum::<i32>() - ledger.held[usize::from(worker.0)]
    }

    /// Whoever waits where no other server can come from is told; the others go on asking for one of those.
    pub(crate) fn login_failed(
        &mut self,
        now: Time,
        settings: &Settings,
        from: WorkerId,
        pool: &Arc<PoolName>,
        refusal: Option<Arc<Report>>,
    ) {
        let setback = self.retries.failed(now, settings.server_login_retry, pool, refusal);
        let wants = self.wants.iter().filter(|want| want.pool == *pool && want.worker != from);
        let waiting: Vec<_> = wants.map(|want| want.worker).chain([from]).collect();
        for worker in waiting {
            // The permit of the one that failed is still to come back.
            let failed = i32::from(worker != from);
            if self.held_elsewhere(pool, worker) - failed <= 0 {
                self.wants.retain(|want| want.worker != worker || want.pool != *pool);
                self.tell_setback(worker, pool, setback.clone());
            }
        }
    }

    pub(crate) fn login_succeeded(&mut self, now: Time, settings: &Settings, from: WorkerId, pool: &Arc<PoolName>) {
        for worker in self.retries.succeeded(pool).into_iter().filter(|&worker| worker != from) {
            let (pool, setback) = (Arc::clone(pool), Setback::default());
            self.letters.push((worker, Letter::Setback { pool, setback }));
        }
        self.serve(now, settings);
    }

    fn tell_setback(&mut self, worker: WorkerId, pool: &Arc<PoolName>, setback: Setback) {
        self.retries.told(pool, worker);
        self.letters.push((worker, Letter::Setback { pool: Arc::clone(pool), setback }));
    }

    /// Settings are new: what failed may succeed.
    pub(crate) fn forget_setbacks(&mut self) {
        for (pool, workers) in self.retries.forget() {
            for worker in workers {
                let (pool, setback) = (Arc::clone(&pool), Setback::default());
                self.letters.push((worker, Letter::Setback { pool, setback }));
            }
        }
    }

    fn permit(&mut self, settings: &Settings, pool: &Arc<PoolName>, to: WorkerId, fill: bool, alone: bool) {
        if alone {
            self.retries.tries(pool, to);
        }
        self.ledger(pool).held[usize::from(to.0)] += 1;
        *self.database_servers.entry(Arc::clone(&pool.database)).or_default() += 1;
        *self.user_servers.entry(Arc::clone(&pool.user)).or_default() += 1;
        self.letters.push((to, Letter::Permit { pool: Arc::clone(pool), fill, alone }));
        self.not_alone(pool, to);
        self.share_out(settings, pool);
    }

    /// That worker has servers of the pool now: whoever was told that his are all there are is told otherwise, so that
    /// he asks for one in time.
    fn not_alone(&mut self, pool: &Arc<PoolName>, holder: WorkerId) {
        let misled = |want: &&mut Want| want.told_alone && want.worker != holder && want.pool == *pool;
        for want in self.wants.iter_mut().filter(misled) {
            want.told_alone = false;
            self.letters.push((want.worker, Letter::Full { pool: Arc::clone(pool), alone: false }));
        }
    }

    fn refuse(&mut self, want: &Want, alone: bool) {
        let is_same = |left: &&mut Want| left.worker == want.worker && left.pool == want.pool;
        if let Some(standing) = self.wants.iter_mut().find(is_same) {
            standing.told_alone = alone;
        }
        self.letters.push((want.worker, Letter::Full { pool: Arc::clone(&want.pool), alone }));
    }

    /// Asks a worker that holds servers of the pool for one, if this client has waited long enough or its worker
    /// has none at all. A renewed want asks the next one.
    fn recall(&mut self, now: Time, want: &Want) {
        let ledger = self.ledger(&want.pool);
        let none = ledger.held[usize::from(want.worker.0)] <= 0;
        let holders = ledger.other_holders(want.worker);
        self.refuse(want, holders.is_empty());
        let waited = now.since(want.since);
        if !holders.is_empty() && (none || waited >= HAND_OVER_SLACK) {
            let holder = holders[want.turn % holders.len()];
            let wait = if none { Wait::Since(want.since) } else { Wait::Lasted(waited) };
            let pool = Arc::clone(&want.pool);
            self.letters.push((holder, Letter::Recall { pool, to: want.worker, wait }));
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
        let waited = since.map_or(Duration::ZERO, |since| now.since(since));
        let size = pool_size(pool, settings);
        let reserve = reserve_pool_size(pool, settings);
        let reserve_open = reserve > 0 && waited >= settings.reserve_pool_timeout;
        if servers >= size + if reserve_open { reserve } else { 0 } {
            return Room::PoolFull;
        }
        let in_database = self.database_servers.get(&pool.database).copied().unwrap_or(0);
        let of_user = self.user_servers.get(&pool.user).copied().unwrap_or(0);
        let fits = |count: u32, limit: Option<u32>| limit.is_none_or(|limit| count < limit);
        let fits_database = fits(in_database, database_limit(&pool.database, settings));
        if fits_database && fits(of_user, user_limit(&pool.user, settings)) { Room::Yes } else { Room::ShareFull }
    }

    // Clients.

    /// Where a connection that was just accepted goes; `None` where there are too many that said nothing.
    pub(crate) fn accept(&mut self, settings: &Settings) -> Option<WorkerId> {
        let sockets = self.sockets.iter().sum::<i32>().max(0) as u32;
        if sockets >= settings.max_client_conn.saturating_add(UNKNOWN_CLIENTS_MAX) {
            return None;
        }
        let worker = self.place()?;
        self.sockets[usize::from(worker.0)] += 1;
        Some(worker)
    }

    /// Where a new connection costs least: on a worker that is awake and has time; else one more is woken.
    fn place(&self) -> Option<WorkerId> {
        let loads = &self.loads;
        loads.workers().min_by_key(|&worker| {
            let sockets = self.sockets[usize::from(worker.0)];
            match (loads.is_awake(worker), loads.busy(worker) > BUSY_PERMILLE) {
                // Where all are full, the driver says so to whoever comes.
                _ if loads.is_full(worker) => (3, sockets),
                (true, false) => (0, sockets),
                // The same one for all, as long as it has time.
                (false, false) => (1, i32::from(worker.0)),
                (_, true) => (2, sockets),
            }
        })
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
        let to_console = **database == *CONSOLE;
        if to_console && settings.admin_users.iter().any(|admin| **admin == **user) {
            // Whoever may set the limits right must be able to come in.
            self.count_in(database, user);
            return None;
        }
        if !to_console && self.clients >= settings.max_client_conn {
            return Some((settings.max_client_conn, "max_client_conn"));
        }
        if full(self.database_clients.get(database), database_limit) {
            return Some((database_limit, "max_db_client_connections"));
        }
        if full(self.user_clients.get(user), user_limit) {
            return Some((user_limit, "max_user_client_connections"));
        }
        self.count_in(database, user);
        None
    }

    fn count_in(&mut self, database: &Arc<str>, user: &Arc<str>) {
        self.clients += u32::from(**database != *CONSOLE);
        *self.database_clients.entry(Arc::clone(database)).or_default() += 1;
        *self.user_clients.entry(Arc::clone(user)).or_default() += 1;
    }

    /// For the console. Names are copied: those that two threads share would be counted by both.
    pub(crate) fn census(&self) -> Census {
        fn copy(counts: &BTreeMap<Arc<str>, u32>) -> BTreeMap<Arc<str>, u32> {
            counts.iter().map(|(name, count)| ((&**name).into(), *count)).collect()
        }
        Census { by_user: copy(&self.user_clients), by_database: copy(&self.database_clients) }
    }

    pub(crate) fn gone(&mut self, from: WorkerId, admitted: Option<(Arc<str>, Arc<str>)>, moved: Option<Moved>) {
        self.sockets[usize::from(from.0)] -= 1;
        if let Some((database, user)) = admitted {
            self.withdraw(&database, &user);
        }
        if let Some(moved) = moved {
            let news = self.directory.ended(moved, birthplace(moved.process_id, self.workers));
            self.pass_on(moved, news);
        }
    }

    /// A client has moved.
    pub(crate) fn lives(&mut self, at: WorkerId, moved: Moved, left: WorkerId) {
        self.sockets[usize::from(left.0)] -= 1;
        self.sockets[usize::from(at.0)] += 1;
        let news = self.directory.arrived(at, moved, birthplace(moved.process_id, self.workers));
        self.pass_on(moved, news);
    }

    fn pass_on(&mut self, about: Moved, news: News) {
        if let Some((worker, moved)) = news.forget {
            self.letters.push((worker, Letter::Forget { moved }));
        }
        if news.released {
            let process_id = about.process_id;
            self.letters.push((birthplace(process_id, self.workers), Letter::Released { process_id }));
        }
    }

    /// Which worker to ask whether a cancel request is for a client of its.
    pub(crate) fn holder(&self, process_id: u32) -> WorkerId {
        self.directory.find(process_id).unwrap_or_else(|| birthplace(process_id, self.workers))
    }

    /// Clients that have a place. Consoles are none, and hold nothing up.
    pub(crate) fn has_clients(&self) -> bool {
        self.clients > 0
    }

    /// Gives back a client's place.
    pub(crate) fn withdraw(&mut self, database: &Arc<str>, user: &Arc<str>) {
        self.clients = self.clients.saturating_sub(u32::from(**database != *CONSOLE));
        count_down(&mut self.database_clients, database);
        count_down(&mut self.user_clients, user);
    }

    // Loads.

    /// How busy a worker is, and for which pools.
    pub(crate) fn load(&mut self, from: WorkerId, busy_permille: u16, pools: &[(Arc<PoolName>, u16)]) {
        self.loads.set_busy(from, busy_permille);
        for (name, ledger) in &mut self.ledgers {
            let share = pools.iter().find(|(pool, _)| pool == name).map_or(0, |(_, share)| *share);
            self.loads.note_share(&mut ledger.homes, from, share);
        }
    }

    /// The driver of that worker has no place for more connections, or has again.
    pub(crate) fn crowded(&mut self, worker: WorkerId, full: bool) {
        self.loads.set_full(worker, full);
    }

    /// Load decides where pools live: few awake workers make large batches and few wake-ups.
    pub(crate) fn look_at_loads(&mut self, now: Time, settings: &Settings) {
        if self.workers == 1 {
            return;
        }
        self.look_at = self.loads.next_look(now);
        for worker in self.loads.overloaded(now) {
            self.relieve(now, settings, worker);
        }
        self.look_at = self.look_at.min(self.loads.next_look(now));
        for (pool, ledger) in &mut self.ledgers {
            loop {
                match self.loads.give_up(now, &mut ledger.homes) {
                    Ok(Some(Change::GivesUp(home))) => {
                        let homes = ledger.homes.workers.clone();
                        self.letters.push((home, Letter::Homes { pool: Arc::clone(pool), homes }));
                    }
                    Ok(_) => break,
                    Err(later) => {
                        self.look_at = self.look_at.min(later);
                        break;
                    }
                }
            }
        }
    }

    /// Moves a part of the pool that a worker is busiest with.
    fn relieve(&mut self, now: Time, settings: &Settings, worker: WorkerId) {
        let here = self.ledgers.iter_mut().filter(|(_, ledger)| ledger.homes.has(worker));
        let parted = here.filter(|(pool, _)| pool_mode_of(pool, settings) != PoolMode::Session);
        let mut parted: Vec<_> = parted.collect();
        parted.sort_by_key(|(_, ledger)| std::cmp::Reverse(ledger.homes.share(worker)));
        for (pool, ledger) in parted {
            let servers = ledger.servers();
            let Some(change) = self.loads.relieve(now, worker, &mut ledger.homes, servers) else { continue };
            if let Change::Shed { from, to, share_permille, new } = change {
                if new {
                    let homes = ledger.homes.workers.clone();
                    self.letters.push((to, Letter::Homes { pool: Arc::clone(pool), homes }));
                }
                self.letters.push((from, Letter::Shed { pool: Arc::clone(pool), to, share_permille }));
            }
            return;
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
