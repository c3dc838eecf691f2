//! One process that the lab started: its log, when it listens, and its end by pid.
//!
//! Does not know which program it is.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::interrupt::Interrupt;

const START_PATIENCE: Duration = Duration::from_secs(20);
const STOP_PATIENCE: Duration = Duration::from_secs(10);
const STOP_LOOK_EVERY: Duration = Duration::from_millis(20);
const LOG_LINES_SHOWN: usize = 6;

pub struct Running {
    name: String,
    child: Child,
    log: PathBuf,
    stop_signal: Signal,
}

impl Running {
    /// Starts the command with its output in `log`. `stop_signal` is what asks it to end at once, but in order.
    pub fn start(name: &str, command: Command, log: PathBuf, stop_signal: Signal) -> Result<Running> {
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = output.try_clone().with_context(|| format!("cannot share {}", log.display()))?;
        Running::spawn(name, command, log, (output, errors), stop_signal)
    }

    /// The same, with standard error in a file of its own.
    pub fn start_apart(
        name: &str,
        command: Command,
        log: PathBuf,
        complaints: &Path,
        stop_signal: Signal,
    ) -> Result<Running> {
        let output = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let errors = File::create(complaints).with_context(|| format!("cannot create {}", complaints.display()))?;
        Running::spawn(name, command, log, (output, errors), stop_signal)
    }

    fn spawn(
        name: &str,
        mut command: Command,
        log: PathBuf,
        (output, errors): (File, File),
        stop_signal: Signal,
    ) -> Result<Running> {
        let child = command.stdout(output).stderr(errors).spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Running { name: name.to_owned(), child, log, stop_signal })
    }

    pub fn pid(&self) -> Pid {
        // The kernel's pids are positive i32 values; the standard library only shows them as u32.
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("cannot look after {}", self.name))
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    pub fn wait_until_listening(&mut self, port: u16, interrupt: &Interrupt) -> Result<()> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listening = interrupt.wait_for(START_PATIENCE, || {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended while starting ({status}): {}", self.name, self.last_words());
            }
            Ok(TcpStream::connect(address).ok())
        })?;
        match listening {
            Some(_) => Ok(()),
            None => bail!("{} does not listen on port {port} after {START_PATIENCE:?}", self.name),
        }
    }

    /// Waits for the program to end by itself; after `patience` it is ended, and that is an error. `look` is called
    /// every few milliseconds until then, and once more at the end.
    pub fn wait_until_ended(
        mut self,
        patience: Duration,
        interrupt: &Interrupt,
        mut look: impl FnMut() -> Result<()>,
    ) -> Result<(ExitStatus, String)> {
        let status = interrupt.wait_for(patience, || {
            let status = self.child.try_wait()?;
            look()?;
            Ok(status)
        })?;
        match status {
            Some(status) => {
                let output = fs::read(&self.log).with_context(|| format!("cannot read {}", self.log.display()))?;
                Ok((status, String::from_utf8_lossy(&output).into_owned()))
            }
            None => bail!("{} did not end within {patience:?}", self.name),
        }
    }

    /// The end of what it has printed.
    pub fn last_words(&self) -> String {
        last_lines(&self.output())
    }

    fn ended_within(&mut self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        loop {
            // An error means that there is no such child any more.
            if !matches!(self.child.try_wait(), Ok(None)) {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            thread::sleep(STOP_LOOK_EVERY);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.ended_within(Duration::ZERO) {
            return;
        }
        // Both signals may find it gone already, which is what they are for.
        let _ = kill(self.pid(), self.stop_signal);
        if !self.ended_within(STOP_PATIENCE) {
            eprintln!("{} ignores {}, killing it", self.name, self.stop_signal);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join(" | ")
}

/// A port of the loopback that nobody uses at this moment.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port on the loopback")?;
    Ok(listener.local_addr().context("a listener without an address")?.port())
}

/// Runs a short program to its end and gives its output; its failure is our error, with its last words.
pub fn run_to_end(
    name: &str,
    command: Command,
    directory: &Path,
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<String> {
    let log = directory.join(format!("{name}.log"));
    let (status, output) =
        Running::start(name, command, log, Signal::SIGTERM)?.wait_until_ended(patience, interrupt, || Ok(()))?;
    if !status.success() {
        bail!("{name} failed ({status}): {}", last_lines(&output));
    }
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_ends_the_process() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sleep");
        command.arg("600");
        let running = Running::start("sleep", command, directory.path().join("log"), Signal::SIGTERM).unwrap();
        let pid = running.pid();
        assert!(kill(pid, None).is_ok());
        drop(running);
        assert!(kill(pid, None).is_err());
    }

    #[test]
    fn last_lines_keeps_the_end_and_skips_empty_lines() {
        assert_eq!(last_lines("a\n\n b \n"), "a | b");
        assert_eq!(last_lines("1\n2\n3\n4\n5\n6\n7\n"), "2 | 3 | 4 | 5 | 6 | 7");
    }
}
