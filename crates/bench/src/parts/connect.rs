//! Target 1: a connection per transaction, with trust and with SCRAM.

use anyhow::Result;

use super::bench::Bench;
use super::{Figure, Part};
use crate::load::pgbench::Load;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::load::Protocol;

pub const PART: Part = Part {
    name: "connect",
    title: "One connection per transaction",
    about: "`pgbench -S -C`: connect, log in, one SELECT, disconnect. With SCRAM most of the time is pgbench's, which derives its \
            keys anew each time, so only CPU says something about the pooler. The user list has a SCRAM secret.",
    figures: &FIGURES,
    drawing: None,
    run,
};

const FIGURES: [Figure; 2] = [Figure::lower("cpu_us", "CPU µs/transaction", 1), Figure::higher("tps", "TPS", 0)];

fn run(bench: &mut Bench) -> Result<()> {
    let (seconds, rounds) = (bench.seconds(2), bench.rounds(3));
    for (what, profile, counts) in [
        ("trust", Profile::PLAIN, bench.scale.pick(&[8, 32][..], &[8], &[2])),
        ("SCRAM", Profile::SCRAM, bench.scale.pick(&[8][..], &[8], &[2])),
    ] {
        let roster = bench.roster;
        // PostgreSQL trusts everybody here, so that only its plain figure would compare.
        let mut endpoints = if profile.is_plain() { vec![bench.direct(&profile)?] } else { Vec::new() };
        endpoints.extend(bench.start(&roster.poolers, &profile)?);
        endpoints.extend(bench.externals(&profile)?);
        let endpoints = bench.warm_up(endpoints, &profile)?;
        let able: Vec<&Endpoint> = endpoints.iter().collect();
        for clients in counts.iter().copied() {
            let load = Load { mode: Protocol::Simple, clients, seconds, block: false, connect: true, tls: false };
            bench.pgbench(what, load, rounds, &able)?;
        }
    }
    Ok(())
}
