//! Who is linked to whom: a client gets a server when it has something to send, and a server is free exactly when it is
//! idle outside a transaction with nothing owed.
//!
//! A freed server is not given away on the spot: its pool is put on the list of pools to serve, and served when the input in
//! hand is dealt with. So one freed server never leads to a chain of calls through many clients.

use std::sync::Arc;

use weir_wire::TransactionStatus;

use crate::client::{ClientState, Doing, Link, after};
use crate::contract::Event;
use crate::failure::Failure;
use crate::id::ConnId;
use crate::inbox::Body;
use crate::owed::{Owed, Request};
use crate::pool::{Gate, Waiting};
use crate::server::{Server, ServerState};
use crate::settings::PoolMode;
use crate::time::{Duration, Time};
use crate::timers::Subject;
use crate::worker::Worker;

impl Worker {
    /// A server for this client now, or a place in the queue.
    pub(crate) fn acquire(&mut self, id: ConnId) -> Result<Option<ConnId>, Failure> {
        let Some(client) = self.clients.get(id) else { return Ok(None) };
        let index = client.pool;
        let pool = &self.pools[index];
        if pool.gate == Gate::Disabled {
            return Err(Failure::Disabled);
        }
        if let (Some(report), true) = (&pool.refusal, pool.servers == 0 && pool.retry_at > self.now) {
            return Err(Failure::Refused { text: report.message.clone().into_owned() });
        }
        let open = pool.gate == Gate::Open;
        if open && pool.shed.is_some() && self.is_shed(id) {
            return Ok(None);
        }
        let pool = &mut self.pools[index];
        if open
            && pool.waiting.is_empty()
            && let Some(server) = pool.take_idle(self.settings.server_round_robin)
        {
            self.link(id, server, self.now);
            return Ok(Some(server));
        }
        let since = self.now;
        if open && self.goes_home(id) {
            return Ok(None);
        }
        if let Some(client) = self.clients.get_mut(id) {
            client.link = Link::Waiting { since };
        }
        self.pools[index].waiting.push_back(Waiting { client: id, since });
        self.arm_client(id);
        self.ask(index);
        Ok(None)
    }

