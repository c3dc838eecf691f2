//! Which passwords a worker asks to have derived: PBKDF2 is dear, and strangers must not be able to have it done.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "support/config.rs"]
mod config;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_core::auth::{ChannelBinding, ClientFirst, Credentials, ScramVerifier, Secret, salted_password};
use weir_core::settings::{AuthType, Database, TlsMode};
use weir_core::{ConnId, Endpoint, Input, Numbers, Output, Peer, Settings, Side, Span, Time, Worker};
use weir_wire::{ProtocolVersion, write};

const ITERATIONS: u32 = 2;

struct World {
    worker: Worker,
    now: Time,
    /// What each connection was sent and has not looked at.
    received: BTreeMap<ConnId, Vec<u8>>,
    closed: Vec<ConnId>,
    connects: Vec<ConnId>,
    /// Asked for, and not answered yet: password, salt, iterations.
    asked: VecDeque<(u32, Arc<str>, Vec<u8>, u32)>,
    /// All that were ever asked for.
    derivations: usize,
}

impl World {
    fn new(auth_type: AuthType, users: &[(&str, &str)]) -> Self {
        Self::with_iterations(auth_type, ITERATIONS, users)
    }

    fn with_iterations(auth_type: AuthType, scram_iterations: u32, users: &[(&str, &str)]) -> Self {
        let secrets = users.iter().map(|(user, secret)| (*user, Secret::parse(secret))).collect::<Vec<_>>();
        let (received, closed, connects) = (BTreeMap::new(), Vec::new(), Vec::new());
        let worker = Worker::new(
            config::of_worker(0, 1, &Numbers::default()),
            Arc::new(Self::settings(auth_type, scram_iterations, secrets)),
        );
        Self { worker, now: Time(1), received, closed, connects, asked: VecDeque::new(), derivations: 0 }
    }

    fn settings(auth_type: AuthType, scram_iterations: u32, secrets: Vec<(&str, Secret)>) -> Settings {
        let endpoint = Endpoint::Tcp { host: "127.0.0.1".into(), port: 5432 };
        let mut settings = Settings {
            auth_type,
            scram_iterations,
            max_client_conn: 10_000,
            server_tls_sslmode: TlsMode::Disable,
            ..Settings::default()
        };
        settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
        for (user, secret) in secrets {
            settings.secrets.insert(user.into(), secret);
        }
        settings
    }

    fn input(&mut self, input: Input<'_>) {
        self.worker.handle(self.now, input);
        while let Some(output) = self.worker.poll_output() {
            match output {
                Output::Send { conn, span } => {
                    assert!(matches!(span, Span::Made { .. }), "nothing is passed on in a login");
                    let bytes = self.worker.made(span).to_vec();
                    self.received.entry(conn).or_default().extend(bytes);
                }
                Output::Close { conn } => self.closed.push(conn),
                Output::Connect { conn, .. } => self.connects.push(conn),
                Output::Derive { job, password, salt, iterations } => {
                    self.derivations += 1;
                    self.asked.push_back((job, password, salt, iterations));
                }
                _ => {}
            }
        }
    }

    fn bytes(&mut self, conn: ConnId, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        write(&mut bytes);
        self.input(Input::Bytes { conn, bytes: &bytes });
    }

    fn closed_by_peer(&mut self, conn: ConnId) {
        self.input(Input::Closed { conn });
    }

    /// Answers the oldest of what was asked for.
    fn derive(&mut self) {
        let (job, password, salt, iterations) = self.asked.pop_front().unwrap();
        let salted_password = salted_password(&*password, &salt, iterations);
        self.input(Input::Derived { job, salted_password });
    }

    /// The body of the only message that came.
    fn message(&mut self, conn: ConnId) -> Vec<u8> {
        let received = self.received.remove(&conn).unwrap_or_default();
        assert!(!received.is_empty(), "{conn:?} received nothing");
        received[5..].to_vec()
    }

    fn client(&mut self, user: &str) -> ConnId {
        let conn = self.worker.reserve(Side::Client);
        let tcp = |port| Peer::Tcp { ip: [127, 0, 0, 1].into(), port };
        self.input(Input::Accepted { conn, peer: tcp(1), local: tcp(6432) });
        self.bytes(conn, |out| write::startup(out, ProtocolVersion::V3_0, &[("user", user), ("database", "app")]));
        conn
    }

    /// A client that has sent its proof.
    fn proves(&mut self, user: &str, password: &str) -> ConnId {
        self.proves_while(user, password, |_| {})
    }

