//! The way of bytes to the room that deals with them, and what comes of its answer.
//!
//! Nothing is sent to a server for a client that is not linked to it, and a server is taken only when there is something to send.

use weir_wire::{FrontendTag, HEADER_LEN, TransactionStatus, write};

use crate::client::{ClientState, Discard, Link};
use crate::exchange::{Answers, Exchange, Exit, Outcome, Verdict};
use crate::id::{ClientId, ServerId};
use crate::inbox::{Body, Cursor, Piece};
use crate::message::Message;
use crate::server::{Server, ServerState};
use crate::worker::Worker;

/// For the log.
const TERMINATE: &str = "client close request";

impl Worker {
    pub(crate) fn client_bytes(&mut self, id: ClientId, bytes: &[u8]) -> usize {
        let Some(client) = self.clients.get(id) else { return bytes.len() };
        match client.state {
            ClientState::Login(_) => {
                let at = self.login_bytes(id, bytes);
                if self.is_logging_in(id) {
                    return at;
                }
                // What follows belongs to the session; a closing connection takes nothing more.
                self.cx.out.skip(at);
                at + self.client_bytes(id, &bytes[at..])
            }
            ClientState::Ready(_) => self.session_bytes(id, bytes),
            ClientState::Console(_) => self.console_bytes(id, bytes),
            ClientState::Reserved
            | ClientState::CancelRequest { .. }
            | ClientState::Closing
            | ClientState::Departed => bytes.len(),
        }
    }

    pub(crate) fn server_bytes(&mut self, id: ServerId, bytes: &[u8]) -> usize {
        let Some(server) = self.servers.get(id) else { return bytes.len() };
        match server.state {
            ServerState::Making(_) => {
                let at = self.making_bytes(id, bytes);
                if self.servers.get(id).is_some_and(|server| matches!(server.state, ServerState::Making(_))) {
                    return at;
                }
                // What follows belongs to its session.
                self.cx.out.skip(at);
                at + self.server_bytes(id, &bytes[at..])
            }
            ServerState::Reserved | ServerState::Canceller { .. } | ServerState::Closing => bytes.len(),
            _ => self.server_session_bytes(id, bytes),
        }
    }

