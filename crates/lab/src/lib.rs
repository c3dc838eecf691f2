//! The lab: known experiments on connection scaling, run against any PostgreSQL or pooler, with charts and advice.
//!
//! `weir lab` and `weir advise` are its command line. It drives pgbench and psql, and knows nothing of Weir's code: Weir is
//! a program that it can start, as PgBouncer is.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod advise;
pub mod cli;
pub mod conclusions;
pub mod dataset;
pub mod experiment;
pub mod experiments;
pub mod model;
pub mod report;
pub mod run;
pub mod targets;
