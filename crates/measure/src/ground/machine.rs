//! What the figures were measured on: processor, cores, kernel, memory, system.
//!
//! Does not know the programs that are measured.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::control_group::Limits;

const UNKNOWN: &str = "unknown";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    pub memory_mib: u64,
    pub system: String,
    pub virtual_machine: bool,
}

impl Machine {
    /// As far as this process may use it.
    pub fn describe() -> Machine {
        Machine::of(Pid::this())
    }

    /// As far as a process may use it: by its affinity to cores, and by the limits of its control groups.
    pub fn of(pid: Pid) -> Machine {
        let limits = Limits::of(pid);
        let cores = affine_cores(pid)
            .map(|cores| cores.len())
            .unwrap_or_else(|| thread::available_parallelism().map_or(0, usize::from));
        let cores = limits.cores.map_or(cores, |quota| cores.min(whole_cores(quota)));
        let cpuinfo = read("/proc/cpuinfo");
        let memory = read("/proc/meminfo");
        let total_kib = field(&memory, "MemTotal", ':').and_then(|total| total.strip_suffix("kB")?.trim().parse().ok());
        let memory_mib = total_kib.unwrap_or(0u64) / 1024;
        Machine {
            processor: field(&cpuinfo, "model name", ':').unwrap_or(UNKNOWN).to_owned(),
            cores,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: limits.memory_mib.map_or(memory_mib, |limit| memory_mib.min(limit)),
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or(UNKNOWN).trim_matches('"').to_owned(),
            virtual_machine: field(&cpuinfo, "flags", ':')
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

/// Those on which the kernel may run it; `None` where that cannot be seen.
pub fn affine_cores(pid: Pid) -> Option<Vec<usize>> {
    let set = sched_getaffinity(pid).ok()?;
    Some((0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true)).collect())
}

/// A part of a core is one all the same: nothing runs on none.
fn whole_cores(quota: f64) -> usize {
    // Saturates; a quota is positive.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let whole = quota as usize;
    whole.max(1)
}

/// The time of the run as people write it, in UTC.
pub fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    output.map_or_else(|_| UNKNOWN.to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The same for programs: seconds since 1970.
pub fn moment() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn field<'a>(text: &'a str, name: &str, separator: char) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_what_a_process_may_use() {
        let here = Machine::describe();
        assert_eq!(here.cores, thread::available_parallelism().unwrap().get());
        assert!(here.memory_mib > 0);
        assert_eq!([0.5, 1.5, 2.0].map(whole_cores), [1, 1, 2]);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 1\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name", ':'), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "flags", ':'), None);
    }
}
