//! A worker's share of a pool: its idle servers, its waiting clients, and what it knows of the rest.
//!
//! A pool is (database, server user). How many servers it may have is the steward's business, which gives a permit for
//! each. Who is linked to whom is decided in `link.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_wire::Report;

use crate::auth::ScramKeys;
use crate::contract::Endpoint;
use crate::id::{ConnId, WorkerId};
use crate::mail::Wait;
use crate::parameters::ParameterSet;
use crate::settings::{Database, PoolMode, Settings};
use crate::stats::Counters;
use crate::time::{Duration, Time};
use crate::timers::Deadline;

/// The first wait after a failed connect; it doubles up to `server_login_retry`.
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Servers that a worker logs in to at once for one pool, so that a burst does not become a storm of logins.
pub(crate) const CONNECTING_MAX: u32 = 8;
/// Pools of a worker above which one that nobody uses gives way to a new one.
const POOLS_KEPT: usize = 1024;
/// Parameter values whose acceptance by PostgreSQL is remembered.
const PROVEN_MAX: usize = 512;

/// What makes two sessions of servers interchangeable.
#[derive(Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PoolName {
    /// The name in `[databases]` that clients ask for.
    pub(crate) database: Arc<str>,
    /// The user the servers are logged in as.
    pub(crate) user: Arc<str>,
}

/// What a server told at login that its clients are told too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Welcome {
    /// Reported parameters that no session can set.
    pub(crate) facts: Vec<(Arc<str>, Arc<[u8]>)>,
    /// The others, as they stand in a new session.
    pub(crate) defaults: Arc<ParameterSet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) client: ConnId,
    pub(crate) since: Time,
}

/// What this worker last heard from the steward about more servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    /// A Want is under way.
    Want,
    Full {
        alone: bool,
    },
}

/// Another worker's client that waits for a server of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recall {
    pub(crate) to: WorkerId,
    pub(crate) wait: Wait,
    pub(crate) until: Time,
}

/// A part of what is here goes to a worker that has less to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shed {
    pub(crate) to: WorkerId,
    /// How likely it is for a client to go; each draws once, when it next has something to ask.
    pub(crate) share_permille: u16,
    pub(crate) servers_left: u32,
    pub(crate) until: Time,
    /// Which shedding this is, among all of the worker's.
    pub(crate) number: u32,
}

/// Why a pool links nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gate {
    Open,
    Paused,
    Disabled,
}

/// By a parameter's name and value as clients wrote them.
pub(crate) type Proven = BTreeMap<(Arc<str>, Arc<str>), Option<Arc<[u8]>>>;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) name: Arc<PoolName>,
    pub(crate) database: Arc<Database>,
    pub(crate) mode: PoolMode,
    pub(crate) gate: Gate,
    pub(crate) idle: VecDeque<ConnId>,
    pub(crate) waiting: VecDeque<Waiting>,
    /// Clients that wait for a connection of their own (replication).
    pub(crate) tunnels: VecDeque<ConnId>,
    /// Logged-in clients of this worker.
    pub(crate) clients: u32,
    /// Server connections of this worker, those being made included.
    pub(crate) servers: u32,
    pub(crate) connecting: u32,
    pub(crate) asked: Asked,
    /// The least time between two wants, and when the next may leave.
    pub(crate) pause: Duration,
    pub(crate) ask_at: Time,
    pub(crate) recall: Option<Recall>,
    /// Where the pool lives, while that is not here. Empty: here, as far as is known.
    pub(crate) homes: Vec<WorkerId>,
    next_home: usize,
    pub(crate) shed: Option<Shed>,
    /// What was done for it before the load was last measured, and its share of the load as the steward knows it.
    pub(crate) work_before: u64,
    pub(crate) told_share_permille: u16,
    pub(crate) welcome: Option<Arc<Welcome>>,
    /// What PostgreSQL made of a parameter's value the last time it was asked; `None` where it does not report it.
    pub(crate) proven: Proven,
    /// The keys of a client that logged in with the SCRAM secret which the server has too.
    pub(crate) keys: Option<ScramKeys>,
    /// After a failed login, none is tried before this.
    pub(crate) retry_at: Time,
    pub(crate) failures: u32,
    /// The error that a server's login last ended in, while none has succeeded since.
    pub(crate) refusal: Option<Arc<Report>>,
    pub(crate) deadline: Deadline,
    pub(crate) counters: Counters,
    /// As they stood when the last period began, and what that period came to.
    pub(crate) counters_before: Counters,
    pub(crate) averages: [u64; 11],
    next_endpoint: usize,
}

impl Pool {
    pub(crate) fn new(name: Arc<PoolName>, database: Arc<Database>, settings: &Settings) -> Self {
        let mode = pool_mode(&name, &database, settings);
        Self {
            name,
            database,
            mode,
            gate: Gate::Open,
            idle: VecDeque::new(),
            waiting: VecDeque::new(),
            tunnels: VecDeque::new(),
            clients: 0,
            servers: 0,
            connecting: 0,
            asked: Asked::Nothing,
            pause: Duration::ZERO,
            ask_at: Time(0),
            recall: None,
            homes: Vec::new(),
            next_home: 0,
            shed: None,
            work_before: 0,
            told_share_permille: 0,
            welcome: None,
            proven: BTreeMap::new(),
            keys: None,
            retry_at: Time(0),
            failures: 0,
            refusal: None,
            deadline: Deadline::default(),
            counters: Counters::default(),
            counters_before: Counters::default(),
            averages: [0; 11],
            next_endpoint: 0,
        }
    }