    /// Takes what it can of a client's bytes; answers how many.
    pub(crate) fn session_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        loop {
            let exit = match Exchange::of(id, self.around()) {
                Some(mut exchange) => Some(exchange.client_bytes(&mut cursor)),
                None => self.unlinked_bytes(id, &mut cursor),
            };
            match exit {
                None => continue,
                Some(Exit::Sent) => {
                    self.sent(id);
                    continue;
                }
                Some(Exit::Drained) => {}
                Some(Exit::Held) => self.hold_client(id),
                Some(Exit::Ended) => self.end_client(id, TERMINATE),
                Some(Exit::Failed(failure)) => self.fail_client(id, &failure),
            }
            return cursor.at;
        }
    }

    /// Reads from a client that was woken; what was gathered of a message that had to wait is taken up at once.
    pub(crate) fn read_on(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !std::mem::take(&mut client.woken) {
            return;
        }
        client.held = false;
        if client.inbox.has_partial() {
            self.client_bytes(id, &[]);
        }
        self.look_ended(id);
        if self.clients.get(id).is_some_and(|client| !client.held && !client.is_over()) {
            self.cx.out.read(id, true);
        }
    }

    /// A long message has gone to the server.
    fn sent(&mut self, id: ClientId) {
        if let Some(server) = self.clients.get(id).and_then(|client| client.link.server()) {
            self.ask_away_doubt(server);
            self.settle(server);
        }
    }

    /// Takes a server's bytes: always all of them.
    pub(crate) fn server_session_bytes(&mut self, id: ServerId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        while let Some(mut answers) = Answers::of(id, self.around()) {
            match answers.server_bytes(&mut cursor) {
                Outcome::Drained => break,
                Outcome::Ready { cancels } => {
                    if cancels {
                        self.own_query_done(id);
                    }
                    self.settle(id);
                }
                Outcome::LookEnded => self.look_ended_unsynced(id),
                Outcome::CopyForNobody => self.copy_for_nobody(id),
                Outcome::OwnQueryFailed(failure) => self.own_query_failed(id, &failure),
                Outcome::EndedIdle => {
                    self.note_short_life(id);
                    self.close_server(id, "server sent an error while idle");
                }
                Outcome::Broken(failure) => {
                    self.fail_server(id, &failure);
                    break;
                }
            }
            if cursor.rest().is_empty() {
                break;
            }
        }
        self.wake_held_back(id);
        input.len()
    }

    /// Its client, which is held back for something that is owed, asks again if anything has come. This is the one place where
    /// it does: see `wait_for_replies`.
    #[inline]
    fn wake_held_back(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let wakes = server.owed.wakes();
        let ServerState::Linked(client) = server.state else { return };
        if wakes {
            self.wake_client(client);
        }
        debug_assert!(!self.servers.get(id).is_some_and(Server::is_stalled), "who is held back waits for what comes");
    }

    /// What is not between a client and a server, up to where a server is needed. `None`: it may go on.
    fn unlinked_bytes(&mut self, id: ClientId, cursor: &mut Cursor<'_>) -> Option<Exit> {
        let Some(client) = self.clients.get_mut(id) else { return Some(Exit::Drained) };
        if !matches!(client.state, ClientState::Ready(_)) {
            return Some(Exit::Drained);
        }
        if let Link::Tunnel(server) = client.link {
            let (from, to) = cursor.take(u32::MAX);
            self.cx.out.forward(server, from, to);
            return Some(Exit::Drained);
        }
        if client.congested {
            return Some(Exit::Held);
        }
        if let Body::Forward(count) | Body::Skip(count) = client.inbox.body {
            // Whom the rest was for is gone.
            let (from, to) = cursor.take(count);
            client.inbox.expect_rest(count as usize, to - from, false);
        }
        if cursor.rest().is_empty() && !client.inbox.has_partial() {
            return Some(Exit::Drained);
        }
        let mut need = HEADER_LEN;
        loop {
            let Some(client) = self.clients.get_mut(id) else { return Some(Exit::Drained) };
            let unlinked = client.link == Link::None;
            let Some(piece) = client.inbox.gather(cursor, need) else { return Some(Exit::Drained) };
            let verdict = self.unlinked_request(id, &piece);
            let Some(client) = self.clients.get_mut(id) else { return Some(Exit::Drained) };
            match verdict {
                Verdict::More(more) => {
                    client.inbox.put_back(piece);
                    need = more;
                }
                Verdict::Used(used) => {
                    client.inbox.used(cursor, piece, used);
                    return None;
                }
                Verdict::Wait => {
                    client.inbox.put_back(piece);
                    let linked = matches!(client.link, Link::Linked(_));
                    return if unlinked && linked { None } else { Some(Exit::Held) };
                }
                Verdict::End => return Some(Exit::Ended),
                Verdict::Fail(failure) => return Some(Exit::Failed(failure)),
            }
        }
    }

    fn unlinked_request(&mut self, id: ClientId, piece: &Piece<'_>) -> Verdict {
        let message = match Message::read(piece, self.cx.settings.max_packet_size) {
            Ok(message) => message,
            Err(failure) => return Verdict::Fail(failure),
        };
        let Some(client) = self.clients.get(id) else { return Verdict::Wait };
        let Some(session) = client.session() else { return Verdict::Wait };
        if session.discard != Discard::Nothing {
            return if message.tag == FrontendTag::Terminate { Verdict::End } else { self.discard(id, &message) };
        }
        match message.needed(self.pools[client.pool].tracks_statements(), session.reads()) {
            Ok(need) if message.bytes.len() < need => return Verdict::More(need),
            Ok(_) => {}
            Err(failure) => return Verdict::Fail(failure),
        }
        if client.link != Link::None {
            return Verdict::Wait;
        }
        match message.tag {
            FrontendTag::Terminate => Verdict::End,
            FrontendTag::Sync => {
                self.cx.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
                Verdict::Used(message.total)
            }
            // Ignored outside of a copy, as in `PostgresMain`.
            FrontendTag::Flush | FrontendTag::CopyData | FrontendTag::CopyDone | FrontendTag::CopyFail => {
                self.skip(id, &message)
            }
            _ => match self.acquire(id) {
                Ok(_) => Verdict::Wait,
                Err(failure) => Verdict::Fail(failure),
            },
        }
    }

    fn skip(&mut self, id: ClientId, message: &Message<'_>) -> Verdict {
        if let Some(client) = self.clients.get_mut(id) {
            client.inbox.expect_rest(message.total, message.present(), false);
        }
        Verdict::Used(message.present())
    }

    /// The message belongs to a request that was cancelled while it waited.
    fn discard(&mut self, id: ClientId, message: &Message<'_>) -> Verdict {
        let Some(session) = self.clients.get_mut(id).and_then(|client| client.session_mut()) else {
            return Verdict::Wait;
        };
        let ends = session.discard == Discard::Cancelled
            && matches!(message.tag, FrontendTag::Query | FrontendTag::FunctionCall);
        let ready = ends || message.tag == FrontendTag::Sync;
        if message.tag == FrontendTag::Query {
            // As it would have begun, a simple query destroys the unnamed statement.
            session.unnamed.gone();
        }
        session.discard = if ready { Discard::Nothing } else { Discard::UntilSync };
        let verdict = self.skip(id, message);
        if ready {
            self.cx.out.send(id, |out| write::ready(out, TransactionStatus::Idle));
        }
        verdict
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
}
