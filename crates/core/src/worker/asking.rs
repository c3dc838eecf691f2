//! Who waits for a server, and when the steward is asked for one more.

use std::sync::Arc;

use crate::client::{ClientState, Link};
use crate::failure::Failure;
use crate::id::ClientId;
use crate::id::NO_POOL;
use crate::inbox::Body;
use crate::mail::Letter;
use crate::pool::CONNECTING_MAX;
use crate::pool::gates::Gate;
use crate::pool::told::Asked;
use crate::server::ServerState;
use crate::settings::PoolMode;
use crate::steward::HAND_OVER_SLACK;
use crate::time::{Duration, Time};
use crate::timers::Subject;
use crate::worker::Traffic;

/// A want of a worker that has no server is renewed at least this often; a recall that is much older has been answered otherwise.
pub(super) const RENEW_MAX: Duration = Duration::from_millis(100);
/// A worker with servers of its own, where others have some too, asks for more of them at least this often.
const RENEW_SHARED: Duration = Duration::from_millis(250);
/// Servers of our own are all there are: whoever waits gets one of them, and asking again is a matter of caution.
const RENEW_ALONE: Duration = Duration::from_secs(5);
/// After so long without a want, the next pause is a short one again.
const PAUSE_FORGOTTEN: Duration = Duration::from_secs(1);

impl Traffic {
    /// Asks the steward for one more server, if somebody waits for one that is not on its way.
    pub(super) fn ask(&mut self, index: u32) {
        let now = self.cx.now;
        let pool = &mut self.pools[index];
        let wanted = pool.misses_one() && pool.connecting < CONNECTING_MAX;
        if !wanted || pool.asked != Asked::Nothing || pool.gate != Gate::Open {
            return self.arm_pool(index);
        }
        // Who waits only until others have left is asked for then.
        let leaves_soon = self.departures.holds_back() && !pool.homes.is_empty() && pool.tunnels.is_empty();
        if pool.retry_at > now || pool.ask_at > now || leaves_soon {
            return self.arm_pool(index);
        }
        let Some(since) = pool.oldest_want() else { return };
        (pool.asked, pool.wants) = (Asked::Want, true);
        let pool = Arc::clone(&pool.name);
        let shared = self.pools[index].limits.mode != PoolMode::Session;
        let bound = !(shared && self.pools[index].waiting.iter().any(|waiting| self.may_leave(waiting.client)));
        self.cx.tell_steward(Letter::Want { pool, since, bound });
    }

    /// A client has gone, which may have been the last that waited: the steward would remember each pool that anybody has named as long as the limit
    /// is reached that its want stands at.
    pub(super) fn wants_no_more(&mut self, index: u32) {
        if index == NO_POOL {
            return;
        }
        let pool = &mut self.pools[index];
        if pool.wants && pool.waiting.is_empty() && pool.tunnels.is_empty() {
            (pool.asked, pool.wants) = (Asked::Nothing, false);
            let pool = Arc::clone(&pool.name);
            self.cx.tell_steward(Letter::WantsNoMore { pool });
        }
    }

    /// The steward has no server for us: the next want leaves after a pause, and each pause is longer than the one before.
    pub(super) fn pause_asking(&mut self, index: u32, alone: bool) {
        let now = self.cx.now;
        let pool = &mut self.pools[index];
        if alone {
            (pool.pause, pool.ask_at) = (Duration::ZERO, now + RENEW_ALONE);
            return;
        }
        let most = if pool.servers == 0 { RENEW_MAX } else { RENEW_SHARED };
        let forgotten = now.since(pool.ask_at) > PAUSE_FORGOTTEN;
        let pause = if forgotten { HAND_OVER_SLACK.0 } else { pool.pause.0.saturating_mul(2) };
        pool.pause = Duration(pause.clamp(HAND_OVER_SLACK.0, most.0));
        pool.ask_at = now + pool.pause;
    }

    /// A server of ours is gone, or another worker's: what the steward said last no longer holds.
    pub(super) fn asked_is_stale(&mut self, index: u32) {
        let pool = &mut self.pools[index];
        if pool.asked != Asked::Want {
            pool.asked = Asked::Nothing;
            pool.ask_at = self.cx.now;
        }
    }

