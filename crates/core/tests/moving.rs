//! Clients that move between workers, with letters that take their time: whatever is sent for a client finds it, also on its way.
//!
//! Three workers, and letters delivered in every order that the contract allows: those of one pair stay in order, nothing
//! else does. A seed chooses. The cases end in what must hold whichever way it went.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "support/config.rs"]
mod config;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_core::auth::Secret;
use weir_core::contract::Mail;
use weir_core::settings::{AuthType, Database, PoolMode, SessionState, TlsMode};
use weir_core::{ConnId, Endpoint, Input, Numbers, Output, Peer, Settings, Side, Span, Time, Worker, WorkerId};
use weir_wire::{ProtocolVersion, TransactionStatus, write};

const WORKERS: u16 = 3;
const SEEDS: u64 = 400;

/// One connection, wherever it is.
#[derive(Default)]
struct End {
    place: Option<(usize, ConnId)>,
    not_reading: bool,
    held: Vec<u8>,
    received: Vec<u8>,
    closed: bool,
    is_server: bool,
}

struct Letter {
    mail: Mail,
    end: Option<usize>,
}

struct Net {
    workers: Vec<Worker>,
    now: u64,
    ends: Vec<End>,
    conns: BTreeMap<(usize, ConnId), usize>,
    letters: BTreeMap<(usize, usize), VecDeque<Letter>>,
    /// Servers that were asked for, in order.
    servers: Vec<usize>,
    /// The Closed of connections that have left, while they are kept back.
    kept: Option<Vec<(usize, ConnId)>>,
    /// Clients cannot leave: the process has no descriptor.
    stuck: bool,
    chance: u64,
}

fn settings(clients_max: u32) -> Settings {
    let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 5432 };
    let mut settings = Settings {
        auth_type: AuthType::Trust,
        pool_mode: PoolMode::Transaction,
        default_pool_size: 1,
        max_client_conn: clients_max,
        server_tls_sslmode: TlsMode::Disable,
        admin_users: vec!["admin".to_owned()],
        // These servers answer no question about code.
        session_state: SessionState::Pgbouncer,
        ..Settings::default()
    };
    settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
    settings.secrets = ["alice", "admin"].map(|user| (user.into(), Secret::parse("secret"))).into();
    settings
}

impl Net {
    fn new(seed: u64, clients_max: u32) -> Self {
        Self::with(seed, settings(clients_max))
    }

    fn with(seed: u64, settings: Settings) -> Self {
        let settings = Arc::new(settings);
        let numbers = Numbers::default();
        let worker = |index| Worker::new(config::of_worker(index, WORKERS, &numbers), Arc::clone(&settings));
        let workers = (0..WORKERS).map(worker).collect();
        let (ends, servers) = (Vec::new(), Vec::new());
        let (conns, letters) = (BTreeMap::new(), BTreeMap::new());
        Self {
            workers,
            now: 1,
            ends,
            conns,
            letters,
            servers,
            kept: None,
            stuck: false,
            chance: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        }
    }

    /// A number below `bound` (xorshift).
    fn below(&mut self, bound: usize) -> usize {
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        (self.chance % bound.max(1) as u64) as usize
    }

    fn input(&mut self, index: usize, input: Input<'_>) {
        self.workers[index].handle(Time(self.now), input);
        self.drain(index, &[]);
    }

