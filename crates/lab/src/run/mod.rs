//! Running experiments: what each measurement sees and does, and the order of all of them.
//!
//! Does not know any experiment.

pub mod awake;
mod doubts;
mod peak;
pub mod runner;
mod sampler;
mod screen;
pub mod site;
pub mod sizes;
pub mod tools;

pub use site::{Held, ServerMemory, Site, Wishes};