    /// Settings changed; answers whether servers made under the old ones are still right.
    pub(crate) fn renew(&mut self, database: Arc<Database>, settings: &Settings) -> bool {
        let same = database.server_database == self.database.server_database
            && database.endpoints == self.database.endpoints
            && database.forced_user == self.database.forced_user
            && database.forced_password == self.database.forced_password
            && database.startup_parameters == self.database.startup_parameters
            && database.connect_query == self.database.connect_query;
        if !same {
            self.welcome = None;
            self.proven.clear();
            self.retry_at = Time(0);
        }
        // What a session left behind is for nobody else, and its server is not reset between transactions.
        let mode = std::mem::replace(&mut self.mode, pool_mode(&self.name, &database, settings));
        self.database = database;
        same && mode == self.mode
    }

    /// Several hosts are taken in turn.
    pub(crate) fn next_endpoint(&mut self) -> Option<Endpoint> {
        let count = self.database.endpoints.len();
        let endpoint = self.database.endpoints.get(self.next_endpoint % count.max(1)).cloned();
        self.next_endpoint = self.next_endpoint.wrapping_add(1);
        endpoint
    }

    /// Where a client or a server of ours goes that does not stay here; its homes take turns.
    pub(crate) fn next_home(&mut self) -> Option<WorkerId> {
        if self.homes.is_empty() || self.mode == PoolMode::Session {
            return None;
        }
        self.next_home = (self.next_home + 1) % self.homes.len();
        Some(self.homes[self.next_home])
    }

    /// No client, no server, nothing under way.
    fn is_unused(&self) -> bool {
        self.clients == 0
            && self.servers == 0
            && self.waiting.is_empty()
            && self.tunnels.is_empty()
            && self.asked == Asked::Nothing
    }

    pub(crate) fn take_idle(&mut self, round_robin: bool) -> Option<ConnId> {
        if round_robin { self.idle.pop_front() } else { self.idle.pop_back() }
    }

    pub(crate) fn first_waiting_since(&self) -> Option<Time> {
        self.waiting.front().map(|waiting| waiting.since)
    }

    /// Since when the steward is asked to think somebody waits. A replication connection has no queue to be fair to.
    pub(crate) fn oldest_want(&self) -> Option<Time> {
        self.first_waiting_since().or_else(|| (!self.tunnels.is_empty()).then_some(Time(0)))
    }

    /// A login to a server failed: the next one is tried a little later each time.
    pub(crate) fn login_failed(&mut self, now: Time, longest: Duration) {
        let wait = RETRY_FIRST.0.saturating_mul(1 << self.failures.min(20)).min(longest.0.max(RETRY_FIRST.0));
        self.failures += 1;
        self.retry_at = now + Duration(wait);
    }

    pub(crate) fn login_succeeded(&mut self) {
        self.failures = 0;
        self.retry_at = Time(0);
        self.refusal = None;
    }

    pub(crate) fn remember_proven(&mut self, name: &Arc<str>, value: &Arc<str>, canonical: Option<Arc<[u8]>>) {
        if self.proven.len() >= PROVEN_MAX {
            self.proven.clear();
        }
        self.proven.insert((Arc::clone(name), Arc::clone(value)), canonical);
    }

    /// In session mode a client's statements live on its own server; elsewhere we keep them, unless switched off.
    pub(crate) fn tracks_statements(&self, settings: &Settings) -> bool {
        self.mode != PoolMode::Session && settings.max_prepared_statements > 0
    }
}

/// The mode of a pool that may not be here.
pub(crate) fn pool_mode_of(name: &PoolName, settings: &Settings) -> PoolMode {
    match settings.database(&name.database) {
        Some(database) => pool_mode(name, database, settings),
        None => settings.pool_mode,
    }
}

fn pool_mode(name: &PoolName, database: &Database, settings: &Settings) -> PoolMode {
    let user_mode = settings.users.get(&name.user).and_then(|user| user.pool_mode);
    user_mode.or(database.pool_mode).unwrap_or(settings.pool_mode)
}

/// A worker's pools: an index that never moves, found by name.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    list: Vec<Pool>,
    by_name: BTreeMap<Arc<PoolName>, u32>,
}

impl Pools {
    pub(crate) fn find(&self, name: &PoolName) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    /// Takes the place of a pool that nobody uses, once there are many: `*` makes one of any name that a client thinks of.
    pub(crate) fn add(&mut self, pool: Pool) -> u32 {
        let name = Arc::clone(&pool.name);
        let unused = if self.list.len() < POOLS_KEPT { None } else { self.list.iter().position(Pool::is_unused) };
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
