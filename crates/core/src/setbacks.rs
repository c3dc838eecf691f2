//! What an error of a server's means: whose it is, and what is not carried out because of it.
//!
//! Knows nothing of other replies: those are in `replies.rs`.

use weir_wire::backend::ErrorFields;
use weir_wire::write;

use crate::id::ConnId;
use crate::owed::{Note, Owed, Request};
use crate::replies::{Reply, Verdict};
use crate::server::ServerState;
use crate::statements::UNNAMED_UNKNOWN;
use crate::worker::Worker;

impl Worker {
    /// An error: the client's, unless it answers a message of ours.
    pub(crate) fn error_reply(&mut self, id: ConnId, reply: &Reply<'_>, client: Option<ConnId>) -> Verdict {
        let fields = match reply.whole_body().map(ErrorFields::parse) {
            Some(Ok(fields)) => fields,
            Some(Err(_)) => return Verdict::Broken,
            None => ErrorFields::default(),
        };
        let Some(server) = self.servers.get_mut(id) else { return Verdict::Broken };
        let Some(front) = server.owed.front() else {
            if server.owed.unsynced() && !fields.ends_session() {
                // A time limit of PostgreSQL's ran out between two messages (`ProcessInterrupts`): it skips to the Sync.
                server.owed.fail();
                return Verdict::Used(self.pass(id, reply, client));
            }
            return self.unasked_error(id, reply, client);
        };
        // What we put before the client's message failed: that is the client's message's failure.
        let client = match server.state {
            ServerState::Linked(client) if front.request != Request::OwnQuery => Some(client),
            _ => client,
        };
        self.learn_from_error(id, &fields);
        let Some(server) = self.servers.get_mut(id) else { return Verdict::Broken };
        let Some(front) = server.owed.front() else { return Verdict::Broken };
        if front.request == Request::OwnQuery {
            let used = self.pass(id, reply, None);
            self.own_query_failed(id, reply.whole_body());
            return Verdict::Used(used);
        }
        let used = match front.note.as_deref() {
            Some(Note::Fails(report)) if !fields.ends_session() => {
                if let Some(client) = client {
                    self.out.send(client, |out| write::report(out, report));
                }
                self.pass(id, reply, None)
            }
            _ => self.pass(id, reply, client),
        };
        let Some(server) = self.servers.get_mut(id) else { return Verdict::Broken };
        if server.owed.front_awaits_ready() {
            server.owed.end_copy_in();
        } else {
            let dropped = server.owed.fail();
            self.undo(id, dropped);
            self.answer_made(id);
            self.wake_linked(id);
        }
        if fields.ends_session()
            && let Some(server) = self.servers.get_mut(id)
        {
            // PostgreSQL closes now; the client has its one error.
            server.close_needed = true;
            server.told = client.is_some();
        }
        Verdict::Used(used)
    }

    /// Takes back what messages would have changed that were never carried out.
    fn undo(&mut self, id: ConnId, dropped: Vec<Owed>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        server.mirror.unnamed = UNNAMED_UNKNOWN;
        let mut session = match server.state {
            ServerState::Linked(client) => self.clients.get_mut(client).and_then(|client| client.session_mut()),
            _ => None,
        };
        for owed in dropped.into_iter().rev() {
            if owed.request == Request::Parse && owed.statement != 0 {
                server.mirror.remove(owed.statement);
            }
            if owed.request == Request::DescribeStatement && owed.ours {
                server.mirror.ask_shape_again(owed.statement);
            }
            if owed.request == Request::Parse
                && owed.statement == 0
                && !owed.ours
                && let Some(session) = &mut session
            {
                session.unnamed.id = 0;
            }
            match owed.note.map(|note| *note) {
                Some(Note::Evicted(evicted)) => server.mirror.put_back(&evicted),
                Some(Note::Named { name, statement }) => {
                    if let Some(session) = &mut session
                        && session.statements.get(&name).is_some_and(|held| held.id == statement.id)
                    {
                        session.statements.remove(&name);
                    }
                }
                Some(Note::Closed { name, statement: Some(statement) }) => {
                    if let Some(session) = &mut session {
                        session.statements.insert(&name, statement);
                    }
                }
                _ => {}
            }
        }
    }

    /// Some errors say that the mirror of the server's statements is wrong.
    fn learn_from_error(&mut self, id: ConnId, fields: &ErrorFields<'_>) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let Some(owed) = server.owed.front() else { return };
        if owed.statement == 0 {
            return;
        }
        let statement = owed.statement;
        // "cached plan must not change result type" (RevalidateCachedQuery, src/backend/utils/cache/plancache.c):
        // every server has to prepare it anew.
        if fields.code == b"0A000" && fields.routine == b"RevalidateCachedQuery" {
            if let Some(statement) = server.mirror.get(statement).map(std::sync::Arc::clone) {
                statement.outdate();
                if let ServerState::Linked(client) = server.state
                    && let Some(session) = self.clients.get_mut(client).and_then(|client| client.session_mut())
                {
                    session.statements.told_of_change(statement.id);
                }
                self.tell_outdated(&statement);
            }
        } else if fields.code == b"26000" {
            // Somebody deallocated it.
            server.mirror.remove(statement);
        } else if fields.code == b"42P05" && owed.request == Request::Parse {
            // It knows the statement, and we did not know that it does: nobody else may stumble over that.
            server.close_needed = true;
        }
    }

    fn unasked_error(&mut self, id: ConnId, reply: &Reply<'_>, client: Option<ConnId>) -> Verdict {
        let used = self.pass(id, reply, client);
        if let Some(server) = self.servers.get_mut(id) {
            // Only a session's end comes unasked; it is closed next, and may not be given to anybody.
            server.close_needed = true;
            server.told = client.is_some();
            if matches!(server.state, ServerState::Idle) {
                self.close_server(id, "server sent an error while idle");
            }
        }
        Verdict::Used(used)
    }
}
