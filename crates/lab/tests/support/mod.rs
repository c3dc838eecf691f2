//! What the engine's tests share: a fake server, an experiment that just measures, and a run of it.
#![allow(dead_code, clippy::unwrap_used)]

pub mod fake;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use weir_lab::dataset::Dataset;
use weir_lab::experiment::{About, Axis, Course, Experiment, Finding, Stop};
use weir_lab::run::Site;
use weir_lab::run::runner::{Plan, Runner};
use weir_lab::run::sizes::Asked;
use weir_lab::run::tools::Tools;
use weir_lab::targets::{Needs, Target};
use weir_measure::ground::interrupt::Interrupt;
use weir_measure::journal::{Journal, Point, Record, Sizes};
use weir_measure::load::{Load, Script};
use weir_measure::url::Url;

/// Where the system allows it (root), this thread and all that it starts go ahead of whatever else runs on the machine: a test
/// asks what the lab makes of its figures, not what a busy machine does to them.
pub fn go_ahead_of_others() {
    let thread = nix::unistd::gettid().to_string();
    let _ = Command::new("chrt").args(["--fifo", "--pid", "1", &thread]).output();
}

/// Measures `select 1` with 1, 2, ... clients on every target.
pub struct Probe {
    pub places: usize,
}

const ABOUT: About = About {
    name: "probe",
    title: "A probe",
    question: "Does it answer?",
    method: &[],
    sources: &[],
    axis: Axis { label: "clients", logarithmic: false },
    charts: &[],
    published: &[],
    fit: false,
};

impl Experiment for Probe {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn needs(&self, _sizes: &Sizes) -> Needs {
        Needs::default()
    }

    fn courses(&self, _sizes: &Sizes, targets: &[Target]) -> Vec<Course> {
        let xs: Vec<f64> = (1..=u32::try_from(self.places).unwrap()).map(f64::from).collect();
        let course = |target: &Target| {
            let (series, target, xs) = (String::new(), target.name.clone(), xs.clone());
            Course { series, target, xs, stop: Stop::Never }
        };
        targets.iter().map(course).collect()
    }

    fn measure(&self, point: &mut Point, site: &mut Site) -> Result<()> {
        let script = Script::Text { name: "probe", text: "select 1;\n".to_owned() };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        site.measure(point, &Load::new(script, point.x as usize, site.sizes.seconds))
    }

    fn conclude(&self, _data: &Dataset) -> Vec<Finding> {
        Vec::new()
    }
}

/// A plan of one-second measurements, one round.
pub fn plan(targets: &[(&str, Url)]) -> Plan {
    Plan {
        targets: targets.iter().map(|(name, url)| ((*name).to_owned(), url.clone())).collect(),
        asked: Asked { seconds: Some(1), rounds: Some(1), ..Asked::default() },
        ..Plan::default()
    }
}

/// One URL of all these endpoints, over which load is spread.
pub fn cluster(nodes: &[&Url]) -> Url {
    let ports: Vec<String> = nodes.iter().map(|node| node.port().to_string()).collect();
    let hosts = vec!["127.0.0.1"; nodes.len()].join(",");
    let ports = ports.join(",");
    format!("host={hosts} port={ports} user=someone dbname=somewhere sslmode=disable load_balance_hosts=random")
        .parse()
        .unwrap()
}

pub fn tools(pgbench: Option<&Path>) -> Result<Tools> {
    Tools::find(pgbench, &PathBuf::from("no-weir-needed"), &Interrupt::install().unwrap())
}

/// What the run said, and what its journal holds then.
pub fn run(experiment: &dyn Experiment, plan: &Plan, directory: &Path) -> (Result<()>, Dataset) {
    let tools = tools(None).unwrap();
    let result = Runner::open(directory, &tools, plan).and_then(|mut runner| runner.run(experiment));
    (result, dataset(directory))
}

pub fn dataset(directory: &Path) -> Dataset {
    let records: Vec<Record> = Journal::open(directory).unwrap().records().to_vec();
    Dataset::all(&records).pop().unwrap_or_default()
}
