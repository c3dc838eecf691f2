//! What the figures were measured on: processor, cores, kernel, memory, system.
//!
//! Does not know the programs that are measured.

use std::fs;
use std::process::Command;
use std::thread;

use serde::{Deserialize, Serialize};

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
    pub fn describe() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let memory = read("/proc/meminfo");
        let total_kib = field(&memory, "MemTotal", ':').and_then(|total| total.strip_suffix("kB")?.trim().parse().ok());
        Machine {
            processor: field(&cpuinfo, "model name", ':').unwrap_or(UNKNOWN).to_owned(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_mib: total_kib.unwrap_or(0u64) / 1024,
            system: field(&read("/etc/os-release"), "PRETTY_NAME", '=').unwrap_or(UNKNOWN).trim_matches('"').to_owned(),
            virtual_machine: field(&cpuinfo, "flags", ':')
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        }
    }
}

/// The time of the run as people write it, in UTC.
pub fn date() -> String {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]).output();
    output.map_or_else(|_| UNKNOWN.to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
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
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t\t: 1\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name", ':'), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "flags", ':'), None);
    }
}
