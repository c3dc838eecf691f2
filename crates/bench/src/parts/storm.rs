//! Target 5: a storm of logins beside running clients, and what it does to their latency.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bench::{Bench, Values, turns, values};
use super::{Figure, Part};
use crate::load::crew::Crew;
use crate::load::plan::Plan;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;

pub const PART: Part = Part {
    name: "storm",
    title: "A storm of logins beside running clients",
    about: "64 clients ask a SELECT every 10 ms; then thousands of others log in with SCRAM, 500 at the same time, and stay. The p99 \
            is that of the running clients. The thread that makes the storm is nice (19), so that it takes the cores from \
            nobody. *Elsewhere* is the same storm at another process of the same pooler: what it does to a machine of few \
            cores, whoever is asked.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 7] = [
    Figure::told("p99_before_us", "p99 µs before", 0),
    Figure::lower("p99_during_us", "p99 µs during", 0),
    Figure::told("moved", "during/before", 2),
    Figure::told("moved_elsewhere", "elsewhere/before", 2),
    Figure::told("p99_after_us", "p99 µs after", 0),
    Figure::lower("storm_ms", "storm ms", 0),
    Figure::told("cpu_us", "CPU µs/login", 1),
];

const RUNNING: usize = 64;
const THINK: Duration = Duration::from_millis(10);
const AT_ONCE: usize = 500;
const QUIET: Duration = Duration::from_secs(3);
const SETTLING: Duration = Duration::from_millis(500);

fn run(bench: &mut Bench) -> Result<()> {
    let logins = bench.scale.pick(5000, 5000, 50);
    let rounds = bench.rounds(3);
    let profiles = [("SCRAM", Profile::SCRAM), ("SCRAM over TLS", Profile::SCRAM_TLS)];
    for (what, profile) in profiles.into_iter().take(bench.scale.pick(2, 1, 1)) {
        let pair = bench.roster.pair();
        let (here, elsewhere) = (bench.start(pair.clone(), &profile)?, bench.start(pair, &profile)?);
        let here = bench.warm_up(here, &profile)?;
        for (round, endpoint) in turns(&here.iter().collect::<Vec<_>>(), rounds) {
            let twin = elsewhere.iter().find(|twin| twin.name == endpoint.name);
            let twin = twin.with_context(|| format!("{} did not start twice", endpoint.name))?;
            let measured = measure(bench, (endpoint, twin), &profile, logins);
            bench.keep((what, logins), &endpoint.name, round, measured)?;
        }
    }
    Ok(())
}

/// Phases of the running clients.
const BEFORE: usize = 1;
const ELSEWHERE: usize = 2;
const DURING: usize = 3;
const AFTER: usize = 4;

fn measure(
    bench: &Bench,
    (endpoint, twin): (&Endpoint, &Endpoint),
    profile: &Profile,
    logins: usize,
) -> Result<Values> {
    let interrupt = &bench.ground.interrupt;
    let quiet = bench.time(QUIET);
    let plan = Plan { think: THINK, ..bench.plan(endpoint, profile, RUNNING)? };
    let running = Crew::log_in(&plan, 1, interrupt)?;
    running.ask();
    bench.settle(SETTLING)?;
    running.phase(BEFORE);
    interrupt.sleep(quiet)?;
    running.phase(ELSEWHERE);
    storm(bench, twin, profile, logins)?;
    running.phase(0);
    bench.settle(SETTLING)?;
    running.phase(DURING);
    let cpu = endpoint.cpu_time()?.unwrap_or_default();
    let (took, crew) = storm(bench, endpoint, profile, logins)?;
    let cpu = endpoint.cpu_time()?.unwrap_or_default().saturating_sub(cpu);
    running.phase(AFTER);
    interrupt.sleep(quiet / 2)?;
    running.phase(0);
    drop(crew);
    let tally = running.stop()?;
    let p99 = |phase: usize| to_f64(tally.latency[phase].value_at_quantile(0.99));
    Ok(values([
        ("p99_before_us", p99(BEFORE)),
        ("p99_during_us", p99(DURING)),
        ("p99_after_us", p99(AFTER)),
        ("moved", p99(DURING) / p99(BEFORE)),
        ("moved_elsewhere", p99(ELSEWHERE) / p99(BEFORE)),
        ("storm_ms", took.as_secs_f64() * 1e3),
        ("cpu_us", cpu.as_secs_f64() * 1e6 / to_f64(logins as u64)),
    ]))
}

/// How long it took until all were in; they stay as long as their crew.
fn storm(bench: &Bench, endpoint: &Endpoint, profile: &Profile, logins: usize) -> Result<(Duration, Crew)> {
    let plan = Plan { at_once: AT_ONCE, nice: true, ..bench.plan(endpoint, profile, logins)? };
    let start = Instant::now();
    let crew = Crew::log_in(&plan, 1, &bench.ground.interrupt)?;
    Ok((start.elapsed(), crew))
}
