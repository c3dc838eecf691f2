//! Simulated cores, each with one worker, and the clients and servers around them.
//!
//! A core deals with one input after another, and each takes its time; what comes meanwhile waits. Bytes, letters and
//! connections travel as the drivers would carry them. Messages are as few as they can be: a login, a query, its answer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use weir_core::contract::Mail;
use weir_core::settings::{AuthType, Database, LogSettings, PoolMode, SessionState, TlsMode};
use weir_core::{
    ConnId, Endpoint, Input, Numbers, Output, Peer, Settings, Side, Span, Time, Worker, WorkerConfig, WorkerId,
};
use weir_wire::{ProtocolVersion, TransactionStatus, write};

use super::{COSTS, Case, LETTER_TRAVEL_US, LOAD_PERIOD_US, Measured, NETWORK_US, Pattern, SERVICE_US};
use crate::rng::Rng;

/// How long a quiet client thinks.
const QUIET_THINK_US: u64 = 1_000_000;
/// Groups of bursty clients take turns of so long.
const BURST_US: u64 = 1_000_000;
/// All clients have come by then.
const COMING_US: u64 = 1_000_000;

type LinkId = usize;

/// An input that waits for its core.
enum Job {
    Accepted(LinkId),
    Connected(LinkId),
    /// Bytes have come on a connection, or what was held may be handed in.
    Read(LinkId),
    Mail {
        from: WorkerId,
        mail: Mail,
        link: Option<LinkId>,
    },
    /// The last word about an id.
    Closed(ConnId),
    Timeout,
}

enum Event {
    Core(usize),
    Job(usize, Job),
    Timer(usize),
    /// Bytes for a worker.
    Up(LinkId, Vec<u8>),
    /// Bytes for a client or a server.
    Down(LinkId, Vec<u8>),
    /// A client asks.
    Ask(usize),
}

struct Entry(u64, u64, Event);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
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
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
enum End {
    Client(usize),
    Server { started: bool },
}

struct Link {
    end: End,
    /// Which connection of which worker it is; none while it travels.
    place: Option<(usize, ConnId)>,
    reading: bool,
    held: Vec<u8>,
}

struct Core {
    worker: Worker,
    queue: VecDeque<Job>,
    is_running: bool,
    conns: BTreeMap<ConnId, LinkId>,
    timer: u64,
    load_since: u64,
    load_busy: u64,
    busy_us: u64,
    inputs: u64,
}

struct Client {
    link: LinkId,
    think_us: u64,
    /// Which of two groups it belongs to, where they take turns.
    group: u64,
    is_in: bool,
    asked_at: u64,
}

pub struct World {
    case: Case,
    now: u64,
    order: u64,
    rng: Rng,
    calendar: BinaryHeap<Reverse<Entry>>,
    cores: Vec<Core>,
    links: Vec<Link>,
    clients: Vec<Client>,
    transactions: u64,
    waits_us: Vec<u64>,
    letters_before: u64,
}

impl World {
    pub fn new(case: Case) -> Self {
        let mut rng = Rng::new(case.seed);
        let (settings, process_secret) = (Arc::new(settings(&case)), rng.bytes());
        let numbers = Numbers::default();
        let cores = (0..case.cores).map(|index| {
            let config = WorkerConfig {
                id: WorkerId(index),
                workers: case.cores,
                seed: rng.bytes(),
                process_secret,
                epoch_us: 1_700_000_000_000_000,
                uid: None,
                numbers: numbers.clone(),
                predecessor: None,
                place: None,
            };
            Core {
                worker: Worker::new(config, Arc::clone(&settings)),
                queue: VecDeque::new(),
                is_running: false,
                conns: BTreeMap::new(),
                timer: u64::MAX,
                load_since: 0,
                load_busy: 0,
                busy_us: 0,
                inputs: 0,
            }
        });
        let cores = cores.collect();
        let mut world = Self {
            case,
            now: 0,
            order: 0,
            rng,
            calendar: BinaryHeap::new(),
            cores,
            links: Vec::new(),
            clients: Vec::new(),
            transactions: 0,
            waits_us: Vec::new(),
            letters_before: 0,
        };
        world.invite();
        world
    }

