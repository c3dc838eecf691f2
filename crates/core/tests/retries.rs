//! Servers that cannot be logged in to, and several workers whose clients wait for them: how often a login is tried is one for the
//! whole process, and what one worker hears is told to the clients of all.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "support/config.rs"]
mod config;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use weir_core::auth::Secret;
use weir_core::contract::{Input, Mail, Span};
use weir_core::settings::{AuthType, Database, PoolMode, TlsMode};
use weir_core::time::Duration;
use weir_core::{ConnId, Endpoint, Numbers, Output, Peer, Settings, Side, Time, Worker, WorkerId};
use weir_wire::report::{Report, Severity};
use weir_wire::{ProtocolVersion, TransactionStatus, write};

const WORKERS: u16 = 8;
const START: Time = Time(1_000_000);

/// What becomes of a server that is asked for.
#[derive(Clone, Copy, PartialEq)]
enum Servers {
    CannotBeReached,
    Refuse,
    Serve,
    /// Their sessions hold something from the first moment on, as the module tells.
    HoldSomething,
    /// Each is of another cluster than the one before.
    OfTwoClusters,
}

enum Todo {
    Mail { to: usize, from: usize, mail: Mail, conn: Option<(usize, ConnId)> },
    Closed(usize, ConnId),
    Connect(usize, ConnId),
    Startup(usize, ConnId),
    Question(usize, ConnId),
}

struct World {
    workers: Vec<Worker>,
    now: Time,
    todo: VecDeque<Todo>,
    /// How long a letter takes, and those on their way.
    letters_take: Duration,
    letters: VecDeque<(Time, Todo)>,
    servers: Servers,
    /// Those that were sent their startup packet. They answer nothing else, but for those that tell something.
    started: BTreeSet<(usize, ConnId)>,
    /// When a server was asked for.
    tries: Vec<Time>,
    received: BTreeMap<(usize, ConnId), Vec<u8>>,
}

fn tcp(port: u16) -> Peer {
    Peer::Tcp { ip: [127, 0, 0, 1].into(), port }
}

fn settings() -> Settings {
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 5432 };
    let mut settings = Settings {
        auth_type: AuthType::Trust,
        pool_mode: PoolMode::Session,
        server_login_retry: Duration::from_secs(2),
        server_tls_sslmode: TlsMode::Disable,
        ..Settings::default()
    };
    settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
    settings.secrets.insert("alice".into(), Secret::parse("secret"));
    settings
}

impl World {
    fn new(servers: Servers) -> Self {
        Self::with(servers, settings())
    }

    fn with(servers: Servers, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let numbers = Numbers::default();
        let worker = |index: u16| Worker::new(config::of_worker(index, WORKERS, &numbers), Arc::clone(&settings));
        let workers = (0..WORKERS).map(worker).collect();
        let (tries, received) = (Vec::new(), BTreeMap::new());
        let (todo, letters, letters_take) = (VecDeque::new(), VecDeque::new(), Duration::ZERO);
        let started = BTreeSet::new();
        Self { workers, now: START, todo, letters_take, letters, servers, started, tries, received }
    }

    fn input(&mut self, index: usize, input: Input<'_>) {
        self.workers[index].handle(self.now, input);
        while let Some(output) = self.workers[index].poll_output() {
            match output {
                Output::Send { conn, span } => {
                    let made = matches!(span, Span::Made { .. });
                    assert!(made || self.started.contains(&(index, conn)), "nothing is passed on in a login");
                    let bytes = self.workers[index].made(span).to_vec();
                    if conn.side == Side::Server && self.started.insert((index, conn)) {
                        self.todo.push_back(Todo::Startup(index, conn));
                    } else if conn.side == Side::Server && self.servers != Servers::Serve {
                        self.todo.push_back(Todo::Question(index, conn));
                    }
                    self.received.entry((index, conn)).or_default().extend(bytes);
                }
                Output::Connect { conn, .. } => {
                    self.tries.push(self.now);
                    self.todo.push_back(Todo::Connect(index, conn));
                }
                Output::Close { conn } => self.todo.push_back(Todo::Closed(index, conn)),
                Output::Mail { to, mail, conn } => {
                    let conn = conn.map(|conn| (index, conn));
                    let letter = Todo::Mail { to: usize::from(to.0), from: index, mail, conn };
                    if self.letters_take == Duration::ZERO {
                        self.todo.push_back(letter);
                    } else {
                        self.letters.push_back((self.now + self.letters_take, letter));
                    }
                }
                _ => {}
            }
        }
    }

