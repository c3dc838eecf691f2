//! What a load generator has seen: latencies by phase, each client's waits, logins, failures, and its own cost.
//!
//! Knows numbers only. Tallies of several threads are added up.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// Phase 0 is not recorded: connecting, warming up.
pub const PHASES: usize = 5;
/// An average of fewer waits says nothing about a client, unless nobody has more.
const WAITS_MIN: u64 = 3;
const LATENCY_US_MAX: u64 = 600_000_000;

/// One client's waits for replies in phase 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    pub count: u64,
    pub sum_us: u64,
    pub max_us: u64,
}

impl Waits {
    pub fn add(&mut self, wait_us: u64) {
        self.count += 1;
        self.sum_us += wait_us;
        self.max_us = self.max_us.max(wait_us);
    }
}

pub struct Tally {
    /// By phase; the first stays empty.
    pub latency: Vec<Histogram<u64>>,
    pub clients: Vec<Waits>,
    pub login: Histogram<u64>,
    pub resumed: u64,
    pub failures: u64,
    pub first_failure: Option<String>,
    /// The CPU time of the busiest thread as a share of the time that it ran queries.
    pub busy: f64,
}

impl Tally {
    pub fn new() -> Result<Tally> {
        Ok(Tally {
            latency: (0..PHASES).map(|_| histogram()).collect::<Result<_>>()?,
            clients: Vec::new(),
            login: histogram()?,
            resumed: 0,
            failures: 0,
            first_failure: None,
            busy: 0.0,
        })
    }

    pub fn fail(&mut self, reason: String) {
        self.failures += 1;
        self.first_failure.get_or_insert(reason);
    }

    pub fn add(&mut self, other: Tally) -> Result<()> {
        for (mine, theirs) in self.latency.iter_mut().zip(&other.latency) {
            mine.add(theirs).context("histograms of different bounds")?;
        }
        self.login.add(&other.login).context("histograms of different bounds")?;
        self.clients.extend(other.clients);
        self.resumed += other.resumed;
        self.failures += other.failures;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.busy = self.busy.max(other.busy);
        Ok(())
    }

    pub fn fairness(&self) -> Option<Fairness> {
        Fairness::of(&self.clients)
    }
}

fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("a histogram's bounds")
}

pub fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX).clamp(1, LATENCY_US_MAX)
}

/// How waits are spread over clients: 1 is perfectly even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fairness {
    /// The average wait of the client that waited longest on average, to the average of all waits.
    pub slowest_client: f64,
    /// The longest single wait to the average of all waits.
    pub longest_wait: f64,
}

impl Fairness {
    pub fn of(clients: &[Waits]) -> Option<Fairness> {
        let served = || clients.iter().filter(|waits| waits.count > 0);
        let (count, sum_us) = served().fold((0, 0), |(count, sum), waits| (count + waits.count, sum + waits.sum_us));
        if count == 0 || sum_us == 0 {
            return None;
        }
        let most = served().map(|waits| waits.count).max().unwrap_or_default();
        let average = to_f64(sum_us) / to_f64(count);
        let known = served().filter(|waits| waits.count >= WAITS_MIN || waits.count == most);
        let slowest = known.map(|waits| to_f64(waits.sum_us) / to_f64(waits.count)).fold(0.0, f64::max);
        let longest = served().map(|waits| waits.max_us).max().unwrap_or_default();
        Some(Fairness { slowest_client: slowest / average, longest_wait: to_f64(longest) / average })
    }
}

/// Figures of this size (microseconds, KiB, bytes of a run) are exact in an f64.
#[allow(clippy::cast_precision_loss)]
pub fn to_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_compares_clients_with_the_average_of_all_waits() {
        let even = Waits { count: 3, sum_us: 30, max_us: 20 };
        let slow = Waits { count: 3, sum_us: 90, max_us: 40 };
        let fairness = Fairness::of(&[even, slow, Waits::default()]).unwrap();
        assert_eq!(fairness, Fairness { slowest_client: 1.5, longest_wait: 2.0 });
        let once = Waits { count: 1, sum_us: 120, max_us: 120 };
        let fairness = Fairness::of(&[even, even, even, once]).unwrap();
        assert_eq!(fairness, Fairness { slowest_client: 10.0 / 21.0, longest_wait: 120.0 / 21.0 });
        assert_eq!(Fairness::of(&[Waits::default()]), None);
    }

    #[test]
    fn tallies_add_up() {
        let mut first = Tally::new().unwrap();
        let mut second = Tally::new().unwrap();
        first.latency[1].record(10).unwrap();
        second.latency[1].record(30).unwrap();
        second.fail("late".to_owned());
        second.busy = 0.5;
        let mut waits = Waits::default();
        waits.add(7);
        second.clients.push(waits);
        first.add(second).unwrap();
        assert_eq!((first.latency[1].len(), first.failures, first.clients.len()), (2, 1, 1));
        assert_eq!((first.first_failure.as_deref(), first.busy), (Some("late"), 0.5));
    }
}
