//! Open files: how many we may have, how many a process has, and who listens on a port.
//!
//! Knows `/proc`; does not know what the files are for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::Pid;

/// `TCP_LISTEN` of the kernel's `include/net/tcp_states.h`, as `/proc/net/tcp` writes it.
const LISTEN: &str = "0A";

/// Raises our limit of open files as far as allowed; the programs that we start inherit it.
pub fn raise_limit() -> Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of open files")?;
    }
    Ok(())
}

pub fn limit() -> Result<u64> {
    Ok(getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?.0)
}

pub fn open_files(pid: Pid) -> Result<usize> {
    let path = format!("/proc/{pid}/fd");
    Ok(fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?.count())
}

/// How many sockets a process has open; none where we may not look.
pub fn open_sockets(pid: Pid) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_str().is_some_and(|target| target.starts_with("socket:"))).count()
}

/// The processes that listen on this port of any IPv4 address; only those that we may look into.
pub fn listeners(port: u16) -> Vec<Pid> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let sockets: Vec<String> =
        listening_inodes(&table, port).into_iter().map(|inode| format!("socket:[{inode}]")).collect();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| holds_one(Path::new(&format!("/proc/{pid}/fd")), &sockets)).map(Pid::from_raw).collect()
}

fn holds_one(descriptors: &Path, sockets: &[String]) -> bool {
    let Ok(entries) = fs::read_dir(descriptors) else { return false };
    let mut targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.any(|target| target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target)))
}

/// `/proc/net/tcp`: number, local address, remote address, state, and the inode as the tenth field.
fn listening_inodes(table: &str, port: u16) -> Vec<&str> {
    let ending = format!(":{port:04X}");
    let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|fields| fields.len() > 9 && fields[1].ends_with(&ending) && fields[3] == LISTEN)
        .map(|fields| fields[9])
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_listener_is_found_by_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             \x20  0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2211 1 0\n\
             \x20  1: 0100007F:1538 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 2212 1 0\n\
             \x20  2: 0100007F:1539 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2213 1 0\n";
        assert_eq!(listening_inodes(table, 0x1538), ["2211"]);
    }

    #[test]
    fn our_own_listener_is_ours() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(listeners(listener.local_addr().unwrap().port()).contains(&Pid::this()));
        assert!(open_files(Pid::this()).unwrap() > 3);
        assert!(limit().unwrap() > 3);
    }
}
