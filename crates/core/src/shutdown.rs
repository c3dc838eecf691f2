//! How far a shutdown is.

use crate::contract::event::Command;
use crate::time::Time;

/// How far the end of the process is.
#[derive(Debug, Default)]
pub(crate) struct Shutdown {
    /// What was asked for.
    command: Option<Command>,
    /// This worker has told that it has nothing left to wait for.
    told_quiet: bool,
    /// Workers that have done their part; the steward counts them.
    quiet: u16,
    /// The program was told that all is done.
    exiting: bool,
    /// When another process began to take new clients in.
    handed_over_at: Time,
}

impl Shutdown {
    /// Whether new sessions are turned away.
    pub(crate) fn is_under_way(&self) -> bool {
        self.command.is_some() && !self.hands_over()
    }

    /// Whether another process takes new clients in: those that are here are served until they leave.
    pub(crate) fn hands_over(&self) -> bool {
        self.is(Command::HandOver)
    }

    pub(crate) fn is(&self, command: Command) -> bool {
        self.command == Some(command)
    }

    pub(crate) fn is_at_once(&self) -> bool {
        self.is(Command::ShutdownNow)
    }

    /// Whoever came before then came to this process; `Time(0)` while there is no other.
    pub(crate) fn handed_over_at(&self) -> Time {
        self.handed_over_at
    }

    pub(crate) fn hands_over_from(&mut self, now: Time) {
        self.handed_over_at = now;
    }

    pub(crate) fn begin(&mut self, command: Command) {
        (self.command, self.told_quiet) = (Some(command), false);
    }

    /// What was asked for, as long as this worker has something left to wait for.
    pub(crate) fn untold(&self) -> Option<Command> {
        self.command.filter(|_| !self.told_quiet)
    }

    /// This worker has nothing left to wait for.
    pub(crate) fn tells(&mut self) {
        self.told_quiet = true;
    }

    /// All workers are asked again.
    pub(crate) fn count_anew(&mut self) {
        self.quiet = 0;
    }

    pub(crate) fn one_is_quiet(&mut self) {
        self.quiet += 1;
    }

    /// Whether so many workers have done their part.
    pub(crate) fn is_done_by(&self, workers: u16) -> bool {
        self.command.is_some() && self.quiet >= workers
    }

    /// The program is told that all is done: true the first time.
    pub(crate) fn exits(&mut self) -> bool {
        !std::mem::replace(&mut self.exiting, true)
    }
}
