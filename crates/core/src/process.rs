//! Commands that concern the whole process: signals, and what the console asks for all workers.

use crate::console::Question;
use crate::contract::{Command, Event};
use crate::id::{ConnId, Side, WorkerId};
use crate::mail::Letter;
use crate::pool::Gate;
use crate::worker::Worker;

impl Worker {
    pub(crate) fn command(&mut self, command: Command) {
        match command {
            Command::Reload => self.out.event(Event::Reload),
            Command::Resume if self.shutting_down() => {
                self.log_warning("got RESUME while shutting down, ignoring".to_owned());
            }
            Command::Pause | Command::Resume => {
                let question = if command == Command::Pause { Question::Pause(None) } else { Question::Resume(None) };
                // Nobody asked by a connection: the answers find no asker.
                let nobody = ConnId { side: Side::Client, slot: u32::MAX, generation: 0 };
                for worker in 0..self.config.workers {
                    self.post(WorkerId(worker), Letter::Ask { question: question.clone(), asker: nobody });
                }
            }
            Command::ShutdownNow => self.out.event(Event::Exit),
            Command::ShutdownWaitForClients | Command::ShutdownWaitForServers => {
                if self.shutdown == Some(command) {
                    // Asked a second time: at once.
                    return self.out.event(Event::Exit);
                }
                self.out.event(Event::StopListening);
                self.quiet = 0;
                for worker in 0..self.config.workers {
                    self.post(WorkerId(worker), Letter::Shutdown { command });
                }
            }
        }
    }

    pub(crate) fn shut_down(&mut self, command: Command) {
        self.shutdown = Some(command);
        self.told_quiet = false;
        if command == Command::ShutdownWaitForServers {
            self.set_gate(None, Gate::Paused);
        }
        self.look_quiet();
    }

    /// Tells the steward when there is nothing left to wait for.
    pub(crate) fn look_quiet(&mut self) {
        if self.told_quiet {
            return;
        }
        let quiet = match self.shutdown {
            Some(Command::ShutdownWaitForClients) => !self.clients.iter().any(|(_, client)| client.session().is_some()),
            Some(Command::ShutdownWaitForServers) => self.pools.iter().all(|pool| pool.servers == 0),
            _ => return,
        };
        if quiet {
            self.told_quiet = true;
            self.tell_steward(Letter::Quiet);
        }
    }

    pub(crate) fn count_quiet(&mut self) {
        self.quiet += 1;
        self.look_whether_all_left();
    }

    /// A shutdown that waits for clients also waits for those that are on their way between two workers.
    pub(crate) fn look_whether_all_left(&mut self) {
        let waits_for_clients = self.shutdown == Some(Command::ShutdownWaitForClients);
        let clients = self.steward.as_ref().is_some_and(|steward| steward.has_clients());
        let waits = self.shutdown.is_some() && self.quiet >= self.config.workers;
        if waits && !(waits_for_clients && clients) {
            self.out.event(Event::Exit);
        }
    }

    /// Whether new sessions are turned away.
    pub(crate) fn shutting_down(&self) -> bool {
        self.shutdown.is_some()
    }
}
