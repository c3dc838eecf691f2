//! What the kernel has accounted to a process: CPU time, memory, and how often it went to sleep.
//!
//! CPU time is the process's CPU clock (`clock_getcpuclockid(3)`): user and system time of all its threads, also of
//! those that have ended and of io_uring's workers, in nanoseconds. `/proc/PID/stat` has the same sum in ticks of 10 ms.

use std::fs;
use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

pub fn cpu_time(pid: Pid) -> Result<Duration> {
    let clock = clock_getcpuclockid(pid).with_context(|| format!("process {pid} has no CPU clock"))?;
    let time = clock_gettime(clock).with_context(|| format!("cannot read the CPU clock of process {pid}"))?;
    Ok(Duration::from(time))
}

/// CPU time of the calling thread alone.
pub fn thread_cpu_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).context("cannot read a thread's CPU clock")?;
    Ok(Duration::from(time))
}

/// CPU time of each thread of a process that is there now, by its number. `schedstat` has it in nanoseconds.
pub fn thread_cpu_times(pid: Pid) -> Vec<(i32, Duration)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let time = |task: fs::DirEntry| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        let nanoseconds = text.split(' ').next()?.parse().ok()?;
        Some((task.file_name().to_str()?.parse().ok()?, Duration::from_nanos(nanoseconds)))
    };
    tasks.filter_map(time).collect()
}

/// Sums over all mappings, as the kernel's `Documentation/filesystems/proc.rst` describes `smaps_rollup`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    pub rss_kib: u64,
    /// Pages with no file behind them: heap, stacks, buffers, changed data.
    pub private_kib: u64,
}

impl Add for Memory {
    type Output = Memory;

    fn add(self, other: Memory) -> Memory {
        Memory { rss_kib: self.rss_kib + other.rss_kib, private_kib: self.private_kib + other.private_kib }
    }
}

impl Sum for Memory {
    fn sum<I: Iterator<Item = Memory>>(all: I) -> Memory {
        all.fold(Memory::default(), Memory::add)
    }
}

pub fn memory(pid: Pid) -> Result<Memory> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    parse_memory(&text).with_context(|| format!("{path} is not as expected"))
}

fn parse_memory(text: &str) -> Result<Memory> {
    let field = |name: &str| -> Result<u64> {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.trim().strip_suffix("kB"))
            .with_context(|| format!("no line {name}"))?;
        value.trim().parse().with_context(|| format!("{name} is not a number"))
    };
    // Not Private_Dirty: a program's text counts there too, as long as its file is too new to be on disk.
    Ok(Memory { rss_kib: field("Rss:")?, private_kib: field("Anonymous:")? })
}

/// How often the threads of a process gave up the CPU because they had nothing to do: each is one wake-up later.
pub fn sleeps(pid: Pid) -> Result<u64> {
    let path = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?;
    // A thread that has ended meanwhile sleeps no more.
    let statuses = tasks.flatten().filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    statuses.map(|status| parse_sleeps(&status).context("a status without context switches")).sum()
}

fn parse_sleeps(status: &str) -> Option<u64> {
    status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_field() {
        let text = "55-7f ---p 00000000 00:00 0 [rollup]\nRss:    2044 kB\nPss:     900 kB\nPss_Dirty:  7 kB\n\
                    Private_Clean:  3 kB\nPrivate_Dirty:     999 kB\nAnonymous:     412 kB\n";
        let memory = parse_memory(text).unwrap();
        assert_eq!(memory, Memory { rss_kib: 2044, private_kib: 412 });
        assert_eq!([memory, memory].into_iter().sum::<Memory>(), Memory { rss_kib: 4088, private_kib: 824 });
        assert!(parse_memory("Rss: 1 kB\n").is_err());
    }

    #[test]
    fn the_cpu_clock_counts_our_work() {
        let before = cpu_time(Pid::this()).unwrap();
        let mut sum = 0u64;
        while cpu_time(Pid::this()).unwrap() < before + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let threads = thread_cpu_times(Pid::this());
        assert!(threads.iter().any(|(_, used)| *used >= Duration::from_millis(5)), "{threads:?}");
        assert!(sum > 0 && thread_cpu_time().unwrap() > Duration::ZERO);
        assert!(memory(Pid::this()).unwrap().rss_kib > 0);
    }

    #[test]
    fn sleeps_are_the_voluntary_switches() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(parse_sleeps(status), Some(17));
        assert!(sleeps(Pid::this()).is_ok());
    }
}
