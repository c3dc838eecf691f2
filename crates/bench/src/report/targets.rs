//! What Weir has to reach, and whether it does: one row per target.
//!
//! Knows parts and figures by name; how they are measured stands in the parts.

use super::summary::Row;
use crate::parts::{few, workers};
use crate::peers::{BASELINE, DIRECT, OURS};
use weir_measure::statistics::Spread;

const SECOND_DRIVER: &str = "Weir epoll";

/// What our figure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Our figure to PgBouncer's.
    RatioAtMost(f64),
    RatioAtLeast(f64),
    /// To the best of all other poolers.
    OfBestAtLeast(f64),
    /// To the best of all other poolers, where one round of several that reaches it is enough: within noise.
    OfBestWithinNoise(f64),
    /// To so many times PgBouncer's figure or to the direct connection's, whichever is less.
    OfLesserAtLeast(f64),
    /// 16 workers to one.
    ToOneWorkerAtMost(f64),
    AtMost(f64),
    AtLeast(f64),
}

pub struct Target {
    pub number: u8,
    pub part: &'static str,
    pub what: &'static str,
    /// `None`: whatever number was measured, the largest first.
    pub clients: Option<usize>,
    pub figure: &'static str,
    pub bound: Bound,
    pub driver: Option<&'static str>,
}

impl Target {
    fn new(
        number: u8,
        place: (&'static str, &'static str),
        clients: usize,
        figure: &'static str,
        bound: Bound,
    ) -> Self {
        Target { number, part: place.0, what: place.1, clients: Some(clients), figure, bound, driver: None }
    }

    fn any(number: u8, place: (&'static str, &'static str), figure: &'static str, bound: Bound) -> Self {
        Target { clients: None, ..Target::new(number, place, 0, figure, bound) }
    }
}

pub fn all() -> Vec<Target> {
    let mut all = Vec::new();
    cpu_and_throughput(&mut all);
    few_clients(&mut all);
    for clients in [32, 128, 1000, 3000, 10_000] {
        all.push(Target::new(3, ("flat", "mixed"), clients, "of_peak", Bound::AtLeast(0.95)));
    }
    all.push(Target::new(3, ("flat", "mixed"), 10_000, "p99_to_p50", Bound::AtMost(1.5)));
    all.push(Target::new(3, ("flat", "mixed"), 10_000, "slowest_client", Bound::AtMost(2.0)));
    all.push(Target::new(3, ("flat", "mixed"), 10_000, "longest_wait", Bound::AtMost(2.0)));
    for (what, kib) in [("plain", 1.0), ("TLS", 6.0)] {
        for figure in ["login_kib", "query_kib"] {
            all.push(Target::new(4, ("memory", what), 2000, figure, Bound::AtMost(kib)));
            all.push(Target::new(4, ("memory", what), 2000, figure, Bound::RatioAtMost(1.0)));
        }
    }
    all.push(Target::any(4, ("churn", "connect and leave"), "growth_bytes", Bound::AtMost(1.0)));
    all.push(Target::any(4, ("crowd", "idle"), "held", Bound::AtLeast(100_000.0)));
    all.push(Target::any(4, ("crowd", "idle"), "beside", Bound::AtLeast(0.97)));
    all.push(Target::any(5, ("logins", "SCRAM"), "logins_per_cpu_s", Bound::RatioAtLeast(2.0)));
    all.push(Target::any(5, ("logins", "SCRAM over TLS"), "logins_per_cpu_s", Bound::RatioAtLeast(3.0)));
    for what in ["SCRAM", "SCRAM over TLS"] {
        all.push(Target::any(5, ("storm", what), "moved", Bound::AtMost(1.5)));
    }
    for what in ["COPY out", "COPY in", "1 MB rows"] {
        all.push(Target::any(6, ("big", what), "mb_per_s", Bound::OfLesserAtLeast(1.5)));
        all.push(Target::any(6, ("big", what), "cpu_s_per_gb", Bound::RatioAtMost(0.5)));
    }
    for what in ["40 MB values out, TLS", "40 MB values in, TLS"] {
        all.push(Target::any(6, ("big", what), "mb_per_s", Bound::RatioAtLeast(1.0)));
    }
    for clients in [8, 32, 128, 1000] {
        all.push(Target::new(7, ("workers", "simple"), clients, "cpu_us", Bound::ToOneWorkerAtMost(1.1)));
        all.push(Target::new(7, ("workers", "simple"), clients, "messages", Bound::AtMost(1.0)));
    }
    all.push(Target::any(8, ("idle", "idle"), "syscalls_per_s", Bound::AtMost(1.0)));
    all.push(Target::any(8, ("idle", "idle"), "wakeups_per_s", Bound::AtMost(1.0)));
    all
}

