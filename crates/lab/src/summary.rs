//! From samples to rows: medians, spreads, and ratios to the baseline of the same round.
//!
//! Knows no format; a value that was not measured stays absent.

use std::collections::BTreeSet;

use crate::process::Memory;
use crate::record::{Latency, Mode, Record, Run, Sample};

/// The peer that ratios refer to.
pub const BASELINE: &str = "PgBouncer";

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Spread { median, min, max })
    }
}

pub struct Row {
    pub mode: Mode,
    pub clients: usize,
    pub peer: String,
    pub tps: Spread,
    pub tps_ratio: Option<f64>,
    pub p50_us: Option<Spread>,
    pub p99_us: Option<Spread>,
    pub cpu_us: Option<Spread>,
    pub cpu_ratio: Option<f64>,
    pub rss_kib: Option<Spread>,
    pub pss_kib: Option<Spread>,
    pub private_dirty_kib: Option<Spread>,
}

/// One row per mode, number of clients and peer, in that order. A peer that failed in one round has no row: the median
/// of the rounds that went well would be of another kind than its neighbours'.
pub fn rows(run: &Run, records: &[Record]) -> Vec<Row> {
    let samples: Vec<&Sample> = records
        .iter()
        .filter_map(|record| if let Record::Sample(sample) = record { Some(sample) } else { None })
        .collect();
    let cells: BTreeSet<(Mode, usize)> = samples.iter().map(|sample| (sample.mode, sample.clients)).collect();
    let mut rows = Vec::new();
    for (mode, clients) in cells {
        let cell: Vec<&Sample> =
            samples.iter().copied().filter(|sample| (sample.mode, sample.clients) == (mode, clients)).collect();
        rows.extend(run.peers.iter().filter_map(|peer| row(&cell, &peer.name, run.rounds)));
    }
    rows
}

fn row(cell: &[&Sample], peer: &str, rounds: usize) -> Option<Row> {
    let own: Vec<&Sample> = cell.iter().copied().filter(|sample| sample.peer == peer).collect();
    let spread = |value: fn(&Sample) -> Option<f64>| Spread::of(own.iter().filter_map(|sample| value(sample)));
    let latency = |part: fn(Latency) -> u64| {
        Spread::of(own.iter().filter_map(|sample| sample.latency.map(|latency| to_f64(part(latency)))))
    };
    let memory = |part: fn(Memory) -> u64| {
        Spread::of(own.iter().filter_map(|sample| sample.memory.map(|memory| to_f64(part(memory)))))
    };
    let first = own.first().filter(|_| own.len() == rounds)?;
    Some(Row {
        mode: first.mode,
        clients: first.clients,
        peer: peer.to_owned(),
        tps: spread(tps)?,
        tps_ratio: ratio(cell, &own, tps),
        p50_us: latency(|latency| latency.p50_us),
        p99_us: latency(|latency| latency.p99_us),
        cpu_us: spread(cpu_us),
        cpu_ratio: ratio(cell, &own, cpu_us),
        rss_kib: memory(|memory| memory.rss_kib),
        pss_kib: memory(|memory| memory.pss_kib),
        private_dirty_kib: memory(|memory| memory.private_dirty_kib),
    })
}

fn tps(sample: &Sample) -> Option<f64> {
    Some(sample.tps)
}

fn cpu_us(sample: &Sample) -> Option<f64> {
    sample.cpu_us_per_transaction
}

/// The median over rounds of the ratio within a round: neighbours in time share the machine's mood.
fn ratio(cell: &[&Sample], own: &[&Sample], value: fn(&Sample) -> Option<f64>) -> Option<f64> {
    let of_round = |sample: &&Sample| {
        let baseline = cell.iter().find(|other| other.peer == BASELINE && other.round == sample.round)?;
        Some(value(sample)? / value(baseline)?)
    };
    Spread::of(own.iter().filter_map(of_round)).map(|spread| spread.median)
}

/// Figures of this size (microseconds, KiB) are exact in an f64.
#[allow(clippy::cast_precision_loss)]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::record::PeerDescription;

    pub fn run_of(rounds: usize, peers: &[&str]) -> Run {
        let describe = |name: &&str| PeerDescription {
            name: (*name).to_owned(),
            version: format!("{name} 1.0"),
            configuration: "a = b\n".to_owned(),
        };
        Run {
            date: "2026-01-01 00:00 UTC".to_owned(),
            command: "weir-lab bench".to_owned(),
            pgbench_command: "pgbench -S".to_owned(),
            machine: Machine {
                processor: "CPU".to_owned(),
                cores: 2,
                kernel: "6".to_owned(),
                memory_mib: 1024,
                system: "Linux".to_owned(),
                virtual_machine: true,
            },
            rounds,
            seconds: 1,
            quick: false,
            peers: peers.iter().map(describe).collect(),
        }
    }

    pub fn sample(peer: &str, round: usize, tps: f64, cpu_us: Option<f64>) -> Record {
        Record::Sample(Sample {
            mode: Mode::Simple,
            clients: 8,
            round,
            peer: peer.to_owned(),
            transactions: 100,
            tps,
            latency: None,
            cpu_us_per_transaction: cpu_us,
            memory: None,
        })
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0].into_iter()), Some(Spread { median: 2.0, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([4.0, 1.0].into_iter()), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([].into_iter()), None);
    }

    #[test]
    fn ratios_pair_samples_of_one_round_and_a_failed_round_leaves_no_row() {
        let records = [
            sample("PgBouncer", 0, 100.0, Some(10.0)),
            sample("other", 0, 50.0, Some(5.0)),
            sample("PgBouncer", 1, 1000.0, Some(20.0)),
            sample("other", 1, 500.0, Some(10.0)),
            sample("failed once", 1, 9.0, Some(90.0)),
        ];
        let rows = rows(&run_of(2, &["PgBouncer", "other", "failed once", "silent"]), &records);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].tps_ratio, rows[0].cpu_ratio), (Some(1.0), Some(1.0)));
        assert_eq!((rows[1].tps_ratio, rows[1].cpu_ratio), (Some(0.5), Some(0.5)));
        assert_eq!(rows[1].tps, Spread { median: 275.0, min: 50.0, max: 500.0 });
    }

    #[test]
    fn without_a_baseline_there_is_no_ratio_and_without_a_process_no_cpu() {
        let rows = rows(&run_of(1, &["direct"]), &[sample("direct", 0, 1.0, None)]);
        assert_eq!((rows[0].tps_ratio, rows[0].cpu_ratio, rows[0].cpu_us), (None, None, None));
    }
}
