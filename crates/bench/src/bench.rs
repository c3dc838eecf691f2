//! `weir-bench bench`: the wished parts, one after the other, and then the report.
//!
//! Does not know what a part measures.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::ground::Ground;
use crate::parts::bench::{Bench, Scale, Wishes, absent};
use crate::parts::{self, Part};
use crate::peers::endpoint::Endpoint;
use crate::peers::external::External;
use crate::peers::pooler::Driver;
use crate::peers::profile::Profile;
use crate::peers::{self, Roster};
use crate::report::publish;
use crate::repository;
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::ground::machine::{self, Machine};
use weir_measure::journal::{End, Journal, Record, Run};

#[derive(Args)]
pub struct Options {
    /// A useful subset of everything in three minutes; leaves docs/ as it is
    #[arg(long)]
    quick: bool,
    /// Everything at its smallest, to see that it runs; the figures mean nothing
    #[arg(long, conflicts_with = "quick", hide = true)]
    tiny: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = part)]
    part: Vec<&'static Part>,
    /// How often each load is run [default: each part's own]
    #[arg(long)]
    rounds: Option<usize>,
    /// How long each load runs [default: each part's own]
    #[arg(long)]
    seconds: Option<u64>,
    /// Idle clients of part crowd [default: 100000, quick 15000]
    #[arg(long)]
    crowd_clients: Option<usize>,
    /// Connects and disconnects of part churn [default: 100000, quick 10000]
    #[arg(long)]
    churn_clients: Option<usize>,
    /// Weir's program [default: target/release/weir]
    #[arg(long, value_name = "PATH")]
    weir: Option<PathBuf>,
    /// The first one is "ours" where only one of them is measured
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Driver::IoUring, Driver::Epoll])]
    driver: Vec<Driver>,
    /// One more endpoint that runs already, beside those in PEER_NAME=PORT
    #[arg(long, value_name = "NAME=PORT[:PID,...]")]
    peer: Vec<External>,
    /// Where PostgreSQL listens, for peers that run already [default: a free port]
    #[arg(long, env = "PG_PORT", value_name = "PORT")]
    postgres_port: Option<u16>,
    /// Where results and their report go [default: docs/bench and docs/benchmarks.md, with --quick target/bench/quick]
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
    /// Leave docs/ as it is: results and their report go to target/bench/full
    #[arg(long)]
    no_docs: bool,
}

fn part(name: &str) -> Result<&'static Part, String> {
    let names = || parts::ALL.map(|part| part.name).join(", ");
    parts::find(name).ok_or_else(|| format!("the parts are {}", names()))
}

impl Options {
    fn scale(&self) -> Scale {
        match (self.quick, self.tiny) {
            (true, _) => Scale::Quick,
            (_, true) => Scale::Tiny,
            _ => Scale::Full,
        }
    }

    fn parts(&self) -> Vec<&'static Part> {
        let wished = |part: &&Part| self.part.is_empty() || self.part.iter().any(|wish| wish.name == part.name);
        parts::ALL.into_iter().filter(wished).collect()
    }

    fn wishes(&self) -> Wishes {
        Wishes {
            rounds: self.rounds,
            seconds: self.seconds,
            crowd_clients: self.crowd_clients,
            churn_clients: self.churn_clients,
        }
    }
}

pub fn run(options: &Options, interrupt: &Interrupt) -> Result<ExitCode> {
    let scale = options.scale();
    let publishes = scale == Scale::Full && !options.no_docs && options.results.is_none();
    let draft = (!publishes).then(|| options.results.clone().unwrap_or_else(|| publish::directory(scale)));
    let directory = draft.clone().unwrap_or_else(publish::published);
    let ground = Ground::prepare(scale.pick(10, 10, 1), options.postgres_port, interrupt)?;
    let weir = options.weir.clone().unwrap_or_else(|| peers::default_weir(&repository()));
    let mut externals = External::of_environment()?;
    externals.extend(options.peer.iter().cloned());
    let roster = Roster::find(&weir, &options.driver, externals, &ground);
    let (mut failed, began) = (false, Instant::now());
    for part in options.parts() {
        failed |= run_part(part, options, &ground, &roster, &directory)?;
    }
    println!("{}", publish::report(draft.as_deref())?.markdown);
    eprintln!("{:.0} s; results: {}", began.elapsed().as_secs_f64(), directory.display());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Whether something went wrong in it.
fn run_part(part: &Part, options: &Options, ground: &Ground, roster: &Roster, directory: &Path) -> Result<bool> {
    let scale = options.scale();
    let began = Instant::now();
    eprintln!("{}: {}", part.name, part.title);
    let mut journal = Journal::create(&publish::part_file(directory, part.name))?;
    journal.add(Record::Run(Run {
        experiment: part.name.to_owned(),
        date: machine::date(),
        command: command(part, options),
        machine: Machine::describe(),
        pgbench: ground.pgbench.version.clone(),
        sizes: None,
    }))?;
    let wishes = options.wishes();
    let mut bench = Bench { ground, roster, scale, wishes, part: part.name, journal, failed: false };
    bench.describe(&Endpoint::direct(ground), &Profile::PLAIN)?;
    for (name, reason) in &roster.missing {
        bench.absent(absent(name, "", None), reason)?;
    }
    (part.run)(&mut bench).with_context(|| format!("part {}", part.name))?;
    let experiment = part.name.to_owned();
    bench.journal.add(Record::End(End { experiment, seconds: began.elapsed().as_secs_f64() }))?;
    eprintln!("{}: {:.0} s", part.name, began.elapsed().as_secs_f64());
    Ok(bench.failed)
}

/// What measures this part again; the programs' places are the reader's own.
fn command(part: &Part, options: &Options) -> String {
    let mut command = format!("weir-bench bench --part {}", part.name);
    match options.scale() {
        Scale::Full => {}
        scale => command.push_str(&format!(" --{}", scale.name())),
    }
    let numbers = [
        ("rounds", options.rounds),
        ("seconds", options.seconds.and_then(|seconds| usize::try_from(seconds).ok())),
        ("crowd-clients", options.crowd_clients.filter(|_| part.name == "crowd")),
        ("churn-clients", options.churn_clients.filter(|_| part.name == "churn")),
    ];
    for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
        command.push_str(&format!(" --{name} {number}"));
    }
    command
}
