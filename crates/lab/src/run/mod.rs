//! Running experiments: what each measurement sees and does, and the order of all of them.
//!
//! Does not know any experiment.

pub mod awake;
pub mod busy;
pub mod duration;
pub(crate) mod peak;
pub mod runner;
mod sampler;
pub(crate) mod schedule;
mod screen;
pub mod site;
pub mod sizes;
pub mod tools;

pub use site::{Held, ServerMemory, Site, Wishes};
