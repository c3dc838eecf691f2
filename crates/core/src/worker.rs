//! One worker: the clients and servers of one thread, and the way of each input to whoever deals with it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use rand_chacha::ChaCha12Rng;
use rand_core::{Rng, SeedableRng};

use crate::auth::ScramVerifier;
use crate::client::{Client, ClientState, Limits};
use crate::console::Question;
use crate::contract::{Command, Input, Level, Output, Peer, Span};
use crate::id::{ConnId, Side, Table, WorkerId};
use crate::login::Login;
use crate::mail::Letter;
use crate::outbox::Outbox;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::pool::{Gate, Pool, PoolName, Pools};
use crate::server::{NO_POOL, Server, ServerState};
use crate::settings::Settings;
use crate::statements::StatementCache;
use crate::steward::Steward;
use crate::time::Time;
use crate::timers::{Deadline, Subject, Timers};
use crate::whereabouts::Whereabouts;

/// Verifiers made of plain passwords that are kept.
pub(crate) const VERIFIERS_MAX: usize = 10_000;
/// Passwords that wait to be derived, beyond which no further login begins.
pub(crate) const JOBS_MAX: usize = 4096;

/// What a worker is born with.
#[derive(Debug, Clone)]
pub struct WorkerConfig {
    pub id: WorkerId,
    /// How many workers the process has.
    pub workers: u16,
    /// Where all its random bytes come from: the operating system's, or a simulation's seed.
    pub seed: [u8; 32],
    /// Shared by all workers of a process and by nobody else: unknown users' salts derive from it.
    pub process_secret: [u8; 32],
    /// The wall clock at `Time(0)`, in microseconds since 1970: only for what the console prints.
    pub epoch_us: u64,
}

/// What a derived password is for.
#[derive(Debug)]
pub(crate) enum Job {
    /// A client's plain password is checked against a SCRAM secret.
    Password {
        client: ConnId,
    },
    /// A verifier is made of the plain password in the file.
    Verifier {
        client: ConnId,
        user: Arc<str>,
        password: Arc<str>,
    },
    Server(ConnId),
}

/// One worker. See [`crate::contract`] for how to drive it.
#[derive(Debug)]
pub struct Worker {
    pub(crate) config: WorkerConfig,
    pub(crate) settings: Arc<Settings>,
    pub(crate) now: Time,
    pub(crate) clients: Table<Client>,
    pub(crate) servers: Table<Server>,
    pub(crate) pools: Pools,
    /// Pools that may have somebody to serve.
    pub(crate) to_serve: Vec<u32>,
    pub(crate) out: Outbox,
    pub(crate) timers: Timers,
    pub(crate) statements: StatementCache,
    pub(crate) parameter_sets: ParameterSets,
    pub(crate) no_parameters: Arc<ParameterSet>,
    /// By the numbers that cancel requests name.
    pub(crate) cancel_keys: BTreeMap<u32, Whereabouts>,
    /// Cancels under way: the number of the server, and whom to tell.
    pub(crate) cancels_waiting: Vec<(u64, WorkerId, ConnId)>,
    pub(crate) verifiers: BTreeMap<Arc<str>, (Arc<str>, ScramVerifier)>,
    pub(crate) jobs: BTreeMap<u32, Job>,
    next_job: u32,
    rng: ChaCha12Rng,
    next_process_id: u32,
    next_number: u64,
    /// What is one for the whole process; worker 0 has it.
    pub(crate) steward: Option<Steward>,
    /// Letters to ourselves, read when the input in hand is dealt with.
    pub(crate) own_letters: VecDeque<Letter>,
    /// Clients that go to another worker when the input in hand is dealt with.
    pub(crate) leaving: Vec<(ConnId, WorkerId)>,
    /// Clients that have left, and whose connection is still here.
    pub(crate) departing: u32,
    /// Somebody waits because too many were leaving.
    pub(crate) held_back: bool,
    pub(crate) reloading: Vec<ConnId>,
    /// Consoles that wait until servers are closed.
    pub(crate) closing_waits: Vec<(WorkerId, ConnId, Question)>,
    pub(crate) gates: BTreeMap<Arc<str>, Gate>,
    pub(crate) paused: bool,
    pub(crate) shutdown: Option<Command>,
    /// Workers that have done their part of a shutdown; the steward counts them.
    pub(crate) quiet: u16,
    pub(crate) told_quiet: bool,
    stats_deadline: Deadline,
    pub(crate) load_deadline: Deadline,
    pub(crate) loads_deadline: Deadline,
    pub(crate) busy_permille: u16,
    /// As the steward knows it.
    pub(crate) told_busy_permille: Option<u16>,
    pub(crate) load_at: Time,
    /// The driver takes no more connections here.
    pub(crate) crowded: bool,
    pub(crate) kills_of_all: u32,
    pub(crate) kills_by_database: BTreeMap<Arc<str>, u32>,
    pub(crate) sheddings: u32,
    pub(crate) handed_over: u64,
    pub(crate) clients_moved: u64,
    pub(crate) letters_sent: u64,
    #[cfg(feature = "planted")]
    pub(crate) planted: Option<crate::planted::Planted>,
    #[cfg(feature = "planted")]
    planted_chances: u64,
}

