//! Counters of a pool's share, in PgBouncer's words (SHOW STATS).

use std::ops::AddAssign;

use crate::time::Duration;

/// Totals since the start. Times are in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) server_assignments: u64,
    pub(crate) transactions: u64,
    pub(crate) queries: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) transaction_time: u64,
    pub(crate) query_time: u64,
    pub(crate) wait_time: u64,
    pub(crate) client_parses: u64,
    pub(crate) server_parses: u64,
    pub(crate) binds: u64,
}

impl Counters {
    pub(crate) fn columns(&self) -> [u64; 11] {
        [
            self.server_assignments,
            self.transactions,
            self.queries,
            self.bytes_received,
            self.bytes_sent,
            self.transaction_time,
            self.query_time,
            self.wait_time,
            self.client_parses,
            self.server_parses,
            self.binds,
        ]
    }

    /// The averages SHOW STATS prints, from the growth over a period: counts and bytes a second, times each.
    pub(crate) fn averages(&self, before: &Self, period: Duration) -> [u64; 11] {
        let (now, before) = (self.columns(), before.columns());
        let grown = |column: usize| now[column].saturating_sub(before[column]);
        let a_second = |count: u64| (count as f64 / period.as_secs_f64().max(1e-6)) as u64;
        std::array::from_fn(|column| match column {
            5 => grown(5) / grown(1).max(1),
            6 => grown(6) / grown(2).max(1),
            // PgBouncer divides the waiting by the period, too.
            _ => a_second(grown(column)),
        })
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        self.server_assignments += other.server_assignments;
        self.transactions += other.transactions;
        self.queries += other.queries;
        self.bytes_received += other.bytes_received;
        self.bytes_sent += other.bytes_sent;
        self.transaction_time += other.transaction_time;
        self.query_time += other.query_time;
        self.wait_time += other.wait_time;
        self.client_parses += other.client_parses;
        self.server_parses += other.server_parses;
        self.binds += other.binds;
    }
}
