//! A process and its children, as PostgreSQL is: what they cost all together, also those that have ended, and their memory.
//!
//! Knows `/proc` and the titles that PostgreSQL gives its processes; does not know what they do.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::unistd::{Pid, SysconfVar, sysconf};

use super::process::cpu_time;

/// Titles of processes that serve no client (`src/backend/postmaster` of PostgreSQL 12 to 18).
const HELPERS: [&str; 12] = [
    "checkpointer",
    "background writer",
    "walwriter",
    "walsummarizer",
    "autovacuum",
    "logical replication",
    "stats collector",
    "archiver",
    "startup",
    "logger",
    "io worker",
    "slotsync worker",
];

/// The children of a process at this moment.
pub fn children(parent: Pid) -> Vec<Pid> {
    // Each thread has those that it started.
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists: Option<Vec<String>> = tasks.map(|task| fs::read_to_string(task.path().join("children")).ok()).collect();
    if let Some(lists) = lists.filter(|lists| !lists.is_empty()) {
        let pids = lists.iter().flat_map(|list| list.split_whitespace());
        return pids.filter_map(|pid| pid.parse().ok().map(Pid::from_raw)).collect();
    }
    // A kernel without CONFIG_PROC_CHILDREN.
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let all = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    all.filter(|pid| stat(*pid).is_some_and(|fields| field(&fields, PARENT) == Some(parent.as_raw().into()))).collect()
}

/// User and system time of a process and of all children that it has or had: what has ended is in its parent's
/// `cutime` and `cstime`.
pub fn family_cpu_time(parent: Pid) -> Result<Duration> {
    // Children first: one that ends meanwhile is then counted once or twice for a moment, but never missed for good.
    let alive: Duration = children(parent).into_iter().filter_map(|child| cpu_time(child).ok()).sum();
    let fields = stat(parent).with_context(|| format!("process {parent} is gone"))?;
    let ticks = field(&fields, CHILDREN_USER).unwrap_or(0) + field(&fields, CHILDREN_SYSTEM).unwrap_or(0);
    Ok(cpu_time(parent)? + alive + ticks_time(ticks))
}

/// Numbers of `/proc/PID/stat` as proc(5) counts them, from one.
const PARENT: usize = 4;
const CHILDREN_USER: usize = 16;
const CHILDREN_SYSTEM: usize = 17;
const START: usize = 22;

/// The fields after the name, which may hold blanks and parentheses: the first of them is proc(5)'s third.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

fn field(fields: &[String], number: usize) -> Option<i64> {
    fields.get(number - 3)?.parse().ok()
}

/// When a process started, counted from the machine's boot.
pub fn start_time(pid: Pid) -> Option<Duration> {
    Some(ticks_time(field(&stat(pid)?, START)?))
}

/// Of the kernel's clock ticks, in which `/proc` counts.
pub fn ticks_time(ticks: i64) -> Duration {
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().unwrap_or(100).max(1);
    #[expect(clippy::cast_precision_loss)]
    Duration::from_secs_f64(ticks.max(0) as f64 / per_second as f64)
}

/// Whether this child of a postmaster serves a client, of this role or of any.
pub fn serves_a_client(pid: Pid, role: Option<&str>) -> bool {
    let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    serves(&String::from_utf8_lossy(&title), role)
}

/// `postgres: role database host(port) state`, as `init_ps_display` writes it.
fn serves(title: &str, role: Option<&str>) -> bool {
    let Some(rest) = title.strip_prefix("postgres: ") else { return false };
    match role {
        Some(role) => rest.strip_prefix(role).is_some_and(|rest| rest.starts_with(' ')),
        None => !HELPERS.iter().any(|helper| rest.trim_start().starts_with(helper)),
    }
}

/// The name of a process's program, at most 15 bytes of it.
pub fn program_name(pid: Pid) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().to_owned())
}

pub fn parent(pid: Pid) -> Option<Pid> {
    let number = field(&stat(pid)?, PARENT)?;
    Some(Pid::from_raw(i32::try_from(number).ok()?))
}

/// What one process has of memory, told apart as a person must who adds processes up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Own {
    /// `Private_Clean + Private_Dirty + Private_Hugetlb` of `smaps_rollup`.
    pub private_kib: u64,
    /// `VmPTE` of `status`.
    pub page_tables_kib: u64,
    /// `VmRSS` of `status`, what is shared included.
    pub rss_kib: u64,
}

/// `None` where the process is gone or not ours to see.
pub fn own_memory(pid: Pid) -> Option<Own> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let private = ["Private_Clean:", "Private_Dirty:", "Private_Hugetlb:"];
    Some(Own {
        private_kib: private.iter().filter_map(|label| kib(&rollup, label)).sum(),
        page_tables_kib: kib(&status, "VmPTE:")?,
        rss_kib: kib(&status, "VmRSS:")?,
    })
}

fn kib(text: &str, label: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(label)?.trim().strip_suffix("kB")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_ended_children_used_is_not_lost() {
        let before = family_cpu_time(Pid::this()).unwrap();
        let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed());
        assert!(children(Pid::this()).contains(&pid) && parent(pid) == Some(Pid::this()));
        let began = Instant::now();
        child.wait().unwrap();
        let used = family_cpu_time(Pid::this()).unwrap() - before;
        assert!(used >= Duration::from_millis(20), "{used:?} of {:?}", began.elapsed());
    }

    #[test]
    fn a_title_tells_whom_a_process_serves() {
        let title = "postgres: lab_weir postgres 127.0.0.1(41624) idle";
        assert!(serves(title, None) && serves(title, Some("lab_weir")) && !serves(title, Some("lab")));
        assert!(!serves("postgres: autovacuum launcher ", None) && !serves("/usr/bin/postgres -D x", None));
    }

    #[test]
    fn memory_has_its_parts() {
        let own = own_memory(Pid::this()).unwrap();
        assert!(own.private_kib > 0 && own.page_tables_kib > 0 && own.rss_kib >= own.private_kib);
        assert_eq!(own_memory(Pid::from_raw(i32::MAX)), None);
    }
}
