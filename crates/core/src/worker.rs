//! One worker: the clients and servers of one thread, and the way of each input to whoever deals with it.

use std::sync::Arc;

use crate::authentication::Known;
use crate::client::{Client, ClientState};
use crate::console::report::Question;
use crate::context::{Context, WorkerConfig};
use crate::contract::peer::Peer;
use crate::contract::{Input, Output, Span};
use crate::derivations::{Derivations, Derived, Job};
use crate::failure::Failure;
use crate::gates::{Gates, Rounds};
use crate::id::{ClientId, ConnId, Party, ServerId, Side, Table, WorkerId};
use crate::invariants::Invariants;
use crate::load::LoadMeter;
use crate::login::Login;
use crate::mail::Letter;
use crate::moving::Departures;
use crate::names::{CANCEL_LABEL, PoolName};
use crate::pool::{NO_POOL, Pool, Pools};
use crate::process::Shutdown;
use crate::server::{Server, ServerState};
use crate::settings::Settings;
use crate::stats::{Averages, Counters};
use crate::steward::Steward;
use crate::time::Time;
use crate::timers::Deadline;
use crate::whereabouts::Sessions;

/// What one input may lead to, at most: so many steps, and so many more for each connection, pool and want. A step is a timer, a
/// server given to a client, a client sent away, a letter to ourselves or a want that the steward tries to serve.
const STEPS_MAX: u64 = 4096;
const STEPS_PER_NAME_MAX: u64 = 8;

/// One worker. See [`crate::contract`] for how to drive it.
#[derive(Debug)]
pub struct Worker {
    pub(crate) cx: Context,
    pub(crate) clients: Table<ClientId, Client>,
    pub(crate) servers: Table<ServerId, Server>,
    pub(crate) pools: Pools,
    /// Pools that may have somebody to serve.
    pub(crate) to_serve: Vec<u32>,
    pub(crate) sessions: Sessions,
    /// Cancels under way: the number of the server, and whom to tell.
    pub(crate) cancels_waiting: Vec<(u64, WorkerId, ClientId)>,
    pub(crate) known: Known,
    pub(crate) derivations: Derivations,
    /// Clients that came so far; the steward counts them.
    accepted: u64,
    /// What is one for the whole process; worker 0 has it.
    pub(crate) steward: Option<Steward>,
    pub(crate) departures: Departures,
    pub(crate) reloading: Vec<ClientId>,
    /// Consoles that wait until servers are closed.
    pub(crate) closing_waits: Vec<(WorkerId, Option<ClientId>, Question)>,
    pub(crate) gates: Gates,
    pub(crate) shutdown: Shutdown,
    pub(crate) averages: Averages,
    /// What the console was asked: in its row of SHOW STATS.
    pub(crate) console_counters: Counters,
    pub(crate) load: LoadMeter,
    pub(crate) loads_deadline: Deadline,
    /// The driver takes no more connections here.
    pub(crate) crowded: bool,
    /// KILL and RECONNECT, for clients and servers that are on their way when they are given.
    pub(crate) kills: Rounds,
    pub(crate) reconnects: Rounds,
    pub(crate) handed_over: u64,
    /// What the input in hand has led to so far; only counted where assertions are on.
    steps: u64,
    invariants: Invariants,
}

impl Worker {
    pub fn new(config: WorkerConfig, settings: Arc<Settings>) -> Self {
        let steward = (config.id == WorkerId::STEWARD).then(|| Steward::new(config.workers));
        let known = Known::of(&settings);
        let (id, workers) = (config.id, config.workers);
        let mut cx = Context::new(config, settings);
        let given = u32::from_ne_bytes(cx.random());
        let mut worker = Self {
            cx,
            clients: Table::default(),
            servers: Table::default(),
            pools: Pools::default(),
            to_serve: Vec::new(),
            sessions: Sessions::new(id, workers, given),
            cancels_waiting: Vec::new(),
            known,
            derivations: Derivations::default(),
            accepted: 0,
            steward,
            departures: Departures::default(),
            reloading: Vec::new(),
            closing_waits: Vec::new(),
            gates: Gates::default(),
            shutdown: Shutdown::default(),
            averages: Averages::default(),
            console_counters: Counters::default(),
            load: LoadMeter::default(),
            loads_deadline: Deadline::default(),
            crowded: false,
            kills: Rounds::default(),
            reconnects: Rounds::default(),
            handed_over: 0,
            steps: 0,
            invariants: Invariants::default(),
        };
        worker.arm_stats();
        worker.fill_forced_pools();
        worker.finish();
        worker
    }

    /// The name for a connection that the driver is about to hand in.
    pub fn reserve(&mut self, side: Side) -> ConnId {
        match side {
            Side::Client => self.clients.insert(Client::reserved(self.cx.now)).into(),
            Side::Server => {
                let number = self.cx.next_number();
                let nothing = Arc::clone(&self.cx.no_parameters);
                let server = Server::new(ServerState::Reserved, NO_POOL, nothing, self.cx.now, number);
                self.servers.insert(server).into()
            }
        }
    }

