//! A cluster's client goes to the pool of the node that its transaction is for, and begins it there.

use std::sync::Arc;

use weir_wire::write;

use crate::client::Discard;
use crate::exchange::Around;
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::worker::Service;

impl Service {
    /// A server at that node, or a place in its queue.
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_at(&mut self, id: ClientId, node: Option<i32>) -> Result<Option<ServerId>, Box<Failure>> {
        self.traffic.begin_survey();
        let name = self.traffic.clients.get(id).map(|client| &self.traffic.pools[client.pool].name);
        let elsewhere = name.filter(|name| name.node != node).map(|name| Arc::new(name.at(node)));
        if let Some(index) = elsewhere.and_then(|name| self.traffic.pool_for(&name)) {
            self.traffic.joins(id, index);
        }
        self.acquire(id)
    }

    /// What begins the client's transaction goes ahead of its first statement, in the same write.
    #[cold]
    pub(super) fn begins(&mut self, id: ClientId) {
        let Around { cx, clients, servers, .. } = self.traffic.around();
        let Some(client) = clients.get_mut(id) else { return };
        let link = client.link.server();
        let Some(session) = client.session_mut() else { return };
        session.discard = Discard::Nothing;
        let begun = session.begun.take();
        if let (Some(begun), Some(server_id)) = (begun, link)
            && let Some(server) = servers.get_mut(server_id)
        {
            cx.out.send(server_id, |out| write::query(out, &begun));
            server.owe_own_query(0);
        }
    }
}
