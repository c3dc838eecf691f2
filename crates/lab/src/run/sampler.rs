//! What a machine and its processes used while pgbench measured, and nothing of when it connected.
//!
//! Cumulated CPU times are read again and again; afterwards those inside the measured time count. Does not know pgbench's
//! output, nor what the figures mean.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::awake::Awake;
use super::site::ServerMemory;
use crate::ground::{family, process};
use crate::load::pgbench::Progress;

const EVERY: Duration = Duration::from_millis(100);
/// A look at thousands of processes is a load too: it may take a hundredth of a core.
const COST_FACTOR: u32 = 100;
/// So many processes are read to stand for all that serve one load.
const MEMORY_PROCESSES_MAX: usize = 8;
/// When of the measured time memory is looked at.
const MEMORY_AFTER_PART: f64 = 0.3;

/// One cumulated CPU time.
#[derive(Default)]
struct Track {
    readings: Vec<(Instant, Duration)>,
    next: Option<Instant>,
}

impl Track {
    fn look(&mut self, now: Instant, read: impl FnOnce() -> Option<Duration>) {
        if self.next.is_some_and(|next| now < next) {
            return;
        }
        let Some(used) = read() else { return };
        let cost = now.elapsed();
        self.readings.push((now, used));
        self.next = Some(now + EVERY.max(cost * COST_FACTOR));
    }

    /// In cores, between the first and the last reading of this time.
    fn cores(&self, from: Instant, to: Instant) -> Option<f64> {
        let inside = || self.readings.iter().filter(|(at, _)| *at >= from && *at <= to);
        let (first, last) = (inside().next()?, inside().next_back()?);
        let seconds = (last.0 - first.0).as_secs_f64();
        (seconds > 0.0).then(|| last.1.saturating_sub(first.1).as_secs_f64() / seconds)
    }
}

/// Whose use is looked at.
pub struct Processes {
    pub pooler: Vec<Pid>,
    pub postmaster: Option<Pid>,
    /// Of the server's processes, those that serve this role; `None`: any.
    pub role: Option<&'static str>,
}

pub struct Sampler<'a> {
    seconds: f64,
    processes: Processes,
    awake: Option<&'a Awake>,
    box_cpu: Track,
    pooler_cpu: Track,
    server_cpu: Track,
    load_cpu: Track,
    measuring_since: Option<Instant>,
    memory: MemoryLook,
    pooler_kib: Option<u64>,
}

/// What was used while pgbench measured; absent where it could not be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    pub box_cores: Option<f64>,
    pub pooler_cores: Option<f64>,
    pub server_cores: Option<f64>,
    pub load_cores: Option<f64>,
    pub pooler_private_kib: Option<u64>,
    /// Of processes that serve clients, their number among it.
    pub server_memory: Option<ServerMemory>,
}

