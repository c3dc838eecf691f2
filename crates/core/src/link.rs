//! Who is linked to whom: a client gets a server when it has something to send, and a server is free exactly when it is
//! idle outside a transaction with nothing owed (`serving.rs`).

use std::sync::Arc;

use crate::client::{ClientState, Link};
use crate::failure::Failure;
use crate::gates::Gate;
use crate::id::{ClientId, ServerId};
use crate::parameters::ParameterSet;
use crate::server::{Hold, ServerState};
use crate::settings::PoolMode;
use crate::time::Time;
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

    /// Gives the server to the client, with the client's parameters.
    pub(crate) fn link(&mut self, id: ClientId, server_id: ServerId, since: Time) {
        let now = self.cx.now;
        let (Some(client), Some(server)) = (self.clients.get_mut(id), self.servers.get_mut(server_id)) else {
            return;
        };
        debug_assert!(matches!(server.state, ServerState::Idle) && server.owed.settled());
        client.bind(Link::Linked(server_id));
        server.enter(ServerState::Linked(id));
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

    /// The transaction is over: the client goes on without a server.
    pub(crate) fn unlink(&mut self, id: ClientId, server_id: ServerId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.bind(Link::None);
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
            server.enter(ServerState::Recovering { reset_due, cancelled: false });
            self.recovering_settled(server_id);
        } else {
            self.free_server(server_id);
        }
    }
}
