//! The way of each input to whoever deals with it, and what is left to do behind it.

use std::sync::Arc;

use crate::client::{Client, ClientState};
use crate::context::WorkerConfig;
use crate::contract::{Input, Output, Span};
use crate::derivations::{Derived, Job};
use crate::id::{ClientId, ConnId, Party, ServerId, Side, WorkerId};
use crate::mail::{Letter, Mail};
use crate::peer::Peer;
use crate::pool::NO_POOL;
use crate::server::{Server, ServerState};
use crate::settings::Settings;
use crate::time::Time;
use crate::timers::Subject;
use crate::worker::Worker;
use crate::worker::handover::WORD_FROM_ABROAD;

impl Worker {
    pub fn new(config: WorkerConfig, settings: Arc<Settings>) -> Self {
        let mut worker = Self::with(config, settings);
        worker.arm_stats();
        if worker.cx.config.predecessor.is_some() {
            let due = worker.cx.now + WORD_FROM_ABROAD;
            worker.cx.timers.set(Subject::Handover, &mut worker.handover_deadline, due);
        }
        worker.fill_forced_pools();
        worker.finish();
        worker
    }

    /// The name for a connection that the driver is about to hand in.
    pub fn reserve(&mut self, side: Side) -> ConnId {
        match side {
            Side::Client => self.clients.insert(Client::reserved(self.cx.now)).into(),
            Side::Server => {
                let nothing = Arc::clone(&self.cx.no_parameters);
                // Its own number comes with it.
                let server = Server::new(ServerState::Reserved, NO_POOL, nothing, self.cx.now, 0);
                self.servers.insert(server).into()
            }
        }
    }

