//! Cores kept awake while something is measured: a core that has nothing to do sleeps, and waking it costs more than a short
//! query.
//!
//! Two ways, and a measured message between two cores tells whether one helps here. Does not know what is measured.
//! Figures: docs/decisions/lab-cores-awake.md.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use weir_measure::ground::{machine, process};

/// The hidden subcommand of the lab that runs [`spin`].
pub const SUBCOMMAND: &str = "keep-awake";

/// As long as it is open, no core sleeps deeper than what wakes within the microseconds written to it: with 0 it polls
/// (Documentation/power/pm_qos_interface.rst of the kernel). Root's to open.
const LATENCY_DEVICE: &str = "/dev/cpu_dma_latency";
/// A way that shortens a message's time less than this gains nothing.
const HELPS_PART: f64 = 0.8;
const MESSAGES: usize = 400;
/// Between two messages, so that cores fall asleep as they do between a client's queries.
const PAUSE: Duration = Duration::from_micros(200);

/// Cores are awake as long as this lives.
pub struct Awake {
    way: Way,
    /// A message there and back between two cores, without and with.
    pub asleep: Duration,
    pub awake: Duration,
}

enum Way {
    Polling {
        _device: File,
    },
    /// One thread per core in a process of its own, at `SCHED_IDLE`: it runs when nobody else wants to.
    Spinning(Child),
}

impl Awake {
    /// The way that helps here; `None` where none does, as on a machine whose cores do not sleep.
    pub fn start() -> Result<Option<Awake>> {
        let asleep = message_time()?;
        let helps = |way: Way| -> Result<Option<Awake>> {
            let awake = message_time()?;
            let helps = awake.as_secs_f64() < HELPS_PART * asleep.as_secs_f64();
            let kept = Awake { way, asleep, awake };
            Ok(helps.then_some(kept))
        };
        if let Some(device) = stop_sleeping()
            && let Some(awake) = helps(Way::Polling { _device: device })?
        {
            return Ok(Some(awake));
        }
        helps(Way::Spinning(start_spinning()?))
    }

    /// What spinning has used so far: nobody else missed it. Polling is the kernel's idle time.
    pub fn cpu_time(&self) -> Duration {
        match &self.way {
            Way::Polling { .. } => Duration::ZERO,
            Way::Spinning(child) => process::cpu_time(Pid::from_raw(child.id().cast_signed())).unwrap_or_default(),
        }
    }

    /// For the journal.
    pub fn sentence(&self) -> String {
        let way = match self.way {
            Way::Polling { .. } => "they polled instead of sleeping (/dev/cpu_dma_latency)",
            Way::Spinning(_) => "a thread on each spun when nothing else wanted to run (SCHED_IDLE)",
        };
        format!(
            "Cores were kept awake: {way}. A message between two cores and back took {:.0} µs so, and {:.0} µs when cores fell \
             asleep in between, which makes a machine with few clients look slower than one with more. What keeping awake \
             used is in no figure.",
            self.awake.as_secs_f64() * 1e6,
            self.asleep.as_secs_f64() * 1e6
        )
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Way::Spinning(child) = &mut self.way {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn stop_sleeping() -> Option<File> {
    let mut device = OpenOptions::new().write(true).open(LATENCY_DEVICE).ok()?;
    device.write_all(&0i32.to_ne_bytes()).ok()?;
    Some(device)
}

/// By this very program.
fn start_spinning() -> Result<Child> {
    let program = std::env::current_exe().context("cannot find out where this program is")?;
    let mut command = Command::new(program);
    command.arg(SUBCOMMAND).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().context("cannot start what keeps cores awake")?;
    let ready = child.stdout.take().is_some_and(|mut output| output.read_exact(&mut [0]).is_ok());
    if !ready {
        let _ = child.kill();
        let _ = child.wait();
        bail!("the kernel does not let us spin on its cores");
    }
    Ok(child)
}

/// Spins until standard input ends, which it does with whoever started us. Prints one byte when all cores are awake.
///
/// In a session of its own, since the kernel shares cores between sessions first (sched(7), "The autogroup feature"): in
/// the lab's, an idle thread would take a session's whole share from PostgreSQL's backends, each of which is a session.
pub fn spin() -> ExitCode {
    // Where there are no autogroups, neither is needed.
    let _ = nix::unistd::setsid();
    let _ = std::fs::write("/proc/self/autogroup", "19");
    if become_idle().is_err() {
        return ExitCode::FAILURE;
    }
    for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
        // Not `spin_loop`: its instruction is what hypervisors take for a reason to run somebody else.
        thread::spawn(|| {
            loop {
                std::hint::black_box(());
            }
        });
    }
    let mut output = std::io::stdout();
    if output.write_all(b"!").and_then(|()| output.flush()).is_err() {
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

/// The median time of a message to another core and back, on cores that had time to fall asleep.
fn message_time() -> Result<Duration> {
    let (mut near, mut far) = UnixStream::pair().context("cannot make a pair of sockets")?;
    let cores = our_cores()?;
    let (here, there) = (cores.first().copied(), cores.last().copied());
    let echo = thread::spawn(move || {
        pin(there);
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let ask = thread::spawn(move || -> std::io::Result<Vec<Duration>> {
        pin(here);
        let mut times = Vec::with_capacity(MESSAGES);
        for _ in 0..MESSAGES {
            thread::sleep(PAUSE);
            let began = Instant::now();
            near.write_all(&[0])?;
            near.read_exact(&mut [0])?;
            times.push(began.elapsed());
        }
        Ok(times)
    });
    let times = ask.join().ok().context("a thread ended")?;
    let mut times = times.context("cannot send a message")?;
    let _ = echo.join();
    times.sort_unstable();
    Ok(times[times.len() / 2])
}

fn our_cores() -> Result<Vec<usize>> {
    machine::affine_cores(Pid::from_raw(0)).context("cannot see which cores are ours")
}

/// A thread that cannot be bound to a core still sends messages.
fn pin(core: Option<usize>) {
    let mut set = CpuSet::new();
    if core.is_some_and(|core| set.set(core).is_ok()) {
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_takes_some_time() {
        assert!(message_time().unwrap() > Duration::ZERO);
        assert!(!our_cores().unwrap().is_empty());
    }
}
