//! Target 1: CPU per transaction with TLS on both sides of the pooler.

use anyhow::Result;

use super::bench::Bench;
use super::{Part, speed};
use crate::load::pgbench::Load;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::load::Protocol;

pub const PART: Part = Part {
    name: "tls",
    title: "TLS on both sides",
    about: "As above, with TLS between pgbench and the pooler and between the pooler and PostgreSQL (ECDSA P-256 certificate, \
            versions and ciphers as the programs choose them).",
    figures: &speed::FIGURES,
    drawing: None,
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    let profile = Profile::TLS;
    let roster = bench.roster;
    let mut endpoints = vec![bench.direct(&profile)?];
    endpoints.extend(bench.start(roster.single(), &profile)?);
    let endpoints = bench.warm_up(endpoints, &profile)?;
    let able: Vec<&Endpoint> = endpoints.iter().collect();
    let (seconds, rounds) = (bench.seconds(2), bench.rounds(3));
    for clients in bench.scale.pick(&[32, 128][..], &[32], &[2]).iter().copied() {
        let load = Load { mode: Protocol::Simple, clients, seconds, block: false, connect: false, tls: true };
        bench.pgbench("simple, TLS", load, rounds, &able)?;
    }
    Ok(())
}
