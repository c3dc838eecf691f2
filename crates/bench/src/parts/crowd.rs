//! Target 4: 100 000 idle clients held, and pgbench beside them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::bench::{Bench, Values, measure as pgbench, values};
use super::memory::growth_kib;
use super::{Figure, Part};
use crate::load::holders::Holders;
use crate::load::pgbench::Load;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::ground::descriptors;
use weir_measure::load::Protocol;
use weir_measure::statistics::Spread;

pub const PART: Part = Part {
    name: "crowd",
    title: "A crowd of idle clients",
    about: "Idle clients of several processes on several addresses of the loopback, as many as wished (`--crowd-clients`) or as \
            are let in. *Beside* is the throughput of `pgbench -S -c 32` while they are there to that of the same before they \
            came and after they had gone (medians of three runs each).",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 6] = [
    Figure::higher("held", "held", 0),
    Figure::told("beside", "beside", 3),
    Figure::told("cpu_beside", "CPU beside", 3),
    Figure::higher("tps_beside", "TPS beside", 0),
    Figure::lower("private_kib", "private KiB/client", 2),
    Figure::told("files", "open files", 0),
];

const PGBENCH_CLIENTS: usize = 32;
const RUNS: usize = 3;
const MARGIN: usize = 1000;
const SETTLING: Duration = Duration::from_secs(2);

fn run(bench: &mut Bench) -> Result<()> {
    let wished = bench.wishes.crowd_clients.unwrap_or(bench.scale.pick(100_000, 15_000, 50));
    let profile = Profile { clients_max: wished + MARGIN, ..Profile::PLAIN };
    let endpoints = bench.start(bench.roster.pair(), &profile)?;
    for endpoint in bench.warm_up(endpoints, &profile)? {
        let measured = measure(bench, &endpoint, wished);
        bench.keep(("idle", wished), &endpoint.name, 0, measured)?;
    }
    Ok(())
}

fn measure(bench: &mut Bench, endpoint: &Endpoint, wished: usize) -> Result<Values> {
    let mut alone = several(bench, endpoint)?;
    let before = endpoint.memory()?.context("its process is not known")?;
    let (mut holders, held) = gather(bench, endpoint, wished)?;
    bench.settle(SETTLING)?;
    let after = endpoint.memory()?.context("its process is not known")?;
    let files = open_files(endpoint)?;
    let beside = several(bench, endpoint)?;
    let there = holders.count()?;
    ensure!(there == holders.held, "of {} idle clients {there} were left", holders.held);
    holders.stop()?;
    bench.settle(SETTLING)?;
    alone.extend(several(bench, endpoint)?);
    let median = |runs: &[Values], key: &str| {
        let spread = Spread::of(runs.iter().filter_map(|values| values.get(key).copied()));
        spread.map(|spread| spread.median).with_context(|| format!("no {key}"))
    };
    Ok(values([
        ("held", to_f64(held as u64)),
        ("beside", median(&beside, "tps")? / median(&alone, "tps")?),
        ("cpu_beside", median(&beside, "cpu_us")? / median(&alone, "cpu_us")?),
        ("tps_beside", median(&beside, "tps")?),
        ("private_kib", growth_kib(before, after) / to_f64(there.max(1) as u64)),
        ("files", to_f64(files as u64)),
    ]))
}

/// All that are wished, or, where the peer does not let so many in, a few less than it does, so that pgbench finds a place
/// beside them. And how many it held at most.
fn gather(bench: &mut Bench, endpoint: &Endpoint, wished: usize) -> Result<(Holders, usize)> {
    let holders = Holders::start(endpoint.port, wished, false)?;
    let held = holders.held;
    if held >= wished {
        return Ok((holders, held));
    }
    let files = open_files(endpoint)?;
    let reason = holders.stop()?.unwrap_or_else(|| "the others had no answer".to_owned());
    let text = format!(
        "{} held {held} of {wished} idle clients ({reason}); it had {files} open files, and a process may have {}. The figures \
         beside them are with {MARGIN} less",
        endpoint.name,
        descriptors::limit()?
    );
    bench.note(text)?;
    bench.settle(SETTLING)?;
    let fewer = held.saturating_sub(MARGIN);
    let holders = Holders::start(endpoint.port, fewer, false)?;
    ensure!(holders.held == fewer, "only {} of {fewer} came in again", holders.held);
    Ok((holders, held))
}

fn open_files(endpoint: &Endpoint) -> Result<usize> {
    endpoint.pids.iter().map(|pid| descriptors::open_files(*pid)).sum()
}

fn several(bench: &Bench, endpoint: &Endpoint) -> Result<Vec<Values>> {
    let seconds = bench.seconds(2);
    let load =
        Load { mode: Protocol::Simple, clients: PGBENCH_CLIENTS, seconds, block: false, connect: false, tls: false };
    let runs = bench.scale.pick(RUNS, 1, 1);
    (0..runs).map(|_| pgbench(load, endpoint, bench.ground, |_| Ok(())).map(|measured| measured.values)).collect()
}