    /// Keeps the pool at its smallest size.
    pub(super) fn fill(&mut self, index: u32) {
        let pool = &self.pools[index];
        let smallest = pool.limits.least;
        let wanted = pool.clients > 0 && pool.homes.is_empty() || pool.database.forced_user.is_some();
        if smallest > pool.servers
            && wanted
            && !self.shutdown.hands_over()
            && pool.gate == Gate::Open
            && pool.retry_at <= self.cx.now
        {
            let pool = Arc::clone(&pool.name);
            self.cx.tell_steward(Letter::Fill { pool });
        }
    }

    /// The pool's next look at itself: a retry after a failed login, or a want to be renewed.
    pub(super) fn arm_pool(&mut self, index: u32) {
        let now = self.cx.now;
        let pool = &mut self.pools[index];
        let limits = pool.limits;
        let mut due = Time::NEVER;
        if pool.retry_at > now && (pool.oldest_want().is_some() || pool.servers < limits.least) {
            due = pool.retry_at;
        }
        if pool.asked == Asked::Nothing && pool.ask_at > now && pool.oldest_want().is_some() {
            due = due.min(pool.ask_at);
        }
        if let (Asked::Full { alone }, Some(since)) = (pool.asked, pool.oldest_want()) {
            // Where there are servers here, one is soon free: most waits are over before asking would help.
            let early = if alone || pool.servers == 0 { now } else { since + HAND_OVER_SLACK };
            due = due.min(pool.ask_at.max(early));
            if limits.reserve > 0 {
                let opens = since + limits.reserve_after;
                due = due.min(if opens > now { opens } else { now + RENEW_MAX });
            }
        }
        self.cx.timers.set(Subject::Pool(index), &mut pool.deadline, due);
    }

    pub(super) fn pool_due(&mut self, index: u32) {
        let pool = &self.pools[index];
        let young = pool.oldest_want().is_some_and(|since| self.cx.now < since + HAND_OVER_SLACK);
        if pool.asked == (Asked::Full { alone: false }) && pool.servers > 0 && young {
            // Whoever waited when this was set has a server now.
            return self.arm_pool(index);
        }
        self.asked_is_stale(index);
        self.ask(index);
        self.fill(index);
        self.arm_pool(index);
    }

    /// What a client is told who waits for one of this pool's servers where logins fail.
    pub(super) fn refuses(&self, index: u32, id: ClientId) -> Option<Failure> {
        match &self.clients.get(id)?.state {
            ClientState::Login(login) => self.pools[index].refuses_in(&login.database),
            _ => self.pools[index].refuses(),
        }
    }

    /// Whether this worker has a server that others can use after those who do now.
    pub(super) fn has_lasting_server(&self, index: u32) -> bool {
        let pool = &self.pools[index];
        pool.servers > pool.connecting
            && self.servers.iter().any(|(_, server)| {
                let shared = !matches!(
                    server.state,
                    ServerState::Reserved
                        | ServerState::Making(_)
                        | ServerState::Tunnel(_)
                        | ServerState::Listener
                        | ServerState::Canceller { .. }
                        | ServerState::Closing
                );
                server.pool == index && shared && !server.close_needed
            })
    }

    /// Between two transactions, and in a pool whose servers are not bound to clients.
    pub(super) fn may_leave(&self, id: ClientId) -> bool {
        let Some(client) = self.clients.get(id) else { return false };
        matches!(client.state, ClientState::Ready(_))
            && matches!(client.link, Link::None | Link::Waiting { .. })
            && client.inbox.body == Body::None
            && !client.congested
            // Its listener is here.
            && !client.session().is_some_and(|session| session.listens)
            && self.pools[client.pool].limits.mode != PoolMode::Session
            && self.departures.are_open(self.cx.now)
            && !self.shutdown.is_under_way()
    }

    pub(super) fn begins_to_wait(&mut self, id: ClientId) {
        if let Some(client) = self.clients.get_mut(id) {
            client.knows_it_waits = false;
        }
    }

    /// A place in its pool's queue, by the time since when it waits.
    pub(super) fn queue(&mut self, id: ClientId, since: Time) {
        let Some(client) = self.clients.get_mut(id) else { return };
        client.bind(Link::Waiting { since });
        client.place = self.pools[client.pool].waiting.join(id, since);
        self.arm_client(id);
    }
}
