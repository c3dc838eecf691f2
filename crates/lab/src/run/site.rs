//! Where one place is measured: the target, and what may be done with it.
//!
//! Does not know experiments, nor in which order places are measured.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use super::awake::Awake;
use super::sampler::{Processes, Sampler, Usage};
use super::tools::Tools;
use crate::experiment::values;
use crate::targets::stand::Stand;
use crate::targets::{Target, Whereabouts};
use weir_measure::doubt::{self, Doubt, Situation};
use weir_measure::ground::family;
use weir_measure::ground::running::Running;
use weir_measure::journal::{Point, Sizes};
use weir_measure::load::pgbench::Manner;
use weir_measure::load::{Load, Outcome, Protocol, Script};

/// Of a wished rate: who does less does not keep up with it.
const KEPT_PART: f64 = 0.95;

/// Handed to `Experiment::measure`.
pub struct Site<'a> {
    pub target: &'a Target,
    pub sizes: &'a Sizes,
    /// `--script`, `--p99-ms` and the like.
    pub wishes: &'a Wishes,
    tools: &'a Tools,
    stand: &'a mut Stand,
    awake: Option<&'a Awake>,
    /// Of the place before on this line: how much of pgbench's log is worth writing.
    tps_guess: Option<f64>,
    /// What was run, by the names that commands have for it.
    pub scripts: BTreeMap<String, String>,
}

/// What a user asked of experiments beyond sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wishes {
    /// `saturation`: the user's pgbench script.
    pub script: Option<std::path::PathBuf>,
    /// `saturation`: the bound on p99, milliseconds.
    pub p99_ms: Option<f64>,
    /// Of experiments over clients: these numbers and no others.
    pub clients: Vec<usize>,
    /// pgbench's.
    pub threads: Option<usize>,
    pub protocol: Option<Protocol>,
    /// Transactions per second, begun at their times.
    pub rate: Option<f64>,
    /// Seconds before each measurement.
    pub warm_up: Option<u64>,
    /// Server connections of the poolers that the lab starts.
    pub pool_size: Option<u32>,
}

impl Wishes {
    /// The load as it was wished.
    fn applied(&self, load: &Load) -> Load {
        let (threads, rate) = (self.threads.or(load.threads), self.rate.or(load.rate));
        Load { threads, rate, protocol: self.protocol.unwrap_or(load.protocol), ..load.clone() }
    }
}

/// What a site stands on, beside its target.
pub struct Surroundings<'a> {
    pub sizes: &'a Sizes,
    pub wishes: &'a Wishes,
    pub tools: &'a Tools,
    pub stand: &'a mut Stand,
    pub awake: Option<&'a Awake>,
    pub tps_guess: Option<f64>,
}

