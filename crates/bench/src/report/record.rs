//! What is written down while measuring, one JSON line each: the run, its peers, samples, and what was not measured.
//!
//! Samples are raw, as measured; medians and ratios are computed when reporting. Each part has a file of its own, so that
//! one part can be measured again without the others.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Error, Result};
use serde::{Deserialize, Serialize};

use weir_measure::ground::machine::Machine;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    Run(Run),
    Peer(Peer),
    Sample(Sample),
    Absent(Absent),
    Note(Note),
    End(End),
}

/// The first line of a part's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub part: String,
    pub date: String,
    pub command: String,
    pub scale: String,
    pub machine: Machine,
    pub postgres: String,
}

/// A peer as one profile configured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    pub name: String,
    pub version: String,
    pub profile: String,
    pub configuration: String,
}

/// Figures of one peer under one load in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The load, but for the number of clients.
    pub what: String,
    pub clients: usize,
    pub peer: String,
    pub round: usize,
    pub values: BTreeMap<String, f64>,
}

/// A row that is missing, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    /// The peer, and what of it when it is not the whole.
    pub what: String,
    pub clients: Option<usize>,
    pub reason: String,
    /// Whether something went wrong, rather than being out of a peer's reach.
    pub failure: bool,
}

impl Absent {
    pub fn of(what: &str, clients: Option<usize>, error: &Error, failure: bool) -> Absent {
        Absent { what: what.to_owned(), clients, reason: format!("{error:#}"), failure }
    }
}

/// Something to know when reading the part's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Note {
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub seconds: f64,
}

/// The file that grows while a part goes on, so that an interrupted one leaves what it has measured.
pub struct Journal {
    file: File,
    pub records: Vec<Record>,
}

impl Journal {
    pub fn create(path: &Path) -> Result<Journal> {
        let directory = path.parent().context("a file without a directory")?;
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
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

    pub fn note(&mut self, text: String) -> Result<()> {
        if self.records.iter().any(|record| matches!(record, Record::Note(note) if note.text == text)) {
            return Ok(());
        }
        eprintln!("  note: {text}");
        self.add(Record::Note(Note { text }))
    }

    pub fn has_failed(&self) -> bool {
        self.records.iter().any(|record| matches!(record, Record::Absent(absent) if absent.failure))
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
        let path = directory.path().join("below/part.jsonl");
        let mut journal = Journal::create(&path).unwrap();
        let (what, reason) = ("old, prepared".to_owned(), "too old".to_owned());
        journal.absent(Absent { what, clients: Some(8), reason, failure: true }).unwrap();
        journal.note("once".to_owned()).unwrap();
        journal.note("once".to_owned()).unwrap();
        let values = BTreeMap::from([("tps".to_owned(), 5.5)]);
        let (what, peer) = ("simple".to_owned(), "direct".to_owned());
        journal.add(Record::Sample(Sample { what, clients: 8, peer, round: 1, values })).unwrap();
        let records = read(&path).unwrap();
        assert_eq!(serde_json::to_string(&records).unwrap(), serde_json::to_string(&journal.records).unwrap());
        assert_eq!(records.len(), 3);
        assert!(journal.has_failed());
    }
}
