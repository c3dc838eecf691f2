//! A whole worker: two clients and their servers say what the input tells, in whatever order, until all are closed.
//!
//! Each step is an operation, who it is for, and a number. No bytes of any peer may make core panic or break its contract.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/core/tests/support/driver.rs"]
mod driver;

use std::sync::Arc;

use driver::{Driver, State};
use libfuzzer_sys::fuzz_target;
use weir_core::auth::Secret;
use weir_core::contract::Endpoint;
use weir_core::settings::{AuthType, Database, PoolMode, Settings, TlsMode};
use weir_core::time::Duration;
use weir_core::{ConnId, Side};
use weir_wire::{ProtocolVersion, write};

const STEPS_MAX: usize = 200;

/// Whole messages, so that an input need not spell them.
fn message(side: Side, number: u8) -> &'static [u8] {
    const CLIENT: [&[u8]; 16] = [
        b"Q\0\0\0\x0dselect 1\0",
        b"Q\0\0\0\x0abegin\0",
        b"P\0\0\0\x12s1\0select 1\0\0\0",
        b"P\0\0\0\x10\0select 1\0\0\0",
        b"B\0\0\0\x0e\0s1\0\0\0\0\0\0\0",
        b"B\0\0\0\x0c\0\0\0\0\0\0\0\0",
        b"E\0\0\0\x09\0\0\0\0\0",
        b"D\0\0\0\x08Ss1\0",
        b"C\0\0\0\x08Ss1\0",
        b"S\0\0\0\x04",
        b"H\0\0\0\x04",
        b"d\0\0\0\x05x",
        b"c\0\0\0\x04",
        b"f\0\0\0\x05\0",
        b"F\0\0\0\x0e\0\0\0\x01\0\0\0\0\0\0",
        b"X\0\0\0\x04",
    ];
    const SERVER: [&[u8]; 24] = [
        b"R\0\0\0\x08\0\0\0\0S\0\0\0\x11TimeZone\0UTC\0K\0\0\0\x0c\0\0\0\x01\x01\x02\x03\x04Z\0\0\0\x05I",
        b"Z\0\0\0\x05I",
        b"Z\0\0\0\x05T",
        b"Z\0\0\0\x05E",
        b"1\0\0\0\x04",
        b"2\0\0\0\x04",
        b"3\0\0\0\x04",
        b"C\0\0\0\x0bCOPY 1\0",
        b"C\0\0\0\x10DISCARD ALL\0",
        b"D\0\0\0\x06\0\0",
        b"T\0\0\0\x06\0\0",
        b"t\0\0\0\x06\0\0",
        b"n\0\0\0\x04",
        b"I\0\0\0\x04",
        b"s\0\0\0\x04",
        b"G\0\0\0\x07\0\0\0",
        b"H\0\0\0\x07\0\0\0",
        b"W\0\0\0\x07\0\0\0",
        b"d\0\0\0\x05x",
        b"c\0\0\0\x04",
        b"E\0\0\0\x20SERROR\0VERROR\0C22012\0Moops\0\0",
        b"E\0\0\0\x20SFATAL\0VFATAL\0C57P01\0Moops\0\0",
        b"S\0\0\0\x11TimeZone\0CET\0",
        b"V\0\0\0\x08\xff\xff\xff\xff",
    ];
    match side {
        Side::Client => CLIENT[usize::from(number) % CLIENT.len()],
        Side::Server => SERVER[usize::from(number) % SERVER.len()],
    }
}

fn settings(kind: u8) -> Settings {
    let modes = [PoolMode::Transaction, PoolMode::Session, PoolMode::Statement];
    let mut settings = Settings {
        auth_type: AuthType::Trust,
        pool_mode: modes[usize::from(kind) % modes.len()],
        default_pool_size: 1 + u32::from(kind >> 2 & 1),
        max_prepared_statements: [200, 1, 0, 2][usize::from(kind >> 3) % 4],
        server_tls_sslmode: TlsMode::Disable,
        query_timeout: Duration::from_secs(u64::from(kind >> 5) * 3),
        ..Settings::default()
    };
    let endpoint = Endpoint::Tcp { host: "db".into(), port: 5432 };
    settings.databases.insert("app".into(), Arc::new(Database::at(vec![endpoint])));
    settings.secrets.insert("alice".into(), Secret::parse("secret"));
    settings
}

fn login(driver: &mut Driver, port: u16) -> ConnId {
    let client = driver.accept(port);
    let mut startup = Vec::new();
    write::startup(&mut startup, ProtocolVersion::V3_2, &[("user", "alice"), ("database", "app")]);
    driver.bytes(client, &startup);
    client
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, mut rest)) = bytes.split_first() else { return };
    let mut driver = Driver::new(settings(kind));
    let clients = [login(&mut driver, 50_001), login(&mut driver, 50_002)];
    for _ in 0..STEPS_MAX {
        let Some((&[operation, number], after)) = rest.split_first_chunk::<2>() else { break };
        rest = after;
        let conn = match operation & 3 {
            2 | 3 => driver.connects.iter().rev().nth(usize::from(operation & 1)).copied(),
            which => Some(clients[usize::from(which)]),
        };
        let Some(conn) = conn else { continue };
        let state = driver.end(conn).state;
        match (operation >> 2) % 8 {
            0 if state == State::Open => {
                let raw = rest.split_off(..usize::from(number).min(rest.len())).unwrap_or_default();
                driver.bytes(conn, raw);
            }
            1..=3 if state == State::Connecting => driver.connected(conn),
            1..=3 if state == State::Open => driver.bytes(conn, message(conn.side, number)),
            4 => driver.pass(Duration::from_millis(u64::from(number) * 100)),
            5 if number > 200 => driver.close(conn),
            6 if state == State::Open => driver.stall(conn),
            7 => driver.read_on(conn),
            _ => {}
        }
    }
    let ids: Vec<ConnId> = driver.ends().map(|end| end.id).collect();
    ids.into_iter().for_each(|id| driver.close(id));
    assert!(driver.violations.is_empty(), "{:?}", driver.violations);
});
