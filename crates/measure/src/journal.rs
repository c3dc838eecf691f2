//! What a run writes down while it measures, one JSON line each: enough to repeat it and to draw it again.
//!
//! Points are raw, one per round, as measured; medians, spreads and peaks are computed when reading. A line
//! is written whole or, when the disk is full or the machine dies, is the last and is left out when reading. Does not know
//! any experiment.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::doubt::Doubt;
use crate::ground::machine::Machine;
use crate::series::Series;

/// The name of the lab's journal in a run's directory.
pub const RESULTS: &str = "results.jsonl";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Record {
    Run(Run),
    Target(TargetRecord),
    Point(Point),
    Absent(Absent),
    Note(Note),
    Script(Script),
    End(End),
}

/// Written when an experiment begins, and again when it is continued.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub experiment: String,
    /// As people write it, in UTC.
    pub date: String,
    /// The command line that repeats it, without passwords.
    pub command: String,
    pub machine: Machine,
    /// `pgbench --version`.
    pub pgbench: String,
    /// `None` where each load has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sizes: Option<Sizes>,
}

/// How large a run is; every experiment derives its own numbers from these.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    pub preset: Preset,
    /// The seconds of one measurement.
    pub seconds: u64,
    /// Of each place, at the least.
    pub rounds: usize,
    /// And at the most, where figures differ from round to round.
    #[serde(default)]
    pub rounds_max: usize,
    /// pgbench's scale factor: so many times 100 000 accounts.
    pub scale: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preset {
    /// The smallest that still shows the shape: all of an experiment in about two minutes.
    Quick,
    /// Scaled to this machine.
    Machine,
    /// The source's own numbers, whatever the machine.
    Source,
}

/// An endpoint that was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetRecord {
    pub experiment: String,
    /// As the charts name it: `direct`, `PgBouncer`, `Weir`, or the user's own name.
    pub name: String,
    /// Without its password.
    pub url: String,
    /// What answers there: a server's version, and a pooler's before it.
    pub version: String,
    /// The configuration of what was started for it; empty for others.
    pub configuration: String,
    /// What its configuration is called, where an experiment has it configured in several ways.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub profile: String,
    /// Whether its processes run on this machine, so that their CPU and memory can be read.
    pub local: bool,
    /// What it is, as far as the lab knows: findings compare a pooler with the server of the same version.
    #[serde(default)]
    pub role: Role,
    /// `server_version_num / 10000` of the PostgreSQL behind it; 0 where it did not say.
    #[serde(default)]
    pub server_major: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// PostgreSQL itself.
    Server,
    Pooler,
    /// Named by a user, and not known to be one or the other.
    #[default]
    Given,
}

/// One measurement: one experiment, one line of a chart, one value of what varies, one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub experiment: String,
    /// What distinguishes lines of one target: `1 active`, `48 active`, `with delays`. Empty where a target has one line.
    pub series: String,
    pub target: String,
    /// What varies: clients, idle connections, `max_connections`, tables.
    pub x: f64,
    pub round: usize,
    /// The commands that were run, in order, without passwords and with the scripts' names.
    pub commands: Vec<String>,
    /// By key; `experiment::values` has the keys that several experiments share, with their units.
    pub values: BTreeMap<String, f64>,
    /// How many errors there were of each kind, in words: `sorry, too many clients already (53300)`.
    pub errors: BTreeMap<String, u64>,
    /// What makes this measurement doubtful: a load generator at its limit, a machine that slept between messages.
    pub doubts: Vec<String>,
    /// Those of them for which nothing is to be concluded from it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forbids: Vec<String>,
    /// Measured again only to see whether the machine is what it was: in no median.
    #[serde(default, skip_serializing_if = "is_false")]
    pub sentinel: bool,
    /// When it had been measured, in seconds since 1970; 0 where nobody wrote it down.
    #[serde(default)]
    pub at: u64,
    /// Throughput second by second, of what runs by time.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub seconds: Series,
}

// As serde asks.
#[expect(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

fn is_empty(series: &Series) -> bool {
    series.per_second.is_empty()
}

impl Point {
    pub fn doubt(&mut self, doubt: &Doubt) {
        let text = doubt.to_string();
        if self.doubts.contains(&text) {
            return;
        }
        if doubt.forbids() {
            self.forbids.push(text.clone());
        }
        self.doubts.push(text);
    }
}

/// A measurement that did not come about, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Absent {
    pub experiment: String,
    pub series: String,
    pub target: String,
    /// `None`: the whole line, or the whole target.
    pub x: Option<f64>,
    pub reason: String,
}

impl Absent {
    /// What of it is missing, but for the place.
    pub fn line(&self) -> String {
        line_name(&self.target, &self.series)
    }
}

/// As charts and tables name a line.
pub fn line_name(target: &str, series: &str) -> String {
    if series.is_empty() { target.to_owned() } else { format!("{target}, {series}") }
}