    fn drain(&mut self, index: usize, received: &[u8]) {
        let (mut again, mut ended, mut staying) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(output) = self.workers[index].poll_output() {
            match output {
                Output::Send { conn, span } => {
                    let bytes = match span {
                        Span::Received { start, end } => received[start as usize..end as usize].to_vec(),
                        Span::Made { .. } => self.workers[index].made(span).to_vec(),
                    };
                    let end = self.conns[&(index, conn)];
                    self.ends[end].received.extend(bytes);
                }
                Output::Read { conn, on } => {
                    let end = self.conns[&(index, conn)];
                    self.ends[end].not_reading = !on;
                    if on {
                        again.push(end);
                    }
                }
                Output::Connect { conn, .. } => {
                    let end = End { place: Some((index, conn)), is_server: true, ..End::default() };
                    self.conns.insert((index, conn), self.ends.len());
                    self.servers.push(self.ends.len());
                    self.ends.push(end);
                }
                Output::Close { conn } => {
                    let end = self.conns[&(index, conn)];
                    self.ends[end].closed = true;
                }
                Output::Mail { mail, conn: Some(conn), .. } if self.stuck && conn.side == Side::Client => {
                    staying.push((conn, mail));
                }
                Output::Mail { to, mail, conn } => {
                    let end = conn.and_then(|conn| self.conns.remove(&(index, conn)));
                    if let (Some(end), Some(conn)) = (end, conn) {
                        self.ends[end].place = None;
                        ended.push(conn);
                    }
                    self.letters.entry((index, usize::from(to.0))).or_default().push_back(Letter { mail, end });
                }
                Output::StartTls { .. }
                | Output::Derive { .. }
                | Output::Ask { .. }
                | Output::AskNoMore { .. }
                | Output::TellNames { .. }
                | Output::Event(_) => {}
            }
        }
        for (conn, mail) in staying {
            self.input(index, Input::Stays { conn, mail });
        }
        for conn in ended {
            match &mut self.kept {
                Some(kept) => kept.push((index, conn)),
                None => self.input(index, Input::Closed { conn }),
            }
        }
        again.into_iter().for_each(|end| self.feed(end));
    }

    /// Hands in what has come on a connection, if it is read.
    fn feed(&mut self, end: usize) {
        let Some((index, conn)) = self.ends[end].place else { return };
        if self.ends[end].not_reading || self.ends[end].held.is_empty() || self.ends[end].closed {
            return;
        }
        let bytes = std::mem::take(&mut self.ends[end].held);
        let taken = self.workers[index].handle(Time(self.now), Input::Bytes { conn, bytes: &bytes });
        self.ends[end].held = bytes[taken..].to_vec();
        self.drain(index, &bytes);
    }

