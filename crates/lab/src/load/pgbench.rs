//! pgbench: finding one, running it, and reading its summary and its log of transactions.
//!
//! Knows pgbench's output (PostgreSQL 14 and later); does not know what answers, nor what is measured beside it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hdrhistogram::Histogram;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::errors;
use super::{Latency, Load, Outcome, Protocol, Script, programs};
use crate::ground::interrupt::Interrupt;
use crate::ground::running::{Running, last_lines};
use crate::targets::url::Url;

/// Before 14 pgbench measured while it was still connecting, and counted connecting as latency.
const MAJOR_MIN: u32 = 14;
/// How much longer than asked a run may take: connecting, and the slowest last transaction.
const EXTRA_PATIENCE: Duration = Duration::from_secs(60);
/// So many transactions are enough for a 99th percentile (a thousand are beyond it), and cost pgbench little to log.
const LOGGED_MAX: f64 = 100_000.0;
/// What a core may do at most, where nothing has been measured yet.
const TPS_PER_CORE_GUESS: f64 = 30_000.0;
const SAMPLING_RATE_MIN: f64 = 0.000_1;
/// An hour: what waits longer is no transaction.
pub const LATENCY_US_MAX: u64 = 3_600_000_000;
const LOG_PREFIX: &str = "transactions";

/// A pgbench that is new enough, and where it may write.
#[derive(Clone, Debug)]
pub struct Pgbench {
    pub program: PathBuf,
    /// As `--version` prints it.
    pub version: String,
    directory: PathBuf,
    interrupt: Interrupt,
    cores: usize,
}

/// How one run is done beyond what is asked of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// `:scale` in scripts, which pgbench knows by itself only for its own.
    pub scale: u32,
    /// What is expected, so that as many transactions are logged as are needed.
    pub tps_guess: Option<f64>,
}

/// The kind of error of a measurement that was over before it began.
const NOTHING_ENDED: &str =
    "no transaction ended in time: connecting, or a single one, took longer than the measurement";

