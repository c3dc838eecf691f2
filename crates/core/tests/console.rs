//! The console with many clients: what is shown of all of them takes no worker long at once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods, clippy::disallowed_macros)]

use std::sync::Arc;

use weir_core::auth::Secret;
use weir_core::contract::{Input, Output, Peer, Span};
use weir_core::hba::{Addresses, Hba, Kind, Map, Mapped, Name, Record};
use weir_core::outside::{Finding, Inquiry};
use weir_core::settings::AuthType;
use weir_core::{ClientId, ConnId, Numbers, Settings, Side, Time, Worker, WorkerConfig, WorkerId};
use weir_wire::{BackendTag, HEADER_LEN, Header, ProtocolVersion, write};

const CLIENTS: usize = 3_000;
/// More than a portion and whatever else is said with it.
const AT_ONCE_MAX: usize = 128 * 1024;

struct Alone {
    worker: Worker,
    /// What each input led to, in bytes for the console.
    told: Vec<usize>,
    received: Vec<u8>,
    /// Of whom the system is asked.
    to_name: Vec<(ClientId, u32)>,
}

fn config() -> WorkerConfig {
    let (seed, process_secret) = ([1; 32], [2; 32]);
    WorkerConfig {
        id: WorkerId(0),
        workers: 1,
        seed,
        process_secret,
        epoch_us: 1_000_000,
        uid: None,
        numbers: Numbers::default(),
        predecessor: None,
        place: None,
    }
}

impl Alone {
    fn new() -> Self {
        let mut settings = Settings {
            auth_type: AuthType::Trust,
            admin_users: vec!["admin".to_owned()],
            max_client_conn: CLIENTS as u32,
            ..Settings::default()
        };
        settings.secrets.insert("admin".into(), Secret::parse("secret"));
        Self {
            worker: Worker::new(config(), Arc::new(settings)),
            told: Vec::new(),
            received: Vec::new(),
            to_name: Vec::new(),
        }
    }

    /// What is answered first to who comes by a Unix socket.
    fn answered(auth_type: AuthType, uid: Option<u32>, user: &str, database: &str) -> u8 {
        let settings = Settings { auth_type, ..Settings::default() };
        Self::answered_with(settings, uid, &[("user", user), ("database", database)])
    }

    fn answered_with(settings: Settings, uid: Option<u32>, parameters: &[(&str, &str)]) -> u8 {
        Self::answered_where(settings, uid, parameters, |_| None)
    }

    /// The same, where the system has names for users.
    fn answered_where(
        settings: Settings,
        uid: Option<u32>,
        parameters: &[(&str, &str)],
        name_of: impl Fn(u32) -> Option<&'static str>,
    ) -> u8 {
        let mut alone = Self::new();
        let config = WorkerConfig { uid: Some(7), ..config() };
        alone.worker = Worker::new(config, Arc::new(settings));
        let conn = alone.worker.reserve(Side::Client);
        alone.input(Input::Accepted { conn, peer: Peer::Unix { uid, pid: None, port: 0 }, local: Peer::NOWHERE });
        let mut bytes = Vec::new();
        write::startup(&mut bytes, ProtocolVersion::V3_0, parameters);
        alone.input(Input::Bytes { conn, bytes: &bytes });
        for (client, uid) in std::mem::take(&mut alone.to_name) {
            assert!(alone.received.is_empty(), "nothing is said until the system has answered");
            alone.input(Input::Answered { client, finding: Finding::Name(name_of(uid).map(Arc::from)) });
        }
        // The kind of authentication, in its last byte.
        alone.received.get(8).copied().filter(|_| alone.received[0] == b'R').unwrap_or(b'E')
    }

    fn input(&mut self, input: Input<'_>) -> usize {
        let taken = self.worker.handle(Time(1), input);
        let mut told = 0;
        while let Some(output) = self.worker.poll_output() {
            match output {
                Output::Send { span: span @ Span::Made { start, end }, .. } => {
                    self.received.extend_from_slice(self.worker.made(span));
                    told += (end - start) as usize;
                }
                Output::Ask { client, inquiry } => {
                    if let Inquiry::UserOf { uid } = *inquiry {
                        self.to_name.push((client, uid));
                    }
                }
                _ => {}
            }
        }
        self.told.push(told);
        taken
    }

