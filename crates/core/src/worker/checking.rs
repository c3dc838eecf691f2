//! Idle servers that may be gone without a word (a firewall forgets connections that are idle): `server_check_query`, before somebody gets them.

use weir_wire::write;

use crate::id::ServerId;
use crate::server::{Reset, ServerState};
use crate::timers::Subject;
use crate::worker::Worker;
use crate::worker::release::RECOVERY;

impl Worker {
    /// An idle server, just taken from its list, is asked whether it still answers: one for each client that waits. It is free again when it has.
    #[cold]
    pub(super) fn check_idle(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let pool = &mut self.pools[server.pool];
        // The one who is about to wait is not among them yet.
        if pool.checked.len() >= pool.waiting.len().max(1) {
            return pool.idle.push_back(id);
        }
        pool.checked.push(id);
        let query = self.cx.settings.server_check_query.as_deref().unwrap_or_default();
        server.enter(ServerState::Recovering { reset_due: Reset::Nothing, rolled_back: false, cancelled: false });
        self.cx.out.send(id, |out| write::query(out, query.as_bytes()));
        server.owe_own_query(0);
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, self.cx.now + RECOVERY);
    }

    /// All that it was asked is answered.
    #[cold]
    pub(super) fn check_over(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id) {
            server.checked = true;
            self.pools[server.pool].forgets(id);
        }
    }
}
