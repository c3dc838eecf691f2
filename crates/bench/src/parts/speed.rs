//! Targets 1 and 2: CPU per transaction and throughput of pgbench's SELECT, by protocol mode and number of clients.

use anyhow::Result;

use super::bench::{Bench, Scale};
use super::{Drawing, Figure, Part};
use crate::load::pgbench::Load;
use crate::peers::FLEET;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::load::Protocol;

pub const PART: Part = Part {
    name: "speed",
    title: "CPU per transaction and throughput",
    about: "`pgbench -S -M MODE`: one SELECT by primary key per transaction. CPU is user and system time of all the pooler's \
            processes in the seconds that pgbench runs, divided by its transactions; the time in which clients log in is \
            not in it. Latencies are from a sample of the transactions. With a single client the machine \
            sleeps between messages, and what is measured is mostly how it wakes up. Memory is that of all private pages.",
    figures: &FIGURES,
    drawing: Some(Drawing {
        name: "speed",
        title: "CPU per transaction and transactions per second by number of clients",
        figures: &["cpu_us", "tps"],
    }),
    run,
};

pub const FIGURES: [Figure; 5] = [
    Figure::lower("cpu_us", "CPU µs/transaction", 1),
    Figure::higher("tps", "TPS", 0),
    Figure::told("p50_us", "p50 µs", 0),
    Figure::told("p99_us", "p99 µs", 0),
    Figure::told("private_mib", "private MiB", 1),
];

/// PostgreSQL itself has 300 connections to give.
const DIRECT_CLIENTS_MAX: usize = 256;
/// Where the second driver is measured too.
const SECOND_DRIVER_CLIENTS: [usize; 3] = [8, 32, 128];

fn run(bench: &mut Bench) -> Result<()> {
    let profile = Profile::PLAIN;
    let roster = bench.roster;
    let mut endpoints = vec![bench.direct(&profile)?];
    endpoints.extend(bench.start(&roster.poolers, &profile)?);
    endpoints.extend(bench.externals(&profile)?);
    let endpoints = bench.warm_up(endpoints, &profile)?;
    let ours = roster.ours().map(|pooler| pooler.name.as_str());
    let (seconds, rounds) = (bench.seconds(2), bench.rounds(3));
    for (mode, counts) in cells(bench.scale) {
        for clients in counts.iter().copied() {
            let takes_part = |endpoint: &&Endpoint| takes_part(endpoint, ours, mode, clients, bench.scale);
            let able: Vec<&Endpoint> = endpoints.iter().filter(takes_part).collect();
            let load = Load { mode, clients, seconds, block: false, connect: false, tls: false };
            bench.pgbench(&mode.to_string(), load, rounds, &able)?;
        }
    }
    Ok(())
}

fn cells(scale: Scale) -> Vec<(Protocol, &'static [usize])> {
    match scale {
        Scale::Full => Protocol::ALL.into_iter().map(|mode| (mode, &[1, 8, 32, 128, 256, 1000][..])).collect(),
        Scale::Quick => vec![(Protocol::Simple, &[1, 32, 128, 1000]), (Protocol::Prepared, &[32, 128])],
        Scale::Tiny => vec![(Protocol::Simple, &[2])],
    }
}

/// What is measured everywhere is ours and PgBouncer; the rest where it has something to say.
fn takes_part(endpoint: &Endpoint, ours: Option<&str>, mode: Protocol, clients: usize, scale: Scale) -> bool {
    if endpoint.is_direct() {
        return clients <= DIRECT_CLIENTS_MAX;
    }
    if endpoint.is_ours() && Some(endpoint.name.as_str()) != ours {
        return scale != Scale::Quick && SECOND_DRIVER_CLIENTS.contains(&clients);
    }
    endpoint.name != FLEET || mode != Protocol::Extended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_scale_has_each_mode_at_each_number_of_clients() {
        let cells = cells(Scale::Full);
        assert_eq!(cells.len(), 3);
        assert!(cells.iter().all(|(_, counts)| *counts == [1, 8, 32, 128, 256, 1000]));
    }
}
