//! Target 5: a storm of logins beside running clients, and what it does to their latency.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::bench::{Bench, Values, turns, values};
use super::{Figure, Part};
use crate::load::crew::Crew;
use crate::load::engine::Plan;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;

pub const PART: Part = Part {
    name: "storm",
    title: "A storm of logins beside running clients",
    about: "64 clients ask a SELECT every 10 ms; then thousands of others log in with SCRAM, 500 at the same time, and stay. The p99 is \
            that of the running clients. The storm's own work (the lab's) shares the cores with the pooler: what it costs the \
            running clients on a small machine is in every peer's figure.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 6] = [
    Figure::told("p99_before_us", "p99 µs before", 0),
    Figure::lower("p99_during_us", "p99 µs during", 0),
    Figure::told("moved", "during/before", 2),
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
        let endpoints = bench.start(bench.roster.pair(), &profile)?;
        let endpoints = bench.warm_up(endpoints, &profile)?;
        for (round, endpoint) in turns(&endpoints.iter().collect::<Vec<_>>(), rounds) {
            let measured = measure(bench, endpoint, &profile, logins);
            bench.keep((what, logins), &endpoint.name, round, measured)?;
        }
    }
    Ok(())
}

fn measure(bench: &Bench, endpoint: &Endpoint, profile: &Profile, logins: usize) -> Result<Values> {
    let interrupt = &bench.ground.interrupt;
    let quiet = bench.time(QUIET);
    let plan = Plan { think: THINK, ..bench.plan(endpoint, profile, RUNNING)? };
    let running = Crew::log_in(&plan, 1, interrupt)?;
    running.ask();
    bench.settle(SETTLING)?;
    running.phase(1);
    interrupt.sleep(quiet)?;
    running.phase(2);
    let (start, cpu) = (Instant::now(), endpoint.cpu_time()?.unwrap_or_default());
    let storm = Crew::start(&Plan { at_once: AT_ONCE, ..bench.plan(endpoint, profile, logins)? }, 1);
    let held = storm.wait_for_logins(interrupt)?;
    let (storm_time, cpu) = (start.elapsed(), endpoint.cpu_time()?.unwrap_or_default().saturating_sub(cpu));
    running.phase(3);
    interrupt.sleep(quiet / 2)?;
    running.phase(0);
    let refused = storm.stop()?.first_failure;
    let tally = running.stop()?;
    if held < logins {
        bail!("only {held} of {logins} logged in: {}", refused.unwrap_or_else(|| "no answer".to_owned()));
    }
    let p99 = |phase: usize| to_f64(tally.latency[phase].value_at_quantile(0.99));
    Ok(values([
        ("p99_before_us", p99(1)),
        ("p99_during_us", p99(2)),
        ("p99_after_us", p99(3)),
        ("moved", p99(2) / p99(1)),
        ("storm_ms", storm_time.as_secs_f64() * 1e3),
        ("cpu_us", cpu.as_secs_f64() * 1e6 / to_f64(logins as u64)),
    ]))
}
