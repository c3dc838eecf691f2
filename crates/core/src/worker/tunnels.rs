//! Replication, and a database that is a pooler's console: a connection of its own for a client, never shared.

use crate::client::{ClientState, Link};
use crate::id::ClientId;
use crate::making::Purpose;
use crate::pool::told::Asked;
use crate::server::ServerState;
use crate::time::Time;
use crate::worker::Traffic;

impl Traffic {
    /// The client needs a server connection that is nobody else's.
    pub(super) fn want_tunnel(&mut self, id: ClientId) {
        let since = self.cx.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        client.bind(Link::WaitingTunnel { since });
        client.knows_it_waits = false;
        let index = client.pool;
        client.place = self.pools[index].tunnels.join(id, since);
        self.arm_client(id);
        // What the steward said last was to those who share servers.
        self.asked_is_stale(index);
        self.ask(index);
    }

    /// An idle server gives its place to a client that needs a connection of its own and has waited longest.
    pub(super) fn makes_room(&mut self, index: u32) -> bool {
        let pool = &self.pools[index];
        let Some(first) = pool.tunnels.first() else { return false };
        let is_next = pool.first_waiting_since().is_none_or(|since| first.since <= since);
        let on_their_way = (pool.connecting + pool.closing) as usize;
        let needed = matches!(pool.asked, Asked::Full { .. }) && pool.tunnels.len() > on_their_way;
        if !(is_next && needed) {
            return false;
        }
        let Some(idle) = self.oldest_idle(index).first().copied() else { return false };
        self.close_server(idle, "evicted");
        true
    }

    /// Takes out the client that a server is made for now, if it is for no shared one: who has waited longer comes first, unless a server is
    /// on its way to each of those.
    pub(super) fn pop_tunnel(&mut self, index: u32) -> Option<ClientId> {
        let pool = &self.pools[index];
        let first = pool.tunnels.first()?;
        let next = pool.waiting.iter().nth(pool.made_for_all());
        if next.is_some_and(|next| next.since < first.since) {
            return None;
        }
        self.pools[index].tunnels.pop().map(|waiting| waiting.client)
    }

    pub(super) fn tunnel_purpose(&mut self, client: ClientId) -> Purpose {
        let parameters = match self.clients.get(client).map(|client| &client.state) {
            Some(ClientState::Login(login)) => login.tunnel_parameters(),
            _ => Vec::new(),
        };
        Purpose::Tunnel { client, parameters }
    }

    pub(super) fn tunnel_abandoned(&mut self, index: u32, id: ClientId, since: Time, place: u64) {
        let tunnels = &mut self.pools[index].tunnels;
        let before = tunnels.len();
        tunnels.leave(id, since, place);
        if tunnels.len() < before {
            return;
        }
        let making = self.servers.iter().find_map(|(server, place)| match &place.state {
            ServerState::Making(making) => match making.purpose {
                Purpose::Tunnel { client, .. } if client == id => Some(server),
                _ => None,
            },
            _ => None,
        });
        if let Some(server) = making {
            self.close_server(server, "its client has gone");
        }
    }
}