    /// Gives the server to the client, with the client's parameters.
    fn link(&mut self, id: ConnId, server_id: ConnId, since: Time) {
        let now = self.now;
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return;
        };
        debug_assert!(matches!(server.state, ServerState::Idle) && server.owed.settled());
        client.link = Link::Linked(server_id);
        server.state = ServerState::Linked(id);
        server.linked_at = now;
        let counters = &mut self.pools[client.pool].counters;
        counters.server_assignments += 1;
        counters.wait_time += now.since(since).0;
        if let ClientState::Ready(session) = &mut client.state {
            session.request_at = now;
            session.transaction_at = now;
            if !Arc::ptr_eq(&session.parameters, &server.parameters) || server.unsure {
                let wanted = Arc::clone(&session.parameters);
                self.apply_parameters(server_id, &wanted);
            }
        }
        if self.clients.get(id).is_some_and(|client| client.congested) {
            self.hold_server(server_id);
        }
        self.arm_client(id);
    }

    /// Brings the server's session to these parameters, in the write that is under way. True where that takes a message.
    pub(crate) fn apply_parameters(
        &mut self,
        server_id: ConnId,
        wanted: &Arc<crate::parameters::ParameterSet>,
    ) -> bool {
        let Some(server) = self.servers.get_mut(server_id) else { return false };
        let mut written = false;
        let (have, unsure) = (Arc::clone(&server.parameters), server.unsure);
        let mut between = None;
        self.out.send(server_id, |out| {
            between = have.write_encoding(wanted, out);
            written = between.as_ref().unwrap_or(&have).write_difference(wanted, unsure, out);
        });
        server.parameters = Arc::clone(wanted);
        server.unsure = false;
        // Two messages are not taken back as one.
        server.parameters_before = between.is_none().then_some(have);
        let messages = usize::from(between.is_some()) + usize::from(written);
        for _ in 0..messages {
            server.owed.push(Owed::ours(Request::OwnQuery));
            // A simple query destroys the unnamed statement.
            server.mirror.unnamed = 0;
        }
        messages > 0
    }

    /// A linked server owes nothing.
    pub(crate) fn linked_settled(&mut self, server_id: ConnId, id: ConnId) {
        let Some(client) = self.clients.get(id) else { return };
        if matches!(client.state, ClientState::Login(_)) {
            return self.proved(id, server_id);
        }
        let mode = self.pools[client.pool].mode;
        let status = self.servers.get(server_id).map_or(TransactionStatus::Idle, |server| server.status);
        #[cfg(feature = "planted")]
        let status =
            if self.planted_now(crate::planted::Planted::ShareServer) { TransactionStatus::Idle } else { status };
        match (mode, status) {
            (PoolMode::Session, _) => self.arm_client(id),
            (_, TransactionStatus::Idle) => self.unlink(id, server_id),
            (PoolMode::Transaction, _) => self.arm_client(id),
            (PoolMode::Statement, _) => self.fail_client(id, &Failure::TransactionsNotAllowed),
        }
    }

    /// The transaction is over: the client goes on without a server.
    pub(crate) fn unlink(&mut self, id: ConnId, server_id: ConnId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.link = Link::None;
            self.arm_client(id);
            self.wake_client(id);
        }
        self.release_hold(server_id);
        if self.settings.server_reset_query_always && !self.settings.server_reset_query.is_empty() {
            if let Some(server) = self.servers.get_mut(server_id) {
                server.state = ServerState::Recovering { reset_due: true, cancelled: false };
                self.recovering_settled(server_id);
            }
        } else {
            self.free_server(server_id);
        }
    }

    /// A clean server: back to its pool, unless it is right for nobody.
    pub(crate) fn free_server(&mut self, server_id: ConnId) {
        let now = self.now;
        let lifetime = self.server_lifetime(server_id);
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let index = server.pool;
        let pool = &mut self.pools[index];
        if server.close_needed || pool.gate != Gate::Open {
            return self.close_server(server_id, "not needed any more");
        }
        if !server.facts_changed.is_empty() {
            return self.close_server(server_id, "a client left it as another user's session");
        }
        if now.since(server.made_at) >= lifetime {
            return self.close_server(server_id, "server_lifetime over");
        }
        #[cfg(feature = "planted")]
        let late = self.planted == Some(crate::planted::Planted::LateCancel);
        #[cfg(not(feature = "planted"))]
        let late = false;
        if server.cancels > 0 && !late {
            server.state = ServerState::Held;
            return;
        }
        server.state = ServerState::Idle;
        pool.idle.push_back(server_id);
        let idle = self.settings.server_idle_timeout.limit().map_or(Time::NEVER, |limit| now + limit);
        let due = idle.min(server.made_at + lifetime);
        self.timers.set(Subject::Conn(server_id), &mut server.deadline, due);
        if !pool.waiting.is_empty() || pool.recall.is_some() || pool.shed.is_some() || !pool.homes.is_empty() {
            self.schedule(index);
        }
    }

    pub(crate) fn server_lifetime(&self, server_id: ConnId) -> Duration {
        let Some(server) = self.servers.get(server_id) else { return Duration(u64::MAX) };
        let own = self.pools[server.pool].database.server_lifetime;
        // Zero means "once only" in PgBouncer: used for one client, then closed.
        own.unwrap_or(self.settings.server_lifetime)
    }

    /// Serve this pool when the input in hand is dealt with.
    pub(crate) fn schedule(&mut self, index: u32) {
        if self.to_serve.last() != Some(&index) {
            self.to_serve.push(index);
        }
    }

    pub(crate) fn serve_scheduled(&mut self) {
        while let Some(index) = self.to_serve.pop() {
            while self.serve_one(index) {}
        }
    }

    /// Gives one idle server to whoever has waited longest, here or on another worker.
    fn serve_one(&mut self, index: u32) -> bool {
        #[cfg(feature = "planted")]
        if self.planted_now(crate::planted::Planted::MissWakeup) {
            return false;
        }
        let pool = &self.pools[index];
        if pool.gate != Gate::Open || pool.idle.is_empty() {
            return false;
        }
        let claimed = pool.recall.is_some() || pool.shed.is_some() || !pool.homes.is_empty();
        if claimed && let Some(to) = self.claimant(index) {
            self.give_server(index, to);
            return true;
        }
        let Some(waiting) = self.pools[index].waiting.pop_front() else { return false };
        let valid = self.clients.get(waiting.client).is_some_and(|client| client.link.waiting_since().is_some());
        debug_assert!(valid, "whoever stops waiting leaves the queue");
        if !valid {
            return true;
        }
        let Some(server) = self.pools[index].take_idle(self.settings.server_round_robin) else {
            return false;
        };
        self.link(waiting.client, server, waiting.since);
        self.resume(waiting.client);
        true
    }

    /// A client that waited has a server: its bytes are read again.
    fn resume(&mut self, id: ConnId) {
        let Some(client) = self.clients.get(id) else { return };
        if matches!(client.state, ClientState::Login(_)) {
            return self.prove(id);
        }
        self.wake_client(id);
    }

    /// Stops reading from a client.
    pub(crate) fn hold_client(&mut self, id: ConnId) {
        if let Some(client) = self.clients.get_mut(id)
            && !client.held
            && !client.is_over()
        {
            client.held = true;
            self.out.read(id, false);
        }
    }

    /// Reads from a client again; what was gathered of a message that had to wait is taken up at once.
    pub(crate) fn wake_client(&mut self, id: ConnId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !client.held {
            return;
        }
        client.held = false;
        let partial = client.inbox.has_partial();
        if partial {
            self.client_bytes(id, &[]);
        }
        if self.clients.get(id).is_some_and(|client| !client.held && !client.is_over()) {
            self.out.read(id, true);
        }
    }

    pub(crate) fn hold_server(&mut self, id: ConnId) {
        if let Some(server) = self.servers.get_mut(id)
            && !server.held
            && !matches!(server.state, ServerState::Closing)
        {
            server.held = true;
            self.out.read(id, false);
        }
    }

    pub(crate) fn release_hold(&mut self, id: ConnId) {
        if let Some(server) = self.servers.get_mut(id)
            && server.held
            && !matches!(server.state, ServerState::Closing)
        {
            server.held = false;
            self.out.read(id, true);
        }
    }

    /// The driver has much to send on a connection: whoever feeds it is not read.
    pub(crate) fn congested(&mut self, id: ConnId, congested: bool) {
        match id.side {
            crate::id::Side::Client => {
                let Some(client) = self.clients.get_mut(id) else { return };
                client.congested = congested;
                match (client.link.server(), congested) {
                    (Some(server), true) => self.hold_server(server),
                    (Some(server), false) => {
                        self.release_hold(server);
                        self.wake_client(id);
                    }
                    (None, true) => {}
                    (None, false) => self.wake_client(id),
                }
            }
            crate::id::Side::Server => {
                let Some(server) = self.servers.get_mut(id) else { return };
                server.congested = congested;
                if let (Some(client), false) = (server.client(), congested) {
                    self.wake_client(client);
                }
            }
        }
    }

    /// Sets the client's next deadline by what it is doing.
    pub(crate) fn arm_client(&mut self, id: ConnId) {
        let now = self.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        let settings = &self.settings;
        let due = match (&client.state, client.link) {
            (ClientState::Login(_), link) => {
                let login = after(settings.client_login_timeout, client.connected_at);
                match link.waiting_since() {
                    Some(since) => login.min(after(settings.query_wait_timeout, since)),
                    None => login,
                }
            }
            (ClientState::CancelRequest, _) => after(settings.cancel_wait_timeout, now),
            (ClientState::Ready(_), Link::Waiting { since } | Link::WaitingTunnel { since }) => {
                after(settings.query_wait_timeout, since)
            }
            (ClientState::Ready(session), Link::None | Link::Linked(_)) if session.limits.none() => Time::NEVER,
            (ClientState::Ready(session), Link::Linked(server)) => {
                let doing = doing(self.servers.get(server));
                session.limits.linked_due(doing, session.request_at, session.transaction_at, now)
            }
            (ClientState::Ready(session), Link::None) => session.limits.idle_due(now),
            _ => Time::NEVER,
        };
        self.timers.set(Subject::Conn(id), &mut client.deadline, due);
    }

    /// A client's deadline has come.
    pub(crate) fn client_due(&mut self, id: ConnId) {
        let Some(client) = self.clients.get(id) else { return };
        let failure = match (&client.state, client.link) {
            (ClientState::Login(_), Link::None | Link::Linked(_)) => Failure::LoginTimeout,
            (ClientState::Login(_), _) | (_, Link::Waiting { .. } | Link::WaitingTunnel { .. }) => {
                Failure::QueryWaitTimeout
            }
            (ClientState::Ready(session), Link::Linked(server)) => {
                let doing = doing(self.servers.get(server));
                if doing != Doing::Idle && session.limits.transaction_due(session.transaction_at) <= self.now {
                    Failure::TransactionTimeout
                } else {
                    match doing {
                        Doing::Query => Failure::QueryTimeout,
                        Doing::IdleInTransaction => Failure::IdleTransactionTimeout,
                        Doing::Idle => Failure::IdleTimeout,
                    }
                }
            }
            (ClientState::Ready(_), _) => Failure::IdleTimeout,
            (ClientState::CancelRequest, _) => {
                return self.end_client(id, "cancel_wait_timeout");
            }
            _ => return,
        };
        self.fail_client(id, &failure);
    }

    /// Ends a client's session with an error.
    pub(crate) fn fail_client(&mut self, id: ConnId, failure: &Failure) {
        let Some(client) = self.clients.get(id) else { return };
        if client.is_over() || matches!(client.state, ClientState::Reserved) {
            return;
        }
        let report = failure.report();
        if self.settings.log_pooler_errors {
            let text = format!("C: {}: pooler error: {}", client.label(), report.message);
            self.out.event(Event::Log { level: failure.level(), text });
        }
        let can_tell = match &client.state {
            ClientState::Console(_) => true,
            _ => self.can_tell(id),
        };
        if can_tell {
            self.out.send(id, |out| weir_wire::write::report(out, &report));
        }
        self.end_client(id, &report.message);
    }

    /// Ends a client's session: closes its connection, and leaves its server as the next one may find it.
    pub(crate) fn end_client(&mut self, id: ConnId, reason: &str) {
        self.leave(id, reason);
        if self.clients.get(id).is_some_and(crate::client::Client::is_over) {
            self.out.close(id);
        }
    }

    /// The client is over: it gives up its place, its server and its names.
    pub(crate) fn leave(&mut self, id: ConnId, reason: &str) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let state = std::mem::replace(&mut client.state, ClientState::Closing);
        let link = std::mem::replace(&mut client.link, Link::None);
        let body = std::mem::replace(&mut client.inbox.body, Body::None);
        let index = client.pool;
        if let ClientState::Ready(session) = &state {
            self.forget_number(session.process_id, id);
            self.pools[index].clients = self.pools[index].clients.saturating_sub(1);
            if let (true, Some(client)) = (self.settings.log_disconnections, self.clients.get(id)) {
                let text = format!("C: {}: closing because: {reason}", client.label());
                self.out.event(Event::Log { level: crate::contract::Level::Info, text });
            }
        }
        if let ClientState::Console(_) = &state {
            self.console_ended(id);
        }
        match link {
            Link::None => {}
            Link::Waiting { .. } => self.pools[index].waiting.retain(|waiting| waiting.client != id),
            Link::WaitingTunnel { .. } => self.tunnel_abandoned(index, id),
            Link::Tunnel(server) => self.close_server(server, "its client has gone"),
            Link::Linked(server) => self.recover(server, matches!(body, Body::Forward(_))),
        }
    }
}

fn doing(server: Option<&Server>) -> Doing {
    match server {
        Some(server) if !server.owed.settled() => Doing::Query,
        Some(server) if server.status != TransactionStatus::Idle => Doing::IdleInTransaction,
        _ => Doing::Idle,
    }
}
