//! Servers that stay with their clients for what those have left in their sessions: how many there may be, and for how long.

use std::sync::Arc;

use crate::client::after;
use crate::context::Context;
use crate::id::ServerId;
use crate::kept::Kinds;
use crate::mail::Letter;
use crate::pool::Pools;
use crate::server::Server;
use crate::time::Time;
use crate::timers::Subject;
use crate::worker::Traffic;

/// What its client listens to may be told by another server.
pub(super) fn may_be_handed_over(server: &Server, pools: &Pools, cx: &Context) -> bool {
    let is_kept = server.close_needed || server.keeps_client || server.is_anothers() || server.kept.names_are_own();
    !is_kept && pools.have_room_for_listeners(server.pool, cx.config.workers)
}

/// It stays with its client, also where that rests. What its client only listens to is told by another as soon as it does.
fn is_pinned(server: &Server, pools: &Pools, cx: &Context) -> bool {
    server.kept.pins() && !(server.kept.only_listens() && may_be_handed_over(server, pools, cx))
}

fn pinned_since(server: &Server, pools: &Pools, cx: &Context) -> Option<Time> {
    server.kept.held_since().filter(|_| is_pinned(server, pools, cx))
}

/// Until when its client may keep it.
pub(super) fn pin_due(server: &Server, pools: &Pools, cx: &Context) -> Time {
    pinned_since(server, pools, cx).map_or(Time::NEVER, |since| after(cx.settings.pin_timeout, since))
}

impl Traffic {
    /// Counts it among those that stay with their clients where it is one, and no more where it is none.
    pub(super) fn count_pin(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let (holds, newly) = (is_pinned(server, &self.pools, &self.cx), server.kept.newly_held());
        let pool = &mut self.pools[server.pool];
        for (count, kind) in pool.counters.pins.iter_mut().zip(Kinds::COUNTED) {
            *count += u64::from(newly.has(kind));
        }
        if server.kept.counted == holds {
            return;
        }
        server.kept.counted = holds;
        pool.pinned = if holds { pool.pinned + 1 } else { pool.pinned - 1 };
        let index = server.pool;
        self.arm_pin_warning(id);
        self.tell_pinned(index, false);
    }

    /// Its end, or its client's, is here.
    pub(super) fn uncount_pin(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if std::mem::take(&mut server.kept.counted) {
            let index = server.pool;
            self.pools[index].pinned -= 1;
            self.tell_pinned(index, false);
        }
    }

    /// The steward counts those of all workers, where there is a limit.
    pub(super) fn tell_pinned(&mut self, index: u32, standing: bool) {
        let pool = &mut self.pools[index];
        if self.cx.settings.max_pinned_per_pool > 0 && pool.pinned != pool.told_pinned {
            pool.told_pinned = pool.pinned;
            self.cx.tell_steward(Letter::Pinned { pool: Arc::clone(&pool.name), pinned: pool.pinned, standing });
        }
    }

    pub(super) fn arm_pin_warning(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        if let Some(since) = pinned_since(server, &self.pools, &self.cx).filter(|_| !server.kept.warned) {
            let due = after(self.cx.settings.pin_warn_after, since);
            self.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
        }
    }

    /// It has been with its client for long.
    pub(super) fn warn_of_pin(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(id) else { return };
        let since = pinned_since(server, &self.pools, &self.cx).filter(|_| !server.kept.warned);
        let Some(since) = since else { return };
        if after(self.cx.settings.pin_warn_after, since) > self.cx.now {
            return self.arm_pin_warning(id);
        }
        server.kept.warned = true;
        let (held, text) = (server.kept.held().words(), String::from_utf8_lossy(&server.kept.text).into_owned());
        let seconds = self.cx.now.since(since).as_secs_f64();
        let client = server.client().and_then(|client| self.clients.get(client));
        let label = client.map_or(String::new(), |client| client.label());
        self.cx.log_warning(format!("{label} keeps its server for {seconds:.0} s: {held} (since: {text})"));
    }
}
