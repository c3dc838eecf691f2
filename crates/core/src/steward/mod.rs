//! What is one for the whole process: how many clients and servers there are, and who gets the next permit.
//!
//! Each server connection of any worker holds a permit from before its connect until after its end, so no limit is ever
//! exceeded. Wants are served in the order of their oldest waiting client, whichever worker it waits on. Knows no
//! connections: those are the workers'.

mod abroad;
mod clients;
mod homes;
mod shares;
mod wants;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{Clusters, Known};
use crate::id::WorkerId;
use crate::mail::{Letter, Permit};
use crate::names::PoolName;
use crate::peer::Endpoint;
use crate::pool::endpoints::{Endpoints, Fails, Setback, Site, Try, Turn};
use crate::pool::limits::{Holders, Limit, PoolLimits};
use crate::pool::told::{Share, Wait};
use crate::settings::{PoolMode, Settings};
use crate::steward::abroad::Abroad;
use crate::steward::homes::{Homes, Loads};
use crate::steward::wants::{Want, Wants};
use crate::time::{Duration, Time};
use crate::whereabouts::Directory;

/// How much longer another worker's client must have waited before a server is handed over: below this, handing over
/// would cost more than the wait it saves.
pub(crate) const HAND_OVER_SLACK: Duration = Duration::from_millis(5);
/// Connections that have not said who they are yet, beyond `max_client_conn`.
pub(crate) const UNKNOWN_CLIENTS_MAX: u32 = 1000;

#[derive(Debug)]
pub(crate) struct Ledger {
    limits: PoolLimits,
    /// Permits that each worker holds. Two workers' letters about one server may overtake each other, so that one may seem to
    /// hold fewer than none for a moment; the sum is always right.
    held: Vec<i32>,
    /// Servers on each worker that stay with their clients for those' state, where there is a limit.
    pinned: Vec<u32>,
    /// Workers none of whose servers will be free for others: all are to be closed.
    closing: Vec<bool>,
    /// What each worker was told of its share. `None`: it is to be told anew.
    told: Vec<Option<Share>>,
    homes: Homes,
    /// Which of its endpoints the next server is made at.
    turn: usize,
}

