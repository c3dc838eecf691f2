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
