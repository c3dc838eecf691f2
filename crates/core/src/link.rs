//! Who is linked to whom: a client gets a server when it has something to send, and a server is free exactly when it is
//! idle outside a transaction with nothing owed.
//!
//! A freed server is not given away on the spot: its pool is put on the list of pools to serve, and served when the input in
//! hand is dealt with. So one freed server never leads to a chain of calls through many clients.

use std::sync::Arc;

use weir_wire::TransactionStatus;

use crate::client::{Client, ClientState, Link, after};
use crate::contract::event::Event;
use crate::failure::Failure;
use crate::gates::Gate;
use crate::id::{ClientId, Moved, ServerId};
use crate::inbox::Body;
use crate::parameters::ParameterSet;
use crate::server::{Hold, ServerState};
use crate::settings::PoolMode;
use crate::time::Time;
use crate::timers::Subject;
use crate::worker::Worker;

impl Worker {
    /// A server for this client now, or a place in the queue.
    pub(crate) fn acquire(&mut self, id: ClientId) -> Result<Option<ServerId>, Failure> {
        let Some(client) = self.clients.get(id) else { return Ok(None) };
        let index = client.pool;
        let pool = &self.pools[index];
        if let Some(report) = &pool.refusal
            && pool.retry_at > self.cx.now
            && pool.connecting == 0
            && !self.has_lasting_server(index)
        {
            return Err(Failure::ServerLogin { report: Arc::clone(report) });
        }
        let open = pool.gate == Gate::Open;
        if !open && self.shutdown.is_under_way() {
            return Err(Failure::ShuttingDown);
        }
        if open && pool.shed.is_some() && self.is_shed(id) {
            return Ok(None);
        }
        let pool = &mut self.pools[index];
        if open
            && pool.waiting.is_empty()
            && let Some(server) = pool.take_idle(self.cx.settings.server_round_robin)
        {
            self.link(id, server, self.cx.now);
            return Ok(Some(server));
        }
        let since = self.cx.now;
        if open && self.goes_home(id) {
            return Ok(None);
        }
        self.queue(id, since);
        self.ask(index);
        Ok(None)
    }

