//! What one run leaves behind, one JSON object a line: the run, each sample, each thing that could not be measured.
//!
//! Samples are raw, as measured; medians and ratios are computed when reporting.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::process::Memory;

/// What pgbench does: a protocol mode of one SELECT per transaction, or one connection per SELECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Simple,
    Extended,
    Prepared,
    Connect,
}

impl Mode {
    pub const ALL: [Mode; 4] = [Mode::Simple, Mode::Extended, Mode::Prepared, Mode::Connect];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Simple => "simple",
            Mode::Extended => "extended",
            Mode::Prepared => "prepared",
            Mode::Connect => "connect",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    Run(Run),
    Sample(Sample),
    Idle(Idle),
    Absent(Absent),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    pub date: String,
    pub command: String,
    pub pgbench_command: String,
    pub machine: Machine,
    pub rounds: usize,
    pub seconds: u64,
    pub quick: bool,
    /// Names as in samples, in the order of the table.
    pub peers: Vec<PeerDescription>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PeerDescription {
    pub name: String,
    pub version: String,
    pub configuration: String,
}

/// One pgbench run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    pub mode: Mode,
    pub clients: usize,
    pub round: usize,
    pub peer: String,
    pub transactions: u64,
    pub tps: f64,
    pub latency: Option<Latency>,
    pub cpu_us_per_transaction: Option<f64>,
    pub memory: Option<Memory>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    pub p50_us: u64,
    pub p99_us: u64,
}

/// A freshly started pooler before and after many clients have logged in and gone quiet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Idle {
    pub peer: String,
    pub clients: usize,
    pub before: Memory,
    pub after: Memory,
}

/// A row that is missing, and why.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Absent {
    /// The peer, and what of it when it is not the whole.
    pub what: String,
    pub clients: Option<usize>,
    pub reason: String,
    /// Whether something went wrong, rather than being out of a peer's reach.
    pub failure: bool,
}

/// The file that grows while the run goes on, so that an interrupted run leaves what it has measured.
pub struct Journal {
    file: File,
    pub records: Vec<Record>,
}

impl Journal {
    pub fn create(path: &Path) -> Result<Journal> {
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Journal { file, records: Vec::new() })
    }

    pub fn add(&mut self, record: Record) -> Result<()> {
        let mut line = serde_json::to_string(&record).context("a record that JSON cannot hold")?;
        line.push('\n');
        self.file.write_all(line.as_bytes()).context("cannot write the results")?;
        self.records.push(record);
        Ok(())
    }

    pub fn absent(&mut self, absent: Absent) -> Result<()> {
        let clients = absent.clients.map_or(String::new(), |clients| format!(", {clients} clients"));
        eprintln!("  not measured: {}{clients}: {}", absent.what, absent.reason);
        self.add(Record::Absent(absent))
    }
}

pub fn read(path: &Path) -> Result<Vec<Record>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let parse =
        |(index, line)| serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), index + 1));
    text.lines().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_reads_back_as_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        let (what, reason) = ("old, prepared".to_owned(), "too old".to_owned());
        journal.absent(Absent { what, clients: Some(8), reason, failure: false }).unwrap();
        let sample = Sample {
            mode: Mode::Connect,
            clients: 8,
            round: 1,
            peer: "direct".to_owned(),
            transactions: 10,
            tps: 5.0,
            latency: Some(Latency { p50_us: 1, p99_us: 2 }),
            cpu_us_per_transaction: None,
            memory: None,
        };
        journal.add(Record::Sample(sample)).unwrap();
        let records = read(&path).unwrap();
        assert_eq!(serde_json::to_string(&records).unwrap(), serde_json::to_string(&journal.records).unwrap());
        assert_eq!(records.len(), 2);
    }
}