/// A sentence to know when reading an experiment's figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Note {
    pub experiment: String,
    pub text: String,
    /// Of what a run says one thing only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<Topic>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// Whether cores were kept from sleeping.
    CoresAwake,
}

/// A script of pgbench's, by the name that commands have for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    pub experiment: String,
    pub name: String,
    pub text: String,
}

/// Written when an experiment was measured to its end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    pub experiment: String,
    pub seconds: f64,
}

/// The file that grows while a run goes on, and all that it holds.
pub struct Journal {
    path: PathBuf,
    file: File,
    records: Vec<Record>,
}

impl Journal {
    /// A new journal in this file: what was there is measured anew.
    pub fn create(path: &Path) -> Result<Journal> {
        let directory = path.parent().context("a file without a directory")?;
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Journal { path: path.to_path_buf(), file, records: Vec::new() })
    }

    /// Opens the journal of a directory, which is made if it is missing; what an earlier run wrote there is kept.
    pub fn open(directory: &Path) -> Result<Journal> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let path = directory.join(RESULTS);
        let records = if path.exists() { read(&path)? } else { Vec::new() };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        let journal = Journal { path, file, records };
        // A line cut short by a full disk shall not spoil the next one.
        let whole = fs::read(&journal.path)
            .map_or(0, |bytes| bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
        journal.cut(whole as u64)?;
        Ok(journal)
    }

    pub fn add(&mut self, mut record: Record) -> Result<()> {
        if let Record::Point(point) = &mut record {
            // Where no transaction was done, none has a cost; and JSON has no word for infinity.
            point.values.retain(|_, value| value.is_finite());
        }
        let mut line = serde_json::to_string(&record).context("a record that JSON cannot hold")?;
        line.push('\n');
        let whole = self.file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        let written = self.file.write_all(line.as_bytes()).and_then(|()| self.file.flush());
        if written.is_err() {
            // Half a line; if it cannot be cut off either, the next opening does it.
            let _ = self.cut(whole);
        }
        written.with_context(|| format!("cannot write {}; what it holds is kept", self.path.display()))?;
        self.records.push(record);
        Ok(())
    }

    /// Keeps so many bytes of the file.
    fn cut(&self, bytes: u64) -> Result<()> {
        let length = self.file.metadata().map_or(0, |metadata| metadata.len());
        let cut = if bytes < length { self.file.set_len(bytes) } else { Ok(()) };
        cut.with_context(|| format!("cannot write {}", self.path.display()))
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

/// All whole lines of a journal.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[..end]);
    let whole = std::str::from_utf8(whole).with_context(|| format!("{} is not text", path.display()))?;
    let parse = |(index, line): (usize, &str)| {
        serde_json::from_str(line).with_context(|| format!("{}, line {}", path.display(), index + 1))
    };
    whole.lines().enumerate().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(text: &str) -> Record {
        Record::Note(Note { experiment: "e".to_owned(), text: text.to_owned(), topic: None })
    }

    #[test]
    fn a_line_cut_short_is_left_out_and_spoils_nothing() {
        let directory = tempfile::tempdir().unwrap();
        Journal::open(directory.path()).unwrap().add(note("whole")).unwrap();
        let path = directory.path().join(RESULTS);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{whole}{}", &whole[..20])).unwrap();
        let mut journal = Journal::open(directory.path()).unwrap();
        journal.add(note("after")).unwrap();
        assert_eq!(read(&path).unwrap(), [note("whole"), note("after")]);
        assert_eq!(journal.records().len(), 2);
    }

    #[test]
    fn a_new_journal_begins_empty() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("below/part.jsonl");
        Journal::create(&path).unwrap().add(note("old")).unwrap();
        let mut journal = Journal::create(&path).unwrap();
        journal.add(note("new")).unwrap();
        assert_eq!(read(&path).unwrap(), journal.records());
        assert_eq!(journal.records(), [note("new")]);
    }

    #[test]
    fn what_is_no_number_is_no_figure() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("part.jsonl");
        let figures = [("tps", 0.0), ("cpu_us", f64::INFINITY), ("p99_to_p50", f64::NAN)];
        let values = figures.map(|(name, value)| (name.to_owned(), value)).into();
        Journal::create(&path).unwrap().add(Record::Point(Point { values, ..Point::default() })).unwrap();
        let values = [("tps".to_owned(), 0.0)].into();
        assert_eq!(read(&path).unwrap(), [Record::Point(Point { values, ..Point::default() })]);
    }

    #[test]
    fn a_full_disk_is_said() {
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut journal = Journal { path: PathBuf::from("results.jsonl"), file, records: Vec::new() };
        let error = format!("{:#}", journal.add(note("lost")).unwrap_err());
        assert!(error.contains("what it holds is kept") && error.contains("No space left"), "{error}");
        assert!(journal.records().is_empty());
    }
}
