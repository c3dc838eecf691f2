//! Servers that end by their own doing, or cannot be used any more, and what becomes of their clients.

use std::sync::Arc;

use weir_wire::write;

use crate::client::{Client, ClientState};
use crate::contract::UNRESOLVED;
use crate::exchange::{Around, OwnFailure};
use crate::failure::Failure;
use crate::id::NO_POOL;
use crate::id::{ClientId, ServerId};
use crate::mail::Letter;
use crate::making::login_failure::LoginFailure;
use crate::owed::FORMER;
use crate::server::ServerState;
use crate::worker::Service;
use crate::worker::flow::release_hold;
use crate::worker::link::part;

impl Service {
    /// A query of ours was answered with an error.
    pub(super) fn own_query_failed(&mut self, id: ServerId, own: &OwnFailure) {
        let Some(server) = self.traffic.servers.get(id) else { return };
        match server.state {
            ServerState::Linked(client) if server.pool != NO_POOL && self.traffic.pools[server.pool].name.looks_up => {
                self.lookup_failed(id, client, own);
            }
            ServerState::Linked(client) => self.ahead_failed(id, client, own),
            ServerState::Listener => {
                let label = self.traffic.server_label(id);
                self.traffic.cx.log_warning(format!("{label} it could not listen: {}", own.text));
                self.traffic.close_server(id, "it could not listen");
            }
            _ => self.unlinked_failed(id, own),
        }
    }

