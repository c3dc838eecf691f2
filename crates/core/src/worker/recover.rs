//! What becomes of a server whose client has gone, and of a client whose server has.
//!
//! A server is made clean in the cheapest way that is safe: what is owed is waited for a moment, then cancelled; an open
//! transaction is rolled back; a copy is failed. Whatever cannot be cleaned in time is closed.

use weir_wire::write;

use crate::failure::Failure;
use crate::id::ServerId;
use crate::inbox::Body;
use crate::kept::Kinds;
use crate::owed::{Copy, Owed, Request};
use crate::server::{Hold, Reset, ServerState};
use crate::settings::PoolMode;
use crate::statements::UNNAMED_UNKNOWN;
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Traffic;
use crate::worker::patience::PROOF_PATIENCE;
use crate::worker::release::LEAVES_FOR_GOOD;

/// A query that nobody waits for any more may take this long before it is cancelled: most end sooner, and a cancel
/// costs PostgreSQL a connection.
const PATIENCE: Duration = Duration::from_millis(50);

/// For the log.
pub(super) const LEFT_IN_COPY: &str = "its client left in a copy";
/// By DISCARD ALL neither.
const UNDONE_BY_NOTHING: Kinds = Kinds::LASTING.with(Kinds::SEED);

impl Traffic {
    /// The client is gone. `mid_message`: the server has got half a message, and would take anything as its rest.
    pub(super) fn recover(&mut self, id: ServerId, mid_message: bool) {
        self.release_hold(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        if matches!(server.state, ServerState::Closing) {
            return;
        }
        if mid_message {
            return self.drop_server(id, "its client left in the middle of a message");
        }
        if server.close_needed && server.told {
            return self.close_server(id, "the server ended the session");
        }
        self.uncount_pin(id);
        let Some(server) = self.servers.get_mut(id) else { return };
        let known = &self.pools[server.pool].knowledge;
        server.kept.meets(&known.code, known.version);
        let left = server.kept.left();
        if !server.owed.settled() {
            server.kept.goes_on_alone(known.version);
        }
        if left.has(UNDONE_BY_NOTHING) && !server.owed.has_unanswered() {
            return self.close_server(id, LEAVES_FOR_GOOD);
        }
        let session_mode = self.pools[server.pool].limits.mode == PoolMode::Session;
        let settings = &self.cx.settings;
        let due = session_mode || settings.server_reset_query_always;
        let configured = Reset::configured(due, &settings.server_reset_query);
        // PostgreSQL goes on behind a connection that is closed, and may change code whenever it likes: what is under way ends first.
        let reset_due = match left {
            left if left.has(UNDONE_BY_NOTHING) => Reset::Never,
            left if left.is_none() => configured,
            _ => Reset::All,
        };
        server.proofs_until = self.cx.now + PROOF_PATIENCE;
        server.enter(ServerState::Recovering { reset_due, rolled_back: false, cancelled: false });
        server.hold = Hold::Nothing;
        server.owed.disown();
        if let Body::Forward(left) = server.inbox.body {
            server.inbox.body = Body::Skip(left);
        }
        server.mirror.unnamed_is(UNNAMED_UNKNOWN);
        if !server.tracks {
            // Its client may have seen our names, and given them to something else.
            server.mirror.doubt_all();
        }
        if server.owed.is_in_doubt() {
            return self.close_server(id, "its client left in a copy, and what is still answered is not known");
        }
        let mut close = server.owed.unsynced() || server.owed.skipping();
        if server.owed.copy() != Copy::None {
            if self.end_copy(id).is_err() {
                return self.close_server(id, LEFT_IN_COPY);
            }
            close = false;
        }
        if close {
            self.abort_batch(id);
        }
        let Some(server) = self.servers.get_mut(id) else { return };
        let due = self.cx.now + PATIENCE;
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
        self.recovering_settled(id);
    }

    /// Ends a batch that its client did not: a Sync alone would commit what PostgreSQL takes back at the client's end.
    fn abort_batch(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if !server.owed.skipping() {
            server.send_what_fails(id, Owed::ours(Request::DescribeStatement), &mut self.cx);
        }
        server.sync_ours(id, &mut self.cx);
    }

    /// Fails a copy whose client has gone, and ends the batch it was in. An error where what is still answered is not known.
    pub(super) fn end_copy(&mut self, id: ServerId) -> Result<(), Failure> {
        let Some(server) = self.servers.get_mut(id) else { return Ok(()) };
        let simple = server.owed.front().is_some_and(|owed| owed.request == Request::Query);
        match server.owed.copy() {
            Copy::In { ahead: 0 } => self.cx.out.send(id, |out| write::copy_fail(out, b"the client has gone")),
            Copy::Ending { ahead: 0, .. } => {}
            _ => return Err(Failure::WrongMessage { expected: "data or the end of a COPY from stdin", got: 0 }),
        }
        server.owed.end_copy_in();
        // Behind a copy of a simple query a batch may have begun that its client did not end.
        if !simple || server.owed.unsynced() {
            self.abort_batch(id);
        }
        Ok(())
    }
}
