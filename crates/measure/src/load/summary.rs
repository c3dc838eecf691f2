//! What pgbench prints (PostgreSQL 14 and later), read.
//!
//! Does not know how pgbench is run.

use std::time::Duration;

/// After how many seconds the first line of `-P` says that it was written.
pub fn first_progress(output: &str) -> Option<Duration> {
    let line = output.lines().find_map(|line| line.strip_prefix("progress: "))?;
    Duration::try_from_secs_f64(line.split(' ').next()?.parse().ok()?).ok()
}

/// What pgbench prints at the end, also when some of its clients were aborted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    pub transactions: u64,
    pub tps: f64,
    pub mean_ms: Option<f64>,
    pub connect_ms: Option<f64>,
}

impl Summary {
    /// `None` where pgbench did not come to its end.
    pub fn read(output: &str) -> Option<Summary> {
        let after = |label: &str| output.lines().find_map(|line| line.strip_prefix(label)?.split([' ', '/']).next());
        let number = |label: &str| after(label)?.parse::<f64>().ok();
        Some(Summary {
            transactions: after("number of transactions actually processed: ")?.parse().ok()?,
            // Without a finished transaction pgbench prints no figure, or `nan`.
            tps: number("tps = ").filter(|tps| tps.is_finite()).unwrap_or(0.0),
            mean_ms: number("latency average = ").filter(|mean| mean.is_finite()),
            connect_ms: number("average connection time = ").or_else(|| number("initial connection time = ")),
        })
    }

    /// Of processes that ran side by side: means count by transactions.
    pub fn of_all(parts: &[Summary]) -> Option<Summary> {
        let transactions = parts.iter().map(|part| part.transactions).sum();
        let mean = |of: fn(&Summary) -> Option<f64>| {
            #[expect(clippy::cast_precision_loss)]
            let weighed = parts.iter().filter_map(|part| Some((of(part)?, part.transactions as f64)));
            let (sum, weight) =
                weighed.fold((0.0, 0.0), |(sum, all), (value, weight)| (sum + value * weight, all + weight));
            (weight > 0.0).then(|| sum / weight)
        };
        let (mean_ms, connect_ms) = (mean(|part| part.mean_ms), mean(|part| part.connect_ms));
        let tps = parts.iter().map(|part| part.tps).sum();
        (!parts.is_empty()).then_some(Summary { transactions, tps, mean_ms, connect_ms })
    }

    /// From the lines of `-P 1`: `progress: 2.0 s, 812.0 tps, lat 1.228 ms stddev 0.2, 0 failed`.
    pub fn of_progress(output: &str) -> Option<Summary> {
        let lines = output.lines().filter_map(|line| line.strip_prefix("progress: "));
        let tps: Vec<f64> =
            lines.filter_map(|line| line.split(", ").nth(1)?.strip_suffix(" tps")?.parse().ok()).collect();
        if tps.is_empty() {
            return None;
        }
        let sum: f64 = tps.iter().sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        Some(Summary { transactions: sum.round() as u64, tps: sum / tps.len() as f64, ..Summary::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read_with_and_without_reconnecting() {
        let plain = "number of transactions actually processed: 8123\nnumber of failed transactions: 0 (0.000%)\n\
                     latency average = 0.984 ms\ninitial connection time = 4.1 ms\n\
                     tps = 8128.254 (without initial connection time)\n";
        let expected = Summary { transactions: 8123, tps: 8128.254, mean_ms: Some(0.984), connect_ms: Some(4.1) };
        assert_eq!(Summary::read(plain), Some(expected));
        let reconnecting = "number of transactions actually processed: 77\naverage connection time = 2.5 ms\n\
                            tps = 38.5 (including reconnection times)\n";
        let expected = Summary { transactions: 77, tps: 38.5, mean_ms: None, connect_ms: Some(2.5) };
        assert_eq!(Summary::read(reconnecting), Some(expected));
        let none = Summary::read("number of transactions actually processed: 0\n").unwrap();
        assert_eq!((none.transactions, none.tps), (0, 0.0));
        assert_eq!(Summary::read("pgbench: error: connection refused\n"), None);
    }

    #[test]
    fn processes_side_by_side_do_what_they_do_together() {
        let part = |transactions, tps, mean_ms| Summary { transactions, tps, mean_ms, connect_ms: None };
        let all =
            Summary::of_all(&[part(300, 30.0, Some(1.0)), part(100, 10.0, Some(5.0)), part(0, 0.0, None)]).unwrap();
        assert_eq!(all, part(400, 40.0, Some(2.0)));
        assert_eq!(Summary::of_all(&[]), None);
        assert_eq!(Summary::of_all(&[part(0, 0.0, None)]), Some(Summary::default()));
    }

    #[test]
    fn a_run_without_an_end_has_what_progress_said() {
        let output = "progress: 1.0 s, 100.0 tps, lat 1.2 ms stddev 0.1, 0 failed\n\
                      progress: 2.0 s, 300.0 tps, lat 1.2 ms stddev 0.1, 0 failed\n";
        let summary = Summary::of_progress(output).unwrap();
        assert_eq!((summary.transactions, summary.tps), (400, 200.0));
        assert_eq!(first_progress(output), Some(Duration::from_secs(1)));
        assert_eq!(Summary::of_progress("starting\n"), None);
    }
}
