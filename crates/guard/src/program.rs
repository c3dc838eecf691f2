//! The pooler itself as a process under strace, which counts its system calls.
//!
//! strace tells its counts when the traced process has ended, so a difference is that of two runs.

use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// For what must happen, however slow the machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_micros(100);

/// A pooler with one worker, traced. Ends with [`Program::end`], or when dropped.
pub struct Program {
    pub address: SocketAddr,
    strace: Child,
    pid: Pid,
    directory: TempDir,
}

/// Why nothing can be traced here, if so.
pub fn unavailable() -> Option<&'static str> {
    match Command::new("strace").args(["-c", "-o", "/dev/null", "true"]).output() {
        Err(_) => Some("strace is not installed (apt-get install strace)"),
        Ok(output) if !output.status.success() => Some("strace may not trace here (ptrace is forbidden)"),
        Ok(_) => None,
    }
}

impl Program {
    pub fn start(weir: &Path, driver: &str, pool_size: usize, server: SocketAddr) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        // Free now, and nobody asks for it within a second; if somebody does, the start fails.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let ini = directory.path().join("weir.ini");
        fs::write(directory.path().join("users.txt"), "\"guard\" \"guard\"\n")?;
        fs::write(&ini, configuration(directory.path(), driver, pool_size, server, address))?;
        let log = fs::File::create(directory.path().join("log"))?;
        let mut strace = Command::new("strace")
            .args(["-f", "-c", "-U", "calls,name", "-o"])
            .arg(directory.path().join("calls"))
            .args([weir, &ini])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start strace")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let (Some(pid), true) = (child_of(&strace), TcpStream::connect(address).is_ok()) {
                return Ok(Self { address, strace, pid, directory });
            }
            let ended = strace.try_wait()?.is_some();
            if ended || Instant::now() > deadline {
                let _ = strace.kill();
                let _ = strace.wait();
                bail!("weir does not start: {}", fs::read_to_string(directory.path().join("log"))?);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Keeps the pooler from seeing what is sent to it until [`Program::go_on`], so that it finds all of it at once.
    pub fn hold(&self) -> Result<()> {
        // All that came before has been dealt with: every thread sleeps.
        self.wait_for(&['S'])?;
        kill_process(self.pid, Signal::STOP)?;
        self.wait_for(&['T', 't'])
    }

    pub fn go_on(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }

    /// Waits until all threads are in one of these states (proc(5), `/proc/PID/stat`).
    fn wait_for(&self, states: &[char]) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !self.threads()?.iter().all(|state| states.contains(state)) {
            ensure!(Instant::now() < deadline, "weir's threads do not come to rest: {:?}", self.threads()?);
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn threads(&self) -> Result<Vec<char>> {
        let mut states = Vec::new();
        for task in fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()))? {
            // A thread that has just ended has no state.
            if let Ok(stat) = fs::read_to_string(task?.path().join("stat")) {
                states.extend(stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()));
            }
        }
        Ok(states)
    }

    /// Ends the pooler; answers how often each system call was made.
    pub fn end(mut self) -> Result<BTreeMap<String, u64>> {
        // Else a short run might end before all of the start is counted.
        self.wait_for(&['S'])?;
        kill_process(self.pid, Signal::QUIT)?;
        self.strace.wait()?;
        let text = fs::read_to_string(self.directory.path().join("calls"))?;
        let calls = calls(&text);
        ensure!(!calls.is_empty(), "strace counted nothing: {text}");
        Ok(calls)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Fails where it has ended already.
        if let Ok(None) = self.strace.try_wait() {
            let _ = kill_process(self.pid, Signal::KILL);
            let _ = self.strace.wait();
        }
    }
}

fn configuration(directory: &Path, driver: &str, pool_size: usize, server: SocketAddr, address: SocketAddr) -> String {
    let user = if rustix::process::geteuid().is_root() { "user = nobody\n" } else { "" };
    format!(
        "[databases]\nguard = host={} port={} dbname=guard\n[pgbouncer]\nlisten_addr = {}\nlisten_port = {}\n\
         auth_type = trust\nauth_file = {}/users.txt\npool_mode = transaction\ndefault_pool_size = {pool_size}\n\
         session_state = pgbouncer\ndriver = {driver}\nworkers = 1\nbusy_poll = 0\nunix_socket_dir =\n{user}",
        server.ip(),
        server.port(),
        address.ip(),
        address.port(),
        directory.display(),
    )
}

/// The traced process: the only child of strace.
fn child_of(strace: &Child) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", strace.id());
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let status = fs::read_to_string(entry.path().join("status")).ok()?;
        if status.contains(&parent) { Pid::from_raw(pid) } else { None }
    })
}

/// The lines `COUNT NAME` of strace's summary.
fn calls(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter_map(|line| {
        let (count, name) = line.trim().split_once(char::is_whitespace)?;
        Some((name.trim().to_owned(), count.parse().ok()?))
    });
    lines.filter(|(name, _)| name != "total").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_without_its_total() {
        let text = "    calls syscall\n--------- ----------------\n        7 recvfrom\n        2 sendto\n\
            --------- ----------------\n        9 total\n";
        let expected = [("recvfrom".to_owned(), 7), ("sendto".to_owned(), 2)];
        assert_eq!(calls(text), BTreeMap::from(expected));
    }
}
