//! Counters of a pool's share, in PgBouncer's words (SHOW STATS).

use std::ops::AddAssign;

use crate::kept::kinds::Kinds;
use crate::time::{Duration, Time};
use crate::timers::Deadline;

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
    pub(crate) client_logins: u64,
    /// How often a server came to stay with its client, by what it stays for (`Kinds::COUNTED`).
    pub(crate) pins: [u64; Kinds::COUNTED.len()],
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

    /// The averages SHOW STATS prints, of what was counted in a period: counts and bytes a second, times each. They are made of
    /// sums over all pools and workers: an average of averages would be none (`calc_average`, src/stats.c of PgBouncer 1.25.2).
    pub(crate) fn averages(&self, period: Duration) -> [u64; 11] {
        let counted = self.columns();
        std::array::from_fn(|column| match column {
            5 => counted[5] / counted[1].max(1),
            6 => counted[6] / counted[2].max(1),
            7 => counted[7] / counted[0].max(1),
            _ => a_second(counted[column], period),
        })
    }

    pub(crate) fn client_logins_a_second(&self, period: Duration) -> u64 {
        a_second(self.client_logins, period)
    }

    /// As PgBouncer's log has them (`refresh_stats`, src/stats.c of 1.25.2).
    pub(crate) fn for_log(&self, period: Duration) -> String {
        let [_, transactions, queries, received, sent, transaction, query, wait, client_parses, server_parses, binds] =
            self.averages(period);
        format!(
            "stats: {transactions} xacts/s, {queries} queries/s, {client_parses} client parses/s, \
             {server_parses} server parses/s, {binds} binds/s, in {received} B/s, out {sent} B/s, \
             xact {transaction} us, query {query} us, wait {wait} us"
        )
    }

    /// What was counted since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            server_assignments: self.server_assignments.saturating_sub(before.server_assignments),
            transactions: self.transactions.saturating_sub(before.transactions),
            queries: self.queries.saturating_sub(before.queries),
            bytes_received: self.bytes_received.saturating_sub(before.bytes_received),
            bytes_sent: self.bytes_sent.saturating_sub(before.bytes_sent),
            transaction_time: self.transaction_time.saturating_sub(before.transaction_time),
            query_time: self.query_time.saturating_sub(before.query_time),
            wait_time: self.wait_time.saturating_sub(before.wait_time),
            client_parses: self.client_parses.saturating_sub(before.client_parses),
            server_parses: self.server_parses.saturating_sub(before.server_parses),
            binds: self.binds.saturating_sub(before.binds),
            client_logins: self.client_logins.saturating_sub(before.client_logins),
            pins: std::array::from_fn(|kind| self.pins[kind].saturating_sub(before.pins[kind])),
        }
    }
}

fn a_second(count: u64, period: Duration) -> u64 {
    (count as f64 / period.as_secs_f64().max(1e-6)) as u64
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
        self.client_logins += other.client_logins;
        self.pins.iter_mut().zip(other.pins).for_each(|(own, others)| *own += others);
    }
}

/// The period over which averages are told: the last that is over.
#[derive(Debug, Default)]
pub(crate) struct Averages {
    began: Time,
    counted_for: Duration,
    pub(crate) deadline: Deadline,
    /// What workers have told of theirs, for the log, and how many have.
    told: Counters,
    workers_told: u16,
}

impl Averages {
    /// A period is over, and the next begins.
    pub(crate) fn begin(&mut self, now: Time) {
        self.counted_for = now.since(self.began);
        self.began = now;
    }

    /// What one of so many workers has counted in its own. `Some`: now all have told of one.
    pub(crate) fn gather(&mut self, counted: Counters, workers: u16) -> Option<Counters> {
        self.told += counted;
        self.workers_told += 1;
        if self.workers_told < workers {
            return None;
        }
        self.workers_told = 0;
        Some(std::mem::take(&mut self.told))
    }

    /// How long the last one was.
    pub(crate) fn counted_for(&self) -> Duration {
        self.counted_for
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_several_workers_weigh_what_each_did() {
        let busy =
            Counters { transactions: 90, transaction_time: 900, queries: 90, query_time: 90, ..Counters::default() };
        let slow = Counters { transactions: 10, transaction_time: 9_100, queries: 10, query_time: 910, ..busy };
        let mut all = busy;
        all += slow;
        let averages = all.averages(Duration::from_secs(10));
        assert_eq!((averages[1], averages[5], averages[6]), (10, 100, 10));
    }
}
