//! One worker: the clients and servers of one thread.
//!
//! What it holds lies in four layers, each of which has the one below it, and cannot reach the one above: whoever frees a server cannot come to the
//! steward. A room, which is a file here, is methods of one layer. Inputs come in at the top (`dispatch.rs`).

mod asking;
mod cancel;
mod channels;
mod checking;
mod closing;
mod clusters;
mod consoles;
mod databases;
mod deadlines;
mod departures;
mod dispatch;
mod ends;
mod flow;
mod greeting;
mod guests;
mod half_closed;
mod handover;
mod invariants;
mod letters;
pub(crate) mod lines;
mod link;
mod listener;
mod load;
mod lookups;
mod losses;
mod moving;
mod orders;
mod overdue;
mod patience;
mod peers;
mod pins;
mod process;
mod recover;
mod release;
mod reload;
mod route;
mod routing;
mod serving;
mod supply;
mod surveying;
mod traffic;
mod tunnels;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::client::Client;
use crate::console::report::Question;
use crate::context::{Context, WorkerConfig};
use crate::contract::{Input, Output, Span};
use crate::derivations::Derivations;
use crate::id::{ClientId, ConnId, Party, ServerId, Side, Table, WorkerId};
use crate::login::authentication::Known;
use crate::pool::Pools;
use crate::pool::gates::{Gates, Rounds};
use crate::server::Server;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::stats::{Averages, Counters};
use crate::steward::Steward;
use crate::time::Time;
use crate::timers::Deadline;
use crate::whereabouts::Sessions;
use crate::whither::Whither;
use crate::worker::departures::Departures;
use crate::worker::invariants::Invariants;
use crate::worker::lines::Lines;
use crate::worker::load::LoadMeter;

/// One worker. See [`crate::contract`] for how to drive it.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    invariants: Invariants,
}

/// The worker as a part of the process: what is one for all workers, or told to all.
#[derive(Debug)]
struct Process {
    service: Service,
    /// What is one for the whole process; worker 0 has it.
    steward: Option<Steward>,
    /// Consoles that wait until servers are closed.
    closing_waits: Vec<(WorkerId, ClientId, Question)>,
    averages: Averages,
    loads_deadline: Deadline,
    handover_deadline: Deadline,
}

/// How clients are let in, served, found by a cancel and sent elsewhere, and how servers are made for them.
#[derive(Debug)]
struct Service {
    traffic: Traffic,
    sessions: Sessions,
    cancels_waiting: Vec<cancel::Waiting>,
    /// Cancel requests for sessions of other processes; the steward's worker passes them on.
    strays: Lines,
    known: Known,
    derivations: Derivations,
    /// What the console was asked: in its row of SHOW STATS.
    console_counters: Counters,
    load: LoadMeter,
    /// The driver takes no more connections here.
    crowded: bool,
    /// KILL and RECONNECT, for clients and servers that are on their way when they are given.
    kills: Rounds,
    reconnects: Rounds,
    whither: Whither,
    handed_over: u64,
}

/// Clients, servers and pools: how the ones are freed and closed, and what the others are asked for.
#[derive(Debug)]
struct Traffic {
    cx: Context,
    clients: Table<ClientId, Client>,
    servers: Table<ServerId, Server>,
    pools: Pools,
    /// Pools that may have somebody to serve.
    to_serve: Vec<u32>,
    /// And those where somebody may still miss a server behind that.
    to_ask: Vec<u32>,
    /// Pools of whose code more is known than before.
    code_known: Vec<u32>,
    /// Servers that may owe nothing any more.
    settling: Vec<ServerId>,
    /// Clients that are read again.
    woken: VecDeque<ClientId>,
    /// And those that are at RESUME.
    suspended: BTreeSet<ClientId>,
    departures: Departures,
    gates: Gates,
    shutdown: Shutdown,
    unused_deadline: Deadline,
    /// What the input in hand has led to so far, and what the steward has to serve, where it is here; only counted where assertions are on.
    steps: u64,
    wants: usize,
}

impl Worker {
    pub fn new(config: WorkerConfig, settings: Arc<Settings>) -> Self {
        let steward = (config.id == WorkerId::STEWARD)
            .then(|| Steward::new(config.workers, Arc::clone(&settings), config.predecessor.is_some()));
        let known = Known::of(&settings);
        let (id, workers) = (config.id, config.workers);
        let mut traffic = Traffic::new(config, settings);
        let given = u32::from_ne_bytes(traffic.cx.random());
        let service = Service {
            traffic,
            sessions: Sessions::new(id, workers, given),
            cancels_waiting: Vec::new(),
            strays: Lines::default(),
            known,
            derivations: Derivations::default(),
            console_counters: Counters::default(),
            load: LoadMeter::default(),
            crowded: false,
            kills: Rounds::default(),
            reconnects: Rounds::default(),
            whither: Whither::default(),
            handed_over: 0,
        };
        let mut process = Process {
            service,
            steward,
            closing_waits: Vec::new(),
            averages: Averages::default(),
            loads_deadline: Deadline::default(),
            handover_deadline: Deadline::default(),
        };
        process.begin();
        Self { process, invariants: Invariants::default() }
    }

    /// The name for a connection that the driver is about to hand in.
    pub fn reserve(&mut self, side: Side) -> ConnId {
        self.traffic_mut().reserve(side)
    }

    /// Takes one input; for `Bytes`, answers how many of them were taken.
    pub fn handle(&mut self, now: Time, input: Input<'_>) -> usize {
        self.traffic_mut().begin(now);
        if cfg!(debug_assertions) {
            self.traffic_mut().wants = self.process.steward.as_ref().map_or(0, Steward::wants);
        }
        let consumed = match input {
            Input::Bytes { conn, bytes } => match conn.party() {
                Party::Client(client) => self.process.service.client_bytes(client, bytes),
                Party::Server(server) => self.process.service.server_bytes(server, bytes),
            },
            input => {
                self.process.dispatch(input);
                0
            }
        };
        self.process.finish();
        if cfg!(debug_assertions) {
            self.invariants.check(&self.process);
        }
        consumed
    }

    pub fn poll_output(&mut self) -> Option<Output> {
        self.traffic_mut().cx.out.poll()
    }

    /// The bytes of a `Span::Made`; empty for a span of received bytes.
    pub fn made(&self, span: Span) -> &[u8] {
        self.traffic().cx.out.made(span)
    }

    /// When `Input::Timeout` is due at the latest.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.traffic().cx.timers.next()
    }

    /// Whether this client has not been let in yet: its bytes may wait while others' are dealt with.
    pub fn is_logging_in(&self, id: ClientId) -> bool {
        self.traffic().is_logging_in(id)
    }

    /// Clients that this worker sent to another one.
    pub fn clients_moved(&self) -> u64 {
        self.traffic().departures.moved()
    }

    /// Servers that went from worker to worker, and all messages to other workers: the cost of being many.
    pub fn messages_sent(&self) -> (u64, u64) {
        (self.process.service.handed_over, self.traffic().cx.letters_sent())
    }

    /// Breaks a law on purpose, to see whether it is noticed.
    #[cfg(feature = "planted")]
    pub fn plant(&mut self, bug: crate::planted::Planted) {
        let cx = &mut self.traffic_mut().cx;
        cx.planted = Some(bug);
        cx.parameter_sets.planted = Some(bug);
    }

    fn traffic(&self) -> &Traffic {
        &self.process.service.traffic
    }

    fn traffic_mut(&mut self) -> &mut Traffic {
        &mut self.process.service.traffic
    }
}
