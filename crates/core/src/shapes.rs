//! What a server makes of a prepared statement, and what its client was told of that.

use std::sync::Arc;

use weir_wire::BackendTag;
use weir_wire::backend::{RowShape, StatementShape};

use crate::id::ConnId;
use crate::owed::Request;
use crate::replies::Reply;
use crate::server::ServerState;
use crate::statements::{Freshness, Shape};
use crate::worker::Worker;

impl Worker {
    /// A description of what a statement takes and returns: what the server's plan is, and what its client expects from now on.
    pub(crate) fn learn_shape(&mut self, id: ConnId, reply: &Reply<'_>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(owed) = server.owed.front().filter(|owed| owed.named_statement() != 0) else { return };
        let (asked, ours, statement) = (owed.request, owed.ours, owed.statement);
        let rows = match (reply.tag, reply.whole_body()) {
            (BackendTag::ParameterDescription, body) => return server.owed.takes(body),
            (BackendTag::NoData, _) => Some(RowShape::NO_ROWS),
            (_, Some(body)) => RowShape::read(body).ok(),
            // Too long to be read: nothing is known, and nothing is compared.
            (_, None) => None,
        };
        let shape = rows.map(|rows| StatementShape::new(rows, server.owed.taken()));
        let session = match server.state {
            ServerState::Linked(client) => self.clients.get_mut(client).and_then(|client| client.session_mut()),
            _ => None,
        };
        let Some(known) = server.mirror.get(statement).map(Arc::clone) else { return };
        let mut freshness = Freshness::Same;
        if let (Some(shape), Request::DescribeStatement) = (shape, asked) {
            if server.mirror.shape(statement) == (Shape::Asked { anew: true }) {
                freshness = known.is_made_anew(shape);
                if freshness == Freshness::Changed {
                    known.outdate();
                } else if freshness == Freshness::FirstSeen {
                    known.refresh();
                }
                server.mirror.is_made_anew(statement);
            }
            server.mirror.set_shape(statement, Shape::Is(shape));
        }
        match (shape, session) {
            (Some(shape), Some(session)) if !ours => session.statements.described(known.meant(), shape),
            (None, Some(session)) => session.statements.told_of_change(known.meant().id),
            _ => {}
        }
        if freshness != Freshness::Same {
            self.tell_outdated(&known, freshness == Freshness::FirstSeen);
        }
    }
}
