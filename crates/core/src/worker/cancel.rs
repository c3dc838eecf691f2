//! Cancel requests: from whichever worker they come in at, to exactly the query that they mean.
//!
//! A cancel names a session of ours by number and key. The steward knows its worker (`whereabouts.rs`), which looks what that client is doing at this moment: waiting, then
//! it leaves the queue; being served, then a cancel request goes to its server. Until the connection that carries it
//! has ended, that server is given to nobody else, so that it can never hit another client's query.

use subtle::ConstantTimeEq;

use weir_wire::report::{Report, Severity};
use weir_wire::write;

use crate::client::{Asked, ClientState, Discard, Link};
use crate::context::Context;
use crate::exchange::{Answers, Around};
use crate::failure::{Failure, Uncertain};
use crate::id::{ClientId, ServerId, WorkerId};
use crate::mail::{Letter, Stray};
use crate::making::{Purpose, Target};
use crate::owed::{Owed, Request};
use crate::peer::{Endpoint, Peer};
use crate::server::{Cancel, Hold, Server, ServerState};
use crate::settings::PoolMode;
use crate::whereabouts::Whereabouts;
use crate::worker::Service;
use crate::worker::link::part;
use crate::worker::peers::{PREDECESSOR, SUCCESSOR};

/// Requests up to so many wait until theirs has been carried out. Those beyond are told at once: it is on its way, and all that their sessions do next
/// waits for it as well.
const CANCELS_WAITING_MAX: usize = 64;

/// Somebody who is told when a cancel has been carried out.
#[derive(Debug)]
pub(super) struct Waiting {
    /// The number of the server that it is for, and which of its requests (`OwedQueue::front_number`).
    server: u64,
    request: u64,
    /// Whom to tell.
    worker: WorkerId,
    reply_to: ClientId,
}

impl Service {
    /// A cancel request came in: the steward knows which worker to ask.
    pub(super) fn cancel_requested(&mut self, id: ClientId, process_id: u32, key: &[u8]) {
        let addressed = self.addressed(process_id, key, id);
        let peer = match &addressed {
            Ok(Letter::PassOn { stray }) => Some(stray.peer),
            _ => None,
        };
        if let Some(client) = self.traffic.clients.get_mut(id) {
            let asked = Asked { since: self.traffic.cx.now, process_id, key: key.into(), peer };
            client.enter(ClientState::CancelRequest(Box::new(asked)));
        }
        self.traffic.arm_client(id);
        match addressed {
            Ok(letter) => self.traffic.cx.tell_steward(letter),
            Err(reason) => self.end_client(id, reason),
        }
    }

