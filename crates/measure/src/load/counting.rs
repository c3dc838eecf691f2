//! A run of pgbench as it goes on, a process for each node: until it is warm, while it is counted, and its end.
//!
//! Knows what pgbench prints once a second; does not know its arguments.

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitStatus;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::errors;
use super::summary::{Second, Summary, seconds};
use crate::ground::running::Running;
use crate::series::{Series, WarmUp};
use crate::statistics::{mean, place};
use crate::url::Url;

/// How often what pgbench printed is read.
const READ_EVERY: Duration = Duration::from_millis(50);
/// After it was told to end: for the slowest last transaction.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// What can be seen of a run from outside.
pub struct Progress {
    /// Of its processes: one for each node.
    pub pids: Vec<Pid>,
    /// When all clients were connected and warm; known a second later.
    pub counted_since: Option<Instant>,
    /// Whether the counted seconds are over.
    pub is_over: bool,
}

/// One process of a run.
pub(super) struct Part {
    pub url: Url,
    /// As a reader would repeat it, but for the seconds.
    pub command: String,
    pub threads: usize,
    pub running: Running,
    pub status: Option<ExitStatus>,
    began: Option<Instant>,
    seconds: Vec<Second>,
    next_read: Option<Instant>,
}

impl Part {
    pub fn new(url: Url, command: String, threads: usize, running: Running) -> Part {
        Part { url, command, threads, running, status: None, began: None, seconds: Vec::new(), next_read: None }
    }

    pub fn look(&mut self) -> Result<()> {
        if self.status.is_none() {
            self.status = self.running.ended()?;
        }
        let now = Instant::now();
        if self.status.is_none() && self.next_read.is_some_and(|next| now < next) {
            return Ok(());
        }
        self.next_read = Some(now + READ_EVERY);
        self.seconds = seconds(&self.running.output());
        if self.began.is_none() && !self.seconds.is_empty() {
            self.began = now.checked_sub(Duration::from_secs(self.seconds.len().try_into().unwrap_or(u64::MAX)));
        }
        Ok(())
    }

    pub fn has_begun(&self) -> bool {
        self.began.is_some()
    }

    /// Its seconds since the last part of all began.
    fn since(&self, last: Instant) -> &[Second] {
        let early = self.began.map_or(0.0, |began| (last - began).as_secs_f64());
        self.seconds.get(crate::statistics::count(early)..).unwrap_or_default()
    }

    /// What it said at its end; what it said until then where it did not come there.
    pub fn summary(&self) -> Option<Summary> {
        Summary::read(&self.running.output()).or_else(|| Summary::of_seconds(&self.seconds))
    }

    pub fn error_kinds(&self) -> BTreeMap<String, u64> {
        errors::kinds(&self.url.hide_password(&self.running.output()))
    }
}

/// All processes of a run.
pub(super) struct Counting {
    pub parts: Vec<Part>,
    pub progress: Progress,
    warm_up: WarmUp,
    clients: usize,
    /// To be counted; none of a run by transactions, which ends by itself.
    seconds: usize,
    /// The first second that counts, and whether it is warm then.
    warm: Option<(usize, bool)>,
    told_to_end: Option<Instant>,
}

impl Counting {
    pub fn new(parts: Vec<Part>, warm_up: WarmUp, clients: usize, seconds: u64) -> Counting {
        let pids = parts.iter().map(|part| part.running.pid()).collect();
        let progress = Progress { pids, counted_since: None, is_over: false };
        let seconds = usize::try_from(seconds).unwrap_or(usize::MAX);
        Counting { parts, progress, warm_up, clients, seconds, warm: None, told_to_end: None }
    }

    /// Whether it is over: all have ended, or do not end.
    pub fn look(&mut self) -> Result<bool> {
        self.parts.iter_mut().try_for_each(Part::look)?;
        if self.parts.iter().all(|part| part.status.is_some()) {
            self.progress.is_over = true;
            return Ok(true);
        }
        let Some(began) = all_began(&self.parts) else { return Ok(false) };
        if self.seconds == 0 {
            self.progress.counted_since = Some(began);
            return Ok(false);
        }
        let rates = self.rates();
        self.warm = self.warm.or_else(|| self.warm_up.end(&rates, self.clients));
        if let Some((warm_up, _)) = self.warm {
            self.progress.counted_since = Some(began + whole_seconds(warm_up));
            if rates.len() >= warm_up + self.seconds && self.told_to_end.is_none() {
                // Whoever looks sees all processes once more before they end.
                if self.progress.is_over {
                    self.told_to_end = Some(Instant::now());
                    self.end();
                }
                self.progress.is_over = true;
            }
        }
        Ok(self.told_to_end.is_some_and(|told| told.elapsed() > END_PATIENCE))
    }

