//! What becomes of a server whose client has gone, and of a client whose server has.
//!
//! A server is made clean in the cheapest way that is safe: what is owed is waited for a moment, then cancelled; an open
//! transaction is rolled back; a copy is failed. Whatever cannot be cleaned in time is closed.

use std::sync::Arc;

use weir_wire::{TransactionStatus, write};

use crate::exchange::OwnFailure;
use crate::failure::Failure;
use crate::id::ServerId;
use crate::inbox::Body;
use crate::login_failure::LoginFailure;
use crate::mail::Letter;
use crate::making::Purpose;
use crate::owed::{Copy, Owed, Request};
use crate::pool::NO_POOL;
use crate::retries::RETRY_FIRST;
use crate::server::{Hold, ServerState};
use crate::settings::PoolMode;
use crate::statements::UNNAMED_UNKNOWN;
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Worker;

/// A query that nobody waits for any more may take this long before it is cancelled: most end sooner, and a cancel
/// costs PostgreSQL a connection.
const PATIENCE: Duration = Duration::from_millis(50);
/// A server that is not clean this long after its client left is closed.
pub(crate) const RECOVERY: Duration = Duration::from_secs(10);

impl Worker {
    /// The client is gone. `mid_message`: the server has got half a message, and would take anything as its rest.
    pub(crate) fn recover(&mut self, id: ServerId, mid_message: bool) {
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
        let session_mode = self.pools[server.pool].limits.mode == PoolMode::Session;
        let reset_due = (session_mode || self.cx.settings.server_reset_query_always)
            && !self.cx.settings.server_reset_query.is_empty();
        server.state = ServerState::Recovering { reset_due, cancelled: false };
        server.hold = Hold::Nothing;
        server.owed.disown();
        if let Body::Forward(left) = server.inbox.body {
            server.inbox.body = Body::Skip(left);
        }
        server.mirror.unnamed = UNNAMED_UNKNOWN;
        if server.owed.is_in_doubt() {
            return self.close_server(id, "its client left in a copy, and what is still answered is not known");
        }
        let mut close = server.owed.unsynced() || server.owed.skipping();
        if server.owed.copy() != Copy::None {
            self.end_copy(id);
            close = false;
        }
        if close {
            self.abort_batch(id);
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        let due = self.cx.now + PATIENCE;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
        self.settle(id);
    }

    /// Ends a batch that its client did not: a Sync alone would commit what PostgreSQL takes back at the client's end.
    fn abort_batch(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if !server.owed.skipping() {
            server.send_what_fails(id, Owed::ours(Request::DescribeStatement), &mut self.cx);
        }
        server.sync_ours(id, &mut self.cx);
    }

    /// Fails a copy whose client has gone, and ends the batch it was in.
    pub(crate) fn end_copy(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let simple = server.owed.front().is_some_and(|owed| owed.request == Request::Query);
        match server.owed.copy() {
            Copy::In { ahead: 0 } => self.cx.out.send(id, |out| write::copy_fail(out, b"the client has gone")),
            Copy::Ending { ahead: 0, .. } => {}
            // What is still answered is not known.
            _ => {
                let failure = Failure::WrongMessage { expected: "data or the end of a COPY from stdin", got: 0 };
                return match self.client_of(id) {
                    Some(client) => self.fail_client(client, &failure),
                    None => self.close_server(id, "its client left in a copy"),
                };
            }
        }
        server.owed.end_copy_in();
        // Behind a copy of a simple query a batch may have begun that its client did not end.
        if !simple || server.owed.unsynced() {
            self.abort_batch(id);
        }
    }

    /// Nothing is owed by a server that is being cleaned: the next step, or back to the pool.
    pub(crate) fn recovering_settled(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Recovering { reset_due, cancelled } = server.state else { return };
        // A cancel on its way would hit the query sent next.
        if server.cancels > 0 {
            return;
        }
        if server.status != TransactionStatus::Idle {
            self.cx.out.send(id, |out| write::query(out, b"ROLLBACK"));
            server.owe_own_query();
        } else if reset_due {
            server.state = ServerState::Recovering { reset_due: false, cancelled };
            let query = &self.cx.settings.server_reset_query;
            self.cx.out.send(id, |out| write::query(out, query.as_bytes()));
            server.owe_own_query();
        } else if server.leaves_unreported(&self.cx) {
            // Among it are PostgreSQL's own time limits (`idle_session_timeout`, `statement_timeout`): they would end whatever
            // comes next, ours or another client's.
            let plain = self.cx.parameter_sets.intern(server.parameters.reported_only());
            server.bring_to(id, &plain, &self.pools[server.pool], &mut self.cx);
        } else {
            return self.free_server(id);
        }
        let due = self.cx.now + RECOVERY;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
    }

    /// A query of ours was answered with an error. None of its client's request is carried out.
    pub(crate) fn own_query_failed(&mut self, id: ServerId, own: &OwnFailure) {
        let proving = self.client_of(id).is_some_and(|client| self.is_logging_in(client));
        let Some(server) = self.servers.get_mut(id) else { return };
        let ServerState::Linked(client) = server.state else {
            server.close_needed = true;
            return;
        };
        if proving || own.ends_session {
            // The client's own parameters were wrong, or its server ends: PostgreSQL's words are its answer.
            if let Some(body) = &own.body {
                self.cx.out.send(client, |out| write::error_as(out, weir_wire::report::Severity::Fatal, body));
            }
            // The one query that tried them all was rolled back.
            match server.parameters_before.take() {
                Some(before) if !own.ends_session => server.parameters = before,
                _ => server.close_needed = true,
            }
            return self.end_client(client, "its parameters were refused");
        }
        server.close_needed = true;
        self.fail_client(client, &Failure::ParametersRefused { text: own.text.clone() });
        self.close_server(id, "it did not accept its client's parameters");
    }

    /// Closes a server's connection, with a goodbye; whoever is linked to it is told by the caller.
    pub(crate) fn close_server(&mut self, id: ServerId, reason: &str) {
        let Some(server) = self.servers.get(id) else { return };
        if !matches!(
            server.state,
            ServerState::Making(_) | ServerState::Canceller { .. } | ServerState::Tunnel(_) | ServerState::Closing
        ) {
            self.cx.out.send(id, write::terminate);
        }
        self.drop_server(id, reason);
    }

    /// Closes without a word: the goodbye's bytes would be taken for the rest of the client's half message.
    fn drop_server(&mut self, id: ServerId, reason: &str) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let state = std::mem::replace(&mut server.state, ServerState::Closing);
        let index = server.pool;
        match state {
            ServerState::Closing => return,
            ServerState::Idle => self.pools[index].forget_idle(id),
            ServerState::Making(_) if index != NO_POOL => {
                let pool = &mut self.pools[index];
                pool.connecting = pool.connecting.saturating_sub(1);
            }
            _ => {}
        }
        self.cx.out.close(id);
        if index != NO_POOL {
            self.note_closing(id);
            if self.cx.settings.log_debug {
                self.cx.log_debug(format!("S: {}: closing because: {reason}", self.pool_label(index)));
            }
        }
    }

