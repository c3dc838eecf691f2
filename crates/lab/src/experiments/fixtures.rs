//! Small datasets for tests, built through the journal as a run would.

use std::collections::BTreeMap;

use crate::dataset::{Dataset, Line, Place};
use crate::experiment::{Finding, FindingKind};
use crate::targets::{Kind, Target};
use weir_measure::doubt::Doubt;
use weir_measure::ground::machine::Machine;
use weir_measure::journal::{Absent, End, Point, Preset, Record, Role, Run, Sizes, TargetRecord};

/// What a journal has of one experiment.
pub struct Facts {
    experiment: String,
    records: Vec<Record>,
}

impl Facts {
    pub fn new(experiment: &str) -> Facts {
        Facts { experiment: experiment.to_owned(), records: Vec::new() }
    }

    pub fn run(mut self, cores: usize) -> Facts {
        let text = |text: &str| text.to_owned();
        let machine = Machine {
            processor: text("p"),
            cores,
            kernel: text("k"),
            memory_mib: 8_000,
            system: text("s"),
            virtual_machine: true,
        };
        let (experiment, sizes) = (self.experiment.clone(), Some(sizes(Preset::Machine)));
        let run = Run { experiment, date: text("d"), command: text("c"), machine, pgbench: text("pgbench"), sizes };
        self.records.push(Record::Run(run));
        self
    }

    fn target(mut self, name: &str, role: Role, server_major: u32) -> Facts {
        let (experiment, name) = (self.experiment.clone(), name.to_owned());
        self.records.push(Record::Target(TargetRecord {
            experiment,
            name,
            role,
            server_major,
            local: true,
            ..TargetRecord::default()
        }));
        self
    }

    pub fn server(self, name: &str, major: u32) -> Facts {
        self.target(name, Role::Server, major)
    }

    pub fn pooler(self, name: &str, major: u32) -> Facts {
        self.target(name, Role::Pooler, major)
    }

    fn point(&mut self, series: &str, target: &str, x: f64) -> Point {
        let earlier = self.records.iter().filter(|record| {
            matches!(record, Record::Point(point) if point.series == series && point.target == target && point.x == x)
        });
        let round = earlier.count() + 1;
        let (experiment, series, target) = (self.experiment.clone(), series.to_owned(), target.to_owned());
        Point { experiment, series, target, x, round, ..Point::default() }
    }

    /// One round of a line, of one key.
    pub fn line(mut self, series: &str, target: &str, key: &str, places: &[(f64, f64)]) -> Facts {
        for (x, value) in places {
            self = self.values(series, target, *x, &[(key, *value)]);
        }
        self
    }

    /// One round of one place.
    pub fn values(mut self, series: &str, target: &str, x: f64, values: &[(&str, f64)]) -> Facts {
        let mut point = self.point(series, target, x);
        point.values = values.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect();
        self.records.push(Record::Point(point));
        self
    }

    pub fn failing(mut self, series: &str, target: &str, x: f64, kind: &str, count: u64) -> Facts {
        let mut point = self.point(series, target, x);
        point.errors = BTreeMap::from([(kind.to_owned(), count)]);
        self.records.push(Record::Point(point));
        self
    }

    pub fn doubt(mut self, series: &str, target: &str, x: f64, doubt: &str) -> Facts {
        let mut point = self.point(series, target, x);
        point.doubts.push(doubt.to_owned());
        self.records.push(Record::Point(point));
        self
    }

    /// Makes the last point worthless, for this reason.
    pub fn forbidden(mut self, doubt: &Doubt) -> Facts {
        if let Some(Record::Point(point)) = self.records.last_mut() {
            point.doubt(doubt);
        }
        self
    }

    /// The moments of all points, a minute apart in their order.
    pub fn in_time(mut self) -> Facts {
        for (index, record) in self.records.iter_mut().enumerate() {
            if let Record::Point(point) = record {
                point.at = 60 * u64::try_from(index + 1).unwrap_or(0);
            }
        }
        self
    }

    pub fn absent(mut self, series: &str, target: &str, x: Option<f64>, reason: &str) -> Facts {
        let (experiment, series, target) = (self.experiment.clone(), series.to_owned(), target.to_owned());
        self.records.push(Record::Absent(Absent { experiment, series, target, x, reason: reason.to_owned() }));
        self
    }

    pub fn end(mut self) -> Facts {
        self.records.push(Record::End(End { experiment: self.experiment.clone(), seconds: 1.0 }));
        self
    }

    pub fn records(self) -> Vec<Record> {
        self.records
    }

    pub fn so_far(&self) -> Dataset {
        Dataset::all(&self.records).pop().unwrap_or_default()
    }

    pub fn data(self) -> Dataset {
        Dataset::all(&self.records).pop().unwrap_or_default()
    }
}

pub fn place(x: f64, key: &str, values: &[f64]) -> Place {
    Place { x, values: BTreeMap::from([(key.to_owned(), values.to_vec())]), ..Place::default() }
}

pub fn line(series: &str, target: &str, key: &str, places: &[(f64, f64)]) -> Line {
    let places = places.iter().map(|(x, value)| place(*x, key, &[*value])).collect();
    Line { series: series.to_owned(), target: target.to_owned(), places }
}

pub fn sizes(preset: Preset) -> Sizes {
    Sizes { preset, seconds: 2, rounds: 1, rounds_max: 1, scale: 10 }
}

pub fn target(name: &str, kind: Kind) -> Target {
    Target { server_major: 15, ..Target::imagined(name, kind) }
}

pub fn float(count: usize) -> f64 {
    weir_measure::statistics::place(count)
}

pub fn texts(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| finding.text.clone()).collect()
}

/// The texts of one kind.
pub fn kind(findings: &[Finding], kind: FindingKind) -> Vec<String> {
    findings.iter().filter(|finding| finding.kind == kind).map(|finding| finding.text.clone()).collect()
}
