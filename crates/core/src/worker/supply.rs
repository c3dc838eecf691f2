//! Where servers come from: permits of the steward, and other workers' hand-overs.

use std::net::SocketAddr;
use std::sync::Arc;

use weir_cluster::topology::COORDINATOR;
use weir_wire::write;

use crate::client::{Client, Link};
use crate::derivations::Derived;
use crate::failure::Failure;
use crate::id::NO_POOL;
use crate::id::{ClientId, ServerId, WorkerId};
use crate::inbox::{Cursor, Inbox};
use crate::mail::{Letter, Permit};
use crate::making::login_failure::LoginFailure;
use crate::making::server_login::{ServerLogin, Then};
use crate::making::{Making, Purpose};
use crate::names::PoolName;
use crate::peer::Peer;
use crate::pool::Welcome;
use crate::pool::endpoints::{Fails, Setback};
use crate::pool::gates::Gate;
use crate::pool::told::{Asked, Recall, Share, Wait};
use crate::server::{Server, ServerState};
use crate::settings::TlsMode;
use crate::steward::HAND_OVER_SLACK;
use crate::time::{Duration, Time};
use crate::timers::Subject;
use crate::worker::Service;
use crate::worker::asking::RENEW_MAX;

/// So many connections one behind another that reach other nodes than theirs, before the next waits as behind a login that has failed: with four nodes,
/// of which each is as likely as the others, one time in a hundred thousand.
const MISLED_MAX: u32 = 40;

/// A server that another worker hands over.
pub(super) struct Arrival {
    pub(super) server: Box<Server>,
    pub(super) welcome: Option<Arc<Welcome>>,
    pub(super) reconnects: u32,
    /// Its number.
    pub(super) database: Option<Box<[u8]>>,
}