    /// Takes one input; for `Bytes`, answers how many of them were taken.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> usize {
        debug_assert!(now >= self.cx.now, "time never goes back");
        self.cx.now = now;
        self.steps = 0;
        self.cx.out.begin();
        let consumed = match input {
            Input::Bytes { conn, bytes } => match conn.party() {
                Party::Client(client) => self.client_bytes(client, bytes),
                Party::Server(server) => self.server_bytes(server, bytes),
            },
            input => {
                self.dispatch(input);
                0
            }
        };
        self.finish();
        if cfg!(debug_assertions) {
            self.invariants.check(&self.clients, &self.servers, &self.pools);
        }
        consumed
    }

    /// One more thing that this input leads to. Nothing that it leads to may lead to itself for ever.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.count_steps(1);
    }

    #[inline]
    pub(crate) fn count_steps(&mut self, count: u64) {
        if cfg!(debug_assertions) {
            self.steps += count;
            let wants = self.steward.as_ref().map_or(0, Steward::wants);
            let names = self.clients.len() + self.servers.len() + self.pools.indexes().len() + wants;
            assert!(
                self.steps <= STEPS_MAX + STEPS_PER_NAME_MAX * names as u64,
                "one input leads to {} steps",
                self.steps
            );
        }
    }

    /// What an input has left to do: pools to serve, letters to ourselves.
    fn finish(&mut self) {
        loop {
            self.serve_scheduled();
            if let Some((client, to)) = self.departures.next() {
                self.step();
                self.depart(client, to);
                continue;
            }
            let Some(letter) = self.cx.next_letter() else { break };
            self.step();
            self.read_letter(self.cx.config.id, letter, None);
        }
        if self.cx.timers.is_crowded() {
            self.sweep_timers();
        }
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.cx.out.poll()
    }

    /// The bytes of a `Span::Made`; empty for a span of received bytes.
    pub fn made(&self, span: Span) -> &[u8] {
        self.cx.out.made(span)
    }

    /// When `Input::Timeout` is due at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.cx.timers.next()
    }

    /// Clients that this worker sent to another one.
    pub fn clients_moved(&self) -> u64 {
        self.departures.moved()
    }

    /// Servers that went from worker to worker, and all messages to other workers: the cost of being many.
    pub fn messages_sent(&self) -> (u64, u64) {
        (self.handed_over, self.cx.letters_sent())
    }

    /// Breaks a law on purpose, to see whether it is noticed.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        self.cx.planted = Some(bug);
        self.cx.parameter_sets.planted = Some(bug);
    }

    fn dispatch(&mut self, input: Input<'_>) {
        match input.conn().map(ConnId::party) {
            Some(Party::Client(id)) => self.client_input(id, input),
            Some(Party::Server(id)) => self.server_input(id, input),
            None => self.process_input(input),
        }
    }

    fn client_input(&mut self, id: ClientId, input: Input<'_>) {
        match input {
            Input::Accepted { peer, local, .. } => self.accepted(id, peer, local),
            Input::Ended { .. } => self.client_ended(id),
            Input::Closed { .. } => self.client_closed(id),
            Input::Congested { .. } => self.client_congested(id, true),
            Input::Writable { .. } => self.client_congested(id, false),
            Input::TlsReady { tls, .. } => self.client_tls_ready(id, tls),
            Input::Stays { mail, .. } => self.stays(id, mail.0),
            other => debug_assert!(false, "not of a client: {other:?}"),
        }
    }

    fn server_input(&mut self, id: ServerId, input: Input<'_>) {
        match input {
            Input::Closed { .. } => {
                self.server_closed(id);
                self.closing_progress();
            }
            Input::Connected { peer, local, .. } => {
                if let Some(server) = self.servers.get_mut(id) {
                    (server.peer, server.local) = (Some(peer), Some(local));
                }
                self.making_input(id, |login| login.connected());
            }
            Input::ConnectFailed { reason, .. } => {
                self.connect_failed(id, reason);
                self.closing_progress();
            }
            Input::Congested { .. } => self.server_congested(id, true),
            Input::Writable { .. } => self.server_congested(id, false),
            Input::TlsReady { tls, .. } => self.making_input(id, |login| login.tls_ready(tls)),
            Input::TlsFailed { reason, .. } => self.server_tls_failed(id, &reason),
            other => debug_assert!(false, "not of a server: {other:?}"),
        }
    }

    /// What is of no connection, or brings one.
    fn process_input(&mut self, input: Input<'_>) {
        match input {
            Input::Derived { job, salted_password } => self.derived(job, salted_password),
            Input::Settings(settings) => self.new_settings(settings),
            Input::Command(command) => self.command(command),
            Input::Mail { from, mail, conn } => self.read_letter(from, mail.0, conn),
            Input::Load { busy_permille } => self.load.measured(busy_permille, &mut self.pools, &mut self.cx),
            Input::Crowded { full } => {
                self.crowded = full;
                self.cx.tell_steward(Letter::Crowded { full });
            }
            Input::ReloadDone { result } => self.reload_done(&result),
            Input::Stop => self.stop(),
            Input::Timeout => self.timeout(),
            other => debug_assert!(false, "of a connection: {other:?}"),
        }
    }

    pub(crate) fn client_bytes(&mut self, id: ClientId, bytes: &[u8]) -> usize {
        let Some(client) = self.clients.get(id) else { return bytes.len() };
        match client.state {
            ClientState::Login(_) => self.login_bytes(id, bytes),
            ClientState::Ready(_) => self.session_bytes(id, bytes),
            ClientState::Console(_) => self.console_bytes(id, bytes),
            ClientState::Reserved
            | ClientState::CancelRequest { .. }
            | ClientState::Closing
            | ClientState::Departed => bytes.len(),
        }
    }

    pub(crate) fn server_bytes(&mut self, id: ServerId, bytes: &[u8]) -> usize {
        let Some(server) = self.servers.get(id) else { return bytes.len() };
        match server.state {
            ServerState::Making(_) => self.making_bytes(id, bytes),
            ServerState::Reserved | ServerState::Canceller { .. } | ServerState::Closing => bytes.len(),
            _ => self.server_session_bytes(id, bytes),
        }
    }

    // Connections come and go.

    fn accepted(&mut self, id: ClientId, peer: Peer, local: Peer) {
        let place = self.steward.as_mut().and_then(|steward| steward.accept(&self.cx.settings));
        self.accepted += u64::from(place.is_some());
        let number = self.accepted;
        match place {
            Some(worker) if worker == self.cx.config.id => self.begin_client(id, peer, local, number),
            Some(worker) => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.state = ClientState::Closing;
                }
                self.cx.send_mail(worker, Letter::Client { peer, local, number }, Some(id.into()));
            }
            None => {
                if let Some(client) = self.clients.get_mut(id) {
                    client.state = ClientState::Closing;
                }
                self.cx.log_warning("too many connections that have not logged in: one more was closed".to_owned());
                self.cx.out.close(id);
            }
        }
    }

    pub(crate) fn begin_client(&mut self, id: ClientId, peer: Peer, local: Peer, number: u64) {
        let now = self.cx.now;
        if let Some(client) = self.clients.get_mut(id) {
            client.state = ClientState::Login(Box::new(Login::new()));
            (client.peer, client.local, client.connected_at) = (peer, local, now);
            client.counted = true;
            client.number = number;
        }
        if self.shutdown.is_at_once() {
            return self.fail_client(id, &Failure::NoNewClients);
        }
        self.arm_client(id);
    }

    fn client_closed(&mut self, id: ClientId) {
        if self.clients.get(id).is_some_and(|client| matches!(client.state, ClientState::Departed)) {
            self.clients.remove(id);
            self.has_departed();
            return self.look_quiet();
        }
        self.leave(id, "the client closed the connection");
        let Some(client) = self.clients.remove(id) else { return };
        if client.counted {
            let moved = (client.moved.moves > 0).then_some(client.moved);
            self.cx.tell_steward(Letter::Gone { admitted: client.admitted, moved });
        }
        self.look_quiet();
    }

    // Pools.

    /// The pool of this name, made where it is not there yet; `None` where the settings know no such database.
    pub(crate) fn pool_for(&mut self, name: &Arc<PoolName>) -> Option<u32> {
        if let Some(index) = self.pools.find(name) {
            self.cx.settings.database(&name.database)?;
            return Some(index);
        }
        let database = Arc::clone(self.cx.settings.database(&name.database)?);
        let mut pool = Pool::new(Arc::clone(name), database, &self.cx.settings);
        pool.gate = self.gates.of(&name.database);
        Some(self.pools.add(pool))
    }

    /// Pools of databases with a forced user are filled without waiting for a client.
    pub(crate) fn fill_forced_pools(&mut self) {
        if self.cx.config.id != WorkerId::STEWARD {
            return;
        }
        let settings = Arc::clone(&self.cx.settings);
        for (name, database) in &settings.databases {
            if let Some(user) = &database.forced_user {
                let name = Arc::new(PoolName { database: Arc::clone(name), user: Arc::clone(user) });
                if let Some(index) = self.pool_for(&name) {
                    self.fill(index);
                }
            }
        }
    }

    // Small things that many need.

    fn derived(&mut self, number: u32, salted: [u8; 32]) {
        let Some((recipe, jobs)) = self.derivations.done(number) else { return };
        let derived = Derived { recipe, salted };
        for job in jobs {
            match job {
                Job::Password { client } => self.login_input(client, |login| login.password_derived(&derived)),
                Job::Verifier { user, client } => self.verifier_derived(&user, client, &derived),
                Job::Server { server, .. } => self.server_derived(server, &derived),
            }
        }
        self.cx.begin_derivations(&mut self.derivations);
    }

    pub(crate) fn pool_label(&self, index: u32) -> String {
        if index == NO_POOL { CANCEL_LABEL.to_owned() } else { self.pools[index].name.label() }
    }
}