impl<'a> Site<'a> {
    pub fn new(target: &'a Target, surroundings: Surroundings<'a>) -> Site<'a> {
        let Surroundings { sizes, wishes, tools, stand, awake, tps_guess } = surroundings;
        let scripts = BTreeMap::new();
        Site { target, sizes, wishes, tools, stand, awake, tps_guess, scripts }
    }

    /// Runs pgbench against the target and writes all that was seen meanwhile into the point: throughput, latency, errors,
    /// CPU of the box, the pooler, the server and pgbench, memory, and doubts (a load generator at its limit, a machine that
    /// slept between messages). An error only where there is nothing to write: a target that refuses is `errors`.
    pub fn measure(&mut self, point: &mut Point, load: &Load) -> Result<()> {
        let load = &self.wishes.applied(load);
        self.scripts.extend(load.script.source());
        let postmasters = self.stand.postmasters(self.target);
        let seconds = if load.transactions.is_some() { 0 } else { load.seconds };
        let local = self.target.place != Whereabouts::Elsewhere;
        let (pooler, role) = (self.target.pooler_pids.clone(), Stand::role(self.target));
        let processes = Processes { pooler, postmasters, role, local };
        let cores = self.tools.machine.cores;
        let mut sampler = Sampler::new(seconds, cores, processes, self.awake);
        let look = |progress: &_| {
            sampler.look(progress);
            Ok(())
        };
        let outcome = self.tools.pgbench.run(load, &self.target.url, self.manner(), look)?;
        let usage = sampler.usage();
        write_outcome(point, load, &outcome);
        if outcome.measured_nothing() {
            return Ok(());
        }
        write_usage(point, &usage, outcome.tps, self.target, cores);
        let situation = Situation {
            cores,
            clients: load.clients,
            threads: outcome.threads,
            awake: self.awake.is_some(),
            local,
            seconds,
            began_apart: outcome.began_apart,
        };
        let behind = load.rate.filter(|rate| outcome.tps < KEPT_PART * rate).map(|_| Doubt::BehindRate);
        let doubts =
            doubt::of(&usage.used, &situation).into_iter().chain(doubt::of_series(&outcome.series)).chain(behind);
        doubts.for_each(|doubt| point.doubt(&doubt));
        point.seconds = outcome.series;
        if outcome.tps > 0.0 {
            self.tps_guess = Some(outcome.tps);
        }
        Ok(())
    }

    /// Runs pgbench alone and hands back what it said.
    pub fn pgbench(&mut self, load: &Load) -> Result<Outcome> {
        let load = &self.wishes.applied(load);
        self.scripts.extend(load.script.source());
        self.tools.pgbench.run(load, &self.target.url, self.manner(), |_| Ok(()))
    }

    /// Opens `clients` connections that run `script` again and again (a `\sleep`, a `pg_sleep`) until the value is dropped.
    /// Returns when all of them are connected; an error says how many came in when not all did.
    pub fn hold(&mut self, clients: usize, script: &Script) -> Result<Held> {
        if clients == 0 {
            return Ok(Held { clients, command: String::new(), _running: Vec::new() });
        }
        self.scripts.extend(script.source());
        let (running, command) = self.tools.pgbench.hold(clients, script, &self.target.url, self.sizes.scale)?;
        Ok(Held { clients, command, _running: running })
    }

    /// What `psql -X -A -t -v ON_ERROR_STOP=1` prints for these statements, all in one session. Of a cluster the first node is asked.
    pub fn psql(&mut self, sql: &str) -> Result<String> {
        self.tools.psql.run(&self.target.url, sql)
    }

    /// The same of every node of a cluster.
    pub fn psql_everywhere(&mut self, sql: &str) -> Result<Vec<String>> {
        self.tools.psql.run_everywhere(&self.target.url, sql)
    }

    /// As `psql`, for clearing away what must not stay: also when somebody wants us to stop, and with so much patience.
    pub fn clear(&mut self, sql: &str, patience: Duration) -> Result<String> {
        self.tools.psql.clone().heedless().patient(patience).run(&self.target.url, sql)
    }

    /// The same on every node of a cluster; each has so much patience of its own.
    pub fn clear_everywhere(&mut self, sql: &str, patience: Duration) -> Result<Vec<String>> {
        self.tools.psql.clone().heedless().patient(patience).run_everywhere(&self.target.url, sql)
    }

    /// Lets time pass; an error when somebody wants us to stop.
    pub fn wait(&self, time: Duration) -> Result<()> {
        self.tools.interrupt.sleep(time)
    }

    /// Restarts the lab's own server with these further lines of `postgresql.conf` (none: as the experiment needs it), when it does
    /// not run with them already. An error for a server that is not ours.
    pub fn configure_server(&mut self, lines: &[String]) -> Result<()> {
        self.tools.interrupt.check()?;
        self.stand.configure(self.target, lines)
    }

    /// The target's pooler on this machine, its processes summed; `None` for a server itself, or a pooler not ours to look into.
    pub fn pooler_memory(&self) -> Result<Option<ServerMemory>> {
        let own: Option<Vec<family::Own>> =
            self.target.pooler_pids.iter().map(|pid| family::own_memory(*pid)).collect();
        let Some(own) = own.filter(|own| !own.is_empty()) else { return Ok(None) };
        let mut sum = ServerMemory::default();
        own.iter().for_each(|own| sum.add(own));
        Ok(Some(sum))
    }

    /// The server's processes on this machine that serve this target's clients, summed; `None` for a server elsewhere.
    pub fn server_memory(&self) -> Result<Option<ServerMemory>> {
        let postmasters = self.stand.postmasters(self.target);
        if postmasters.is_empty() {
            return Ok(None);
        }
        let mut sum = ServerMemory::default();
        let mut serving: Vec<Pid> = postmasters.iter().flat_map(|pid| family::children(*pid)).collect();
        serving.retain(|pid| family::serves_a_client(*pid, Stand::role(self.target)));
        for pid in serving {
            self.tools.interrupt.check()?;
            sum.add_process(pid);
        }
        Ok(Some(sum))
    }

    fn manner(&self) -> Manner {
        Manner { scale: self.sizes.scale, tps_guess: self.tps_guess, warm_up: self.wishes.warm_up }
    }
}