    /// A place in its pool's queue, by the time since when it waits.
    pub(crate) fn queue(&mut self, id: ClientId, since: Time) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.link = Link::Waiting { since };
        client.place = self.pools[client.pool].waiting.join(id, since);
        self.arm_client(id);
    }

    /// Gives the server to the client, with the client's parameters.
    fn link(&mut self, id: ClientId, server_id: ServerId, since: Time) {
        let now = self.cx.now;
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return;
        };
        debug_assert!(matches!(server.state, ServerState::Idle) && server.owed.settled());
        client.link = Link::Linked(server_id);
        server.state = ServerState::Linked(id);
        server.linked_at = now;
        let counters = &mut self.pools[client.pool].counters;
        // A login only borrows one, to be greeted.
        counters.server_assignments += u64::from(matches!(client.state, ClientState::Ready(_)));
        counters.wait_time += now.since(since).0;
        if let ClientState::Ready(session) = &mut client.state {
            server.used = true;
            session.request_at = now;
            session.asked_at = since;
            session.waited = now.since(since);
            session.transaction_at = now;
            let one_by_one = self.pools[client.pool].limits.mode == PoolMode::Statement;
            server.owed.begin(session.statements.batch, one_by_one);
            server.mirror.presumed_wrongly();
            server.mirror.transaction_over(server.owed.answered());
            if !Arc::ptr_eq(&session.parameters, &server.parameters) {
                let wanted = Arc::clone(&session.parameters);
                self.apply_parameters(server_id, &wanted);
            }
        }
        if self.clients.get(id).is_some_and(|client| client.congested) {
            self.hold_server(server_id);
        }
        self.arm_client(id);
    }

    /// Brings the server's session to these parameters. The client's request waits until PostgreSQL has taken them: an error,
    /// a cancel request of an administrator's perhaps, may come in their place, and what is sent behind is carried out all the same.
    /// Only a name may be another's then; it goes in the write that is under way.
    fn apply_parameters(&mut self, server_id: ServerId, wanted: &Arc<ParameterSet>) {
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let same_write = server.parameters.differs_by_name_only(wanted);
        let queries = server.bring_to(server_id, wanted, &self.pools[server.pool], &mut self.cx);
        server.hold = if queries > usize::from(same_write) { Hold::Parameters } else { Hold::Nothing };
    }

    /// What the client's next request waited for is done. False where the server may be free now.
    fn hold_ends(
        &mut self,
        hold: Hold,
        mode: PoolMode,
        status: TransactionStatus,
        server_id: ServerId,
        id: ClientId,
    ) -> bool {
        let stays = mode == PoolMode::Session || (mode == PoolMode::Transaction && status != TransactionStatus::Idle);
        if hold == Hold::Reset && !stays {
            // The next link brings all of it.
            let session = self.clients.get_mut(id).and_then(|client| client.session_mut());
            if let Some(startup) = session.and_then(|session| session.startup.as_mut()) {
                startup.forget_missing();
            }
            return false;
        }
        if hold == Hold::Parameters || !self.give_missing(id, server_id) {
            self.arm_client(id);
        }
        true
    }

    fn give_missing(&mut self, id: ClientId, server_id: ServerId) -> bool {
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return false;
        };
        let pool = &self.pools[client.pool];
        let startup = client.session_mut().and_then(|session| session.startup.as_mut());
        startup.is_some_and(|startup| server.give_missing(server_id, startup, pool, &mut self.cx))
    }

    /// A linked server owes nothing.
    pub(crate) fn linked_settled(&mut self, server_id: ServerId, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        if matches!(client.state, ClientState::Login(_)) {
            return self.proved(id, server_id);
        }
        let mode = self.pools[client.pool].limits.mode;
        let ended = client.ended;
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let (status, hold) = (server.status, std::mem::take(&mut server.hold));
        if ended && self.look_ended(id) {
            return;
        }
        if hold != Hold::Nothing && self.hold_ends(hold, mode, status, server_id, id) {
            return;
        }
        if self.servers.get(server_id).is_some_and(|server| server.owed.is_fresh()) {
            // Only our own query is answered: the request that it was for comes now.
            return self.arm_client(id);
        }
        #[cfg(feature = "planted")]
        let status =
            if self.cx.planted_now(crate::planted::Planted::ShareServer) { TransactionStatus::Idle } else { status };
        match (mode, status) {
            (PoolMode::Session, _) => self.arm_client(id),
            (_, TransactionStatus::Idle) => self.unlink(id, server_id),
            (PoolMode::Transaction, _) => self.arm_client(id),
            (PoolMode::Statement, _) => self.fail_client(id, &Failure::TransactionsNotAllowed),
        }
    }

    /// The transaction is over: the client goes on without a server.
    pub(crate) fn unlink(&mut self, id: ClientId, server_id: ServerId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.link = Link::None;
            if let (Some(session), Some(server)) = (client.session_mut(), self.servers.get(server_id)) {
                session.statements.batch = server.owed.batch();
                if let Some(startup) = &mut session.startup {
                    startup.unlinked();
                }
            }
            self.arm_client(id);
            self.wake_client(id);
        }
        if self.servers.get(server_id).is_some_and(|server| server.keeps_client) {
            self.fail_client(id, &Failure::EncodingChanged);
        }
        self.release_hold(server_id);
        let reset_due = self.cx.settings.server_reset_query_always && !self.cx.settings.server_reset_query.is_empty();
        let Some(server) = self.servers.get_mut(server_id) else { return };
        if reset_due || server.leaves_unreported(&self.cx) {
            server.state = ServerState::Recovering { reset_due, cancelled: false };
            self.recovering_settled(server_id);
        } else {
            self.free_server(server_id);
        }
    }

    /// A clean server: back to its pool, unless it is right for nobody.
    pub(crate) fn free_server(&mut self, server_id: ServerId) {
        let now = self.cx.now;
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let index = server.pool;
        let pool = &mut self.pools[index];
        let lifetime = pool.limits.server_lifetime;
        if server.close_needed || pool.gate != Gate::Open {
            return self.close_server(server_id, "not needed any more");
        }
        if pool.staying() > pool.share.most {
            return self.close_server(server_id, "there are more servers than the limits allow");
        }
        if !server.facts_changed.is_empty() {
            return self.close_server(server_id, "a client left it as another user's session");
        }
        // One that was just made is for those who wait, however long that took.
        if server.used && server.lifetime_end(lifetime) <= now {
            return self.close_server(server_id, "server_lifetime over");
        }
        #[cfg(feature = "planted")]
        let late = self.cx.planted == Some(crate::planted::Planted::LateCancel);
        #[cfg(not(feature = "planted"))]
        let late = false;
        if server.cancels > 0 && !late {
            server.state = ServerState::Held;
            return;
        }
        server.state = ServerState::Idle;
        server.idle_at = now;
        pool.idle.push_back(server_id);
        let due = after(pool.limits.server_idle_timeout, now).min(server.lifetime_end(lifetime));
        self.cx.timers.set(Subject::Server(server_id), &mut server.deadline, due);
        let waited_for = !pool.waiting.is_empty() || !pool.tunnels.is_empty();
        if waited_for || pool.recall.is_some() || pool.shed.is_some() || !pool.homes.is_empty() {
            self.schedule(index);
        }
    }

    /// Serve this pool when the input in hand is dealt with.
    pub(crate) fn schedule(&mut self, index: u32) {
        if self.to_serve.last() != Some(&index) {
            self.to_serve.push(index);
        }
    }

    pub(crate) fn serve_scheduled(&mut self) {
        while let Some(index) = self.to_serve.pop() {
            while self.serve_one(index) {
                self.step();
            }
        }
    }

    /// Gives one idle server to whoever has waited longest, here or on another worker.
    fn serve_one(&mut self, index: u32) -> bool {
        #[cfg(feature = "planted")]
        if self.cx.planted_now(crate::planted::Planted::MissWakeup) {
            return false;
        }
        let pool = &self.pools[index];
        if pool.gate != Gate::Open || pool.idle.is_empty() {
            return false;
        }
        if !pool.tunnels.is_empty() && self.makes_room(index) {
            return true;
        }
        let pool = &self.pools[index];
        let claimed = pool.recall.is_some() || pool.shed.is_some() || !pool.homes.is_empty();
        if claimed && let Some(to) = self.claimant(index) {
            self.give_server(index, to);
            return true;
        }
        // Only who leaves with a server leaves the queue.
        let pool = &mut self.pools[index];
        let Some(waiting) = pool.waiting.first() else { return false };
        let Some(server) = pool.take_idle(self.cx.settings.server_round_robin) else { return false };
        pool.waiting.pop();
        let waits = |client: &Client| matches!(client.link, Link::Waiting { .. });
        debug_assert!(self.clients.get(waiting.client).is_some_and(waits), "whoever stops waiting leaves the queue");
        self.link(waiting.client, server, waiting.since);
        self.resume(waiting.client);
        true
    }

    /// A client that waited has a server: its bytes are read again.
    fn resume(&mut self, id: ClientId) {
        let Some(client) = self.clients.get(id) else { return };
        if matches!(client.state, ClientState::Login(_)) {
            return self.prove(id);
        }
        self.wake_client(id);
    }

    /// Stops reading from a client.
    pub(crate) fn hold_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && !client.held
            && !client.is_over()
        {
            client.held = true;
            self.cx.out.read(id, false);
        }
    }

    /// Reads from a client again; what was gathered of a message that had to wait is taken up at once.
    pub(crate) fn wake_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !client.held {
            return;
        }
        client.held = false;
        let partial = client.inbox.has_partial();
        if partial {
            self.client_bytes(id, &[]);
        }
        self.look_ended(id);
        if self.clients.get(id).is_some_and(|client| !client.held && !client.is_over()) {
            self.cx.out.read(id, true);
        }
    }

    pub(crate) fn hold_server(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id)
            && !server.held
            && !matches!(server.state, ServerState::Closing)
        {
            server.held = true;
            self.cx.out.read(id, false);
        }
    }

    pub(crate) fn release_hold(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id)
            && server.held
            && !matches!(server.state, ServerState::Closing)
        {
            server.held = false;
            self.cx.out.read(id, true);
        }
    }

    /// The driver has much to send on a connection: whoever feeds it is not read.
    pub(crate) fn client_congested(&mut self, id: ClientId, congested: bool) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.congested = congested;
        match (client.link.server(), congested) {
            (Some(server), true) => self.hold_server(server),
            (Some(server), false) => {
                self.release_hold(server);
                self.wake_client(id);
            }
            (None, true) => {}
            (None, false) => {
                self.wake_client(id);
                self.console_goes_on(id);
            }
        }
    }

    pub(crate) fn server_congested(&mut self, id: ServerId, congested: bool) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.congested = congested;
        if let (Some(client), false) = (server.client(), congested) {
            self.wake_client(client);
        }
    }

    /// Ends a client's session with an error.
    pub(crate) fn fail_client(&mut self, id: ClientId, failure: &Failure) {
        let Some(client) = self.clients.get(id) else { return };
        if client.is_over() || matches!(client.state, ClientState::Reserved) {
            return;
        }
        let report = failure.report();
        if self.cx.settings.log_pooler_errors {
            let text = format!("C: {}: pooler error: {}", client.label(), failure.log_text(&report));
            self.cx.out.event(Event::Log { level: failure.level(), text });
        }
        let can_tell = match &client.state {
            ClientState::Console(_) => true,
            _ => self.can_tell(id),
        };
        if can_tell {
            self.cx.out.send(id, |out| weir_wire::write::report(out, &report));
        }
        self.end_client(id, &report.message);
    }

    /// Ends a client's session: closes its connection, and leaves its server as the next one may find it.
    pub(crate) fn end_client(&mut self, id: ClientId, reason: &str) {
        self.leave(id, reason);
        if self.clients.get(id).is_some_and(crate::client::Client::is_over) {
            self.cx.out.close(id);
        }
    }

    /// The client is over: it gives up its place, its server and its names.
    pub(crate) fn leave(&mut self, id: ClientId, reason: &str) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let state = std::mem::replace(&mut client.state, ClientState::Closing);
        let link = std::mem::replace(&mut client.link, Link::None);
        let body = std::mem::replace(&mut client.inbox.body, Body::None);
        let (index, place, moves) = (client.pool, client.place, client.moved.moves);
        if let ClientState::Ready(session) = &state {
            self.sessions.ended(Moved { process_id: session.process_id, moves });
            self.pools[index].clients = self.pools[index].clients.saturating_sub(1);
            if let (true, Some(client)) = (self.cx.settings.log_disconnections, self.clients.get(id)) {
                let text = format!("C: {}: closing because: {reason}", client.label());
                self.cx.out.event(Event::Log { level: crate::contract::Level::Info, text });
            }
        }
        if let ClientState::Console(_) = &state {
            self.console_ended(id);
        }
        self.derivations.give_up(id);
        match link {
            Link::None => {}
            Link::Waiting { since } => self.pools[index].waiting.leave(id, since, place),
            Link::WaitingTunnel { since } => self.tunnel_abandoned(index, id, since, place),
            Link::Tunnel(server) => self.close_server(server, "its client has gone"),
            Link::Linked(server) => self.recover(server, matches!(body, Body::Forward(_))),
        }
    }
}
