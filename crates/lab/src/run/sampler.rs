//! What a machine and its processes used while pgbench measured, and nothing of when it connected.
//!
//! Cumulated CPU times are read again and again; afterwards those inside the measured time count. Does not know pgbench's
//! output, nor what the figures mean.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::awake::Awake;
use super::site::ServerMemory;
use crate::targets::given::POOLERS;
use weir_measure::doubt::Used;
use weir_measure::ground::strangers::{Watch, Whose, counted_cores};
use weir_measure::ground::{family, process};
use weir_measure::load::pgbench::Progress;

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
#[derive(Clone)]
pub struct Processes {
    pub pooler: Vec<Pid>,
    pub postmasters: Vec<Pid>,
    /// Of the server's processes, those that serve this role; `None`: any.
    pub role: Option<&'static str>,
    /// Whether any of what is measured runs here.
    pub local: bool,
}

impl Processes {
    fn watch(&self, cores: usize) -> Watch {
        let servers = self.postmasters.iter().map(|pid| (*pid, Whose::Server));
        let known: Vec<(Pid, Whose)> = servers.chain(self.pooler.iter().map(|pid| (*pid, Whose::Pooler))).collect();
        let watch = Watch::new(cores, &known);
        // In a container, or behind what we may not look into, it serves all the same.
        if self.local && self.postmasters.is_empty() { watch.with_servers(&SERVERS) } else { watch }
    }
}

const SERVERS: [&str; 2 + POOLERS.len()] = {
    let mut names = ["postgres"; 2 + POOLERS.len()];
    names[1] = "postmaster";
    let mut index = 0;
    while index < POOLERS.len() {
        names[2 + index] = POOLERS[index];
        index += 1;
    }
    names
};

pub struct Sampler<'a> {
    seconds: f64,
    /// That this process may use.
    cores: usize,
    processes: Processes,
    awake: Option<&'a Awake>,
    box_cpu: Track,
    pooler_cpu: Track,
    server_cpu: Track,
    load_cpu: Track,
    threads: BTreeMap<i32, Track>,
    watch: Watch,
    counted_since: Option<Instant>,
    is_over: bool,
    memory: MemoryLook,
    pooler_kib: Option<u64>,
}

/// What was used while pgbench measured; absent where it could not be seen.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    pub used: Used,
    pub pooler_cores: Option<f64>,
    pub server_cores: Option<f64>,
    pub pooler_private_kib: Option<u64>,
    /// Of processes that serve clients, their number among it.
    pub server_memory: Option<ServerMemory>,
}

impl<'a> Sampler<'a> {
    pub fn new(seconds: u64, cores: usize, processes: Processes, awake: Option<&'a Awake>) -> Sampler<'a> {
        Sampler {
            #[expect(clippy::cast_precision_loss)]
            seconds: seconds as f64,
            cores,
            watch: processes.watch(cores),
            processes,
            awake,
            box_cpu: Track::default(),
            pooler_cpu: Track::default(),
            server_cpu: Track::default(),
            load_cpu: Track::default(),
            threads: BTreeMap::new(),
            counted_since: None,
            is_over: false,
            memory: MemoryLook::NotYet,
            pooler_kib: None,
        }
    }

    /// To be called every few milliseconds.
    pub fn look(&mut self, progress: &Progress) {
        let (awake, cores) = (self.awake, self.cores);
        self.box_cpu.look(Instant::now(), || {
            Some(box_busy(cores)?.saturating_sub(awake.map_or(Duration::ZERO, Awake::cpu_time)))
        });
        self.load_cpu.look(Instant::now(), || sum_of(&progress.pids, process::cpu_time));
        for (thread, used) in progress.pids.iter().flat_map(|pid| process::thread_cpu_times(*pid)) {
            self.threads.entry(thread).or_default().look(Instant::now(), || Some(used));
        }
        self.watch.look(progress.is_over && !self.is_over);
        self.is_over = progress.is_over;
        let Processes { pooler, postmasters, .. } = &self.processes;
        self.pooler_cpu.look(Instant::now(), || sum_of(pooler, process::cpu_time));
        self.server_cpu.look(Instant::now(), || sum_of(postmasters, family::family_cpu_time));
        self.counted_since = progress.counted_since;
        let due = |since: Instant| since.elapsed().as_secs_f64() >= self.seconds * MEMORY_AFTER_PART;
        if self.counted_since.is_some_and(due) {
            self.look_at_memory();
        }
    }

    fn look_at_memory(&mut self) {
        if matches!(self.memory, MemoryLook::NotYet) {
            let private_kib = |pid| process::memory(pid).map(|memory| memory.private_kib);
            self.pooler_kib = sum_of(&self.processes.pooler, private_kib);
        }
        self.memory.go_on(&self.processes);
    }

    /// When pgbench has ended.
    pub fn usage(self) -> Usage {
        let now = Instant::now();
        let length = Duration::from_secs_f64(self.seconds);
        // A measurement shorter than pgbench's first report ended about now.
        let from = self.counted_since.or_else(|| now.checked_sub(length)).unwrap_or(now);
        let to = if self.seconds > 0.0 { from + length } else { now };
        let threads = self.threads.values().filter_map(|thread| thread.cores(from, to));
        Usage {
            used: Used {
                box_cores: self.box_cpu.cores(from, to),
                load_cores: self.load_cpu.cores(from, to),
                fullest_thread: threads.reduce(f64::max),
                shares: self.watch.shares(from, to),
            },
            pooler_cores: self.pooler_cpu.cores(from, to),
            server_cores: self.server_cpu.cores(from, to),
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
        match self {
            MemoryLook::NotYet if processes.postmasters.is_empty() => {}
            MemoryLook::NotYet => {
                let mut serving: Vec<Pid> =
                    processes.postmasters.iter().flat_map(|pid| family::children(*pid)).collect();
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
            // Under load somebody is served: where nobody was, the look came too late, as with measurements of a second.
            MemoryLook::Looking { left, sum, serving } if left.is_empty() && *serving > 0 => {
                Some(sum.standing_for(*serving))
            }
            // One that did not come to its end says nothing.
            _ => None,
        }
    }
}

/// Over processes that are all there; `None` of none, or where one cannot be read.
fn sum_of<T: std::iter::Sum, E>(pids: &[Pid], read: impl Fn(Pid) -> Result<T, E>) -> Option<T> {
    if pids.is_empty() {
        return None;
    }
    pids.iter().map(|pid| read(*pid).ok()).sum()
}

/// Time that all cores together were neither idle nor taken away by a hypervisor. `None` where the machine has more of them than
/// are ours, as in a container: what its other cores do is not ours to tell.
fn box_busy(cores: usize) -> Option<Duration> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    (counted_cores(&stat) == cores).then(|| busy_ticks(&stat).map(family::ticks_time))?
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
        let cores = counted_cores(&fs::read_to_string("/proc/stat").unwrap());
        assert!(box_busy(cores).is_some() && box_busy(cores + 1).is_none());
        assert_eq!(busy_ticks("intr 5\n"), None);
    }
}