    /// The alarm with which pgbench itself ends a run by time.
    fn end(&self) {
        for part in self.parts.iter().filter(|part| part.status.is_none()) {
            // One that has just ended is what it is for.
            let _ = kill(part.running.pid(), Signal::SIGALRM);
        }
    }

    /// Of all parts together, second by second since the last one began.
    fn rates(&self) -> Vec<f64> {
        together(&self.aligned()).iter().map(|second| second.tps).collect()
    }

    fn aligned(&self) -> Vec<&[Second]> {
        let Some(last) = all_began(&self.parts) else { return Vec::new() };
        self.parts.iter().map(|part| part.since(last)).collect()
    }

    /// What was counted; `None` where a run ended before, or goes by transactions.
    pub fn counted(&self) -> Option<Counted> {
        let (warm_up, is_warm) = self.warm?;
        let all = together(&self.aligned());
        let counted = all.get(warm_up..).filter(|counted| !counted.is_empty())?;
        let counted = &counted[..counted.len().min(self.seconds)];
        let per_second: Vec<f64> = all[..warm_up + counted.len()].iter().map(|second| second.tps).collect();
        let series = Series { per_second, warm_up, is_warm };
        let transactions: f64 = counted.iter().map(|second| second.tps).sum();
        let spent_ms: f64 = counted.iter().filter_map(|second| Some(second.mean_ms? * second.tps)).sum();
        let since = self.progress.counted_since?;
        let from = SystemTime::now().checked_sub(since.elapsed())?;
        Some(Counted {
            tps: mean(series.counted())?,
            transactions,
            mean_ms: (transactions > 0.0).then(|| spent_ms / transactions),
            window: from..from + whole_seconds(counted.len()),
            series,
        })
    }

    /// What a reader has to write for the same seconds.
    pub fn command(&self) -> String {
        let counted = self.warm.map_or(0, |(warm_up, _)| warm_up) + self.seconds;
        command_of(&self.parts, counted.try_into().unwrap_or(u64::MAX))
    }

    /// How long after the first process the last one began, where there are several.
    pub fn began_apart(&self) -> Duration {
        let began = || self.parts.iter().filter_map(|part| part.began);
        began().max().zip(began().min()).map_or(Duration::ZERO, |(last, first)| last - first)
    }
}

/// The seconds that count.
pub(super) struct Counted {
    pub series: Series,
    pub tps: f64,
    pub transactions: f64,
    pub mean_ms: Option<f64>,
    pub window: Range<SystemTime>,
}

/// As many seconds as all have; means count by transactions.
fn together(parts: &[&[Second]]) -> Vec<Second> {
    let length = parts.iter().map(|part| part.len()).min().unwrap_or(0);
    let all_at = |at: usize| {
        let tps = parts.iter().map(|part| part[at].tps).sum();
        let spent_ms: f64 = parts.iter().filter_map(|part| Some(part[at].mean_ms? * part[at].tps)).sum();
        Second { tps, mean_ms: (tps > 0.0).then(|| spent_ms / tps) }
    };
    (0..length).map(all_at).collect()
}

/// When the last of them began; `None` until then.
pub(super) fn all_began(parts: &[Part]) -> Option<Instant> {
    let all: Option<Vec<Instant>> = parts.iter().map(|part| part.began).collect();
    all?.into_iter().max()
}

/// In the commands: where the seconds stand.
pub(super) const SECONDS: &str = "{seconds}";

/// As a reader would repeat it.
pub(super) fn command_of(parts: &[Part], seconds: u64) -> String {
    let commands: Vec<String> = parts.iter().map(|part| part.command.replace(SECONDS, &seconds.to_string())).collect();
    commands.join(" & ")
}

fn whole_seconds(count: usize) -> Duration {
    Duration::from_secs_f64(place(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_side_by_side_add_up_second_by_second() {
        let second = |tps, mean_ms| Second { tps, mean_ms };
        let one = [second(30.0, Some(1.0)), second(0.0, None), second(9.0, Some(1.0))];
        let other = [second(10.0, Some(5.0)), second(0.0, None)];
        assert_eq!(together(&[&one, &other]), [second(40.0, Some(2.0)), second(0.0, None)]);
        assert!(together(&[]).is_empty() && together(&[&one, &[]]).is_empty());
    }
}
