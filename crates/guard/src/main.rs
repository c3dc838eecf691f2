//! `weir-guard check`: measures what a transaction costs and holds it against `bounds.txt`. Exits with 1 where a bound
//! is broken.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use weir_guard::bounds::{self, Bound, Figure, Verdict};
use weir_guard::recording::Recording;
use weir_guard::{calls, instructions, kinds, program};

#[derive(Parser)]
#[command(name = "weir-guard", about = "Holds what a transaction costs against crates/guard/bounds.txt")]
struct Arguments {
    #[command(subcommand)]
    command: What,
}

#[derive(Subcommand)]
enum What {
    /// Measures everything and compares.
    Check {
        /// The bounds.
        #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/bounds.txt"))]
        bounds: PathBuf,
        /// The program whose system calls are counted.
        #[arg(long)]
        weir: PathBuf,
        /// Writes the bounds that can be lowered.
        #[arg(long)]
        lower: bool,
    },
    /// Goes through a kind's cycle so many times in core: what callgrind looks at.
    Replay { kind: String, cycles: u64 },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        What::Check { bounds, weir, lower } => check(&bounds, &weir, lower),
        What::Replay { kind, cycles } => replay(&kind, cycles),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("weir-guard: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn replay(kind: &str, cycles: u64) -> Result<bool> {
    let kind = kinds::all().into_iter().find(|other| other.name == kind).context("no such kind")?;
    let transactions = Recording::of(&kind).replay(cycles);
    println!("{transactions} transactions");
    Ok(true)
}

fn check(path: &Path, weir: &Path, lower: bool) -> Result<bool> {
    let bounds = bounds::read(path)?;
    let mut figures = Vec::new();
    let mut skipped = 0;
    match instructions::unavailable() {
        Some(reason) => {
            println!("instructions: skipped, {reason}");
            skipped += 1;
        }
        None => figures.append(&mut instructions::measure(&std::env::current_exe()?)?),
    }
    match program::unavailable() {
        Some(reason) => {
            println!("calls: skipped, {reason}");
            skipped += 1;
        }
        None => {
            for driver in calls::DRIVERS {
                match calls::measure(weir, driver, |figure| bounds::judge(&bounds, figure) != Verdict::Broken) {
                    Ok(mut more) => figures.append(&mut more),
                    Err(error) if format!("{error:#}").contains("io_uring is not usable here") => {
                        println!("calls {driver}: skipped, {error:#}");
                        skipped += 1;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }
    let broken = report(&bounds, &figures);
    if lower {
        bounds::lower(path, &figures)?;
    }
    println!("{} passed, {broken} failed, {skipped} skipped", figures.len() - broken);
    Ok(broken == 0)
}

/// Says what became of each figure; answers how many bounds are broken or missing.
fn report(bounds: &[Bound], figures: &[Figure]) -> usize {
    let mut broken = 0;
    for figure in figures {
        let most = bounds.iter().find(|bound| bound.name == figure.name).map_or(f64::NAN, |bound| bound.most);
        let remark = match bounds::judge(bounds, figure) {
            Verdict::Holds => "",
            Verdict::Lower => "  lower the bound: make guard LOWER=1",
            Verdict::Broken => "  FAILED: costs more than its bound",
            Verdict::Unknown => "  FAILED: has no bound: make guard LOWER=1 writes one",
        };
        broken += usize::from(remark.contains("FAILED"));
        println!("{:<32} {:>9.2} of {most:>7}{remark}", figure.name, figure.value);
    }
    broken
}
