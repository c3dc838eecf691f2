//! What is known when advice is given: of the machine, the server, a pooler's console and earlier runs of the lab.
//!
//! What is not known is `None`, never a guess. Does not know how facts are found, nor what follows from them.

use serde::Serialize;

use weir_measure::journal::Role;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Facts {
    pub machine: Machine,
    pub server: Option<Server>,
    pub console: Option<Console>,
    pub runs: Runs,
    /// What could not be known, and what would help; sentences.
    pub unknown: Vec<String>,
}

/// The machine of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Machine {
    pub cores: Option<f64>,
    pub memory_mib: Option<f64>,
    /// Of all cores during the look, 0 to 100; only where the server runs on this machine.
    pub busy_percent: Option<f64>,
    /// The part of that which the server's own processes used, 0 to 100 of all cores.
    pub server_percent: Option<f64>,
    /// How cores and memory are known: `read on this machine`, `as given`, `of the run's machine`.
    pub origin: String,
}

/// A server, looked at for some seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Server {
    pub url: String,
    pub version: String,
    pub major: u32,
    /// Where it listens itself, by its own account.
    pub port: Option<u16>,
    pub in_recovery: bool,
    pub settings: Settings,
    /// Moments of the look.
    pub moments: Vec<Moment>,
    /// How long the look was, seconds.
    pub seconds: f64,
    pub rates: Rates,
    /// Sessions whose state this user may not see, at the last moment.
    pub hidden: f64,
    /// Longest seconds in one state or transaction, over all moments.
    pub longest_idle_in_transaction: f64,
    pub longest_transaction: f64,
    /// Private memory and page tables of a backend, MiB; only of processes of this machine that may be read.
    pub backend_mib: Option<BackendMemory>,
}

/// Bytes are MiB here; `None` where the version has no such setting.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Settings {
    pub max_connections: Option<f64>,
    /// `superuser_reserved_connections` and `reserved_connections`.
    pub reserved: f64,
    pub shared_buffers_mib: Option<f64>,
    pub work_mem_mib: Option<f64>,
    pub hash_mem_multiplier: f64,
    /// What each autovacuum worker may take, and how many there are.
    pub autovacuum_mib: Option<f64>,
    pub autovacuum_workers: f64,
    pub huge_pages: Option<String>,
    /// Milliseconds; 0 is never.
    pub idle_in_transaction_timeout_ms: Option<f64>,
}

/// Sessions of clients at one moment, by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Moment {
    pub open: f64,
    pub active: f64,
    pub idle: f64,
    pub idle_in_transaction: f64,
    /// Of the active, those that wait, by what for: a heavyweight lock, a lightweight lock, data.
    pub waiting_lock: f64,
    pub waiting_light_lock: f64,
    pub waiting_io: f64,
}

/// Per second, between the look's ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    pub transactions: Option<f64>,
    /// Sessions that began; version 14 and later say it.
    pub sessions: Option<f64>,
    pub blocks_read: Option<f64>,
    pub temporary_mib: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BackendMemory {
    pub median_mib: f64,
    pub largest_mib: f64,
    pub backends: usize,
}

impl Server {
    /// The median over the moments.
    pub fn typical(&self, of: impl Fn(&Moment) -> f64) -> f64 {
        weir_measure::statistics::Spread::of(self.moments.iter().map(of)).map_or(0.0, |spread| spread.median)
    }

    pub fn most(&self, of: impl Fn(&Moment) -> f64) -> f64 {
        self.moments.iter().map(of).fold(0.0, f64::max)
    }

    /// Connections that users without special rights may open.
    pub fn room(&self) -> Option<f64> {
        Some((self.settings.max_connections? - self.settings.reserved).max(0.0))
    }
}

/// A pooler's console, looked at twice.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Console {
    pub url: String,
    /// `Weir 0.1.0`, `PgBouncer 1.25.2`.
    pub version: String,
    pub seconds: f64,
    pub pools: Vec<Pool>,
    pub databases: Vec<PooledDatabase>,
    pub max_client_conn: Option<f64>,
    /// Clients that are connected, to consoles too.
    pub clients: Option<f64>,
    pub query_wait_timeout_seconds: Option<f64>,
    /// Of Weir: how busy each thread is, thousandths.
    pub workers_permille: Vec<f64>,
}

