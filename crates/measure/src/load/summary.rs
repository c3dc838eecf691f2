//! What pgbench prints (PostgreSQL 14 and later), read.
//!
//! Does not know how pgbench is run.

/// A second of a run, as a line of `-P 1` has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    pub tps: f64,
    /// Absent where no transaction ended in it.
    pub mean_ms: Option<f64>,
}

/// All seconds so far, from `progress: 2.0 s, 812.0 tps, lat 1.228 ms stddev 0.2, 0 failed`. A line that came late stands for all
/// seconds since the one before it.
pub fn seconds(output: &str) -> Vec<Second> {
    let mut seconds = Vec::new();
    // The last line may be half written.
    let whole = output.rfind('\n').map_or("", |end| &output[..end]);
    for line in whole.lines().filter_map(|line| line.strip_prefix("progress: ")) {
        let Some((until, second)) = read_second(line) else { continue };
        let missing = crate::statistics::count(until).saturating_sub(seconds.len());
        seconds.extend(std::iter::repeat_n(second, missing.min(SECONDS_LATE_MAX)));
    }
    seconds
}

/// A line that stands for more is not one of pgbench's.
const SECONDS_LATE_MAX: usize = 600;

fn read_second(line: &str) -> Option<(f64, Second)> {
    let mut parts = line.split(", ");
    let until = parts.next()?.strip_suffix(" s")?.parse().ok()?;
    let tps = parts.next()?.strip_suffix(" tps")?.parse().ok()?;
    let mean_ms = parts.next().and_then(|part| part.strip_prefix("lat ")?.split(' ').next()?.parse::<f64>().ok());
    Some((until, Second { tps, mean_ms: mean_ms.filter(|mean| mean.is_finite() && tps > 0.0) }))
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

    /// Of a run that did not come to its end, from its seconds.
    pub fn of_seconds(seconds: &[Second]) -> Option<Summary> {
        let rates: Vec<f64> = seconds.iter().map(|second| second.tps).collect();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let transactions = rates.iter().sum::<f64>().round() as u64;
        Some(Summary { transactions, tps: crate::statistics::mean(&rates)?, ..Summary::default() })
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
                      progress: 2.0 s, 300.0 tps, lat 1.4 ms stddev 0.1, 0 failed\nprogress: 3.0 s, 9";
        let all = seconds(output);
        assert_eq!(all, [(100.0, 1.2), (300.0, 1.4)].map(|(tps, ms)| Second { tps, mean_ms: Some(ms) }));
        let summary = Summary::of_seconds(&all).unwrap();
        assert_eq!((summary.transactions, summary.tps), (400, 200.0));
        assert_eq!(Summary::of_seconds(&seconds("starting\n")), None);
    }

    #[test]
    fn a_second_without_a_transaction_and_one_that_came_late_are_seconds() {
        let output = "progress: 1.0 s, 0.0 tps, lat -nan ms stddev -nan, 0 failed\n\
                      progress: 3.1 s, 50.0 tps, lat 20.0 ms stddev 0.1, 0 failed\n";
        let late = Second { tps: 50.0, mean_ms: Some(20.0) };
        assert_eq!(seconds(output), [Second { tps: 0.0, mean_ms: None }, late, late]);
        let throttled = "progress: 1.0 s, 9.8 tps, lat 2.1 ms stddev 0.5, 0 failed, lag 0.1 ms\n";
        assert_eq!(seconds(throttled), [Second { tps: 9.8, mean_ms: Some(2.1) }]);
    }
}
