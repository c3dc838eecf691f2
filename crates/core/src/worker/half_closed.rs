//! A client that sends no more and may still read: what it sent is carried out and answered, then its session ends.
//!
//! So it is with PostgreSQL, which learns of a client's end only when it has read all before it (`SocketBackend`,
//! src/backend/tcop/postgres.c at REL_18_0). A client that closes its connection looks the same, until something is sent to it: then
//! the connection is gone, and what it had running is cancelled (`recover.rs`).

use crate::client::{Client, ClientState, Link};
use crate::id::{ClientId, ServerId};
use crate::inbox::Body;
use crate::worker::Service;
use crate::worker::recover::LEFT_IN_COPY;

impl Service {
    /// All that the client sent has been handed in, and there will be no more.
    pub(super) fn client_ended(&mut self, id: ClientId) {
        let Some(client) = self.traffic.clients.get_mut(id) else { return };
        client.ended = true;
        match &client.state {
            // Of most who close their connection nothing else is heard: whether that is half or all cannot be told.
            ClientState::CancelRequest(asked) => {
                let peer = asked.peer;
                self.asker_leaves(id, peer);
            }
            _ => _ = self.look_ended(id),
        }
    }

    /// Ends a client that sends no more, once nothing of what it sent is left to do. True where it has ended.
    pub(super) fn look_ended(&mut self, id: ClientId) -> bool {
        let Some(client) = self.traffic.clients.get(id).filter(|client| client.ended) else { return false };
        if !self.has_work(client) {
            self.end_client(id, "client unexpected eof");
            return true;
        }
        if matches!(client.state, ClientState::Console(_)) {
            // It is woken when its command is done, and looked at again, also where it was woken before to be told the rest.
            self.traffic.hold_client(id);
            return false;
        }
        let (link, waits) = (client.link, client.has_message_waiting());
        if let (Link::Linked(server), false) = (link, waits) {
            self.ask_for_rest(id, server);
        }
        false
    }

    /// A copy of the client's whose end never comes is failed. For what no Sync follows PostgreSQL is asked.
    fn ask_for_rest(&mut self, id: ClientId, server_id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        if server.is_in_message() {
            // It is looked at again behind that.
        } else if server.owed.is_in_copy() {
            if let Err(failure) = self.traffic.end_copy(server_id) {
                self.fail_client(id, &failure);
            }
        } else if server.owed.is_end_unasked() || !server.owed.awaits_ready() {
            server.await_replies(server_id, &mut self.traffic.cx);
            // It is woken by the answer, and looked at again.
            self.traffic.hold_client(id);
        }
    }

    /// A reply is complete, and what is owed behind it may be what no Sync ends, or half a message.
    pub(super) fn look_ended_behind(&mut self, server: ServerId) {
        if let Some(client) = self.traffic.client_of(server) {
            self.look_ended(client);
        }
    }

    /// PostgreSQL asks for the data of a copy whose client has gone, or sends no more.
    pub(super) fn copy_for_nobody(&mut self, id: ServerId) {
        let Err(failure) = self.traffic.end_copy(id) else { return };
        match self.traffic.client_of(id) {
            Some(client) => self.fail_client(client, &failure),
            None => self.traffic.close_server(id, LEFT_IN_COPY),
        }
    }

    fn has_work(&self, client: &Client) -> bool {
        match &client.state {
            ClientState::Login(_) => false,
            ClientState::Console(console) => console.is_busy(),
            // Ends by itself, or has.
            ClientState::Reserved | ClientState::CancelRequest(_) | ClientState::Closing | ClientState::Departed => {
                true
            }
            ClientState::Ready(_) => self.has_unfinished_request(client),
        }
    }

    fn has_unfinished_request(&self, client: &Client) -> bool {
        if client.has_message_waiting() {
            return true;
        }
        match client.link {
            Link::Waiting { .. } => true,
            Link::None | Link::WaitingTunnel { .. } | Link::Tunnel(_) => false,
            Link::Linked(server) => {
                // Half a message is never carried out; what no Sync follows is, and may be a COMMIT.
                self.traffic.servers.get(server).is_some_and(|server| match client.inbox.body {
                    _ if server.is_in_message() => true,
                    Body::Forward(_) => server.owed.awaits_ready_before_half(),
                    _ => !server.owed.is_empty(),
                })
            }
        }
    }
}
