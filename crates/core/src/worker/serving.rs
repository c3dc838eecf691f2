//! A server that owes nothing: what its client does next, and who gets it when it is free.
//!
//! A freed server is not given away on the spot: its pool is put on the list of pools to serve, and served when the input in
//! hand is dealt with. So one freed server never leads to a chain of calls through many clients.

use weir_wire::TransactionStatus;

use crate::client::{Client, ClientState, Doing, Link};
use crate::exchange::Around;
use crate::failure::{BatchFailure, Failure, Uncertain};
use crate::id::{ClientId, ServerId};
use crate::inbox::Body;
use crate::names::PoolName;
use crate::pool::gates::Gate;
use crate::server::{Hold, Server, ServerState};
use crate::settings::PoolMode;
use crate::timers::Subject;
use crate::worker::Service;
use crate::worker::pins::pin_due;

impl Service {
    /// Looks whether nothing is owed any more, and what that means.
    pub(super) fn settle(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get(id) else { return };
        if server.kept.altered.is_to_tell() {
            self.traffic.code_altered_on(id);
            return self.settle(id);
        }
        if !server.owed.settled() {
            if let Some(client) = server.client() {
                // What it asked for next is being served.
                self.traffic.renew_client_deadline(client);
            }
            return self.look_ended_behind(id);
        }
        match server.state {
            ServerState::Linked(client) => self.linked_settled(id, client),
            ServerState::Recovering { .. } => self.traffic.recovering_settled(id),
            ServerState::Listener => self.listener_settled(id),
            _ => {}
        }
    }

    /// The pool's listener has answered all: who has waited for that goes on.
    #[cold]
    fn listener_settled(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get(id) else { return };
        let Some(listener) = &mut self.traffic.pools[server.pool].listener else { return };
        let [waiting, hearing_out] = listener.answered();
        for client in waiting {
            if let Some(server) = self.traffic.clients.get(client).and_then(|client| client.link.server()) {
                self.settle(server);
            }
        }
        for client in hearing_out {
            self.has_heard_out(client);
        }
    }

    /// A linked server owes nothing. It stays with its client, whose transaction goes on or whose session it keeps; the client goes on with
    /// what it has asked for meanwhile, which waited for something of ours (`hold`); or the server is free.
    fn linked_settled(&mut self, server_id: ServerId, id: ClientId) {
        let Around { cx, clients, servers, pools } = self.traffic.around();
        let (Some(client), Some(server)) = (clients.get_mut(id), servers.get_mut(server_id)) else { return };
        if matches!(client.inbox.body, Body::Forward(_)) || server.is_in_message() {
            // The rest of a message is on its way to the one or the other, who has a part of it.
            return;
        }
        let mode = if server.owed.is_one_by_one() { PoolMode::Statement } else { pools[client.pool].limits.mode };
        let ended = client.ended;
        let ClientState::Ready(session) = &mut client.state else { return self.borrowed(id, server_id) };
        #[cfg(feature = "planted")]
        let status =
            if cx.planted_now(crate::planted::Planted::ShareServer) { TransactionStatus::Idle } else { server.status };
        #[cfg(not(feature = "planted"))]
        let status = server.status;
        if server.kept.blind && pools[client.pool].knowledge.read_by(server_id).is_some() {
            self.traffic.code_read_on_linked(server_id);
            return self.linked_settled(server_id, id);
        }
        let mut hold = std::mem::take(&mut server.hold);
        if hold == Hold::End {
            hold = Hold::Nothing;
        }
        // Where only our own query is answered, the request that it was for comes now.
        let stays = server.owed.is_fresh()
            || stays_linked(mode, status)
            || (server.kept.on && status == TransactionStatus::Idle && {
                let known = &mut pools[client.pool].knowledge;
                known.is_gone_by(cx.now);
                server.kept.meets(&known.code, known.version);
                server.is_kept_for(session, &mut hold, ended, server_id, cx)
            });
        if server.cancel_may_come && stays && !server.owed.is_fresh() && !server.kept.is_looking() {
            // What it sends next would be hit.
            return self.fail_client(id, &Failure::Uncertain(Uncertain::CancelMayCome));
        }
        if server.outdated && stays && hold == Hold::Nothing && server.ends_fast(&cx.settings) {
            return self.fail_client(id, &Failure::Reconfigured);
        }
        if stays && !ended && hold == Hold::Nothing {
            if server.owed.is_one_by_one() {
                server.owed.goes_on_in(pools[client.pool].limits.mode);
            }
            if server.kept.on && (server.kept.holds() || server.kept.counted) {
                return self.pin_settled(id, server_id);
            }
            let due = session.begins(server.doing(session.asks), cx.now);
            return cx.timers.set(Subject::Client(id), &mut client.deadline, due);
        }
        let refused = !stays && status != TransactionStatus::Idle;
        if ended && !refused && self.look_ended(id) {
            return;
        }
        if hold != Hold::Nothing && self.hold_ends(hold, mode, status, server_id, id) {
            return;
        }
        if refused {
            self.fail_client(id, &Failure::TransactionsNotAllowed);
        } else if stays {
            self.traffic.arm_client(id);
        } else {
            self.unlink(id, server_id);
        }
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
        let asked = self.traffic.servers.get_mut(server_id).filter(|server| server.kept.is_looking());
        if let Some(server) = asked.filter(|_| status != TransactionStatus::Idle) {
            // It was asked outside of a transaction.
            server.close_needed = true;
            self.fail_client(id, &Failure::ServerBrokeProtocol);
            return true;
        }
        let Around { cx, clients, servers, .. } = self.traffic.around();
        let session = clients.get_mut(id).and_then(|client| client.session_mut());
        if let (Some(server), Some(session), Hold::Parameters) = (servers.get_mut(server_id), session, hold) {
            // Where session mode has come while it was asked, that is not over yet: a later error is the client's.
            server.looked(session, cx);
        }
        if hold == Hold::Reset && !stays_linked(mode, status) {
            // The next link brings all of it.
            let session = self.traffic.clients.get_mut(id).and_then(|client| client.session_mut());
            if let Some(startup) = session.and_then(|session| session.startup.as_mut()) {
                startup.forget_missing();
            }
            return false;
        }
        if hold == Hold::Reset && self.give_missing(id, server_id) {
            return true;
        }
        self.traffic.arm_client(id);
        true
    }

