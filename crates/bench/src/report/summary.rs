//! From points to rows: medians, spreads, and ratios to the baseline of the same round.
//!
//! Knows no format; a value that was not measured stays absent.

use crate::peers::BASELINE;
use weir_measure::journal::{Point, Record};
use weir_measure::statistics::{Spread, count};

/// All rounds of one peer under one load.
pub struct Row<'a> {
    pub what: &'a str,
    pub clients: usize,
    pub peer: &'a str,
    points: Vec<&'a Point>,
    /// The baseline's under the same load.
    baseline: Vec<&'a Point>,
}

impl Row<'_> {
    pub fn value(&self, figure: &str) -> Option<Spread> {
        Spread::of(self.points.iter().filter_map(|point| point.values.get(figure).copied()))
    }

    /// Ratios within a round: neighbours in time share the machine's mood.
    pub fn ratio(&self, figure: &str) -> Option<Spread> {
        ratio(&self.points, &self.baseline, figure)
    }

    pub fn ratio_to(&self, other: &Row, figure: &str) -> Option<Spread> {
        ratio(&self.points, &other.points, figure)
    }
}

fn ratio(own: &[&Point], others: &[&Point], figure: &str) -> Option<Spread> {
    let of_round = |point: &&Point| {
        let other = others.iter().find(|other| other.round == point.round)?;
        Some(point.values.get(figure)? / other.values.get(figure)?)
    };
    Spread::of(own.iter().filter_map(of_round))
}

/// One row per load and peer: loads in the order of their first point, with their numbers of clients rising, and peers
/// in the order of theirs. A peer that failed in one round is left out: the median of the rounds that went well would be of
/// another kind than its neighbours'.
pub fn rows(records: &[Record]) -> Vec<Row<'_>> {
    let points: Vec<&Point> = records
        .iter()
        .filter_map(|record| if let Record::Point(point) = record { Some(point) } else { None })
        .collect();
    let mut whats: Vec<&str> = Vec::new();
    let mut peers: Vec<&str> = Vec::new();
    let mut clients: Vec<usize> = Vec::new();
    for point in &points {
        push_new(&mut whats, &point.series);
        push_new(&mut peers, &point.target);
        push_new(&mut clients, count(point.x));
    }
    clients.sort_unstable();
    let mut rows = Vec::new();
    for what in whats {
        for clients in clients.iter().copied() {
            let cell: Vec<&Point> =
                points.iter().copied().filter(|point| point.series == what && count(point.x) == clients).collect();
            rows.extend(peers.iter().filter_map(|peer| row(&cell, peer)));
        }
    }
    rows
}

fn row<'a>(cell: &[&'a Point], peer: &str) -> Option<Row<'a>> {
    let of = |name: &str| cell.iter().copied().filter(|point| point.target == name).collect::<Vec<_>>();
    let points = of(peer);
    let rounds = cell.iter().map(|point| point.round).max()?;
    let first = points.first().filter(|_| points.len() == rounds)?;
    Some(Row { what: &first.series, clients: count(first.x), peer: &first.target, points, baseline: of(BASELINE) })
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, value: T) {
    if !list.contains(&value) {
        list.push(value);
    }
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use weir_measure::statistics::place;

    pub fn sample(peer: &str, round: usize, values: &[(&str, f64)]) -> Record {
        sample_of(("simple", 8), peer, round, values)
    }

    /// Rounds are counted from 0, as the parts do.
    pub fn sample_of(load: (&str, usize), peer: &str, round: usize, values: &[(&str, f64)]) -> Record {
        let values: BTreeMap<String, f64> = values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let (series, x, target, round) = (load.0.to_owned(), place(load.1), peer.to_owned(), round + 1);
        Record::Point(Point { series, x, target, round, values, ..Point::default() })
    }

    #[test]
    fn ratios_pair_samples_of_one_round_and_a_failed_round_leaves_no_row() {
        let records = [
            sample(BASELINE, 0, &[("tps", 100.0), ("cpu", 10.0)]),
            sample("other", 0, &[("tps", 50.0), ("cpu", 5.0)]),
            sample(BASELINE, 1, &[("tps", 1000.0), ("cpu", 20.0)]),
            sample("other", 1, &[("tps", 250.0)]),
            sample("failed once", 1, &[("tps", 9.0)]),
        ];
        let rows = rows(&records);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].ratio("tps").unwrap(), Spread::of([1.0, 1.0]).unwrap());
        assert_eq!(rows[1].ratio("tps").unwrap(), Spread::of([0.25, 0.5]).unwrap());
        assert_eq!(rows[1].ratio("cpu").unwrap().median, 0.5);
        assert_eq!(rows[1].value("tps").unwrap(), Spread::of([50.0, 250.0]).unwrap());
        assert_eq!(rows[1].value("absent"), None);
        assert_eq!(rows[0].ratio_to(&rows[1], "tps").unwrap().median, 3.0);
    }

    #[test]
    fn rows_keep_the_order_of_loads_and_sort_clients() {
        let records = [
            sample_of(("b", 32), "direct", 0, &[("tps", 1.0)]),
            sample_of(("b", 8), "direct", 0, &[("tps", 1.0)]),
            sample_of(("a", 8), "direct", 0, &[("tps", 1.0)]),
        ];
        let order: Vec<(String, usize)> = rows(&records).iter().map(|row| (row.what.to_owned(), row.clients)).collect();
        assert_eq!(order, [("b".to_owned(), 8), ("b".to_owned(), 32), ("a".to_owned(), 8)]);
        assert_eq!(rows(&records)[0].ratio("tps"), None);
    }
}