impl Service {
    /// The steward's answer to a want.
    pub(super) fn full(&mut self, name: &PoolName, alone: bool) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        let pool = &mut self.traffic.pools[index];
        if pool.asked == Asked::Nothing {
            // Nobody waits any more.
            return;
        }
        pool.asked = Asked::Full { alone };
        self.traffic.pause_asking(index, alone);
        self.traffic.makes_room(index);
        self.traffic.arm_pool(index);
    }

    /// One server may be made.
    pub(super) fn permit(&mut self, name: &Arc<PoolName>, permit: Permit) {
        let Permit { endpoint, fill, alone, of_reserve } = permit;
        let Some(index) = self.traffic.pools.find(name) else {
            return self.traffic.cx.tell_steward(Letter::Unused { pool: Arc::clone(name), endpoint });
        };
        let now = self.traffic.cx.now;
        let pool = &mut self.traffic.pools[index];
        if !fill {
            pool.asked = Asked::Nothing;
            pool.ask_at = now;
        }
        let wanted = fill || pool.misses_one();
        let here = if wanted && pool.gate == Gate::Open { pool.endpoint(endpoint.clone()) } else { None };
        let Some(endpoint) = here else {
            self.traffic.cx.tell_steward(Letter::Unused { pool: Arc::clone(name), endpoint });
            // The steward may have had no room for the smallest size only because of this one.
            if !fill {
                self.traffic.fill(index);
            }
            return;
        };
        if of_reserve {
            self.log_reserve(index);
        }
        let purpose = match self.traffic.pop_tunnel(index) {
            Some(client) => self.traffic.tunnel_purpose(client),
            None => Purpose::Pool,
        };
        let pool = &mut self.traffic.pools[index];
        pool.login_begins(&purpose, alone);
        self.one_more_server(index);
        let number = self.traffic.cx.next_number();
        let nothing = Arc::clone(&self.traffic.cx.no_parameters);
        let making = ServerState::Making(Box::new(Making::new(purpose)));
        let mut server = Server::new(making, index, nothing, self.traffic.cx.now, number);
        server.endpoint = Some(endpoint.clone());
        server.alone = alone;
        server.origin = Some(self.traffic.pools[index].origin());
        server.kept.is_at(&self.traffic.pools[index].limits);
        let id = self.traffic.servers.insert(server);
        let due = self
            .traffic
            .cx
            .settings
            .server_connect_timeout
            .limit()
            .map_or(Time::NEVER, |limit| self.traffic.cx.now + limit);
        if let Some(server) = self.traffic.servers.get_mut(id) {
            self.traffic.cx.timers.set(Subject::Server(id), &mut server.deadline, due);
        }
        self.traffic.cx.out.connect(id, endpoint);
        self.traffic.ask(index);
        self.traffic.fill(index);
    }

    /// The steward's word on failed logins: none is tried before a certain time, or they succeed again.
    pub(super) fn set_back(&mut self, name: &PoolName, setback: Setback) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        let now = self.traffic.cx.now;
        let pool = &mut self.traffic.pools[index];
        (pool.failures, pool.retry_at, pool.refusal) = (setback.failures, setback.retry_at, setback.refusal);
        if pool.failures > 0 && pool.asked == Asked::Want {
            // The steward has given it up. What is wanted is wanted again then, or now if this comes late.
            pool.asked = Asked::Nothing;
        }
        if pool.retry_at > now {
            self.refuse_waiting(index);
        } else {
            self.traffic.fill(index);
        }
        self.traffic.ask(index);
    }

    fn one_more_server(&mut self, index: u32) {
        let pool = &mut self.traffic.pools[index];
        if pool.one_more() {
            self.traffic.cx.tell_steward(Letter::ShareExceeded { pool: Arc::clone(&pool.name) });
        }
    }

    /// The steward has shared the pool's servers out anew.
    pub(super) fn share_told(&mut self, name: &PoolName, share: Share) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        self.traffic.pools[index].share = share;
        let too_many = self.traffic.pools[index].staying().saturating_sub(share.most);
        for idle in self.traffic.oldest_idle(index).into_iter().take(too_many as usize) {
            self.traffic.close_server(idle, "too many servers in the pool");
        }
    }

    /// Another worker's client may have waited longer than ours.
    pub(super) fn recall(&mut self, name: &Arc<PoolName>, to: WorkerId, wait: Wait, only_hope: bool) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        if only_hope && self.traffic.pools[index].connecting == 0 && !self.traffic.has_lasting_server(index) {
            let (pool, servers) = (Arc::clone(name), self.traffic.pools[index].servers);
            self.traffic.cx.tell_steward(Letter::NoneLasts { pool, servers });
        }
        let until = self.traffic.cx.now + Duration(RENEW_MAX.0 * 2);
        self.traffic.pools[index].recall = Some(Recall { to, wait, until });
        self.traffic.schedule(index);
    }

    /// Where the next idle server of this pool goes instead of staying here, if anywhere.
    pub(super) fn claimant(&mut self, index: u32) -> Option<WorkerId> {
        let now = self.traffic.cx.now;
        let pool = &mut self.traffic.pools[index];
        let first = pool.first_waiting_since();
        if let Some(shed) = &mut pool.shed
            && shed.servers_left > 0
        {
            shed.servers_left -= 1;
            return Some(shed.to);
        }
        pool.shed = pool.shed.filter(|shed| shed.until > now);
        if let Some(recall) = pool.recall {
            let ours = first.map_or(Duration::ZERO, |since| now.since(since));
            let wins = match recall.wait {
                Wait::Since(since) => since < first.unwrap_or(Time::NEVER),
                Wait::Lasted(theirs) => first.is_none() || theirs.0 > ours.0 + (ours.0 / 2).max(HAND_OVER_SLACK.0),
            };
            if recall.until <= now || wins {
                pool.recall = None;
            }
            if recall.until > now && wins {
                return Some(recall.to);
            }
        }
        // Whoever waits where a pool does not live cannot leave: it is served first.
        if first.is_none() { pool.next_home() } else { None }
    }

    /// Hands an idle server to another worker.
    pub(super) fn give_server(&mut self, index: u32, to: WorkerId) {
        let pool = &mut self.traffic.pools[index];
        let Some(id) = pool.idle.pop_front() else { return };
        pool.servers -= 1;
        let name = Arc::clone(&pool.name);
        // What is left is a name: the connection itself travels, and its Closed ends this id.
        let Some(place) = self.traffic.servers.get_mut(id) else { return };
        let nothing = Arc::clone(&self.traffic.cx.no_parameters);
        let left = Server::new(ServerState::Closing, NO_POOL, nothing, self.traffic.cx.now, place.number);
        let mut server = Box::new(std::mem::replace(place, left));
        server.mirror.part();
        self.traffic.cx.tell_steward(Letter::Gave { pool: Arc::clone(&name), to });
        self.traffic.tell_credentials(index, to);
        let welcome = self.traffic.pools[index].welcome.clone();
        let database = self.traffic.pools[index].knowledge.database();
        let reconnects = self.reconnects.of(&name.database);
        let letter = Letter::Server { pool: name, server, welcome, reconnects, database };
        self.traffic.cx.send_mail(to, letter, Some(id.into()));
        self.handed_over += 1;
        let pool = &mut self.traffic.pools[index];
        if pool.asked == (Asked::Full { alone: true }) {
            pool.asked = Asked::Full { alone: false };
        }
        self.traffic.ask(index);
    }

    /// A server that another worker hands to us.
    pub(super) fn take_server(&mut self, name: &Arc<PoolName>, arrival: Arrival, id: ServerId) {
        let Arrival { server, welcome, reconnects, database } = arrival;
        let index = self.traffic.pool_for(name);
        let Some(index) = index else {
            // Its database is gone from the settings.
            if let Some(place) = self.traffic.servers.get_mut(id) {
                place.enter(ServerState::Closing);
                self.traffic.cx.out.close(id);
            }
            return self.traffic.cx.tell_steward(Letter::PermitBack { pool: Arc::clone(name), tried: None });
        };
        // Whatever all servers were marked for while it was on its way concerns it too.
        let right = server.is_made_as_those_of(&self.traffic.pools[index]);
        let is_another = right && self.traffic.comes_from_another_database(index, database, (id, server.made_at));
        let is_late = self.reconnects.of(&name.database) > reconnects || self.whither.is_left(&server);
        let missed = !right || is_another || is_late;
        if let (Some(welcome), true) = (welcome, right) {
            self.traffic.learn_welcome(name, &welcome);
        }
        let parameters = self.traffic.cx.parameter_sets.intern(server.parameters.own_copy());
        let began = server.welcome.as_ref().map(|welcome| welcome.own_copy(&mut self.traffic.cx.parameter_sets));
        let Some(place) = self.traffic.servers.get_mut(id) else { return };
        *place = *server;
        place.close_needed |= missed;
        place.outdated |= missed;
        place.pool = index;
        place.parameters = parameters;
        place.welcome = began;
        place.deadline = crate::timers::Deadline::default();
        let idle_at = place.idle_at;
        self.one_more_server(index);
        self.traffic.free_server(id);
        self.traffic.schedule(index);
        if let Some(server) = self.traffic.servers.get_mut(id) {
            // It was idle there.
            server.idle_at = idle_at;
        }
    }

    /// A server was on its way to us, and its connection ended first.
    pub(super) fn server_lost(&mut self, pool: Arc<PoolName>) {
        self.traffic.cx.tell_steward(Letter::PermitBack { pool, tried: None });
    }

    /// Another pool needs the place of one of ours.
    pub(super) fn evict(&mut self, name: &PoolName) {
        let Some(index) = self.traffic.pools.find(name) else { return };
        if self.traffic.pools[index].waiting.is_empty()
            && let Some(idle) = self.traffic.oldest_idle(index).first().copied()
        {
            self.traffic.close_server(idle, "evicted");
        }
    }

    /// Nobody can log in to this pool's servers: whoever waits is told why, unless waiting is of use.
    pub(super) fn refuse_waiting(&mut self, index: u32) {
        if self.traffic.has_lasting_server(index) {
            return;
        }
        let pool = &self.traffic.pools[index];
        if pool.refuses().is_none() {
            return;
        }
        let clients: Vec<_> = pool.waiting.iter().map(|waiting| waiting.client).collect();
        for client in clients {
            let Some(failure) = self.traffic.refuses(index, client) else { return };
            if !self.gives_up_lookup(client) && !self.looks_up_instead(client) {
                self.fail_client(client, &failure);
            }
        }
    }

    // A server that is being made.

    fn server_login(&mut self, id: ServerId) -> Option<(ServerLogin<'_>, &mut Inbox)> {
        let server = self.traffic.servers.get_mut(id)?;
        let Server { state: ServerState::Making(making), pool, endpoint, peer, number, tls, key, inbox, .. } = server
        else {
            return None;
        };
        let pool = (*pool != NO_POOL).then(|| (*pool, &mut self.traffic.pools[*pool]));
        let (cx, derivations) = (&mut self.traffic.cx, &mut self.derivations);
        let (endpoint, peer, number) = (endpoint.as_ref(), peer.as_ref(), *number);
        Some((ServerLogin { cx, derivations, id, number, making, endpoint, peer, tls, key, pool }, inbox))
    }

    pub(super) fn making_bytes(&mut self, id: ServerId, input: &[u8]) -> usize {
        let mut cursor = Cursor::new(input);
        let Some((mut login, inbox)) = self.server_login(id) else { return input.len() };
        let then = login.bytes(inbox, &mut cursor);
        self.making_went(id, then);
        cursor.at
    }

    /// Something else than bytes.
    pub(super) fn making_input(&mut self, id: ServerId, take: impl FnOnce(&mut ServerLogin<'_>) -> Then) {
        if let Some((mut login, _)) = self.server_login(id) {
            let then = take(&mut login);
            self.making_went(id, then);
        }
    }

    fn making_went(&mut self, id: ServerId, then: Then) {
        match then {
            Then::Nothing => {}
            Then::Made => self.server_made(id),
            Then::CancelSent => {
                if let Some(server) = self.traffic.servers.get_mut(id)
                    && let ServerState::Making(making) = &server.state
                    && let Purpose::Cancel { target, .. } = making.purpose
                {
                    server.enter(ServerState::Canceller { target });
                }
            }
            Then::Failed(failure) => self.server_login_failed(id, failure),
        }
    }

    /// With the same settings and certificates it fails again. A session that has begun hears of its end only; a cancel request
    /// that was sent may not have been read.
    pub(super) fn server_tls_failed(&mut self, id: ServerId, reason: &str) {
        self.server_failed(id);
        self.server_login_failed(id, LoginFailure::of_tls(reason));
    }

    /// The salted password of a server's login has been derived.
    pub(super) fn server_derived(&mut self, id: ServerId, derived: &Derived) {
        if let Some((mut login, _)) = self.server_login(id) {
            login.derived(derived);
        }
    }

    fn server_made(&mut self, id: ServerId) {
        if self.is_misled(id) {
            return self.misled(id);
        }
        // Whatever all servers were marked for while it logged in concerns it too, and what it tells is not told of its pool any more.
        let is_right = self.is_right(id);
        if let (true, Some(failure)) = (is_right, self.traffic.refuse_database(id)) {
            return self.server_login_failed(id, failure);
        }
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let ServerState::Making(making) = server.enter(ServerState::Idle) else {
            return;
        };
        let Making { purpose, facts, parameters, exact, database, .. } = *making;
        let alone = std::mem::take(&mut server.alone);
        (server.idle_at, server.checked) = (self.traffic.cx.now, true);
        let made_at = server.made_at;
        server.parameters = self.traffic.cx.parameter_sets.intern(parameters);
        let tells = if exact.is_some() { ", which tells what its session holds" } else { "" };
        server.exact = exact;
        server.database.clone_from(&database);
        let welcome = Welcome { facts, defaults: Arc::clone(&server.parameters) };
        let pool_index = server.pool;
        let pool = &mut self.traffic.pools[pool_index];
        pool.login_over(&purpose, alone);
        pool.watched.server_logins += 1;
        pool.misled = 0;
        let failed_before = alone || pool.failures > 0;
        pool.login_succeeded();
        if let (Some(endpoint), true) = (server.endpoint.clone(), failed_before) {
            let pool = Arc::clone(&pool.name);
            self.traffic.cx.tell_steward(Letter::LoginSucceeded { pool, endpoint });
            // Only one was made of those that are missing.
            self.traffic.fill(pool_index);
        }
        if is_right && matches!(purpose, Purpose::Pool) {
            self.traffic.follow_database(pool_index, database, (id, made_at));
        }
        let pool = &mut self.traffic.pools[pool_index];
        if let Purpose::Tunnel { client, .. } = purpose {
            self.tunnel_made(id, client, &welcome);
            return self.traffic.ask(pool_index);
        }
        let known = pool.welcome.as_ref().filter(|known| ***known == welcome).map(Arc::clone);
        let is_new = known.is_none() && is_right;
        let welcome = known.unwrap_or_else(|| Arc::new(welcome));
        if is_new {
            pool.set_welcome(Arc::clone(&welcome));
            pool.tell_welcome(&welcome, &mut self.traffic.cx);
        }
        if let Some(server) = self.traffic.servers.get_mut(id) {
            server.begins_with(welcome);
        }
        self.log_made(id, tells);
        self.traffic.free_server(id);
        self.traffic.schedule(pool_index);
        self.traffic.ask_behind(pool_index);
    }

    /// Whether a load balancer has led it to another node than its pool's. Where nobody knows, it is at none; the entry leads to the coordinator.
    fn is_misled(&self, id: ServerId) -> bool {
        let Some(server) = self.traffic.servers.get(id) else { return false };
        let ServerState::Making(making) = &server.state else { return false };
        let pool = &self.traffic.pools[server.pool];
        let group = pool.name.destination.node.unwrap_or(COORDINATOR.0);
        matches!(making.purpose, Purpose::Pool) && pool.is_balanced() && making.group != Some(group)
    }

    /// It is of no use, and the next one may be.
    #[cold]
    fn misled(&mut self, id: ServerId) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let (pool_index, alone) = (server.pool, server.alone);
        let pool = &mut self.traffic.pools[pool_index];
        pool.misled += 1;
        self.traffic.cx.out.send(id, write::terminate);
        if alone || pool.misled >= MISLED_MAX {
            pool.misled = 0;
            return self.server_login_failed(id, LoginFailure::broken("the load balancer leads to other nodes"));
        }
        self.traffic.drop_server(id, "the load balancer has led to another node");
        self.traffic.fill(pool_index);
        self.traffic.ask(pool_index);
    }

    /// Whether it was made after what its pool's servers are made after now; else it is closed when it is free.
    fn is_right(&mut self, id: ServerId) -> bool {
        let Some(server) = self.traffic.servers.get_mut(id) else { return false };
        server.close_needed |=
            !server.is_made_as_those_of(&self.traffic.pools[server.pool]) || self.whither.is_left(server);
        !server.close_needed
    }

    /// In PgBouncer's words, and as it of the client that has waited longest.
    #[cold]
    fn log_reserve(&mut self, index: u32) {
        let first = self.traffic.pools[index].waiting.first().and_then(|first| self.traffic.clients.get(first.client));
        let label = first.map_or_else(|| self.traffic.pools[index].name.database.to_string(), Client::label);
        self.traffic.cx.log_warning(format!("{label} taking connection from reserve_pool"));
    }

    fn log_made(&mut self, id: ServerId, tells: &str) {
        if let (true, Some(server)) = (self.traffic.cx.settings.log.connections, self.traffic.servers.get(id)) {
            let from = match &server.local {
                Some(Peer::Tcp { ip, port }) => format!(" (from {})", SocketAddr::new(*ip, *port)),
                _ => String::new(),
            };
            let text = format!("{} new connection to server{from}{tells}", self.traffic.server_label(id));
            self.traffic.cx.log_info(text);
        }
    }

    /// A login did not succeed: the connection ends, and whoever waits is told if waiting is no use.
    pub(super) fn server_login_failed(&mut self, id: ServerId, failure: LoginFailure) {
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let ServerState::Making(making) = &server.state else { return };
        let own = matches!(making.purpose, Purpose::Tunnel { .. });
        self.traffic.log_closing(id, failure.closing(own));
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let ServerState::Making(making) = server.enter(ServerState::Closing) else { return };
        self.traffic.cx.out.close(id);
        self.traffic.note_closing(id);
        self.making_ended(id, *making, &failure);
    }

    /// A server that was being made is not going to be.
    pub(super) fn making_ended(&mut self, id: ServerId, making: Making, failure: &LoginFailure) {
        if let Purpose::Cancel { target, .. } = making.purpose {
            return self.canceller_ended(target, true);
        }
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        let (pool_index, Some(endpoint)) = (server.pool, server.endpoint.clone()) else { return };
        let pool = &mut self.traffic.pools[pool_index];
        pool.login_over(&making.purpose, server.alone);
        let tls_left = self.traffic.cx.settings.server_tls_sslmode == TlsMode::Allow && !making.tls_tried;
        pool.needs_tls = tls_left && failure.wants_tls;
        if pool.needs_tls {
            return self.make_with_tls(id, making.purpose, failure);
        }
        pool.watched.server_logins_failed += 1;
        if !failure.of_one_client {
            server.alone = false;
            let mut fails = failure.fails();
            if failure.refused
                && pool.credentials.shown
                && self.traffic.cx.settings.secrets.contains_key(&pool.name.user)
            {
                // What was shown may be of another day: the file's is tried.
                pool.credentials.forget_shown(self.traffic.cx.now);
                fails = Fails::Passing;
            }
            let pool = Arc::clone(&pool.name);
            self.traffic.cx.tell_steward(Letter::LoginFailed { pool, endpoint, fails });
        }
        self.traffic.survey_soon(pool_index);
        self.traffic.pools.note_failed(pool_index);
        self.traffic.cx.log_warning(format!("{} {}", self.traffic.server_label(id), failure.for_log()));
        if let Purpose::Tunnel { client, .. } = making.purpose {
            let told = Failure::ServerLogin { report: Arc::clone(&failure.report) };
            self.fail_client_because(client, &told, &failure.report, failure.closing(true));
        }
        self.traffic.ask(pool_index);
    }

    /// `server_tls_sslmode = allow`: the server takes nobody in clear. Whoever it was for waits for another connection.
    fn make_with_tls(&mut self, server_id: ServerId, purpose: Purpose, failure: &LoginFailure) {
        let Some(pool_index) = self.traffic.servers.get(server_id).map(|server| server.pool) else { return };
        let label = self.traffic.server_label(server_id);
        self.traffic.cx.log_info(format!("{label} trying with TLS, since the server says: {}", failure.text));
        if let Purpose::Tunnel { client: id, .. } = purpose
            && let Some(client) = self.traffic.clients.get_mut(id)
            && let Link::WaitingTunnel { since } = client.link
        {
            client.place = self.traffic.pools[pool_index].tunnels.join(id, since);
        }
        self.traffic.ask(pool_index);
    }

    /// Pools of databases with a forced user are filled without waiting for a client.
    pub(super) fn fill_forced_pools(&mut self) {
        if self.traffic.cx.config.id != WorkerId::STEWARD {
            return;
        }
        let settings = Arc::clone(&self.traffic.cx.settings);
        for (name, database) in &settings.databases {
            if let Some(user) = &database.forced_user {
                let name = Arc::new(PoolName::new(Arc::clone(name), Arc::clone(user)));
                if let Some(index) = self.traffic.pool_for(&name) {
                    self.traffic.fill(index);
                }
            }
        }
    }

    pub(super) fn tunnel_made(&mut self, server_id: ServerId, id: ClientId, welcome: &Welcome) {
        let there =
            self.traffic.clients.get(id).is_some_and(|client| matches!(client.link, Link::WaitingTunnel { .. }));
        let Some(server) = self.traffic.servers.get_mut(server_id) else { return };
        if !there {
            return self.traffic.close_server(server_id, "its client has gone");
        }
        server.enter(ServerState::Tunnel(id));
        if let Some(client) = self.traffic.clients.get_mut(id) {
            client.bind(Link::Tunnel(server_id));
        }
        self.welcome_client(id, welcome);
    }
}
