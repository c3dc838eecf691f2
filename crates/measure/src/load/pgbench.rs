//! pgbench: finding one, and running it, a process for each node of a cluster.
//!
//! Knows pgbench's arguments; does not know what answers, nor what is measured beside it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::Signal;

pub use super::counting::Progress;
use super::counting::{Counting, Part, SECONDS, command_of};
use super::logs::{LOG_PREFIX, Logs};
use super::summary::Summary;
use super::{Latency, Load, Outcome, Script, programs};
use crate::ground::descriptors;
use crate::ground::interrupt::Interrupt;
use crate::ground::running::{Running, run_to_end};
use crate::series::WarmUp;
use crate::statistics::place;
use crate::url::Url;

/// Before 14 pgbench measured while it was still connecting, and counted connecting as latency.
const MAJOR_MIN: u32 = 14;
/// How much longer than asked a run may take: connecting, and as much again for the slowest last transaction.
const EXTRA_PATIENCE: Duration = Duration::from_secs(60);
/// Loading a large scale takes long, and is not measured.
const FILL_PATIENCE: Duration = Duration::from_mins(120);
/// So many transactions are enough for a 99th percentile (a thousand are beyond it), and cost pgbench little to log.
const LOGGED_MAX: f64 = 100_000.0;
/// What a core may do at most, where nothing has been measured yet.
const TPS_PER_CORE_GUESS: f64 = 30_000.0;
const SAMPLING_RATE_MIN: f64 = 0.000_1;
/// Of fewer the 99th percentile is the maximum.
const LOGGED_FOR_P99_MIN: u64 = 100;

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
    /// Seconds that are not counted; `None`: until it is warm.
    pub warm_up: Option<u64>,
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

    /// Makes pgbench's tables, and fills them.
    pub fn make_tables(&self, url: &Url, scale: u32) -> Result<()> {
        let mut command = self.command();
        url.give_password(&mut command);
        command.args(["-i", "-q", "-s", &scale.to_string()]).arg(url.conninfo());
        let made = run_to_end("pgbench-tables", command, &self.directory, FILL_PATIENCE, &self.interrupt);
        made.map(drop).context("cannot make pgbench's tables")
    }

    /// pgbench's threads for so many clients.
    pub fn threads(&self, load: &Load) -> usize {
        load.threads.unwrap_or(self.cores).clamp(1, load.clients.max(1))
    }

    /// Runs the load until it has been counted for its seconds, on all nodes of the URL at once. `look` is called every few
    /// milliseconds with what pgbench has shown so far.
    ///
    /// When it is warm only its seconds tell, so pgbench is started for longer, and gets the signal early that ends a run by time.
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
        self.logs().remove()?;
        let (began, cpu_before) = (Instant::now(), children_cpu()?);
        let by_time = load.transactions.is_none();
        let warm_up = WarmUp::of(load.seconds, manner.warm_up);
        let longest = warm_up.most_seconds().saturating_add(load.seconds).saturating_add(EXTRA_PATIENCE.as_secs());
        let patience = Duration::from_secs(longest) + EXTRA_PATIENCE;
        let log = Log { rate: self.sampling_rate(load, manner), scale: manner.scale };
        let parts = self.start("pgbench", load, url, log, longest)?;
        let mut counting = Counting::new(parts, warm_up, load.clients, if by_time { load.seconds } else { 0 });
        self.interrupt.wait_for(patience, || {
            let is_over = counting.look()?;
            look(&counting.progress)?;
            Ok(is_over.then_some(()))
        })?;
        let mut outcome = self.outcome(load, counting)?;
        outcome.cpu = children_cpu()?.saturating_sub(cpu_before);
        outcome.elapsed = began.elapsed();
        Ok(outcome)
    }

    /// Starts clients that run `script` until the processes are dropped, and waits until all of them are connected.
    pub fn hold(&self, clients: usize, script: &Script, url: &Url, scale: u32) -> Result<(Vec<Running>, String)> {
        let load = Load::new(script.clone(), clients, HOLD_SECONDS);
        let mut parts = self.start("pgbench-holding", &load, url, Log { rate: None, scale }, HOLD_SECONDS)?;
        let (mut connected_max, mut next_count) = (0, Instant::now());
        let patience = HOLD_PATIENCE + HOLD_PATIENCE_PER_CLIENT * u32::try_from(clients).unwrap_or(u32::MAX);
        let ready = self.interrupt.wait_for(patience, || {
            parts.iter_mut().try_for_each(Part::look)?;
            if let Some(ended) = parts.iter().find(|part| part.status.is_some()) {
                let kinds = ended.error_kinds();
                let kinds: Vec<&str> = kinds.keys().map(String::as_str).collect();
                bail!("only about {connected_max} of {clients} connections came in: {}", kinds.join("; "));
            }
            if next_count <= Instant::now() {
                let connected: usize = parts.iter().map(|part| descriptors::open_sockets(part.running.pid())).sum();
                connected_max = connected_max.max(connected);
                next_count = Instant::now() + HOLD_COUNT_EVERY;
            }
            // pgbench reports progress once all are connected.
            Ok(parts.iter().all(Part::has_begun).then_some(()))
        })?;
        if ready.is_none() {
            bail!("only about {connected_max} of {clients} connections came in within {} s", patience.as_secs());
        }
        let command = command_of(&parts, HOLD_SECONDS);
        Ok((parts.into_iter().map(|part| part.running).collect(), command))
    }

    /// Starts a process for each node, which share clients and threads as evenly as whole numbers can; a node that would have no
    /// client has no process.
    fn start(&self, name: &str, load: &Load, url: &Url, log: Log, seconds: u64) -> Result<Vec<Part>> {
        let mut nodes = url.nodes();
        nodes.truncate(load.clients.max(1));
        let count = nodes.len();
        let threads = Some((self.threads(load) / count).max(1));
        let script = self.script(load)?;
        let mut parts = Vec::with_capacity(count);
        for (index, node) in nodes.into_iter().enumerate() {
            let clients = load.clients / count + usize::from(index < load.clients % count);
            let whole_clients = load.clients;
            let load = Load { clients, threads, ..load.clone() };
            let part_of_rate = place(clients) / place(whole_clients.max(1));
            let load = Load { rate: load.rate.map(|rate| rate * part_of_rate), ..load };
            let command = shown(&load, &node, &self.arguments(&load, log, SECONDS));
            let arguments = self.arguments(&load, log, &seconds.to_string());
            let name = if index == 0 { name.to_owned() } else { format!("{name}-{}", index + 1) };
            let running = self.start_one(&name, &script, &node, &arguments)?;
            parts.push(Part::new(node, command, self.threads(&load), running));
        }
        Ok(parts)
    }

    /// The arguments that name the script, which is there when they are given.
    fn script(&self, load: &Load) -> Result<Vec<OsString>> {
        let file = match &load.script {
            Script::SelectOnly => return Ok(vec!["-S".into()]),
            Script::Text { name, text } => {
                let file = self.directory.join(format!("{name}.sql"));
                fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
                file
            }
            Script::File(file) => std::path::absolute(file).unwrap_or_else(|_| file.clone()),
        };
        Ok(vec!["-f".into(), file.into()])
    }

    fn start_one(&self, name: &str, script: &[OsString], url: &Url, arguments: &[String]) -> Result<Running> {
        let mut command = self.command();
        url.give_password(&mut command);
        command.args(arguments).args(script);
        // pgbench takes a connection string in place of a database's name.
        command.arg(url.conninfo());
        Running::start(name, command, self.directory.join(format!("{name}.log")), Signal::SIGTERM)
    }

    fn command(&self) -> Command {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new(&self.program);
        // A process group of its own: Ctrl-C reaches the lab, which stops the rest in order.
        command.current_dir(&self.directory).env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
        // A lab that is killed takes the connections with it that it held.
        // SAFETY: between fork and exec the closure makes one system call, and allocates nothing.
        unsafe {
            command.pre_exec(|| match libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        command
    }

    /// All but script and endpoint. Progress once a second shows when it is warm, and what was done since.
    fn arguments(&self, load: &Load, log: Log, seconds: &str) -> Vec<String> {
        let mut text = format!("-n -M {} -c {} -j {} -P 1", load.protocol, load.clients, self.threads(load));
        match load.transactions {
            Some(transactions) => text.push_str(&format!(" -t {transactions}")),
            None => text.push_str(&format!(" -T {seconds}")),
        }
        if let Some(rate) = load.rate {
            text.push_str(&format!(" -R {rate}"));
        }
        if load.connect {
            text.push_str(" -C");
        }
        if load.script != Script::SelectOnly {
            text.push_str(&format!(" -s {}", log.scale));
        }
        match log.rate {
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
            None => {
                load.rate.or(manner.tps_guess).unwrap_or(TPS_PER_CORE_GUESS * self.cores as f64) * load.seconds as f64
            }
        };
        let rate = (LOGGED_MAX / transactions.max(1.0)).clamp(SAMPLING_RATE_MIN, 1.0);
        // Two digits: it stands in a command that people read.
        let unit = 10f64.powf(rate.log10().floor() - 1.0);
        Some(((rate / unit).round() * unit * 1e6).round() / 1e6)
    }

    /// What all parts did together; those that still run end here.
    fn outcome(&self, load: &Load, counting: Counting) -> Result<Outcome> {
        let counted = counting.counted();
        let mut outcome = Outcome {
            command: counting.command(),
            threads: counting.parts.iter().map(|part| part.threads).sum(),
            began_apart: counting.began_apart(),
            ..Outcome::default()
        };
        let summaries: Vec<Summary> = counting.parts.iter().filter_map(Part::summary).collect();
        let summary = Summary::of_all(&summaries).unwrap_or_default();
        for (kind, count) in counting.parts.iter().flat_map(|part| errors_of(part, summary.transactions)) {
            *outcome.errors.entry(kind).or_default() += count;
        }
        // Ends what still runs, and with it what it writes.
        drop(counting.parts);
        (outcome.transactions, outcome.tps) = (summary.transactions, summary.tps);
        let mut mean_ms = summary.mean_ms;
        outcome.connect_ms = summary.connect_ms;
        let window = counted.as_ref().map(|counted| counted.window.clone());
        if let Some(counted) = counted {
            (outcome.transactions, outcome.tps) = (whole(counted.transactions), counted.tps);
            (outcome.series, mean_ms) = (counted.series, counted.mean_ms);
            // Many clients may take longer for a transaction than the whole measurement: that is no throughput of zero.
            if counted.tps <= 0.0 && outcome.errors.is_empty() {
                outcome.errors.insert(NOTHING_ENDED.to_owned(), 1);
            }
        }
        outcome.latency = if load.connect { None } else { self.latency(mean_ms, window.as_ref())? };
        self.logs().remove()?;
        outcome.mean_us = mean_ms.map(|mean_ms| mean_ms * 1000.0);
        Ok(outcome)
    }

    fn latency(&self, mean_ms: Option<f64>, window: Option<&Range<SystemTime>>) -> Result<Option<Latency>> {
        let histogram = self.logs().histogram(window)?;
        if histogram.is_empty() {
            return Ok(None);
        }
        let mean_us = mean_ms.map_or(histogram.mean(), |ms| ms * 1000.0);
        #[expect(clippy::cast_precision_loss)]
        let quantile = |part| histogram.value_at_quantile(part) as f64;
        let p99_us = (histogram.len() >= LOGGED_FOR_P99_MIN).then(|| quantile(0.99));
        Ok(Some(Latency { mean_us, p50_us: quantile(0.5), p99_us }))
    }

    fn logs(&self) -> Logs<'_> {
        Logs { directory: &self.directory }
    }
}

