//! Target 4: memory per idle client, plain and with TLS.

use std::time::Duration;

use anyhow::{Context, Result};

use super::bench::{Bench, Values, turns, values};
use super::{Figure, Part};
use crate::load::crew::Crew;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::ground::process::Memory;

pub const PART: Part = Part {
    name: "memory",
    title: "Memory per idle client",
    about: "Growth of private pages (user memory; what the kernel keeps for sockets is not in it) of a freshly started pooler, \
            per client: when all have logged in, and when each of them has asked one query and gone quiet again.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 4] = [
    Figure::lower("login_kib", "KiB/client after login", 2),
    Figure::lower("query_kib", "KiB/client after a query", 2),
    Figure::told("before_mib", "MiB before", 1),
    Figure::told("after_mib", "MiB after", 1),
];

/// Logins and queries leave garbage behind that a pooler may give back after a moment.
const SETTLING: Duration = Duration::from_millis(1500);

fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.rounds(2);
    for (what, profile, counts) in [
        ("plain", Profile::PLAIN, bench.scale.pick(&[2000, 10_000][..], &[2000], &[20])),
        ("TLS", Profile::CLIENT_TLS, bench.scale.pick(&[2000][..], &[1000], &[20])),
    ] {
        for clients in counts.iter().copied() {
            let single = bench.scale.pick(bench.roster.single(), bench.roster.pair(), bench.roster.pair());
            for (round, pooler) in turns(&single, rounds) {
                // What earlier loads have left in a pooler's memory is not the idle clients'.
                let Some(endpoint) = bench.start_one(pooler, &profile, &pooler.name)? else { continue };
                let measured = measure(bench, &endpoint, &profile, clients);
                bench.keep((what, clients), &endpoint.name, round, measured)?;
            }
        }
    }
    Ok(())
}

fn measure(bench: &Bench, endpoint: &Endpoint, profile: &Profile, clients: usize) -> Result<Values> {
    let interrupt = &bench.ground.interrupt;
    let settled = || -> Result<Memory> {
        bench.settle(SETTLING)?;
        endpoint.memory()?.context("its process is not known")
    };
    let before = settled()?;
    let crew = Crew::log_in(&bench.plan(endpoint, profile, clients)?, 1, interrupt)?;
    let logged_in = settled()?;
    crew.ask_once(interrupt)?;
    let asked = settled()?;
    drop(crew);
    let per_client = |after: Memory| growth_kib(before, after) / to_f64(clients as u64);
    Ok(values([
        ("login_kib", per_client(logged_in)),
        ("query_kib", per_client(asked)),
        ("before_mib", to_f64(before.private_kib) / 1024.0),
        ("after_mib", to_f64(asked.private_kib) / 1024.0),
    ]))
}

/// Below zero where memory was given back.
pub fn growth_kib(before: Memory, after: Memory) -> f64 {
    to_f64(after.private_kib) - to_f64(before.private_kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_may_be_negative() {
        let memory = |private_kib| Memory { rss_kib: 0, private_kib };
        assert_eq!(growth_kib(memory(10), memory(4)), -6.0);
    }
}