    fn give_missing(&mut self, id: ClientId, server_id: ServerId) -> bool {
        let (Some(client), Some(server)) = (self.traffic.clients.get_mut(id), self.traffic.servers.get_mut(server_id))
        else {
            return false;
        };
        let startup = client.session_mut().and_then(|session| session.startup.as_mut());
        let Some(startup) = startup else { return false };
        if server.owed.is_joined(server.status) && !startup.missing().is_empty() {
            self.fail_client(id, &Failure::Batch(BatchFailure::ResetJoined));
            return true;
        }
        let gives = server.give_missing(server_id, startup, &mut self.traffic.cx);
        if gives {
            // The request is answered for which the client had its time.
            self.traffic.arm_client(id);
        }
        gives
    }

    /// A server that owes nothing stays with its client for what that has left, or has until now.
    #[cold]
    pub(super) fn pin_settled(&mut self, id: ClientId, server_id: ServerId) {
        if self.hands_channels_over(id, server_id) {
            return;
        }
        self.traffic.tell_kept(id);
        self.traffic.count_pin(server_id);
        self.look_blind(server_id);
        let (Some(client), Some(server)) = (self.traffic.clients.get(id), self.traffic.servers.get(server_id)) else {
            return;
        };
        if server.kept.refuses && !server.kept.left_for_certain(server.exact.is_some()).is_none() {
            let text = String::from_utf8_lossy(&server.kept.text).into_owned();
            return self.fail_client(id, &Failure::StateRefused { held: server.kept.held().words(), text });
        }
        let idle = client.session().is_some_and(|session| server.doing(session.asks) == Doing::Idle);
        if idle && pin_due(server, &self.traffic.pools, &self.traffic.cx) <= self.traffic.cx.now {
            let held = server.kept.held().words();
            return self.fail_client(id, &Failure::PinTimeout { held });
        }
        self.traffic.arm_client(id);
    }

