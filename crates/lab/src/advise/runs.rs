//! What an earlier run of the lab says: peaks, poolers beside servers, memory, and what idle connections cost.
//!
//! Knows the experiments by their names and keys; does not know what is advised.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::facts::{Machine, MeasuredLoss, MeasuredMemory, MeasuredPeak, MeasuredPooler, Runs};
use crate::dataset::{Dataset, Line};
use crate::experiment::values;
use crate::experiments::words::{self, Peak};
use crate::journal::{self, RESULTS, Role};

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
    Ok(of(&directory.display().to_string(), &sets))
}

fn of(directory: &str, sets: &[Dataset]) -> (Runs, Machine) {
    let mut runs = Runs { directory: directory.to_owned(), ..Runs::default() };
    runs.experiments = sets.iter().map(|set| set.experiment.clone()).collect();
    for set in sets.iter().filter(|set| OVER_CLIENTS.contains(&set.experiment.as_str())) {
        runs.poolers.extend(poolers(set));
    }
    let named = |name: &str| sets.iter().find(|set| set.experiment == name);
    runs.peaks = PEAKS.iter().filter_map(|name| named(name)).flat_map(peaks).collect();
    runs.memory = named(MEMORY).and_then(memory);
    runs.idle = named(IDLE).and_then(|set| loss(set, |_| true));
    runs.allowed = named(MAX_CONNECTIONS).and_then(|set| loss(set, |line| line.series.contains(ALLOWED)));
    (runs, machine(sets))
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

fn date(set: &Dataset) -> String {
    set.runs.last().map_or_else(String::new, |run| run.date.clone())
}

/// Of lines that are not through a pooler.
fn peaks(set: &Dataset) -> Vec<MeasuredPeak> {
    let role = |line: &Line| {
        set.targets.iter().find(|target| target.name == line.target).map_or(Role::Given, |target| target.role)
    };
    let peak = |line: &Line| {
        let role = role(line);
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
            // Errors behind a peak end a line, too.
            open: peak.open && errors.is_none(),
            busy_percent: peak.place.median(values::BOX_CPU_PERCENT),
            cores: crate::experiments::places::floats(&[words::cores(set)])[0],
            local: set.targets.iter().any(|target| target.name == line.target && target.local),
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
        let last = direct.places.iter().rev().find_map(|place| {
            let (before, after) = (place.median(values::TPS)?, pooled.at(place.x)?.median(values::TPS)?);
            (place.x > without.place.x && before > 0.0).then_some((place.x, after / before))
        });
        Some(MeasuredPooler {
            experiment: set.experiment.clone(),
            date: date(set),
            direct: direct.name(),
            pooler: pooled.name(),
            at_peak: with.tps / without.tps,
            at_most: last,
        })
    };
    words::pairs(set).into_iter().filter_map(compare).collect()
}

fn memory(set: &Dataset) -> Option<MeasuredMemory> {
    let pooled =
        |line: &Line| set.targets.iter().any(|target| target.name == line.target && target.role == Role::Pooler);
    // With the most connections the figure per connection is the steadiest.
    let each = |line: &Line| line.places.iter().rev().find_map(|place| place.median(CONNECTION_MIB));
    let direct = || set.lines.iter().filter(|line| !pooled(line));
    let largest =
        |idle: bool| direct().filter(|line| (line.series == IDLE_SERIES) == idle).filter_map(each).reduce(f64::max);
    let (idle_mib, active_mib) = (largest(true), largest(false));
    (idle_mib.is_some() || active_mib.is_some()).then(|| MeasuredMemory {
        experiment: set.experiment.clone(),
        date: date(set),
        idle_mib,
        active_mib,
    })
}

/// Of the newest server: the line that lost most between its first place and its last.
fn loss(set: &Dataset, wanted: impl Fn(&Line) -> bool) -> Option<MeasuredLoss> {
    let major = |line: &Line| {
        let target = set.targets.iter().find(|target| target.name == line.target)?;
        (target.role == Role::Server).then_some(target.server_major)
    };
    let newest = set.lines.iter().filter_map(&major).max()?;
    let lines = set.lines.iter().filter(|line| major(line) == Some(newest) && wanted(line));
    let losses = lines.filter_map(|line| {
        let (first, last) = (line.places.first()?, line.places.last().filter(|_| line.places.len() > 1)?);
        let before = first.median(values::TPS).filter(|tps| *tps > 0.0)?;
        Some(MeasuredLoss {
            experiment: set.experiment.clone(),
            date: date(set),
            line: line.name(),
            connections: last.x,
            left: last.median(values::TPS)? / before,
        })
    });
    losses.min_by(|one, other| one.left.total_cmp(&other.left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::fixtures::Facts;

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
        let peak = &runs.peaks[0];
        assert_eq!((peak.connections, peak.enough, peak.open, peak.cores), (16.0, 16.0, false, 2.0));
        assert_eq!((runs.poolers[0].at_peak, runs.poolers[0].at_most), (0.9, Some((64.0, 1.1))));
        let memory = runs.memory.unwrap();
        assert_eq!((memory.idle_mib, memory.active_mib), (Some(2.0), Some(6.0)));
        assert_eq!(runs.idle.map(|loss| (loss.line, loss.left)), Some(("new, 1 active".to_owned(), 0.97)));
        assert_eq!(runs.allowed, None);
        assert_eq!(machine, Machine::default(), "no target is said to be local");
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
