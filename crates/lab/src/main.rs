//! The command line of the lab: which experiment to run, and with what.
//!
//! Knows nothing of how Weir works: every peer is a port that speaks PostgreSQL and, for a pooler, a process id.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod account;
mod bench;
mod chart;
mod cluster;
mod idle;
mod interrupt;
mod machine;
mod peer;
mod pgbench;
mod pooler;
mod process;
mod record;
mod report;
mod running;
mod summary;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::interrupt::Interrupt;

/// Experiments beside other poolers, on this machine.
#[derive(Parser)]
#[command(name = "weir-lab", version)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Run pgbench against Weir, PgBouncer and PostgreSQL itself, interleaved, and report ratios from one run.
    Bench(bench::Options),
    /// Write the table and the chart again from the results of an earlier run.
    Report(report::Options),
}

/// The repository this program was built from; results and documents go there unless told otherwise.
pub fn repository() -> PathBuf {
    let crate_directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    crate_directory.ancestors().nth(2).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

fn run() -> Result<ExitCode> {
    match Arguments::parse().experiment {
        Experiment::Bench(options) => bench::run(&options, &Interrupt::install()?),
        Experiment::Report(options) => report::run(&options),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
