//! A driver of one worker, without sockets: holds bytes as the contract says, and checks every rule of the contract.
//!
//! Knows connections and bytes; not messages, not scripts.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use weir_core::contract::{CONGESTED_BYTES, Host, Names, RECEIVE_BYTES_MAX, Reloaded, Zone};
use weir_core::outside::{Finding, Inquiry};
use weir_core::time::Duration;
use weir_core::{
    ClientId, Command, ConnId, Endpoint, Event, Input, Numbers, Output, Peer, Settings, Side, Span, Time, TlsInfo,
    Worker, WorkerConfig, WorkerId,
};

/// Inputs that may follow from one input, and timeouts at one moment, before it counts as going round in circles.
const FOLLOWING_MAX: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Asked for with `Connect`, and not answered yet.
    Connecting,
    Open,
    /// Core has put out `Close`; its last bytes were sent, or wait for the peer to read.
    Closing,
    Ended,
}

/// One connection, as its peer sees it.
#[derive(Debug)]
pub struct End {
    pub id: ConnId,
    pub state: State,
    pub endpoint: Option<Endpoint>,
    /// What the peer received and has not looked at.
    pub received: Vec<u8>,
    /// All that the peer ever received.
    pub received_len: usize,
    /// Core has asked for TLS and the peer has not noticed.
    pub tls_asked: bool,
    /// Core has closed the connection and the peer has not noticed.
    pub closed_unseen: bool,
    reading: bool,
    held: Vec<u8>,
    /// The peer sends no more, which core is told once all before it is taken.
    fin: bool,
    /// What waits to be sent while the peer does not read.
    stalled: Option<Vec<u8>>,
    congested: bool,
}

/// What has to be handed in because of an output.
enum Following {
    Closed(ConnId),
    Pump(ConnId),
    Derived { job: u32, salted_password: [u8; 32] },
    NamesTold { asker: ClientId, names: Names },
    Mail { mail: weir_core::contract::Mail, conn: Option<ConnId> },
    Congested(ConnId),
}

pub struct Driver {
    worker: Worker,
    pub now: Time,
    ends: BTreeMap<ConnId, End>,
    /// Servers in the order asked for.
    pub connects: Vec<ConnId>,
    /// What the program around the worker was told, without the log, and what was not looked at yet.
    pub events: VecDeque<String>,
    /// Who asked for a reload, in that order.
    askers: VecDeque<Option<ClientId>>,
    pub log: Vec<String>,
    following: VecDeque<Following>,
    /// What others are asked about clients, and what was not answered yet.
    pub inquiries: VecDeque<(ClientId, Inquiry)>,
    /// About whom nobody need be asked any more.
    pub given_up: Vec<ClientId>,
    /// What is for the process that takes over, with the connections that go there.
    departed: Vec<(String, Option<End>)>,
    /// Rules of the contract that core broke.
    pub violations: Vec<String>,
}

impl Driver {
    pub fn new(settings: Settings) -> Self {
        Self::started(settings, None)
    }

    /// Another process takes the place of this one, which is to have nobody any more. Answers what connections are called there.
    pub fn taken_over(&mut self, settings: Settings) -> Result<BTreeMap<ConnId, ConnId>, String> {
        let left: Vec<_> = self.ends.values().filter(|end| end.state != State::Ended).map(|end| end.id).collect();
        if !left.is_empty() {
            return Err(format!("these stay with the old process: {left:?}"));
        }
        let mut new = Self::started(settings, Some(Endpoint::Unix { path: "@before".into() }));
        // Its clock goes on, which costs nothing.
        new.now = self.now;
        let mut names = BTreeMap::new();
        for (text, end) in std::mem::take(&mut self.departed) {
            let (_, mail) = weir_core::contract::Mail::read(&text, 1)?;
            let conn = end.map(|end| {
                let id = new.worker.reserve(Side::Client);
                names.insert(end.id, id);
                new.ends.insert(id, End { id, reading: true, ..end });
                id
            });
            new.input(Input::Mail { from: WorkerId::SUCCESSOR, mail, conn });
            if let Some(conn) = conn {
                new.pump(conn);
                new.settle();
            }
        }
        new.input(Input::Mail {
            from: WorkerId::SUCCESSOR,
            mail: weir_core::contract::Mail::predecessor_ended(),
            conn: None,
        });
        new.violations.append(&mut self.violations);
        *self = new;
        Ok(names)
    }

