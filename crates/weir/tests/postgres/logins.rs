//! Each way in takes the right password only; a replication connection has a server of its own.

use postgres::{Client, NoTls};
use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{DRIVERS, Weir, shared};

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
                (told.code().clone(), told.message().replace(user, "?"), told.detail().map(str::to_owned))
            };
            assert_eq!(connect("postgres"), connect("weir_nobody"), "{driver}, {auth_type}");
        }
    }
}

#[test]
fn a_database_may_be_the_console_of_another_pooler() {
    for driver in DRIVERS {
        let other = Weir::start(shared(), "");
        let database = format!("* = host=127.0.0.1 port={} dbname=weir pool_size=2", other.port);
        let weir = Weir::start_with(&database, "\"postgres\" \"postgres\"\n", &format!("driver = {driver}"));
        for settings in ["", "application_name=somebody options='-c DateStyle=ISO'"] {
            let mut client = weir.try_client(settings).unwrap();
            let rows = client.simple_query("show databases").unwrap();
            assert!(rows.len() > 1, "{driver}, {settings}: {rows:?}");
            assert!(client.batch_execute("select 1").is_err(), "it is no PostgreSQL");
        }
        assert!(!weir.log().contains("asking"), "{}", weir.log());
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