    fn invite(&mut self) {
        let (busy, quiet) = self.case.clients();
        for index in 0..(busy + quiet) as usize {
            let end = End::Client(index);
            self.links.push(Link { end, place: None, reading: true, held: Vec::new() });
            let think_us = if index < busy as usize { 0 } else { QUIET_THINK_US };
            let client = Client { link: index, think_us, group: index as u64 % 2, is_in: false, asked_at: 0 };
            self.clients.push(client);
            let at = self.rng.below(COMING_US);
            self.at(at, Event::Job(0, Job::Accepted(index)));
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        self.calendar.push(Reverse(Entry(at, self.order, event)));
    }

    pub fn run_until(&mut self, end: u64) {
        while let Some(Reverse(entry)) = self.calendar.peek() {
            if entry.0 > end {
                break;
            }
            let Some(Reverse(Entry(at, _, event))) = self.calendar.pop() else { break };
            self.now = at;
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Core(index) => self.work(index),
            Event::Job(index, job) => self.enqueue(index, job),
            Event::Timer(index) => {
                let core = &mut self.cores[index];
                if core.timer == self.now {
                    core.timer = u64::MAX;
                }
                let is_due = core.worker.poll_timeout().is_some_and(|due| due.0 <= self.now);
                if is_due && !core.is_running {
                    self.enqueue(index, Job::Timeout);
                }
            }
            Event::Up(link, bytes) => {
                self.links[link].held.extend(bytes);
                if let Some((core, _)) = self.links[link].place {
                    self.enqueue(core, Job::Read(link));
                }
            }
            Event::Down(link, bytes) => match self.links[link].end {
                End::Client(client) => self.client_reads(client, &bytes),
                End::Server { started } => self.server_reads(link, started, &bytes),
            },
            Event::Ask(client) => self.ask(client),
        }
    }

    // Both ends.

    fn client_reads(&mut self, index: usize, bytes: &[u8]) {
        // ReadyForQuery is the last message of a login and of an answer.
        if !bytes.ends_with(&[b'Z', 0, 0, 0, 5, b'I']) {
            return;
        }
        let client = &mut self.clients[index];
        if std::mem::replace(&mut client.is_in, true) {
            self.transactions += 1;
            self.waits_us.push(self.now - client.asked_at);
        }
        let think = match client.think_us {
            0 => 0,
            think => self.rng.between(think / 2, think + think / 2),
        };
        let mut at = self.now + think;
        if self.case.pattern == Pattern::Bursty && (at / BURST_US) % 2 != self.clients[index].group {
            at = (at / BURST_US + 1) * BURST_US;
        }
        self.at(at, Event::Ask(index));
    }

    fn ask(&mut self, index: usize) {
        let mut bytes = Vec::new();
        write::query(&mut bytes, b"SELECT 1");
        let client = &mut self.clients[index];
        client.asked_at = self.now;
        let link = client.link;
        self.at(self.now + NETWORK_US, Event::Up(link, bytes));
    }

    fn server_reads(&mut self, link: LinkId, started: bool, bytes: &[u8]) {
        let mut answer = Vec::new();
        if !started {
            self.links[link].end = End::Server { started: true };
            write::authentication_ok(&mut answer);
            write::parameter_status(&mut answer, "server_version", b"18.0");
            write::backend_key(&mut answer, link as u32 + 1, &[7; 4]);
            write::ready(&mut answer, TransactionStatus::Idle);
        } else if bytes.first() == Some(&b'Q') {
            write::data_row(&mut answer, [Some(&b"1"[..])].into_iter());
            write::command_complete(&mut answer, "SELECT 1");
            write::ready(&mut answer, TransactionStatus::Idle);
        } else {
            return;
        }
        // Exponential: -ln of a number from above 0 to 1.
        let drawn = (self.rng.below(1 << 20) + 1) as f64 / (1u64 << 20) as f64;
        let service = (-drawn.ln() * SERVICE_US as f64) as u64;
        self.at(self.now + service + NETWORK_US, Event::Up(link, answer));
    }

    // Cores.

    fn enqueue(&mut self, index: usize, job: Job) {
        let core = &mut self.cores[index];
        core.queue.push_back(job);
        if !core.is_running {
            core.is_running = true;
            core.busy_us += COSTS.wake_us;
            core.load_busy += COSTS.wake_us;
            self.at(self.now + COSTS.wake_us, Event::Core(index));
        }
    }

    /// Deals with the next input, and goes on when its time is over.
    fn work(&mut self, index: usize) {
        let Some(job) = self.cores[index].queue.pop_front() else {
            self.cores[index].is_running = false;
            return self.set_timer(index);
        };
        let mut cost = self.hand(index, job);
        if self.cores[index].worker.poll_timeout().is_some_and(|due| due.0 <= self.now) {
            cost += self.hand(index, Job::Timeout);
        }
        if self.now - self.cores[index].load_since >= LOAD_PERIOD_US {
            cost += self.measure_load(index);
        }
        let core = &mut self.cores[index];
        core.inputs += 1;
        core.busy_us += cost;
        core.load_busy += cost;
        self.at(self.now + cost, Event::Core(index));
    }

    fn measure_load(&mut self, index: usize) -> u64 {
        let core = &mut self.cores[index];
        let period = self.now - core.load_since;
        let busy_permille = (core.load_busy * 1000 / period).min(1000) as u16;
        (core.load_since, core.load_busy) = (self.now, 0);
        core.worker.handle(Time(self.now), Input::Load { busy_permille });
        self.drain(index, &[])
    }

    fn set_timer(&mut self, index: usize) {
        let core = &mut self.cores[index];
        let Some(due) = core.worker.poll_timeout().filter(|due| *due != Time::NEVER) else { return };
        let due = due.0.max(self.now);
        if due < core.timer {
            core.timer = due;
            self.at(due, Event::Timer(index));
        }
    }

    /// Hands in one input; answers what it took.
    fn hand(&mut self, index: usize, job: Job) -> u64 {
        match job {
            Job::Accepted(link) => {
                let conn = self.bring_in(index, link, Side::Client);
                let tcp = |port| Peer::Tcp { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port };
                let mut bytes = Vec::new();
                write::startup(&mut bytes, ProtocolVersion::V3_0, &[("user", "app"), ("database", "app")]);
                self.links[link].held = bytes;
                let cost = self.input(index, Input::Accepted { conn, peer: tcp(1), local: tcp(6432) });
                self.enqueue_read(link);
                cost
            }
            Job::Connected(link) => {
                let Some((_, conn)) = self.links[link].place else { return 0 };
                let tcp = |port| Peer::Tcp { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port };
                self.input(index, Input::Connected { conn, peer: tcp(5432), local: tcp(2) })
            }
            Job::Read(link) => self.feed(index, link),
            Job::Mail { from, mail, link } => {
                let side = |link: LinkId| match self.links[link].end {
                    End::Client(_) => Side::Client,
                    End::Server { .. } => Side::Server,
                };
                let conn = link.map(|link| (link, side(link))).map(|(link, side)| self.bring_in(index, link, side));
                if let Some(link) = link {
                    self.links[link].reading = true;
                }
                let cost = self.input(index, Input::Mail { from, mail, conn }) - COSTS.input_us + COSTS.letter_us;
                if let Some(link) = link {
                    self.enqueue_read(link);
                }
                cost
            }
            Job::Closed(conn) => self.input(index, Input::Closed { conn }),
            Job::Timeout => self.input(index, Input::Timeout),
        }
    }

    fn enqueue_read(&mut self, link: LinkId) {
        let Some((core, _)) = self.links[link].place else { return };
        if !self.links[link].held.is_empty() {
            self.cores[core].queue.push_back(Job::Read(link));
        }
    }

    fn bring_in(&mut self, index: usize, link: LinkId, side: Side) -> ConnId {
        let conn = self.cores[index].worker.reserve(side);
        self.cores[index].conns.insert(conn, link);
        self.links[link].place = Some((index, conn));
        conn
    }

    fn feed(&mut self, index: usize, link: LinkId) -> u64 {
        let Some((_, conn)) = self.links[link].place.filter(|(core, _)| *core == index) else { return 0 };
        if !self.links[link].reading || self.links[link].held.is_empty() {
            return 0;
        }
        let bytes = std::mem::take(&mut self.links[link].held);
        let taken = self.cores[index].worker.handle(Time(self.now), Input::Bytes { conn, bytes: &bytes });
        self.links[link].held.extend_from_slice(&bytes[taken..]);
        COSTS.input_us + self.drain(index, &bytes)
    }

    fn input(&mut self, index: usize, input: Input<'_>) -> u64 {
        self.cores[index].worker.handle(Time(self.now), input);
        COSTS.input_us + self.drain(index, &[])
    }

    /// Carries out what was put out; answers what that took. Its effects come when the time for it is over.
    fn drain(&mut self, index: usize, received: &[u8]) -> u64 {
        let mut cost = 0;
        let mut sends: Vec<(LinkId, Vec<u8>)> = Vec::new();
        while let Some(output) = self.cores[index].worker.poll_output() {
            match output {
                Output::Send { conn, span } => {
                    let bytes = match span {
                        Span::Received { start, end } => &received[start as usize..end as usize],
                        Span::Made { .. } => self.cores[index].worker.made(span),
                    };
                    let link = self.cores[index].conns[&conn];
                    match sends.iter_mut().find(|(other, _)| *other == link) {
                        Some((_, all)) => all.extend_from_slice(bytes),
                        None => sends.push((link, bytes.to_vec())),
                    }
                }
                Output::Read { conn, on } => {
                    let link = self.cores[index].conns[&conn];
                    self.links[link].reading = on;
                    if on {
                        self.enqueue_read(link);
                    }
                }
                Output::Connect { conn, .. } => {
                    let link = self.links.len();
                    let place = Some((index, conn));
                    let end = End::Server { started: false };
                    self.links.push(Link { end, place, reading: true, held: Vec::new() });
                    self.cores[index].conns.insert(conn, link);
                    self.at(self.now + 2 * NETWORK_US, Event::Job(index, Job::Connected(link)));
                }
                Output::Close { conn } => {
                    if let Some(link) = self.cores[index].conns.remove(&conn) {
                        self.links[link].place = None;
                    }
                    self.at(self.now + NETWORK_US, Event::Job(index, Job::Closed(conn)));
                }
                Output::Mail { to, mail, conn } => {
                    cost += COSTS.letter_us;
                    let link = conn.and_then(|conn| self.cores[index].conns.remove(&conn));
                    if let (Some(link), Some(conn)) = (link, conn) {
                        self.links[link].place = None;
                        self.cores[index].queue.push_back(Job::Closed(conn));
                    }
                    let job = Job::Mail { from: WorkerId(index as u16), mail, link };
                    self.at(self.now + cost + LETTER_TRAVEL_US, Event::Job(usize::from(to.0), job));
                }
                Output::StartTls { .. }
                | Output::Derive { .. }
                | Output::Ask { .. }
                | Output::AskNoMore { .. }
                | Output::TellNames { .. }
                | Output::Event(_) => {}
            }
        }
        for (link, bytes) in sends {
            cost += COSTS.send_us;
            self.at(self.now + cost + NETWORK_US, Event::Down(link, bytes));
        }
        cost
    }

    // Measuring.

    fn letters(&self) -> u64 {
        self.cores.iter().map(|core| core.worker.messages_sent().1).sum()
    }

    pub fn begin_measuring(&mut self) {
        self.transactions = 0;
        self.waits_us.clear();
        self.letters_before = self.letters();
        for core in &mut self.cores {
            (core.busy_us, core.inputs) = (0, 0);
        }
    }

    pub fn measured(&mut self, time_us: u64) -> Measured {
        self.waits_us.sort_unstable();
        let wait = |permille: usize| self.waits_us.get(self.waits_us.len() * permille / 1000).copied().unwrap_or(0);
        let has_servers = |core: &&Core| core.conns.keys().any(|conn| conn.side == Side::Server);
        Measured {
            transactions: self.transactions,
            throughput: self.transactions as f64 * 1e6 / time_us as f64,
            busy_permille: self.cores.iter().map(|core| (core.busy_us * 1000 / time_us) as u32).collect(),
            awake: self.cores.iter().filter(|core| core.inputs > 0).count(),
            cores_with_servers: self.cores.iter().filter(has_servers).count(),
            letters: self.letters() - self.letters_before,
            clients_moved: self.cores.iter().map(|core| core.worker.clients_moved()).sum(),
            wait_us: [wait(500), wait(990)],
        }
    }
}

fn settings(case: &Case) -> Settings {
    let mut settings = Settings {
        auth_type: AuthType::Trust,
        default_pool_size: case.servers,
        max_client_conn: 1_000_000,
        stats_period: weir_core::time::Duration::ZERO,
        server_tls_sslmode: TlsMode::Disable,
        pool_mode: PoolMode::Transaction,
        log: LogSettings { connections: false, disconnections: false, ..LogSettings::default() },
        // These servers answer no question about code.
        session_state: SessionState::Pgbouncer,
        ..Settings::default()
    };
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 5432 };
    settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
    settings.secrets.insert("app".into(), weir_core::auth::Secret::parse("secret"));
    settings
}
