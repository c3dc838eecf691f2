//! pgbench's logs of transactions: where they are, and the latencies in them.
//!
//! Does not know how pgbench is run.

use std::fs;
use std::path::{Path, PathBuf};

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

    /// Latencies of all of them, in microseconds.
    pub fn histogram(&self) -> Result<Histogram<u64>> {
        let mut histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).context("a histogram's bounds")?;
        for log in self.all()? {
            let text = fs::read_to_string(&log).with_context(|| format!("cannot read {}", log.display()))?;
            record(&text, &mut histogram);
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

/// A log's lines: client, transaction, latency in microseconds, script, and the time it ended. A disk that was full may
/// have cut it anywhere.
fn record(text: &str, histogram: &mut Histogram<u64>) {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let latencies = whole.lines().filter_map(|line| line.split(' ').nth(2)?.parse::<u64>().ok());
    for latency_us in latencies {
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
        record(&format!("{lines}3 101 99"), &mut histogram);
        assert_eq!(histogram.len(), 100);
        assert_eq!((histogram.value_at_quantile(0.5), histogram.value_at_quantile(0.99)), (50, 99));
    }
}