fn cpu_and_throughput(all: &mut Vec<Target>) {
    for mode in ["simple", "extended", "prepared"] {
        for (clients, ratio) in [(32, 0.6), (128, 0.5), (256, 0.5), (1000, 0.5)] {
            all.push(Target::new(1, ("speed", mode), clients, "cpu_us", Bound::RatioAtMost(ratio)));
        }
    }
    for mode in ["simple", "extended", "prepared"] {
        for clients in [32, 128] {
            let epoll = Target::new(1, ("speed", mode), clients, "cpu_us", Bound::RatioAtMost(0.8));
            all.push(Target { driver: Some(SECOND_DRIVER), ..epoll });
        }
    }
    for clients in [32, 128] {
        all.push(Target::new(1, ("tls", "simple, TLS"), clients, "cpu_us", Bound::RatioAtMost(0.6)));
    }
    for (what, clients) in [("trust", 8), ("trust", 32), ("SCRAM", 8)] {
        all.push(Target::new(1, ("connect", what), clients, "cpu_us", Bound::RatioAtMost(0.5)));
    }
    for mode in ["simple", "extended", "prepared"] {
        for (clients, bound) in [
            (1, Bound::OfBestAtLeast(1.2)),
            (8, Bound::OfBestWithinNoise(1.0)),
            (32, Bound::OfBestAtLeast(1.0)),
            (128, Bound::OfBestAtLeast(1.2)),
            (256, Bound::OfBestAtLeast(1.2)),
            (1000, Bound::OfBestAtLeast(1.2)),
        ] {
            all.push(Target::new(2, ("speed", mode), clients, "tps", bound));
        }
    }
}

fn few_clients(all: &mut Vec<Target>) {
    for what in ["simple", "simple, beside a stranger"] {
        for clients in few::CLIENTS {
            all.push(Target::new(2, ("few", what), clients, "tps", Bound::OfBestAtLeast(1.0)));
            all.push(Target::new(2, ("few", what), clients, "cpu_us", Bound::RatioAtMost(1.0)));
            all.push(Target::new(2, ("few", what), clients, "p99_us", Bound::RatioAtMost(1.0)));
        }
    }
}

/// How a target was met or missed.
pub struct Verdict {
    pub clients: usize,
    pub ours: Spread,
    /// Whose figure it was held against, if anybody's.
    pub theirs: Option<(String, Spread)>,
    pub ratio: Option<Spread>,
    pub met: bool,
}

impl Target {
    /// `None` where something that it needs was not measured. `rows` are those of its part.
    pub fn judge(&self, rows: &[Row]) -> Option<Verdict> {
        let own = |row: &&Row| {
            let driver = self.driver.is_none_or(|driver| row.peer == driver);
            row.what == self.what && row.peer.starts_with(OURS) && driver
        };
        let clients = self.clients.or_else(|| rows.iter().filter(own).map(|row| row.clients).max())?;
        let here = |row: &&Row| row.what == self.what && row.clients == clients;
        let sixteen = workers::name(16);
        let mut ours = rows.iter().filter(here).filter(own);
        let ours = match self.part {
            "workers" => ours.find(|row| row.peer == sixteen),
            _ => ours.find(|row| row.value(self.figure).is_some()),
        }?;
        let own_value = ours.value(self.figure)?;
        let alone = |met: bool| Some(Verdict { clients, ours: own_value, theirs: None, ratio: None, met });
        let beside = |other: &Row, times: f64, met: &dyn Fn(Spread) -> bool| {
            let ratio = ours.ratio_to(other, self.figure)?;
            let ratio = ratio.map(|ratio| ratio / times);
            let theirs = Some((other.peer.to_owned(), other.value(self.figure)?));
            Some(Verdict { clients, ours: own_value, theirs, ratio: Some(ratio), met: met(ratio) })
        };
        let named = |name: &str| rows.iter().filter(here).find(|row| row.peer == name);
        match self.bound {
            Bound::AtMost(most) => alone(own_value.median <= most),
            Bound::AtLeast(least) => alone(own_value.median >= least),
            Bound::RatioAtMost(most) => beside(named(BASELINE)?, 1.0, &|ratio| ratio.median <= most),
            Bound::RatioAtLeast(least) => beside(named(BASELINE)?, 1.0, &|ratio| ratio.median >= least),
            Bound::ToOneWorkerAtMost(most) => beside(named(&workers::name(1))?, 1.0, &|ratio| ratio.median <= most),
            Bound::OfBestAtLeast(least) => {
                beside(best(rows.iter().filter(here), self.figure)?, 1.0, &|ratio| ratio.median >= least)
            }
            Bound::OfBestWithinNoise(least) => {
                beside(best(rows.iter().filter(here), self.figure)?, 1.0, &|ratio| ratio.high >= least)
            }
            Bound::OfLesserAtLeast(times) => {
                let (pgbouncer, direct) = (named(BASELINE)?, named(DIRECT)?);
                let wanted = pgbouncer.value(self.figure)?.median * times;
                // A tenth of a percent less than the direct connection is as fast.
                let reached = |ratio: Spread| ratio.median >= 0.999;
                if wanted <= direct.value(self.figure)?.median {
                    beside(pgbouncer, times, &reached)
                } else {
                    beside(direct, 1.0, &reached)
                }
            }
        }
    }

