//! The program as a library: everything but `main`, so that something else than a command line can start it too.
//!
//! No process-wide state lives here, and nothing in the depth exits the process: settings are values, errors are
//! returned.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod cli;
pub mod config;
pub mod daemon;
pub mod dev;
pub mod driver;
pub mod log;
pub mod manager;
mod metrics;
mod reloads;
pub mod run;
mod signals;
mod sink;
pub mod start;
pub mod syslog;
mod takeover;
