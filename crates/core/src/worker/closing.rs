//! The end of a server's connection, by our own doing.

use std::sync::Arc;

use weir_wire::write;

use crate::id::NO_POOL;
use crate::id::ServerId;
use crate::mail::Letter;
use crate::pool::endpoints::{Fails, RETRY_FIRST};
use crate::server::ServerState;
use crate::worker::Traffic;

impl Traffic {
    /// Closes a server's connection, with a goodbye; whoever is linked to it is told by the caller.
    pub(super) fn close_server(&mut self, id: ServerId, reason: &str) {
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
    pub(super) fn drop_server(&mut self, id: ServerId, reason: &str) {
        self.log_closing(id, reason);
        let Some(server) = self.servers.get_mut(id) else { return };
        let state = server.enter(ServerState::Closing);
        let index = server.pool;
        match state {
            ServerState::Closing => return,
            ServerState::Idle => self.pools[index].forget_idle(id),
            ServerState::Listener => self.listener_lost(index),
            ServerState::Making(making) if index != NO_POOL => {
                self.pools[index].login_over(&making.purpose, server.alone)
            }
            _ => {}
        }
        self.cx.out.close(id);
        self.survey_loses(id);
        if index != NO_POOL {
            if self.pools[index].forgets(id) {
                self.schedule(index);
            }
            self.note_closing(id);
        }
    }

    /// Says why a server's connection ends, if that is not over yet.
    #[cold]
    pub(super) fn log_closing(&mut self, id: ServerId, reason: &str) {
        let server = self.servers.get(id).filter(|server| !matches!(server.state, ServerState::Closing));
        if let (true, Some(server)) = (self.cx.settings.log.disconnections, server) {
            let age = self.cx.now.since(server.made_at).as_secs();
            let text = format!("{} closing because: {reason} (age={age}s)", self.server_label(id));
            self.cx.log_info(text);
        }
    }

    /// Idle servers in the order in which a pool gives them up: those that were made first have seen most, and what their backends keep of
    /// relations and plans only grows.
    pub(super) fn oldest_idle(&self, index: u32) -> Vec<ServerId> {
        let mut idle: Vec<_> = self.pools[index].idle.iter().copied().collect();
        idle.sort_by_key(|&id| self.servers.get(id).map(|server| server.made_at));
        idle
    }

    /// A pool's listener is gone, or is to go: whoever it has listened for is told at the end of this input.
    pub(super) fn listener_lost(&mut self, index: u32) {
        if let Some(listener) = self.pools[index].listener.take() {
            let clients = listener.clients().collect();
            self.cx.post(self.cx.config.id, Letter::ListenerLost { clients });
        }
    }

    /// Its end is certain: it is not one of those that stay.
    pub(super) fn note_closing(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id)
            && server.pool != NO_POOL
            && !std::mem::replace(&mut server.closing, true)
        {
            self.pools[server.pool].closing += 1;
        }
    }

    /// A server ends by its own doing. Where it has just been made and was of use to nobody, that counts as a failed login: else one
    /// would be made after the other, without a pause, for whoever waits.
    #[cold]
    pub(super) fn note_short_life(&mut self, id: ServerId) {
        let Some(server) = self.servers.get(id) else { return };
        if matches!(server.state, ServerState::Idle)
            && !server.used
            && self.cx.now < server.idle_at + RETRY_FIRST
            && let Some(endpoint) = server.endpoint.clone()
        {
            let pool = Arc::clone(&self.pools[server.pool].name);
            self.cx.tell_steward(Letter::LoginFailed { pool, endpoint, fails: Fails::EndedAtOnce });
        }
    }
}
