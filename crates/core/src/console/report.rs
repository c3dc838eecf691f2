//! What a worker is asked for the console, and its share of the answer.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::cluster::recipes::Uses;
use crate::contract::names::Names;
use crate::names::Destination;
use crate::pool::gates::Gates;
use crate::stats::Counters;
use crate::time::Duration;
use crate::watched::{Errors, Watched};

use super::command::Show;

/// What a worker is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Report(Show),
    /// The next of many rows, from this slot on.
    Rows {
        show: Show,
        slot: u32,
    },
    Pause(Option<Arc<str>>),
    Resume(Option<Arc<str>>),
    Suspend,
    Disable(Arc<str>),
    Enable(Arc<str>),
    Reconnect(Option<Arc<str>>),
    Kill(Option<Arc<str>>),
    KillClient(u64),
    /// Answered when all servers that were marked for closing are closed.
    WaitClose(Option<Arc<str>>),
    /// What clients of each cluster look for names in.
    SearchPaths,
    /// Who waits for that, or has paused, has gone, and is answered no more.
    Forget,
}

/// A row's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Cell {
    Text(String),
    Int(i64),
    Null,
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Int(number as i64)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Int(i64::from(number))
    }
}

/// A pool, as one worker sees it or as all do together.
#[derive(Debug, Clone, Default)]
pub(super) struct PoolReport {
    pub(super) mode: &'static str,
    pub(super) clients_active: u32,
    pub(super) clients_waiting: u32,
    pub(super) cancels_active: u32,
    pub(super) servers: u32,
    pub(super) servers_active: u32,
    pub(super) servers_canceled: u32,
    pub(super) servers_idle: u32,
    pub(super) servers_to_check: u32,
    pub(super) servers_tested: u32,
    pub(super) servers_login: u32,
    pub(super) longest_wait: Duration,
    pub(super) counters: Counters,
    /// In the last period of the averages.
    pub(super) counted: Counters,
}

impl PoolReport {
    pub(super) fn add(&mut self, other: &Self) {
        self.mode = other.mode;
        self.clients_active += other.clients_active;
        self.clients_waiting += other.clients_waiting;
        self.cancels_active += other.cancels_active;
        self.servers += other.servers;
        self.servers_active += other.servers_active;
        self.servers_canceled += other.servers_canceled;
        self.servers_idle += other.servers_idle;
        self.servers_to_check += other.servers_to_check;
        self.servers_tested += other.servers_tested;
        self.servers_login += other.servers_login;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        self.counters += other.counters;
        self.counted += other.counted;
    }
}

/// One worker's share, or all shares together.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(super) pools: BTreeMap<(Arc<str>, Arc<str>), PoolReport>,
    pub(crate) rows: Vec<Vec<Cell>>,
    pub(super) names: Names,
    /// Where this worker's rows go on.
    pub(crate) next_slot: Option<u32>,
    pub(super) clients: u32,
    pub(super) consoles: u32,
    pub(super) logins: u32,
    pub(super) servers: u32,
    pub(crate) refusal: Option<String>,
    pub(crate) found: bool,
    /// All workers were told the same: one worker's are everybody's.
    pub(super) gates: Gates,
    /// How long the last period of the averages was.
    pub(super) counted_for: Duration,
    pub(super) free_clients: u32,
    pub(super) free_servers: u32,
    /// Only the steward's worker knows.
    pub(super) census: Census,
    /// And what it passes on, by peer.
    pub(super) peers: BTreeMap<u16, PeerReport>,
    pub(super) watched: BTreeMap<(Arc<str>, Arc<str>), Watched>,
    pub(super) errors: Errors,
    /// By database and node of a cluster; `None`: the entry's servers.
    pub(super) nodes: BTreeMap<(Arc<str>, Destination), PoolReport>,
    /// By the shape of statements, and of those that have none.
    pub(super) routes: BTreeMap<Option<Arc<[u8]>>, Uses>,
    /// By database: of one of its users.
    pub(crate) paths: BTreeMap<Arc<str>, SearchPath>,
}

/// `search_path` where nobody says otherwise.
#[derive(Debug, Clone)]
pub(crate) struct SearchPath {
    pub(super) user: Arc<str>,
    pub(super) path: Box<str>,
}

/// Cancel requests for the sessions of a peer.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PeerReport {
    pub(super) active: u32,
    pub(super) login: u32,
    pub(super) waiting: u32,
}

/// Clients by the names they came in under.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub(crate) by_user: BTreeMap<Arc<str>, u32>,
    pub(crate) by_database: BTreeMap<Arc<str>, u32>,
}

impl Answer {
    pub(super) fn merge(&mut self, share: Self) {
        for (name, report) in share.pools {
            self.pools.entry(name).or_default().add(&report);
        }
        self.rows.extend(share.rows);
        self.clients += share.clients;
        self.consoles += share.consoles;
        self.logins += share.logins;
        self.servers += share.servers;
        self.found |= share.found;
        self.gates = share.gates;
        self.refusal = self.refusal.take().or(share.refusal);
        self.counted_for = self.counted_for.max(share.counted_for);
        self.free_clients += share.free_clients;
        self.free_servers += share.free_servers;
        if !share.census.by_database.is_empty() {
            self.census = share.census;
        }
        self.peers.extend(share.peers);
        self.errors += &share.errors;
        for (name, watched) in share.watched {
            *self.watched.entry(name).or_default() += watched;
        }
        for (name, report) in share.nodes {
            self.nodes.entry(name).or_default().add(&report);
        }
        for (shape, uses) in share.routes {
            match self.routes.entry(shape) {
                Entry::Occupied(of_others) => of_others.into_mut().add(uses),
                Entry::Vacant(place) => drop(place.insert(uses)),
            }
        }
        for (database, path) in share.paths {
            self.paths.entry(database).or_insert(path);
        }
    }
}