impl Ledger {
    pub(crate) fn servers(&self) -> u32 {
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

#[derive(Debug)]
pub(crate) struct Steward {
    workers: u16,
    settings: Arc<Settings>,
    clusters: Clusters,
    ledgers: BTreeMap<Arc<PoolName>, Ledger>,
    /// Servers of each database and of each user.
    holders: BTreeMap<Limit, Holders>,
    wants: Wants,
    /// Wants that were tried since that was last asked.
    tried: u64,
    clients: u32,
    database_clients: BTreeMap<Arc<str>, u32>,
    user_clients: BTreeMap<Arc<str>, u32>,
    /// Accepted connections on each worker, whoever they are. Two workers' letters about one that moved may overtake each
    /// other; the sum is always right.
    sockets: Vec<i32>,
    /// More servers stand than the limits allow: those of a reload.
    over: bool,
    loads: Loads,
    directory: Directory,
    endpoints: Endpoints,
    /// What the process has whose place this one has taken.
    abroad: Abroad,
    /// And the one that takes this one's place is told.
    tells_abroad: bool,
    /// Clients that have left the workers for another process and are not sent yet. Letters about one may overtake each other; the sum is always right.
    on_their_way: i32,
    /// When loads are to be looked at again without news of them.
    pub(crate) look_at: Time,
    pub(crate) letters: Vec<(WorkerId, Letter)>,
}

impl Steward {
    /// `takes_over`: another process has told nothing yet of what it still has.
    pub(crate) fn new(workers: u16, settings: Arc<Settings>, takes_over: bool) -> Self {
        Self {
            workers,
            settings,
            clusters: Clusters::default(),
            ledgers: BTreeMap::new(),
            holders: BTreeMap::new(),
            wants: Wants::default(),
            tried: 0,
            clients: 0,
            database_clients: BTreeMap::new(),
            user_clients: BTreeMap::new(),
            sockets: vec![0; usize::from(workers)],
            over: false,
            loads: Loads::new(workers),
            directory: Directory::default(),
            endpoints: Endpoints::default(),
            abroad: Abroad::awaited(takes_over),
            tells_abroad: false,
            on_their_way: 0,
            look_at: Time::NEVER,
            letters: Vec::new(),
        }
    }

    fn ledger(&mut self, pool: &Arc<PoolName>) -> &mut Ledger {
        let (workers, settings) = (usize::from(self.workers), &self.settings);
        self.ledgers.entry(Arc::clone(pool)).or_insert_with(|| Ledger {
            limits: PoolLimits::of(pool, settings),
            held: vec![0; workers],
            pinned: vec![0; workers],
            closing: vec![false; workers],
            told: vec![Some(Share::default()); workers],
            homes: Homes::default(),
            turn: 0,
        })
    }

    /// As a pool's ledger has them, where it has one.
    fn limits(&self, pool: &PoolName) -> PoolLimits {
        self.ledgers.get(pool).map_or_else(|| PoolLimits::of(pool, &self.settings), |ledger| ledger.limits)
    }

    /// All limits may be others, and what failed may succeed.
    pub(crate) fn new_settings(&mut self, now: Time, settings: Arc<Settings>) {
        for (pool, ledger) in &mut self.ledgers {
            ledger.limits = PoolLimits::of(pool, &settings);
        }
        self.settings = settings;
        self.clusters.retain(&self.settings);
        self.forget_setbacks();
        self.share_all();
        self.serve_all(now);
    }

    // Servers.

    /// `bound`: whoever waits cannot go to where the pool lives.
    pub(crate) fn want(&mut self, now: Time, from: WorkerId, pool: Arc<PoolName>, (since, bound): (Time, bool)) {
        let turn = self.wants.take(&pool, from).map_or(0, |want| want.turn + 1);
        if let Try::NotYet(setback) = self.may_try(now, &pool)
            && self.lasting_elsewhere(&pool, from) <= 0
        {
            self.forget_unused(&pool);
            return self.tell_setback(from, &pool, setback);
        }
        if !self.is_home(&pool, from) && !bound {
            let mut homes = self.ledger(&pool).homes.workers.clone();
            // One of them has room, or that worker would have become one.
            homes.retain(|&home| !self.loads.is_full(home));
            return self.letters.push((from, Letter::Homes { pool, homes }));
        }
        let held_up_by = Limit::Pool(Arc::clone(&pool));
        self.wants.put(Want { since, worker: from, pool: Arc::clone(&pool), turn, told_alone: false, held_up_by });
        // What time alone has changed is the pool's own affair, and whoever of it waited longer comes first.
        self.serve(now, vec![Limit::Pool(Arc::clone(&pool))]);
        if let Some(want) = self.wants.get(&pool, from).cloned() {
            self.look_elsewhere(now, &want);
        }
    }

    pub(crate) fn wants_no_more(&mut self, from: WorkerId, pool: &Arc<PoolName>) {
        self.wants.take(pool, from);
        self.forget_unused(pool);
    }

    pub(crate) fn fill(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>) {
        self.fill_up(now, from, pool, 0);
    }

    /// The pool is to have a server, though nobody waits for one: others give theirs up for that, as for whoever does.
    pub(crate) fn fill_one(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>) {
        self.fill_up(now, from, pool, 1);
        if self.servers(pool) == 0 && matches!(self.may_try(now, pool), Try::At(_)) {
            self.evict_for(pool);
        }
    }

    fn fill_up(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>, least: u32) {
        let limits = self.limits(pool);
        let servers = self.servers(pool);
        let Try::At(place) = self.may_try(now, pool) else { return };
        // Whoever waits needs a place more than a server that is kept for later.
        if servers < limits.least.max(least)
            && servers < limits.size
            && !self.abroad.is_awaited()
            && self.reached(pool, true) == [None, None]
        {
            let first = self.ledger(pool).homes.workers.first().copied();
            let home = if self.is_home(pool, from) { from } else { first.unwrap_or(from) };
            self.permit(pool, home, true, place);
        }
    }

    /// Whether this worker may have servers of the pool to keep. The first to ask for one is the pool's first home.
    fn is_home(&mut self, pool: &Arc<PoolName>, worker: WorkerId) -> bool {
        // Whoever goes from node to node with its transactions would go from worker to worker.
        if self.workers == 1 || !pool.destination.is_entry() || self.limits(pool).mode == PoolMode::Session {
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

    /// None was made there: it is still that endpoint's turn.
    pub(crate) fn permit_unused(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>, at: Option<&Endpoint>) {
        let place = self.endpoints_of(pool).iter().position(|other| Some(other) == at);
        if let Some(place) = place {
            self.ledger(pool).turn = place;
        }
        self.permit_back(now, from, pool, at);
    }

    pub(crate) fn permit_back(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>, tried: Option<&Endpoint>) {
        let servers = self.ledger(pool).servers();
        debug_assert!(servers > 0, "{from:?} gives back a permit of {pool:?} that nobody holds");
        self.hold(pool, from, -1);
        tried.into_iter().for_each(|tried| self.endpoints.gave_up(pool, tried, from));
        self.forget_unused(pool);
        self.share_out(pool);
        let limits = vec![Limit::Pool(Arc::clone(pool)), Limit::of_database(pool), Limit::of_user(pool)];
        self.serve(now, limits);
    }

    /// Servers of the pool, those of the process before this one too.
    fn servers(&self, pool: &Arc<PoolName>) -> u32 {
        let own = self.ledgers.get(pool).map_or(0, Ledger::servers);
        own.saturating_add(self.abroad.servers(&Limit::Pool(Arc::clone(pool))))
    }

    /// That worker has so many more of the pool's servers.
    fn hold(&mut self, pool: &Arc<PoolName>, worker: WorkerId, change: i32) {
        let (ledger, index) = (self.ledger(pool), usize::from(worker.0));
        ledger.held[index] += change;
        ledger.closing[index] &= change < 0;
        let holds = ledger.held[index] > 0;
        for limit in [Limit::of_database(pool), Limit::of_user(pool)] {
            let holders = self.holders.entry(limit.clone()).or_default();
            holders.count(pool, worker, change, holds);
            if holders.is_empty() {
                self.holders.remove(&limit);
            }
        }
        if self.tells_abroad {
            self.tell_abroad([pool].into_iter(), false);
        }
    }

    /// A pool that nobody has servers of, nor wants any of, is none.
    fn forget_unused(&mut self, pool: &Arc<PoolName>) {
        let unused = self.ledgers.get(pool).is_some_and(|ledger| ledger.held.iter().all(|&held| held == 0));
        if unused
            && self.wants.of_pool(pool).next().is_none()
            && let Some(ledger) = self.ledgers.remove(pool)
        {
            self.loads.forget(&ledger.homes);
            self.endpoints.forget_proven(pool);
        }
    }

    /// There may be room under these limits: permits go to the oldest of those that they held up, as far as it goes.
    fn serve(&mut self, now: Time, mut limits: Vec<Limit>) {
        while let Some(want) = self.wants.take_oldest(&limits) {
            // Whoever stands behind it there has waited less, and is held up too.
            if let Some(limit) = self.try_to_serve(now, want) {
                limits.retain(|left| *left != limit);
            }
        }
    }

    /// All limits may have changed.
    fn serve_all(&mut self, now: Time) {
        for want in self.wants.take_all() {
            self.try_to_serve(now, want);
        }
    }

    /// Gives a permit, or answers what holds the want up.
    fn try_to_serve(&mut self, now: Time, mut want: Want) -> Option<Limit> {
        self.tried += 1;
        let full = self.full(now, &want.pool, want.since);
        let limit = match (full, self.may_try(now, &want.pool)) {
            (Some(limit), _) => limit,
            (None, Try::AfterAnother | Try::NotYet(_)) => Limit::Pool(Arc::clone(&want.pool)),
            (None, Try::At(place)) => {
                self.permit(&want.pool, want.worker, false, place);
                return None;
            }
        };
        want.held_up_by = limit.clone();
        self.wants.put(want);
        Some(limit)
    }

    /// How many wants were tried to be served since this was last asked.
    pub(crate) fn take_tried(&mut self) -> u64 {
        std::mem::take(&mut self.tried)
    }

    pub(crate) fn wants(&self) -> usize {
        self.wants.len()
    }

    /// Servers that this worker has, or makes.
    fn held(&self, pool: &PoolName, worker: WorkerId) -> i32 {
        self.ledgers.get(pool).map_or(0, |ledger| ledger.held[usize::from(worker.0)])
    }

    /// Servers that other workers have, or make; but for those where all are to be closed.
    fn lasting_elsewhere(&self, pool: &PoolName, worker: WorkerId) -> i32 {
        let Some(ledger) = self.ledgers.get(pool) else { return 0 };
        let held = ledger.held.iter().zip(&ledger.closing).zip(0..);
        held.filter(|&((_, closing), other)| !closing && other != worker.0).map(|((held, _), _)| held).sum()
    }

    /// Whoever waits where no other server can come from is told, once no endpoint is left; the others go on asking for one of those.
    pub(crate) fn login_failed(
        &mut self,
        now: Time,
        from: WorkerId,
        pool: &Arc<PoolName>,
        endpoint: &Endpoint,
        fails: Fails,
    ) {
        self.endpoints.failed(now, self.settings.server_login_retry, pool, endpoint, fails);
        let Try::NotYet(setback) = self.may_try(now, pool) else { return };
        let waiting = self.wants.of_pool(pool).map(|want| want.worker).filter(|&worker| worker != from);
        for worker in waiting.chain([from]).collect::<Vec<_>>() {
            // The permit of the one that failed is still to come back.
            let failed = i32::from(worker != from);
            if self.lasting_elsewhere(pool, worker) - failed <= 0 {
                self.wants.take(pool, worker);
                self.tell_setback(worker, pool, setback.clone());
            }
        }
    }

    /// All servers of that worker are to be closed: whoever waits for one of them need not.
    pub(crate) fn none_lasts(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>, servers: u32) {
        let Some(ledger) = self.ledgers.get_mut(pool) else { return };
        // If it is about to have others, they are some to wait for.
        if i64::from(ledger.held[usize::from(from.0)]) != i64::from(servers) {
            return;
        }
        ledger.closing[usize::from(from.0)] = true;
        let Try::NotYet(setback) = self.may_try(now, pool) else { return };
        for worker in self.wants.of_pool(pool).map(|want| want.worker).collect::<Vec<_>>() {
            if self.lasting_elsewhere(pool, worker) <= 0 {
                self.wants.take(pool, worker);
                self.tell_setback(worker, pool, setback.clone());
            }
        }
    }

    pub(crate) fn login_succeeded(&mut self, now: Time, from: WorkerId, pool: &Arc<PoolName>, endpoint: &Endpoint) {
        for worker in self.endpoints.succeeded(now, pool, endpoint).into_iter().filter(|&worker| worker != from) {
            self.tell_success(worker, pool);
        }
        self.serve(now, vec![Limit::Pool(Arc::clone(pool))]);
    }

    /// That pool's servers log in with another secret: nothing is known of how that goes.
    pub(crate) fn secret_changed(&mut self, now: Time, pool: &Arc<PoolName>) {
        for worker in self.endpoints.forget_pool(pool) {
            self.tell_success(worker, pool);
        }
        self.serve(now, vec![Limit::Pool(Arc::clone(pool))]);
    }

    fn tell_setback(&mut self, worker: WorkerId, pool: &Arc<PoolName>, setback: Setback) {
        self.endpoints.told(pool, worker);
        self.letters.push((worker, Letter::Setback { pool: Arc::clone(pool), setback }));
    }

    /// Logins succeed again, or may.
    fn tell_success(&mut self, worker: WorkerId, pool: &Arc<PoolName>) {
        self.letters.push((worker, Letter::Setback { pool: Arc::clone(pool), setback: Setback::default() }));
    }

    fn forget_setbacks(&mut self) {
        for (pool, workers) in self.endpoints.forget() {
            for worker in workers {
                self.tell_success(worker, &pool);
            }
        }
    }

    fn endpoints_of(&self, pool: &PoolName) -> &[Endpoint] {
        self.clusters.endpoints(&self.settings, pool)
    }

    /// Nodes may be elsewhere from now on, and others may have come or gone.
    pub(crate) fn learn_cluster(&mut self, now: Time, database: &str, known: &Arc<Known>) {
        self.clusters.learn(database, Arc::clone(known));
        self.forget_setbacks();
        self.serve_all(now);
    }

    /// Whether one more server of the pool may be made, and where.
    fn may_try(&self, now: Time, pool: &PoolName) -> Try {
        let endpoints = self.endpoints_of(pool);
        let ledger = self.ledgers.get(pool);
        let first = ledger.map_or(0, |ledger| ledger.turn);
        // Never with the last place: whoever waits may need that for another.
        let may_probe =
            ledger.is_some_and(|ledger| (1..ledger.limits.size.saturating_sub(1)).contains(&ledger.servers()));
        let in_order = endpoints.len() > 1 && !self.balances_hosts(pool);
        self.endpoints.may_try(now, pool, Turn { endpoints, first, may_probe, in_order })
    }

    /// Whether the hosts of its database take turns.
    fn balances_hosts(&self, pool: &PoolName) -> bool {
        self.settings.database(&pool.database).is_none_or(|database| database.balances_hosts)
    }

    fn permit(&mut self, pool: &Arc<PoolName>, to: WorkerId, fill: bool, site: Site) {
        let endpoint = self.endpoints_of(pool).get(site.endpoint).cloned();
        let balances = self.balances_hosts(pool);
        self.ledger(pool).turn = site.endpoint + usize::from(balances);
        if let (Some(endpoint), true) = (&endpoint, site.alone) {
            self.endpoints.tries(pool, endpoint, to);
        }
        let of_reserve = self.servers(pool) >= self.limits(pool).size;
        self.hold(pool, to, 1);
        let permit = Permit { endpoint, fill, alone: site.alone, of_reserve };
        self.letters.push((to, Letter::Permit { pool: Arc::clone(pool), permit }));
        self.not_alone(pool, to);
        self.share_out(pool);
    }

    /// That worker has servers of the pool now: whoever was told that his are all there are is told otherwise, so that
    /// he asks for one in time.
    fn not_alone(&mut self, pool: &Arc<PoolName>, holder: WorkerId) {
        let misled = self.wants.of_pool(pool).filter(|want| want.told_alone && want.worker != holder);
        for worker in misled.map(|want| want.worker).collect::<Vec<_>>() {
            self.refuse(pool, worker, false);
        }
    }

    fn refuse(&mut self, pool: &Arc<PoolName>, worker: WorkerId, alone: bool) {
        self.wants.tell_alone(pool, worker, alone);
        self.letters.push((worker, Letter::Full { pool: Arc::clone(pool), alone }));
    }

    /// There is no room for the want: a server that there is may do, or make room.
    fn look_elsewhere(&mut self, now: Time, want: &Want) {
        let (pool, worker) = (&want.pool, want.worker);
        let holders = self.ledgers.get(pool).map(|ledger| ledger.other_holders(worker)).unwrap_or_default();
        let shared = !matches!(want.held_up_by, Limit::Pool(_));
        // Where others share the limit, their servers may become free at any time: asking again is of use.
        self.refuse(pool, worker, holders.is_empty() && !shared);
        self.recall(now, want, &holders);
        if shared {
            self.evict_for(pool);
        }
    }

    /// Asks for the place of one idle server of another pool under each limit that is reached, since one place alone would be of no
    /// use. A renewed want asks the next ones.
    fn evict_for(&mut self, wanting: &PoolName) {
        for limit in self.reached(wanting, false).into_iter().flatten() {
            let others = self.holders.get_mut(&limit);
            if let Some((pool, holder)) = others.and_then(|others| others.next_other(wanting)) {
                self.letters.push((holder, Letter::Evict { pool }));
            }
        }
    }

    /// Asks a worker that holds servers of the pool for one, if this client has waited long enough or its worker
    /// has none at all. A renewed want asks the next one.
    fn recall(&mut self, now: Time, want: &Want, holders: &[WorkerId]) {
        let none = self.held(&want.pool, want.worker) <= 0;
        let waited = now.since(want.since);
        if !holders.is_empty() && (none || waited >= HAND_OVER_SLACK) {
            let holder = holders[want.turn % holders.len()];
            let wait = if none { Wait::Since(want.since) } else { Wait::Lasted(waited) };
            let only_hope = !matches!(self.may_try(now, &want.pool), Try::At(Site { alone: false, .. }));
            let pool = Arc::clone(&want.pool);
            self.letters.push((holder, Letter::Recall { pool, to: want.worker, wait, only_hope }));
        }
    }

    /// The limit that leaves no room for one more, if any does.
    fn full(&self, now: Time, pool: &Arc<PoolName>, since: Time) -> Option<Limit> {
        let servers = self.servers(pool);
        let waited = now.since(since);
        let limits = self.limits(pool);
        let reserve = if waited >= limits.reserve_after { limits.reserve } else { 0 };
        if servers >= limits.size.saturating_add(reserve) || self.abroad.is_awaited() {
            return Some(Limit::Pool(Arc::clone(pool)));
        }
        self.reached(pool, false).into_iter().flatten().next()
    }

    /// The limits of the pool's database and user, as far as there is no room under them; `wanted`: beside all whom others want.
    fn reached(&self, pool: &PoolName, wanted: bool) -> [Option<Limit>; 2] {
        let is_reached = |limit: &Limit, most: Option<u32>| {
            let own = self.holders.get(limit).map_or(0, |holders| holders.servers.max(0) as u32);
            let servers = own.saturating_add(self.abroad.servers(limit));
            let wants = if wanted { self.wants.count(limit) } else { 0 };
            most.is_some_and(|most| servers.saturating_add(wants) >= most)
        };
        let limits = self.limits(pool);
        [
            Some(Limit::of_database(pool)).filter(|limit| is_reached(limit, limits.database)),
            Some(Limit::of_user(pool)).filter(|limit| is_reached(limit, limits.user)),
        ]
    }
}
