//! The clients, servers and pools of one worker, and the small things that every room needs: below all rooms.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::client::{Client, ClientState, Doing, Limits, Link, after};
use crate::context::{Context, WorkerConfig};
use crate::exchange::Around;
use crate::id::NO_POOL;
use crate::id::{ClientId, ConnId, ServerId, Side, Table, WorkerId};
use crate::inbox::Body;
use crate::login::Login;
use crate::mail::Letter;
use crate::names::{PoolName, shown};
use crate::pool::gates::Gates;
use crate::pool::{Credentials, Pool, Pools, Welcome};
use crate::server::{Server, ServerState};
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::time::Time;
use crate::timers::{Deadline, Subject};
use crate::worker::Traffic;
use crate::worker::departures::Departures;
use crate::worker::pins::pin_due;

/// What one input may lead to, at most: so many steps, and so many more for each connection, pool and want. A step is a timer, a
/// server given to a client, a client sent away, a letter to ourselves or a want that the steward tries to serve.
const STEPS_MAX: u64 = 4096;
const STEPS_PER_NAME_MAX: u64 = 8;

impl Traffic {
    /// Empty.
    pub(super) fn new(config: WorkerConfig, settings: Arc<Settings>) -> Self {
        Self {
            cx: Context::new(config, settings),
            clients: Table::default(),
            servers: Table::default(),
            pools: Pools::default(),
            to_serve: Vec::new(),
            to_ask: Vec::new(),
            code_known: Vec::new(),
            settling: Vec::new(),
            woken: VecDeque::new(),
            suspended: BTreeSet::new(),
            departures: Departures::default(),
            gates: Gates::default(),
            shutdown: Shutdown::default(),
            unused_deadline: Deadline::default(),
            steps: 0,
            wants: 0,
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, now: Time) {
        debug_assert!(now >= self.cx.now, "time never goes back");
        self.cx.now = now;
        self.steps = 0;
        self.cx.out.begin();
    }

    /// The name for a connection that the driver is about to hand in.
    pub(super) fn reserve(&mut self, side: Side) -> ConnId {
        let now = self.cx.now;
        match side {
            Side::Client => self.clients.insert(Client::reserved(now)).into(),
            Side::Server => {
                let nothing = Arc::clone(&self.cx.no_parameters);
                // Its own number comes with it.
                self.servers.insert(Server::new(ServerState::Reserved, NO_POOL, nothing, now, 0)).into()
            }
        }
    }

    /// One more thing that this input leads to. Nothing that it leads to may lead to itself for ever.
    #[inline]
    pub(super) fn step(&mut self) {
        self.count_steps(1);
    }

    #[inline]
    pub(super) fn count_steps(&mut self, count: u64) {
        if cfg!(debug_assertions) {
            self.steps += count;
            let names = self.clients.len() + self.servers.len() + self.pools.indexes().len() + self.wants;
            assert!(
                self.steps <= STEPS_MAX + STEPS_PER_NAME_MAX * names as u64,
                "one input leads to {} steps",
                self.steps
            );
        }
    }

    // Pools.

    /// The pool of this name, made where it is not there yet; `None` where the settings know no such database.
    pub(super) fn pool_for(&mut self, name: &Arc<PoolName>) -> Option<u32> {
        if let Some(index) = self.pools.find(name) {
            self.cx.settings.database(&name.database)?;
            return Some(index);
        }
        let database = self.cx.clusters.entry(&self.cx.settings, name)?;
        if !self.cx.settings.databases.contains_key(&name.database) && !self.pools.has_database(&name.database) {
            self.cx.log_info(format!("registered new auto-database: {}", shown(&name.database)));
        }
        let mut pool = Pool::new(Arc::clone(name), database, &self.cx.settings);
        if !name.destination.is_entry()
            && let Some(base) = self.pools.find(&name.at_entry())
        {
            pool.credentials = self.pools[base].credentials.clone();
            pool.knowledge.path.clone_from(&self.pools[base].knowledge.path);
        }
        pool.gate = self.gates.of(&name.database);
        if pool.limits.route.is_some() {
            self.begin_survey();
        }
        let index = self.pools.add(pool);
        self.look_for_unused();
        Some(index)
    }

    /// A client that has no server belongs to that pool from now on.
    pub(super) fn joins(&mut self, id: ClientId, index: u32) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let before = std::mem::replace(&mut client.pool, index);
        self.pools[before].clients = self.pools[before].clients.saturating_sub(1);
        self.pools[index].clients += 1;
    }

