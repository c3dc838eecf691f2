//! The world of one run: a calendar of events in virtual time, and everyone who lives in it.
//!
//! Knows who is there and what happens when. What drivers, servers, clients and faults do is theirs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use weir_core::contract::{LINGER, Mail};
use weir_core::settings::Route;
use weir_core::time::{Duration, Time};
use weir_core::{Command, ConnId, Numbers, Settings, Worker, WorkerConfig, WorkerId};

use crate::Options;
use crate::checks::Checks;
use crate::client::Client;
use crate::departures::Departures;
use crate::driver::{Conn, Host, Todo};
use crate::faults::Fault;
use crate::network::{Link, LinkId};
use crate::plan::Plan;
use crate::postgres::Cluster;
use crate::postgres::backend::Backend;
use crate::postgres::sharded::{SHARDED, Sharded};
use crate::report::Counts;
use crate::rng::Rng;
use crate::trace::Digest;

/// A database, a user, and the node of a cluster whose servers they are.
pub type PoolOf = (String, String, Option<usize>);

/// Something that happens at its time.
pub enum Event {
    Up(LinkId),
    Down(LinkId),
    Client(usize),
    Backend(usize),
    Timer(usize, Time),
    Mail(usize, usize),
    TlsReady(usize, ConnId),
    LingerOver { worker: usize, conn: ConnId, unsent: usize },
    Connected { worker: usize, conn: ConnId, cluster: usize, node: Option<usize> },
    Accept(LinkId),
    Todo(usize, Option<Todo>),
    Fault(Fault),
    Load,
}

struct Entry {
    at: Time,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// Mail on its way, with the name that its connection had.
pub struct Parcel {
    pub mail: Mail,
    pub old: Option<ConnId>,
    pub conn: Option<Conn>,
}

pub struct World {
    pub now: Time,
    pub rng: Rng,
    pub plan: Plan,
    pub settings: Arc<Settings>,
    /// Up to then some worker may have looked at no passwords.
    pub trusted_until: Time,
    /// When these settings came to hold.
    pub settings_since: Time,
    /// Those of before, and until when some worker may have followed them.
    former: Vec<(Arc<Settings>, Time)>,
    calendar: BinaryHeap<Reverse<Entry>>,
    order: u64,
    pub hosts: Vec<Host>,
    pub links: Vec<Link>,
    /// Which connection of which worker a link ends at.
    pub owners: Vec<Option<(usize, ConnId)>>,
    pub clusters: Vec<Cluster>,
    pub backends: Vec<Option<Backend>>,
    /// What the servers share that are a cluster.
    pub sharded: Option<Sharded>,
    pub clients: Vec<Client>,
    pub next_client_number: u32,
    /// Servers' sessions that the pooler has open, with their pool.
    pub sessions: BTreeMap<LinkId, PoolOf>,
    pub parcels: BTreeMap<(usize, usize), VecDeque<Parcel>>,
    pub last_mail: BTreeMap<(usize, usize), Time>,
    pub checks: Checks,
    pub counts: Counts,
    pub digest: Digest,
    pub departures: Departures,
    /// The worker that has most to do at the moment, if one has.
    hot: usize,
    /// Counts `Read { on: true }`, so that a step can tell whether one was put out in it.
    pub reads_on: u64,
    pub listening: bool,
    pub exited: bool,
    /// Faults are over and no new work begins.
    pub quiet: bool,
    pub paused: bool,
    pub shutting_down: bool,
    pub tracing: bool,
    /// There is no pooler.
    pub direct: bool,
    /// The other link of a client or server that is joined without a pooler.
    pub pairs: Vec<Option<LinkId>>,
}

impl World {
    pub fn new(plan: Plan, rng: Rng, departures: Departures, options: Options) -> Self {
        let settings = Arc::new(plan.settings.clone());
        let mut world = Self {
            now: Time(0),
            rng,
            trusted_until: if Plan::trusts(&settings) { Time::NEVER } else { Time(0) },
            settings_since: Time(0),
            former: Vec::new(),
            settings,
            calendar: BinaryHeap::new(),
            order: 0,
            hosts: Vec::new(),
            links: Vec::new(),
            owners: Vec::new(),
            clusters: Vec::new(),
            backends: Vec::new(),
            sharded: plan.sharded.clone().map(Sharded::new),
            clients: Vec::new(),
            next_client_number: 1,
            sessions: BTreeMap::new(),
            parcels: BTreeMap::new(),
            last_mail: BTreeMap::new(),
            checks: Checks::default(),
            counts: Counts { seeds: 1, ..Counts::default() },
            digest: Digest::default(),
            departures,
            hot: usize::MAX,
            reads_on: 0,
            listening: true,
            exited: false,
            quiet: false,
            paused: false,
            shutting_down: false,
            tracing: options.tracing,
            direct: options.direct,
            pairs: Vec::new(),
            plan,
        };
        world.populate();
        world
    }

