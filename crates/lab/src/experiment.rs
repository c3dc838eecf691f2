//! What an experiment is: what it says of itself, what it varies, how it measures one place, and what it concludes.
//!
//! The runner (`run/`) calls these in order; a report (`report/`) shows what they say. Does not know any one experiment.

use crate::dataset::Dataset;
use crate::run::Site;
use crate::targets::{Needs, Target};
use weir_measure::journal::{Point, Sizes};

/// Keys of `Point::values` that several experiments share.
pub mod values {
    /// Transactions per second.
    pub const TPS: &str = "tps";
    /// Latency as pgbench's clients saw it, microseconds.
    pub const P50_US: &str = "p50_us";
    pub const P99_US: &str = "p99_us";
    pub const MEAN_US: &str = "mean_us";
    /// What a connection took to open, on average, milliseconds.
    pub const CONNECT_MS: &str = "connect_ms";
    /// Of all cores of this machine, 0 to 100.
    pub const BOX_CPU_PERCENT: &str = "box_cpu_percent";
    /// The pooler's user and system time per transaction, microseconds.
    pub const POOLER_CPU_US: &str = "pooler_cpu_us";
    /// The pooler's user and system time, in cores.
    pub const POOLER_CORES: &str = "pooler_cores";
    /// The server's user and system time, in cores.
    pub const SERVER_CORES: &str = "server_cores";
    /// pgbench's own user and system time, in cores.
    pub const LOAD_CORES: &str = "load_cores";
    /// What nobody of these used, in cores: other programs, threads of the kernel, and what the hypervisor gave to others.
    pub const OTHER_CORES: &str = "other_cores";
    pub const KERNEL_CORES: &str = "kernel_cores";
    pub const STEAL_CORES: &str = "steal_cores";
    /// Private memory of the pooler's processes, MiB.
    pub const POOLER_MIB: &str = "pooler_mib";
    /// Private memory of the server's processes that serve clients, MiB; of many, a few are read and stand for all.
    pub const SERVER_MIB: &str = "server_mib";
    /// Page tables of the server's processes, MiB.
    pub const SERVER_PAGE_TABLES_MIB: &str = "server_page_tables_mib";
    /// Connections that the server held.
    pub const SERVER_CONNECTIONS: &str = "server_connections";
    /// Failed transactions and connections per second, of every kind.
    pub const ERRORS_PER_SECOND: &str = "errors_per_second";
}

/// Where an experiment comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Source {
    pub authors: &'static str,
    pub title: &'static str,
    pub year: u16,
    pub url: &'static str,
}

/// What the source measured: shown beside ours, never mixed with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// As a chart names the line: `PostgreSQL 12, 48 active (Freund 2020)`.
    pub name: &'static str,
    /// On what.
    pub setting: &'static str,
    /// The key of the values.
    pub key: &'static str,
    pub points: &'static [(f64, f64)],
}

/// One chart of an experiment: a value over what varies, a line per series and target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chart {
    pub title: &'static str,
    pub key: &'static str,
    pub unit: &'static str,
    pub better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

/// What varies along a chart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// `clients`, `idle connections`.
    pub label: &'static str,
    pub logarithmic: bool,
}

/// What an experiment says of itself, in its help and in its report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct About {
    pub name: &'static str,
    pub title: &'static str,
    /// One sentence: what one learns from it.
    pub question: &'static str,
    /// How it is measured, and where that differs from the source; sentences.
    pub method: &'static [&'static str],
    pub sources: &'static [Source],
    pub axis: Axis,
    /// The first is the one that the others explain.
    pub charts: &'static [Chart],
    pub published: &'static [Published],
    /// Whether the Universal Scalability Law is fitted to `tps` over `x`: true where `x` is the number of active clients. Elsewhere
    /// a cost in proportion is, if `tps` is what the first chart shows.
    pub fit: bool,
}

/// A sentence of a report, drawn from the figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub kind: FindingKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// What the figures show.
    Shows,
    /// How they compare with the source's.
    Source,
    /// What to set, and why.
    Advice,
    /// What to be careful with when reading them.
    Caution,
}

impl Finding {
    pub fn new(kind: FindingKind, text: impl Into<String>) -> Finding {
        Finding { kind, text: text.into() }
    }
}

/// One line that is to be measured: a series on a target, at these places.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    pub series: String,
    pub target: String,
    /// In the order of measuring.
    pub xs: Vec<f64>,
    /// Whether the line ends early: past its peak, or where errors come.
    pub stop: Stop,
}

impl Course {
    pub fn new(series: &str, target: &Target, xs: &[f64], stop: Stop) -> Course {
        Course { series: series.to_owned(), target: target.name.clone(), xs: xs.to_vec(), stop }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// All places are measured.
    Never,
    /// Measured until throughput has fallen clearly below its peak, or errors come.
    PastPeak,
}

/// One experiment. It holds nothing: what it measured is in the journal.
pub trait Experiment: Sync {
    fn about(&self) -> &'static About;

    fn needs(&self, sizes: &Sizes) -> Needs;

    /// The lines to measure on these targets (names, with the server itself first when the lab started it).
    fn courses(&self, sizes: &Sizes, targets: &[Target]) -> Vec<Course>;

    /// Further lines, or further places of known lines, that the figures so far call for (a finer look around a peak). The
    /// runner asks after each pass; places that were asked for before are left out. It must come to an end by itself.
    fn next(&self, _sizes: &Sizes, _targets: &[Target], _data: &Dataset) -> Vec<Course> {
        Vec::new()
    }

    /// Whether places are to be measured in the order of their course: each goes on from what the one before left.
    fn is_ordered(&self) -> bool {
        false
    }

    /// Measures one place once. The runner has filled in which; this fills in commands, values, errors and doubts.
    fn measure(&self, point: &mut Point, site: &mut Site) -> anyhow::Result<()>;

    /// What measuring makes on a server that is not the lab's own, and what becomes of it: a sentence for the help.
    fn creates(&self) -> Option<&'static str> {
        None
    }

    /// Takes away again what measuring made on a target. The runner calls it for every target once nothing more is measured,
    /// also after errors and when somebody wants us to stop; an error says what is left, and how to remove it.
    fn clear(&self, _site: &mut Site) -> anyhow::Result<()> {
        Ok(())
    }

    /// What the figures say, in the order of reading.
    fn conclude(&self, data: &Dataset) -> Vec<Finding>;
}