    fn say(&mut self, end: usize, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.ends[end].held);
        self.feed(end);
    }

    fn bring_in(&mut self, index: usize, end: usize) -> ConnId {
        let side = if self.ends[end].is_server { Side::Server } else { Side::Client };
        let conn = self.workers[index].reserve(side);
        self.conns.insert((index, conn), end);
        self.ends[end].place = Some((index, conn));
        self.ends[end].not_reading = false;
        conn
    }

    fn connect(&mut self) -> usize {
        let end = self.ends.len();
        self.ends.push(End::default());
        let conn = self.bring_in(0, end);
        let peer = Peer::NOWHERE;
        self.input(0, Input::Accepted { conn, peer: peer.clone(), local: peer });
        end
    }

    /// One letter of one pair arrives; false where there is none. `lose`: a connection that travels has ended meanwhile.
    fn deliver(&mut self, lose: bool) -> bool {
        let full = |(_, letters): &(&(usize, usize), &VecDeque<Letter>)| !letters.is_empty();
        let pairs: Vec<_> = self.letters.iter().filter(full).map(|(pair, _)| *pair).collect();
        if pairs.is_empty() {
            return false;
        }
        let (from, to) = pairs[self.below(pairs.len())];
        let letter = self.letters.get_mut(&(from, to)).and_then(VecDeque::pop_front).unwrap();
        let is_client = letter.end.is_some_and(|end| !self.ends[end].is_server);
        let end = letter.end.filter(|_| !(lose && is_client));
        let conn = end.map(|end| self.bring_in(to, end));
        self.input(to, Input::Mail { from: WorkerId(from as u16), mail: letter.mail, conn });
        if let Some(end) = end {
            self.feed(end);
        }
        true
    }

    fn deliver_all(&mut self) {
        while self.deliver(false) {}
        // What waits for time: a want that is renewed.
        self.now += 1_000_000;
        for index in 0..self.workers.len() {
            if self.workers[index].poll_timeout().is_some_and(|due| due.0 <= self.now) {
                self.input(index, Input::Timeout);
            }
        }
        while self.deliver(false) {}
    }

    fn has(&self, end: usize, text: &str) -> bool {
        self.ends[end].received.windows(text.len()).any(|window| window == text.as_bytes())
    }

    fn log_in(&mut self, user: &str, database: &str) -> usize {
        let client = self.connect();
        self.say(client, |out| {
            write::startup(out, ProtocolVersion::V3_0, &[("user", user), ("database", database)]);
        });
        self.deliver_all();
        client
    }

    /// A client of worker 0, and the pool's only server, which is idle then.
    fn log_in_first(&mut self) -> (usize, usize) {
        let first = self.log_in("alice", "app");
        let server = self.servers[0];
        let (index, conn) = self.ends[server].place.unwrap();
        let peer = Peer::NOWHERE;
        self.input(index, Input::Connected { conn, peer: peer.clone(), local: peer });
        self.ends[server].received.clear();
        self.say(server, |out| {
            write::authentication_ok(out);
            write::parameter_status(out, "server_version", b"18.0");
            write::backend_key(out, 1, &[7; 4]);
            write::ready(out, TransactionStatus::Idle);
        });
        self.deliver_all();
        (first, server)
    }

    /// On another worker than 0, which has much to do.
    fn log_in_elsewhere(&mut self) -> usize {
        self.now += 1_000_000;
        self.input(0, Input::Load { busy_permille: 1000 });
        self.log_in("alice", "app")
    }

    /// A session's number and key, out of its greeting.
    fn key(&self, client: usize) -> (u32, [u8; 4]) {
        let received = &self.ends[client].received;
        let at = received.windows(5).position(|window| window == [b'K', 0, 0, 0, 12]).unwrap() + 5;
        let four = |at: usize| <[u8; 4]>::try_from(&received[at..at + 4]).unwrap();
        (u32::from_be_bytes(four(at)), four(at + 4))
    }

    fn ready(&mut self, server: usize, status: TransactionStatus) {
        self.ends[server].received.clear();
        self.say(server, |out| {
            write::command_complete(out, "BEGIN");
            write::ready(out, status);
        });
    }
}

/// The only server is in the transaction of a client of worker 0, where the pool lives. Another client, on a worker that is no
/// home of the pool, has just asked for something, and no letter of that has arrived.
fn about_to_move(seed: u64) -> (Net, usize, usize, usize) {
    about_to_move_among(seed, 2)
}

fn about_to_move_among(seed: u64, clients_max: u32) -> (Net, usize, usize, usize) {
    let mut net = Net::new(seed, clients_max);
    let (first, server) = net.log_in_first();
    net.say(first, |out| write::query(out, b"BEGIN"));
    net.deliver_all();
    net.ready(server, TransactionStatus::InTransaction);
    // Worker 0 has much to do, so that the next connection goes to another.
    net.input(0, Input::Load { busy_permille: 1000 });
    let second = net.log_in("alice", "app");
    net.input(0, Input::Load { busy_permille: 0 });
    assert_eq!(net.ends[second].place.map(|(worker, _)| worker), Some(1));
    net.key(second);
    net.say(second, |out| write::query(out, b"SELECT 'second'"));
    (net, first, second, server)
}

/// A few letters arrive, as chance has it.
fn some_letters(net: &mut Net, lose: bool) {
    for _ in 0..net.below(6) {
        net.deliver(lose);
    }
}

#[test]
fn a_client_moves_and_is_served() {
    for seed in 0..SEEDS {
        let (mut net, first, second, server) = about_to_move(seed);
        some_letters(&mut net, false);
        net.say(first, |out| write::query(out, b"COMMIT"));
        net.ready(server, TransactionStatus::Idle);
        net.deliver_all();
        assert_eq!(net.ends[second].place.map(|(worker, _)| worker), Some(0), "seed {seed}");
        assert!(net.has(server, "SELECT 'second'"), "seed {seed}");
        assert_eq!(net.workers.iter().map(Worker::clients_moved).sum::<u64>(), 1);
    }
}

