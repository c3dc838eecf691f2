//! The simulator: core's workers in a world of virtual time, where a seed decides everything.
//!
//! Owns the world around the workers (network, servers, clients, faults) and the laws that must hold in it. Knows
//! core's contract and nothing of its inside.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod checks;
pub mod client;
mod departures;
pub mod direct;
mod draws;
pub mod driver;
mod faults;
mod finale;
pub mod memory;
pub mod network;
pub mod pipelines;
pub mod plan;
pub mod postgres;
pub mod report;
pub mod rng;
mod routes;
pub mod scaling;
mod scram;
mod shards;
pub mod trace;
mod traffic;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use checks::Violation;
use departures::Departures;
use plan::Plan;
use report::Counts;
use rng::Rng;
use trace::Digest;
use world::World;

/// How a seed is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    pub tracing: bool,
    /// Virtual hours, instead of what the seed chooses.
    pub hours: Option<f64>,
    /// No pooler: clients meet servers at once.
    pub direct: bool,
    #[cfg(feature = "planted")]
    pub planted: Option<weir_core::planted::Planted>,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    pub violation: Option<Violation>,
    pub counts: Counts,
    pub digest: Digest,
}

/// Changes whenever the same seed means another run, so that a kept seed can tell whether it still means what it did.
pub const GENERATOR_VERSION: u32 = 12;

/// Whether one of a seed's databases is a cluster.
pub fn has_cluster(seed: u64) -> bool {
    Plan::new(&mut Rng::new(seed), None).sharded.is_some()
}

/// Runs one seed to its end.
pub fn run_seed(seed: u64, options: Options) -> Outcome {
    memory::reset();
    let mut rng = Rng::new(seed);
    let mut plan = Plan::new(&mut rng, options.hours);
    if options.direct {
        plan.without_pooler();
    }
    #[cfg(feature = "planted")]
    {
        plan.planted = options.planted;
    }
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(plan, rng, Departures::new(!seed), options);
        world.live();
        world.counts.client_moves = world.hosts.iter().map(|host| host.worker.clients_moved()).sum();
        if world.checks.violation.is_some() {
            for host in &world.hosts {
                world.trace(|| format!("in the end {:#?}", host.worker));
            }
        }
        Outcome { violation: world.checks.violation.take(), counts: world.counts.clone(), digest: world.digest }
    }));
    ended.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        let violation = Violation { law: "no panic", text };
        Outcome { violation: Some(violation), counts: Counts::default(), digest: Digest::default() }
    })
}
