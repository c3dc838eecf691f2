//! The benchmark: all peers, all loads, round by round, and then the report.
//!
//! Peers take turns within a round and start at another place in the next, so that a machine that grows warm or busy
//! is unfair to each of them alike. Does not know how a peer works.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;

use crate::account::Account;
use crate::cluster::{self, Binaries, Cluster};
use crate::idle;
use crate::interrupt::Interrupt;
use crate::machine::{self, Machine};
use crate::peer::{External, Peer};
use crate::pgbench::{self, Load, Pgbench};
use crate::pooler::{CLIENTS_MAX, Driver, Ground, Pooler};
use crate::process;
use crate::record::{Absent, Idle, Journal, Mode, PeerDescription, Record, Run, Sample};
use crate::report::{self, Report};
use crate::repository;
use crate::summary::to_f64;

const WEIR: &str = "target/bench-build/weir";
const QUICK_CLIENTS: [usize; 2] = [8, 32];
const QUICK_MODES: [Mode; 3] = [Mode::Simple, Mode::Prepared, Mode::Connect];
const QUICK_SECONDS: u64 = 2;
const QUICK_CONNECT_CLIENTS: [usize; 1] = [8];
/// Fills PostgreSQL's cache and the peer's pool before anything counts.
const WARM_UP: Load = Load { mode: Mode::Simple, clients: 20, seconds: 1 };
/// Logins leave garbage behind that a pooler may give back after a moment.
const IDLE_SETTLING: Duration = Duration::from_secs(2);

#[derive(Args)]
pub struct Options {
    /// One round of 2 s, simple and prepared, 8 and 32 clients; writes no documents
    #[arg(long)]
    quick: bool,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 32, 128])]
    clients: Vec<usize>,
    /// `connect` opens one connection per transaction
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Mode::ALL)]
    modes: Vec<Mode>,
    /// Clients of mode `connect`
    #[arg(long, value_delimiter = ',', default_values_t = [8, 32])]
    connect_clients: Vec<usize>,
    /// How long each pgbench runs
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Idle clients of the memory row; 0 leaves it out
    #[arg(long, default_value_t = CLIENTS_MAX)]
    idle_clients: usize,
    /// Weir's program [default: target/bench-build/weir]
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Driver::Epoll, Driver::IoUring])]
    driver: Vec<Driver>,
    /// One more endpoint that runs already, for database and user `bench`
    #[arg(long, value_name = "NAME=PORT[:PID]")]
    peer: Vec<External>,
    /// Leave docs/ as it is
    #[arg(long)]
    no_docs: bool,
}

/// What is measured, after `--quick` has had its say.
struct Plan {
    cells: Vec<(Mode, usize)>,
    rounds: usize,
    seconds: u64,
}

impl Plan {
    fn of(options: &Options) -> Plan {
        let (modes, clients, connect_clients) = if options.quick {
            (&QUICK_MODES[..], &QUICK_CLIENTS[..], &QUICK_CONNECT_CLIENTS[..])
        } else {
            (&options.modes[..], &options.clients[..], &options.connect_clients[..])
        };
        let clients_of = |mode: Mode| if mode == Mode::Connect { connect_clients } else { clients };
        let cells = modes.iter().flat_map(|mode| clients_of(*mode).iter().map(|count| (*mode, *count))).collect();
        let (rounds, seconds) = if options.quick { (1, QUICK_SECONDS) } else { (options.rounds, options.seconds) };
        Plan { cells, rounds, seconds }
    }
}

