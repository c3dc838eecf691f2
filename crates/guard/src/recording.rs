//! A worker of core with fake clients and a fake server, driven by a kind's acts. What is handed in during one cycle is
//! recorded, so that [`Recording::replay`] does little besides what it measures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use weir_core::auth::Secret;
use weir_core::settings::{AuthType, Database, PoolMode, SessionState, TlsMode};
use weir_core::time::Duration;
use weir_core::{
    ConnId, Endpoint, Input, Numbers, Output, Peer, Settings, Side, Span, Time, Worker, WorkerConfig, WorkerId,
};
use weir_wire::{ProtocolVersion, write};

use crate::kinds::{Act, End, Kind};
use crate::messages;
use crate::postgres::Backend;

/// Time passes by this much from input to input.
const STEP: Duration = Duration(50);
/// Cycles before the one that is recorded: buffers have grown to their size, statements are known.
const WARM_UP: usize = 16;

/// Bytes that were handed in, and how many of them were taken.
#[derive(Debug)]
struct Hand {
    conn: ConnId,
    bytes: Vec<u8>,
    taken: usize,
}

/// A worker that has gone through the warm-up, and one cycle of its inputs.
pub struct Recording {
    worker: Worker,
    now: Time,
    tape: Vec<Hand>,
    /// Bytes that a cycle sends.
    sent_len: u64,
    transactions: u64,
}

impl Recording {
    /// Records a kind; panics where an end does not get what it should.
    pub fn of(kind: &Kind) -> Self {
        let mut stage = Stage::new(kind);
        stage.play(&kind.prelude);
        for _ in 0..WARM_UP {
            stage.play(&kind.cycle);
        }
        stage.received.clear();
        stage.tape.clear();
        stage.play(&kind.cycle);
        for (end, wanted) in &kind.sees {
            let seen = messages::tags(stage.received_by(*end));
            assert_eq!(&seen, wanted, "{}: what {end:?} gets in a cycle", kind.name);
        }
        let sent_len = stage.received.values().map(Vec::len).sum::<usize>() as u64;
        Self { worker: stage.worker, now: stage.now, tape: stage.tape, sent_len, transactions: kind.transactions }
    }

    /// Goes through the cycle so many times; answers how many transactions that were. Panics where core does not do as
    /// recorded.
    #[inline(never)]
    pub fn replay(&mut self, cycles: u64) -> u64 {
        let mut sent_len = 0;
        for _ in 0..cycles {
            for hand in &self.tape {
                self.now = self.now + STEP;
                if self.worker.poll_timeout().is_some_and(|due| due <= self.now) {
                    self.worker.handle(self.now, Input::Timeout);
                }
                let input = Input::Bytes { conn: hand.conn, bytes: &hand.bytes };
                let taken = self.worker.handle(self.now, input);
                assert_eq!(taken, hand.taken, "bytes taken");
                while let Some(output) = self.worker.poll_output() {
                    if let Output::Send { span, .. } = output {
                        sent_len += match span {
                            Span::Received { start, end } => u64::from(end - start),
                            Span::Made { .. } => self.worker.made(span).len() as u64,
                        };
                    }
                }
            }
        }
        assert_eq!(sent_len, self.sent_len * cycles, "bytes sent");
        cycles * self.transactions
    }
}

/// The worker with its peers, while it is recorded.
struct Stage {
    worker: Worker,
    now: Time,
    clients: Vec<ConnId>,
    server: Option<ConnId>,
    backend: Backend,
    /// What the server has to say and has not said.
    unsaid: Vec<u8>,
    received: BTreeMap<ConnId, Vec<u8>>,
    /// What core did not take, or did not want to read.
    held: BTreeMap<ConnId, Vec<u8>>,
    reading_off: Vec<ConnId>,
    tape: Vec<Hand>,
}

impl Stage {
    fn new(kind: &Kind) -> Self {
        let config = WorkerConfig {
            id: WorkerId(0),
            workers: 1,
            seed: *b"a measurement is always the same",
            process_secret: *b"a secret that nobody else knows.",
            epoch_us: 1_700_000_000_000_000,
            uid: None,
            numbers: Numbers::default(),
            predecessor: None,
            place: None,
        };
        let settings = Settings { session_state: kind.session_state, ..settings(([127, 0, 0, 1], 5432).into(), 1) };
        let mut stage = Self {
            worker: Worker::new(config, Arc::new(settings)),
            now: Time(0),
            clients: Vec::new(),
            server: None,
            backend: Backend::default(),
            unsaid: Vec::new(),
            received: BTreeMap::new(),
            held: BTreeMap::new(),
            reading_off: Vec::new(),
            tape: Vec::new(),
        };
        for application_name in kind.clients {
            stage.log_in(application_name);
        }
        stage
    }

