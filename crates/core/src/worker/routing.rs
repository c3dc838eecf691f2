//! A cluster's client goes to the pool of the node that its transaction is for, and begins it there.

use std::sync::Arc;

use weir_wire::write;

use crate::client::Discard;
use crate::exchange::{Around, Exit, Unrouted};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId};
use crate::inbox::Cursor;
use crate::names::Destination;
use crate::owed::BEGUN;
use crate::worker::Service;
use crate::worker::route::TERMINATE;

impl Service {
    /// Deals with the next message of a client that has no server, before it gets one. Whether what comes behind it is to be looked at.
    pub(super) fn looks_at_next(&mut self, id: ClientId, cursor: &mut Cursor<'_>) -> bool {
        let Some(mut unrouted) = Unrouted::of(id, self.traffic.around()) else { return false };
        let exit = unrouted.next_message(cursor);
        let destination = unrouted.destination;
        let acquired = match exit {
            Exit::Discarded => {
                self.traffic.arm_client(id);
                return true;
            }
            Exit::Begins => {
                self.begins(id);
                return true;
            }
            Exit::Drained => return false,
            Exit::Ended => {
                self.end_client(id, TERMINATE);
                return false;
            }
            Exit::Held => {
                if let Some(client) = self.traffic.clients.get_mut(id) {
                    client.waits_with(cursor.rest());
                }
                self.traffic.hold_client(id);
                return false;
            }
            Exit::NeedsServer => self.acquire(id),
            Exit::Goes => self.acquire_at(id, destination),
            Exit::Failed(failure) => Err(failure),
            _ => return false,
        };
        match acquired {
            Ok(Some(_)) => return true,
            Ok(None) => self.traffic.hold_client(id),
            Err(failure) => self.fail_client(id, &failure),
        }
        false
    }

    /// A server at that destination, or a place in its queue.
    fn acquire_at(&mut self, id: ClientId, destination: Destination) -> Result<Option<ServerId>, Box<Failure>> {
        self.traffic.begin_survey();
        let name = self.traffic.clients.get(id).map(|client| &self.traffic.pools[client.pool].name);
        let elsewhere = name.filter(|name| name.destination != destination).map(|name| Arc::new(name.at(destination)));
        if let Some(index) = elsewhere.and_then(|name| self.traffic.pool_for(&name)) {
            self.traffic.joins(id, index);
        }
        self.acquire(id)
    }

    /// What begins the client's transaction goes ahead of its first statement, in the same write.
    fn begins(&mut self, id: ClientId) {
        let Around { cx, clients, servers, .. } = self.traffic.around();
        let Some(client) = clients.get_mut(id) else { return };
        let link = client.link.server();
        let Some(session) = client.session_mut() else { return };
        session.discard = Discard::Nothing;
        let begun = session.begun.take();
        if let (Some(begun), Some(server_id)) = (begun, link)
            && let Some(server) = servers.get_mut(server_id)
        {
            #[cfg(feature = "planted")]
            let begun = match cx.planted {
                Some(crate::planted::Planted::LoseBegin) => return,
                Some(crate::planted::Planted::ForgetModes) => Box::new(b"BEGIN".to_vec()),
                _ => begun,
            };
            cx.out.send(server_id, |out| write::query(out, &begun));
            server.owe_own_query(BEGUN);
        }
    }
}