    pub fn wanted(&self) -> String {
        match self.bound {
            Bound::RatioAtMost(most) | Bound::ToOneWorkerAtMost(most) => format!("× ≤ {most}"),
            Bound::RatioAtLeast(least) => format!("× ≥ {least}"),
            Bound::OfBestAtLeast(least) => format!("× ≥ {least} of the best"),
            Bound::OfBestWithinNoise(least) => format!("× ≥ {least} of the best, within noise"),
            Bound::OfLesserAtLeast(times) => format!("{times} × {BASELINE} or {DIRECT}"),
            Bound::AtMost(most) => format!("≤ {most}"),
            Bound::AtLeast(least) => format!("≥ {least}"),
        }
    }
}

fn best<'r, 'a: 'r>(rows: impl Iterator<Item = &'r Row<'a>>, figure: &str) -> Option<&'r Row<'a>> {
    let median = |row: &Row| row.value(figure).map_or(0.0, |spread| spread.median);
    let others = rows.filter(|row| !row.peer.starts_with(OURS) && row.peer != DIRECT);
    others.max_by(|a, b| median(a).total_cmp(&median(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts;
    use crate::report::summary::rows;
    use crate::report::summary::tests::sample;
    use weir_measure::journal::Record;

    fn judge(bound: Bound, figure: &'static str, records: &[Record]) -> Option<(bool, Option<f64>)> {
        let target = Target::any(1, ("speed", "simple"), figure, bound);
        let verdict = target.judge(&rows(records))?;
        Some((verdict.met, verdict.ratio.map(|ratio| ratio.median)))
    }

    #[test]
    fn each_target_names_a_part_and_a_figure_that_exist() {
        for target in all() {
            let part = parts::find(target.part).unwrap();
            assert!(part.figures.iter().any(|figure| figure.key == target.figure), "{} {}", target.part, target.figure);
        }
    }

    #[test]
    fn the_best_is_neither_ours_nor_direct() {
        let records = [
            sample("direct", 0, &[("tps", 900.0)]),
            sample(BASELINE, 0, &[("tps", 100.0)]),
            sample("fast", 0, &[("tps", 200.0)]),
            sample("Weir io_uring", 0, &[("tps", 220.0)]),
        ];
        assert_eq!(judge(Bound::OfBestAtLeast(1.2), "tps", &records), Some((false, Some(1.1))));
        assert_eq!(judge(Bound::OfBestAtLeast(1.1), "tps", &records), Some((true, Some(1.1))));
        assert_eq!(judge(Bound::RatioAtLeast(2.0), "tps", &records), Some((true, Some(2.2))));
        assert_eq!(judge(Bound::AtMost(219.0), "tps", &records), Some((false, None)));
        assert_eq!(judge(Bound::RatioAtMost(1.0), "absent", &records), None);
    }

    #[test]
    fn whichever_is_less_is_enough() {
        let records = |direct: f64, ours: f64| {
            [
                sample("direct", 0, &[("mb_per_s", direct)]),
                sample(BASELINE, 0, &[("mb_per_s", 100.0)]),
                sample("Weir io_uring", 0, &[("mb_per_s", ours)]),
            ]
        };
        assert_eq!(judge(Bound::OfLesserAtLeast(1.5), "mb_per_s", &records(120.0, 120.0)), Some((true, Some(1.0))));
        assert_eq!(judge(Bound::OfLesserAtLeast(1.5), "mb_per_s", &records(500.0, 75.0)), Some((false, Some(0.5))));
    }

    #[test]
    fn a_round_that_reaches_it_is_within_noise() {
        let records = [
            sample(BASELINE, 0, &[("tps", 100.0)]),
            sample("Weir io_uring", 0, &[("tps", 90.0)]),
            sample(BASELINE, 1, &[("tps", 100.0)]),
            sample("Weir io_uring", 1, &[("tps", 101.0)]),
        ];
        assert!(judge(Bound::OfBestWithinNoise(1.0), "tps", &records).unwrap().0);
        assert!(!judge(Bound::OfBestAtLeast(1.0), "tps", &records).unwrap().0);
    }
}