fn write_outcome(point: &mut Point, load: &Load, outcome: &Outcome) {
    point.commands.push(outcome.command.clone());
    for (kind, count) in &outcome.errors {
        *point.errors.entry(kind.clone()).or_default() += count;
    }
    #[expect(clippy::cast_precision_loss)]
    let errors = outcome.errors.values().sum::<u64>() as f64;
    if outcome.measured_nothing() {
        return;
    }
    let mut put = |key: &str, value: Option<f64>| {
        if let Some(value) = value {
            point.values.insert(key.to_owned(), value);
        }
    };
    put(values::TPS, Some(outcome.tps));
    put(values::P50_US, outcome.latency.map(|latency| latency.p50_us));
    put(values::P99_US, outcome.latency.and_then(|latency| latency.p99_us));
    put(values::MEAN_US, outcome.mean_us);
    // Without `-C` pgbench says what all clients together took.
    put(values::CONNECT_MS, outcome.connect_ms.filter(|_| load.connect));
    put(values::ERRORS_PER_SECOND, Some(errors / outcome.elapsed.as_secs_f64().max(1.0)).filter(|_| errors > 0.0));
}

#[expect(clippy::cast_precision_loss)]
fn write_usage(point: &mut Point, usage: &Usage, tps: f64, target: &Target, cores: usize) {
    let mut put = |key: &str, value: Option<f64>| {
        if let Some(value) = value {
            point.values.insert(key.to_owned(), value);
        }
    };
    let mib = |kib: u64| kib as f64 / 1024.0;
    // Beside a target elsewhere this machine's CPU is pgbench's, and would be read as the target's.
    let box_cores = usage.used.box_cores.filter(|_| target.place == Whereabouts::Here);
    put(values::BOX_CPU_PERCENT, box_cores.map(|used| (100.0 * used / cores.max(1) as f64).min(100.0)));
    put(values::POOLER_CORES, usage.pooler_cores);
    put(values::POOLER_CPU_US, usage.pooler_cores.filter(|_| tps > 0.0).map(|used| used * 1e6 / tps));
    put(values::SERVER_CORES, usage.server_cores);
    put(values::LOAD_CORES, usage.used.load_cores);
    if let Some(shares) = &usage.used.shares {
        put(values::OTHER_CORES, Some(shares.strangers().0));
        put(values::KERNEL_CORES, Some(shares.of_kernel()));
        put(values::STEAL_CORES, Some(shares.steal));
    }
    put(values::POOLER_MIB, usage.pooler_private_kib.map(mib));
    put(values::SERVER_MIB, usage.server_memory.map(|memory| mib(memory.private_kib)));
    put(values::SERVER_PAGE_TABLES_MIB, usage.server_memory.map(|memory| mib(memory.page_tables_kib)));
    put(values::SERVER_CONNECTIONS, usage.server_memory.map(|memory| memory.processes as f64));
}

/// Connections that are open until this is dropped.
pub struct Held {
    pub clients: usize,
    pub command: String,
    _running: Vec<Running>,
}

/// Memory of a server's backends, without what they share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ServerMemory {
    pub processes: usize,
    /// `Private_Clean + Private_Dirty + Private_Hugetlb` of `smaps_rollup`.
    pub private_kib: u64,
    /// `VmPTE` of `status`: what mapping the shared memory costs each process, unless pages are huge.
    pub page_tables_kib: u64,
    /// What naive tools would say: the sum of `VmRSS`.
    pub rss_kib: u64,
}

impl ServerMemory {
    /// Adds a process, if it is still there and may be looked into.
    pub fn add_process(&mut self, pid: Pid) {
        if let Some(own) = family::own_memory(pid) {
            self.add(&own);
        }
    }

    /// As if it were of so many processes like these.
    pub fn standing_for(&self, processes: usize) -> ServerMemory {
        let scaled = |kib: u64| kib * processes as u64 / self.processes.max(1) as u64;
        ServerMemory {
            processes,
            private_kib: scaled(self.private_kib),
            page_tables_kib: scaled(self.page_tables_kib),
            rss_kib: scaled(self.rss_kib),
        }
    }

    fn add(&mut self, own: &family::Own) {
        self.processes += 1;
        self.private_kib += own.private_kib;
        self.page_tables_kib += own.page_tables_kib;
        self.rss_kib += own.rss_kib;
    }
}

/// The scale of pgbench's tables behind a target that somebody else filled; `None` where there are none.
pub fn scale_of(psql: &weir_measure::load::psql::Psql, target: &Target) -> Option<u32> {
    let answer = psql.run(&target.url, "select count(*) from pgbench_branches").ok()?;
    answer.trim().parse().context("a count").ok().filter(|scale| *scale > 0)
}