/// A client that cannot leave is served where it is, also if that lasts, and leaves when it can.
#[test]
fn a_client_that_cannot_leave_is_served_where_it_is() {
    for seed in 0..SEEDS {
        let (mut net, first, second, server) = about_to_move(seed);
        net.stuck = true;
        some_letters(&mut net, false);
        net.say(first, |out| write::query(out, b"COMMIT"));
        net.ready(server, TransactionStatus::Idle);
        (0..5).for_each(|_| net.deliver_all());
        assert_eq!(net.ends[second].place.map(|(worker, _)| worker), Some(1), "seed {seed}");
        assert!(net.has(server, "SELECT 'second'"), "seed {seed}");
        assert!(!net.ends[second].closed, "seed {seed}");
        assert_eq!(net.workers.iter().map(Worker::clients_moved).sum::<u64>(), 0);

        net.ready(server, TransactionStatus::Idle);
        net.deliver_all();
        net.say(first, |out| write::query(out, b"BEGIN"));
        net.deliver_all();
        net.ready(server, TransactionStatus::InTransaction);
        net.stuck = false;
        net.say(second, |out| write::query(out, b"SELECT 'again'"));
        net.deliver_all();
        assert_eq!(net.ends[second].place.map(|(worker, _)| worker), Some(0), "seed {seed}");
    }
}

/// A cancel request and KILL find it too, and no note of its leaving is left.
#[test]
fn a_client_that_cannot_leave_is_cancelled_where_it_is() {
    for seed in 0..SEEDS {
        let (mut net, _, second, _) = about_to_move(seed);
        net.stuck = true;
        some_letters(&mut net, false);
        let (process_id, key) = net.key(second);
        let canceller = net.connect();
        net.say(canceller, |out| write::cancel_request(out, process_id, &key));
        net.deliver_all();
        assert!(net.has(second, "57014"), "seed {seed}");
        assert!(net.ends[canceller].closed, "seed {seed}");
        assert!(!net.ends[second].closed, "seed {seed}");
    }
}

/// A table changes between two Parses of one text on two workers, and the client that sent the later one moves to the other.
#[test]
fn a_client_that_moves_gets_no_copy_older_than_its_parse() {
    let prepare = |net: &mut Net, client, server: usize, status| {
        net.say(client, |out| {
            write::parse(out, b"s", b"SELECT c FROM t\0\0\0");
            write::sync(out);
        });
        net.deliver_all();
        net.say(server, write::parse_complete);
        net.say(server, |out| write::ready(out, status));
    };
    for seed in 0..SEEDS {
        let (mut net, first, second, server) = about_to_move(seed);
        // The server goes to the second client, with the copy.
        net.stuck = true;
        prepare(&mut net, first, server, TransactionStatus::Idle);
        // It was in a transaction: the server prepares it once more outside of that.
        net.say(server, |out| out.extend_from_slice(b"3\0\0\0\x041\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I"));
        (0..5).for_each(|_| net.deliver_all());
        net.ready(server, TransactionStatus::Idle);
        prepare(&mut net, second, server, TransactionStatus::Idle);
        net.say(first, |out| write::query(out, b"BEGIN"));
        net.deliver_all();
        net.ready(server, TransactionStatus::InTransaction);
        net.stuck = false;
        net.say(second, |out| {
            write::bind_without_values(out, b"", b"s");
            write::sync(out);
        });
        net.deliver_all();
        net.say(first, |out| write::query(out, b"COMMIT"));
        net.ready(server, TransactionStatus::Idle);
        net.deliver_all();
        assert_eq!(net.ends[second].place.map(|(worker, _)| worker), Some(0), "seed {seed}");
        assert!(net.has(server, "SELECT c FROM t"), "seed {seed}: it is bound to the first client's copy");
    }
}

