//! Running experiments: what each measurement sees and does, and the order of all of them.
//!
//! Does not know any experiment.

pub mod awake;
mod doubts;
mod sampler;
pub mod site;
pub mod tools;

pub use site::{Held, ServerMemory, Site, Wishes};