    fn populate(&mut self) {
        self.checks.pooler_may_cancel = !self.plan.calm;
        if self.plan.reads_all_texts() {
            self.checks.routes.letter = Duration(self.plan.mail_us * 20);
        }
        self.checks.routes.any = self.plan.all_settings().any(sends_anywhere);
        self.clusters = self.plan.clusters(&mut self.rng);
        let process_secret = self.rng.bytes();
        let numbers = Numbers::default();
        for index in 0..self.plan.workers {
            let config = WorkerConfig {
                id: WorkerId(index),
                workers: self.plan.workers,
                seed: self.rng.bytes(),
                process_secret,
                epoch_us: 1_700_000_000_000_000,
                uid: None,
                numbers: numbers.clone(),
                predecessor: None,
                place: None,
            };
            let settings = Arc::clone(&self.settings);
            #[cfg_attr(not(feature = "planted"), allow(unused_mut))]
            let mut worker = crate::memory::in_core(|| Worker::new(config, settings));
            #[cfg(feature = "planted")]
            if let Some(bug) = self.plan.planted {
                worker.plant(bug);
            }
            self.hosts.push(Host::new(worker));
        }
        for index in 0..self.plan.clients.len() {
            let (role, identity, habits, units) = self.plan.clients[index].clone();
            self.clients.push(Client::new(index, role, identity, habits, units));
            let at = Time(self.rng.below(self.plan.active_us / 4));
            self.at(at, Event::Client(index));
        }
        for index in 0..self.hosts.len() {
            // A pool whose user is forced is filled before anything is handed in.
            self.drain(index, &[]);
        }
        self.at(Time(self.plan.load_us), Event::Load);
        self.schedule_faults();
        self.settle();
    }

    /// A connection is being closed: whoever has taken some of its last bytes meanwhile is given more.
    pub fn linger(&mut self, worker: usize, conn: ConnId, before: usize) {
        let unsent = self.hosts[worker].conns.get(&conn).map_or(0, |conn| conn.out.len());
        if unsent < before {
            self.at(self.now + LINGER, Event::LingerOver { worker, conn, unsent });
        } else {
            self.hosts[worker].queue.push_back(Todo::Closed(conn));
        }
    }

    pub fn at(&mut self, at: Time, event: Event) {
        self.order += 1;
        let order = self.order;
        self.calendar.push(Reverse(Entry { at: at.max(self.now), order, event }));
    }

    pub fn later(&mut self, pause_us: u64, worker: usize, todo: Todo) {
        self.at(self.now + Duration(pause_us), Event::Todo(worker, Some(todo)));
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.tracing {
            println!("{:>12.6} {}", self.now.0 as f64 / 1e6, text());
        }
    }

    /// Lives on until a moment, or until a law is broken.
    pub fn run_until(&mut self, end: Time) {
        while self.checks.violation.is_none() && !self.exited {
            match self.calendar.peek() {
                Some(Reverse(next)) if next.at <= end => {}
                _ => break,
            }
            let Some(Reverse(entry)) = self.calendar.pop() else { break };
            self.now = entry.at;
            self.counts.events += 1;
            self.happen(entry.event);
            self.settle();
            if self.counts.events.is_multiple_of(64) {
                self.check_memory();
            }
        }
        if self.checks.violation.is_none() && !self.exited {
            self.now = self.now.max(end);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Up(link) => self.deliver_up(link),
            Event::Down(link) => self.deliver_down(link),
            Event::Client(index) => self.with_client(index, Client::wake),
            Event::Backend(index) => self.run_backend(index, &[]),
            Event::Timer(index, due) => self.timer_fired(index, due),
            Event::Mail(from, to) => self.deliver_mail(from, to),
            Event::TlsReady(worker, conn) => self.hosts[worker].queue.push_back(Todo::TlsReady(conn)),
            Event::LingerOver { worker, conn, unsent } => self.linger(worker, conn, unsent),
            Event::Connected { worker, conn, cluster, node } => self.connect_outcome(worker, conn, cluster, node),
            Event::Accept(link) => self.accept(link),
            // A reload that began before the faults ended brings what holds since.
            Event::Todo(worker, Some(Todo::Settings(_))) if self.quiet => {
                self.hosts[worker].queue.push_back(Todo::Settings(Arc::clone(&self.settings)));
            }
            Event::Todo(worker, todo) => self.hosts[worker].queue.extend(todo),
            Event::Fault(fault) => self.inflict(fault),
            Event::Load => {
                // Now one worker has much to do and the others little, now all have something.
                if self.rng.chance(100) {
                    self.hot = self.rng.index(self.hosts.len() * 2);
                }
                for index in 0..self.hosts.len() {
                    let busy = match self.hot {
                        hot if hot == index => self.rng.between(850, 1_000),
                        hot if hot < self.hosts.len() => self.rng.below(150),
                        _ if self.rng.chance(500) => self.rng.below(1_001),
                        _ => self.rng.below(200),
                    };
                    self.hosts[index].queue.push_back(Todo::Load(busy as u16));
                    if self.rng.chance(20) {
                        let full = self.rng.chance(300);
                        self.hosts[index].queue.push_back(Todo::Crowded(full));
                    }
                }
                self.at(self.now + Duration(self.plan.load_us), Event::Load);
            }
        }
    }

