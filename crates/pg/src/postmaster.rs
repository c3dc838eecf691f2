//! A running postmaster: started, waited for, stopped or killed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::account::Account;
use crate::data::DataFolder;
use crate::guard::Guard;
use crate::process::Process;
use crate::{Error, Installation, Result};

/// Crash recovery of a small cluster takes a second or two; a machine under load some more.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A fast shutdown rolls back and writes a checkpoint.
const FAST_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(30);
const IMMEDIATE_SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The process, ours to stop.
#[derive(Debug)]
pub(crate) struct Postmaster {
    child: Child,
    _guard: Guard,
}

impl Postmaster {
    /// Starts and waits until clients can connect.
    pub(crate) fn start(
        account: &Account,
        installation: &Installation,
        data: &DataFolder,
        log: &Path,
        throw_away: &[&Path],
    ) -> Result<Self> {
        let program = installation.bin().join("postgres");
        let log_file = File::options().create(true).append(true).open(log).map_err(Error::file("open", log))?;
        let log_start = log_file.metadata().map_or(0, |metadata| metadata.len());
        let child = account
            .command(&program)
            .arg("-D")
            .arg(data.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log_file)
            .spawn()
            .map_err(|source| Error::Program { program: program.clone(), source })?;
        let program = fs::canonicalize(&program).unwrap_or(program);
        let guard = Guard::over(child.id(), &program, throw_away);
        let mut child = Unstarted(Some(child));
        let guard = guard?;
        child.wait_until_ready(data, log, log_start)?;
        Ok(Self { child: child.into_started(), _guard: guard })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// None while it runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(status.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Fast, then immediate, then by force: in the end it is gone.
    pub(crate) fn stop(mut self) {
        self.stop_in_place();
    }

    fn stop_in_place(&mut self) {
        let steps = [(Signal::SIGINT, FAST_SHUTDOWN_TIMEOUT), (Signal::SIGQUIT, IMMEDIATE_SHUTDOWN_TIMEOUT)];
        for (signal, timeout) in steps {
            if self.ended().is_some() {
                return;
            }
            Process(self.pid()).signal(signal);
            let _ = wait_for(timeout, || self.ended().is_some());
        }
        self.kill_in_place();
    }

    /// SIGKILL to the postmaster and to each of its children, as an out-of-memory killer or a lost machine would: no
    /// process has a chance to write or to tell its client anything.
    pub(crate) fn kill_hard(mut self) {
        self.kill_in_place();
    }

    fn kill_in_place(&mut self) {
        if self.ended().is_some() {
            return;
        }
        let postmaster = Process(self.pid());
        // Stopped first, so that it starts no further child between the look and the kill.
        postmaster.signal(Signal::SIGSTOP);
        let children = postmaster.children();
        postmaster.signal(Signal::SIGKILL);
        for child in &children {
            child.signal(Signal::SIGKILL);
        }
        let _ = self.child.wait();
        let _ = wait_for(IMMEDIATE_SHUTDOWN_TIMEOUT, || !children.iter().any(|child| child.is_alive()));
    }
}

impl Drop for Postmaster {
    fn drop(&mut self) {
        self.stop_in_place();
    }
}

/// A postmaster that may still fail to start; then it must not stay.
struct Unstarted(Option<Child>);

impl Unstarted {
    fn wait_until_ready(&mut self, data: &DataFolder, log: &Path, log_start: u64) -> Result<()> {
        let child = self.0.as_mut().expect("taken only by into_started");
        let deadline = Instant::now() + START_TIMEOUT;
        while !data.is_ready(child.id()) {
            if let Ok(Some(_)) = child.try_wait() {
                return Err(why_not_started(log, log_start));
            }
            if Instant::now() > deadline {
                return Err(Error::TooSlow { seconds: START_TIMEOUT.as_secs(), log: log.to_owned() });
            }
            sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn into_started(mut self) -> Child {
        self.0.take().expect("taken only here, once")
    }
}

impl Drop for Unstarted {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            Process(child.id()).signal(Signal::SIGQUIT);
            let ended = wait_for(IMMEDIATE_SHUTDOWN_TIMEOUT, || matches!(child.try_wait(), Ok(Some(_))));
            if !ended {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

fn why_not_started(log: &Path, log_start: u64) -> Error {
    let bytes = fs::read(log).unwrap_or_default();
    let start = usize::try_from(log_start).unwrap_or(0).min(bytes.len());
    let said = String::from_utf8_lossy(&bytes[start..]);
    classify(&said, log.to_owned())
}

/// PostgreSQL's own sentence where it gave one.
fn classify(said: &str, log: PathBuf) -> Error {
    if said.contains("No space left on device") {
        return Error::NoSpace(log);
    }
    if let Some(port) = port_in_use(said) {
        return Error::PortInUse(port);
    }
    let reason = said
        .lines()
        .find_map(|line| line.split_once("FATAL:"))
        .map(|(_, reason)| reason.trim())
        .or_else(|| said.lines().last())
        .unwrap_or("it said nothing");
    Error::NotStarted { reason: reason.to_owned(), log }
}

/// `LOG:  could not bind IPv4 address "127.0.0.1": Address already in use`, then
/// `HINT:  Is another postmaster already running on port 5432? ...`
fn port_in_use(said: &str) -> Option<u16> {
    if !said.contains("Address already in use") {
        return None;
    }
    let (_, rest) = said.split_once("already running on port ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn wait_for(timeout: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + timeout;
    while !done() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(POLL_INTERVAL);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_postgresqls_own() {
        let cases = [
            (
                "LOG:  could not bind IPv4 address \"127.0.0.1\": Address already in use\n\
                 HINT:  Is another postmaster already running on port 5433? If not, wait a few seconds and retry.\n\
                 FATAL:  could not create any TCP/IP sockets\n",
                "port 5433 is in use by another process",
            ),
            (
                "2026-01-01 UTC [1] FATAL:  data directory \"/d\" has invalid permissions\nDETAIL:  x\n",
                "PostgreSQL did not start: data directory \"/d\" has invalid permissions (log: /l)",
            ),
            (
                "FATAL:  could not write lock file \"postmaster.pid\": No space left on device\n",
                "no space left on the disk that holds /l",
            ),
            ("", "PostgreSQL did not start: it said nothing (log: /l)"),
        ];
        for (said, expected) in cases {
            assert_eq!(classify(said, "/l".into()).to_string(), expected);
        }
    }
}
