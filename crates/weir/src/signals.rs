//! Commands from outside of the workers: signals, and those of whoever runs a pooler in its own process.
//!
//! Exits the process where it does not end behind a SIGQUIT.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::{Handle as SignalHandle, Signals};
use weir_core::Command;

use crate::driver::Commander;
use crate::log::Log;
use crate::manager;

/// How long all may take then. It must not depend on the thread that hears the workers either, whose calls of the system may hang.
const END_ANYHOW: Duration = Duration::from_secs(8);

/// Hands commands to the workers, and remembers the one that must not depend on them.
#[derive(Debug, Clone)]
pub struct Commands {
    commander: Commander,
    /// [`Command::ShutdownNow`] was given.
    pub at_once: Arc<AtomicBool>,
    /// The workers have ended, and what is left is TLS of clients that have gone over to another process.
    carries: Arc<AtomicBool>,
    /// Its end was asked for since.
    asked: Arc<AtomicBool>,
}

impl Commands {
    pub fn new(commander: Commander) -> Self {
        Self { commander, at_once: Arc::default(), carries: Arc::default(), asked: Arc::default() }
    }

    /// No worker hears commands any more.
    pub fn carries_on(&self) {
        self.carries.store(true, Ordering::Relaxed);
    }

    pub fn give(&self, command: Command) {
        let waits = matches!(command, Command::ShutdownWaitForClients | Command::ShutdownWaitForServers);
        let again = waits && self.carries.load(Ordering::Relaxed) && self.asked.swap(true, Ordering::Relaxed);
        if command == Command::ShutdownNow || again {
            self.at_once.store(true, Ordering::Relaxed);
        }
        if matches!(command, Command::ShutdownNow | Command::ShutdownWaitForClients | Command::ShutdownWaitForServers) {
            manager::tell(&[NotifyState::Stopping]);
        }
        self.commander.command(command);
    }
}

/// From now on they are ours.
pub fn watch_signals() -> Result<Signals, String> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2]);
    signals.map_err(|error| format!("could not watch for signals: {error}"))
}

/// Signals as commands, as PgBouncer has them. SIGPIPE is ignored by Rust's runtime.
pub fn hear_signals(
    mut signals: Signals,
    commands: Commands,
    log: Arc<Log>,
) -> Result<(SignalHandle, JoinHandle<()>), String> {
    let failed = |error| format!("could not start a thread: {error}");
    let handle = signals.handle();
    let hear = move || {
        for signal in signals.forever() {
            if let Some((name, command)) = command_of(signal) {
                // Nothing that is in the log's way may be in the command's.
                commands.give(command);
                if command == Command::ShutdownNow {
                    end_anyhow();
                }
                // A panic in here must not make the process deaf to the next signal; it has been said on stderr.
                let _ = catch_unwind(AssertUnwindSafe(|| log.info(&format!("got {name}"))));
            }
        }
    };
    let thread = thread::Builder::new().name("weir-signals".to_owned()).spawn(hear).map_err(failed)?;
    Ok((handle, thread))
}

fn end_anyhow() {
    // Where no thread can be started the process may end by itself still.
    let _ = thread::Builder::new().name("weir-end".to_owned()).spawn(|| {
        thread::sleep(END_ANYHOW);
        std::process::exit(1);
    });
}

fn command_of(signal: i32) -> Option<(&'static str, Command)> {
    match signal {
        SIGHUP => Some(("SIGHUP, re-reading config", Command::Reload)),
        SIGTERM => {
            Some(("SIGTERM, shutting down, waiting for all clients disconnect", Command::ShutdownWaitForClients))
        }
        SIGINT => Some((
            "SIGINT, shutting down, waiting for all servers connections to be released",
            Command::ShutdownWaitForServers,
        )),
        SIGQUIT => Some(("SIGQUIT, fast exit", Command::ShutdownNow)),
        SIGUSR1 => Some(("SIGUSR1, pausing all activity", Command::Pause)),
        SIGUSR2 => Some(("SIGUSR2, continuing", Command::Resume)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_pgbouncer_s_commands() {
        let commands = [
            (SIGHUP, Command::Reload),
            (SIGTERM, Command::ShutdownWaitForClients),
            (SIGINT, Command::ShutdownWaitForServers),
            (SIGQUIT, Command::ShutdownNow),
            (SIGUSR1, Command::Pause),
            (SIGUSR2, Command::Resume),
        ];
        for (signal, command) in commands {
            assert_eq!(command_of(signal).unwrap().1, command);
        }
        assert!(command_of(SIGHUP + 1000).is_none());
    }
}
