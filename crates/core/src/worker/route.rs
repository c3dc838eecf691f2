//! The way of bytes to the room that deals with them, and what comes of its answer.
//!
//! Nothing is sent to a server for a client that is not linked to it, and a server is taken only when there is something to send.

use weir_wire::{BackendTag, HEADER_LEN, Header};

use crate::client::ClientState;
use crate::exchange::{Answers, Exchange, Exit, Outcome, Unlinked};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::inbox::Cursor;
use crate::server::{Hold, Server, ServerState};
use crate::worker::Service;

/// For the log.
pub(super) const TERMINATE: &str = "client close request";

impl Service {
    pub(super) fn client_bytes(&mut self, id: ClientId, bytes: &[u8]) -> usize {
        let Some(client) = self.traffic.clients.get(id) else { return bytes.len() };
        match client.state {
            ClientState::Login(_) => {
                let at = self.login_bytes(id, bytes);
                if self.traffic.is_logging_in(id) {
                    return at;
                }
                // What follows belongs to the session; a closing connection takes nothing more.
                self.traffic.cx.out.skip(at);
                at + self.client_bytes(id, &bytes[at..])
            }
            ClientState::Ready(_) => self.session_bytes(id, bytes),
            ClientState::Console(_) => self.console_bytes(id, bytes),
            ClientState::Reserved | ClientState::CancelRequest(_) | ClientState::Closing | ClientState::Departed => {
                bytes.len()
            }
        }
    }

    pub(super) fn server_bytes(&mut self, id: ServerId, bytes: &[u8]) -> usize {
        let Some(server) = self.traffic.servers.get(id) else { return bytes.len() };
        match server.state {
            ServerState::Making(_) => {
                let at = self.making_bytes(id, bytes);
                if self.traffic.servers.get(id).is_some_and(|server| matches!(server.state, ServerState::Making(_))) {
                    return at;
                }
                // What follows belongs to its session.
                self.traffic.cx.out.skip(at);
                at + self.server_bytes(id, &bytes[at..])
            }
            ServerState::Reserved | ServerState::Canceller { .. } | ServerState::Closing => bytes.len(),
            _ => self.server_session_bytes(id, bytes),
        }
    }

    /// Takes what it can of a client's bytes; answers how many.
    pub(super) fn session_bytes(&mut self, id: ClientId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        loop {
            let exit = match Exchange::of(id, self.traffic.around()) {
                Some(mut exchange) => exchange.client_bytes(&mut cursor),
                None => match Unlinked::of(id, self.traffic.around()) {
                    Some(mut unlinked) => unlinked.client_bytes(&mut cursor),
                    None => Exit::Drained,
                },
            };
            match exit {
                Exit::Discarded => continue,
                Exit::Sent => {
                    self.sent(id);
                    continue;
                }
                Exit::LooksFirst => return self.looks_first(id, input, cursor.at),
                Exit::Goes | Exit::Begins => {}
                Exit::NeedsServer => match self.acquire(id) {
                    Ok(Some(_)) => continue,
                    Ok(None) => self.traffic.hold_client(id),
                    Err(failure) => self.fail_client(id, &failure),
                },
                Exit::NeedsSync | Exit::NeedsChannels | Exit::NeedsSequences | Exit::NeedsStatements { .. } => {
                    self.ask_ahead(id, &exit);
                    continue;
                }
                Exit::NeedsNoTemporary => self.had_temporary(id),
                Exit::NeedsNotifications if !self.hears_out(id) => continue,
                Exit::Drained => {}
                Exit::Held | Exit::NeedsNotifications => {
                    if let Some(client) = self.traffic.clients.get_mut(id) {
                        client.waits_with(cursor.rest());
                    }
                    self.traffic.hold_client(id);
                }
                Exit::Ended => self.end_client(id, TERMINATE),
                Exit::Failed(failure) => self.fail_client(id, &failure),
            }
            return cursor.at;
        }
    }

    /// What a client asks that has no server, of which so many bytes are dealt with; answers how many are, then.
    #[cold]
    #[inline(never)]
    fn looks_first(&mut self, id: ClientId, input: &[u8], at: usize) -> usize {
        let mut cursor = Cursor::new(input);
        cursor.at = at;
        while self.looks_at_next(id, &mut cursor) {
            if self.traffic.clients.get(id).is_some_and(|client| client.link.server().is_some()) {
                // With one it does not come back here before that has answered.
                self.traffic.cx.out.skip(cursor.at);
                return cursor.at + self.session_bytes(id, cursor.rest());
            }
        }
        cursor.at
    }

    /// Queries of ours go ahead: what they do, or go back to, is no part of what the client has prepared without a Sync. What that has written
    /// is committed first, and the message that waits is looked at again when it is.
    #[cold]
    #[inline(never)]
    fn ask_ahead(&mut self, id: ClientId, needs: &Exit) {
        let server_id = self.traffic.clients.get(id).and_then(|client| client.link.server());
        let Some(server_id) = server_id else { return };
        if let Some(server) = self.traffic.servers.get_mut(server_id).filter(|server| server.owed.unsynced()) {
            server.end_unsynced(server_id, &mut self.traffic.cx);
            server.hold = Hold::Parameters;
            return;
        }
        match *needs {
            Exit::NeedsChannels => self.list_channels(id),
            Exit::NeedsSequences => self.forget_sequences(id),
            Exit::NeedsStatements { own_names } => self.clear_statements(id, own_names),
            _ => {}
        }
    }

