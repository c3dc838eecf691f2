//! What this machine shows of a server that runs on it: cores, memory, how busy it is, and what its processes hold.
//!
//! Whether the server does run here is seen from its own processes' numbers, not from its address: a tunnel's is ours too.

use std::fs;
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::facts::BackendMemory;
use weir_measure::ground::family;
use weir_measure::ground::machine::Machine;
use weir_measure::statistics::Spread;

/// The names of PostgreSQL's program.
const PROGRAMS: [&str; 2] = ["postgres", "postmaster"];
/// So far a server's clock and the kernel's count of a process's age may be apart: the latter does not see a clock that is set.
const CLOCK_SECONDS: f64 = 5.0;

/// Whether these processes of a server are PostgreSQL's processes of this machine, whose postmaster `started` then too:
/// numbers alone may be the same on machines that were made from one image. Some may have ended meanwhile.
pub fn runs_here(processes: &[i32], started: Option<f64>) -> bool {
    let named: Vec<(Pid, String)> = processes
        .iter()
        .map(|pid| Pid::from_raw(*pid))
        .filter_map(|pid| Some((pid, family::program_name(pid)?)))
        .collect();
    let same_start = |pid: Pid| {
        let began = started_at(family::parent(pid)?)?;
        Some((began - started?).abs() <= CLOCK_SECONDS)
    };
    let is_ours = |(pid, name): &(Pid, String)| PROGRAMS.contains(&name.as_str()) && same_start(*pid) == Some(true);
    !named.is_empty() && named.iter().all(is_ours)
}

/// When a process started, in seconds since 1970.
fn started_at(pid: Pid) -> Option<f64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + family::start_time(pid)?.as_secs_f64())
}

/// Processor time of all cores since the machine's start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    busy: f64,
    all: f64,
}

impl Processor {
    pub fn now() -> Option<Processor> {
        Processor::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`; guests are counted in user and nice.
    fn of(stat: &str) -> Option<Processor> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> = line.split_whitespace().take(8).filter_map(|field| field.parse().ok()).collect();
        let all: f64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(Processor { busy: all - idle, all })
    }

    /// Of all cores since `before`, 0 to 100.
    pub fn busy_percent_since(self, before: Processor) -> Option<f64> {
        let all = self.all - before.all;
        (all > 0.0).then(|| (100.0 * (self.busy - before.busy) / all).clamp(0.0, 100.0))
    }
}

/// What the machine and one server on it have used.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    at: Instant,
    processor: Processor,
    postmaster: Pid,
    server: Duration,
}

impl Usage {
    /// `None` unless the server runs here (see [`runs_here`]).
    pub fn now(processes: &[i32], started: Option<f64>) -> Option<Usage> {
        if !runs_here(processes, started) {
            return None;
        }
        let postmaster = processes.iter().find_map(|pid| family::parent(Pid::from_raw(*pid)))?;
        let server = family::family_cpu_time(postmaster).ok()?;
        Some(Usage { at: Instant::now(), processor: Processor::now()?, postmaster, server })
    }

    /// The machine, as far as the server may use it.
    pub fn machine(&self) -> Machine {
        Machine::of(self.postmaster)
    }

    /// Of so many cores that are the server's to use, 0 to 100: what was busy since then, and what the server's processes used of
    /// it. A server that is limited to a part of its machine is busy when it uses that part, whatever the rest does.
    pub fn percents_since(&self, cores: f64) -> Option<(f64, f64)> {
        let busy = Processor::now()?.busy_percent_since(self.processor)?;
        let used = family::family_cpu_time(self.postmaster).ok()?.saturating_sub(self.server).as_secs_f64();
        let all = self.at.elapsed().as_secs_f64() * cores;
        let server = (100.0 * used / all).min(100.0);
        (all > 0.0).then(|| (busy.max(server), server))
    }
}

/// Of those that may be read; `None` where none may.
pub fn backend_memory(backends: &[i32]) -> Option<BackendMemory> {
    let mib = |pid: &i32| {
        let own = family::own_memory(Pid::from_raw(*pid))?;
        // Less than 2^53.
        #[expect(clippy::cast_precision_loss)]
        let mib = (own.private_kib + own.page_tables_kib) as f64 / 1024.0;
        Some(mib).filter(|mib| *mib > 0.0)
    };
    let all: Vec<f64> = backends.iter().filter_map(mib).collect();
    let spread = Spread::of(all)?;
    Some(BackendMemory { median_mib: spread.median, largest_mib: spread.high, backends: spread.rounds })
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn only_postgres_processes_of_this_machine_count() {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(!runs_here(&[], Some(now)));
        assert!(!runs_here(&[Pid::this().as_raw()], Some(now)), "a test is no server");
        assert!(!runs_here(&[i32::MAX], Some(now)));
        let began = started_at(Pid::this()).unwrap();
        assert!(began <= now + 1.0 && began > now - 3_600.0, "{began} of {now}");
    }

    #[test]
    fn busy_is_what_is_not_idle() {
        let before = Processor::of("cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        let after = Processor::of("cpu  175 0 100 725 100 0 0 0 50 0\n").unwrap();
        assert_eq!(after.busy_percent_since(before), Some(75.0));
        assert_eq!(after.busy_percent_since(after), None);
        assert_eq!(Processor::of("intr 1"), None);
        assert!(Processor::now().is_some());
    }

    #[test]
    fn memory_is_read_where_it_may_be() {
        let own = backend_memory(&[Pid::this().as_raw(), i32::MAX]).unwrap();
        assert!(own.backends == 1 && own.median_mib > 0.0);
        assert_eq!(backend_memory(&[i32::MAX]), None);
    }
}
