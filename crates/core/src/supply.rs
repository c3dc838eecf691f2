//! Where servers come from: permits of the steward, and other workers' hand-overs.

use std::sync::Arc;

use crate::client::{ClientState, Link};
use crate::failure::Failure;
use crate::id::{ConnId, WorkerId};
use crate::mail::Letter;
use crate::making::{Making, Purpose};
use crate::pool::{Asked, CONNECTING_MAX, Gate, PoolName, Recall, Welcome};
use crate::server::{NO_POOL, Server, ServerState};
use crate::steward::{HAND_OVER_SLACK, min_pool_size, reserve_pool_size};
use crate::time::{Duration, Time};
use crate::timers::Subject;
use crate::worker::Worker;

/// A want is renewed at least this often, so a recall that is older has been answered otherwise.
const RENEW_MAX: Duration = Duration::from_millis(100);

/// Servers of our own are all there are: whoever waits gets one of them, and asking again is a matter of caution.
const RENEW_ALONE: Duration = Duration::from_secs(1);

impl Worker {
    /// Asks the steward for one more server, if somebody waits for one that is not on its way.
    pub(crate) fn ask(&mut self, index: u32) {
        let now = self.now;
        let pool = &mut self.pools[index];
        let waiting = pool.waiting.len() + pool.tunnels.len();
        let wanted = waiting > pool.connecting as usize && pool.connecting < CONNECTING_MAX;
        if !wanted || pool.asked != Asked::Nothing || pool.gate != Gate::Open {
            return self.arm_pool(index);
        }
        if pool.retry_at > now {
            return self.arm_pool(index);
        }
        let Some(since) = pool.oldest_want() else { return };
        pool.asked = Asked::Want;
        let pool = Arc::clone(&pool.name);
        self.tell_steward(Letter::Want { pool, since });
    }

    /// A server of ours is gone, or another worker's: what the steward said last no longer holds.
    pub(crate) fn asked_is_stale(&mut self, index: u32) {
        let pool = &mut self.pools[index];
        if matches!(pool.asked, Asked::Full { .. }) {
            pool.asked = Asked::Nothing;
        }
    }

    /// Keeps the pool at its smallest size.
    pub(crate) fn fill(&mut self, index: u32) {
        let pool = &self.pools[index];
        let smallest = min_pool_size(&pool.name, &self.settings);
        let wanted = pool.clients > 0 || pool.database.forced_user.is_some();
        if smallest > pool.servers && wanted && pool.gate == Gate::Open && pool.retry_at <= self.now {
            let pool = Arc::clone(&pool.name);
            self.tell_steward(Letter::Fill { pool });
        }
    }

    /// The pool's next look at itself: a retry after a failed login, or a want to be renewed.
    pub(crate) fn arm_pool(&mut self, index: u32) {
        let now = self.now;
        let reserve = reserve_pool_size(&self.pools[index].name, &self.settings) > 0;
        let reserve_after = self.settings.reserve_pool_timeout;
        let pool = &mut self.pools[index];
        let smallest = min_pool_size(&pool.name, &self.settings);
        let mut due = Time::NEVER;
        if pool.retry_at > now && (pool.oldest_want().is_some() || pool.servers < smallest) {
            due = pool.retry_at;
        }
        if let (Asked::Full { alone }, Some(since)) = (pool.asked, pool.oldest_want()) {
            let waited = now.since(since);
            if alone {
                due = due.min(now + RENEW_ALONE);
            } else {
                let pause = Duration((waited.0 / 2).clamp(HAND_OVER_SLACK.0, RENEW_MAX.0));
                due = due.min(now + pause);
            }
            if reserve {
                let opens = since + reserve_after;
                due = due.min(if opens > now { opens } else { now + RENEW_MAX });
            }
        }
        self.timers.set(Subject::Pool(index), &mut pool.deadline, due);
    }

    pub(crate) fn pool_due(&mut self, index: u32) {
        self.asked_is_stale(index);
        self.ask(index);
        self.fill(index);
        self.arm_pool(index);
    }

    /// The steward's answer to a want.
    pub(crate) fn full(&mut self, name: &PoolName, alone: bool) {
        let Some(index) = self.pools.find(name) else { return };
        let pool = &mut self.pools[index];
        if pool.asked == Asked::Nothing {
            return;
        }
        pool.asked = Asked::Full { alone };
        // A client that needs a connection of its own cannot use a shared one: one of those makes room.
        if !pool.tunnels.is_empty()
            && let Some(idle) = pool.idle.front().copied()
        {
            self.close_server(idle, "its place is needed for a replication connection");
        }
        self.arm_pool(index);
    }

    /// One server may be made.
    pub(crate) fn permit(&mut self, name: &Arc<PoolName>, fill: bool) {
        let Some(index) = self.pools.find(name) else {
            return self.tell_steward(Letter::PermitBack { pool: Arc::clone(name) });
        };
        let pool = &mut self.pools[index];
        if !fill {
            pool.asked = Asked::Nothing;
        }
        let wanted = fill || pool.waiting.len() + pool.tunnels.len() > pool.connecting as usize;
        let endpoint = if wanted && pool.gate == Gate::Open { pool.next_endpoint() } else { None };
        let Some(endpoint) = endpoint else {
            return self.tell_steward(Letter::PermitBack { pool: Arc::clone(name) });
        };
        let purpose = match pool.tunnels.pop_front() {
            Some(client) => self.tunnel_purpose(client),
            None => Purpose::Pool,
        };
        let pool = &mut self.pools[index];
        pool.connecting += 1;
        pool.servers += 1;
        let number = self.next_number();
        let nothing = Arc::clone(&self.no_parameters);
        let mut server =
            Server::new(ServerState::Making(Box::new(Making::new(purpose))), index, nothing, self.now, number);
        server.endpoint = Some(endpoint.clone());
        let id = self.servers.insert(server);
        let due = self.settings.server_connect_timeout.limit().map_or(Time::NEVER, |limit| self.now + limit);
        if let Some(server) = self.servers.get_mut(id) {
            self.timers.set(Subject::Conn(id), &mut server.deadline, due);
        }
        self.out.connect(id, endpoint);
        self.ask(index);
        self.fill(index);
    }