impl Worker {
    pub fn new(config: WorkerConfig, settings: Arc<Settings>) -> Self {
        let mut parameter_sets = ParameterSets::default();
        let no_parameters = parameter_sets.intern(ParameterSet::default());
        let steward = (config.id == WorkerId::STEWARD).then(|| Steward::new(config.workers));
        let mut worker = Self {
            settings,
            now: Time(0),
            clients: Table::new(Side::Client),
            servers: Table::new(Side::Server),
            pools: Pools::default(),
            to_serve: Vec::new(),
            out: Outbox::default(),
            timers: Timers::default(),
            statements: StatementCache::new(config.id),
            parameter_sets,
            no_parameters,
            cancel_keys: BTreeMap::new(),
            cancels_waiting: Vec::new(),
            verifiers: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            rng: ChaCha12Rng::from_seed(config.seed),
            next_process_id: 0,
            next_number: 0,
            steward,
            own_letters: VecDeque::new(),
            leaving: Vec::new(),
            departing: 0,
            held_back: false,
            reloading: Vec::new(),
            closing_waits: Vec::new(),
            gates: BTreeMap::new(),
            paused: false,
            shutdown: None,
            quiet: 0,
            told_quiet: false,
            stats_deadline: Deadline::default(),
            load_deadline: Deadline::default(),
            loads_deadline: Deadline::default(),
            busy_permille: 0,
            told_busy_permille: None,
            load_at: Time(0),
            crowded: false,
            kills_of_all: 0,
            kills_by_database: BTreeMap::new(),
            sheddings: 0,
            handed_over: 0,
            clients_moved: 0,
            letters_sent: 0,
            config,
            #[cfg(feature = "planted")]
            planted: None,
            #[cfg(feature = "planted")]
            planted_chances: 0,
        };
        worker.arm_stats();
        worker.fill_forced_pools();
        worker.finish();
        worker
    }

    /// The name for a connection that the driver is about to hand in.
    pub fn reserve(&mut self, side: Side) -> ConnId {
        let number = self.next_number();
        match side {
            Side::Client => self.clients.insert(Client::reserved(self.now, number)),
            Side::Server => {
                let nothing = Arc::clone(&self.no_parameters);
                self.servers.insert(Server::new(ServerState::Reserved, NO_POOL, nothing, self.now, number))
            }
        }
    }