    /// A check of a server that no client has, or the reading of users' code.
    fn unlinked_failed(&mut self, id: ServerId, own: &OwnFailure) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let index = server.pool;
        if self.traffic.pools[index].checks.has(id) {
            let label = self.traffic.server_label(id);
            self.traffic.cx.log_warning(format!("{label} server_check_query failed: {}", own.text));
            return self.traffic.close_server(id, "server_check_query failed");
        }
        if self.traffic.cx.survey.asks(id) {
            server.close_needed |= own.ends_session;
            return self.traffic.survey_failed(&own.text);
        }
        let reads = self.traffic.pools[index].knowledge.read_by(id).is_some();
        server.close_needed |= own.ends_session || !reads;
        self.traffic.code_read(index, id, true);
    }

    /// A user's secret was asked for.
    fn lookup_failed(&mut self, id: ServerId, client: ClientId, own: &OwnFailure) {
        self.unfit(id);
        let label = self.traffic.server_label(id);
        self.traffic.cx.log_error(format!("{label} error in auth_query: {}", own.text));
        self.lookup_in_vain(client);
        self.traffic.close_server(id, "error response from auth_query");
    }

    /// What was ahead of a client's request, of which none is carried out, or what a login is tried with.
    fn ahead_failed(&mut self, id: ServerId, client: ClientId, own: &OwnFailure) {
        let proving = self.traffic.is_logging_in(client);
        let Some(server) = self.traffic.servers.get(id) else { return };
        let former = server.owed.front().is_some_and(|owed| owed.statement == FORMER);
        if former && !own.ends_session && (proving || server.owed.is_fresh()) {
            // They may be another's, and nothing of the client's was sent: it is served by another server.
            return self.serve_elsewhere(client, id, "it could not be brought to its client's parameters");
        }
        let commits = server.owed.commits();
        if commits
            && !own.ends_session
            && let Some(body) = &own.body
            && self.refuse_unsent(client, id, body)
        {
            return;
        }
        if proving || own.ends_session || commits {
            let what = if commits { "what it has prepared" } else { "its parameters" };
            return self.refused_by_server(id, client, own, what);
        }
        self.unfit(id);
        self.fail_client(client, &Failure::ParametersRefused { text: own.text.clone() });
        self.traffic.close_server(id, "it did not accept its client's parameters");
    }

    /// It is nobody else's as its client leaves it.
    fn unfit(&mut self, id: ServerId) {
        if let Some(server) = self.traffic.servers.get_mut(id) {
            server.close_needed = true;
        }
    }

    /// The client's own parameters were wrong, what it has prepared was not committed, or its server ends: PostgreSQL's words are its answer.
    fn refused_by_server(&mut self, id: ServerId, client: ClientId, own: &OwnFailure, what: &str) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        // The one query that tried them all was rolled back.
        match server.parameters_before.take() {
            Some(before) if !own.ends_session => server.parameters = before,
            _ => server.close_needed = true,
        }
        let Some(body) = &own.body else {
            // Too long to be read.
            let text = "the server's error is too long to be shown".to_owned();
            return self.fail_client(client, &Failure::ParametersRefused { text });
        };
        self.traffic.cx.out.send(client, |out| write::error_as(out, weir_wire::report::Severity::Fatal, body));
        self.end_client(client, &format!("{what} were refused"));
    }

    /// The client's server has had temporary objects of others, and what it asks for needs one that has not.
    #[cold]
    pub(super) fn had_temporary(&mut self, id: ClientId) {
        let Some(server_id) = self.traffic.clients.get(id).and_then(|client| client.link.server()) else { return };
        self.serve_elsewhere(id, server_id, "its client needs one without temporary objects of others");
        self.traffic.hold_client(id);
    }

    /// A server is not what its client needs. It is closed, and the client waits for another in its old place.
    #[cold]
    fn serve_elsewhere(&mut self, id: ClientId, server_id: ServerId, why: &str) {
        let Around { cx, clients, servers, .. } = self.traffic.around();
        let (Some(client), Some(server)) = (clients.get_mut(id), servers.get_mut(server_id)) else { return };
        let since = client.session().map_or(cx.now, |session| session.asked_at);
        release_hold(server_id, server, cx);
        part(id, client, server.owed.batch(), cx);
        let index = client.pool;
        self.traffic.close_server(server_id, why);
        self.queue_by_time(index, id, since);
    }

    /// The server broke its session: it is closed, and its client told.
    pub(super) fn fail_server(&mut self, id: ServerId, failure: &Failure) {
        let client = self.traffic.client_of(id);
        if let Some(client) = client {
            self.fail_client(client, failure);
        }
        let label = self.traffic.server_label(id);
        self.traffic.cx.log_warning(format!("{label} {}", failure.report().message));
        self.traffic.note_short_life(id);
        self.traffic.close_server(id, "the server broke the protocol");
    }

    /// A server's connection is gone.
    #[cold]
    pub(super) fn server_closed(&mut self, id: ServerId) {
        let client = self.traffic.client_of(id);
        self.traffic.note_short_life(id);
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let told = server.told;
        let index = server.pool;
        let is_canceller = matches!(server.state, ServerState::Canceller { .. });
        self.traffic
            .log_closing(id, if is_canceller { "successfully sent cancel request" } else { "server conn crashed?" });
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        match server.enter(ServerState::Closing) {
            ServerState::Making(making) => {
                let text = "the server closed the connection during the login";
                self.making_ended(id, *making, &LoginFailure::broken(text));
            }
            ServerState::Canceller { target } => self.canceller_ended(target, true),
            ServerState::Idle => self.traffic.pools[index].forget_idle(id),
            ServerState::Listener => self.traffic.listener_lost(index),
            _ => {}
        }
        if let Some(client) = client {
            match self.traffic.clients.get(client).map(|client| client.link) {
                Some(crate::client::Link::Tunnel(_)) => self.end_client(client, "the server closed the connection"),
                _ if told => self.end_client(client, "the server ended the session"),
                _ => self.fail_client(client, &Failure::ServerLost),
            }
        }
        self.server_gone(id);
    }

    /// Its connect failed: there never was one.
    #[cold]
    pub(super) fn connect_failed(&mut self, id: ServerId, reason: String) {
        // Nobody was asked for a connection where the host's name has led nowhere: in PgBouncer's words.
        let what = if reason.starts_with(UNRESOLVED) { "server DNS lookup failed" } else { "connect failed" };
        self.traffic.log_closing(id, &format!("{what}: {reason}"));
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        if let ServerState::Making(making) = server.enter(ServerState::Closing) {
            self.making_ended(id, *making, &LoginFailure::broken(reason));
        }
        self.server_gone(id);
    }

    /// The id is free; so is the permit.
    fn server_gone(&mut self, id: ServerId) {
        self.traffic.uncount_pin(id);
        self.traffic.code_altered_on(id);
        self.end_what_alters(id);
        let Some(server) = self.traffic.servers.remove(id) else { return };
        self.cancels_moot(server.number);
        self.derivations.give_up(id);
        self.traffic.survey_loses(id);
        if server.pool == NO_POOL {
            return;
        }
        self.traffic.code_read(server.pool, id, true);
        let pool = &mut self.traffic.pools[server.pool];
        let counted_on = pool.forgets(id);
        pool.servers -= 1;
        pool.closing -= u32::from(server.closing);
        if counted_on {
            self.traffic.schedule(server.pool);
        }
        let pool = Arc::clone(&self.traffic.pools[server.pool].name);
        #[cfg(feature = "planted")]
        if self.traffic.cx.planted_now(crate::planted::Planted::LeakPermit) {
            return;
        }
        let tried = server.endpoint.filter(|_| server.alone);
        self.traffic.cx.tell_steward(Letter::PermitBack { pool, tried });
        self.traffic.asked_is_stale(server.pool);
        self.traffic.ask(server.pool);
        self.traffic.fill(server.pool);
        self.look_quiet();
    }

    #[cold]
    pub(super) fn client_closed(&mut self, id: ClientId) {
        if self.traffic.clients.get(id).is_some_and(|client| matches!(client.state, ClientState::Departed)) {
            self.has_departed();
            self.send_over();
            if self.traffic.clients.get(id).is_some_and(|client| client.counted) {
                // To another process: one to another worker is counted there.
                self.traffic.cx.tell_steward(Letter::OnItsWay);
            }
            return self.client_gone(id);
        }
        let looked =
            |client: &Client| matches!(&client.state, ClientState::Login(login) if login.is_untouched(&client.inbox));
        if !self.traffic.clients.get(id).is_some_and(looked) {
            self.log_leaving(id, "client unexpected eof");
        }
        self.leave(id);
        self.client_gone(id);
    }

    pub(super) fn client_gone(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.remove(id) else { return };
        if client.counted {
            let moved = (client.moved.moves > 0).then_some(client.moved);
            self.traffic.cx.tell_steward(Letter::Gone { admitted: client.admitted, moved });
        }
        self.look_quiet();
    }
}
