//! One run of pgbench against a peer: its command, and where its log is.
//!
//! Reading what it prints is the lab's; does not know what answers on the port.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use nix::sys::signal::Signal;

use crate::ground::Ground;
use crate::ground::cluster::{DATABASE, PASSWORD, USER};
use weir_measure::ground::running::{Running, last_lines};
use weir_measure::load::errors;
use weir_measure::load::logs::{LOG_PREFIX, Logs};
use weir_measure::load::summary::Summary;

const THREADS: usize = 2;
/// Logging each transaction would make pgbench itself a part of the load; a quarter is thousands a second.
const SAMPLING_RATE: f64 = 0.25;
const TRANSACTIONS_MIN: u32 = 50;
/// How much longer than asked a run may take: connecting, and the slowest last transaction.
const EXTRA_PATIENCE: Duration = Duration::from_secs(30);

/// How pgbench sends its one SELECT per transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Simple,
    Extended,
    Prepared,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Simple, Mode::Extended, Mode::Prepared];
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Mode::Simple => "simple",
            Mode::Extended => "extended",
            Mode::Prepared => "prepared",
        })
    }
}

#[derive(Clone, Copy)]
pub struct Load {
    pub mode: Mode,
    pub clients: usize,
    /// 0: some transactions of each client, to see that it runs.
    pub seconds: u64,
    /// One connection per transaction (`-C`).
    pub connect: bool,
    pub tls: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latency {
    pub p50_us: u64,
    pub p99_us: u64,
}

pub struct Outcome {
    pub transactions: u64,
    pub tps: f64,
    /// Absent when connecting: pgbench's log starts a transaction's clock after the login.
    pub latency: Option<Latency>,
}

/// The arguments that matter for reading the figures: everything but where to connect and where to log.
pub fn arguments(load: Load) -> Vec<String> {
    let Load { mode, clients, seconds, connect, .. } = load;
    let length = if seconds == 0 { format!("-t {TRANSACTIONS_MIN}") } else { format!("-T {seconds}") };
    let text = format!("-S -n -M {mode} -c {clients} -j {THREADS} {length} -l --sampling-rate={SAMPLING_RATE}");
    text.split(' ').chain(connect.then_some("-C")).map(str::to_owned).collect()
}

/// Runs the load; `look` is called every few milliseconds, and once more after the end.
pub fn run(load: Load, port: u16, ground: &Ground, look: impl FnMut() -> Result<()>) -> Result<Outcome> {
    let directory = ground.logs();
    let logs = Logs { directory: &directory };
    logs.remove()?;
    let mut command = ground.account.command(ground.binaries.program("pgbench"), &directory);
    command.env("PGSSLMODE", if load.tls { "require" } else { "disable" }).env("PGPASSWORD", PASSWORD);
    // Without this libpq asks for Kerberos first, which no peer has.
    command.env("PGGSSENCMODE", "disable");
    command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER]);
    command.args(arguments(load)).arg(format!("--log-prefix={LOG_PREFIX}")).arg(DATABASE);
    let running = Running::start("pgbench", command, ground.directory().join("pgbench.log"), Signal::SIGTERM)?;
    let patience = Duration::from_secs(load.seconds) + EXTRA_PATIENCE;
    let (status, output) = running.wait_until_ended(patience, &ground.interrupt, look)?;
    if !status.success() {
        bail!("pgbench failed ({status}): {}", errors::first(&output));
    }
    let summary = Summary::read(&output).filter(|summary| summary.transactions > 0);
    let Some(Summary { transactions, tps, .. }) = summary else {
        bail!("pgbench finished no transaction: {}", last_lines(&output));
    };
    let latency = if load.connect { None } else { Some(latency(&logs)?) };
    logs.remove()?;
    Ok(Outcome { transactions, tps, latency })
}

fn latency(logs: &Logs) -> Result<Latency> {
    let histogram = logs.histogram()?;
    if histogram.is_empty() {
        bail!("pgbench logged no transaction");
    }
    Ok(Latency { p50_us: histogram.value_at_quantile(0.5), p99_us: histogram.value_at_quantile(0.99) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connecting_uses_the_simple_protocol_and_reconnects() {
        let load = Load { mode: Mode::Simple, clients: 8, seconds: 2, connect: true, tls: false };
        let line = arguments(load).join(" ");
        assert_eq!(line, "-S -n -M simple -c 8 -j 2 -T 2 -l --sampling-rate=0.25 -C");
    }
}