#[test]
fn a_cancel_finds_a_client_that_moves() {
    for seed in 0..SEEDS {
        let (mut net, _, second, server) = about_to_move(seed);
        let (process_id, key) = net.key(second);
        some_letters(&mut net, false);
        let canceller = net.connect();
        net.say(canceller, |out| write::cancel_request(out, process_id, &key));
        net.deliver_all();
        assert!(net.has(second, "57014"), "seed {seed}: the cancel missed its client");
        assert!(net.ends[canceller].closed, "seed {seed}: the cancel was not answered");
        assert!(!net.has(server, "SELECT 'second'"), "seed {seed}");
    }
}

#[test]
fn a_cancel_with_a_wrong_key_finds_nobody() {
    for seed in 0..SEEDS {
        let (mut net, _, second, _) = about_to_move(seed);
        let (process_id, _) = net.key(second);
        some_letters(&mut net, false);
        let canceller = net.connect();
        net.say(canceller, |out| write::cancel_request(out, process_id, b"nope"));
        net.deliver_all();
        assert!(!net.has(second, "57014") && net.ends[canceller].closed, "seed {seed}");
    }
}

#[test]
fn kill_ends_a_client_that_moves() {
    for seed in 0..SEEDS {
        let (mut net, _, second, _) = about_to_move(seed);
        some_letters(&mut net, false);
        let console = net.connect();
        net.say(console, |out| {
            write::startup(out, ProtocolVersion::V3_0, &[("user", "admin"), ("database", "pgbouncer")]);
            write::query(out, b"KILL app");
        });
        net.deliver_all();
        assert!(net.has(console, "KILL\0"), "seed {seed}: no answer");
        assert!(net.has(second, "57P01") && net.ends[second].closed, "seed {seed}: it lives on");
    }
}

#[test]
fn a_client_whose_connection_ends_on_its_way_is_counted_out() {
    for seed in 0..SEEDS {
        let (mut net, _, second, _) = about_to_move(seed);
        while net.ends[second].place.is_some() {
            assert!(net.deliver(false), "it did not leave");
        }
        while net.deliver(true) {}
        assert_eq!(net.ends[second].place, None);
        // Two clients are allowed, and one is left.
        let third = net.log_in("alice", "app");
        assert!(!net.has(third, "53300"), "seed {seed}: its place was not given back");
        let fourth = net.log_in("alice", "app");
        assert!(net.has(fourth, "53300"), "seed {seed}: its place was given back twice");
    }
}

/// The home's driver takes no more connections, and the other worker does not know.
#[test]
fn a_full_home_gets_no_clients_but_those_on_their_way() {
    for seed in 0..SEEDS {
        let (mut net, _, second, _) = about_to_move_among(seed, 5);
        net.deliver_all();
        assert_eq!(net.ends[second].place.map(|(worker, _)| worker), Some(0), "seed {seed}");
        let late = [0; 3].map(|_| net.log_in_elsewhere());
        net.input(0, Input::Load { busy_permille: 0 });
        net.input(0, Input::Crowded { full: true });
        let places = late.map(|client| {
            net.say(client, |out| write::query(out, b"SELECT 'late'"));
            net.deliver_all();
            net.ends[client].place.map(|(worker, _)| worker)
        });
        assert_eq!(places, [Some(0), Some(1), Some(1)], "seed {seed}");
    }
}

/// Whoever has left cannot be called back, should its new worker have no more room.
#[test]
fn few_leave_at_the_same_time_and_all_of_them_arrive() {
    const CLIENTS: usize = 200;
    for seed in 0..20 {
        let (mut net, _, _, _) = about_to_move_among(seed, 1 + CLIENTS as u32 + 1);
        net.deliver_all();
        let crowd: Vec<_> = (0..CLIENTS).map(|_| net.log_in_elsewhere()).collect();
        assert!(crowd.iter().all(|&client| net.ends[client].place.is_some_and(|(worker, _)| worker == 1)));
        net.input(0, Input::Load { busy_permille: 0 });
        // The driver has not let go of those that leave: their connections' Closed is kept back.
        net.kept = Some(Vec::new());
        for &client in &crowd {
            net.say(client, |out| write::query(out, b"SELECT 'crowd'"));
        }
        while net.deliver(false) {}
        let away = |net: &Net| {
            crowd.iter().filter(|&&client| net.ends[client].place.is_none_or(|(worker, _)| worker != 1)).count()
        };
        assert!((1..=16).contains(&away(&net)), "seed {seed}: {} left", away(&net));
        for (index, conn) in net.kept.take().unwrap_or_default() {
            net.input(index, Input::Closed { conn });
        }
        net.deliver_all();
        assert_eq!(away(&net), CLIENTS, "seed {seed}");
    }
}