pub fn run(options: &Options, interrupt: &Interrupt) -> Result<ExitCode> {
    process::raise_descriptor_limit()?;
    let binaries = Binaries::find()?;
    let account = Account::find()?;
    // Declared first, so dropped last: the cluster and the poolers live in it.
    let directory = tempfile::Builder::new().prefix("weir-lab-").tempdir().context("no temporary directory")?;
    account.give(directory.path())?;
    eprintln!("preparing PostgreSQL ({}) in {}", binaries.version("postgres")?, directory.path().display());
    let cluster = Cluster::start(&binaries, &account, directory.path(), interrupt)?;
    let ground = Ground { account: &account, directory: directory.path(), cluster_port: cluster.port, interrupt };
    let results = report::results_file();
    report::write(&results, "")?;
    let mut journal = Journal::create(&results)?;

    let (mut peers, missing) = peers(options, &ground);
    let plan = Plan::of(options);
    journal.add(Record::Run(describe(options, &plan, &peers, &binaries, &cluster)?))?;
    for absent in missing {
        journal.absent(absent)?;
    }
    let program = binaries.program("pgbench");
    let pgbench = Pgbench { program, account: &account, directory: directory.path(), interrupt };
    warm_up(&mut peers, &pgbench, &mut journal)?;
    measure(&plan, &peers, &pgbench, &mut journal)?;
    if options.idle_clients > 0 {
        measure_idle(options.idle_clients.min(CLIENTS_MAX), peers, &ground, &mut journal)?;
    }
    finish(options, &journal, &results)
}

/// Direct, PgBouncer, Weir once per driver, and what the caller brought; and which of them are missing, and why.
fn peers(options: &Options, ground: &Ground) -> (Vec<Peer>, Vec<Absent>) {
    let mut peers = vec![Peer::direct(ground.cluster_port)];
    let mut missing = Vec::new();
    let weir = options.weir.clone().unwrap_or_else(|| repository().join(WEIR));
    let poolers = std::iter::once(("PgBouncer".to_owned(), Pooler::pgbouncer(ground)))
        .chain(options.driver.iter().map(|driver| (Pooler::weir_name(*driver), Pooler::weir(&weir, *driver, ground))));
    for (name, pooler) in poolers {
        let started = pooler.and_then(|pooler| pooler.start(ground).map(|started| Peer::pooler(pooler, started)));
        match started {
            Ok(peer) => peers.push(peer),
            Err(error) => missing.push(absent(name, None, &error, false)),
        }
    }
    peers.extend(options.peer.iter().map(Peer::external));
    (peers, missing)
}

fn describe(options: &Options, plan: &Plan, peers: &[Peer], binaries: &Binaries, cluster: &Cluster) -> Result<Run> {
    let postgres = binaries.version("postgres")?;
    let description = |peer: &Peer| {
        let (version, configuration) = match (&peer.pooler, &peer.started) {
            (Some(pooler), Some(started)) => (pooler.version.clone(), started.configuration.clone()),
            _ if peer.port == cluster.port => (postgres.clone(), cluster.configuration.clone()),
            _ => ("given by --peer".to_owned(), String::new()),
        };
        PeerDescription { name: peer.name.clone(), version, configuration }
    };
    let given = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    let load = Load { mode: Mode::Simple, clients: 0, seconds: plan.seconds };
    let general = pgbench::arguments(load).join(" ").replace("-M simple", "-M MODE").replace("-c 0", "-c CLIENTS");
    Ok(Run {
        date: machine::date(),
        command: format!("weir-lab {given}"),
        pgbench_command: format!("pgbench {general} {}  # scale {}", cluster::DATABASE, cluster::SCALE),
        machine: Machine::describe(),
        rounds: plan.rounds,
        seconds: plan.seconds,
        quick: options.quick,
        peers: peers.iter().map(description).collect(),
    })
}

fn absent(what: String, clients: Option<usize>, error: &Error, failure: bool) -> Absent {
    Absent { what, clients, reason: format!("{error:#}"), failure }
}

/// Leaves only the peers that answer at all.
fn warm_up(peers: &mut Vec<Peer>, pgbench: &Pgbench, journal: &mut Journal) -> Result<()> {
    let mut answering = Vec::with_capacity(peers.len());
    for peer in peers.drain(..) {
        match pgbench.run(WARM_UP, peer.port, || ()) {
            Ok(_) => answering.push(peer),
            Err(error) => {
                pgbench.interrupt.check()?;
                journal.absent(absent(peer.name, None, &error, true))?;
            }
        }
    }
    *peers = answering;
    Ok(())
}

