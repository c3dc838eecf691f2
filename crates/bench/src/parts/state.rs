//! What it costs that clients' session state is kept: `session_state`.

use anyhow::Result;

use super::bench::{Bench, Scale};
use super::{Part, speed};
use crate::load::pgbench::Load;
use crate::peers::OURS;
use crate::peers::endpoint::Endpoint;
use crate::peers::profile::Profile;
use weir_measure::load::Protocol;

pub const PART: Part = Part {
    name: "state",
    title: "The price of keeping session state",
    about: "The same as in the part `speed`, in front of Weir with `session_state = pgbouncer`, which looks at no text, and with `keep`, which reads in each \
            whether it leaves anything in its session. These leave nothing.",
    figures: &speed::FIGURES,
    drawing: None,
    run,
};

const STATES: [&str; 2] = ["pgbouncer", "keep"];

fn run(bench: &mut Bench) -> Result<()> {
    let Some(pooler) = bench.roster.ours() else { return Ok(()) };
    let mut endpoints = Vec::new();
    for state in STATES {
        let profile = Profile { session_state: Some(state), ..Profile::PLAIN };
        endpoints.extend(bench.start_one(pooler, &profile, &format!("{OURS}, {state}"))?);
    }
    let endpoints = bench.warm_up(endpoints, &Profile::PLAIN)?;
    let all: Vec<&Endpoint> = endpoints.iter().collect();
    let (seconds, rounds) = (bench.seconds(3), bench.rounds(5));
    for mode in if bench.scale == Scale::Tiny { &Protocol::ALL[..1] } else { &Protocol::ALL[..] } {
        for clients in bench.scale.pick(&[32, 128][..], &[32], &[2]).iter().copied() {
            let load = Load { mode: *mode, clients, seconds, block: false, connect: false, tls: false };
            bench.pgbench(&mode.to_string(), load, rounds, &all)?;
        }
    }
    Ok(())
}