    fn started(settings: Settings, predecessor: Option<Endpoint>) -> Self {
        let config = WorkerConfig {
            id: WorkerId(0),
            workers: 1,
            seed: *b"a conversation is always the sam",
            process_secret: *b"a secret that nobody else knows.",
            epoch_us: 1_700_000_000_000_000,
            uid: None,
            numbers: Numbers::default(),
            predecessor,
            place: None,
        };
        let mut driver = Self {
            worker: Worker::new(config, Arc::new(settings)),
            now: Time(0),
            ends: BTreeMap::new(),
            connects: Vec::new(),
            events: VecDeque::new(),
            log: Vec::new(),
            askers: VecDeque::new(),
            following: VecDeque::new(),
            inquiries: VecDeque::new(),
            given_up: Vec::new(),
            departed: Vec::new(),
            violations: Vec::new(),
        };
        driver.drain(&[], None);
        driver.settle();
        driver
    }

    pub fn end(&self, id: ConnId) -> &End {
        &self.ends[&id]
    }

    /// Where core wants to be connected to.
    pub fn host(&self, id: ConnId) -> String {
        match &self.end(id).endpoint {
            Some(Endpoint::Tcp { host, .. }) => host.to_string(),
            other => format!("{other:?}"),
        }
    }

    pub fn end_mut(&mut self, id: ConnId) -> &mut End {
        self.ends.get_mut(&id).unwrap()
    }

    pub fn ends(&self) -> impl Iterator<Item = &End> {
        self.ends.values()
    }

    // What peers and the world do.

    pub fn accept(&mut self, port: u16) -> ConnId {
        let conn = self.worker.reserve(Side::Client);
        self.insert(conn, State::Open, None);
        let tcp = |port| Peer::Tcp { ip: [127, 0, 0, 1].into(), port };
        self.input(Input::Accepted { conn, peer: tcp(port), local: tcp(6432) });
        conn
    }

    pub fn connected(&mut self, conn: ConnId) {
        self.end_mut(conn).state = State::Open;
        let tcp = |port| Peer::Tcp { ip: [127, 0, 0, 1].into(), port };
        self.input(Input::Connected { conn, peer: tcp(5432), local: tcp(40_000) });
    }

    pub fn connect_failed(&mut self, conn: ConnId, reason: &str) {
        self.end_mut(conn).state = State::Ended;
        self.input(Input::ConnectFailed { conn, reason: reason.to_owned() });
    }

