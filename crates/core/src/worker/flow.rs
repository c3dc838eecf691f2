//! Whom is read from: back-pressure between a client and the server that it is linked to.

use crate::context::Context;
use crate::id::{ClientId, ServerId};
use crate::server::{Server, ServerState};
use crate::worker::Traffic;

impl Traffic {
    /// Stops reading from a client.
    pub(super) fn hold_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && !client.is_over()
        {
            client.woken = false;
            if !std::mem::replace(&mut client.held, true) {
                self.cx.out.read(id, false);
            }
        }
    }

    /// The client is read from again when the input in hand is dealt with (`read_on`), so that whoever wakes it is done by then.
    pub(super) fn wake_client(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id)
            && client.held
            && !std::mem::replace(&mut client.woken, true)
        {
            self.woken.push_back(id);
        }
    }

    /// It is read again at RESUME.
    pub(super) fn suspend_client(&mut self, id: ClientId) {
        self.hold_client(id);
        self.suspended.insert(id);
    }

    /// Nobody is suspended any more. What they have sent meanwhile is in time.
    pub(super) fn read_on_suspended(&mut self) {
        let now = self.cx.now;
        for id in std::mem::take(&mut self.suspended) {
            if let Some(session) = self.clients.get_mut(id).and_then(|client| client.session_mut()) {
                session.idle_at = now;
            }
            self.wake_client(id);
        }
    }

    /// Who has just come into its session, where nothing is read of any.
    pub(super) fn suspend_newcomer(&mut self, id: ClientId) {
        if self.gates.is_suspended() {
            self.suspend_client(id);
        }
    }

    pub(super) fn hold_server(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id) {
            hold_server(id, server, &mut self.cx);
        }
    }

    pub(super) fn release_hold(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id) {
            release_hold(id, server, &mut self.cx);
        }
    }
}

/// Stops reading from a server, whose client does not take what it sends.
pub(super) fn hold_server(id: ServerId, server: &mut Server, cx: &mut Context) {
    if !server.held && !matches!(server.state, ServerState::Closing) {
        server.held = true;
        cx.out.read(id, false);
    }
}

pub(super) fn release_hold(id: ServerId, server: &mut Server, cx: &mut Context) {
    if server.held && !matches!(server.state, ServerState::Closing) {
        server.held = false;
        cx.out.read(id, true);
    }
}
