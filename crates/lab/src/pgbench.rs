//! One run of pgbench: its command, its summary and its transaction log.
//!
//! Knows pgbench's output (PostgreSQL 14 and later); does not know what answers on the port.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use nix::sys::signal::Signal;

use crate::account::Account;
use crate::cluster::{DATABASE, USER};
use crate::interrupt::Interrupt;
use crate::record::{Latency, Mode};
use crate::running::{Running, last_lines};

const THREADS: usize = 2;
/// Logging each transaction would make pgbench itself a part of the load; a quarter is thousands a second.
const SAMPLING_RATE: f64 = 0.25;
const LOG_PREFIX: &str = "transactions";
/// How much longer than asked a run may take: connecting, and the slowest last transaction.
const EXTRA_PATIENCE: Duration = Duration::from_secs(30);
const LATENCY_US_MAX: u64 = 3_600_000_000;

#[derive(Clone, Copy)]
pub struct Load {
    pub mode: Mode,
    pub clients: usize,
    pub seconds: u64,
}

pub struct Outcome {
    pub transactions: u64,
    pub tps: f64,
    /// Absent when connecting: pgbench's log starts a transaction's clock after the login.
    pub latency: Option<Latency>,
}

pub struct Pgbench<'a> {
    pub program: PathBuf,
    pub account: &'a Account,
    pub directory: &'a Path,
    pub interrupt: &'a Interrupt,
}

/// The arguments that matter for reading the figures: everything but where to connect and where to log.
pub fn arguments(load: Load) -> Vec<String> {
    let protocol = if load.mode == Mode::Connect { Mode::Simple } else { load.mode };
    let text = format!(
        "-S -n -M {} -c {} -j {THREADS} -T {} -l --sampling-rate={SAMPLING_RATE}",
        protocol.name(),
        load.clients,
        load.seconds
    );
    let reconnect = (load.mode == Mode::Connect).then_some("-C");
    text.split(' ').chain(reconnect).map(str::to_owned).collect()
}

impl Pgbench<'_> {
    /// Runs the load; `during` is called once, late in the run, while all clients are connected.
    pub fn run<T>(&self, load: Load, port: u16, during: impl FnOnce() -> T) -> Result<(Outcome, T)> {
        self.remove_logs()?;
        let mut command = self.account.command(&self.program, self.directory);
        command.args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", USER]);
        command.args(arguments(load)).arg(format!("--log-prefix={LOG_PREFIX}")).arg(DATABASE);
        let log = self.directory.join("pgbench.log");
        let running = Running::start("pgbench", command, log, Signal::SIGTERM)?;
        let asked = Duration::from_secs(load.seconds);
        self.interrupt.sleep(asked * 3 / 4)?;
        let seen = during();
        let (status, output) = running.wait_until_ended(asked + EXTRA_PATIENCE, self.interrupt)?;
        if !status.success() {
            bail!("pgbench failed ({status}): {}", complaint(&output));
        }
        let (transactions, tps) = parse_summary(&output)?;
        let latency = if load.mode == Mode::Connect { None } else { Some(self.latency()?) };
        self.remove_logs()?;
        Ok((Outcome { transactions, tps, latency }, seen))
    }

    /// pgbench writes one log per thread: `PREFIX.PID` and `PREFIX.PID.THREAD`.
    fn logs(&self) -> Result<Vec<PathBuf>> {
        let entries = fs::read_dir(self.directory).context("cannot list the temporary directory")?;
        let is_log = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(LOG_PREFIX))
        };
        Ok(entries.flatten().map(|entry| entry.path()).filter(is_log).collect())
    }

    fn remove_logs(&self) -> Result<()> {
        for log in self.logs()? {
            fs::remove_file(&log).with_context(|| format!("cannot remove {}", log.display()))?;
        }
        Ok(())
    }

    fn latency(&self) -> Result<Latency> {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("a histogram's bounds")?;
        for log in self.logs()? {
            let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            record_log(&text, &mut histogram)?;
        }
        if histogram.is_empty() {
            bail!("pgbench logged no transaction");
        }
        Ok(Latency { p50_us: histogram.value_at_quantile(0.5), p99_us: histogram.value_at_quantile(0.99) })
    }
}

/// pgbench's log: client, transaction, latency in microseconds, script, and the time it ended.
fn record_log(text: &str, histogram: &mut Histogram<u64>) -> Result<()> {
    for line in text.lines() {
        let field = line.split(' ').nth(2).with_context(|| format!("pgbench logged {line:?}"))?;
        let latency_us: u64 = field.parse().with_context(|| format!("pgbench logged {line:?}"))?;
        histogram.saturating_record(latency_us.max(1));
    }
    Ok(())
}

/// The first thing that went wrong; what follows it is mostly its echo.
fn complaint(output: &str) -> String {
    let error = output.lines().find_map(|line| line.strip_prefix("pgbench: error: "));
    error.map_or_else(|| last_lines(output), str::to_owned)
}

fn parse_summary(output: &str) -> Result<(u64, f64)> {
    let after = |label: &str| {
        let value = output.lines().find_map(|line| line.strip_prefix(label)?.split([' ', '/']).next());
        value.with_context(|| format!("pgbench's summary has no {label:?}: {}", last_lines(output)))
    };
    let transactions = after("number of transactions actually processed: ")?.parse().context("transactions")?;
    let tps = after("tps = ")?.parse().context("tps")?;
    if transactions == 0 {
        bail!("pgbench finished no transaction");
    }
    Ok((transactions, tps))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read_with_and_without_reconnecting() {
        let plain = "number of transactions actually processed: 8123\nnumber of failed transactions: 0 (0.000%)\n\
                     latency average = 0.984 ms\ninitial connection time = 4.1 ms\n\
                     tps = 8128.254 (without initial connection time)\n";
        assert_eq!(parse_summary(plain).unwrap(), (8123, 8128.254));
        let reconnecting = "number of transactions actually processed: 77\ntps = 38.5 (including reconnection times)\n";
        assert_eq!(parse_summary(reconnecting).unwrap(), (77, 38.5));
        assert!(parse_summary("number of transactions actually processed: 0\ntps = 0.0 (without)\n").is_err());
        assert!(parse_summary("pgbench: error: connection refused\n").is_err());
    }

    #[test]
    fn a_complaint_is_the_first_error() {
        let output = "tps = 1\npgbench: error: client 3 aborted: no statement\npgbench: error: Run was aborted\n";
        assert_eq!(complaint(output), "client 3 aborted: no statement");
        assert_eq!(complaint("killed\n"), "killed");
    }

    #[test]
    fn the_log_gives_quantiles() {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).unwrap();
        let lines: String = (1..=100).map(|us| format!("0 {us} {us} 0 1700000000 5\n")).collect();
        record_log(&lines, &mut histogram).unwrap();
        assert_eq!((histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99)), (50, 99));
        assert!(record_log("progress: 5.0 s\n", &mut histogram).is_err());
    }

    #[test]
    fn connecting_uses_the_simple_protocol_and_reconnects() {
        let line = arguments(Load { mode: Mode::Connect, clients: 8, seconds: 2 }).join(" ");
        assert_eq!(line, "-S -n -M simple -c 8 -j 2 -T 2 -l --sampling-rate=0.25 -C");
    }
}
