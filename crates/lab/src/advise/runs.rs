//! What an earlier run of the lab says: peaks, poolers beside servers, memory, and what idle connections cost.
//!
//! Knows the experiments by their names and keys; does not know what is advised.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::facts::{
    ConnectionMemory, Machine, MeasuredChange, MeasuredLoss, MeasuredMemory, MeasuredPeak, MeasuredPooler, Runs,
};
use crate::conclusions;
use crate::dataset::{Dataset, Line, Place};
use crate::experiment::values;
use crate::experiments::curve::Curve;
use crate::experiments::words::{self, Change, Peak};
use weir_measure::journal::{self, Preset, RESULTS, Role};

/// Experiments over clients whose peak is a size for a pool, best first: the user's own work, then short reads.
const PEAKS: [&str; 3] = ["saturation", "single-shard", "fan-out"];
/// Experiments that raise clients, directly and through poolers.
const OVER_CLIENTS: [&str; 5] = ["saturation", "single-shard", "fan-out", "fleet", RECONNECT];
/// A connection for each transaction.
pub const RECONNECT: &str = "reconnect";
const MEMORY: &str = "memory";
/// The key of what one connection takes, and the series in which it does nothing.
const CONNECTION_MIB: &str = "connection_mib";
const IDLE_SERIES: &str = "idle";
const IDLE: &str = "idle";
const MAX_CONNECTIONS: &str = "max-connections";
/// The series where connections are only allowed.
const ALLOWED: &str = "allowed";

/// All of a run's directory, and the machine that it was on.
pub fn read(directory: &Path) -> Result<(Runs, Machine)> {
    let path = directory.join(RESULTS);
    if !path.is_file() {
        bail!("--from: there are no results of a run in {} ({RESULTS} is missing)", directory.display());
    }
    let records = journal::read(&path).context("--from")?;
    let sets = Dataset::all(&records);
    if sets.iter().all(|set| set.lines.is_empty()) {
        bail!("--from: the run in {} has measured nothing", directory.display());
    }
    let worthless = |set: &Dataset| Some(format!("{}: {}", set.experiment, conclusions::reason_for_none(set)?));
    let reasons: Vec<String> = sets.iter().filter_map(worthless).collect();
    if reasons.len() == sets.len() {
        bail!("--from: nothing is to be concluded from the run in {}: {}", directory.display(), reasons.join(" "));
    }
    Ok(of(&directory.display().to_string(), &sets))
}

fn of(directory: &str, all: &[Dataset]) -> (Runs, Machine) {
    // What the lab's report concludes nothing from, nothing is advised from.
    let sets: Vec<Dataset> = all.iter().filter_map(conclusions::basis).collect();
    let sets = sets.as_slice();
    let mut runs = Runs { directory: directory.to_owned(), ..Runs::default() };
    runs.experiments = all.iter().map(|set| set.experiment.clone()).collect();
    for set in sets.iter().filter(|set| OVER_CLIENTS.contains(&set.experiment.as_str())) {
        runs.poolers.extend(poolers(set));
    }
    let named = |name: &str| sets.iter().find(|set| set.experiment == name);
    runs.peaks = PEAKS.iter().filter_map(|name| named(name)).flat_map(peaks).collect();
    runs.memory = named(MEMORY).and_then(memory);
    runs.idle = named(IDLE).and_then(|set| loss(set, |_| true));
    runs.allowed = named(MAX_CONNECTIONS).and_then(|set| loss(set, |line| line.series.contains(ALLOWED)));
    (runs, machine(all))
}

fn machine(sets: &[Dataset]) -> Machine {
    let Some(machine) = sets.iter().rev().find_map(|set| Some(&set.runs.last()?.machine)) else {
        return Machine::default();
    };
    // A server elsewhere was measured from here: the cores are not its own.
    let local = sets.iter().any(|set| set.targets.iter().any(|target| target.local));
    if !local {
        return Machine::default();
    }
    // Both are far below 2^53.
    #[expect(clippy::cast_precision_loss)]
    let (cores, memory_mib) = (machine.cores as f64, machine.memory_mib as f64);
    Machine {
        cores: (cores > 0.0).then_some(cores),
        memory_mib: (memory_mib > 0.0).then_some(memory_mib),
        busy_percent: None,
        server_percent: None,
        origin: "of the machine that the run was on".to_owned(),
    }
}

