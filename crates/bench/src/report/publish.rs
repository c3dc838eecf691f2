//! Where results and reports go: a file per part, a draft beside them, and the page between its markers.
//!
//! Knows files; the text and the pictures come from others.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{chart, document, summary};
use crate::parts;
use crate::parts::bench::Scale;
use crate::repository;
use weir_measure::journal::{self, End, Record, Role, Run, TargetRecord};

const BEGIN: &str = "<!-- bench: begin (written by `make bench`) -->\n";
const END: &str = "<!-- bench: end -->";
const DOCUMENT: &str = "docs/benchmarks.md";
const PICTURES: &str = "docs/img";
/// What the page was written from, so that a run of some parts, anywhere, keeps the others.
const PUBLISHED: &str = "docs/bench";
const RESULTS: &str = "target/bench";

#[derive(Args)]
pub struct Options {
    /// The directory with the results of a run, beside which report.md and the charts are written; without one, docs/benchmarks.md
    /// and docs/img are, from docs/bench
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
}

/// Each scale has its own place, so that a quick look does not overwrite what took so long.
pub fn directory(scale: Scale) -> PathBuf {
    repository().join(RESULTS).join(scale.name())
}

/// Where the results are that the documents show.
pub fn published() -> PathBuf {
    repository().join(PUBLISHED)
}

pub fn part_file(directory: &Path, part: &str) -> PathBuf {
    directory.join(format!("{part}.jsonl"))
}

pub fn run(options: &Options) -> Result<ExitCode> {
    let report = report(options.results.as_deref())?;
    print!("{}", report.markdown);
    Ok(ExitCode::SUCCESS)
}

/// The report of the results in this directory, written there; of those that the documents show, written into those.
pub fn report(directory: Option<&Path>) -> Result<Report> {
    match directory {
        Some(directory) => {
            let report = Report::of(directory)?;
            report.draft(directory)?;
            eprintln!("report.md and charts: {}", directory.display());
            Ok(report)
        }
        None => {
            let published = published();
            let report = Report::of(&published)?;
            let has_figures = |name: &&str| part_file(&published, name).is_file();
            let missing: Vec<&str> =
                parts::ALL.iter().map(|part| part.name).filter(|name| !has_figures(name)).collect();
            if missing.is_empty() {
                report.publish(&repository())?;
                eprintln!("report: {DOCUMENT}, {PICTURES}");
            } else {
                eprintln!(
                    "docs/benchmarks.md is left as it is, since it would lose what {PUBLISHED} has no figures of: {}",
                    missing.join(", ")
                );
            }
            Ok(report)
        }
    }
}

/// What one part's file says.
pub struct PartResults {
    pub records: Vec<Record>,
}

impl PartResults {
    pub fn run(&self) -> Option<&Run> {
        self.records.iter().find_map(|record| if let Record::Run(run) = record { Some(run) } else { None })
    }

    pub fn name(&self) -> Option<&str> {
        self.run().map(|run| run.experiment.as_str())
    }

    pub fn peers(&self) -> impl Iterator<Item = &TargetRecord> {
        self.records.iter().filter_map(|record| if let Record::Target(peer) = record { Some(peer) } else { None })
    }

    /// The PostgreSQL behind all peers.
    pub fn server(&self) -> Option<&TargetRecord> {
        self.peers().find(|peer| peer.role == Role::Server)
    }

    /// How long the part took, if it came to its end.
    pub fn seconds(&self) -> Option<f64> {
        let end = |record: &Record| if let Record::End(End { seconds, .. }) = record { Some(*seconds) } else { None };
        self.records.iter().find_map(end)
    }
}

pub struct Report {
    pub markdown: String,
    /// Name and SVG.
    charts: Vec<(String, String)>,
}

impl Report {
    /// Of all parts that have results there.
    pub fn of(directory: &Path) -> Result<Report> {
        let mut results = Vec::new();
        for part in parts::ALL {
            let file = part_file(directory, part.name);
            if file.is_file() {
                let records = journal::read(&file)
                    .context("what another version of the bench wrote: measure that part again, or remove its file")?;
                results.push(PartResults { records });
            }
        }
        if results.is_empty() {
            bail!("{} has no results", directory.display());
        }
        let mut charts = Vec::new();
        for part in &results {
            let Some(described) = part.name().and_then(parts::find) else { continue };
            let rows = summary::rows(&part.records);
            if let Some(drawing) = described.drawing.as_ref().filter(|_| !rows.is_empty()) {
                let name = format!("bench-{}.svg", drawing.name);
                charts.push((name, chart::svg(drawing, described.figures, &rows)));
            }
        }
        Ok(Report { markdown: document::markdown(&results), charts })
    }

    /// Leaves the report beside the results.
    fn draft(&self, directory: &Path) -> Result<()> {
        write(&directory.join("report.md"), &self.markdown)?;
        self.charts.iter().try_for_each(|(name, chart)| write(&directory.join("img").join(name), chart))
    }

    /// Makes the report the one that the documents show.
    fn publish(&self, repository: &Path) -> Result<()> {
        let document = repository.join(DOCUMENT);
        let text = fs::read_to_string(&document).with_context(|| format!("cannot read {}", document.display()))?;
        let text = replace(&text, &self.markdown)
            .with_context(|| format!("{} lacks the lines {BEGIN:?} and {END:?}", document.display()))?;
        fs::write(&document, text).with_context(|| format!("cannot write {}", document.display()))?;
        self.charts.iter().try_for_each(|(name, chart)| write(&repository.join(PICTURES).join(name), chart))
    }
}

/// Writes a file and the directory it lies in.
fn write(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("a file without a directory")?;
    fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn replace(document: &str, report: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{report}\n{END}{after}"))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use weir_measure::ground::machine::Machine;

    pub fn results(part: &str, mut records: Vec<Record>) -> PartResults {
        let text = |text: &str| text.to_owned();
        let machine = Machine {
            processor: text("CPU"),
            cores: 2,
            kernel: text("6"),
            memory_mib: 1024,
            system: text("Linux"),
            virtual_machine: true,
        };
        let (date, command) = (text("2026-01-01 00:00 UTC"), text("weir-bench bench"));
        let (experiment, pgbench) = (text(part), text("pgbench (PostgreSQL) 15.1"));
        records.insert(0, Record::Run(Run { experiment, date, command, machine, pgbench, sizes: None }));
        records.push(Record::End(End { experiment: text(part), seconds: 61.0 }));
        PartResults { records }
    }

    #[test]
    fn only_what_lies_between_the_markers_is_replaced() {
        let document = format!("before\n{BEGIN}old\n{END}\nafter\n");
        let once = replace(&document, "new\n").unwrap();
        assert_eq!(once, format!("before\n{BEGIN}\nnew\n\n{END}\nafter\n"));
        assert_eq!(replace(&once, "new\n").unwrap(), once);
        assert_eq!(replace("no markers", "new"), None);
    }

    #[test]
    fn a_report_needs_results() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Report::of(directory.path()).is_err());
    }
}