    /// Takes one input; for `Bytes`, answers how many of them were taken.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> usize {
        debug_assert!(now >= self.now, "time never goes back");
        self.now = now;
        self.out.begin();
        let consumed = match input {
            Input::Bytes { conn, bytes } => match conn.side {
                Side::Client => self.client_bytes(conn, bytes),
                Side::Server => self.server_bytes(conn, bytes),
            },
            input => {
                self.dispatch(input);
                0
            }
        };
        self.finish();
        consumed
    }

    /// What an input has left to do: pools to serve, letters to ourselves.
    fn finish(&mut self) {
        loop {
            self.serve_scheduled();
            if let Some((client, to)) = self.leaving.pop() {
                self.depart(client, to);
                continue;
            }
            let Some(letter) = self.own_letters.pop_front() else { break };
            self.read_letter(self.config.id, letter, None);
        }
        if self.timers.is_crowded() {
            self.sweep_timers();
        }
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.out.poll()
    }

    /// The bytes of a `Span::Made`; empty for a span of received bytes.
    pub fn made(&self, span: Span) -> &[u8] {
        self.out.made(span)
    }

    /// When `Input::Timeout` is due at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Clients that this worker sent to another one.
    pub fn clients_moved(&self) -> u64 {
        self.clients_moved
    }

    /// Servers that went from worker to worker, and all messages to other workers: the cost of being many.
    pub fn messages_sent(&self) -> (u64, u64) {
        (self.handed_over, self.letters_sent)
    }

    /// Breaks a law on purpose, to see whether it is noticed.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        self.planted = Some(bug);
    }

    /// Whether the planted bug strikes this time.
    #[cfg(feature = "planted")]
    pub(crate) fn planted_now(&mut self, bug: crate::planted::Planted) -> bool {
        if self.planted != Some(bug) {
            return false;
        }
        self.planted_chances += 1;
        self.planted_chances.is_multiple_of(13)
    }

    fn dispatch(&mut self, input: Input<'_>) {
        match input {
            Input::Bytes { .. } => {}
            Input::Accepted { conn, peer, local } => self.accepted(conn, peer, local),
            Input::Closed { conn } => match conn.side {
                Side::Client => self.client_closed(conn),
                Side::Server => {
                    self.server_closed(conn);
                    self.closing_progress();
                }
            },
            Input::Connected { conn, peer, local } => {
                if let Some(server) = self.servers.get_mut(conn) {
                    (server.peer, server.local) = (Some(peer), Some(local));
                }
                self.server_connected(conn);
            }
            Input::ConnectFailed { conn, reason } => {
                self.connect_failed(conn, reason);
                self.closing_progress();
            }
            Input::Congested { conn } => self.congested(conn, true),
            Input::Writable { conn } => self.congested(conn, false),
            Input::TlsReady { conn, tls } => match conn.side {
                Side::Client => self.client_tls_ready(conn, tls),
                Side::Server => self.server_tls_ready(conn, tls),
            },
            Input::Derived { job, salted_password } => self.derived(job, salted_password),
            Input::Settings(settings) => self.new_settings(settings),
            Input::Command(command) => self.command(command),
            Input::Mail { from, mail, conn } => self.read_letter(from, mail.0, conn),
            Input::Load { busy_permille } => self.load_measured(busy_permille),
            Input::Crowded { full } => {
                self.crowded = full;
                self.tell_steward(Letter::Crowded { full });
            }
            Input::ReloadDone { result } => self.reload_done(&result),
            Input::Timeout => self.timeout(),
        }
    }

    pub(crate) fn client_bytes(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let Some(client) = self.clients.get(id) else { return bytes.len() };
        match client.state {
            ClientState::Login(_) => self.login_bytes(id, bytes),
            ClientState::Ready(_) => self.session_bytes(id, bytes),
            ClientState::Console(_) => self.console_bytes(id, bytes),
            ClientState::Reserved | ClientState::CancelRequest | ClientState::Closing | ClientState::Departed => {
                bytes.len()
            }
        }
    }

    pub(crate) fn server_bytes(&mut self, id: ConnId, bytes: &[u8]) -> usize {
        let Some(server) = self.servers.get(id) else { return bytes.len() };
        match server.state {
            ServerState::Making(_) => self.making_bytes(id, bytes),
            ServerState::Reserved | ServerState::Canceller { .. } | ServerState::Closing => bytes.len(),
            _ => self.server_session_bytes(id, bytes),
        }
    }

    // Connections come and go.

    fn accepted(&mut self, id: ConnId, peer: Peer, local: Peer) {
        let place = self.steward.as_mut().and_then(|steward| steward.accept(&self.settings));
        match place {
            Some(worker) if worker == self.config.id => self.begin_client(id, peer, local),
            Some(worker) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.state = ClientState::Closing;
                }
                self.send_mail(worker, Letter::Client { peer, local }, Some(id));
            }
            None => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.state = ClientState::Closing;
                }
                self.log_warning("too many connections that have not logged in: one more was closed".to_owned());
                self.out.close(id);
            }
        }
    }

    pub(crate) fn begin_client(&mut self, id: ConnId, peer: Peer, local: Peer) {
        let now = self.now;
        if let Some(client) = self.clients.get_mut(id) {
            client.state = ClientState::Login(Box::new(Login::new()));
            (client.peer, client.local, client.connected_at) = (peer, local, now);
            client.counted = true;
        }
        self.arm_client(id);
    }

    fn client_closed(&mut self, id: ConnId) {
        if self.clients.get(id).is_some_and(|client| matches!(client.state, ClientState::Departed)) {
            self.clients.remove(id);
            self.has_departed();
            return self.look_quiet();
        }
        self.leave(id, "the client closed the connection");
        let Some(client) = self.clients.remove(id) else { return };
        if client.counted {
            let moved = (client.moved.moves > 0).then_some(client.moved);
            self.tell_steward(Letter::Gone { admitted: client.admitted, moved });
        }
        self.look_quiet();
    }

    // Pools and settings.

    /// The pool of this name, made where it is not there yet; `None` where the settings know no such database.
    pub(crate) fn pool_for(&mut self, name: &Arc<PoolName>) -> Option<u32> {
        if let Some(index) = self.pools.find(name) {
            self.settings.database(&name.database)?;
            return Some(index);
        }
        let database = Arc::clone(self.settings.database(&name.database)?);
        let mut pool = Pool::new(Arc::clone(name), database, &self.settings);
        pool.gate = match self.gates.get(&name.database) {
            Some(gate) => *gate,
            None if self.paused => Gate::Paused,
            None => Gate::Open,
        };
        Some(self.pools.add(pool))
    }

    /// Pools of databases with a forced user are filled without waiting for a client.
    fn fill_forced_pools(&mut self) {
        if self.config.id != WorkerId::STEWARD {
            return;
        }
        let settings = Arc::clone(&self.settings);
        for (name, database) in &settings.databases {
            if let Some(user) = &database.forced_user {
                let name = Arc::new(PoolName { database: Arc::clone(name), user: Arc::clone(user) });
                if let Some(index) = self.pool_for(&name) {
                    self.fill(index);
                }
            }
        }
    }

    fn new_settings(&mut self, settings: Arc<Settings>) {
        self.settings = settings;
        let settings = Arc::clone(&self.settings);
        for index in self.pools.indexes() {
            let name = Arc::clone(&self.pools[index].name);
            match settings.database(&name.database) {
                Some(database) => {
                    let password_changed = self.pools[index].database.forced_password != database.forced_password;
                    if !self.pools[index].renew(Arc::clone(database), &settings) || password_changed {
                        self.mark_servers(index);
                    }
                    self.ask(index);
                }
                None => {
                    for id in self.clients.ids() {
                        if self.clients.get(id).is_some_and(|client| client.pool == index) {
                            self.fail_client(id, &crate::failure::Failure::DatabaseRemoved);
                        }
                    }
                    self.mark_servers(index);
                }
            }
        }
        for id in self.clients.ids() {
            if let Some(session) = self.clients.get_mut(id).and_then(|client| client.session_mut()) {
                session.limits = Limits::of(&settings, &session.user);
            }
        }
        self.fill_forced_pools();
        if let Some(steward) = &mut self.steward {
            steward.serve(self.now, &settings);
        }
        self.post_stewards_letters();
        self.arm_stats();
    }

    // Time.

    fn timeout(&mut self) {
        while let Some(entry) = self.timers.pop(self.now) {
            match entry.subject {
                Subject::Conn(id) if id.side == Side::Client => {
                    let Some(client) = self.clients.get_mut(id) else { continue };
                    if self.timers.due(entry, &mut client.deadline, self.now) {
                        self.client_due(id);
                    }
                }
                Subject::Conn(id) => {
                    let Some(server) = self.servers.get_mut(id) else { continue };
                    if self.timers.due(entry, &mut server.deadline, self.now) {
                        self.server_due(id);
                    }
                }
                Subject::Pool(index) => {
                    let pool = &mut self.pools[index];
                    if self.timers.due(entry, &mut pool.deadline, self.now) {
                        self.pool_due(index);
                    }
                }
                Subject::Load => {
                    if self.timers.due(entry, &mut self.load_deadline, self.now) {
                        self.load_due();
                    }
                }
                Subject::Loads => {
                    if self.timers.due(entry, &mut self.loads_deadline, self.now) {
                        self.look_at_loads();
                    }
                }
                Subject::Stats => {
                    if self.timers.due(entry, &mut self.stats_deadline, self.now) {
                        self.take_averages();
                        self.arm_stats();
                    }
                }
            }
        }
    }

    /// Connections that are gone leave their entries behind.
    #[cold]
    fn sweep_timers(&mut self) {
        let mut timers = std::mem::take(&mut self.timers);
        timers.sweep(|entry| match entry.subject {
            Subject::Conn(id) if id.side == Side::Client => {
                self.clients.get(id).is_some_and(|client| entry.is_of(&client.deadline))
            }
            Subject::Conn(id) => self.servers.get(id).is_some_and(|server| entry.is_of(&server.deadline)),
            Subject::Pool(index) => entry.is_of(&self.pools[index].deadline),
            Subject::Load => entry.is_of(&self.load_deadline),
            Subject::Loads => entry.is_of(&self.loads_deadline),
            Subject::Stats => entry.is_of(&self.stats_deadline),
        });
        self.timers = timers;
    }

    fn arm_stats(&mut self) {
        let due = self.settings.stats_period.limit().map_or(Time::NEVER, |period| self.now + period);
        self.timers.set(Subject::Stats, &mut self.stats_deadline, due);
    }

    fn take_averages(&mut self) {
        let period = self.settings.stats_period;
        for index in self.pools.indexes() {
            let pool = &mut self.pools[index];
            pool.averages = pool.counters.averages(&pool.counters_before, period);
            pool.counters_before = pool.counters;
        }
    }

    // Small things that many need.

    pub(crate) fn derive(&mut self, job: Job, password: &str, salt: Vec<u8>, iterations: u32) {
        self.next_job = self.next_job.wrapping_add(1);
        self.jobs.insert(self.next_job, job);
        self.out.derive(self.next_job, password, salt, iterations);
    }

    fn derived(&mut self, job: u32, salted: [u8; 32]) {
        match self.jobs.remove(&job) {
            Some(Job::Password { client }) => self.password_derived(client, &salted),
            Some(Job::Verifier { client, user, password }) => self.verifier_derived(client, user, password, &salted),
            Some(Job::Server(server)) => self.server_derived(server, salted),
            None => {}
        }
    }

    pub(crate) fn random<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut bytes = [0; COUNT];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }

    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number * u64::from(self.config.workers) + u64::from(self.config.id.0)
    }

    /// A positive number that no other session of the process has.
    pub(crate) fn next_process_id(&mut self) -> u32 {
        loop {
            self.next_process_id = self.next_process_id.wrapping_add(1);
            // What is left of it when divided by the workers is our own name.
            let workers = u32::from(self.config.workers);
            let number = (self.next_process_id % (0x7fff_ffff / workers)) * workers + u32::from(self.config.id.0);
            if number != 0 && !self.cancel_keys.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn pool_label(&self, index: u32) -> String {
        if index == NO_POOL {
            return "(cancel)".to_owned();
        }
        let name = &self.pools[index].name;
        format!("{}/{}", name.database, name.user)
    }

    pub(crate) fn log_debug(&mut self, text: String) {
        self.out.log(Level::Debug, text);
    }

    pub(crate) fn log_info(&mut self, text: String) {
        self.out.log(Level::Info, text);
    }

    pub(crate) fn log_warning(&mut self, text: String) {
        self.out.log(Level::Warning, text);
    }
}
