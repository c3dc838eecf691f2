//! What a server makes of a prepared statement, under which parameters, and what its client was told of that.

use std::sync::Arc;

use weir_wire::backend::{RowShape, StatementShape};
use weir_wire::{BackendTag, TransactionStatus};

use super::Answers;
use super::replies::Reply;
use crate::owed::{Request, UNKNOWN_PORTAL, UNNAMED};
use crate::statements::Shape;

impl Answers<'_> {
    /// A description of what a statement takes and returns: what the server's plan is, and what its client expects of the name
    /// from now on. False where it is none.
    #[inline(never)]
    pub(super) fn learn_shape(&mut self, reply: &Reply<'_>) -> bool {
        let server = &mut *self.server;
        let Some(owed) = server.owed.front() else { return true };
        if owed.statement == UNNAMED {
            return self.learn_unnamed_shape(reply);
        }
        if owed.statement == UNKNOWN_PORTAL {
            // In a failed transaction that is said of one whose Bind has failed.
            if reply.tag == BackendTag::RowDescription || server.status != TransactionStatus::Failed {
                let given = owed.name;
                self.describes_an_unknown_portal(given);
            }
            return true;
        }
        if owed.named_statement() == 0 {
            return !owed.ours || owed.name == 0 || self.own_name_described(reply);
        }
        let (asked, ours, statement, name) = (owed.request, owed.ours, owed.statement, owed.name);
        let Some(body) = reply.whole_body() else { return false };
        let rows = match reply.tag {
            BackendTag::ParameterDescription => {
                server.owed.takes(body);
                return true;
            }
            tag => match rows_of(tag, body) {
                Some(rows) => rows,
                None => return false,
            },
        };
        let shape = StatementShape::new(rows, server.owed.taken());
        if asked == Request::DescribeStatement && server.mirror.holds_since(statement, server.owed.front_place()) {
            let anew = server.mirror.shape(statement) == (Shape::Asked { anew: true });
            server.mirror.set_shape(statement, Shape::Is(shape));
            if anew && server.mirror.is_proved(statement) {
                self.is_made_anew(statement, shape);
            }
        }
        let session = self.client.as_mut().filter(|_| !ours).and_then(|(_, client)| client.session_mut());
        if let Some(session) = session {
            session.statements.described(name, shape, asked == Request::DescribePortal, &self.server.owed);
        }
        true
    }

    /// `given`: the last name that its client had given when it asked.
    #[cold]
    fn describes_an_unknown_portal(&mut self, given: u64) {
        if let Some(session) = self.client.as_mut().and_then(|(_, client)| client.session_mut()) {
            session.statements.described_one(given);
            session.unnamed.described_one();
        }
    }

    /// The same of the unnamed statement.
    fn learn_unnamed_shape(&mut self, reply: &Reply<'_>) -> bool {
        let Some(body) = reply.whole_body() else { return false };
        let server = &mut *self.server;
        let (ours, described) = server.owed.front().map_or((true, 0), |owed| (owed.ours, owed.name));
        let body = if reply.tag == BackendTag::NoData { b"" } else { body };
        if !ours {
            let session = self.client.as_mut().and_then(|(_, client)| client.session_mut());
            // A portal outlives the statement that it was bound to.
            let Some(session) = session.filter(|session| session.unnamed.id == described) else { return true };
            if reply.tag != BackendTag::ParameterDescription {
                let is_portal = server.owed.front().is_some_and(|owed| owed.request == Request::DescribePortal);
                // As of one with a name.
                if is_portal && session.unnamed.returns_others_than(|| rows_of(reply.tag, body)) {
                    session.unnamed.was_told_two();
                    return true;
                }
                return session.unnamed.returns(body);
            }
            session.unnamed.takes(body);
            return true;
        }
        let rows = match reply.tag {
            BackendTag::ParameterDescription => {
                server.owed.takes(body);
                return true;
            }
            tag => match rows_of(tag, body) {
                Some(rows) => rows,
                None => return false,
            },
        };
        server.mirror.unnamed_shape = Shape::Is(StatementShape::new(rows, server.owed.taken()));
        true
    }

    fn is_made_anew(&mut self, statement: u64, shape: StatementShape) {
        let known = self.server.mirror.get(statement).map(Arc::clone);
        let Some(known) = known.filter(|known| !known.is_as_before(shape)) else { return };
        self.cx.outdate(&known);
        self.server.mirror.is_made_anew(statement);
    }

    /// A ReadyForQuery tells the parameters that statements were prepared or used under while nobody knew them.
    #[cold]
    pub(super) fn parameters_told(&mut self, status: TransactionStatus) {
        let told = self.told_exactly();
        // What has been set in this batch may have been taken back since.
        let is_certain = self.server.exact.is_none() || !self.server.kept.has_set_unreported();
        let Self { cx, server, client, .. } = self;
        let Some(session) = client.as_mut().and_then(|(_, client)| client.session_mut()) else { return };
        session.unnamed.reported(told.as_ref().unwrap_or(&session.parameters), is_certain);
        if session.statements.has_private() {
            let shares = status == TransactionStatus::Idle || !server.kept.has_set_unreported();
            let newer = session.statements.told(&server.owed, shares.then_some(&mut cx.statements));
            newer.iter().for_each(|statement| cx.outdate(statement));
        }
    }
}

/// What a RowDescription or NoData says of rows; `None` where it cannot be read.
pub(super) fn rows_of(tag: BackendTag, body: &[u8]) -> Option<RowShape> {
    if tag == BackendTag::NoData { Some(RowShape::NO_ROWS) } else { RowShape::read(body).ok() }
}
