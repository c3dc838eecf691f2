//! What a worker does for the console: the way of its messages, and when it is asked its gates, RECONNECT, KILL, and waiting until servers are closed.

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::Client;
use crate::failure::Failure;
use crate::id::NO_POOL;
use crate::id::{ClientId, WorkerId};
use crate::mail::Letter;
use crate::pool::gates::Gate;
use crate::server::Server;
use crate::whither::is_at;
use crate::worker::{Process, Traffic};

use crate::console::inspection::Inspection;
use crate::console::report::{Answer, Question};
use crate::console::sockets::Portion;

impl Process {
    fn inspection(&self) -> Inspection<'_> {
        let Traffic { cx, clients, servers, pools, gates, .. } = &self.service.traffic;
        Inspection {
            cx,
            clients,
            servers,
            pools,
            steward: self.steward.as_ref(),
            gates,
            averages: &self.averages,
            console_counters: &self.service.console_counters,
            strays: &self.service.strays,
            busy_permille: self.service.load.busy_permille(),
            handed_over: self.service.handed_over,
        }
    }

    pub(super) fn asked(&mut self, from: WorkerId, question: &Question, asker: Option<ClientId>) {
        let mut answer = Answer::default();
        match question {
            Question::Report(show) => self.inspection().report(*show, &mut answer),
            Question::Rows { show, slot } => {
                let Portion { rows, next } = self.inspection().rows_from(*show, *slot);
                (answer.rows, answer.next_slot) = (rows, next);
            }
            Question::Pause(_) | Question::Resume(_) | Question::Suspend
                if self.service.traffic.shutdown.is_under_way() =>
            {
                answer.refusal = Some("pooler is shutting down".to_owned());
            }
            Question::Pause(_) if self.service.traffic.gates.is_suspended() => {
                answer.refusal = Some("already suspended/paused".to_owned());
            }
            Question::Pause(name) | Question::WaitClose(name) => {
                if matches!(question, Question::Pause(_)) {
                    self.pause_pools(name.as_deref());
                }
                if let Some(asker) = asker {
                    self.closing_waits.push((from, asker, question.clone()));
                }
                return self.closing_progress();
            }
            Question::SearchPaths => answer.paths = self.inspection().search_paths(),
            Question::Forget => return self.closing_waits.retain(|(to, own, _)| (*to, Some(*own)) != (from, asker)),
            Question::Suspend => answer.refusal = self.suspend().err(),
            Question::Resume(name) => answer.refusal = self.resume_pools(name.as_deref()).err(),
            Question::Disable(name) => self.disable(name),
            Question::Enable(name) => self.service.traffic.gates.disable(name, false),
            Question::Reconnect(name) => self.reconnect(name.as_deref()),
            Question::Kill(name) => self.kill(name.as_deref()),
            Question::KillClient(number) => answer.found = self.kill_client(*number),
        }
        self.tell(from, asker, answer);
    }

    fn tell(&mut self, to: WorkerId, asker: Option<ClientId>, answer: Answer) {
        if let Some(asker) = asker {
            self.service.traffic.cx.post(to, Letter::Tell { answer: Box::new(answer), asker });
        }
    }

    /// What is under way is carried out and answered; nothing more is read of clients.
    fn suspend(&mut self) -> Result<(), String> {
        self.service.traffic.gates.suspend()?;
        for id in self.service.traffic.clients.ids() {
            if self.service.traffic.clients.get(id).is_some_and(|client| client.session().is_some() && !client.held) {
                self.service.traffic.suspend_client(id);
            }
        }
        Ok(())
    }

    fn resume_pools(&mut self, name: Option<&str>) -> Result<(), String> {
        let named = self.pools_named(name);
        let traffic = &mut self.service.traffic;
        traffic.gates.resume(name)?;
        if !traffic.gates.is_suspended() {
            traffic.read_on_suspended();
        }
        for index in named {
            let pool = &mut traffic.pools[index];
            pool.gate = traffic.gates.of(&pool.name.database);
            if pool.gate == Gate::Open {
                traffic.schedule(index);
                traffic.ask(index);
                traffic.fill(index);
            }
        }
        // Another console's PAUSE may still wait.
        self.closing_progress();
        Ok(())
    }

    /// Nobody is let in any more; who is in stays, and who is proved but was not greeted yet is not.
    fn disable(&mut self, name: &Arc<str>) {
        self.service.traffic.gates.disable(name, true);
        let named = self.marked(&self.pools_named(Some(name)));
        for id in self.service.traffic.clients.ids() {
            let is_named = |client: &Client| named.get(client.pool as usize) == Some(&true);
            if self.service.traffic.is_logging_in(id) && self.service.traffic.clients.get(id).is_some_and(is_named) {
                self.service.fail_client(id, &Failure::Disabled { name: name.to_string() });
            }
        }
    }

    /// All servers are replaced as they become free.
    fn reconnect(&mut self, name: Option<&str>) {
        self.service.reconnects.begin(name);
        let named = self.marked(&self.pools_named(name));
        self.mark_servers(&named);
    }

    /// These pools among all, for one walk over all connections.
    fn marked(&self, pools: &[u32]) -> Vec<bool> {
        let mut marked = vec![false; self.service.traffic.pools.indexes().len()];
        for &index in pools {
            marked[index as usize] = true;
        }
        marked
    }

    /// `of`: for each pool, whether its servers are marked.
    pub(super) fn mark_servers(&mut self, of: &[bool]) {
        for id in self.service.traffic.servers.ids() {
            let is_of = |server: &&Server| of.get(server.pool as usize) == Some(&true);
            let Some(server) = self.service.traffic.servers.get(id).filter(is_of) else { continue };
            let here = self.service.traffic.pools[server.pool].origin();
            let leads_elsewhere = server.origin.as_ref().is_some_and(|origin| !origin.leads_as(&here));
            self.service.traffic.mark_server(id, leads_elsewhere, "database configuration changed");
        }
    }

    /// The name of a host leads elsewhere now: servers at addresses that it has left are replaced as they become free.
    pub(super) fn host_moved(&mut self, host: &Arc<str>, gone: &[IpAddr]) {
        self.service.whither.learn(host, gone, self.service.traffic.cx.now);
        for id in self.service.traffic.servers.ids() {
            // What takes a cancel request somewhere is of no pool, and gone in a moment.
            let is_left = |server: &Server| server.pool != NO_POOL && is_at(server, host, gone);
            if self.service.traffic.servers.get(id).is_some_and(is_left) {
                self.service.traffic.mark_server(id, false, "obsolete connection");
            }
        }
    }

    /// Drops the client of this number; one that has moved is followed.
    pub(super) fn kill_client(&mut self, number: u64) -> bool {
        let here = self.service.traffic.clients.iter().find(|(_, client)| client.number == number).map(|(id, _)| id);
        if let Some(id) = here {
            self.service.fail_between_messages(id, Failure::Killed);
            return true;
        }
        let left = self.service.sessions.left_to(number);
        if let Some(to) = left {
            self.service.traffic.cx.post(to, Letter::KillClient { number });
        }
        left.is_some()
    }

    /// Drops clients and servers, and pauses.
    fn kill(&mut self, name: Option<&str>) {
        self.service.kills.begin(name);
        let named = self.marked(&self.pools_named(name));
        let is_named = |index: u32| named.get(index as usize) == Some(&true);
        let service = &mut self.service;
        for id in service.traffic.clients.ids() {
            if service.traffic.clients.get(id).is_some_and(|client| is_named(client.pool)) {
                service.fail_client(id, &Failure::Killed);
            }
        }
        for id in service.traffic.servers.ids() {
            if service.traffic.servers.get(id).is_some_and(|server| is_named(server.pool)) {
                service.traffic.close_server(id, "admin forced disconnect");
            }
        }
        self.pause_pools(name);
        self.leave_nobody_waiting();
    }

    /// Answers whoever waits for servers to be closed, once they are.
    pub(super) fn closing_progress(&mut self) {
        for (from, asker, question) in std::mem::take(&mut self.closing_waits) {
            let done = match &question {
                Question::Pause(name) => self
                    .pools_named(name.as_deref())
                    .into_iter()
                    .all(|index| self.service.traffic.pools[index].servers == 0),
                Question::WaitClose(name) => {
                    let pools = self.pools_named(name.as_deref());
                    !self
                        .service
                        .traffic
                        .servers
                        .iter()
                        .any(|(_, server)| server.close_needed && pools.contains(&server.pool))
                }
                _ => true,
            };
            let resumed = matches!(&question, Question::Pause(name)
                if self.pools_named(name.as_deref()).into_iter().any(|index| self.service.traffic.pools[index].gate == Gate::Open));
            if done || resumed {
                self.tell(from, Some(asker), Answer::default());
            } else {
                self.closing_waits.push((from, asker, question));
            }
        }
    }
}
