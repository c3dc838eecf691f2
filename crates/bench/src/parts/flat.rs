//! Target 3: throughput, latency and fairness stay flat from 32 to 10 000 clients.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;

use super::bench::{Bench, Values, turns, values};
use super::{Drawing, Figure, Part};
use crate::load::crew::Crew;
use crate::load::plan::Plan;
use crate::load::tally::to_f64;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;

pub const PART: Part = Part {
    name: "flat",
    title: "From 32 to 10 000 clients",
    about: "The lab's own clients: 64 of them ask one SELECT after the other, all others one each second. Waits are from the query \
            to its ReadyForQuery. *Slowest client* is the highest average wait of a client, *longest wait* the longest of \
            all waits, each to the average of all waits. *Of peak* is the throughput to the highest of the same peer in the \
            same round. *Generator* is the share of its time that the busiest thread of the load generator worked: near 1 \
            the generator is the limit, not the peer. The waits of direct connections are the machine's own.",
    figures: &FIGURES,
    drawing: Some(Drawing {
        name: "flat",
        title: "Throughput and the 99th percentile of waits from 32 to 10 000 clients",
        figures: &["tps", "p99_us"],
    }),
    run,
};

const FIGURES: [Figure; 9] = [
    Figure::higher("tps", "TPS", 0),
    Figure::told("of_peak", "of peak", 2),
    Figure::lower("cpu_us", "CPU µs/transaction", 1),
    Figure::told("p50_us", "p50 µs", 0),
    Figure::lower("p99_us", "p99 µs", 0),
    Figure::told("p99_to_p50", "p99/p50", 2),
    Figure::told("slowest_client", "slowest client", 2),
    Figure::told("longest_wait", "longest wait", 1),
    Figure::told("generator_busy", "generator", 2),
];

const EAGER: usize = 64;
/// PostgreSQL itself has 300 connections to give.
const DIRECT_CLIENTS_MAX: usize = 256;
const THINK: Duration = Duration::from_secs(1);
const THREADS: usize = 2;
const TIME: Duration = Duration::from_secs(5);
/// All clients that think have asked once by then.
const SETTLING: Duration = Duration::from_millis(1200);
const BUSY_MAX: f64 = 0.9;

fn run(bench: &mut Bench) -> Result<()> {
    let profile = Profile::PLAIN;
    let roster = bench.roster;
    let mut endpoints = vec![bench.direct(&profile)?];
    endpoints.extend(bench.start(roster.pair(), &profile)?);
    endpoints.extend(bench.externals(&profile)?);
    let endpoints = bench.warm_up(endpoints, &profile)?;
    let all: Vec<&Endpoint> = endpoints.iter().collect();
    let counts = bench.scale.pick(&[32, 128, 1000, 3000, 10_000][..], &[32, 3000], &[4, 8]);
    let time = bench.time(TIME);
    for round in 0..bench.rounds(2) {
        let mut measured = Vec::new();
        for clients in counts.iter().copied() {
            let able: Vec<&Endpoint> =
                all.iter().copied().filter(|endpoint| !endpoint.is_direct() || clients <= DIRECT_CLIENTS_MAX).collect();
            for (_, endpoint) in turns(&able, round + 1).split_off(round * able.len()) {
                measured.push((clients, endpoint.name.as_str(), measure(bench, endpoint, &profile, clients, time)));
            }
        }
        let peaks =
            peaks(measured.iter().filter_map(|(_, peer, values)| Some((*peer, *values.as_ref().ok()?.get("tps")?))));
        for (clients, peer, mut values) in measured {
            if let Ok(values) = &mut values
                && let (Some(tps), Some(peak)) = (values.get("tps").copied(), peaks.get(peer))
            {
                values.insert("of_peak".to_owned(), tps / peak);
            }
            bench.keep(("mixed", clients), peer, round, values)?;
        }
    }
    Ok(())
}

fn peaks<'a>(all: impl Iterator<Item = (&'a str, f64)>) -> BTreeMap<&'a str, f64> {
    let mut peaks = BTreeMap::new();
    for (peer, tps) in all {
        let peak = peaks.entry(peer).or_insert(0.0);
        *peak = f64::max(*peak, tps);
    }
    peaks
}

fn measure(
    bench: &mut Bench,
    endpoint: &Endpoint,
    profile: &Profile,
    clients: usize,
    time: Duration,
) -> Result<Values> {
    let plan = Plan { eager: EAGER.min(clients), think: THINK, ..bench.plan(endpoint, profile, clients)? };
    let interrupt = &bench.ground.interrupt;
    let crew = Crew::log_in(&plan, THREADS, interrupt)?;
    crew.ask();
    interrupt.sleep(bench.scale.pick(SETTLING, SETTLING, Duration::ZERO))?;
    let before = endpoint.cpu_time()?;
    crew.phase(1);
    interrupt.sleep(time)?;
    crew.phase(0);
    let after = endpoint.cpu_time()?;
    let tally = crew.stop()?;
    if let Some(reason) = &tally.first_failure {
        anyhow::bail!("{} clients were lost: {reason}", tally.failures);
    }
    let latency = &tally.latency[1];
    let (p50, p99) = (to_f64(latency.value_at_quantile(0.5)), to_f64(latency.value_at_quantile(0.99)));
    let count = to_f64(latency.len());
    let mut figures = values([
        ("tps", count / time.as_secs_f64()),
        ("p50_us", p50),
        ("p99_us", p99),
        ("p99_to_p50", p99 / p50),
        ("generator_busy", tally.busy),
    ]);
    if let Some(fairness) = tally.fairness() {
        let pairs = [("slowest_client", fairness.slowest_client), ("longest_wait", fairness.longest_wait)];
        figures.extend(values(pairs));
    }
    if let Some((before, after)) = before.zip(after) {
        figures.extend(values([("cpu_us", after.saturating_sub(before).as_secs_f64() * 1e6 / count)]));
    }
    if tally.busy > BUSY_MAX {
        bench.note(format!("the load generator was the limit at {clients} clients of {}", endpoint.name))?;
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_has_its_own_peak() {
        let peaks = peaks([("a", 1.0), ("b", 5.0), ("a", 3.0), ("a", 2.0)].into_iter());
        assert_eq!(peaks, BTreeMap::from([("a", 3.0), ("b", 5.0)]));
    }
}
