//! Models beside the measurements: what throughput over clients should look like, and what that predicts.
//!
//! Knows numbers only; which experiment they come from, and how they are drawn, others know.

pub mod cost;
mod least;
pub mod queueing;
mod sampling;
pub mod usl;
pub mod words;

pub use sampling::Interval;
pub use usl::{Fit, fit};