    /// Somebody uses a cluster: its catalogue is looked at from now on.
    #[cold]
    pub(super) fn begin_survey(&mut self) {
        if !self.cx.survey.deadline.is_set() {
            self.arm_survey(self.cx.now);
        }
    }

    pub(super) fn arm_survey(&mut self, due: Time) {
        self.cx.timers.set(Subject::Survey, &mut self.cx.survey.deadline, due);
    }

    /// Sets when pools are looked at next that nobody may use.
    pub(super) fn look_for_unused(&mut self) {
        let due = self.pools.look_for_unused_after().map_or(Time::NEVER, |after| self.cx.now + after);
        let next = self.unused_deadline.due();
        if next <= self.cx.now || next > due {
            self.cx.timers.set(Subject::Unused, &mut self.unused_deadline, due);
        }
    }

    /// For the log.
    pub(super) fn server_label(&self, id: ServerId) -> String {
        self.servers.get(id).map_or_else(String::new, |server| {
            let pool = (server.pool != NO_POOL).then(|| &*self.pools[server.pool].name);
            server.label(pool)
        })
    }

    /// A login of this pool's has proved to have these.
    pub(super) fn has_credentials(&mut self, index: u32, mut credentials: Credentials) {
        let Pool { name, credentials: known, .. } = &mut self.pools[index];
        if credentials.secret.is_none() {
            // Those of before are of the same secret; and who logs in another way takes away nothing that was shown.
            credentials.keys = credentials.keys.or_else(|| known.keys.clone());
            credentials.secret = known.secret.clone().filter(|_| known.shown);
            credentials.shown = known.shown;
        }
        let is_another = credentials.secret.is_some() && credentials.secret != known.secret;
        if !known.meet(credentials.clone()) {
            return;
        }
        let name = Arc::clone(name);
        self.share_credentials(index);
        if is_another && self.pools[index].refuses().is_some() {
            // What was refused may be taken now.
            self.pools[index].login_succeeded();
            self.cx.tell_steward(Letter::SecretChanged { pool: Arc::clone(&name) });
        }
        for worker in self.cx.other_workers() {
            let (pool, credentials) = (Arc::clone(&name), Box::new(credentials.clone()));
            self.cx.post(worker, Letter::Credentials { pool, credentials });
        }
    }

    /// A client or a server of this pool goes there, where what was told of it before may have given way to other pools.
    pub(super) fn tell_credentials(&mut self, index: u32, to: WorkerId) {
        let Pool { name, credentials, .. } = &self.pools[index];
        if credentials.keys.is_some() || credentials.secret.is_some() {
            let letter = Letter::Credentials { pool: Arc::clone(name), credentials: Box::new(credentials.clone()) };
            self.cx.post(to, letter);
        }
    }

    /// A login on another worker has.
    pub(super) fn learn_credentials(&mut self, name: &Arc<PoolName>, credentials: Credentials) {
        if let Some(index) = self.pool_for(name) {
            self.pools[index].credentials.meet(credentials);
            self.share_credentials(index);
        }
    }

    /// A user's servers at the nodes of a cluster log in as those at the entry's.
    fn share_credentials(&mut self, index: u32) {
        if self.pools[index].limits.route.is_none() {
            return;
        }
        let (name, credentials) = (Arc::clone(&self.pools[index].name), self.pools[index].credentials.clone());
        for other in self.pools.indexes() {
            if !self.pools[other].name.destination.is_entry() && self.pools[other].name.is_for_those_of(&name) {
                self.pools[other].credentials = credentials.clone();
                self.pools[other].login_succeeded();
            }
        }
    }

    /// What another worker's server was greeted with.
    pub(super) fn learn_welcome(&mut self, name: &Arc<PoolName>, welcome: &Welcome) {
        let Some(index) = self.pool_for(name) else { return };
        let welcome = welcome.own_copy(&mut self.cx.parameter_sets);
        self.pools[index].set_welcome(welcome);
    }