fn is_quick(set: &Dataset) -> bool {
    let sizes = set.runs.last().and_then(|run| run.sizes.as_ref());
    sizes.is_some_and(|sizes| sizes.preset == Preset::Quick)
}

fn date(set: &Dataset) -> String {
    set.runs.last().map_or_else(String::new, |run| run.date.clone())
}

/// Of lines that are not known to be through a pooler.
fn peaks(set: &Dataset) -> Vec<MeasuredPeak> {
    let peak = |line: &Line| {
        let role = set.role_of(line);
        let peak = Peak::of(line).filter(|_| role != Role::Pooler)?;
        let failed = line.places.iter().find(|place| !place.errors.is_empty());
        let errors = failed.and_then(|place| {
            let (kind, _) = place.errors.iter().max_by_key(|(_, count)| **count)?;
            Some((place.x, kind.clone()))
        });
        Some(MeasuredPeak {
            experiment: set.experiment.clone(),
            date: date(set),
            target: line.name(),
            role,
            tps: peak.tps,
            connections: peak.place.x,
            enough: peak.enough,
            between: Curve::of(line).and_then(|curve| curve.interval()),
            quick: is_quick(set),
            // Errors behind a peak end a line, too.
            open: peak.open && errors.is_none(),
            busy_percent: peak.place.median(values::BOX_CPU_PERCENT),
            cores: crate::experiments::places::floats(&[words::cores(set)])[0],
            local: set.target_of(line).is_some_and(|target| target.local),
            rounds: peak.place.spread(values::TPS).map_or(0, |spread| spread.rounds),
            doubts: peak.place.doubts.clone(),
            errors,
        })
    };
    set.lines.iter().filter_map(peak).collect()
}

fn poolers(set: &Dataset) -> Vec<MeasuredPooler> {
    let compare = |(direct, pooled): (&Line, &Line)| {
        let (without, with) = (Peak::of(direct)?, Peak::of(pooled)?);
        let mut past = direct.places.iter().rev().filter(|place| place.x > without.place.x);
        let last = past.find_map(|place| Some((place.x, change(place, pooled.at(place.x)?)?)));
        Some(MeasuredPooler {
            experiment: set.experiment.clone(),
            date: date(set),
            direct: direct.name(),
            pooler: pooled.name(),
            at_peak: change(without.place, with.place)?,
            at_most: last,
        })
    };
    words::pairs(set).into_iter().filter_map(compare).collect()
}

/// Whether it is more than chance is decided as in reports.
fn change(from: &Place, to: &Place) -> Option<MeasuredChange> {
    let Change { ratio, clear } = Change::of(from, to, values::TPS)?;
    let rounds = from.spread(values::TPS)?.rounds.min(to.spread(values::TPS)?.rounds);
    let mut doubts = from.doubts.clone();
    doubts.extend(to.doubts.iter().filter(|doubt| !from.doubts.contains(doubt)).cloned());
    Some(MeasuredChange { ratio, clear, rounds, doubts })
}

/// Of servers: a client of something else may share its connection with others.
fn memory(set: &Dataset) -> Option<MeasuredMemory> {
    let each = |place: &Place| {
        let spread = place.spread(CONNECTION_MIB)?;
        Some(ConnectionMemory { mib: spread.median, rounds: spread.rounds, doubts: place.doubts.clone() })
    };
    let largest = |idle: bool| {
        let wanted = |line: &&Line| set.role_of(line) == Role::Server && (line.series == IDLE_SERIES) == idle;
        // With the most connections the figure per connection is the steadiest.
        let figures = set.lines.iter().filter(wanted).filter_map(|line| line.places.iter().rev().find_map(each));
        figures.max_by(|one, other| one.mib.total_cmp(&other.mib))
    };
    let (idle, active) = (largest(true), largest(false));
    let (experiment, date) = (set.experiment.clone(), date(set));
    (idle.is_some() || active.is_some()).then_some(MeasuredMemory { experiment, date, idle, active })
}

