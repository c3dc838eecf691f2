//! Where a report goes: between the markers of `docs/benchmarks.md`, and the chart beside it.
//!
//! Knows files; the text and the picture come from others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::chart;
use crate::record::{self, Record, Run};
use crate::repository;
use crate::summary;
use crate::table;

const BEGIN: &str = "<!-- bench: begin (written by `make bench`) -->\n";
const END: &str = "<!-- bench: end -->";
const PICTURE: &str = "![CPU per transaction and transactions per second by number of clients](img/bench.svg)";
const DOCUMENT: &str = "docs/benchmarks.md";
const CHART: &str = "docs/img/bench.svg";
const RESULTS: &str = "target/bench/results.jsonl";
const DRAFT: &str = "target/bench/report.md";
const DRAFT_CHART: &str = "target/bench/bench.svg";

#[derive(Args)]
pub struct Options {
    /// The results of a run [default: target/bench/results.jsonl]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Leave docs/ as it is: write only target/bench/report.md and bench.svg
    #[arg(long)]
    no_docs: bool,
}

pub fn results_file() -> PathBuf {
    repository().join(RESULTS)
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let results = options.results.clone().unwrap_or_else(results_file);
    let records = record::read(&results)?;
    let report = Report::of(&records)?;
    report.draft(&repository())?;
    if !options.no_docs {
        report.publish(&repository())?;
    }
    print!("{}", report.markdown);
    Ok(ExitCode::SUCCESS)
}

pub struct Report {
    pub markdown: String,
    chart: String,
}

impl Report {
    pub fn of(records: &[Record]) -> Result<Report> {
        let run = records.iter().find_map(|record| if let Record::Run(run) = record { Some(run) } else { None });
        let run: &Run = run.context("the results do not begin with a run")?;
        let rows = summary::rows(run, records);
        Ok(Report { markdown: table::markdown(run, &rows, records), chart: chart::svg(run, &rows) })
    }

    /// Leaves the report beside the results, as every run does.
    pub fn draft(&self, repository: &Path) -> Result<()> {
        write(&repository.join(DRAFT), &self.markdown)?;
        write(&repository.join(DRAFT_CHART), &self.chart)
    }

    /// Makes the report the one that the documents show.
    pub fn publish(&self, repository: &Path) -> Result<()> {
        let document = repository.join(DOCUMENT);
        let text = fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let text = replace(&text, &self.markdown)
            .with_context(|| format!("{} lacks the lines {BEGIN:?} and {END:?}", document.display()))?;
        fs::write(&document, text).with_context(|| format!("cannot write {}", document.display()))?;
        write(&repository.join(CHART), &self.chart)
    }
}

/// Writes a file and the directory it lies in.
pub fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("a file without a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(document: &str, report: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{PICTURE}\n\n{report}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_between_the_markers_is_replaced() {
        let document = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let once = replace(&document, "new\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\n{PICTURE}\n\nnew\n\n{END}\nafter\n"));
        assert_eq!(replace(&once, "new\n").unwrap(), once);
        assert_eq!(replace("no markers", "new"), None);
    }
}