    /// Its end is certain: it is not one of those that stay.
    pub(crate) fn note_closing(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id)
            && server.pool != NO_POOL
            && !std::mem::replace(&mut server.closing, true)
        {
            self.pools[server.pool].closing += 1;
        }
    }

    /// The server broke its session: it is closed, and its client told.
    pub(crate) fn fail_server(&mut self, id: ServerId, failure: &Failure) {
        let client = self.client_of(id);
        if let Some(client) = client {
            self.fail_client(client, failure);
        }
        let Some(server) = self.servers.get(id) else { return };
        let label = self.pool_label(server.pool);
        self.cx.log_warning(format!("S: {label}: {}", failure.report().message));
        self.note_short_life(id);
        self.close_server(id, "the server broke the protocol");
    }

    /// A server ends by its own doing. Where it has just been made and was of use to nobody, that counts as a failed login: else one
    /// would be made after the other, without a pause, for whoever waits.
    pub(crate) fn note_short_life(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(id) else { return };
        if matches!(server.state, ServerState::Idle) && !server.used && self.cx.now < server.made_at + RETRY_FIRST {
            let pool = Arc::clone(&self.pools[server.pool].name);
            self.cx.tell_steward(Letter::LoginFailed { pool, refusal: None });
        }
    }

    /// A server's connection is gone.
    pub(crate) fn server_closed(&mut self, id: ServerId) {
        let client = self.client_of(id);
        self.note_short_life(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        let told = server.told;
        let state = std::mem::replace(&mut server.state, ServerState::Closing);
        let index = server.pool;
        match state {
            ServerState::Making(making) => {
                let text = "the server closed the connection during the login";
                self.making_ended(*making, index, &LoginFailure::broken(text));
            }
            ServerState::Canceller { target } => self.cancel_ended(target, true),
            ServerState::Idle => self.pools[index].forget_idle(id),
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
    pub(crate) fn connect_failed(&mut self, id: ServerId, reason: String) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let state = std::mem::replace(&mut server.state, ServerState::Closing);
        let index = server.pool;
        if let ServerState::Making(making) = state {
            if let Purpose::Cancel { .. } = &making.purpose {
                self.cx.log_warning(format!("cannot connect for a cancel request: {reason}"));
            }
            self.making_ended(*making, index, &LoginFailure::broken(reason));
        }
        self.server_gone(id);
    }

    /// The id is free; so is the permit.
    fn server_gone(&mut self, id: ServerId) {
        let Some(server) = self.servers.remove(id) else { return };
        self.cancels_moot(server.number);
        self.derivations.give_up(id);
        if server.pool == NO_POOL {
            return;
        }
        let pool = &mut self.pools[server.pool];
        pool.servers -= 1;
        pool.closing -= u32::from(server.closing);
        let pool = Arc::clone(&self.pools[server.pool].name);
        #[cfg(feature = "planted")]
        if self.cx.planted_now(crate::planted::Planted::LeakPermit) {
            return;
        }
        self.cx.tell_steward(Letter::PermitBack { pool });
        self.asked_is_stale(server.pool);
        self.ask(server.pool);
        self.fill(server.pool);
        self.look_quiet();
    }
}