impl<'a> Sampler<'a> {
    pub fn new(seconds: u64, processes: Processes, awake: Option<&'a Awake>) -> Sampler<'a> {
        Sampler {
            #[expect(clippy::cast_precision_loss)]
            seconds: seconds as f64,
            processes,
            awake,
            box_cpu: Track::default(),
            pooler_cpu: Track::default(),
            server_cpu: Track::default(),
            load_cpu: Track::default(),
            measuring_since: None,
            memory: MemoryLook::NotYet,
            pooler_kib: None,
        }
    }

    /// To be called every few milliseconds.
    pub fn look(&mut self, progress: &Progress) {
        let awake = self.awake;
        self.box_cpu
            .look(Instant::now(), || Some(box_busy()?.saturating_sub(awake.map_or(Duration::ZERO, Awake::cpu_time))));
        self.load_cpu.look(Instant::now(), || process::cpu_time(progress.pid).ok());
        if !self.processes.pooler.is_empty() {
            let pooler = &self.processes.pooler;
            self.pooler_cpu.look(Instant::now(), || pooler.iter().map(|pid| process::cpu_time(*pid).ok()).sum());
        }
        if let Some(postmaster) = self.processes.postmaster {
            self.server_cpu.look(Instant::now(), || family::family_cpu_time(postmaster).ok());
        }
        self.measuring_since = progress.measuring_since;
        let due = |since: Instant| since.elapsed().as_secs_f64() >= self.seconds * MEMORY_AFTER_PART;
        if self.measuring_since.is_some_and(due) {
            self.look_at_memory();
        }
    }

    fn look_at_memory(&mut self) {
        if matches!(self.memory, MemoryLook::NotYet) {
            let each = |pid: &Pid| process::memory(*pid).ok().map(|memory| memory.private_kib);
            let pooler = &self.processes.pooler;
            self.pooler_kib = pooler.iter().map(each).sum::<Option<u64>>().filter(|_| !pooler.is_empty());
        }
        self.memory.go_on(&self.processes);
    }

    /// When pgbench has ended.
    pub fn usage(self) -> Usage {
        let now = Instant::now();
        let length = Duration::from_secs_f64(self.seconds);
        // A measurement shorter than pgbench's first report ended about now.
        let from = self.measuring_since.or_else(|| now.checked_sub(length)).unwrap_or(now);
        let to = if self.seconds > 0.0 { from + length } else { now };
        Usage {
            box_cores: self.box_cpu.cores(from, to),
            pooler_cores: self.pooler_cpu.cores(from, to),
            server_cores: self.server_cpu.cores(from, to),
            load_cores: self.load_cpu.cores(from, to),
            pooler_private_kib: self.pooler_kib,
            server_memory: self.memory.seen(),
        }
    }
}

/// A look at a server's processes. Reading one process's memory takes the kernel milliseconds where much is shared, and
/// those serve one load: so a few are read, one at a time, and stand for all.
enum MemoryLook {
    NotYet,
    Looking { left: Vec<Pid>, sum: ServerMemory, serving: usize },
}

impl MemoryLook {
    fn go_on(&mut self, processes: &Processes) {
        let Some(postmaster) = processes.postmaster else { return };
        match self {
            MemoryLook::NotYet => {
                let mut serving = family::children(postmaster);
                serving.retain(|pid| family::serves_a_client(*pid, processes.role));
                let step = serving.len().div_ceil(MEMORY_PROCESSES_MAX).max(1);
                let left = serving.iter().copied().step_by(step).collect();
                *self = MemoryLook::Looking { left, sum: ServerMemory::default(), serving: serving.len() };
            }
            MemoryLook::Looking { left, sum, .. } => {
                if let Some(pid) = left.pop() {
                    sum.add_process(pid);
                }
            }
        }
    }

    fn seen(&self) -> Option<ServerMemory> {
        match self {
            MemoryLook::Looking { left, sum, serving } if left.is_empty() => Some(sum.standing_for(*serving)),
            // One that did not come to its end says nothing.
            _ => None,
        }
    }
}

/// Time that all cores together were neither idle nor taken away by a hypervisor.
fn box_busy() -> Option<Duration> {
    busy_ticks(&fs::read_to_string("/proc/stat").ok()?).map(family::ticks_time)
}

/// `cpu user nice system idle iowait irq softirq steal ...` of proc(5).
fn busy_ticks(stat: &str) -> Option<i64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<i64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = fields[..] else { return None };
    Some(user + nice + system + irq + softirq)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_readings_inside_the_measured_time_count() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let used = [(0, 0), (100, 90), (200, 100), (300, 110), (400, 500)];
        let readings = used.map(|(ms, used)| (at(ms), Duration::from_millis(used))).to_vec();
        let track = Track { readings, next: None };
        let cores = track.cores(at(100), at(300)).unwrap();
        assert!((cores - 0.1).abs() < 1e-9, "{cores}");
        assert_eq!(track.cores(at(310), at(350)), None);
    }

    #[test]
    fn busy_is_neither_idle_nor_stolen() {
        assert_eq!(busy_ticks("cpu  10 20 30 1000 500 1 2 77 0 0\ncpu0 1\n"), Some(63));
        assert!(box_busy().is_some());
        assert_eq!(busy_ticks("intr 5\n"), None);
    }
}
