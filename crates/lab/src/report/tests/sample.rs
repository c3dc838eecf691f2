//! A journal with figures like real ones and with all kinds of trouble, and the experiments that it names.

use std::collections::BTreeMap;

use anyhow::Result;

use crate::dataset::Dataset;
use crate::experiment::{
    About, Axis, Better, Chart, Course, Experiment, Finding, FindingKind, Published, Source, values,
};
use crate::run::Site;
use crate::targets::{Needs, Target};
use weir_measure::ground::machine::Machine;
use weir_measure::journal::{Absent, End, Note, Point, Preset, Record, Run, Sizes, TargetRecord};

/// A name that must stay a name.
pub const HOSTILE: &str = "<script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">";

const CLICKHOUSE: Source = Source {
    authors: "ClickHouse",
    title: "How we scale PgBouncer in ClickHouse Managed Postgres",
    year: 2026,
    url: "https://clickhouse.com/blog/pgbouncer-clickhouse-managed-postgres",
};
const FREUND: Source = Source {
    authors: "Andres Freund",
    title: "Analyzing the Limits of Connection Scalability in Postgres",
    year: 2020,
    url: "https://techcommunity.microsoft.com/analyzing-connection-scalability",
};

const fn chart(title: &'static str, key: &'static str, unit: &'static str, better: Better) -> Chart {
    Chart { title, key, unit, better }
}

const THROUGHPUT: Chart = chart("Throughput", values::TPS, "transactions/s", Better::Higher);
const P50: Chart = chart("Latency, median", values::P50_US, "µs", Better::Lower);
const P99: Chart = chart("Latency, 99th percentile", values::P99_US, "µs", Better::Lower);
const CPU: Chart = chart("CPU of the machine", values::BOX_CPU_PERCENT, "%", Better::Neither);
const POOLER: Chart = chart("CPU of the pooler", values::POOLER_CORES, "cores", Better::Lower);
const ERRORS: Chart = chart("Errors", values::ERRORS_PER_SECOND, "errors/s", Better::Lower);
const MEMORY: Chart = chart("Private memory of the server", values::SERVER_MIB, "MiB", Better::Lower);

static FLEET: About = About {
    name: "fleet",
    title: "One pooler, a fleet of poolers, and a pooler on all cores",
    question: "How far does a pooler on one core carry, and what does a fleet on one port add?",
    method: &[
        "pgbench ran its select-only script with 8 to 256 clients against each target, in turn.",
        "The load, the poolers and the server shared one machine, where the source gave each its own.",
    ],
    sources: &[CLICKHOUSE],
    axis: Axis { label: "clients", logarithmic: true },
    charts: &[THROUGHPUT, P50, P99, CPU, POOLER, ERRORS],
    published: &[
        Published {
            name: "one PgBouncer (ClickHouse 2026)",
            setting: "16 vCPU",
            key: values::TPS,
            points: &[(8.0, 8_910.0), (32.0, 54_203.0), (64.0, 86_570.0), (128.0, 83_463.0), (256.0, 76_893.0)],
        },
        Published {
            name: "fleet of 16 (ClickHouse 2026)",
            setting: "16 vCPU",
            key: values::TPS,
            points: &[(8.0, 6_450.0), (32.0, 64_244.0), (64.0, 219_439.0), (128.0, 320_547.0), (256.0, 336_469.0)],
        },
    ],
    fit: true,
};

static IDLE: About = About {
    name: "idle",
    title: "What idle connections cost the active ones",
    question: "How much throughput do active connections lose when thousands of idle ones are open beside them?",
    method: &["Idle connections were opened and slept, then pgbench ran its select-only script beside them."],
    sources: &[FREUND],
    axis: Axis { label: "idle connections", logarithmic: true },
    charts: &[THROUGHPUT, P99, CPU, MEMORY],
    published: &[
        Published {
            name: "PostgreSQL 12, 1 active (Freund 2020)",
            setting: "20 cores, 40 threads",
            key: values::TPS,
            points: &[(0.0, 33_457.0), (100.0, 33_705.0), (1_000.0, 30_577.0), (10_000.0, 14_496.0)],
        },
        Published {
            name: "PostgreSQL 12, 48 active (Freund 2020)",
            setting: "20 cores, 40 threads",
            key: values::TPS,
            points: &[(0.0, 1_032_435.0), (100.0, 960_847.0), (1_000.0, 902_109.0), (10_000.0, 521_558.0)],
        },
    ],
    fit: false,
};

static LOOKUPS: About = About {
    name: "lookups",
    title: "Indexed lookups with more and more clients",
    question: "At how many clients does throughput peak, and what does going beyond cost?",
    method: &["Clients were added until throughput had clearly fallen, or errors came."],
    sources: &[],
    axis: Axis { label: "clients", logarithmic: true },
    charts: &[THROUGHPUT, P99],
    published: &[],
    fit: true,
};

