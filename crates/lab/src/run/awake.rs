//! Cores kept awake while something is measured: a core that has nothing to do sleeps, and waking it costs more than a short
//! query.
//!
//! One thread per core spins in a process of its own at `SCHED_IDLE`: it runs when nobody else wants to, and gives way at
//! once. A process, since the kernel shares cores between sessions first (autogroups): in ours the threads would take
//! whole shares away from PostgreSQL's backends, each of which is a session. Figures: docs/decisions/lab-cores-awake.md.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::unistd::Pid;

use crate::ground::process;

/// The hidden subcommand of the lab that runs [`spin`].
pub const SUBCOMMAND: &str = "keep-awake";

/// Cores are awake as long as this lives.
pub struct Awake {
    child: Child,
}

impl Awake {
    /// `weir` is the program whose `lab keep-awake` spins.
    pub fn start(weir: &Path) -> Result<Awake> {
        let mut command = Command::new(weir);
        command.args(["lab", SUBCOMMAND]).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().context("cannot start what keeps cores awake")?;
        let mut word = [0];
        let ready = child.stdout.take().is_some_and(|mut output| output.read_exact(&mut word).is_ok());
        let awake = Awake { child };
        if !ready {
            bail!("the kernel does not let us keep its cores awake");
        }
        Ok(awake)
    }

    /// What spinning has used so far: nobody else missed it.
    pub fn cpu_time(&self) -> Duration {
        process::cpu_time(Pid::from_raw(self.child.id().cast_signed())).unwrap_or_default()
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Spins until standard input ends, which it does with whoever started us. Prints one byte when all cores are awake.
pub fn spin() -> ExitCode {
    // A new session is an autogroup of its own, which then weighs next to nothing (sched(7), "The autogroup feature").
    let _ = nix::unistd::setsid();
    let _ = std::fs::write("/proc/self/autogroup", "19");
    if become_idle().is_err() {
        return ExitCode::FAILURE;
    }
    for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
        // Not `spin_loop`: its instruction is what hypervisors take for a reason to run somebody else.
        std::thread::spawn(|| {
            loop {
                std::hint::black_box(());
            }
        });
    }
    if std::io::Write::write_all(&mut std::io::stdout(), b"!").is_err()
        || std::io::Write::flush(&mut std::io::stdout()).is_err()
    {
        return ExitCode::FAILURE;
    }
    let _ = std::io::stdin().read(&mut [0]);
    ExitCode::SUCCESS
}

/// `SCHED_IDLE` for this thread and for those that it starts.
fn become_idle() -> std::io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the kernel reads `parameters`, which lives until the call returns.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