    fn proves_while(&mut self, user: &str, password: &str, meanwhile: impl FnOnce(&mut Self)) -> ConnId {
        let conn = self.client(user);
        assert_eq!(self.message(conn)[..4], 10_u32.to_be_bytes(), "SCRAM is asked for");
        let first = ClientFirst::new("", "nonce", &["SCRAM-SHA-256"], ChannelBinding::None).unwrap();
        self.bytes(conn, |out| write::sasl_initial(out, "SCRAM-SHA-256", &first.message()));
        let pending = first.on_server_first(&self.message(conn)[4..]).unwrap();
        let salted = salted_password(password, &pending.salt, pending.iterations);
        let (proof, _) = pending.finish_with(Credentials::Salted(salted));
        meanwhile(self);
        self.bytes(conn, |out| write::sasl_response(out, &proof));
        conn
    }

    fn is_let_in(&self, conn: ConnId) -> bool {
        self.received.get(&conn).is_some_and(|received| received[5..9] == 12_u32.to_be_bytes())
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now = Time(self.now.0 + milliseconds * 1000);
        self.input(Input::Timeout);
    }
}

#[test]
fn nothing_is_derived_for_a_name_that_is_not_in_the_file() {
    let mut world = World::new(AuthType::ScramSha256, &[("alice", "secret")]);
    let strangers: Vec<_> = (0..100).map(|number| world.proves(&format!("stranger{number}"), "x")).collect();
    assert_eq!(world.derivations, 0);
    let alice = world.proves("alice", "wrong");
    world.derive();
    assert!(world.closed.is_empty() && !world.received.contains_key(&alice), "all are told later");
    world.pass(101);
    for conn in strangers.into_iter().chain([alice]) {
        assert!(world.closed.contains(&conn));
        assert!(String::from_utf8_lossy(&world.message(conn)).contains("28P01"));
    }
    assert_eq!(world.derivations, 1);
}

#[test]
fn nothing_is_derived_for_a_strangers_plain_password() {
    let verifier = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let mut world = World::new(AuthType::Plain, &[("alice", verifier)]);
    for user in ["stranger", "alice"] {
        let conn = world.client(user);
        world.received.remove(&conn);
        world.bytes(conn, |out| write::password(out, b"guess"));
        assert_eq!(world.derivations, usize::from(user == "alice"));
        assert!(!world.received.contains_key(&conn));
    }
    world.derive();
    world.pass(104);
    assert_eq!(world.closed.len(), 0, "one microsecond for each iteration");
    world.pass(1);
    assert_eq!(world.closed.len(), 2);
}

/// A check takes as long as it takes, and where there is none to make, nobody sees that.
#[test]
fn a_refusal_comes_at_the_same_time_whatever_there_was_to_derive() {
    let verifier = "SCRAM-SHA-256$600000:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let mut in_clear = World::new(AuthType::Plain, &[("alice", verifier)]);
    for user in ["stranger", "alice"] {
        let conn = in_clear.client(user);
        in_clear.bytes(conn, |out| write::password(out, b"guess"));
    }
    in_clear.pass(600);
    let (job, ..) = in_clear.asked.pop_front().unwrap();
    in_clear.input(Input::Derived { job, salted_password: [0; 32] });
    in_clear.pass(99);
    assert_eq!(in_clear.closed.len(), 0);
    in_clear.pass(1);
    assert_eq!(in_clear.closed.len(), 2);

    let mut scram = World::with_iterations(AuthType::ScramSha256, 20_000, &[("alice", "secret")]);
    scram.proves("stranger", "guess");
    scram.proves("alice", "guess");
    scram.pass(110);
    scram.derive();
    scram.pass(9);
    assert_eq!(scram.closed.len(), 0);
    scram.pass(1);
    assert_eq!(scram.closed.len(), 2);
}

/// With passwords in clear it cannot be seen either who has which kind of secret.
#[test]
fn strangers_wait_as_long_as_the_users_of_the_file() {
    let verifier = "SCRAM-SHA-256$600000:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let mut world = World::new(AuthType::Plain, &[("alice", verifier), ("bob", "secret")]);
    for number in 0..100 {
        let conn = world.client(&format!("stranger{number}"));
        world.bytes(conn, |out| write::password(out, b"guess"));
    }
    world.pass(100);
    assert!((30..70).contains(&world.closed.len()), "{} wait as bob does", world.closed.len());
    world.pass(599);
    assert!((30..70).contains(&world.closed.len()));
    world.pass(1);
    assert_eq!((world.closed.len(), world.derivations), (100, 0));
}

