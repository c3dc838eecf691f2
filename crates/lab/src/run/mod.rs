//! Running experiments: what each measurement sees and does, and the order of all of them.
//!
//! Does not know any experiment.

pub mod site;

pub use site::{Held, ServerMemory, Site, Wishes};
