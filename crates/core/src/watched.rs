//! What is counted for whoever watches Weir, and for nothing else: how long things take, logins, errors (SHOW HISTOGRAMS, LOGINS and ERRORS).

use std::collections::BTreeMap;
use std::ops::{Add, AddAssign};

use crate::stats::Counters;
use crate::time::Duration;

/// How often something took how long: a count for each power of two up to half a minute, and one for what takes longer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Histogram([u64; Self::BOUNDS + 1]);

impl Histogram {
    /// From 64 µs to 33.6 s.
    pub(crate) const BOUNDS: usize = 20;
    const FIRST_BITS: u32 = 6;

    /// Up to so many microseconds.
    #[cfg(test)]
    pub(crate) fn bound_us(place: usize) -> u64 {
        1 << (Self::FIRST_BITS as usize + place)
    }

    /// Times are told in whole microseconds: what is one of 64 took more.
    #[inline]
    pub(crate) fn count(&mut self, took: Duration) {
        let place = (took.0 >> (Self::FIRST_BITS - 1) | 1).ilog2() as usize;
        self.0[place.min(Self::BOUNDS)] += 1;
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// So many more that took nothing.
    pub(crate) fn with_nothing(mut self, count: u64) -> Self {
        self.0[0] += count;
        self
    }

    /// How many took no longer than each bound, and how many there are.
    pub(crate) fn sums(&self) -> [u64; Self::BOUNDS + 1] {
        let mut sum = 0;
        self.0.map(|count| {
            sum += count;
            sum
        })
    }
}

impl Add for Histogram {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Histogram {
    fn add_assign(&mut self, other: Self) {
        self.0.iter_mut().zip(other.0).for_each(|(own, others)| *own += others);
    }
}

/// Of one pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Watched {
    /// Queries that were a transaction each, which most are: these are counted once for both, and in `Counters` not at all (`Watched::add_to`).
    pub(crate) lone: Histogram,
    lone_time: u64,
    /// The others.
    pub(crate) queries: Histogram,
    pub(crate) transactions: Histogram,
    /// For a server, where one was not there at once.
    pub(crate) waits: Histogram,
    pub(crate) server_logins: u64,
    pub(crate) server_logins_failed: u64,
}

impl Watched {
    #[inline]
    pub(crate) fn count_lone(&mut self, took: Duration) {
        self.lone.count(took);
        self.lone_time += took.0;
    }

    /// What the pool has counted, with the queries that were a transaction each.
    pub(crate) fn add_to(&self, mut counters: Counters) -> Counters {
        let lone = self.lone.total();
        // All that is behind one another up to a ReadyForQuery is one, as PgBouncer counts it: a pipeline, and a Parse without an Execute.
        counters.queries += lone + self.queries.total();
        counters.transactions += lone;
        counters.transaction_time += self.lone_time;
        counters.query_time += self.lone_time;
        counters
    }
}

impl AddAssign for Watched {
    fn add_assign(&mut self, other: Self) {
        self.lone += other.lone;
        self.lone_time += other.lone_time;
        self.queries += other.queries;
        self.transactions += other.transactions;
        self.waits += other.waits;
        self.server_logins += other.server_logins;
        self.server_logins_failed += other.server_logins_failed;
    }
}

/// Whose error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Teller {
    PostgreSql,
    Weir,
}

impl Teller {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::PostgreSql => "postgresql",
            Self::Weir => "weir",
        }
    }
}

/// Errors that clients were told, by SQLSTATE.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors(BTreeMap<(Teller, [u8; 5]), u64>);

impl Errors {
    /// PostgreSQL 18 has 263 (`errcodes.txt`), and functions may make up others: those beyond count as `OTHER`.
    const CODES_MAX: usize = 512;
    const OTHER: [u8; 5] = *b"other";

    pub(crate) fn count(&mut self, teller: Teller, code: &[u8]) {
        let code = code.try_into().ok().filter(|code: &[u8; 5]| code.iter().all(u8::is_ascii_alphanumeric));
        let code = code.unwrap_or(Self::OTHER);
        let has_room = self.0.len() < Self::CODES_MAX || self.0.contains_key(&(teller, code));
        *self.0.entry((teller, if has_room { code } else { Self::OTHER })).or_default() += 1;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Teller, &str, u64)> {
        self.0.iter().map(|((teller, code), count)| (*teller, str::from_utf8(code).unwrap_or("other"), *count))
    }
}

impl AddAssign<&Self> for Errors {
    fn add_assign(&mut self, other: &Self) {
        for (key, count) in &other.0 {
            *self.0.entry(*key).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_the_last_of_its_range() {
        let mut histogram = Histogram::default();
        for took in [0, 1, 63, 64, 127, 128, (1 << 25) - 1, 1 << 25, u64::MAX] {
            histogram.count(Duration(took));
        }
        let sums = histogram.sums();
        assert_eq!((Histogram::bound_us(0), Histogram::bound_us(Histogram::BOUNDS - 1)), (64, 1 << 25));
        assert_eq!(sums[..3], [3, 5, 6]);
        assert_eq!(sums[Histogram::BOUNDS - 1..], [7, 9]);
    }

    #[test]
    fn codes_that_a_server_makes_up_take_no_more_room() {
        let mut errors = Errors::default();
        for number in 0..10_000 {
            errors.count(Teller::PostgreSql, format!("{number:05}").as_bytes());
        }
        errors.count(Teller::PostgreSql, b"\"\n\\");
        errors.count(Teller::Weir, b"57014");
        let (codes, other) = (errors.0.len(), errors.0[&(Teller::PostgreSql, Errors::OTHER)]);
        assert_eq!((codes, other), (Errors::CODES_MAX + 2, 10_001 - Errors::CODES_MAX as u64));
        assert_eq!(errors.iter().map(|(_, _, count)| count).sum::<u64>(), 10_002);
    }
}
