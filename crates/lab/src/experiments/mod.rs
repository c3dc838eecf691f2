//! The experiments that the lab knows, by name.
//!
//! Does not know how they are run.

mod fan_out;
#[cfg(test)]
mod fixtures;
mod fleet;
mod peaks;
mod places;
mod reconnect;
mod single_shard;
mod sources;
mod words;

use crate::experiment::Experiment;

/// In the order of `weir lab list`.
pub const ALL: &[&dyn Experiment] = &[&single_shard::SingleShard, &fan_out::FanOut, &reconnect::Reconnect, &fleet::Fleet];

pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    ALL.iter().copied().find(|experiment| experiment.about().name == name)
}