    fn settle(&mut self) {
        while let Some(todo) = self.todo.pop_front() {
            match todo {
                Todo::Mail { to, from, mail, conn } => {
                    let id = conn.map(|(left, conn)| {
                        self.todo.push_back(Todo::Closed(left, conn));
                        self.workers[to].reserve(conn.side)
                    });
                    self.input(to, Input::Mail { from: WorkerId(from as u16), mail, conn: id });
                    // A client says who it is where it has come to.
                    if let Some(conn) = id.filter(|conn| conn.side == Side::Client) {
                        self.startup(to, conn);
                    }
                }
                Todo::Closed(index, conn) => self.input(index, Input::Closed { conn }),
                Todo::Connect(index, conn) if self.servers == Servers::CannotBeReached => {
                    self.input(index, Input::ConnectFailed { conn, reason: "connection refused".to_owned() });
                }
                Todo::Connect(index, conn) => {
                    self.input(index, Input::Connected { conn, peer: tcp(5432), local: tcp(2) });
                }
                Todo::Startup(index, conn) => self.answer(index, conn),
                Todo::Question(index, conn) => {
                    let mut bytes = Vec::new();
                    if self.servers == Servers::HoldSomething {
                        write::parameter_status(&mut bytes, "weir.session", b"temp");
                    } else {
                        let told = format!("16384 {} 3 1", self.tries.len() % 2);
                        write::data_row(&mut bytes, [Some(&b"on"[..]), Some(told.as_bytes())].into_iter());
                    }
                    write::command_complete(&mut bytes, "SELECT 1");
                    write::ready(&mut bytes, TransactionStatus::Idle);
                    self.input(index, Input::Bytes { conn, bytes: &bytes });
                }
            }
        }
    }

    /// A server answers its startup packet.
    fn answer(&mut self, index: usize, conn: ConnId) {
        let mut bytes = Vec::new();
        if self.servers == Servers::Refuse {
            let report = Report::new(Severity::Fatal, "3D000", "database \"app\" does not exist");
            write::report(&mut bytes, &report);
        } else {
            write::authentication_ok(&mut bytes);
            write::ready(&mut bytes, TransactionStatus::Idle);
        }
        self.input(index, Input::Bytes { conn, bytes: &bytes });
    }

    fn startup(&mut self, index: usize, conn: ConnId) {
        let mut bytes = Vec::new();
        write::startup(&mut bytes, ProtocolVersion::V3_0, &[("user", "alice"), ("database", "app")]);
        self.input(index, Input::Bytes { conn, bytes: &bytes });
    }

    /// Clients come in, as many on each worker.
    fn clients(&mut self, count: usize) {
        for index in 0..self.workers.len() {
            // Where all have too much to do, connections are spread evenly.
            self.input(index, Input::Load { busy_permille: 1000 });
        }
        self.settle();
        for _ in 0..count {
            let conn = self.workers[0].reserve(Side::Client);
            self.input(0, Input::Accepted { conn, peer: tcp(1), local: tcp(6432) });
            if self.todo.is_empty() {
                self.startup(0, conn);
            }
            self.settle();
        }
    }

    /// On how many workers clients were sent something with this text in it, and to how many.
    fn told(&self, text: &str) -> (usize, usize) {
        let clients = self.received.iter().filter(|((_, conn), _)| conn.side == Side::Client);
        let told: Vec<_> = clients
            .filter(|(_, bytes)| String::from_utf8_lossy(bytes).contains(text))
            .map(|((worker, _), _)| *worker)
            .collect();
        (told.iter().collect::<BTreeSet<_>>().len(), told.len())
    }

    /// All clients that are in ask for something.
    fn ask(&mut self) {
        for (index, conn) in self.ready() {
            let mut bytes = Vec::new();
            write::query(&mut bytes, b"select 1");
            self.input(index, Input::Bytes { conn, bytes: &bytes });
        }
        self.settle();
    }

    fn ready(&self) -> Vec<(usize, ConnId)> {
        let mut ready = Vec::new();
        write::ready(&mut ready, TransactionStatus::Idle);
        let clients = self.received.iter().filter(|((_, conn), _)| conn.side == Side::Client);
        clients.filter(|(_, bytes)| bytes.ends_with(&ready)).map(|(client, _)| *client).collect()
    }

    /// How many clients are in.
    fn served(&self) -> usize {
        self.ready().len()
    }

    fn pass(&mut self, duration: Duration) {
        let end = self.now + duration;
        loop {
            let timeouts = self.workers.iter().filter_map(Worker::poll_timeout);
            let due = timeouts.chain(self.letters.front().map(|(due, _)| *due)).min();
            let Some(due) = due.filter(|&due| due <= end) else { break };
            self.now = self.now.max(due);
            while self.letters.front().is_some_and(|(due, _)| *due <= self.now) {
                self.todo.extend(self.letters.pop_front().map(|(_, letter)| letter));
            }
            self.settle();
            for index in 0..self.workers.len() {
                if self.workers[index].poll_timeout().is_some_and(|due| due <= self.now) {
                    self.input(index, Input::Timeout);
                }
            }
            self.settle();
        }
        self.now = end;
    }
}