/// Session pooling, and nothing that a server has to be cleaned of. The only server is on its way from worker 0 to the client on
/// worker 1, which waits with a request.
fn server_on_its_way(seed: u64) -> (Net, usize, usize) {
    let session = Settings { pool_mode: PoolMode::Session, server_reset_query: String::new(), ..settings(5) };
    let mut net = Net::with(seed, session);
    let (_, server) = net.log_in_first();
    let second = net.log_in_elsewhere();
    net.ends[server].received.clear();
    net.say(second, |out| write::query(out, b"SELECT 'second'"));
    while net.ends[server].place.is_some() {
        assert!(net.deliver(false), "the server was not handed over");
    }
    (net, second, server)
}

#[test]
fn a_server_on_its_way_misses_no_reload() {
    let elsewhere = |settings: &mut Settings| {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 5433 };
        settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
    };
    let with_tls = |settings: &mut Settings| settings.server_tls_sslmode = TlsMode::Require;
    let with_other_files = |settings: &mut Settings| settings.server_tls_files = 1;
    let in_another_mode = |settings: &mut Settings| settings.pool_mode = PoolMode::Transaction;
    let changes: [&dyn Fn(&mut Settings); 4] = [&elsewhere, &with_tls, &with_other_files, &in_another_mode];
    for change in changes {
        let (mut net, _, server) = server_on_its_way(1);
        let mut reloaded = Settings { pool_mode: PoolMode::Session, ..settings(5) };
        change(&mut reloaded);
        let reloaded = Arc::new(reloaded);
        for index in 0..net.workers.len() {
            net.input(index, Input::Settings(Arc::clone(&reloaded)));
        }
        net.deliver_all();
        assert!(net.ends[server].closed && !net.has(server, "SELECT 'second'"), "it is used as if nothing had changed");
    }
    let (mut net, _, server) = server_on_its_way(1);
    let same = Settings { pool_mode: PoolMode::Session, query_timeout: weir_core::time::Duration(5), ..settings(5) };
    net.input(1, Input::Settings(Arc::new(same)));
    net.deliver_all();
    assert!(net.has(server, "SELECT 'second'"), "what does not concern servers leaves them alone");
}

#[test]
fn a_server_on_its_way_misses_no_reconnect() {
    for seed in 0..SEEDS {
        let (mut net, second, server) = server_on_its_way(seed);
        // The console's worker is neither of those that the server travels between.
        net.now += 1_000_000;
        for busy in 0..2 {
            net.input(busy, Input::Load { busy_permille: 1000 });
        }
        let other_letters = |net: &mut Net| {
            let kept = net.letters.remove(&(0, 1)).unwrap_or_default();
            while net.deliver(false) {}
            net.letters.insert((0, 1), kept);
        };
        other_letters(&mut net);
        let console = net.connect();
        net.say(console, |out| {
            write::startup(out, ProtocolVersion::V3_0, &[("user", "admin"), ("database", "pgbouncer")]);
            write::query(out, b"RECONNECT");
        });
        if seed % 2 == 0 {
            other_letters(&mut net);
        }
        net.deliver_all();
        assert!(net.has(console, "RECONNECT\0"), "seed {seed}: no answer");
        // Whichever came first: nobody else is given the old server.
        if net.has(server, "SELECT 'second'") {
            net.ready(server, TransactionStatus::Idle);
            net.say(second, write::terminate);
            net.deliver_all();
        }
        assert!(net.ends[server].closed, "seed {seed}: it is used as if nothing had happened");
    }
}
