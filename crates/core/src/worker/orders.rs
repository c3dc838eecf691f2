//! What a worker does for the console: the way of its messages, and when it is asked its gates, RECONNECT, KILL, and waiting until servers are closed.

use std::net::IpAddr;
use std::sync::Arc;

use crate::client::{Client, ClientState};
use crate::failure::Failure;
use crate::id::{ClientId, WorkerId};
use crate::inbox::{Cursor, Inbox};
use crate::mail::Letter;
use crate::pool::NO_POOL;
use crate::pool::gates::Gate;
use crate::server::Server;
use crate::whither::is_at;
use crate::worker::Worker;

use crate::console::inspection::Inspection;
use crate::console::report::{Answer, Question};
use crate::console::sockets::Portion;
use crate::console::talk::{Talk, Then};
use crate::contract::Reloaded;

impl Worker {
    /// A session of the console, and where its messages are gathered.
    fn talk(&mut self, id: ClientId) -> Option<(Talk<'_>, &mut Inbox)> {
        let client = self.clients.get_mut(id)?;
        let ClientState::Console(console) = &mut client.state else { return None };
        let (cx, counters) = (&mut self.cx, &mut self.console_counters);
        Some((Talk { cx, id, console, congested: client.congested, counters }, &mut client.inbox))
    }

