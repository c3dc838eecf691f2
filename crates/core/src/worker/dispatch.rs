//! The way of each input to whoever deals with it, and what is left to do behind it.

use crate::client::ClientState;
use crate::contract::Input;
use crate::derivations::{Derived, Job};
use crate::id::{ClientId, ConnId, Party, ServerId, WorkerId};
use crate::mail::{Letter, Mail};
use crate::peer::Peer;
use crate::timers::Subject;
use crate::worker::handover::WORD_FROM_ABROAD;
use crate::worker::{Process, Traffic};

impl Process {
    /// What is begun before the first input.
    pub(super) fn begin(&mut self) {
        self.arm_stats();
        let cx = &mut self.service.traffic.cx;
        if cx.config.predecessor.is_some() {
            let due = cx.now + WORD_FROM_ABROAD;
            cx.timers.set(Subject::Handover, &mut self.handover_deadline, due);
        }
        self.service.fill_forced_pools();
        self.finish();
    }

    /// What an input has left to do: pools to serve, clients to read from again, letters to ourselves.
    pub(super) fn finish(&mut self) {
        loop {
            let service = &mut self.service;
            if let Some(server) = service.traffic.settling.pop() {
                service.traffic.step();
                service.settle(server);
                continue;
            }
            service.serve_scheduled();
            if let Some(client) = service.traffic.woken.pop_front() {
                service.traffic.step();
                service.read_on(client);
                continue;
            }
            if let Some((client, to)) = service.traffic.departures.next() {
                service.traffic.step();
                match to {
                    WorkerId::SUCCESSOR => service.go_over(client),
                    _ => service.depart(client, to),
                }
                continue;
            }
            let Some(letter) = service.traffic.cx.next_letter() else { break };
            service.traffic.step();
            self.read_letter(self.service.traffic.cx.config.id, letter, None);
        }
        if self.service.traffic.cx.timers.is_crowded() {
            self.sweep_timers();
        }
    }

    pub(super) fn dispatch(&mut self, input: Input<'_>) {
        match input.conn().map(ConnId::party) {
            Some(Party::Client(id)) => self.client_input(id, input),
            Some(Party::Server(id)) => self.server_input(id, input),
            None => self.process_input(input),
        }
    }

    fn client_input(&mut self, id: ClientId, input: Input<'_>) {
        match input {
            Input::Accepted { peer, local, .. } => self.accepted(id, peer, local),
            Input::Ended { .. } => self.service.client_ended(id),
            Input::Closed { .. } => self.service.client_closed(id),
            Input::Congested { .. } => self.service.client_congested(id, true),
            Input::Writable { .. } => self.service.client_congested(id, false),
            Input::TlsReady { tls, .. } => self.service.client_tls_ready(id, tls),
            Input::Stays { mail: Mail(Letter::Guest { passport }), .. } => self.service.guest_stays(id, *passport),
            Input::Stays { mail, .. } => self.service.stays(id, mail.0),
            other => debug_assert!(false, "not of a client: {other:?}"),
        }
    }

    fn server_input(&mut self, id: ServerId, input: Input<'_>) {
        match input {
            Input::Failed { .. } => self.service.server_failed(id),
            Input::Closed { .. } => {
                self.service.server_closed(id);
                self.closing_progress();
            }
            Input::Connected { peer, local, .. } => {
                if let Some(server) = self.service.traffic.servers.get_mut(id) {
                    (server.peer, server.local) = (Some(peer), Some(local));
                }
                self.service.making_input(id, |login| login.connected());
            }
            Input::ConnectFailed { reason, .. } => {
                self.service.connect_failed(id, reason);
                self.closing_progress();
            }
            Input::Congested { .. } => self.service.server_congested(id, true),
            Input::Writable { .. } => self.service.server_congested(id, false),
            Input::TlsReady { tls, .. } => self.service.making_input(id, |login| login.tls_ready(tls)),
            Input::TlsFailed { reason, .. } => self.service.server_tls_failed(id, &reason),
            other => debug_assert!(false, "not of a server: {other:?}"),
        }
    }

    /// What is of no connection, or brings one.
    fn process_input(&mut self, input: Input<'_>) {
        match input {
            Input::Derived { job, salted_password } => self.derived(job, salted_password),
            Input::Answered { client, finding } => self.service.login_input(client, |login| login.is_answered(finding)),
            Input::Settings(settings) => self.new_settings(settings),
            Input::Command(command) => self.command(command),
            Input::Mail { from, mail, conn } => self.read_letter(from, mail.0, conn),
            Input::Load { busy_permille } => {
                self.service.load.measured(busy_permille, &mut self.service.traffic.pools, &mut self.service.traffic.cx)
            }
            Input::Crowded { full } => {
                self.service.crowded = full;
                self.service.traffic.cx.tell_steward(Letter::Crowded { full });
            }
            Input::NamesTold { asker, names } => self.service.console_input(asker, |talk| talk.names_told(*names)),
            Input::HostMoved { host, gone } => self.host_moved(&host, &gone),
            Input::ReloadDone { asker, result } => self.service.reload_done(asker, &result),
            Input::Stop => self.stop(),
            Input::Timeout => self.timeout(),
            other => debug_assert!(false, "of a connection: {other:?}"),
        }
    }

    // Connections come and go.

    fn accepted(&mut self, id: ClientId, peer: Peer, local: Peer) {
        let Traffic { cx, clients, .. } = &mut self.service.traffic;
        let place = self.steward.as_mut().and_then(|steward| steward.accept());
        let number = if place.is_some() { cx.next_number() } else { 0 };
        if place == Some(cx.config.id) {
            return self.service.begin_client(id, peer, local, number);
        }
        if let Some(client) = clients.get_mut(id) {
            client.enter(ClientState::Closing);
        }
        match place {
            Some(worker) => cx.send_mail(worker, Letter::Client { peer, local, number }, Some(id.into())),
            None => {
                cx.log_warning("too many connections that have not logged in: one more was closed".to_owned());
                cx.out.close(id);
            }
        }
    }

    fn derived(&mut self, number: u32, salted: [u8; 32]) {
        let Some((recipe, jobs)) = self.service.derivations.done(number) else { return };
        let derived = Derived { recipe, salted };
        for job in jobs {
            match job {
                Job::Password { client } => self.service.login_input(client, |login| login.password_derived(&derived)),
                Job::Verifier { user, client } => self.service.verifier_derived(&user, client, &derived),
                Job::Server { server, .. } => self.service.server_derived(server, &derived),
            }
        }
        self.service.traffic.cx.begin_derivations(&mut self.service.derivations);
    }
}
