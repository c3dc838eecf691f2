//! The console: each line is a command of an administrator. With a first byte of 1 what follows are messages instead.
#![no_main]

#[allow(dead_code)]
#[path = "../../crates/core/tests/support/driver.rs"]
mod driver;

use driver::{Driver, State};
use libfuzzer_sys::fuzz_target;
use weir_core::auth::Secret;
use weir_core::settings::{AuthType, Settings};
use weir_core::time::Duration;
use weir_wire::{ProtocolVersion, write};

fuzz_target!(|bytes: &[u8]| {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    let mut settings =
        Settings { auth_type: AuthType::Trust, admin_users: vec!["admin".to_owned()], ..Settings::default() };
    settings.secrets.insert("admin".into(), Secret::parse("secret"));
    let mut driver = Driver::new(settings);
    let client = driver.accept(50_001);
    let mut startup = Vec::new();
    write::startup(&mut startup, ProtocolVersion::V3_0, &[("user", "admin"), ("database", "pgbouncer")]);
    driver.bytes(client, &startup);
    driver.end_mut(client).received.clear();
    if kind == 1 {
        driver.bytes(client, bytes);
    } else {
        for line in bytes.split(|&byte| byte == b'\n').filter(|line| !line.contains(&0)) {
            if driver.end(client).state != State::Open {
                break;
            }
            let mut query = Vec::new();
            write::query(&mut query, line);
            driver.bytes(client, &query);
        }
    }
    driver.pass(Duration::from_secs(60));
    driver.close(client);
    assert!(driver.violations.is_empty(), "{:?}", driver.violations);
});