    /// Another worker's client has waited longer than ours.
    pub(crate) fn recall(&mut self, name: &PoolName, to: WorkerId, since: Time) {
        let Some(index) = self.pools.find(name) else { return };
        let until = self.now + Duration(RENEW_MAX.0 * 2);
        self.pools[index].recall = Some(Recall { to, since, until });
        self.schedule(index);
    }

    /// Hands an idle server to another worker.
    pub(crate) fn give_server(&mut self, index: u32, to: WorkerId) {
        let pool = &mut self.pools[index];
        let Some(id) = pool.idle.pop_front() else { return };
        pool.servers -= 1;
        let name = Arc::clone(&pool.name);
        // What is left is a name: the connection itself travels, and its Closed ends this id.
        let number = self.next_number();
        let left = Server::new(ServerState::Closing, NO_POOL, Arc::clone(&self.no_parameters), self.now, number);
        let Some(place) = self.servers.get_mut(id) else { return };
        let server = Box::new(std::mem::replace(place, left));
        self.tell_steward(Letter::Gave { pool: Arc::clone(&name), to });
        let welcome = self.pools[index].welcome.clone();
        self.send_mail(to, Letter::Server { pool: name, server, welcome }, Some(id));
        self.handed_over += 1;
        self.asked_is_stale(index);
        self.ask(index);
    }

    /// A server that another worker hands to us.
    pub(crate) fn take_server(&mut self, name: &Arc<PoolName>, server: Server, welcome: Option<&Welcome>, id: ConnId) {
        if let Some(welcome) = welcome {
            self.learn_welcome(name, welcome);
        }
        let index = self.pool_for(name);
        let Some(index) = index else {
            // Its database is gone from the settings.
            if let Some(place) = self.servers.get_mut(id) {
                place.state = ServerState::Closing;
                self.out.close(id);
            }
            return self.tell_steward(Letter::PermitBack { pool: Arc::clone(name) });
        };
        let parameters = self.parameter_sets.intern((*server.parameters).clone());
        let Some(place) = self.servers.get_mut(id) else { return };
        *place = server;
        place.pool = index;
        place.parameters = parameters;
        place.deadline = crate::timers::Deadline::default();
        self.pools[index].servers += 1;
        self.free_server(id);
        self.schedule(index);
    }

    /// Another pool needs the place of one of ours.
    pub(crate) fn evict(&mut self, name: &PoolName) {
        let Some(index) = self.pools.find(name) else { return };
        if self.pools[index].waiting.is_empty()
            && let Some(idle) = self.pools[index].idle.front().copied()
        {
            self.close_server(idle, "its place is needed by another pool");
        }
    }

    /// Nobody can log in to this pool's servers: whoever waits is told why.
    pub(crate) fn refuse_waiting(&mut self, index: u32) {
        let pool = &mut self.pools[index];
        if pool.servers > pool.connecting + 1 {
            // Some servers are there: waiting is of use.
            return;
        }
        let Some(report) = pool.refusal.clone() else { return };
        let clients: Vec<_> = pool.waiting.iter().map(|waiting| waiting.client).collect();
        let text = report.message.clone().into_owned();
        for client in clients {
            self.fail_client(client, &Failure::Refused { text: text.clone() });
        }
    }

    // Replication: a connection of its own for a client, never shared.

    /// The client needs a server connection that is nobody else's.
    pub(crate) fn want_tunnel(&mut self, id: ConnId) {
        let since = self.now;
        let Some(client) = self.clients.get_mut(id) else { return };
        client.link = Link::WaitingTunnel { since };
        let index = client.pool;
        self.pools[index].tunnels.push_back(id);
        self.arm_client(id);
        self.ask(index);
    }

    fn tunnel_purpose(&mut self, client: ConnId) -> Purpose {
        let parameters = match self.clients.get(client).map(|client| &client.state) {
            Some(ClientState::Login(login)) => login.tunnel_parameters(),
            _ => Vec::new(),
        };
        Purpose::Tunnel { client, parameters }
    }

    pub(crate) fn tunnel_abandoned(&mut self, index: u32, id: ConnId) {
        self.pools[index].tunnels.retain(|&waiting| waiting != id);
        let making = self.servers.iter().find_map(|(server, place)| match &place.state {
            ServerState::Making(making) => match making.purpose {
                Purpose::Tunnel { client, .. } if client == id => Some(server),
                _ => None,
            },
            _ => None,
        });
        if let Some(server) = making {
            self.close_server(server, "its client has gone");
        }
    }

    pub(crate) fn tunnel_made(&mut self, server_id: ConnId, id: ConnId, welcome: &Welcome) {
        let there = self.clients.get(id).is_some_and(|client| matches!(client.link, Link::WaitingTunnel { .. }));
        let Some(server) = self.servers.get_mut(server_id) else { return };
        if !there {
            return self.close_server(server_id, "its client has gone");
        }
        server.state = ServerState::Tunnel(id);
        if let Some(client) = self.clients.get_mut(id) {
            client.link = Link::Tunnel(server_id);
        }
        self.welcome_client(id, welcome);
    }
}