/// A pair of database and user: the larger of both looks where not said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pool {
    pub database: String,
    pub user: String,
    pub mode: String,
    /// `pool_size` of its database, and `reserve_pool_size`.
    pub size: Option<f64>,
    pub clients: f64,
    /// In the look where fewer waited: they wait all the time.
    pub waiting_always: f64,
    pub servers_active: f64,
    /// In the look where fewer were idle.
    pub servers_idle_always: f64,
    pub max_wait_seconds: f64,
}

/// A database of a pooler, with what happened between both looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PooledDatabase {
    pub name: String,
    /// `host:port`: databases of one server share its `max_connections`.
    pub endpoint: String,
    pub pool_size: Option<f64>,
    pub reserve: f64,
    /// 0 is no limit.
    pub max_connections: f64,
    pub paused: bool,
    /// Servers inside of transactions, on average.
    pub busy_servers: Option<f64>,
    /// Clients that waited, on average.
    pub waiting_clients: Option<f64>,
    pub transactions_per_second: Option<f64>,
}

/// What runs of the lab measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Runs {
    pub directory: String,
    pub peaks: Vec<MeasuredPeak>,
    pub poolers: Vec<MeasuredPooler>,
    pub memory: Option<MeasuredMemory>,
    pub idle: Option<MeasuredLoss>,
    pub allowed: Option<MeasuredLoss>,
    /// Experiments that the directory has.
    pub experiments: Vec<String>,
}

impl Runs {
    /// The peak whose workload is nearest to the user's. Of servers only: what is not known to be one may be a pooler, and
    /// its clients are no server connections.
    pub fn peak_of_server(&self) -> Option<&MeasuredPeak> {
        self.peaks.iter().find(|peak| peak.role == Role::Server && !peak.open)
    }
}

/// Where the throughput of a server, or of something that may be one, was best.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredPeak {
    pub experiment: String,
    pub date: String,
    pub target: String,
    pub role: Role,
    pub tps: f64,
    pub connections: f64,
    /// The smallest number with nearly as much.
    pub enough: f64,
    /// Between which that lies in 95 of 100 cases, as far as the rounds tell.
    pub between: Option<(f64, f64)>,
    /// Nothing was measured beyond it.
    pub open: bool,
    /// Of the machine that the load came from, which is the server's if it is local: how busy it was, 0 to 100.
    pub busy_percent: Option<f64>,
    /// Of the same machine.
    pub cores: f64,
    /// Whether the load came from the server's own machine: its transactions waited for no network.
    pub local: bool,
    pub rounds: usize,
    /// Whether the run was the smallest that shows a shape.
    pub quick: bool,
    /// What makes the figure doubtful.
    pub doubts: Vec<String>,
    /// Where errors began, and which were most.
    pub errors: Option<(f64, String)>,
}

/// A pooler beside the server behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredPooler {
    pub experiment: String,
    pub date: String,
    pub direct: String,
    pub pooler: String,
    /// Best through it over best without.
    pub at_peak: MeasuredChange,
    /// The same with the most clients that both were given, where that is past the server's peak.
    pub at_most: Option<(f64, MeasuredChange)>,
}

/// How one throughput of a run stands to another.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredChange {
    pub ratio: f64,
    /// More than chance, as reports decide it.
    pub clear: bool,
    /// Of the one with fewer.
    pub rounds: usize,
    /// What makes either of them doubtful.
    pub doubts: Vec<String>,
}

impl MeasuredChange {
    pub fn is_less(&self) -> bool {
        self.clear && self.ratio < 1.0
    }

    pub fn is_more(&self) -> bool {
        self.clear && self.ratio > 1.0
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredMemory {
    pub experiment: String,
    pub date: String,
    pub idle: Option<ConnectionMemory>,
    pub active: Option<ConnectionMemory>,
}

/// Of a connection: private memory and page tables.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConnectionMemory {
    pub mib: f64,
    pub rounds: usize,
    pub doubts: Vec<String>,
}

/// What more connections left of the throughput.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MeasuredLoss {
    pub experiment: String,
    pub date: String,
    pub line: String,
    pub connections: f64,
    /// Against the throughput with the fewest.
    pub change: MeasuredChange,
}