impl Pgbench {
    /// The named one, else that of `PG_BIN`, of `PATH`, or Debian's newest. Its files go to `directory`.
    pub fn find(named: Option<&Path>, directory: &Path, interrupt: &Interrupt) -> Result<Pgbench> {
        let program = match named {
            Some(program) => program.to_path_buf(),
            None => programs::find("pgbench").context(
                "there is no pgbench in PG_BIN, on PATH or in /usr/lib/postgresql: install PostgreSQL's pgbench \
                 (Debian: postgresql, others: postgresql-contrib), or name it with --pgbench",
            )?,
        };
        let version = programs::version(&program)?;
        let major = programs::major(&version)
            .with_context(|| format!("{} --version prints {version:?}: that is no pgbench", program.display()))?;
        if major < MAJOR_MIN {
            bail!(
                "{} is of version {major}, and at least {MAJOR_MIN} is needed: older ones start to measure before all clients \
                 are connected. Servers of any version may be measured with a new pgbench",
                program.display()
            );
        }
        let (directory, interrupt) = (directory.to_path_buf(), interrupt.clone());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Pgbench { program, version, directory, interrupt, cores })
    }

    /// pgbench's threads for so many clients.
    pub fn threads(&self, load: &Load) -> usize {
        load.threads.unwrap_or(self.cores).clamp(1, load.clients.max(1))
    }

    /// Runs the load to its end. `look` is called every few milliseconds with what pgbench has shown so far.
    ///
    /// An error means that pgbench could not be run at all, or that somebody wants us to stop; a server that refuses, or
    /// dies, is in the outcome's errors.
    pub fn run(
        &self,
        load: &Load,
        url: &Url,
        manner: Manner,
        mut look: impl FnMut(&Progress) -> Result<()>,
    ) -> Result<Outcome> {
        self.remove_logs()?;
        let arguments = self.arguments(load, self.sampling_rate(load, manner), manner.scale);
        let (began, cpu_before) = (Instant::now(), children_cpu()?);
        let mut running = self.start("pgbench", load, url, &arguments)?;
        let patience = Duration::from_secs(load.seconds) + EXTRA_PATIENCE;
        let mut progress = Progress { pid: running.pid(), measuring_since: None };
        let status = self.interrupt.wait_for(patience, || {
            let status = running.ended()?;
            if progress.measuring_since.is_none() {
                progress.look(&running);
            }
            look(&progress)?;
            Ok(status)
        })?;
        let output = running.output();
        drop(running);
        let mut outcome = self.outcome(load, &output)?;
        outcome.command = shown(load, url, &arguments);
        outcome.errors = errors::kinds(&url.hide_password(&output));
        match status {
            None => {
                *outcome.errors.entry(format!("pgbench did not end within {} s", patience.as_secs())).or_default() += 1
            }
            Some(status) if !status.success() && outcome.errors.is_empty() => {
                let words = url.hide_password(&last_lines(&output));
                outcome.errors.insert(format!("pgbench failed ({status}): {words}"), 1);
            }
            // Many clients may take longer to connect than the whole measurement: that is no throughput of zero.
            Some(_) if outcome.transactions == 0 && outcome.errors.is_empty() => {
                outcome.errors.insert(NOTHING_ENDED.to_owned(), 1);
            }
            Some(_) => {}
        }
        outcome.cpu = children_cpu()?.saturating_sub(cpu_before);
        outcome.elapsed = began.elapsed();
        Ok(outcome)
    }

    /// Starts clients that run `script` until the value is dropped, and waits until all of them are connected.
    pub fn hold(&self, clients: usize, script: &Script, url: &Url, scale: u32) -> Result<(Running, String)> {
        let load = Load::new(script.clone(), clients, HOLD_SECONDS);
        let arguments = self.arguments(&load, None, scale);
        let mut running = self.start("pgbench-holding", &load, url, &arguments)?;
        let (mut connected_max, mut next_count) = (0, Instant::now());
        let patience = HOLD_PATIENCE + HOLD_PATIENCE_PER_CLIENT * u32::try_from(clients).unwrap_or(u32::MAX);
        let ready = self.interrupt.wait_for(patience, || {
            if running.ended()?.is_some() {
                let kinds = errors::kinds(&url.hide_password(&running.output()));
                let kinds: Vec<&str> = kinds.keys().map(String::as_str).collect();
                bail!("only about {connected_max} of {clients} connections came in: {}", kinds.join("; "));
            }
            if next_count <= Instant::now() {
                connected_max = connected_max.max(crate::ground::descriptors::open_sockets(running.pid()));
                next_count = Instant::now() + HOLD_COUNT_EVERY;
            }
            // pgbench reports progress once all are connected.
            Ok(first_progress(&running.output()).map(drop))
        })?;
        if ready.is_none() {
            bail!("only about {connected_max} of {clients} connections came in within {} s", patience.as_secs());
        }
        let command = shown(&load, url, &arguments);
        Ok((running, command))
    }

    fn start(&self, name: &str, load: &Load, url: &Url, arguments: &[String]) -> Result<Running> {
        let mut command = self.command();
        url.give_password(&mut command);
        command.args(arguments);
        match &load.script {
            Script::SelectOnly => {
                command.arg("-S");
            }
            Script::Text { name, text } => {
                let file = self.directory.join(format!("{name}.sql"));
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
                command.arg("-f").arg(file);
            }
            Script::File(file) => {
                command.arg("-f").arg(std::path::absolute(file).unwrap_or_else(|_| file.clone()));
            }
        }
        // pgbench takes a connection string in place of a database's name.
        command.arg(url.conninfo());
        Running::start(name, command, self.directory.join(format!("{name}.log")), Signal::SIGTERM)
    }

    fn command(&self) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        // A process group of its own: Ctrl-C reaches the lab, which stops the rest in order.
        command.current_dir(&self.directory).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        command
    }

    /// All but script and endpoint. Progress once a second shows when measuring began, and what was done should it hang.
    fn arguments(&self, load: &Load, sampling_rate: Option<f64>, scale: u32) -> Vec<String> {
        let protocol = match load.protocol {
            Protocol::Simple => "simple",
            Protocol::Extended => "extended",
            Protocol::Prepared => "prepared",
        };
        let mut text = format!("-n -M {protocol} -c {} -j {} -P 1", load.clients, self.threads(load));
        match load.transactions {
            Some(transactions) => text.push_str(&format!(" -t {transactions}")),
            None => text.push_str(&format!(" -T {}", load.seconds)),
        }
        if load.connect {
            text.push_str(" -C");
        }
        if load.script != Script::SelectOnly {
            text.push_str(&format!(" -s {scale}"));
        }
        match sampling_rate {
            Some(rate) if rate < 1.0 => text.push_str(&format!(" -l --log-prefix={LOG_PREFIX} --sampling-rate={rate}")),
            Some(_) => text.push_str(&format!(" -l --log-prefix={LOG_PREFIX}")),
            None => {}
        }
        text.split(' ').map(str::to_owned).collect()
    }

    /// `None` where the log says nothing: with `-C` it starts a transaction's clock after the login.
    fn sampling_rate(&self, load: &Load, manner: Manner) -> Option<f64> {
        if load.connect {
            return None;
        }
        let transactions = match load.transactions {
            #[expect(clippy::cast_precision_loss)]
            Some(each) => f64::from(each) * load.clients as f64,
            #[expect(clippy::cast_precision_loss)]
            None => manner.tps_guess.unwrap_or(TPS_PER_CORE_GUESS * self.cores as f64) * load.seconds as f64,
        };
        let rate = (LOGGED_MAX / transactions.max(1.0)).clamp(SAMPLING_RATE_MIN, 1.0);
        // Two digits: it stands in a command that people read.
        let unit = 10f64.powf(rate.log10().floor() - 1.0);
        Some(((rate / unit).round() * unit * 1e6).round() / 1e6)
    }

    fn outcome(&self, load: &Load, output: &str) -> Result<Outcome> {
        let summary = Summary::read(output).or_else(|| Summary::of_progress(output));
        let latency = if load.connect { None } else { self.latency(summary.as_ref())? };
        self.remove_logs()?;
        let summary = summary.unwrap_or_default();
        Ok(Outcome {
            transactions: summary.transactions,
            tps: summary.tps,
            latency,
            mean_us: summary.mean_ms.map(|mean_ms| mean_ms * 1000.0),
            connect_ms: summary.connect_ms,
            ..Outcome::default()
        })
    }

    fn latency(&self, summary: Option<&Summary>) -> Result<Option<Latency>> {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("a histogram's bounds")?;
        for log in self.logs()? {
            let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            record_log(&text, &mut histogram);
        }
        if histogram.is_empty() {
            return Ok(None);
        }
        let mean_us = summary.and_then(|summary| summary.mean_ms).map_or(histogram.mean(), |ms| ms * 1000.0);
        #[expect(clippy::cast_precision_loss)]
        let quantile = |part| histogram.value_at_quantile(part) as f64;
        Ok(Some(Latency { mean_us, p50_us: quantile(0.5), p99_us: quantile(0.99) }))
    }

    /// One log per thread: `PREFIX.PID` and `PREFIX.PID.THREAD`.
    fn logs(&self) -> Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(&self.directory).with_context(|| format!("cannot list {}", self.directory.display()))?;
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
}

