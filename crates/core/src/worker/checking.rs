//! Idle servers that may be gone without a word (a firewall forgets connections that are idle): `server_check_query`, before somebody gets them.
//!
//! One is asked for each client that waits. Where the answer does not come, or is an error, the next one is asked.

use weir_wire::write;

use crate::id::ServerId;
use crate::server::{Reset, ServerState};
use crate::time::Duration;
use crate::timers::Subject;
use crate::worker::Traffic;
use crate::worker::patience::RECOVERY;

/// Whoever waits for an answer that takes longer waits for another server's, too.
const PROMPT: Duration = Duration::from_secs(1);

impl Traffic {
    /// An idle server, just taken from its list, is asked whether it still answers. It is free again when it has.
    #[cold]
    pub(super) fn check_idle(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let pool = &mut self.pools[server.pool];
        // The one who is about to wait is not among them yet.
        if pool.checks.prompt() >= pool.waiting.len().max(1) {
            return pool.idle.push_back(id);
        }
        pool.checks.begins(id);
        let query = self.cx.settings.server_check_query.as_deref().unwrap_or_default();
        server.enter(ServerState::Recovering { reset_due: Reset::Nothing, rolled_back: false, cancelled: false });
        self.cx.out.send(id, |out| write::query(out, query.as_bytes()));
        server.owe_own_query(0);
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, self.cx.now + PROMPT);
    }

    /// All that it was asked is answered.
    #[cold]
    pub(super) fn check_over(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get_mut(id) {
            server.checked = true;
            let index = server.pool;
            self.pools[index].checks.ends(id);
            // Who waits for a connection of their own were held up by what is none.
            self.ask_behind(index);
        }
    }

    /// There is no answer yet, or none at all.
    #[cold]
    pub(super) fn check_due(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let index = server.pool;
        if !self.pools[index].checks.is_late(id) {
            return self.close_server(id, "server_check_query was not answered in time");
        }
        let left = Duration(RECOVERY.0 - PROMPT.0);
        self.cx.timers.set(Subject::Server(id), &mut server.deadline, self.cx.now + left);
        self.schedule(index);
        self.ask_behind(index);
    }
}
