//! What the kernel has accounted to a process: CPU time and memory.
//!
//! CPU time is the process's CPU clock (`clock_getcpuclockid(3)`): user and system time of all its threads, also of
//! those that have ended and of io_uring's workers, in nanoseconds. `/proc/PID/stat` has the same sum in ticks of 10 ms.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// Enough descriptors for 2 000 idle clients on either side, with room.
const DESCRIPTORS_WANTED: u64 = 16_384;

pub fn cpu_time(pid: Pid) -> Result<Duration> {
    let clock = clock_getcpuclockid(pid).with_context(|| format!("process {pid} has no CPU clock"))?;
    let time = clock_gettime(clock).with_context(|| format!("cannot read the CPU clock of process {pid}"))?;
    Ok(Duration::from(time))
}

/// Sums over all mappings, as the kernel's `Documentation/filesystems/proc.rst` describes `smaps_rollup`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    pub rss_kib: u64,
    pub pss_kib: u64,
    pub private_dirty_kib: u64,
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
    Ok(Memory { rss_kib: field("Rss:")?, pss_kib: field("Pss:")?, private_dirty_kib: field("Private_Dirty:")? })
}

/// Raises our limit of open files as far as allowed; the programs that we start inherit it.
pub fn raise_descriptor_limit() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    let wanted = DESCRIPTORS_WANTED.min(hard);
    if soft < wanted {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard).context("cannot raise the limit of open files")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_field() {
        let text = "55-7f ---p 00000000 00:00 0 [rollup]\nRss:    2044 kB\nPss:     900 kB\nPss_Dirty:  7 kB\n\
                    Private_Clean:  3 kB\nPrivate_Dirty:     412 kB\n";
        let memory = parse_memory(text).unwrap();
        assert_eq!(memory, Memory { rss_kib: 2044, pss_kib: 900, private_dirty_kib: 412 });
        assert!(parse_memory("Rss: 1 kB\n").is_err());
    }

    #[test]
    fn the_cpu_clock_counts_our_work() {
        let before = cpu_time(Pid::this()).unwrap();
        let mut sum = 0u64;
        while cpu_time(Pid::this()).unwrap() < before + Duration::from_millis(5) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(sum > 0);
        assert!(memory(Pid::this()).unwrap().rss_kib > 0);
    }
}