    /// All is done: the client that asked sees its connection closed. `unknown`: no session here has that key; it may be one that the process before
    /// this one still serves, or one that has gone over.
    pub(super) fn cancel_answered(&mut self, id: ClientId, unknown: bool) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        let ClientState::CancelRequest(asked) = &mut client.state else { return };
        let config = &self.traffic.cx.config;
        let next = match asked.peer {
            // What comes later has gone by the other process, or comes from there.
            None if unknown
                && client.connected_at < self.traffic.shutdown.handed_over_at()
                && config.place.is_some() =>
            {
                Some(SUCCESSOR)
            }
            None if unknown && config.predecessor.is_some() => Some(PREDECESSOR),
            _ => None,
        };
        asked.peer = next;
        if let Some(peer) = next {
            let (process_id, key, since) = (asked.process_id, asked.key.clone(), asked.since);
            let stray = Stray { peer, process_id, key, reply_to: id, since, left: false };
            return self.traffic.cx.tell_steward(Letter::PassOn { stray });
        }
        self.end_client(id, "successfully sent cancel request");
    }

    /// Is it for one of our clients? One that has moved is followed.
    pub(super) fn cancel_asked(&mut self, from: WorkerId, process_id: u32, key: Box<[u8]>, reply_to: ClientId) {
        let client = match self.sessions.find(process_id) {
            Some(Whereabouts::Left { to, .. }) => {
                return self.traffic.cx.post(to, Letter::Cancel { process_id, key, reply_to, asker: from });
            }
            Some(Whereabouts::Here(client)) => Some(client).filter(|&client| {
                let session = self.traffic.clients.get(client).and_then(|client| client.session());
                session.is_some_and(|session| bool::from(session.cancel_key.ct_eq(&key)))
            }),
            Some(Whereabouts::Ended) | None => None,
        };
        let waits = client.is_some_and(|client| self.cancel_client(client, from, reply_to));
        if !waits {
            self.traffic.cx.post(from, Letter::CancelDone { reply_to, unknown: client.is_none() });
        }
    }

    /// True where the answer has to wait for the server's.
    fn cancel_client(&mut self, id: ClientId, from: WorkerId, reply_to: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get_mut(id) else { return false };
        let (link, waits) = (client.link, client.has_request_waiting());
        match link {
            Link::Waiting { since } if client.session().is_some() => {
                client.bind(Link::None);
                self.traffic.pools[client.pool].waiting.leave(id, since, client.place);
                self.cancel_waiting(id);
                false
            }
            // No error is told in the midst of a notification: then the cancel waits, as it would for a query of ours.
            Link::Linked(server) if self.traffic.servers.get(server).is_some_and(Server::is_in_message) => {
                self.cancel_running(server, from, reply_to)
            }
            // The server does work of ours between two transactions, and the request waits for that. Where none does, the cancel is for nothing.
            Link::Linked(server)
                if waits
                    && self
                        .traffic
                        .servers
                        .get(server)
                        .is_some_and(|server| server.works_between_transactions() && !server.owed.commits()) =>
            {
                self.cancel_held_back(id, server);
                false
            }
            // It waits for what was notified before.
            Link::Linked(server) if waits && self.traffic.stops_hearing_out(id) => {
                self.cancel_held_back(id, server);
                false
            }
            Link::Linked(server) | Link::Tunnel(server) => self.cancel_running(server, from, reply_to),
            Link::None | Link::Waiting { .. } | Link::WaitingTunnel { .. } => false,
        }
    }

    /// The request waits for work of ours on its client's server. One that was given to it for this alone goes on to others.
    fn cancel_held_back(&mut self, id: ClientId, server_id: ServerId) {
        let Around { cx, clients, servers, pools } = self.traffic.around();
        let (Some(client), Some(server)) = (clients.get_mut(id), servers.get(server_id)) else { return };
        if server.owed.begins() {
            return self.fail_client(id, &Failure::BegunCancelled);
        }
        if !server.owed.is_fresh() || pools[client.pool].limits.mode == PoolMode::Session {
            return self.cancel_unsent(id);
        }
        let listens = part(id, client, server.owed.batch(), cx);
        self.traffic.recover(server_id, false);
        self.cancel_unsent(id);
        if listens == Some(true) {
            self.traffic.tell_kept(id);
        }
    }

    fn cancel_running(&mut self, id: ServerId, from: WorkerId, reply_to: ClientId) -> bool {
        let works = |server: &Server| matches!(server.state, ServerState::Tunnel(_)) || !server.owed.is_empty();
        if !self.traffic.servers.get(id).is_some_and(works) {
            return false;
        }
        self.start_cancel(id);
        let Some(server) = self.traffic.servers.get(id).filter(|server| server.cancel != Cancel::None) else {
            return false;
        };
        if self.cancels_waiting.len() >= CANCELS_WAITING_MAX {
            return false;
        }
        let (number, request) = (server.number, server.owed.front_number());
        self.cancels_waiting.push(Waiting { server: number, request, worker: from, reply_to });
        true
    }

    /// A transaction that was begun without a server has none that could go on failed; nor is there a word for that while it is begun on one.
    fn cancel_waiting(&mut self, id: ClientId) {
        let session = self.traffic.clients.get(id).and_then(|client| client.session());
        match session.is_some_and(|session| session.discard == Discard::Begun) {
            true => self.fail_client(id, &Failure::BegunCancelled),
            false => self.cancel_unsent(id),
        }
    }

    /// What the client asked for was not sent to a server yet, and is not going to be.
    fn cancel_unsent(&mut self, id: ClientId) {
        let report = Report::new(Severity::Error, "57014", "canceling statement due to user request");
        self.answer_unsent(id, |id, cx| cx.tell_error(id, &report));
    }

    fn answer_unsent(&mut self, id: ClientId, tell: impl FnOnce(ClientId, &mut Context)) {
        let session = self.traffic.clients.get_mut(id).and_then(|client| client.session_mut());
        // It is told once: what was cancelled before may still wait for its client to read.
        let Some(session) = session.filter(|session| session.discard == Discard::Nothing) else { return };
        session.discard = Discard::Answered;
        tell(id, &mut self.traffic.cx);
        self.traffic.arm_client(id);
        self.traffic.wake_client(id);
    }

    /// The Sync was refused that went ahead of what the client asks for, as PostgreSQL would have refused both: that has its error, and is not
    /// sent. From here on it is as if the Sync were its client's. False where nothing waits for it any more.
    pub(super) fn refuse_unsent(&mut self, id: ClientId, server_id: ServerId, error: &[u8]) -> bool {
        let Around { clients, servers, .. } = self.traffic.around();
        let (Some(client), Some(server)) = (clients.get(id), servers.get_mut(server_id)) else { return false };
        if !client.has_request_waiting() {
            return false;
        }
        server.hold = Hold::Nothing;
        self.answer_unsent(id, |id, cx| cx.out.send(id, |out| write::error_as(out, Severity::Error, error)));
        true
    }

    /// Sends a cancel request to the server, unless one is on its way already.
    pub(super) fn start_cancel(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        if server.key.is_none() || server.endpoint.is_none() {
            return;
        }
        if server.cancel != Cancel::None {
            // It may have been for an earlier request: what follows then is looked at when it has ended.
            return;
        }
        let request = server.owed.front_number();
        // A query of ours in front must not be hit: the request leaves when it is done. What its client has prepared may be.
        let ours = |owed: &Owed| matches!(owed.request, Request::OwnQuery | Request::Doubt);
        let works_for_us = server.works_for_us() && !server.owed.commits();
        if works_for_us || server.owed.front().is_some_and(ours) {
            server.cancel = Cancel::BehindOwn(request);
            return;
        }
        self.send_cancel(id, request);
    }

    /// The connection is gone, and PostgreSQL may go on with what changes code: it is cancelled, and nobody waits for that.
    pub(super) fn end_what_alters(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get(id) else { return };
        if server.kept.altered.is_pending() && server.owed.has_unanswered() && !server.cancel_is_on_its_way() {
            let request = server.owed.front_number();
            self.send_cancel(id, request);
        }
    }

    /// Our own query is done: the cancel that waited for it leaves, if there is anything left to cancel.
    pub(super) fn own_query_done(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get(id) else { return };
        let Cancel::BehindOwn(request) = server.cancel else { return };
        if matches!(server.state, ServerState::Linked(_)) && !server.owed.is_empty() {
            self.send_cancel(id, request);
        } else {
            self.cancel_ended(id, true);
        }
    }

    fn send_cancel(&mut self, id: ServerId, request: u64) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        server.cancel = Cancel::OnItsWay(request);
        let (Some((process_id, key)), Some(endpoint)) = (&server.key, &server.endpoint) else { return };
        let purpose = Purpose::Cancel { target: Target::Server(id), process_id: *process_id, key: key.clone() };
        let endpoint = endpoint.clone();
        // The machine that it runs on: its name may stand for another one by now.
        let address = match (&server.peer, &endpoint) {
            (Some(Peer::Tcp { ip, port }), Endpoint::Tcp { .. }) => {
                Endpoint::Tcp { host: ip.to_string().into(), port: *port }
            }
            _ => endpoint.clone(),
        };
        self.connect_canceller(purpose, endpoint, address);
    }

    /// A server's connection has failed, and is gone next. A cancel request that it carried may still arrive, but for one on a Unix
    /// socket: there the other end's close looks the same, and nothing is ever on its way.
    pub(super) fn server_failed(&mut self, id: ServerId) {
        if let Some(server) = self.traffic.servers.get_mut(id)
            && let ServerState::Canceller { target } = server.state
            && !matches!(server.endpoint, Some(Endpoint::Unix { .. }))
        {
            server.enter(ServerState::Closing);
            self.canceller_ended(target, false);
        }
    }

    /// The connection that carried a cancel request has ended, or is not going to be.
    pub(super) fn canceller_ended(&mut self, target: Target, certain: bool) {
        match target {
            Target::Server(id) => self.cancel_ended(id, certain),
            Target::Peer { peer, asker, reply_to, .. } => self.passed_on(peer, asker, reply_to),
        }
    }

    /// The connection that carried a cancel request has ended. `certain`: PostgreSQL ended it, so the signal has been sent, or
    /// the request never left; otherwise it may still arrive, and its target is fit for nobody.
    pub(super) fn cancel_ended(&mut self, target: ServerId, certain: bool) {
        let Some(server) = self.traffic.servers.get_mut(target) else { return };
        let left = server.cancel_is_on_its_way();
        let done = std::mem::take(&mut server.cancel).request();
        if !certain {
            (server.close_needed, server.cancel_may_come) = (true, true);
            // Where it stays with its client, that is to end: behind what is owed, where that comes without another message of the client's.
            self.traffic.settling.push(target);
            let (number, open) = (server.number, server.owed.unsynced());
            match server.state {
                ServerState::Linked(_) if !open && server.hold == Hold::Nothing => server.hold = Hold::End,
                ServerState::Linked(_) if !open => {}
                // What is on its way through a tunnel is not known.
                ServerState::Tunnel(client) | ServerState::Linked(client) => {
                    self.cancels_moot(number);
                    return self.fail_client(client, &Failure::Uncertain(Uncertain::CancelMayCome));
                }
                _ => {}
            }
        }
        let (number, front) = (server.number, server.owed.front_number());
        let is_linked = matches!(server.state, ServerState::Linked(_)) && !server.owed.is_empty();
        let goes_on = |waiting: &Waiting| is_linked && Some(waiting.request) != done && waiting.request == front;
        self.tell_cancelled(|waiting| waiting.server == number && !goes_on(waiting));
        if self.cancels_waiting.iter().any(|waiting| waiting.server == number) {
            // They are for what PostgreSQL has begun since it carried out the one that has ended.
            self.start_cancel(target);
        }
        let Some(server) = self.traffic.servers.get(target) else { return };
        match &server.state {
            // A query of ours that has waited for the one goes ahead of the next.
            _ if server.cancel_is_on_its_way() => {}
            ServerState::Held => self.traffic.free_server(target),
            ServerState::Recovering { .. } => self.traffic.recovering_settled(target),
            ServerState::Linked(client) if left => self.own_query_may_go(target, *client),
            _ => {}
        }
    }

    /// No cancel is on its way any more that would have hit a query of ours, which waited for that; so did the client.
    fn own_query_may_go(&mut self, id: ServerId, client: ClientId) {
        self.ask_away_doubt(id);
        if self.traffic.servers.get(id).is_some_and(|server| server.hold == Hold::Reset) {
            self.traffic.settling.push(id);
        }
        self.traffic.wake_client(client);
    }

    /// A server is gone: whoever waits for a cancel of its query need not.
    pub(super) fn cancels_moot(&mut self, number: u64) {
        self.tell_cancelled(|waiting| waiting.server == number);
    }

    fn tell_cancelled(&mut self, which: impl Fn(&Waiting) -> bool) {
        let told: Vec<_> = self.cancels_waiting.extract_if(.., |waiting| which(waiting)).collect();
        for Waiting { worker, reply_to, .. } in told {
            self.traffic.cx.post(worker, Letter::CancelDone { reply_to, unknown: false });
        }
    }

    pub(super) fn ask_away_doubt(&mut self, id: ServerId) {
        if let Some(mut answers) = Answers::of(id, self.traffic.around()) {
            answers.ask_away_doubt();
        }
    }
}