    /// Comes in to the console as an administrator.
    fn console(&mut self) -> ConnId {
        let conn = self.worker.reserve(Side::Client);
        let unix = || Peer::NOWHERE;
        self.input(Input::Accepted { conn, peer: unix(), local: unix() });
        let mut bytes = Vec::new();
        write::startup(&mut bytes, ProtocolVersion::V3_0, &[("user", "admin"), ("database", "pgbouncer")]);
        self.input(Input::Bytes { conn, bytes: &bytes });
        conn
    }

    fn ask(&mut self, conn: ConnId) {
        self.received.clear();
        self.told.clear();
        let mut bytes = Vec::new();
        write::query(&mut bytes, b"SHOW CLIENTS");
        self.input(Input::Bytes { conn, bytes: &bytes });
    }

    fn time(&mut self) -> bool {
        let due = self.worker.poll_timeout().is_some_and(|due| due <= Time(1));
        if due {
            self.input(Input::Timeout);
        }
        due
    }

    fn count(&self, tag: BackendTag) -> usize {
        let (mut count, mut rest) = (0, &self.received[..]);
        while let Some(head) = rest.first_chunk::<HEADER_LEN>() {
            let header = Header::parse(head);
            count += usize::from(header.tag == tag as u8);
            rest = &rest[HEADER_LEN + header.body_len.unwrap() as usize..];
        }
        count
    }
}

fn crowd() -> (Alone, ConnId) {
    let mut alone = Alone::new();
    let consoles: Vec<_> = (0..CLIENTS).map(|_| alone.console()).collect();
    (alone, consoles[0])
}

#[test]
fn many_clients_are_shown_a_portion_at_a_time() {
    let (mut alone, console) = crowd();
    alone.ask(console);
    while alone.time() {}
    assert_eq!(alone.count(BackendTag::RowDescription), 1);
    assert_eq!(alone.count(BackendTag::DataRow), CLIENTS);
    assert_eq!(alone.count(BackendTag::ReadyForQuery), 1);
    let most = alone.told.iter().copied().max().unwrap_or_default();
    assert!(most < AT_ONCE_MAX, "{most} bytes in answer to one input");
    assert!(alone.told.len() > 10, "{} inputs", alone.told.len());
}

#[test]
fn a_console_that_does_not_read_is_told_no_more() {
    let (mut alone, console) = crowd();
    alone.ask(console);
    alone.time();
    alone.input(Input::Congested { conn: console });
    alone.time();
    let before = alone.received.len();
    while alone.time() {}
    assert_eq!(alone.received.len(), before);
    alone.input(Input::Writable { conn: console });
    while alone.time() {}
    assert_eq!(alone.count(BackendTag::DataRow), CLIENTS);
    assert_eq!(alone.count(BackendTag::ReadyForQuery), 1);
}

/// So that its client can be held between two of them when it does not take them.
#[test]
fn settings_are_shown_once_for_each_input() {
    let mut alone = Alone::new();
    let console = alone.console();
    let mut bytes = Vec::new();
    (0..100).for_each(|_| write::query(&mut bytes, b"SHOW CONFIG"));
    for _ in 0..100 {
        alone.received.clear();
        let taken = alone.input(Input::Bytes { conn: console, bytes: &bytes });
        bytes.drain(..taken);
        assert_eq!(alone.count(BackendTag::ReadyForQuery), 1);
    }
    assert!(bytes.is_empty());
}

#[test]
fn a_console_may_leave_in_the_middle_of_its_rows() {
    let (mut alone, console) = crowd();
    alone.ask(console);
    alone.time();
    alone.input(Input::Closed { conn: console });
    alone.received.clear();
    while alone.time() {}
    assert!(alone.received.is_empty());
}