    fn log_in(&mut self, application_name: &str) {
        let conn = self.worker.reserve(Side::Client);
        self.clients.push(conn);
        self.input(Input::Accepted { conn, peer: tcp(40_000), local: tcp(6432) });
        let mut startup = Vec::new();
        let parameters = [("user", "guard"), ("database", "guard"), ("application_name", application_name)];
        write::startup(&mut startup, ProtocolVersion::V3_0, &parameters);
        self.bytes(conn, &startup);
        while !self.unsaid.is_empty() {
            self.play(&[Act::Answer]);
        }
        let received = self.received.get(&conn).map(Vec::as_slice).unwrap_or_default();
        assert!(messages::ends_ready(received), "the login of {application_name} gave {}", messages::tags(received));
    }

    fn received_by(&self, end: End) -> &[u8] {
        let conn = match end {
            End::Client(index) => self.clients.get(index).copied(),
            End::Server => self.server,
        };
        conn.and_then(|conn| self.received.get(&conn)).map(Vec::as_slice).unwrap_or_default()
    }

    fn play(&mut self, acts: &[Act]) {
        for act in acts {
            match act {
                Act::Say(client, bytes) => self.bytes(self.clients[*client], bytes),
                Act::Answer => self.answer(self.unsaid.len()),
                Act::AnswerFirst(len) => self.answer(*len),
            }
        }
    }

    fn answer(&mut self, len: usize) {
        let bytes: Vec<u8> = self.unsaid.drain(..len).collect();
        if let Some(server) = self.server {
            self.bytes(server, &bytes);
        }
    }

    /// A peer sends bytes.
    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.held.entry(conn).or_default().extend_from_slice(bytes);
        self.hand_in_held();
    }

    fn hand_in_held(&mut self) {
        while let Some(conn) = self.next_held() {
            let bytes = self.held.remove(&conn).unwrap_or_default();
            self.now = self.now + STEP;
            let taken = self.worker.handle(self.now, Input::Bytes { conn, bytes: &bytes });
            self.drain(&bytes);
            if taken < bytes.len() {
                self.held.insert(conn, bytes[taken..].to_vec());
            }
            self.tape.push(Hand { conn, bytes, taken });
        }
    }

    fn next_held(&self) -> Option<ConnId> {
        self.held.keys().copied().find(|conn| !self.reading_off.contains(conn))
    }

    fn input(&mut self, input: Input<'_>) {
        self.worker.handle(self.now, input);
        self.drain(&[]);
    }

    fn drain(&mut self, bytes: &[u8]) {
        let mut asked = None;
        while let Some(output) = self.worker.poll_output() {
            match output {
                Output::Send { conn, span } => {
                    let sent = match span {
                        Span::Received { start, end } => &bytes[start as usize..end as usize],
                        Span::Made { .. } => self.worker.made(span),
                    };
                    self.received.entry(conn).or_default().extend_from_slice(sent);
                    if conn.side == Side::Server {
                        self.backend.receive(sent, &mut self.unsaid);
                    }
                }
                Output::Read { conn, on: true } => self.reading_off.retain(|&off| off != conn),
                Output::Read { conn, on: false } => self.reading_off.push(conn),
                Output::Connect { conn, .. } => asked = Some(conn),
                other => assert!(matches!(other, Output::Event(_)), "nothing here leads to {other:?}"),
            }
        }
        if let Some(conn) = asked {
            self.server = Some(conn);
            self.input(Input::Connected { conn, peer: tcp(5432), local: tcp(40_001) });
        }
    }
}

fn tcp(port: u16) -> Peer {
    Peer::Tcp { ip: [127, 0, 0, 1].into(), port }
}

/// A pool of so many servers, nobody is asked for a password, and what is left has its default.
pub fn settings(server: SocketAddr, pool_size: u32) -> Settings {
    let mut settings = Settings {
        auth_type: AuthType::Trust,
        pool_mode: PoolMode::Transaction,
        default_pool_size: pool_size,
        server_tls_sslmode: TlsMode::Disable,
        // Its servers answer no question about code; the kinds that keep have theirs.
        session_state: SessionState::Pgbouncer,
        ..Settings::default()
    };
    let endpoint = Endpoint::Tcp { host: server.ip().to_string().into(), port: server.port() };
    settings.databases.insert("guard".into(), Arc::new(Database::at(vec![endpoint])));
    settings.secrets.insert("guard".into(), Secret::parse("guard"));
    settings
}