    /// A server stays with its client at least until it is known what that has called: it may be asked, where its database is still its pool's.
    pub(super) fn look_blind(&mut self, server_id: ServerId) {
        let Some(server) = self.traffic.servers.get(server_id) else { return };
        match server.state {
            ServerState::Linked(client) if server.kept.cannot_be_judged() && server.idles() => {
                self.fail_client(client, &Failure::Uncertain(Uncertain::StateUnknown));
            }
            _ => self.traffic.read_code_on_linked(server_id),
        }
    }

    /// Only so many of this pool's servers may stay with their clients here: those that came last do not.
    pub(super) fn keep_pinned(&mut self, pool: &PoolName, keep: u32) {
        let Some(index) = self.traffic.pools.find(pool) else { return };
        let of_pool = self.traffic.servers.iter().filter(|(_, server)| server.pool == index && server.kept.counted);
        let mut pinned: Vec<_> = of_pool.map(|(id, server)| (server.kept.held_since(), id)).collect();
        pinned.sort_unstable();
        for (_, id) in pinned.into_iter().skip(keep as usize) {
            let Some(server) = self.traffic.servers.get(id) else { continue };
            let (client, held) = (server.client(), server.kept.held().words());
            if let Some(client) = client {
                self.fail_client(
                    client,
                    &Failure::TooManyPins { limit: self.traffic.cx.settings.max_pinned_per_pool, held },
                );
            }
        }
    }

    /// Who was kept until it is known what texts call may be free now.
    #[cold]
    fn see_what_was_left(&mut self) {
        let known = std::mem::take(&mut self.traffic.code_known);
        let is_blind = |server: &Server| server.kept.blind && !server.told && known.contains(&server.pool);
        let blind: Vec<_> =
            self.traffic.servers.iter().filter(|(_, server)| is_blind(server)).map(|(id, _)| id).collect();
        known.iter().for_each(|index| self.traffic.meet_code(*index));
        blind.into_iter().for_each(|id| self.settle(id));
    }

    pub(super) fn serve_scheduled(&mut self) {
        if !self.traffic.code_known.is_empty() {
            self.see_what_was_left();
        }
        while let Some(index) = self.traffic.to_serve.pop() {
            while self.serve_one(index) {
                self.traffic.step();
            }
        }
        while let Some(index) = self.traffic.to_ask.pop() {
            self.traffic.ask(index);
        }
    }

    /// Gives one idle server to whoever has waited longest, here or on another worker.
    fn serve_one(&mut self, index: u32) -> bool {
        #[cfg(feature = "planted")]
        if self.traffic.cx.planted_now(crate::planted::Planted::MissWakeup) {
            return false;
        }
        let pool = &self.traffic.pools[index];
        // Whoever waits while nothing is read of clients waits on, and can be cancelled.
        if pool.gate != Gate::Open || pool.idle.is_empty() || self.traffic.gates.is_suspended() {
            return false;
        }
        if !pool.tunnels.is_empty() && self.traffic.makes_room(index) {
            return true;
        }
        let pool = &self.traffic.pools[index];
        let claimed = pool.recall.is_some() || pool.shed.is_some() || !pool.homes.is_empty();
        if claimed && let Some(to) = self.claimant(index) {
            self.give_server(index, to);
            return true;
        }
        // Only who leaves with a server leaves the queue.
        let Some(waiting) = self.traffic.pools[index].waiting.first() else { return false };
        let Some(server) = self.take_idle(index, waiting.client) else { return false };
        let waits = |client: &Client| matches!(client.link, Link::Waiting { .. });
        debug_assert!(
            self.traffic.clients.get(waiting.client).is_some_and(waits),
            "whoever stops waiting leaves the queue"
        );
        let checked = self.traffic.pools[index].checks.prompt();
        if !self.link(waiting.client, server, waiting.since) {
            return self.traffic.pools[index].checks.prompt() > checked;
        }
        self.traffic.pools[index].waiting.pop();
        self.resume(waiting.client);
        true
    }

    /// A client that waited has a server: its bytes are read again.
    fn resume(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get(id) else { return };
        if matches!(client.state, ClientState::Login(_)) {
            return self.borrows(id);
        }
        self.traffic.wake_client(id);
    }
}

/// Whether a client keeps a server that owes nothing.
fn stays_linked(mode: PoolMode, status: TransactionStatus) -> bool {
    match mode {
        PoolMode::Session => true,
        PoolMode::Transaction => status != TransactionStatus::Idle,
        PoolMode::Statement => false,
    }
}