#[test]
fn a_thousand_logins_of_one_user_cost_one_derivation() {
    let mut world = World::new(AuthType::ScramSha256, &[("alice", "secret")]);
    let clients: Vec<_> = (0..1000).map(|_| world.proves("alice", "secret")).collect();
    assert_eq!((world.derivations, world.asked.len()), (1, 1));
    assert!(clients.iter().all(|&client| !world.is_let_in(client)));
    world.derive();
    assert!(clients.iter().all(|&client| world.is_let_in(client)));
    let late = world.proves("alice", "secret");
    assert!(world.is_let_in(late));
    assert_eq!(world.derivations, 1);
}

#[test]
fn passwords_of_clients_that_have_gone_are_not_derived() {
    let verifier = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
        WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
    let mut world = World::new(AuthType::Plain, &[("alice", verifier)]);
    for number in 0..100 {
        let conn = world.client("alice");
        world.bytes(conn, |out| write::password(out, format!("guess{number}").as_bytes()));
        world.closed_by_peer(conn);
    }
    assert_eq!(world.derivations, 1, "the first was under way");
    let conn = world.client("alice");
    world.received.remove(&conn);
    world.bytes(conn, |out| write::password(out, b"pencil"));
    world.derive();
    assert_eq!(&*world.asked[0].1, "pencil");
    world.derive();
    assert!(!world.closed.contains(&conn));
    assert_eq!(world.connects.len(), 1, "it is in, and a server is asked for");
}

/// A server of this worker's that asks for SCRAM with so many iterations.
fn server_asks(world: &mut World, iterations: u32) -> ConnId {
    let server = world.connects.pop().unwrap();
    let tcp = |port| Peer::Tcp { ip: [127, 0, 0, 1].into(), port };
    world.input(Input::Connected { conn: server, peer: tcp(5432), local: tcp(2) });
    world.received.remove(&server);
    world.bytes(server, |out| write::authentication_sasl(out, &["SCRAM-SHA-256"]));
    let first = world.message(server);
    let nonce = String::from_utf8_lossy(&first).rsplit_once("r=").unwrap().1.to_owned();
    let answer = format!("r={nonce}more,s=AAAA,i={iterations}");
    world.bytes(server, |out| write::authentication_sasl_continue(out, answer.as_bytes()));
    server
}

#[test]
fn the_logins_of_a_pool_derive_its_password_once() {
    let mut world = World::new(AuthType::Trust, &[("alice", "secret")]);
    for round in 0..3 {
        world.client("alice");
        // After a login that failed, the next one waits.
        while world.connects.is_empty() {
            world.pass(100);
        }
        let server = server_asks(&mut world, 7);
        if round == 0 {
            world.derive();
        }
        assert!(String::from_utf8_lossy(&world.message(server)).contains("p="), "round {round}");
        world.closed_by_peer(server);
    }
    assert_eq!(world.derivations, 1);
}

#[test]
fn a_server_cannot_ask_for_iterations_without_end() {
    let mut world = World::new(AuthType::Trust, &[("alice", "secret")]);
    let client = world.client("alice");
    let server = server_asks(&mut world, 1_000_001);
    assert_eq!(world.derivations, 0);
    assert!(world.closed.contains(&server) && world.closed.contains(&client));
    assert!(String::from_utf8_lossy(&world.message(client)).contains("unacceptable SCRAM iteration count"));
}

#[test]
fn a_secret_of_before_a_reload_lets_nobody_in() {
    let stored = |password: &str| {
        let salt = [3; 16];
        Secret::Scram(ScramVerifier::from_salted(&salted_password(password, &salt, ITERATIONS), &salt, ITERATIONS))
    };
    let secrets = [stored("old"), Secret::parse("old")];
    let others =
        [stored("new"), Secret::parse("new"), Secret::parse(""), Secret::parse("md53f2a0c7a1ad4d0a0ac1b7a0be7be7b45")];
    for before in &secrets {
        for after in others.iter().chain([before]) {
            for derived_first in [false, true] {
                let settings = |secret: &Secret| {
                    Arc::new(World::settings(AuthType::ScramSha256, ITERATIONS, vec![("alice", secret.clone())]))
                };
                let mut world = World::new(AuthType::ScramSha256, &[]);
                world.input(Input::Settings(settings(before)));
                let derives = |world: &mut World| {
                    while !world.asked.is_empty() {
                        world.derive();
                    }
                };
                let conn = world.proves_while("alice", "old", |world| {
                    if derived_first {
                        derives(world);
                    }
                    world.input(Input::Settings(settings(after)));
                });
                derives(&mut world);
                assert_eq!(world.is_let_in(conn), before == after, "{before:?} {after:?} {derived_first}");
            }
        }
    }
}
