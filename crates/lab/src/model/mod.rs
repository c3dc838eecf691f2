//! Models beside the measurements: what throughput over clients should look like, and what that predicts.
//!
//! Knows numbers only; which experiment they come from, and how they are drawn, others know.

pub mod cli;
mod clusters;
pub mod cost;
pub mod doubts;
mod fitting;
mod least;
mod plan;
mod published;
mod queue;
pub mod queueing;
mod sampling;
mod table;
pub mod usl;
pub mod words;

pub use fitting::fit;
pub use sampling::Interval;
pub use usl::Fit;