/// Of the newest server: the line that lost most between its first place and its last. What is clear goes before what may
/// be chance.
fn loss(set: &Dataset, wanted: impl Fn(&Line) -> bool) -> Option<MeasuredLoss> {
    let major = |line: &Line| {
        let target = set.target_of(line)?;
        (target.role == Role::Server).then_some(target.server_major)
    };
    let newest = set.lines.iter().filter_map(&major).max()?;
    let lines = set.lines.iter().filter(|line| major(line) == Some(newest) && wanted(line));
    let losses = lines.filter_map(|line| {
        let measured = |place: &&Place| place.median(values::TPS).is_some_and(|tps| tps > 0.0);
        let (first, last) = (line.places.iter().find(measured)?, line.places.iter().rfind(measured)?);
        let change = change(first, last).filter(|_| first.x < last.x)?;
        Some(MeasuredLoss {
            experiment: set.experiment.clone(),
            date: date(set),
            line: line.name(),
            connections: last.x,
            change,
        })
    });
    let unclear = |loss: &MeasuredLoss| !loss.change.is_less();
    losses.min_by(|one, other| {
        let ratios = one.change.ratio.total_cmp(&other.change.ratio);
        unclear(one).cmp(&unclear(other)).then(ratios)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures::Facts;
    use weir_measure::doubt::Doubt;

    #[test]
    fn a_run_becomes_peaks_losses_and_memory() {
        let rising = [(8.0, 900.0), (16.0, 1_000.0), (64.0, 800.0)];
        let single = Facts::new("single-shard")
            .run(2)
            .server("direct", 15)
            .pooler("Weir", 15)
            .line("", "direct", "tps", &rising)
            .line("", "Weir", "tps", &[(8.0, 800.0), (16.0, 900.0), (64.0, 880.0)])
            .data();
        let memory = Facts::new("memory")
            .server("direct", 15)
            .line("idle", "direct", "connection_mib", &[(20.0, 2.5), (100.0, 2.0)])
            .line("reading", "direct", "connection_mib", &[(100.0, 6.0)])
            .data();
        let idle = Facts::new("idle")
            .server("old", 12)
            .server("new", 18)
            .line("1 active", "old", "tps", &[(0.0, 100.0), (1_000.0, 40.0)])
            .line("1 active", "new", "tps", &[(0.0, 100.0), (1_000.0, 97.0)])
            .data();
        let (runs, machine) = of("somewhere", &[single, memory, idle]);
        assert_eq!(runs.peaks.len(), 1, "a pooler's peak is not a server's");
        assert_eq!(runs.peaks[0].role, Role::Server);
        let peak = &runs.peaks[0];
        assert_eq!((peak.connections, peak.enough, peak.open, peak.cores), (16.0, 16.0, false, 2.0));
        let once = |ratio| MeasuredChange { ratio, clear: false, rounds: 1, doubts: Vec::new() };
        assert_eq!((&runs.poolers[0].at_peak, &runs.poolers[0].at_most), (&once(0.9), &Some((64.0, once(1.1)))));
        let memory = runs.memory.unwrap();
        let mib = |figure: Option<ConnectionMemory>| figure.map(|figure| (figure.mib, figure.rounds));
        assert_eq!((mib(memory.idle), mib(memory.active)), (Some((2.0, 1)), Some((6.0, 1))));
        let idle = runs.idle.unwrap();
        assert_eq!((idle.line.as_str(), idle.connections, idle.change), ("new, 1 active", 1_000.0, once(0.97)));
        assert_eq!(runs.allowed, None);
        assert_eq!(machine.cores, Some(2.0));
    }

    #[test]
    fn rounds_and_doubts_come_along_and_decide_what_is_clear() {
        let doubt = "pgbench used 0.97 of a core";
        let single = Facts::new("single-shard")
            .server("direct", 15)
            .pooler("Weir", 15)
            .line("", "direct", "tps", &[(16.0, 1_000.0), (64.0, 800.0)])
            .line("", "direct", "tps", &[(16.0, 1_010.0), (64.0, 810.0)])
            .line("", "Weir", "tps", &[(16.0, 900.0), (64.0, 840.0)])
            .line("", "Weir", "tps", &[(16.0, 910.0), (64.0, 805.0)])
            .doubt("", "Weir", 64.0, doubt)
            .data();
        let memory = Facts::new("memory")
            .server("direct", 15)
            .line("reading", "direct", "connection_mib", &[(100.0, 6.0)])
            .line("reading", "direct", "connection_mib", &[(100.0, 7.0)])
            .doubt("reading", "direct", 100.0, doubt)
            .data();
        let (runs, _) = of("somewhere", &[single, memory]);
        let (at_peak, (clients, at_most)) = (&runs.poolers[0].at_peak, runs.poolers[0].at_most.clone().unwrap());
        assert!(at_peak.is_less() && at_peak.rounds == 2 && at_peak.doubts.is_empty(), "{at_peak:?}");
        assert!(clients == 64.0 && !at_most.clear && at_most.doubts == [doubt], "the rounds overlap: {at_most:?}");
        let active = ConnectionMemory { mib: 6.5, rounds: 2, doubts: vec![doubt.to_owned()] };
        let memory = runs.memory.unwrap();
        assert_eq!((memory.idle, memory.active), (None, Some(active)));
    }

    #[test]
    fn a_clear_loss_goes_before_a_larger_one_that_may_be_chance() {
        let facts = Facts::new("idle")
            .server("direct", 15)
            .line("1 active", "direct", "tps", &[(0.0, 100.0), (1_000.0, 90.0)])
            .line("1 active", "direct", "tps", &[(0.0, 101.0), (1_000.0, 91.0)])
            .line("48 active", "direct", "tps", &[(0.0, 100.0), (1_000.0, 85.0)]);
        let lost = |facts: Facts| of("somewhere", &[facts.data()]).0.idle.unwrap();
        let loss = lost(facts);
        assert!(loss.line == "direct, 1 active" && loss.change.is_less() && loss.change.rounds == 2, "{loss:?}");
        let once = Facts::new("idle").server("direct", 15).line("", "direct", "tps", &[(0.0, 100.0), (1_000.0, 85.0)]);
        assert!(!lost(once).change.clear, "one round that lost 15 % says nothing");
    }

    #[test]
    fn what_nobody_knows_is_measured_as_such() {
        let rising = [(8.0, 900.0), (500.0, 1_000.0), (1_000.0, 800.0)];
        let single = Facts::new("single-shard").line("", "shop", "tps", &rising).data();
        let memory = Facts::new("memory").line("idle", "shop", "connection_mib", &[(100.0, 0.1)]).data();
        let (runs, _) = of("somewhere", &[single, memory]);
        assert_eq!((runs.peaks[0].role, runs.peaks[0].local), (Role::Given, false));
        assert_eq!(runs.memory, None, "clients of a pooler share what a connection takes");
    }

    #[test]
    fn from_a_run_that_strangers_spoilt_nothing_is_advised() {
        let directory = tempfile::tempdir().unwrap();
        let spoilt = Facts::new("single-shard").server("direct", 15).line("", "direct", "tps", &[(16.0, 1_000.0)]);
        let spoilt = spoilt.forbidden(&Doubt::Strangers(Some("cargo".to_owned())));
        let lines: Vec<String> =
            spoilt.records().iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
        std::fs::write(directory.path().join(RESULTS), lines.concat()).unwrap();
        let error = read(directory.path()).unwrap_err().to_string();
        assert!(error.contains("nothing is to be concluded") && error.contains("cargo"), "{error}");
    }

    #[test]
    fn a_directory_without_a_run_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        assert!(read(directory.path()).unwrap_err().to_string().contains("results.jsonl is missing"));
        std::fs::write(directory.path().join(RESULTS), "").unwrap();
        assert!(read(directory.path()).unwrap_err().to_string().contains("has measured nothing"));
        std::fs::write(directory.path().join(RESULTS), "nonsense\n").unwrap();
        assert!(format!("{:#}", read(directory.path()).unwrap_err()).contains("line 1"));
    }
}
