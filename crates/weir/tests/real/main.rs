//! What the suite `postgres` leaves out: limits that are reached and not passed, each way to log in, replication.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../postgres/bench.rs"]
#[allow(dead_code)]
mod bench;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::{DRIVERS, Weir, at_once, shared};
use postgres::{Client, NoTls};
use weir_wire::{BackendTag, ProtocolVersion, write};

fn direct() -> Client {
    let url = format!("host=127.0.0.1 port={} user=postgres password=postgres dbname=postgres", shared());
    Client::connect(&url, NoTls).unwrap()
}

/// Counted by database, which no client can change: a watcher that sees nothing fails.
#[test]
fn limits_are_reached_and_never_passed() {
    for (name, limits, most) in [
        ("pool", "default_pool_size = 3", 3),
        ("database", "default_pool_size = 9\nmax_db_connections = 4", 4),
        ("user", "default_pool_size = 9\nmax_user_connections = 2", 2),
    ] {
        let database = format!("weir_limit_{name}");
        direct().batch_execute(&format!("create database {database}")).unwrap();
        let weir = Weir::start(shared(), &format!("workers = 4\n{limits}"));
        let done = Arc::new(AtomicBool::new(false));
        let watcher = {
            let (done, database) = (Arc::clone(&done), database.clone());
            std::thread::spawn(move || {
                let (mut direct, mut seen) = (direct(), 0);
                let count = "select count(*) from pg_stat_activity where datname = $1";
                while !done.load(Ordering::Relaxed) {
                    seen = seen.max(direct.query_one(count, &[&database]).unwrap().get::<_, i64>(0));
                }
                seen
            })
        };
        at_once(24, move |_| {
            let mut client = weir.try_client(&format!("dbname={database}")).unwrap();
            for _ in 0..10 {
                client.batch_execute("begin; select pg_sleep(0.005); commit").unwrap();
            }
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(watcher.join().unwrap(), most, "{name}");
    }
}

#[test]
fn each_way_to_log_in_takes_the_right_password_only() {
    for driver in DRIVERS {
        for auth_type in ["plain", "md5", "scram-sha-256"] {
            let weir = Weir::start(shared(), &format!("driver = {driver}\nauth_type = {auth_type}"));
            weir.client().batch_execute("select 1").unwrap();
            let connect = |user: &str| {
                let url = format!("host=127.0.0.1 port={} user={user} password=wrong dbname=postgres", weir.port);
                let error = Client::connect(&url, NoTls).err().unwrap();
                let told = error.as_db_error().unwrap();
                (told.code().clone(), told.message().replace(user, "?"))
            };
            assert_eq!(connect("postgres"), connect("weir_nobody"), "{driver}, {auth_type}");
        }
    }
}

#[test]
fn a_replication_connection_goes_through() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}"));
        let mut raw = weir.raw();
        let parameters = [("user", "postgres"), ("database", "postgres"), ("replication", "database")];
        raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
        raw.read_until(BackendTag::ReadyForQuery);
        raw.send(|out| write::query(out, b"IDENTIFY_SYSTEM"));
        let answer = raw.read_until(BackendTag::ReadyForQuery);
        assert!(answer.iter().any(|(tag, body)| *tag == b'D' && body.ends_with(b"postgres")), "{answer:?}");
    }
}