/// What pgbench is told beside the load: of its log of transactions, and `:scale`.
#[derive(Clone, Copy)]
struct Log {
    /// The part of transactions that is logged; `None`: none.
    rate: Option<f64>,
    scale: u32,
}

/// What went wrong, also where pgbench itself does not say so. `transactions`: those of all parts.
fn errors_of(part: &Part, transactions: u64) -> BTreeMap<String, u64> {
    let mut errors = part.error_kinds();
    let own = match part.status {
        None => Some("pgbench did not end: a transaction took a minute longer than the measurement".to_owned()),
        Some(_) if !errors.is_empty() => None,
        Some(status) if !status.success() => {
            let words = part.url.hide_password(&part.running.last_words());
            Some(format!("pgbench failed ({status}): {words}"))
        }
        Some(_) => (transactions == 0).then(|| NOTHING_ENDED.to_owned()),
    };
    errors.extend(own.map(|kind| (kind, 1)));
    errors
}

fn whole(number: f64) -> u64 {
    crate::statistics::count(number).try_into().unwrap_or(u64::MAX)
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

#[cfg(test)]
mod tests {
    use super::super::Protocol;
    use super::*;

    fn pgbench() -> Pgbench {
        let (program, directory) = (PathBuf::from("pgbench"), PathBuf::from("/nowhere"));
        let interrupt = Interrupt::install().unwrap();
        Pgbench { program, version: "pgbench (PostgreSQL) 15.1".to_owned(), directory, interrupt, cores: 4 }
    }

    #[test]
    fn the_arguments_say_what_was_asked() {
        let arguments = |load: &Load| {
            let log = Log { rate: pgbench().sampling_rate(load, Manner::default()), scale: 7 };
            pgbench().arguments(load, log, "2").join(" ")
        };
        let text = Script::Text { name: "lookup", text: String::new() };
        let load = Load { connect: true, ..Load::new(text, 3, 2) };
        assert_eq!(arguments(&load), "-n -M simple -c 3 -j 3 -P 1 -T 2 -C -s 7");
        let load =
            Load { transactions: Some(10), protocol: Protocol::Prepared, ..Load::new(Script::SelectOnly, 64, 0) };
        assert_eq!(arguments(&load), "-n -M prepared -c 64 -j 4 -P 1 -t 10 -l --log-prefix=transactions");
        let open = Load { rate: Some(500.0), ..Load::new(Script::SelectOnly, 64, 10) };
        assert_eq!(arguments(&open), "-n -M simple -c 64 -j 4 -P 1 -T 2 -R 500 -l --log-prefix=transactions");
    }

    #[test]
    fn so_many_transactions_are_logged_as_a_quantile_needs() {
        let load = Load::new(Script::SelectOnly, 8, 10);
        let rate =
            |tps| pgbench().sampling_rate(&load, Manner { tps_guess: Some(tps), scale: 1, warm_up: None }).unwrap();
        assert_eq!((rate(50.0), rate(100_000.0), rate(33_333.0)), (1.0, 0.1, 0.3));
    }
}
