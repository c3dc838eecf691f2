//! What becomes of a server whose client has gone, and of a client whose server has.
//!
//! A server is made clean in the cheapest way that is safe: what is owed is waited for a moment, then cancelled; an open
//! transaction is rolled back; a copy is failed. Whatever cannot be cleaned in time is closed.

use weir_wire::{TransactionStatus, write};

use crate::failure::Failure;
use crate::id::ConnId;
use crate::inbox::Body;
use crate::making::{LoginFailure, Purpose};
use crate::owed::{Owed, Request};
use crate::server::{NO_POOL, ServerState};
use crate::settings::PoolMode;
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Worker;

/// A query that nobody waits for any more may take this long before it is cancelled: most end sooner, and a cancel
/// costs PostgreSQL a connection.
const PATIENCE: Duration = Duration::from_millis(50);
/// A server that is not clean this long after its client left is closed.
const RECOVERY: Duration = Duration::from_secs(10);

impl Worker {
    /// The client is gone. `mid_message`: the server has got half a message, and would take anything as its rest.
    pub(crate) fn recover(&mut self, id: ConnId, mid_message: bool) {
        self.release_hold(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        if matches!(server.state, ServerState::Closing) {
            return;
        }
        if mid_message {
            return self.drop_server(id, "its client left in the middle of a message");
        }
        if server.close_needed && server.told {
            return self.close_server(id, "the server ended the session");
        }
        let session_mode = self.pools[server.pool].mode == PoolMode::Session;
        let reset_due =
            (session_mode || self.settings.server_reset_query_always) && !self.settings.server_reset_query.is_empty();
        server.state = ServerState::Recovering { reset_due, cancelled: false };
        server.owed.disown();
        if let Body::Forward(left) = server.inbox.body {
            server.inbox.body = Body::Skip(left);
        }
        let mut close = server.owed.unsynced() || server.owed.skipping();
        if server.owed.copy_in() {
            self.end_copy(id);
            close = false;
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        if close {
            self.out.send(id, write::sync);
            server.owed.push(Owed::ours(Request::Sync));
        }
        let due = self.now + PATIENCE;
        self.timers.set(Subject::Conn(id), &mut server.deadline, due);
        self.settle(id);
    }

    /// Fails a copy whose client has gone, and ends the batch it was in.
    pub(crate) fn end_copy(&mut self, id: ConnId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let simple = server.owed.front().is_some_and(|owed| owed.request == Request::Query);
        self.out.send(id, |out| write::copy_fail(out, b"the client has gone"));
        server.owed.push(Owed::ours(Request::CopyEnd));
        if !simple {
            self.out.send(id, write::sync);
            server.owed.push(Owed::ours(Request::Sync));
        }
    }

    /// Nothing is owed by a server that is being cleaned: the next step, or back to the pool.
    pub(crate) fn recovering_settled(&mut self, id: ConnId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Recovering { reset_due, cancelled } = server.state else { return };
        // A cancel on its way would hit the query sent next.
        if server.cancels > 0 {
            return;
        }
        let query = if server.status != TransactionStatus::Idle {
            "ROLLBACK".to_owned()
        } else if reset_due {
            server.state = ServerState::Recovering { reset_due: false, cancelled };
            self.settings.server_reset_query.clone()
        } else {
            return self.free_server(id);
        };
        self.out.send(id, |out| write::query(out, query.as_bytes()));
        server.owed.push(Owed::ours(Request::OwnQuery));
        server.mirror.unnamed = 0;
        let due = self.now + RECOVERY;
        self.timers.set(Subject::Conn(id), &mut server.deadline, due);
    }

    /// A query of ours was answered with an error.
    pub(crate) fn own_query_failed(&mut self, id: ConnId, body: Option<&[u8]>) {
        let proving = self.client_of(id).is_some_and(|client| self.is_logging_in(client));
        let Some(server) = self.servers.get_mut(id) else { return };
        match server.state {
            ServerState::Linked(client) if proving => {
                // The client's own parameters were wrong: PostgreSQL's words are its answer.
                if let Some(body) = body {
                    self.out.send(client, |out| write::error_as(out, weir_wire::report::Severity::Fatal, body));
                }
                match server.parameters_before.take() {
                    // The one statement that set them all was rolled back.
                    Some(before) => server.parameters = before,
                    None => server.close_needed = true,
                }
                server.unsure = true;
                self.end_client(client, "its parameters were refused");
            }
            ServerState::Linked(client) => {
                server.close_needed = true;
                self.fail_client(client, &Failure::ParametersRefused);
            }
            _ => server.close_needed = true,
        }
    }

    /// A deadline of a server connection has come.
    pub(crate) fn server_due(&mut self, id: ConnId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        match &mut server.state {
            ServerState::Making(_) => {
                let text = "server_connect_timeout: the login took too long";
                self.server_login_failed(id, LoginFailure { text: text.to_owned(), refused: false });
            }
            ServerState::Idle => self.idle_due(id),
            ServerState::Recovering { cancelled: cancelled @ false, .. } => {
                *cancelled = true;
                let due = self.now + RECOVERY;
                self.timers.set(Subject::Conn(id), &mut server.deadline, due);
                self.start_cancel(id);
            }
            ServerState::Recovering { .. } => self.close_server(id, "it could not be cleaned in time"),
            ServerState::Canceller { target } => {
                let target = *target;
                server.state = ServerState::Closing;
                self.out.close(id);
                self.cancel_ended(target, false);
            }
            _ => {}
        }
    }

    fn idle_due(&mut self, id: ConnId) {
        let lifetime = self.server_lifetime(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        let pool = &self.pools[server.pool];
        let too_old = self.now.since(server.made_at) >= lifetime;
        let smallest = crate::steward::min_pool_size(&pool.name, &self.settings);
        if too_old {
            self.close_server(id, "server_lifetime over");
        } else if pool.servers > smallest {
            self.close_server(id, "server_idle_timeout");
        } else {
            let due = self.now + self.settings.server_idle_timeout;
            self.timers.set(Subject::Conn(id), &mut server.deadline, due);
        }
    }

    /// Closes a server's connection, with a goodbye; whoever is linked to it is told by the caller.
    pub(crate) fn close_server(&mut self, id: ConnId, reason: &str) {
        let Some(server) = self.servers.get(id) else { return };
        if !matches!(
            server.state,
            ServerState::Making(_) | ServerState::Canceller { .. } | ServerState::Tunnel(_) | ServerState::Closing
        ) {
            self.out.send(id, write::terminate);
        }
        self.drop_server(id, reason);
    }

    /// Closes without a word: the goodbye's bytes would be taken for the rest of the client's half message.
    fn drop_server(&mut self, id: ConnId, reason: &str) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let state = std::mem::replace(&mut server.state, ServerState::Closing);
        let index = server.pool;
        match state {
            ServerState::Closing => return,
            ServerState::Idle => self.pools[index].idle.retain(|&idle| idle != id),
            ServerState::Making(_) if index != NO_POOL => {
                let pool = &mut self.pools[index];
                pool.connecting = pool.connecting.saturating_sub(1);
            }
            _ => {}
        }
        self.out.close(id);
        if index != NO_POOL {
            self.log_debug(format!("S: {}: closing because: {reason}", self.pool_label(index)));
        }
    }

    /// The server broke its session: it is closed, and its client told.
    pub(crate) fn fail_server(&mut self, id: ConnId, failure: &Failure) {
        let client = self.client_of(id);
        if let Some(client) = client {
            self.fail_client(client, failure);
        }
        let Some(server) = self.servers.get(id) else { return };
        let label = self.pool_label(server.pool);
        self.log_warning(format!("S: {label}: {}", failure.report().message));
        self.close_server(id, "the server broke the protocol");
    }

    /// A server's connection is gone.
    pub(crate) fn server_closed(&mut self, id: ConnId) {
        let client = self.client_of(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        let told = server.told;
        let state = std::mem::replace(&mut server.state, ServerState::Closing);
        let index = server.pool;
        match state {
            ServerState::Making(making) => {
                let text = "the server closed the connection during the login".to_owned();
                self.making_ended(&making.purpose, index, &LoginFailure { text, refused: false });
            }
            ServerState::Canceller { target } => self.cancel_ended(target, true),
            ServerState::Idle => self.pools[index].idle.retain(|&idle| idle != id),
            _ => {}
        }
        if let Some(client) = client {
            match self.clients.get(client).map(|client| client.link) {
                Some(crate::client::Link::Tunnel(_)) => self.end_client(client, "the server closed the connection"),
                _ if told => self.end_client(client, "the server ended the session"),
                _ => self.fail_client(client, &Failure::ServerLost),
            }
        }
        self.server_gone(id);
    }

    /// Its connect failed: there never was one.
    pub(crate) fn connect_failed(&mut self, id: ConnId, reason: String) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let state = std::mem::replace(&mut server.state, ServerState::Closing);
        let index = server.pool;
        if let ServerState::Making(making) = state {
            if let Purpose::Cancel { .. } = &making.purpose {
                self.log_warning(format!("cannot connect for a cancel request: {reason}"));
            }
            self.making_ended(&making.purpose, index, &LoginFailure { text: reason, refused: false });
        }
        self.server_gone(id);
    }

    /// The id is free; so is the permit.
    fn server_gone(&mut self, id: ConnId) {
        let Some(server) = self.servers.remove(id) else { return };
        self.cancels_moot(server.number);
        if server.pool == NO_POOL {
            return;
        }
        self.pools[server.pool].servers -= 1;
        let pool = std::sync::Arc::clone(&self.pools[server.pool].name);
        #[cfg(feature = "planted")]
        if self.planted_now(crate::planted::Planted::LeakPermit) {
            return;
        }
        self.tell_steward(crate::mail::Letter::PermitBack { pool });
        self.asked_is_stale(server.pool);
        self.ask(server.pool);
        self.fill(server.pool);
        self.look_quiet();
    }
}
