//! Whom is read from: back-pressure between a client and the server that it is linked to.

use crate::id::{ClientId, ServerId};
use crate::server::ServerState;
use crate::worker::Worker;

impl Worker {
    /// Stops reading from a client.
    pub(crate) fn hold_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && !client.held
            && !client.is_over()
        {
            client.held = true;
            self.cx.out.read(id, false);
        }
    }

    /// Reads from a client again; what was gathered of a message that had to wait is taken up at once.
    pub(crate) fn wake_client(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(id) else { return };
        if !client.held {
            return;
        }
        client.held = false;
        let partial = client.inbox.has_partial();
        if partial {
            self.client_bytes(id, &[]);
        }
        self.look_ended(id);
        if self.clients.get(id).is_some_and(|client| !client.held && !client.is_over()) {
            self.cx.out.read(id, true);
        }
    }

    pub(crate) fn hold_server(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id)
            && !server.held
            && !matches!(server.state, ServerState::Closing)
        {
            server.held = true;
            self.cx.out.read(id, false);
        }
    }

    pub(crate) fn release_hold(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id)
            && server.held
            && !matches!(server.state, ServerState::Closing)
        {
            server.held = false;
            self.cx.out.read(id, true);
        }
    }
}
