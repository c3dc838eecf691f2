//! Commands that concern the whole process: signals, and what the console asks for all workers.

use crate::console::report::Question;
use crate::contract::event::{Command, Event};
use crate::failure::Failure;
use crate::id::NO_POOL;
use crate::id::WorkerId;
use crate::mail::Letter;
use crate::pool::gates::Gate;
use crate::server::ServerState;
use crate::timers::Subject;
use crate::worker::{Process, Traffic};

impl Process {
    pub(super) fn command(&mut self, command: Command) {
        match command {
            Command::Reload => self.service.traffic.cx.out.event(Event::Reload { asker: None, change: None }),
            Command::Pause | Command::Resume if self.service.traffic.shutdown.is_under_way() => {
                let word = if command == Command::Pause { "SIGUSR1" } else { "SIGUSR2" };
                self.service.traffic.cx.log_warning(format!("got {word} while shutting down, ignoring"));
            }
            Command::Pause | Command::Resume => {
                let question = if command == Command::Pause { Question::Pause(None) } else { Question::Resume(None) };
                self.service.traffic.cx.ask_workers(&question, None);
            }
            Command::ShutdownNow => self.exit(),
            Command::HandOver => {
                if let Some(steward) = &mut self.steward {
                    steward.hands_over();
                }
                self.post_stewards_letters();
                let Traffic { cx, shutdown, .. } = &mut self.service.traffic;
                if shutdown.is(Command::ShutdownWaitForServers) || shutdown.is_at_once() {
                    return cx.log_warning("shutting down already: no clients are handed over".to_owned());
                }
                // Who was to leave need not.
                self.tell_all_to_shut_down(command);
            }
            Command::ShutdownWaitForClients | Command::ShutdownWaitForServers => {
                if self.service.traffic.shutdown.is(command) {
                    // Asked a second time: at once.
                    return self.exit();
                }
                self.service.traffic.cx.out.event(Event::StopListening);
                self.tell_all_to_shut_down(command);
            }
        }
    }

    fn tell_all_to_shut_down(&mut self, command: Command) {
        let Traffic { cx, shutdown, .. } = &mut self.service.traffic;
        shutdown.count_anew();
        for worker in 0..cx.config.workers {
            cx.post(WorkerId(worker), Letter::Shutdown { command });
        }
    }

    /// What the steward has to say goes out.
    pub(super) fn post_stewards_letters(&mut self) {
        let Some(steward) = &mut self.steward else { return };
        let (letters, tried) = (std::mem::take(&mut steward.letters), steward.take_tried());
        let traffic = &mut self.service.traffic;
        traffic.wants = steward.wants();
        traffic.count_steps(tried);
        for (to, letter) in letters {
            traffic.cx.post(to, letter);
        }
    }

    fn exit(&mut self) {
        if self.service.traffic.shutdown.exits() {
            self.service.traffic.cx.out.event(Event::Exit);
        }
    }

    pub(super) fn shut_down(&mut self, command: Command) {
        let traffic = &mut self.service.traffic;
        traffic.shutdown.begin(command);
        if traffic.gates.is_suspended() {
            // Nobody could leave.
            traffic.gates.read_on();
            traffic.read_on_suspended();
        }
        if command == Command::ShutdownWaitForServers {
            self.pause_pools(None);
        }
        self.leave_nobody_waiting();
        let Traffic { cx, shutdown, .. } = &mut self.service.traffic;
        if shutdown.hands_over() {
            shutdown.hands_over_from(cx.now);
            cx.timers.set(Subject::Handover, &mut self.handover_deadline, cx.now);
        } else {
            self.refuse_logins();
        }
        self.service.look_quiet();
    }

    /// Ends the logins that are under way. Who has not said its name yet may want the console.
    fn refuse_logins(&mut self) {
        for id in self.service.traffic.clients.ids() {
            if self.service.traffic.login(id).is_some_and(|login| login.is_named() && !login.is_to_console()) {
                self.service.fail_client(id, &Failure::NoNewClients);
            }
        }
    }

    /// Nothing is resumed during a shutdown: behind a closed gate nobody is served any more, and no server is of use.
    pub(super) fn leave_nobody_waiting(&mut self) {
        let service = &mut self.service;
        if !service.traffic.shutdown.is_under_way() {
            return;
        }
        for index in service.traffic.pools.indexes() {
            if service.traffic.pools[index].gate == Gate::Open {
                continue;
            }
            for waiting in service.traffic.pools[index].waiting.take_all() {
                let is_in = !service.traffic.is_logging_in(waiting.client);
                let failure = if is_in { Failure::ShuttingDown } else { Failure::NoNewClients };
                service.fail_client(waiting.client, &failure);
            }
        }
        let traffic = &mut service.traffic;
        for id in traffic.servers.ids() {
            let Some(server) = traffic.servers.get(id).filter(|server| server.pool != NO_POOL) else { continue };
            if matches!(server.state, ServerState::Making(_)) && traffic.pools[server.pool].gate != Gate::Open {
                traffic.close_server(id, "server shutting down");
            }
        }
    }

    /// The process ends: everybody is told, as far as what went before allows.
    pub(super) fn stop(&mut self) {
        self.service.traffic.shutdown.begin(Command::ShutdownNow);
        self.pause_pools(None);
        self.leave_nobody_waiting();
        self.refuse_logins();
        for id in self.service.traffic.clients.ids() {
            self.service.fail_client(id, &Failure::ShuttingDown);
        }
        for id in self.service.traffic.servers.ids() {
            self.service.traffic.close_server(id, "server shutting down");
        }
    }

    pub(super) fn count_quiet(&mut self) {
        self.service.traffic.shutdown.one_is_quiet();
        self.look_whether_all_left();
    }

    /// A shutdown that waits for clients also waits for those that are on their way between two workers.
    pub(super) fn look_whether_all_left(&mut self) {
        let Some(steward) = &self.steward else { return };
        let Traffic { cx, shutdown, .. } = &self.service.traffic;
        let somebody_stays = match () {
            () if shutdown.is(Command::ShutdownWaitForClients) => steward.has_clients(),
            // Whoever the process before this one has still is to go over through this one.
            () if shutdown.hands_over() => steward.has_connections() || steward.has_predecessor(),
            () => false,
        };
        let comes_back = steward.has_some_on_their_way();
        if shutdown.is_done_by(cx.config.workers) && !somebody_stays && !comes_back {
            self.exit();
        }
    }

    pub(super) fn pools_named(&self, name: Option<&str>) -> Vec<u32> {
        let pools = &self.service.traffic.pools;
        pools.indexes().filter(|&index| name.is_none_or(|name| *pools[index].name.database == *name)).collect()
    }

    /// Nobody gets a server any more, and those that are free are closed.
    pub(super) fn pause_pools(&mut self, name: Option<&str>) {
        let named = self.pools_named(name);
        let traffic = &mut self.service.traffic;
        traffic.gates.pause(name);
        for index in named {
            let pool = &mut traffic.pools[index];
            pool.gate = Gate::Paused;
            let checked: Vec<_> = pool.checks.iter().collect();
            for id in std::mem::take(&mut pool.idle).into_iter().chain(checked) {
                traffic.close_server(id, "pause mode");
            }
        }
    }
}