static EMPTY: About = About { name: "empty", title: "An experiment that never began", ..LOOKUPS };

struct Sample(&'static About);

impl Experiment for Sample {
    fn about(&self) -> &'static About {
        self.0
    }

    fn needs(&self, _sizes: &Sizes) -> Needs {
        Needs::default()
    }

    fn courses(&self, _sizes: &Sizes, _targets: &[Target]) -> Vec<Course> {
        Vec::new()
    }

    fn measure(&self, _point: &mut Point, _site: &mut Site) -> Result<()> {
        Ok(())
    }

    fn conclude(&self, data: &Dataset) -> Vec<Finding> {
        let peaks = data.lines.iter().filter_map(|line| Some((line.name(), line.peak(values::TPS)?.x)));
        let peak = peaks.map(|(name, x)| format!("{name} peaked at {x}.")).collect::<Vec<_>>().join(" ");
        vec![
            Finding::new(FindingKind::Shows, peak),
            Finding::new(FindingKind::Shows, "Past the peak every client more costs latency, and brings nothing."),
            Finding::new(FindingKind::Source, "The source's single pooler fell past 64 clients; so did ours, earlier."),
            Finding::new(FindingKind::Advice, "Keep the pool near the peak: default_pool_size = 8."),
            Finding::new(FindingKind::Caution, "The load shared the machine with what it measured."),
        ]
    }
}

static EXPERIMENTS: [Sample; 4] = [Sample(&FLEET), Sample(&IDLE), Sample(&LOOKUPS), Sample(&EMPTY)];

pub fn by_name(name: &str) -> Option<&'static dyn Experiment> {
    EXPERIMENTS.iter().find(|sample| sample.0.name == name).map(|sample| sample as &dyn Experiment)
}

pub fn run(experiment: &str) -> Record {
    Record::Run(Run {
        experiment: experiment.to_owned(),
        date: "2026-11-21 09:30 UTC".to_owned(),
        command: format!("weir lab run {experiment} --rounds 3 --out {}", "a-directory/".repeat(8)),
        machine: Machine {
            processor: "Intel(R) Xeon(R) Processor @ 2.90GHz".to_owned(),
            cores: 2,
            kernel: "6.1.0-28-amd64".to_owned(),
            memory_mib: 7_962,
            system: "Debian GNU/Linux 12 (bookworm)".to_owned(),
            virtual_machine: true,
        },
        pgbench: "pgbench (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)".to_owned(),
        sizes: Some(Sizes { preset: Preset::Machine, seconds: 5, rounds: 3, rounds_max: 3, scale: 20 }),
    })
}

fn target(experiment: &str, name: &str) -> Record {
    Record::Target(TargetRecord {
        experiment: experiment.to_owned(),
        name: name.to_owned(),
        url: format!("postgres://bench@127.0.0.1:6432/{}", "a-long-database-name".repeat(6)),
        version: format!("PostgreSQL 15.14, behind {name}"),
        configuration: "[databases]\n* = host=127.0.0.1 port=5432\n[pgbouncer]\npool_mode = transaction\n; </pre><b>"
            .to_owned(),
        local: name != HOSTILE,
        ..TargetRecord::default()
    })
}

/// Three rounds of a place, a little apart from each other.
fn rounds(experiment: &str, series: &str, target: &str, x: f64, all: &[(&str, f64)]) -> Vec<Point> {
    let round = |(round, factor): (usize, f64)| Point {
        experiment: experiment.to_owned(),
        series: series.to_owned(),
        target: target.to_owned(),
        x,
        round,
        commands: vec![format!(
            "pgbench -n -S -c {x} -j 2 -T 5 -P 1 --progress-timestamp -h 127.0.0.1 -p 6432 -U bench bench"
        )],
        values: all.iter().map(|(key, value)| ((*key).to_owned(), value * factor)).collect(),
        errors: BTreeMap::new(),
        doubts: Vec::new(),
        ..Point::default()
    };
    [(1, 1.0), (2, 0.94), (3, 1.05)].map(round).into()
}

/// The Universal Scalability Law, for figures with a peak.
fn scaled(clients: f64, each: f64, contention: f64, coherency: f64) -> f64 {
    clients * each / (1.0 + contention * (clients - 1.0) + coherency * clients * (clients - 1.0))
}