    // Clients and servers.

    /// Sets the client's next deadline: from now on it does something else than before.
    pub(super) fn arm_client(&mut self, id: ClientId) {
        let now = self.cx.now;
        if let Some(session) = self.clients.get_mut(id).and_then(Client::session_mut) {
            session.idle_at = now;
        }
        self.renew_client_deadline(id);
    }

    /// The same for a client that does what it did before, by the settings of now.
    pub(super) fn renew_client_deadline(&mut self, id: ClientId) {
        let now = self.cx.now;
        let Some(client) = self.clients.get_mut(id).filter(|client| !client.overdue) else { return };
        let settings = &self.cx.settings;
        let due = match (&client.state, client.link) {
            (ClientState::Login(login), link) => {
                let timeout = after(settings.client_login_timeout, client.connected_at);
                let timeout_of_login = timeout.min(login.refused().map_or(Time::NEVER, |(at, _)| at));
                let limits = |since| Limits::of(settings, &login.database, &login.user).wait_due(settings, since);
                link.waiting_since().map_or(timeout_of_login, |since| timeout_of_login.min(limits(since)))
            }
            (ClientState::CancelRequest(asked), _) => after(settings.cancel_wait_timeout, asked.since),
            (ClientState::Ready(session), Link::Waiting { since } | Link::WaitingTunnel { since }) => {
                let told_at = match client.knows_it_waits {
                    false => after(settings.query_wait_notify, since),
                    true => Time::NEVER,
                };
                session.limits.wait_due(settings, since).min(told_at)
            }
            (ClientState::Ready(session), Link::Linked(server)) => {
                let server = self.servers.get(server);
                let doing = server.map_or(Doing::Idle, |server| server.doing(session.asks));
                let pinned =
                    server.filter(|_| doing == Doing::Idle).map(|server| pin_due(server, &self.pools, &self.cx));
                session.due(doing).min(pinned.unwrap_or(Time::NEVER))
            }
            (ClientState::Ready(session), Link::None) => session.due(session.does_without_server()),
            (ClientState::Console(console), _) if console.has_rest() => now,
            _ => Time::NEVER,
        };
        self.cx.timers.set(Subject::Client(id), &mut client.deadline, due);
    }

    #[inline]
    pub(super) fn around(&mut self) -> Around<'_> {
        let Self { cx, clients, servers, pools, .. } = self;
        Around { cx, clients, servers, pools }
    }

    /// The client linked to a server that is gone, or is of no use any more.
    pub(super) fn client_of(&self, id: ServerId) -> Option<ClientId> {
        let client = self.servers.get(id)?.client()?;
        let linked = self.clients.get(client)?.link.server() == Some(id);
        linked.then_some(client)
    }

    /// Nothing half-sent stands between the client and an error of ours.
    pub(super) fn can_tell(&self, client: ClientId) -> bool {
        let Some(client) = self.clients.get(client) else { return false };
        match &client.state {
            ClientState::Login(login) if login.is_in_handshake() => return false,
            ClientState::Login(_) | ClientState::Ready(_) => {}
            _ => return false,
        }
        match client.link {
            Link::Linked(server) => self
                .servers
                .get(server)
                .is_none_or(|server| !matches!(server.inbox.body, Body::Forward(_)) && !server.told),
            Link::Tunnel(_) => false,
            _ => true,
        }
    }

    pub(super) fn login(&mut self, id: ClientId) -> Option<&mut Login> {
        match &mut self.clients.get_mut(id)?.state {
            ClientState::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Whether this client has not been let in yet: its bytes may wait while others' are dealt with.
    pub(super) fn is_logging_in(&self, id: ClientId) -> bool {
        self.clients.get(id).is_some_and(|client| matches!(client.state, ClientState::Login(_)))
    }

    /// Serve this pool when the input in hand is dealt with.
    pub(super) fn schedule(&mut self, index: u32) {
        if self.to_serve.last() != Some(&index) {
            self.to_serve.push(index);
        }
    }

    /// Ask for one more server behind that, if somebody has got none.
    pub(super) fn ask_behind(&mut self, index: u32) {
        if self.to_ask.last() != Some(&index) {
            self.to_ask.push(index);
        }
    }
}