/// A run of pgbench as it goes on.
pub struct Progress {
    pub pid: Pid,
    /// When all clients were connected and counting began.
    pub measuring_since: Option<Instant>,
}

impl Progress {
    fn look(&mut self, running: &Running) {
        let Some(after) = first_progress(&running.output()) else { return };
        self.measuring_since = Instant::now().checked_sub(after);
    }
}

/// Long beyond any measurement; held connections end with the value that holds them.
const HOLD_SECONDS: u64 = 7 * 24 * 3600;
const HOLD_PATIENCE: Duration = Duration::from_secs(60);
const HOLD_PATIENCE_PER_CLIENT: Duration = Duration::from_millis(20);
const HOLD_COUNT_EVERY: Duration = Duration::from_millis(200);

/// User and system time of all children that have ended.
fn children_cpu() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read what our children used")?;
    let time = |value: nix::sys::time::TimeVal| {
        Duration::from_secs(value.tv_sec().try_into().unwrap_or(0))
            + Duration::from_micros(value.tv_usec().try_into().unwrap_or(0))
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// The command as a reader would repeat it.
fn shown(load: &Load, url: &Url, arguments: &[String]) -> String {
    let script = match &load.script {
        Script::SelectOnly => "-S".to_owned(),
        Script::Text { name, .. } => format!("-f {name}.sql"),
        Script::File(file) => format!("-f {}", file.display()),
    };
    format!("pgbench {} {script} '{url}'", arguments.join(" "))
}

/// After how many seconds the first line of `-P` says that it was written.
fn first_progress(output: &str) -> Option<Duration> {
    let line = output.lines().find_map(|line| line.strip_prefix("progress: "))?;
    Duration::try_from_secs_f64(line.split(' ').next()?.parse().ok()?).ok()
}

/// What pgbench prints at the end, also when some of its clients were aborted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub transactions: u64,
    pub tps: f64,
    pub mean_ms: Option<f64>,
    pub connect_ms: Option<f64>,
}

impl Summary {
    /// `None` where pgbench did not come to its end.
    pub fn read(output: &str) -> Option<Summary> {
        let after = |label: &str| output.lines().find_map(|line| line.strip_prefix(label)?.split([' ', '/']).next());
        let number = |label: &str| after(label)?.parse::<f64>().ok();
        Some(Summary {
            transactions: after("number of transactions actually processed: ")?.parse().ok()?,
            // Without a finished transaction pgbench prints no figure, or `nan`.
            tps: number("tps = ").filter(|tps| tps.is_finite()).unwrap_or(0.0),
            mean_ms: number("latency average = ").filter(|mean| mean.is_finite()),
            connect_ms: number("average connection time = ").or_else(|| number("initial connection time = ")),
        })
    }