/// PgBouncer's door for who runs it: the user `pgbouncer`, by a Unix socket, without a password.
#[test]
fn the_own_user_is_let_in() {
    const OK: u8 = 0;
    const MD5: u8 = 5;
    for (uid, user, database, expected) in [
        (Some(7), "pgbouncer", "pgbouncer", OK),
        (Some(7), "pgbouncer", "weir", OK),
        (Some(8), "pgbouncer", "pgbouncer", MD5),
        (None, "pgbouncer", "pgbouncer", MD5),
        (Some(7), "admin", "pgbouncer", MD5),
        (Some(7), "pgbouncer", "app", MD5),
    ] {
        assert_eq!(Alone::answered(AuthType::Md5, uid, user, database), expected, "{uid:?} {user} {database}");
    }
    // Nobody's name is vouched for: anybody may look.
    assert_eq!(Alone::answered(AuthType::Any, None, "anybody", "pgbouncer"), OK);
}

/// A record of `replication` is for no database, and none for the console, whatever a client says that it wants there.
#[test]
fn the_console_has_records_of_its_own() {
    let record = |database, method| Record {
        line: 1,
        kind: Kind::Local,
        databases: vec![database],
        users: vec![Name::All],
        addresses: Addresses::All,
        method,
        map: None,
        authority: None,
    };
    let own = record(Name::Is("pgbouncer".into()), AuthType::Plain);
    let hba = Hba { records: vec![own, record(Name::Replication, AuthType::Trust)] };
    for database in ["pgbouncer", "weir"] {
        for replication in ["off", "on", "true", "database"] {
            let mut settings = Settings {
                auth_type: AuthType::Hba,
                hba: Arc::new(hba.clone()),
                admin_users: vec!["admin".to_owned()],
                ..Settings::default()
            };
            settings.secrets.insert("admin".into(), Secret::parse("secret"));
            let parameters = [("user", "admin"), ("database", database), ("replication", replication)];
            const CLEAR: u8 = 3;
            assert_eq!(Alone::answered_with(settings, None, &parameters), CLEAR, "{database} {replication}");
        }
    }
}

#[test]
fn the_systems_user_is_a_user_of_ours() {
    let like = Name::Like(regex_lite::Regex::new("^(.*)@").unwrap());
    let pairs = vec![(Name::Is("ann".into()), Mapped::Is("admin".into())), (like, Mapped::Is("\\1".into()))];
    let map = Arc::new(Map { pairs });
    let name_of =
        |uid| [(1, "ann"), (2, "admin"), (3, "admin@host")].iter().find(|(own, _)| *own == uid).map(|(_, name)| *name);
    const OK: u8 = 0;
    for (map, uid, user, expected) in [
        (None, Some(2), "admin", OK),
        (None, Some(1), "admin", b'E'),
        (None, Some(9), "admin", b'E'),
        (None, None, "admin", b'E'),
        (None, Some(1), "ann", b'E'),
        (Some(&map), Some(1), "admin", OK),
        (Some(&map), Some(2), "admin", b'E'),
        (Some(&map), Some(3), "admin", OK),
        (Some(&map), Some(9), "admin", b'E'),
        (Some(&map), None, "admin", b'E'),
    ] {
        let record = Record {
            line: 1,
            kind: Kind::Local,
            databases: vec![Name::All],
            users: vec![Name::All],
            addresses: Addresses::All,
            method: AuthType::Peer,
            map: map.cloned(),
            authority: None,
        };
        let mut settings = Settings {
            auth_type: AuthType::Hba,
            hba: Arc::new(Hba { records: vec![record] }),
            admin_users: vec!["admin".to_owned()],
            ..Settings::default()
        };
        settings.secrets.insert("admin".into(), Secret::parse("secret"));
        let parameters = [("user", user), ("database", "pgbouncer")];
        let answered = Alone::answered_where(settings, uid, &parameters, name_of);
        assert_eq!(answered, expected, "{map:?} {uid:?} {user}");
    }
}
