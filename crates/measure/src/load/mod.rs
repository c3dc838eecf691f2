//! pgbench and psql as load: what they are asked to do, and what they answered.
//!
//! Knows the two programs; does not know experiments, nor what answers.

mod counting;
pub mod errors;
pub mod logs;
pub mod pgbench;
pub mod programs;
pub mod psql;
pub mod summary;

use std::fmt;
use std::time::Duration;

use crate::series::Series;

/// One run of pgbench.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    pub script: Script,
    pub clients: usize,
    pub seconds: u64,
    /// Instead of `seconds`: so many transactions of each client (`-t`).
    pub transactions: Option<u32>,
    /// A connection per transaction (`-C`).
    pub connect: bool,
    pub protocol: Protocol,
    /// `None`: as many as the machine has cores, and not more than clients.
    pub threads: Option<usize>,
    /// Transactions per second of all clients together, begun at their times whether earlier ones have ended or not (`-R`); latency
    /// then counts from when one should have begun. `None`: each client begins the next when the last has ended.
    pub rate: Option<f64>,
}

impl Script {
    /// What a reader needs to run it again, by the name that commands have for it; `None` for pgbench's own. A file of a user's
    /// that cannot be read is pgbench's to complain of.
    pub fn source(&self) -> Option<(String, String)> {
        match self {
            Script::SelectOnly => None,
            Script::Text { name, text } => Some((format!("{name}.sql"), text.clone())),
            Script::File(file) => Some((file.display().to_string(), std::fs::read_to_string(file).ok()?)),
        }
    }
}

impl Load {
    pub fn new(script: Script, clients: usize, seconds: u64) -> Load {
        let (transactions, connect, protocol) = (None, false, Protocol::Simple);
        Load { script, clients, seconds, transactions, connect, protocol, threads: None, rate: None }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Script {
    /// pgbench's own `-S`.
    SelectOnly,
    /// A name for people, and pgbench's script.
    Text { name: &'static str, text: String },
    /// A user's own file.
    File(std::path::PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Simple,
    Extended,
    Prepared,
}

impl Protocol {
    pub const ALL: [Protocol; 3] = [Protocol::Simple, Protocol::Extended, Protocol::Prepared];
}

/// As pgbench's `-M` has it.
impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
            Protocol::Prepared => "prepared",
        })
    }
}

/// What pgbench measured once it was warm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The command, without passwords and directories of ours; of a cluster one for each node.
    pub command: String,
    pub transactions: u64,
    pub tps: f64,
    /// Of a run by time.
    pub series: Series,
    /// From the log of transactions; absent with `-C`, where the log starts a transaction's clock after the login.
    pub latency: Option<Latency>,
    /// pgbench's own average, which with `-C` has the login in it.
    pub mean_us: Option<f64>,
    /// `initial connection time` of all clients together, or `average connection time` with `-C`, milliseconds.
    pub connect_ms: Option<f64>,
    /// By kind, with the message as a server or pgbench said it and without what differs from client to client.
    pub errors: std::collections::BTreeMap<String, u64>,
    /// User and system time of pgbench itself.
    pub cpu: Duration,
    pub elapsed: Duration,
    /// pgbench's, of all its processes.
    pub threads: usize,
    /// How long after the first process the last one began to measure, where there are several.
    pub began_apart: Duration,
}

impl Outcome {
    /// Only errors: a zero would be drawn as a figure.
    pub fn measured_nothing(&self) -> bool {
        self.transactions == 0 && !self.errors.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub mean_us: f64,
    pub p50_us: f64,
    /// Absent where too few transactions were logged to tell it from the maximum.
    pub p99_us: Option<f64>,
}