    /// The peer sends bytes. Those that core does not want yet are held.
    pub fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.end_mut(conn).held.extend_from_slice(bytes);
        self.pump(conn);
        self.settle();
    }

    /// The peer sends no more, and reads on.
    pub fn half_close(&mut self, conn: ConnId) {
        self.end_mut(conn).fin = true;
        self.pump(conn);
        self.settle();
    }

    /// The connection is gone, whoever ended it.
    pub fn close(&mut self, conn: ConnId) {
        if self.end(conn).state == State::Connecting {
            return self.connect_failed(conn, "connection refused");
        }
        if self.end(conn).state != State::Ended {
            self.end_mut(conn).state = State::Ended;
            self.input(Input::Closed { conn });
        }
    }

    /// It has failed, and is gone next.
    pub fn fail(&mut self, conn: ConnId) {
        self.input(Input::Failed { conn });
    }

    pub fn tls_ready(&mut self, conn: ConnId) {
        self.end_mut(conn).tls_asked = false;
        let tls = TlsInfo { description: "TLSv1.3/TLS_AES_256_GCM_SHA384".to_owned(), ..TlsInfo::default() };
        self.input(Input::TlsReady { conn, tls });
    }

    pub fn tls_failed(&mut self, conn: ConnId, reason: &str) {
        self.end_mut(conn).tls_asked = false;
        self.input(Input::TlsFailed { conn, reason: reason.to_owned() });
    }

    /// The peer stops looking at what it is sent.
    pub fn stall(&mut self, conn: ConnId) {
        self.end_mut(conn).stalled = Some(Vec::new());
    }

    pub fn read_on(&mut self, conn: ConnId) {
        let end = self.end_mut(conn);
        let waiting = end.stalled.take().unwrap_or_default();
        end.received.extend_from_slice(&waiting);
        end.received_len += waiting.len();
        if end.state == State::Closing {
            end.closed_unseen = true;
            return self.close(conn);
        }
        if std::mem::take(&mut self.end_mut(conn).congested) {
            self.input(Input::Writable { conn });
        }
    }

    pub fn settings(&mut self, settings: Settings) {
        self.input(Input::Settings(Arc::new(settings)));
    }

    pub fn command(&mut self, command: Command) {
        self.input(Input::Command(command));
    }

    pub fn stop(&mut self) {
        self.input(Input::Stop);
    }

    pub fn reload_done(&mut self, result: Reloaded) {
        let asker = self.askers.pop_front().flatten();
        self.input(Input::ReloadDone { asker, result });
    }

    /// Time passes; timeouts come when they are due.
    pub fn pass(&mut self, duration: Duration) {
        let target = self.now + duration;
        while let Some(due) = self.worker.poll_timeout().filter(|&due| due <= target) {
            self.now = self.now.max(due);
            self.settle();
        }
        self.now = target;
    }

    // What core does.

    fn insert(&mut self, id: ConnId, state: State, endpoint: Option<Endpoint>) {
        let end = End {
            id,
            state,
            endpoint,
            received: Vec::new(),
            received_len: 0,
            tls_asked: false,
            closed_unseen: false,
            reading: true,
            held: Vec::new(),
            fin: false,
            stalled: None,
            congested: false,
        };
        if self.ends.insert(id, end).is_some() {
            self.violations.push(format!("{id:?} was given twice"));
        }
    }

    fn input(&mut self, input: Input<'_>) {
        self.worker.handle(self.now, input);
        self.drain(&[], None);
        self.settle();
    }

    /// Hands in what follows from earlier outputs, and timeouts that are due.
    fn settle(&mut self) {
        for _ in 0..FOLLOWING_MAX {
            if let Some(following) = self.following.pop_front() {
                self.follow(following);
            } else if self.worker.poll_timeout().is_some_and(|due| due <= self.now) {
                self.worker.handle(self.now, Input::Timeout);
                self.drain(&[], None);
            } else {
                return;
            }
        }
        self.following.clear();
        panic!("core goes round in circles at {:?}, next timeout {:?}", self.now, self.worker.poll_timeout());
    }

    fn follow(&mut self, following: Following) {
        let input = match following {
            Following::Pump(conn) => return self.pump(conn),
            Following::Closed(conn) => {
                self.end_mut(conn).state = State::Ended;
                Input::Closed { conn }
            }
            Following::Derived { job, salted_password } => Input::Derived { job, salted_password },
            Following::NamesTold { asker, names } => Input::NamesTold { asker, names: Box::new(names) },
            Following::Mail { mail, conn } => Input::Mail { from: WorkerId(0), mail, conn },
            Following::Congested(conn) if self.end(conn).state == State::Ended => return,
            Following::Congested(conn) => Input::Congested { conn },
        };
        self.worker.handle(self.now, input);
        self.drain(&[], None);
    }

    /// A host's name leads to these addresses no more.
    pub fn host_moved(&mut self, host: &str, gone: Vec<IpAddr>) {
        self.input(Input::HostMoved { host: host.into(), gone });
    }

    /// Those who were asked about a client say what they know.
    pub fn answered(&mut self, client: ClientId, finding: Finding) {
        self.input(Input::Answered { client, finding });
    }

    /// Hands in a piece of what is held; the rest comes after whatever this piece leads to.
    fn pump(&mut self, conn: ConnId) {
        let Some(end) = self.ends.get_mut(&conn).filter(|end| end.state == State::Open && !end.tls_asked) else {
            return;
        };
        if end.held.is_empty() && std::mem::take(&mut end.fin) {
            self.worker.handle(self.now, Input::Ended { conn });
            return self.drain(&[], None);
        }
        if end.held.is_empty() || !end.reading {
            return;
        }
        let chunk: Vec<u8> = end.held[..end.held.len().min(RECEIVE_BYTES_MAX)].to_vec();
        let taken = self.worker.handle(self.now, Input::Bytes { conn, bytes: &chunk });
        self.drain(&chunk, Some(conn));
        let end = self.end_mut(conn);
        if taken > chunk.len() {
            return self.violations.push(format!("{conn:?}: {taken} of {} bytes were taken", chunk.len()));
        }
        end.held.drain(..taken);
        let excused = !end.reading || end.tls_asked || end.state != State::Open;
        let left = !end.held.is_empty() || end.fin;
        let resumes = self.following.iter().any(|next| matches!(next, Following::Pump(id) if *id == conn));
        if taken < chunk.len() && !excused && !resumes {
            self.violations.push(format!("{conn:?}: bytes were left without Read off, StartTls or Close"));
        } else if taken == chunk.len() && left && !resumes {
            self.following.push_back(Following::Pump(conn));
        }
    }

    fn drain(&mut self, input: &[u8], from: Option<ConnId>) {
        while let Some(output) = self.worker.poll_output() {
            self.output(output, input, from);
        }
    }

    /// The connection an output is for, if it may be for it.
    fn addressed(&mut self, conn: ConnId, what: &str) -> Option<&mut End> {
        match self.ends.get(&conn).map(|end| end.state) {
            Some(State::Open) => self.ends.get_mut(&conn),
            state => {
                self.violations.push(format!("{what} for {conn:?}, which is {state:?}"));
                None
            }
        }
    }

    fn output(&mut self, output: Output, input: &[u8], from: Option<ConnId>) {
        match output {
            Output::Send { conn, span } => self.send(conn, span, input),
            Output::Read { conn, on } => {
                let same = from == Some(conn);
                if let Some(end) = self.addressed(conn, "Read") {
                    let was = std::mem::replace(&mut end.reading, on);
                    if on && (!was || same) {
                        self.following.push_back(Following::Pump(conn));
                    }
                }
            }
            Output::Connect { conn, endpoint } => {
                if conn.side != Side::Server {
                    self.violations.push(format!("Connect with {conn:?}"));
                }
                self.insert(conn, State::Connecting, Some(endpoint));
                self.connects.push(conn);
            }
            Output::StartTls { conn, .. } => {
                if let Some(end) = self.addressed(conn, "StartTls") {
                    end.tls_asked = true;
                }
            }
            Output::Close { conn } => self.close_asked(conn),
            Output::Derive { job, password, salt, iterations } => {
                let salted_password = pbkdf2(password.as_bytes(), &salt, iterations);
                self.following.push_back(Following::Derived { job, salted_password });
            }
            Output::Ask { client, inquiry } => self.inquiries.push_back((client, *inquiry)),
            Output::AskNoMore { client } => {
                self.inquiries.retain(|(asked, _)| *asked != client);
                self.given_up.push(client);
            }
            Output::TellNames { asker } => {
                let hosts = vec![
                    Host {
                        name: "db".into(),
                        addresses: vec![[10, 0, 0, 1].into(), [10, 0, 0, 2].into()],
                        ttl: Duration::from_secs(15),
                    },
                    Host { name: "gone".into(), addresses: Vec::new(), ttl: Duration::from_secs(3) },
                ];
                let zone = |name: &str, serial| Zone { name: name.into(), serial, hosts: 2 };
                let zones = vec![zone("example.net", None), zone("example.org", Some(2_026_113_001))];
                self.following
                    .push_back(Following::NamesTold { asker, names: Names { hosts, zones, asked: 2, waiting: 1 } });
            }
            Output::Mail { to, mail, conn } => {
                if to == WorkerId::SUCCESSOR {
                    return self.depart(mail, conn);
                }
                assert_eq!(to, WorkerId(0), "there is one worker");
                self.following.push_back(Following::Mail { mail, conn });
            }
            Output::Event(Event::Log { level, text }) => self.log.push(format!("{level:?} {text}")),
            Output::Event(Event::Reload { asker, change }) => {
                self.askers.push_back(asker);
                let change = change.map(|change| format!(" {}={}", change.key, change.value));
                self.events.push_back(format!("Reload{}", change.unwrap_or_default()));
            }
            Output::Event(event) => self.events.push_back(format!("{event:?}")),
        }
    }

    fn depart(&mut self, mail: weir_core::contract::Mail, conn: Option<ConnId>) {
        let Some(text) = mail.written() else {
            return self.violations.push("mail to another process that is for none".to_owned());
        };
        let end = conn.and_then(|conn| self.ends.get_mut(&conn)).map(|end| {
            // What its peer has not looked at came from here.
            let received = std::mem::take(&mut end.received);
            let left = End { state: State::Ended, endpoint: None, received, held: Vec::new(), stalled: None, ..*end };
            std::mem::replace(end, left)
        });
        self.departed.push((text, end));
        self.following.extend(conn.map(Following::Closed));
        self.following.extend(conn.map(|_| Following::Mail { mail: weir_core::contract::Mail::sent(), conn: None }));
    }

    fn send(&mut self, conn: ConnId, span: Span, input: &[u8]) {
        let bytes = match span {
            Span::Received { start, end } => input.get(start as usize..end as usize).map(<[u8]>::to_vec),
            Span::Made { .. } => Some(self.worker.made(span).to_vec()),
        };
        let Some(bytes) = bytes else {
            return self.violations.push(format!("Send to {conn:?} of {span:?}: the input has {} bytes", input.len()));
        };
        let Some(end) = self.addressed(conn, "Send") else { return };
        match &mut end.stalled {
            None => {
                end.received.extend_from_slice(&bytes);
                end.received_len += bytes.len();
            }
            Some(waiting) => {
                waiting.extend_from_slice(&bytes);
                if waiting.len() > CONGESTED_BYTES && !std::mem::replace(&mut end.congested, true) {
                    self.following.push_back(Following::Congested(conn));
                }
            }
        }
    }

    fn close_asked(&mut self, conn: ConnId) {
        // A connection that is still being made can be given up, too; it ends as one that could not be made.
        if let Some(end) = self.ends.get_mut(&conn).filter(|end| end.state == State::Connecting) {
            end.closed_unseen = true;
            end.state = State::Closing;
            return self.following.push_back(Following::Closed(conn));
        }
        if let Some(end) = self.addressed(conn, "Close") {
            end.state = State::Closing;
            if end.stalled.is_none() {
                end.closed_unseen = true;
                self.following.push_back(Following::Closed(conn));
            }
        }
    }

    /// Bytes that the peer sent and core has not taken.
    pub fn held_len(&self, conn: ConnId) -> usize {
        self.end(conn).held.len()
    }
}

/// PBKDF2-HMAC-SHA256 of one block (RFC 8018), here for the derivations that core asks of its driver.
pub fn pbkdf2(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let keyed = Hmac::<Sha256>::new_from_slice(password).unwrap();
    let mut round: [u8; 32] =
        keyed.clone().chain_update(salt).chain_update([0, 0, 0, 1]).finalize().into_bytes().into();
    let mut result = round;
    for _ in 1..iterations {
        round = keyed.clone().chain_update(round).finalize().into_bytes().into();
        result.iter_mut().zip(round).for_each(|(byte, other)| *byte ^= other);
    }
    result
}
