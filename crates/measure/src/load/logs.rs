//! pgbench's logs of transactions: where they are, and the latencies in them.
//!
//! Does not know how pgbench is run.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hdrhistogram::Histogram;

/// What pgbench is given for `--log-prefix`.
pub const LOG_PREFIX: &str = "transactions";
/// An hour: what waits longer is no transaction.
const LATENCY_US_MAX: u64 = 3_600_000_000;

/// The logs in one directory: one for each thread, `PREFIX.PID` and `PREFIX.PID.THREAD`.
pub struct Logs<'a> {
    pub directory: &'a Path,
}

impl Logs<'_> {
    pub fn remove(&self) -> Result<()> {
        for log in self.all()? {
            fs::remove_file(&log).with_context(|| format!("cannot remove {}", log.display()))?;
        }
        Ok(())
    }

    /// Latencies of transactions that ended within this time, in microseconds; of all without one.
    pub fn histogram(&self, counted: Option<&Range<SystemTime>>) -> Result<Histogram<u64>> {
        let since_epoch = |moment: SystemTime| moment.duration_since(UNIX_EPOCH).unwrap_or_default();
        let counted = counted.map(|counted| since_epoch(counted.start)..since_epoch(counted.end));
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("a histogram's bounds")?;
        for log in self.all()? {
            let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            record(&text, counted.as_ref(), &mut histogram);
        }
        Ok(histogram)
    }

    fn all(&self) -> Result<Vec<PathBuf>> {
        let entries =
            fs::read_dir(self.directory).with_context(|| format!("cannot list {}", self.directory.display()))?;
        let is_log = |path: &PathBuf| {
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(LOG_PREFIX))
        };
        Ok(entries.flatten().map(|entry| entry.path()).filter(is_log).collect())
    }
}

/// A log's lines: client, transaction, latency in microseconds, script, and the second and microsecond when it ended. A disk
/// that was full may have cut it anywhere.
fn record(text: &str, counted: Option<&Range<Duration>>, histogram: &mut Histogram<u64>) {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        let Some(latency_us) = number(2) else { continue };
        let ended = number(4).zip(number(5)).map(|(s, us)| Duration::from_secs(s) + Duration::from_micros(us));
        if counted.is_some_and(|counted| !ended.is_some_and(|ended| counted.contains(&ended))) {
            continue;
        }
        histogram.saturating_record(latency_us.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_gives_quantiles_also_when_it_was_cut() {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).unwrap();
        let lines: String = (1..=100).map(|us| format!("0 {us} {us} 0 1700000000 5\n")).collect();
        record(&format!("{lines}3 101 99"), None, &mut histogram);
        assert_eq!(histogram.len(), 100);
        assert_eq!((histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99)), (50, 99));
    }

    #[test]
    fn what_ended_while_it_was_not_counted_is_left_out() {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).unwrap();
        let lines =
            "0 1 900 0 1700000000 999999\n0 2 20 0 1700000001 0\n0 3 30 0 1700000001 999999\n0 4 800 0 1700000002 0\n";
        let counted = Duration::from_secs(1_700_000_001)..Duration::from_secs(1_700_000_002);
        record(lines, Some(&counted), &mut histogram);
        assert_eq!((histogram.len(), histogram.max()), (2, 30));
    }
}
