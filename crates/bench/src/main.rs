//! The command line of the lab: which experiment to run, and with what.
//!
//! Knows nothing of how Weir works: every peer is a port that speaks PostgreSQL and, for a pooler, its processes.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod bench;
mod ground;
mod load;
mod parts;
mod peers;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use weir_measure::ground::interrupt::Interrupt;

/// Experiments beside other poolers, on this machine.
#[derive(Parser)]
#[command(name = "weir-bench", version)]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// Measure Weir beside PgBouncer and PostgreSQL itself, interleaved, and report ratios from one run.
    Bench(bench::Options),
    /// Write the tables and the charts again from the results of an earlier run.
    Report(report::publish::Options),
    /// Hold idle clients, for a bench that needs more of them than one process may have.
    #[command(hide = true)]
    Hold(load::holders::Options),
}

/// The repository this program was built from; results and documents go there unless told otherwise.
pub fn repository() -> PathBuf {
    let crate_directory = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    crate_directory.ancestors().nth(2).map_or_else(|| PathBuf::from("."), PathBuf::from)
}

fn run() -> Result<ExitCode> {
    match Arguments::parse().experiment {
        Experiment::Bench(options) => bench::run(&options, &Interrupt::install()?),
        Experiment::Report(options) => report::publish::run(&options),
        Experiment::Hold(options) => load::holders::run(&options, &Interrupt::install()?),
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