    /// From the lines of `-P 1`: `progress: 2.0 s, 812.0 tps, lat 1.228 ms stddev 0.2, 0 failed`.
    fn of_progress(output: &str) -> Option<Summary> {
        let lines = output.lines().filter_map(|line| line.strip_prefix("progress: "));
        let tps: Vec<f64> =
            lines.filter_map(|line| line.split(", ").nth(1)?.strip_suffix(" tps")?.parse().ok()).collect();
        if tps.is_empty() {
            return None;
        }
        let sum: f64 = tps.iter().sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        Some(Summary { transactions: sum.round() as u64, tps: sum / tps.len() as f64, ..Summary::default() })
    }
}

/// pgbench's log: client, transaction, latency in microseconds, script, and the time it ended. A disk that was full may
/// have cut it anywhere.
pub fn record_log(text: &str, histogram: &mut Histogram<u64>) {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let latencies = whole.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok());
    for latency_us in latencies {
        histogram.saturating_record(latency_us.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pgbench() -> Pgbench {
        let (program, directory) = (PathBuf::from("pgbench"), PathBuf::from("/nowhere"));
        let interrupt = Interrupt::install().unwrap();
        Pgbench { program, version: "pgbench (PostgreSQL) 15.1".to_owned(), directory, interrupt, cores: 4 }
    }

    #[test]
    fn the_summary_is_read_with_and_without_reconnecting() {
        let plain = "number of transactions actually processed: 8123\nnumber of failed transactions: 0 (0.000%)\n\
                     latency average = 0.984 ms\ninitial connection time = 4.1 ms\n\
                     tps = 8128.254 (without initial connection time)\n";
        let expected = Summary { transactions: 8123, tps: 8128.254, mean_ms: Some(0.984), connect_ms: Some(4.1) };
        assert_eq!(Summary::read(plain), Some(expected));
        let reconnecting = "number of transactions actually processed: 77\naverage connection time = 2.5 ms\n\
                            tps = 38.5 (including reconnection times)\n";
        let expected = Summary { transactions: 77, tps: 38.5, mean_ms: None, connect_ms: Some(2.5) };
        assert_eq!(Summary::read(reconnecting), Some(expected));
        let none = Summary::read("number of transactions actually processed: 0\n").unwrap();
        assert_eq!((none.transactions, none.tps), (0, 0.0));
        assert_eq!(Summary::read("pgbench: error: connection refused\n"), None);
    }

    #[test]
    fn a_run_without_an_end_has_what_progress_said() {
        let output = "progress: 1.0 s, 100.0 tps, lat 1.2 ms stddev 0.1, 0 failed\n\
                      progress: 2.0 s, 300.0 tps, lat 1.2 ms stddev 0.1, 0 failed\n";
        let summary = Summary::of_progress(output).unwrap();
        assert_eq!((summary.transactions, summary.tps), (400, 200.0));
        assert_eq!(first_progress(output), Some(Duration::from_secs(1)));
        assert_eq!(Summary::of_progress("starting\n"), None);
    }

    #[test]
    fn the_log_gives_quantiles_also_when_it_was_cut() {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).unwrap();
        let lines: String = (1..=100).map(|us| format!("0 {us} {us} 0 1700000000 5\n")).collect();
        record_log(&format!("{lines}3 101 99"), &mut histogram);
        assert_eq!(histogram.len(), 100);
        assert_eq!((histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99)), (50, 99));
    }

    #[test]
    fn the_arguments_say_what_was_asked() {
        let text = Script::Text { name: "lookup", text: String::new() };
        let load = Load { connect: true, ..Load::new(text, 3, 2) };
        let arguments = pgbench().arguments(&load, pgbench().sampling_rate(&load, Manner::default()), 7).join(" ");
        assert_eq!(arguments, "-n -M simple -c 3 -j 3 -P 1 -T 2 -C -s 7");
        let load =
            Load { transactions: Some(10), protocol: Protocol::Prepared, ..Load::new(Script::SelectOnly, 64, 0) };
        let arguments = pgbench().arguments(&load, pgbench().sampling_rate(&load, Manner::default()), 7).join(" ");
        assert_eq!(arguments, "-n -M prepared -c 64 -j 4 -P 1 -t 10 -l --log-prefix=transactions");
    }

    #[test]
    fn so_many_transactions_are_logged_as_a_quantile_needs() {
        let load = Load::new(Script::SelectOnly, 8, 10);
        let rate = |tps| pgbench().sampling_rate(&load, Manner { tps_guess: Some(tps), scale: 1 }).unwrap();
        assert_eq!((rate(50.0), rate(100_000.0), rate(33_333.0)), (1.0, 0.1, 0.3));
    }
}