    pub(super) fn console_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        if let Some((mut talk, inbox)) = self.talk(id) {
            let then = talk.bytes(inbox, &mut cursor);
            self.talked(id, then);
        }
        cursor.at
    }

    /// Something else than bytes.
    pub(super) fn console_input(&mut self, id: ClientId, take: impl FnOnce(&mut Talk<'_>) -> Then) {
        if let Some((mut talk, _)) = self.talk(id) {
            let then = take(&mut talk);
            self.talked(id, then);
        }
    }

    /// One worker's share of an answer.
    pub(super) fn console_told(&mut self, id: ClientId, share: Answer) {
        self.console_input(id, |talk| talk.told(share));
    }

    pub(super) fn console_goes_on(&mut self, id: ClientId) {
        if let Some((mut talk, _)) = self.talk(id) {
            talk.goes_on();
        }
    }

    /// What the console asked for, if it did, has ended.
    pub(super) fn reload_done(&mut self, asker: Option<ClientId>, result: &Reloaded) {
        if let Some(id) = asker {
            self.console_input(id, |talk| talk.reloaded(result));
        }
    }

    fn talked(&mut self, id: ClientId, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Hold => self.hold_client(id),
            Then::Wake => self.wake_client(id),
            Then::Later => self.arm_client(id),
            Then::End => self.end_client(id, "client close request"),
            Then::Fail(failure) => self.fail_client(id, &failure),
        }
    }

    fn inspection(&self) -> Inspection<'_> {
        Inspection {
            cx: &self.cx,
            clients: &self.clients,
            servers: &self.servers,
            pools: &self.pools,
            steward: self.steward.as_ref(),
            gates: &self.gates,
            averages: &self.averages,
            console_counters: &self.console_counters,
            strays: &self.strays,
            busy_permille: self.load.busy_permille(),
            handed_over: self.handed_over,
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
            Question::Pause(_) | Question::Resume(_) | Question::Suspend if self.shutdown.is_under_way() => {
                answer.refusal = Some("pooler is shutting down".to_owned());
            }
            Question::Pause(_) if self.gates.is_suspended() => {
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
            Question::Forget => return self.closing_waits.retain(|(to, own, _)| (*to, Some(*own)) != (from, asker)),
            Question::Suspend => answer.refusal = self.suspend().err(),
            Question::Resume(name) => answer.refusal = self.resume_pools(name.as_deref()).err(),
            Question::Disable(name) => self.disable(name),
            Question::Enable(name) => self.gates.disable(name, false),
            Question::Reconnect(name) => self.reconnect(name.as_deref()),
            Question::Kill(name) => self.kill(name.as_deref()),
            Question::KillClient(number) => answer.found = self.kill_client(*number),
        }
        self.tell(from, asker, answer);
    }

    fn tell(&mut self, to: WorkerId, asker: Option<ClientId>, answer: Answer) {
        if let Some(asker) = asker {
            self.cx.post(to, Letter::Tell { answer: Box::new(answer), asker });
        }
    }

    /// What is under way is carried out and answered; nothing more is read of clients.
    fn suspend(&mut self) -> Result<(), String> {
        self.gates.suspend()?;
        for id in self.clients.ids() {
            if self.clients.get(id).is_some_and(|client| client.session().is_some() && !client.held) {
                self.suspend_client(id);
            }
        }
        Ok(())
    }

    fn resume_pools(&mut self, name: Option<&str>) -> Result<(), String> {
        self.gates.resume(name)?;
        if !self.gates.is_suspended() {
            self.read_on_suspended();
        }
        for index in self.pools_named(name) {
            self.pools[index].gate = self.gates.of(&self.pools[index].name.database);
            if self.pools[index].gate == Gate::Open {
                self.schedule(index);
                self.ask(index);
                self.fill(index);
            }
        }
        // Another console's PAUSE may still wait.
        self.closing_progress();
        Ok(())
    }

    /// Nobody is let in any more; who is in stays, and who is proved but was not greeted yet is not.
    fn disable(&mut self, name: &Arc<str>) {
        self.gates.disable(name, true);
        let named = self.marked(&self.pools_named(Some(name)));
        for id in self.clients.ids() {
            let is_named = |client: &Client| named.get(client.pool as usize) == Some(&true);
            if self.is_logging_in(id) && self.clients.get(id).is_some_and(is_named) {
                self.fail_client(id, &Failure::Disabled { name: name.to_string() });
            }
        }
    }

    /// All servers are replaced as they become free.
    fn reconnect(&mut self, name: Option<&str>) {
        self.reconnects.begin(name);
        let named = self.marked(&self.pools_named(name));
        self.mark_servers(&named);
    }

    /// These pools among all, for one walk over all connections.
    fn marked(&self, pools: &[u32]) -> Vec<bool> {
        let mut marked = vec![false; self.pools.indexes().len()];
        for &index in pools {
            marked[index as usize] = true;
        }
        marked
    }

    /// `of`: for each pool, whether its servers are marked.
    pub(super) fn mark_servers(&mut self, of: &[bool]) {
        for id in self.servers.ids() {
            let is_of = |server: &&Server| of.get(server.pool as usize) == Some(&true);
            let Some(server) = self.servers.get(id).filter(is_of) else { continue };
            let here = self.pools[server.pool].origin();
            let leads_elsewhere = server.origin.as_ref().is_some_and(|origin| !origin.leads_as(&here));
            self.mark_server(id, leads_elsewhere, "database configuration changed");
        }
    }

    /// The name of a host leads elsewhere now: servers at addresses that it has left are replaced as they become free.
    pub(super) fn host_moved(&mut self, host: &Arc<str>, gone: &[IpAddr]) {
        self.whither.learn(host, gone, self.cx.now);
        for id in self.servers.ids() {
            // What takes a cancel request somewhere is of no pool, and gone in a moment.
            let is_left = |server: &Server| server.pool != NO_POOL && is_at(server, host, gone);
            if self.servers.get(id).is_some_and(is_left) {
                self.mark_server(id, false, "obsolete connection");
            }
        }
    }

    /// Drops the client of this number; one that has moved is followed.
    pub(super) fn kill_client(&mut self, number: u64) -> bool {
        let here = self.clients.iter().find(|(_, client)| client.number == number).map(|(id, _)| id);
        if let Some(id) = here {
            self.fail_client(id, &Failure::Killed);
            return true;
        }
        let left = self.sessions.left_to(number);
        if let Some(to) = left {
            self.cx.post(to, Letter::KillClient { number });
        }
        left.is_some()
    }

    /// Drops clients and servers, and pauses.
    fn kill(&mut self, name: Option<&str>) {
        self.kills.begin(name);
        let named = self.marked(&self.pools_named(name));
        let is_named = |index: u32| named.get(index as usize) == Some(&true);
        for id in self.clients.ids() {
            if self.clients.get(id).is_some_and(|client| is_named(client.pool)) {
                self.fail_client(id, &Failure::Killed);
            }
        }
        for id in self.servers.ids() {
            if self.servers.get(id).is_some_and(|server| is_named(server.pool)) {
                self.close_server(id, "admin forced disconnect");
            }
        }
        self.pause_pools(name);
        self.leave_nobody_waiting();
    }

    /// Answers whoever waits for servers to be closed, once they are.
    pub(super) fn closing_progress(&mut self) {
        for (from, asker, question) in std::mem::take(&mut self.closing_waits) {
            let done = match &question {
                Question::Pause(name) => {
                    self.pools_named(name.as_deref()).into_iter().all(|index| self.pools[index].servers == 0)
                }
                Question::WaitClose(name) => {
                    let pools = self.pools_named(name.as_deref());
                    !self.servers.iter().any(|(_, server)| server.close_needed && pools.contains(&server.pool))
                }
                _ => true,
            };
            let resumed = matches!(&question, Question::Pause(name)
                if self.pools_named(name.as_deref()).into_iter().any(|index| self.pools[index].gate == Gate::Open));
            if done || resumed {
                self.tell(from, Some(asker), Answer::default());
            } else {
                self.closing_waits.push((from, asker, question));
            }
        }
    }
}
