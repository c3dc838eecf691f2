//! Target 4: no growth after a million connects and disconnects.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bench::{Bench, Values, values};
use super::memory::growth_kib;
use super::{Figure, Part};
use crate::load::crew::Crew;
use crate::load::plan::Plan;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;

pub const PART: Part = Part {
    name: "churn",
    title: "Memory after many connects and disconnects",
    about: "Clients log in (trust) and leave at once, 50 at the same time; growth of private pages between the first tenth and the \
            end. `--churn-clients 1000000` makes it a million.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 4] = [
    Figure::told("growth_kib", "growth KiB", 0),
    Figure::told("growth_bytes", "growth bytes/connect", 2),
    Figure::lower("cpu_us", "CPU µs/connect", 1),
    Figure::higher("logins_per_s", "connects/s", 0),
];

const AT_ONCE: usize = 50;
const SETTLING: Duration = Duration::from_secs(2);
/// Far beyond what any pooler needs.
const PATIENCE: Duration = Duration::from_secs(900);

fn run(bench: &mut Bench) -> Result<()> {
    let profile = Profile::PLAIN;
    let clients = bench.wishes.churn_clients.unwrap_or(bench.scale.pick(100_000, 10_000, 100));
    for pooler in bench.roster.pair() {
        let Some(endpoint) = bench.start_one(pooler, &profile, &pooler.name)? else { continue };
        let measured = measure(bench, &endpoint, &profile, clients);
        bench.keep(("connect and leave", clients), &endpoint.name, 0, measured)?;
    }
    Ok(())
}

fn measure(bench: &Bench, endpoint: &Endpoint, profile: &Profile, clients: usize) -> Result<Values> {
    come_and_go(bench, endpoint, profile, (clients / 10).max(1))?;
    let before = endpoint.memory()?.context("its process is not known")?;
    let cpu_before = endpoint.cpu_time()?.unwrap_or_default();
    let (count, seconds) = come_and_go(bench, endpoint, profile, clients)?;
    let used = endpoint.cpu_time()?.unwrap_or_default().saturating_sub(cpu_before);
    let growth_kib = growth_kib(before, endpoint.memory()?.context("its process is not known")?);
    let count = to_f64(count as u64);
    Ok(values([
        ("growth_kib", growth_kib),
        ("growth_bytes", growth_kib * 1024.0 / count),
        ("cpu_us", used.as_secs_f64() * 1e6 / count),
        ("logins_per_s", count / seconds),
    ]))
}

fn come_and_go(bench: &Bench, endpoint: &Endpoint, profile: &Profile, clients: usize) -> Result<(usize, f64)> {
    let interrupt = &bench.ground.interrupt;
    let plan = Plan { leave: true, at_once: AT_ONCE, ..bench.plan(endpoint, profile, AT_ONCE)? };
    let (crew, start) = (Crew::start(&plan, 1), Instant::now());
    let done = || Ok((crew.logged_in() >= clients || crew.has_ended()).then_some(()));
    interrupt.wait_for(PATIENCE, done)?.context("it takes too long")?;
    let (count, seconds) = (crew.logged_in(), start.elapsed().as_secs_f64());
    let failed = crew.stop()?.first_failure;
    if let Some(reason) = failed {
        anyhow::bail!("a login failed: {reason}");
    }
    bench.settle(SETTLING)?;
    Ok((count, seconds))
}