/// Tries after the first moment, where as many are made as wait.
fn later_tries(world: &World) -> Vec<u64> {
    world.tries.iter().filter(|at| **at > START).map(|at| (at.0 - START.0) / 1000).collect()
}

#[test]
fn a_server_that_cannot_be_reached_is_tried_once_at_a_time() {
    let mut world = World::new(Servers::CannotBeReached);
    world.clients(24);
    world.pass(Duration::from_secs(6));
    // 50 ms, and each wait twice the last, up to server_login_retry.
    assert_eq!(later_tries(&world), [50, 150, 350, 750, 1550, 3150, 5150]);
    world.servers = Servers::Serve;
    world.pass(Duration::from_secs(3));
    assert!(world.served() >= 20, "whoever there is a place for in the pool is served");
}

#[test]
fn a_session_that_is_of_no_use_from_the_first_moment_on_is_not_made_without_end() {
    let settings = Settings { pool_mode: PoolMode::Transaction, min_pool_size: 1, ..settings() };
    let mut world = World::with(Servers::HoldSomething, settings);
    world.clients(24);
    world.pass(Duration::from_secs(6));
    let tries = world.tries.len();
    assert!((5..60).contains(&tries), "{tries} logins in six seconds");
}

#[test]
fn two_clusters_behind_one_address_do_not_take_each_other_s_servers_without_end() {
    let settings = Settings { pool_mode: PoolMode::Transaction, min_pool_size: 2, ..settings() };
    let mut world = World::with(Servers::OfTwoClusters, settings);
    world.clients(24);
    world.pass(Duration::from_secs(6));
    let tries = world.tries.len();
    assert!((3..100).contains(&tries), "{tries} logins in six seconds");
}

#[test]
fn a_refusal_is_told_to_the_clients_of_all_workers() {
    let mut world = World::new(Servers::CannotBeReached);
    world.clients(24);
    world.servers = Servers::Refuse;
    world.pass(Duration::from_secs(1));
    assert_eq!(world.told("3D000"), (8, 24));
    let tries = later_tries(&world).len();
    assert_eq!(tries, 1, "one login was refused for all of them");
    world.clients(24);
    assert_eq!(world.told("3D000").1, 48);
    assert!(later_tries(&world).len() <= tries + 1);
}

#[test]
fn a_reload_lets_all_workers_try_again() {
    let mut world = World::new(Servers::Refuse);
    world.clients(24);
    world.pass(Duration::from_millis(10));
    world.servers = Servers::Serve;
    let settings = Arc::new(settings());
    // The steward's worker comes last.
    for index in (0..WORKERS.into()).rev() {
        world.input(index, Input::Settings(Arc::clone(&settings)));
        world.settle();
    }
    let told = world.told("3D000").1;
    world.clients(8);
    assert_eq!(world.told("3D000").1, told, "nobody is told what was refused before");
}

/// A setback may come so late that its time is over.
#[test]
fn a_setback_that_comes_late_is_followed_by_another_try() {
    let mut world = World::new(Servers::CannotBeReached);
    world.clients(24);
    world.letters_take = Duration::from_millis(60);
    world.pass(Duration::from_millis(500));
    world.servers = Servers::Serve;
    world.pass(Duration::from_secs(10));
    assert!(world.served() >= 20, "whoever there is a place for in the pool is served");
}

/// A server that is in use, and will be closed then, is nobody's hope, whichever worker it is on.
#[test]
fn nobody_waits_for_a_server_that_will_be_closed() {
    let mut settings = Settings { default_pool_size: 2, ..settings() };
    let mut world = World::with(Servers::Serve, settings.clone());
    world.clients(1);
    world.ask();
    assert_eq!(world.tries.len(), 1);
    // Its server is not what it should be any more, and no other can be made.
    world.servers = Servers::CannotBeReached;
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 5433 };
    settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
    for index in 0..world.workers.len() {
        world.input(index, Input::Settings(Arc::new(settings.clone())));
    }
    world.settle();
    world.clients(24);
    world.pass(Duration::from_millis(49));
    assert_eq!((world.told("FATAL").1, later_tries(&world)), (0, vec![]), "all may still hope");
    world.servers = Servers::Refuse;
    world.pass(Duration::from_millis(11));
    assert_eq!(
        (world.told("3D000"), later_tries(&world)),
        ((8, 24), vec![50]),
        "one login was refused for all of them"
    );
}
