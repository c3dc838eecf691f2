//! Target 2: with few busy clients, as fast as the best of PgBouncer and a fleet of them, and no dearer.

use std::process::Command;

use anyhow::Result;
use nix::sys::signal::Signal;

use super::bench::Bench;
use super::{Figure, Part};
use crate::load::pgbench::Load;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::ground::running::Running;
use weir_measure::load::Protocol;

pub const PART: Part = Part {
    name: "few",
    title: "Few busy clients",
    about: "pgbench's SELECT by primary key, from 1 client on: by protocol mode, and as *BEGIN/END*, a transaction of three simple \
            queries. *Beside a stranger*: the same while a program that has nothing to do with it keeps one of the cores busy.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 4] = [
    Figure::higher("tps", "TPS", 0),
    Figure::lower("cpu_us", "CPU µs/transaction", 1),
    Figure::told("p50_us", "p50 µs", 0),
    Figure::lower("p99_us", "p99 µs", 0),
];

pub const CLIENTS: [usize; 6] = [1, 2, 4, 8, 16, 32];

struct Series {
    what: &'static str,
    mode: Protocol,
    block: bool,
    stranger: bool,
}

const fn series(what: &'static str, mode: Protocol, block: bool, stranger: bool) -> Series {
    Series { what, mode, block, stranger }
}

const ALL: [Series; 6] = [
    series("simple", Protocol::Simple, false, false),
    series("extended", Protocol::Extended, false, false),
    series("prepared", Protocol::Prepared, false, false),
    series("BEGIN/END", Protocol::Simple, true, false),
    series("simple, beside a stranger", Protocol::Simple, false, true),
    series("BEGIN/END, beside a stranger", Protocol::Simple, true, true),
];

fn run(bench: &mut Bench) -> Result<()> {
    let profile = Profile::PLAIN;
    let roster = bench.roster;
    let endpoints = bench.start(&roster.poolers, &profile)?;
    let endpoints = bench.warm_up(endpoints, &profile)?;
    let able: Vec<&Endpoint> = endpoints.iter().collect();
    let (seconds, rounds) = (bench.seconds(2), bench.rounds(3));
    for series in &ALL[..bench.scale.pick(ALL.len(), 1, 1)] {
        let _stranger = series.stranger.then(|| stranger(bench)).transpose()?;
        for clients in bench.scale.pick(&CLIENTS[..], &[1, 8], &[2]).iter().copied() {
            let load = Load { mode: series.mode, clients, seconds, block: series.block, connect: false, tls: false };
            bench.pgbench(series.what, load, rounds, &able)?;
        }
    }
    Ok(())
}

/// Keeps the first core busy until it is dropped, in a session of its own: where the kernel shares cores between sessions, a
/// stranger is not one of ours.
fn stranger(bench: &Bench) -> Result<Running> {
    let mut command = Command::new("setsid");
    command.args(["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]);
    Running::start("the stranger", command, bench.ground.directory().join("stranger.log"), Signal::SIGKILL)
}