    /// Takes one input; for `Bytes`, answers how many of them were taken.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> usize {
        debug_assert!(now >= self.cx.now, "time never goes back");
        self.cx.now = now;
        self.steps = 0;
        self.cx.out.begin();
        let consumed = match input {
            Input::Bytes { conn, bytes } => match conn.party() {
                Party::Client(client) => self.client_bytes(client, bytes),
                Party::Server(server) => self.server_bytes(server, bytes),
            },
            input => {
                self.dispatch(input);
                0
            }
        };
        self.finish();
        if cfg!(debug_assertions) {
            self.invariants.check(&self.clients, &self.servers, &self.pools);
            let own = self.closing_waits.iter().filter(|(worker, ..)| *worker == self.cx.config.id);
            for (_, asker, _) in own {
                let is_in =
                    self.clients.get(*asker).is_some_and(|client| matches!(client.state, ClientState::Console(_)));
                assert!(is_in, "whoever waits for servers to be closed has not gone");
            }
            let posted = self.steward.as_ref().is_none_or(|steward| steward.letters.is_empty());
            assert!(posted, "what the steward has to say is posted");
            let are_here = self.suspended.iter().all(|id| self.clients.get(*id).is_some());
            assert!(are_here, "whoever is suspended has not gone");
        }
        consumed
    }

    /// What an input has left to do: pools to serve, clients to read from again, letters to ourselves.
    fn finish(&mut self) {
        loop {
            if let Some(server) = self.settling.pop() {
                self.step();
                self.settle(server);
                continue;
            }
            self.serve_scheduled();
            if let Some(client) = self.woken.pop_front() {
                self.step();
                self.read_on(client);
                continue;
            }
            if let Some((client, to)) = self.departures.next() {
                self.step();
                match to {
                    WorkerId::SUCCESSOR => self.go_over(client),
                    _ => self.depart(client, to),
                }
                continue;
            }
            let Some(letter) = self.cx.next_letter() else { break };
            self.step();
            self.read_letter(self.cx.config.id, letter, None);
        }
        if self.cx.timers.is_crowded() {
            self.sweep_timers();
        }
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.cx.out.poll()
    }

    /// The bytes of a `Span::Made`; empty for a span of received bytes.
    pub fn made(&self, span: Span) -> &[u8] {
        self.cx.out.made(span)
    }

    /// When `Input::Timeout` is due at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.cx.timers.next()
    }

    /// Clients that this worker sent to another one.
    pub fn clients_moved(&self) -> u64 {
        self.departures.moved()
    }

    /// Servers that went from worker to worker, and all messages to other workers: the cost of being many.
    pub fn messages_sent(&self) -> (u64, u64) {
        (self.handed_over, self.cx.letters_sent())
    }

    /// Breaks a law on purpose, to see whether it is noticed.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        self.cx.planted = Some(bug);
        self.cx.parameter_sets.planted = Some(bug);
    }

    fn dispatch(&mut self, input: Input<'_>) {
        match input.conn().map(ConnId::party) {
            Some(Party::Client(id)) => self.client_input(id, input),
            Some(Party::Server(id)) => self.server_input(id, input),
            None => self.process_input(input),
        }
    }

    fn client_input(&mut self, id: ClientId, input: Input<'_>) {
        match input {
            Input::Accepted { peer, local, .. } => self.accepted(id, peer, local),
            Input::Ended { .. } => self.client_ended(id),
            Input::Closed { .. } => self.client_closed(id),
            Input::Congested { .. } => self.client_congested(id, true),
            Input::Writable { .. } => self.client_congested(id, false),
            Input::TlsReady { tls, .. } => self.client_tls_ready(id, tls),
            Input::Stays { mail: Mail(Letter::Guest { passport }), .. } => self.guest_stays(id, *passport),
            Input::Stays { mail, .. } => self.stays(id, mail.0),
            other => debug_assert!(false, "not of a client: {other:?}"),
        }
    }

    fn server_input(&mut self, id: ServerId, input: Input<'_>) {
        match input {
            Input::Failed { .. } => self.server_failed(id),
            Input::Closed { .. } => {
                self.server_closed(id);
                self.closing_progress();
            }
            Input::Connected { peer, local, .. } => {
                if let Some(server) = self.servers.get_mut(id) {
                    (server.peer, server.local) = (Some(peer), Some(local));
                }
                self.making_input(id, |login| login.connected());
            }
            Input::ConnectFailed { reason, .. } => {
                self.connect_failed(id, reason);
                self.closing_progress();
            }
            Input::Congested { .. } => self.server_congested(id, true),
            Input::Writable { .. } => self.server_congested(id, false),
            Input::TlsReady { tls, .. } => self.making_input(id, |login| login.tls_ready(tls)),
            Input::TlsFailed { reason, .. } => self.server_tls_failed(id, &reason),
            other => debug_assert!(false, "not of a server: {other:?}"),
        }
    }

    /// What is of no connection, or brings one.
    fn process_input(&mut self, input: Input<'_>) {
        match input {
            Input::Derived { job, salted_password } => self.derived(job, salted_password),
            Input::Answered { client, finding } => self.login_input(client, |login| login.is_answered(finding)),
            Input::Settings(settings) => self.new_settings(settings),
            Input::Command(command) => self.command(command),
            Input::Mail { from, mail, conn } => self.read_letter(from, mail.0, conn),
            Input::Load { busy_permille } => self.load.measured(busy_permille, &mut self.pools, &mut self.cx),
            Input::Crowded { full } => {
                self.crowded = full;
                self.cx.tell_steward(Letter::Crowded { full });
            }
            Input::NamesTold { asker, names } => self.console_input(asker, |talk| talk.names_told(*names)),
            Input::HostMoved { host, gone } => self.host_moved(&host, &gone),
            Input::ReloadDone { asker, result } => self.reload_done(asker, &result),
            Input::Stop => self.stop(),
            Input::Timeout => self.timeout(),
            other => debug_assert!(false, "of a connection: {other:?}"),
        }
    }

    // Connections come and go.

    fn accepted(&mut self, id: ClientId, peer: Peer, local: Peer) {
        let place = self.steward.as_mut().and_then(|steward| steward.accept());
        let number = if place.is_some() { self.cx.next_number() } else { 0 };
        match place {
            Some(worker) if worker == self.cx.config.id => self.begin_client(id, peer, local, number),
            Some(worker) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.enter(ClientState::Closing);
                }
                self.cx.send_mail(worker, Letter::Client { peer, local, number }, Some(id.into()));
            }
            None => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.enter(ClientState::Closing);
                }
                self.cx.log_warning("too many connections that have not logged in: one more was closed".to_owned());
                self.cx.out.close(id);
            }
        }
    }

    #[cold]
    fn client_closed(&mut self, id: ClientId) {
        if self.clients.get(id).is_some_and(|client| matches!(client.state, ClientState::Departed)) {
            self.has_departed();
            self.send_over();
            if self.clients.get(id).is_some_and(|client| client.counted) {
                // To another process: one to another worker is counted there.
                self.cx.tell_steward(Letter::OnItsWay);
            }
            return self.client_gone(id);
        }
        let looked =
            |client: &Client| matches!(&client.state, ClientState::Login(login) if login.is_untouched(&client.inbox));
        if !self.clients.get(id).is_some_and(looked) {
            self.log_leaving(id, "client unexpected eof");
        }
        self.leave(id);
        self.client_gone(id);
    }

    fn client_gone(&mut self, id: ClientId) {
        let Some(client) = self.clients.remove(id) else { return };
        if client.counted {
            let moved = (client.moved.moves > 0).then_some(client.moved);
            self.cx.tell_steward(Letter::Gone { admitted: client.admitted, moved });
        }
        self.look_quiet();
    }

    fn derived(&mut self, number: u32, salted: [u8; 32]) {
        let Some((recipe, jobs)) = self.derivations.done(number) else { return };
        let derived = Derived { recipe, salted };
        for job in jobs {
            match job {
                Job::Password { client } => self.login_input(client, |login| login.password_derived(&derived)),
                Job::Verifier { user, client } => self.verifier_derived(&user, client, &derived),
                Job::Server { server, .. } => self.server_derived(server, &derived),
            }
        }
        self.cx.begin_derivations(&mut self.derivations);
    }
}