    pub fn send_mail(&mut self, from: usize, to: WorkerId, mail: Mail, old: Option<ConnId>, conn: Option<Conn>) {
        let to = usize::from(to.0);
        self.parcels.entry((from, to)).or_default().push_back(Parcel { mail, old, conn });
        let pause = self.rng.spread(self.plan.mail_us);
        let earliest = self.last_mail.get(&(from, to)).copied().unwrap_or(Time(0));
        let at = (self.now + Duration(pause)).max(earliest);
        self.last_mail.insert((from, to), at);
        self.at(at, Event::Mail(from, to));
    }

    /// The connection that was mailed away under this name and has not arrived.
    pub fn departed_conn(&mut self, from: usize, id: ConnId) -> Option<&mut Conn> {
        self.parcels
            .range_mut((from, 0)..=(from, usize::MAX))
            .flat_map(|(_, parcels)| parcels.iter_mut())
            .find(|parcel| parcel.old == Some(id))
            .and_then(|parcel| parcel.conn.as_mut())
    }

    fn deliver_mail(&mut self, from: usize, to: usize) {
        if let Some(parcel) = self.parcels.get_mut(&(from, to)).and_then(VecDeque::pop_front) {
            let todo = Todo::Mail { from: WorkerId(from as u16), mail: parcel.mail, conn: parcel.conn };
            self.hosts[to].queue.push_back(todo);
        }
    }

    /// These hold for all workers from then on.
    pub fn hold(&mut self, settings: Arc<Settings>, at: Time) {
        if Plan::trusts(&settings) {
            self.trusted_until = Time::NEVER;
        } else if Plan::trusts(&self.settings) {
            self.trusted_until = at;
        }
        let former = std::mem::replace(&mut self.settings, settings);
        self.former.push((former, at));
        self.settings_since = at;
    }

    /// What some worker may have followed at that time, or since.
    pub fn followed_since(&self, time: Time) -> impl Iterator<Item = &Settings> {
        let former = self.former.iter().filter(move |(_, until)| *until >= time);
        former.map(|(settings, _)| &**settings).chain([&*self.settings])
    }

    pub fn command(&mut self, command: Command) {
        self.hosts[0].queue.push_back(Todo::Command(command));
    }

    fn check_memory(&mut self) {
        let held = crate::memory::held_bytes().max(0) as u64;
        self.counts.core_heap_max = self.counts.core_heap_max.max(held);
        let conns: usize = self.hosts.iter().map(|host| host.conns.len()).sum();
        let bound = self.hosts.len() as u64 * HEAP_PER_WORKER_MAX + conns as u64 * HEAP_PER_CONN_MAX;
        if held > bound {
            self.checks.fail("memory bounded", format!("core holds {held} bytes for {conns} connections"));
        }
    }
}

/// Keys decide nothing.
fn sends_anywhere(settings: &Settings) -> bool {
    settings.database(SHARDED).is_some_and(|database| database.route == Some(Route::Any))
}

/// Tables, queues and what is shared; measured runs stay far below.
const HEAP_PER_WORKER_MAX: u64 = 4 << 20;
/// A message being collected, statements, owed replies.
const HEAP_PER_CONN_MAX: u64 = 256 << 10;