fn fleet() -> Vec<Record> {
    let mut records = vec![run("fleet")];
    let peers = [
        ("direct", 9_200.0, 0.12, 0.000_4, 0.0),
        ("PgBouncer", 5_100.0, 0.16, 0.001_1, 0.9),
        ("PgBouncer fleet", 4_700.0, 0.11, 0.000_5, 1.1),
        ("Weir", 5_600.0, 0.10, 0.000_3, 0.8),
    ];
    for (name, each, contention, coherency, cores) in peers {
        records.push(target("fleet", name));
        for clients in [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 96.0, 128.0, 192.0, 256.0] {
            let tps = scaled(clients, each, contention, coherency);
            let p50 = clients * 1e6 / tps;
            let mut all = vec![
                (values::TPS, tps),
                (values::P50_US, p50),
                (values::P99_US, p50 * 3.5),
                (values::ERRORS_PER_SECOND, 0.0),
                (values::BOX_CPU_PERCENT, 92.0 - 60.0 / clients),
            ];
            if cores > 0.0 {
                all.push((values::POOLER_CORES, cores * (1.0 - 0.7 / clients)));
            }
            let mut points = rounds("fleet", "", name, clients, &all);
            if name == "Weir" && clients >= 192.0 {
                points[1]
                    .doubts
                    .push("pgbench used 97 % of its 2 cores: the load, not the target, may be the limit.".to_owned());
            }
            if name == "PgBouncer" && clients > 128.0 {
                points[0].errors.insert("no more connections allowed (max_client_conn) (08P01)".to_owned(), 128);
            }
            records.extend(points.into_iter().map(Record::Point));
        }
    }
    let mut refused = rounds("fleet", "", "direct", 512.0, &[]).remove(0);
    refused.errors.insert("sorry, too many clients already (53300)".to_owned(), 512);
    records.push(Record::Point(refused));
    records.push(Record::End(End { experiment: "fleet".to_owned(), seconds: 660.0 }));
    records
}

fn idle() -> Vec<Record> {
    let mut records = vec![run("idle"), target("idle", "PostgreSQL 12"), target("idle", "PostgreSQL 15")];
    for (server, loss) in [("PostgreSQL 12", 1.0), ("PostgreSQL 15", 0.3)] {
        for (series, base) in [("1 active", 9_400.0), ("48 active", 41_000.0)] {
            for idle in [0.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 4_000.0] {
                let tps = base / (1.0 + loss * idle / 3_200.0);
                let all = [
                    (values::TPS, tps),
                    (values::P99_US, 4e6 / tps),
                    (values::BOX_CPU_PERCENT, if base > 10_000.0 { 94.0 } else { 48.0 }),
                    (values::SERVER_MIB, 40.0 + 1.9 * idle),
                ];
                let mut points = rounds("idle", series, server, idle, &all);
                if idle == 0.0 && series == "1 active" {
                    let doubt =
                        "The machine slept between two messages: with nothing else to do its cores wake up slowly.";
                    points.iter_mut().for_each(|point| point.doubts.push(doubt.to_owned()));
                }
                records.extend(points.into_iter().map(Record::Point));
            }
        }
    }
    let absent = |series: &str, target: &str, x: Option<f64>, reason: &str| {
        let [experiment, series, target, reason] = ["idle", series, target, reason].map(str::to_owned);
        Record::Absent(Absent { experiment, series, target, x, reason })
    };
    records.push(absent("48 active", "PostgreSQL 12", Some(10_000.0), "the server has room for 4,100 connections"));
    records.push(absent("", "Weir", None, "it did not start: address in use (127.0.0.1:6432)"));
    let text = "One core was kept awake by a process of the lab's while the others were measured.".to_owned();
    records.push(Record::Note(Note { experiment: "idle".to_owned(), text, topic: None }));
    records.push(Record::End(End { experiment: "idle".to_owned(), seconds: 420.0 }));
    records
}

/// Interrupted, with a target of a hostile name.
fn lookups() -> Vec<Record> {
    let mut records = vec![run("lookups"), target("lookups", HOSTILE), target("lookups", "db.example.org")];
    for (name, each) in [(HOSTILE, 900.0), ("db.example.org", 700.0)] {
        for clients in [1.0, 4.0, 16.0, 64.0] {
            let tps = scaled(clients, each, 0.05, 0.002);
            let all = [(values::TPS, tps), (values::P99_US, clients * 4e6 / tps), ("unheard_of", clients)];
            let mut points = rounds("lookups", "", name, clients, &all);
            if clients > 16.0 {
                let error = format!("FATAL: {HOSTILE} & \"sorry\", too many clients already (53300)");
                points[2].errors.insert(error, 1_234);
                points[2].errors.insert("server closed the connection unexpectedly".to_owned(), 1);
                points[2].doubts.push(HOSTILE.to_owned());
            }
            records.extend(points.into_iter().map(Record::Point));
        }
    }
    records
}

fn unknown() -> Vec<Record> {
    let mut records = vec![run("tomorrow's")];
    for x in [1.0, 2.0] {
        let points = rounds("tomorrow's", "", "direct", x, &[("tps", 1_000.0 * x), ("beats", 0.031 * x)]);
        records.extend(points.into_iter().map(Record::Point));
    }
    records.push(Record::End(End { experiment: "tomorrow's".to_owned(), seconds: 1.0 }));
    records
}

pub fn records() -> Vec<Record> {
    [fleet(), idle(), lookups(), unknown(), vec![run("empty")]].concat()
}