fn measure(plan: &Plan, peers: &[Peer], pgbench: &Pgbench, journal: &mut Journal) -> Result<()> {
    for (mode, clients) in plan.cells.iter().copied() {
        let load = Load { mode, clients, seconds: plan.seconds };
        let able: Vec<&Peer> = peers.iter().filter(|peer| peer.prepares || mode != Mode::Prepared).collect();
        for peer in peers.iter().filter(|peer| !peer.prepares && mode == Mode::Prepared) {
            let version = peer.pooler.as_ref().map_or("it", |pooler| &pooler.version);
            let error = anyhow!("{version} has no protocol-level prepared statements in transaction pooling");
            journal.absent(absent(format!("{}, {mode}", peer.name), Some(clients), &error, false))?;
        }
        for round in 0..plan.rounds {
            for turn in 0..able.len() {
                measure_once(load, round, able[(turn + round) % able.len()], pgbench, journal)?;
            }
        }
    }
    Ok(())
}

fn measure_once(load: Load, round: usize, peer: &Peer, pgbench: &Pgbench, journal: &mut Journal) -> Result<()> {
    match sample(load, round, peer, pgbench) {
        Ok(sample) => {
            let cpu = sample.cpu_us_per_transaction.map_or(String::new(), |cpu| format!("{cpu:9.1} us CPU"));
            let Load { mode, clients, .. } = load;
            eprintln!(
                "  {mode:9} {clients:4} clients  round {}  {:14} {:9.0} TPS {cpu}",
                round + 1,
                peer.name,
                sample.tps
            );
            journal.add(Record::Sample(sample))
        }
        Err(error) => {
            pgbench.interrupt.check()?;
            journal.absent(absent(format!("{}, {}", peer.name, load.mode), Some(load.clients), &error, true))
        }
    }
}

fn sample(load: Load, round: usize, peer: &Peer, pgbench: &Pgbench) -> Result<Sample> {
    let cpu_before = peer.pid.map(process::cpu_time).transpose()?;
    let (outcome, memory) = pgbench.run(load, peer.port, || peer.pid.map(process::memory).transpose())?;
    let cpu_after = peer.pid.map(process::cpu_time).transpose()?;
    let cpu_used = cpu_before.zip(cpu_after).map(|(before, after)| after.saturating_sub(before));
    Ok(Sample {
        mode: load.mode,
        clients: load.clients,
        round,
        peer: peer.name.clone(),
        transactions: outcome.transactions,
        tps: outcome.tps,
        latency: outcome.latency,
        cpu_us_per_transaction: cpu_used.map(|used| used.as_secs_f64() * 1e6 / to_f64(outcome.transactions)),
        memory: memory?,
    })
}

/// Each pooler alone and fresh: what earlier loads have left in its memory is not the idle clients'.
fn measure_idle(clients: usize, peers: Vec<Peer>, ground: &Ground, journal: &mut Journal) -> Result<()> {
    let poolers: Vec<Pooler> = peers.into_iter().filter_map(|peer| peer.pooler).collect();
    for pooler in poolers {
        match idle_of(&pooler, clients, ground) {
            Ok(idle) => {
                eprintln!(
                    "  {clients} idle clients  {:14} {} KiB private dirty",
                    idle.peer, idle.after.private_dirty_kib
                );
                journal.add(Record::Idle(idle))?;
            }
            Err(error) => {
                ground.interrupt.check()?;
                journal.absent(absent(format!("{}, idle", pooler.name), Some(clients), &error, true))?;
            }
        }
    }
    Ok(())
}

fn idle_of(pooler: &Pooler, clients: usize, ground: &Ground) -> Result<Idle> {
    let started = pooler.start(ground)?;
    ground.interrupt.sleep(IDLE_SETTLING)?;
    let before = process::memory(started.running.pid())?;
    let sessions = idle::connect(started.port, clients, ground.interrupt)?;
    ground.interrupt.sleep(IDLE_SETTLING)?;
    let after = process::memory(started.running.pid())?;
    drop(sessions);
    Ok(Idle { peer: pooler.name.clone(), clients, before, after })
}

fn finish(options: &Options, journal: &Journal, results: &Path) -> Result<ExitCode> {
    let report = Report::of(&journal.records)?;
    println!("{}", report.markdown);
    report.draft(&repository())?;
    eprintln!("results: {}, with report.md and bench.svg beside it", results.display());
    if !options.quick && !options.no_docs {
        report.publish(&repository())?;
        eprintln!("report: docs/benchmarks.md, docs/img/bench.svg");
    }
    let failed = journal.records.iter().any(|record| matches!(record, Record::Absent(absent) if absent.failure));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