    /// Reads from a client that was woken; what was gathered of a message that had to wait is taken up at once.
    pub(super) fn read_on(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        if !std::mem::take(&mut client.woken) || client.overdue {
            return;
        }
        if self.traffic.gates.is_suspended() && client.session().is_some() {
            self.traffic.suspended.insert(id);
            return;
        }
        client.held = false;
        if client.inbox.has_partial() {
            self.client_bytes(id, &[]);
        }
        self.look_ended(id);
        if self.traffic.clients.get(id).is_some_and(|client| !client.held && !client.is_over()) {
            self.traffic.cx.out.read(id, true);
        }
    }

    /// A long message has gone to the server.
    fn sent(&mut self, id: ClientId) {
        if let Some(server) = self.traffic.clients.get(id).and_then(|client| client.link.server()) {
            self.ask_away_doubt(server);
            self.settle(server);
        }
    }

    /// Takes a server's bytes: always all of them.
    #[inline(always)]
    pub(super) fn server_session_bytes(&mut self, id: ServerId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        while let Some(mut answers) = Answers::of(id, self.traffic.around()) {
            match answers.server_bytes(&mut cursor) {
                Outcome::Drained => break,
                Outcome::Ready { cancels } => {
                    let unasked = !cursor.rest().is_empty() && self.has_unasked_reply(id, cursor.rest());
                    if cancels {
                        self.own_query_done(id);
                    }
                    self.settle(id);
                    if unasked && self.traffic.servers.get(id).is_some_and(|server| !server.owed.is_empty()) {
                        // A query of ours is on its way now: this would pass for its answer, and each later one for another's.
                        self.fail_server(id, &Failure::ServerBrokeProtocol);
                        break;
                    }
                }
                Outcome::LookEnded => self.look_ended_behind(id),
                Outcome::Overdue => {
                    if let Some(client) = self.traffic.servers.get(id).and_then(Server::client) {
                        self.fail_overdue(client);
                    }
                }
                Outcome::CopyForNobody => self.copy_for_nobody(id),
                Outcome::Notified(message) => self.notified(id, &message),
                Outcome::LeavesChannels(left) => self.traffic.left_channels(id, left.as_ref()),
                Outcome::AsksChannels => self.asks_channels(id),
                Outcome::OwnQueryFailed(failure) => self.own_query_failed(id, &failure),
                Outcome::EndedIdle => {
                    self.traffic.note_short_life(id);
                    self.traffic.close_server(id, "server sent an error while idle");
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

    /// Nothing is owed, and these bytes are a reply all the same. (An error may be a time limit's, or say that PostgreSQL stops.)
    #[cold]
    fn has_unasked_reply(&self, id: ServerId, rest: &[u8]) -> bool {
        self.traffic.servers.get(id).is_some_and(|server| server.owed.is_empty()) && begins_with_reply(rest)
    }

    /// Its client, which is held back for something that is owed, asks again if anything has come. This is the one place where
    /// it does: see `wait_for_replies`.
    #[inline]
    fn wake_held_back(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let wakes = server.owed.wakes();
        let ServerState::Linked(client) = server.state else { return };
        if wakes {
            self.traffic.wake_client(client);
        }
        debug_assert!(
            !self.traffic.servers.get(id).is_some_and(Server::is_stalled),
            "who is held back waits for what comes"
        );
    }

    /// The driver has much to send on a connection: whoever feeds it is not read.
    pub(super) fn client_congested(&mut self, id: ClientId, congested: bool) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        client.congested = congested;
        match (client.link.server(), congested) {
            (Some(server), true) => self.traffic.hold_server(server),
            (Some(server), false) => {
                self.traffic.release_hold(server);
                self.traffic.wake_client(id);
            }
            (None, true) => {}
            (None, false) => {
                self.traffic.wake_client(id);
                self.console_goes_on(id);
            }
        }
        if !congested {
            self.traffic.tell_kept(id);
        }
    }

    pub(super) fn server_congested(&mut self, id: ServerId, congested: bool) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        server.congested = congested;
        if let (Some(client), false) = (server.client(), congested) {
            self.traffic.wake_client(client);
        }
    }
}

/// Behind what may come at any time.
fn begins_with_reply(mut bytes: &[u8]) -> bool {
    let may_come = |tag: BackendTag| tag.is_asynchronous() || tag == BackendTag::ErrorResponse;
    while let Some(&tag) = bytes.first() {
        if !BackendTag::from_byte(tag).is_some_and(may_come) {
            return true;
        }
        let length = bytes.first_chunk().and_then(|head| Header::parse(head).body_len);
        bytes = length.and_then(|length| bytes.get(HEADER_LEN + length as usize..)).unwrap_or_default();
    }
    false
}
