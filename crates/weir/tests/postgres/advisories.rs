//! What PgBouncer was once open to, tried on Weir: its security advisories up to 1.25.2 (NEWS.md), one by one.
//!
//! Three are tested with the users that are looked up (`lookups.rs`): CVE-2015-6817, a user whom nobody knows got the session of `auth_user`
//! (`who_is_in_no_file_is_looked_up`); CVE-2025-2291, a password went on behind its VALID UNTIL (the same); CVE-2025-12819, a `search_path` in the
//! startup packet led `auth_query` astray (`no_client_leads_the_question_astray`).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use postgres::{Client, NoTls};
use weir_wire::{BackendTag, ProtocolVersion, TransactionStatus, write};

use super::bench::{DRIVERS, Raw, Weir, shared};
use super::ports::listener;
use super::tls::{certificates, weir as weir_with_tls};

fn lives(weir: &Weir) {
    weir.client().batch_execute("select 1").unwrap();
}

/// CVE-2012-4575: a long name of a database that stands for itself ended the process.
#[test]
fn names_as_long_as_a_packet_are_an_error() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}"));
        for length in [63, 64, 1_000, 9_900] {
            for name in ["database", "user"] {
                let long = "x".repeat(length);
                let mut parameters = vec![("user", "postgres"), ("database", "postgres")];
                parameters.retain(|(key, _)| *key != name);
                parameters.push((name, &long));
                let mut raw = weir.raw();
                raw.send(|out| write::startup(out, ProtocolVersion::V3_0, &parameters));
                assert!(!raw.last_error().is_empty(), "{name} of {length} bytes");
            }
        }
        lives(&weir);
    }
}

/// CVE-2015-4054: a password before anything else ended the process.
#[test]
fn a_message_before_the_startup_packet_is_none() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}\nauth_type = md5"));
        let mut messages = [Vec::new(), Vec::new(), Vec::new(), Vec::new()];
        write::password(&mut messages[0], b"md5");
        write::sasl_initial(&mut messages[1], "SCRAM-SHA-256", b"n,,n=,r=r");
        write::query(&mut messages[2], b"select 1");
        write::terminate(&mut messages[3]);
        for message in messages {
            let mut raw = weir.raw();
            raw.0.write_all(&message).unwrap();
            let _ = raw.0.shutdown(std::net::Shutdown::Write);
            raw.last_error();
        }
        lives(&weir);
    }
}

/// CVE-2021-3935: what came in clear behind the request for TLS was taken for what the certificate vouches for.
#[test]
fn what_comes_in_clear_behind_the_request_for_tls_is_not_taken() {
    let folder = certificates();
    for driver in DRIVERS {
        let weir = weir_with_tls(folder.path(), driver, "client_tls_sslmode = require\nauth_type = trust");
        let mut raw = weir.raw();
        raw.send(|out| {
            write::ssl_request(out);
            write::startup(out, ProtocolVersion::V3_0, &[("user", "postgres"), ("database", "postgres")]);
            write::query(out, b"select 'taken'");
        });
        let mut answer = Vec::new();
        let _ = raw.0.set_read_timeout(Some(Duration::from_secs(20)));
        raw.0.read_to_end(&mut answer).expect("it is closed");
        let in_clear = answer.strip_prefix(b"S").unwrap_or(&answer);
        // At most an alert of TLS (its first byte is 21), or an error.
        assert!(matches!(in_clear.first(), None | Some(21 | b'E')), "{answer:?}");
    }
    // The same from a server.
    for behind in [&b""[..], b"x"] {
        let behind = behind.to_vec();
        let server = lying_server(move |stream, _| {
            let mut answer = b"S".to_vec();
            greeting(&mut answer);
            answer.extend_from_slice(&behind);
            let _ = stream.write_all(&answer);
            let _ = stream.read(&mut [0; 4096]);
        });
        let weir = Weir::start(
            server,
            "server_tls_sslmode = require\nserver_login_retry = 1\nquery_wait_timeout = 30\nsession_state = pgbouncer",
        );
        // Behind the time for which a server whose TLS fails may be on its way back.
        let refused = weir.try_client("dbname=postgres").err().unwrap();
        assert_eq!(refused.code().map(|code| code.code()), Some("08006"), "{refused}");
    }
}

/// CVE-2026-6664: lengths in packets of SCRAM that wrap around ended the process.
#[test]
fn lengths_that_lie_in_packets_of_scram_are_an_error() {
    let users = "\"postgres\" \"postgres\"\n";
    for driver in DRIVERS {
        let lines = format!("driver = {driver}\nauth_type = scram-sha-256");
        let weir = Weir::start_with(&format!("* = host=127.0.0.1 port={}", shared()), users, &lines);
        for length in [u32::MAX, u32::MAX - 1, i32::MAX as u32, 1 << 31, 1 << 30, 5, 0] {
            for message_length in [4, 5, 26, 27, i32::MAX as u32, u32::MAX] {
                let mut raw = weir.raw();
                raw.ask_in();
                raw.read_until(BackendTag::Authentication);
                let mut packet = b"p".to_vec();
                packet.extend_from_slice(&message_length.to_be_bytes());
                packet.extend_from_slice(b"SCRAM-SHA-256\0");
                packet.extend_from_slice(&length.to_be_bytes());
                packet.extend_from_slice(b"n,,n=,r=r");
                let _ = raw.0.write_all(&packet);
                let _ = raw.0.shutdown(std::net::Shutdown::Write);
                let code = raw.last_error();
                assert!(matches!(&*code, "" | "08P01" | "28P01"), "{length} in {message_length}: {code}");
            }
        }
        lives(&weir);
    }
}

/// CVE-2026-6667: whoever may look at the console could end clients.
#[test]
fn who_may_only_look_ends_nobody() {
    let users = "\"postgres\" \"postgres\"\n\"watcher\" \"watcher\"\n";
    let lines = "stats_users = watcher";
    let weir = Weir::start_with(&format!("* = host=127.0.0.1 port={}", shared()), users, lines);
    let mut client = weir.client();
    let pid: i32 = client.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let url = format!("host=127.0.0.1 port={} user=watcher dbname=pgbouncer", weir.port);
    let mut watcher = Client::connect(&url, NoTls).unwrap();
    let rows = watcher.simple_query("show clients").unwrap();
    let ids: Vec<String> = rows
        .iter()
        .filter_map(|row| match row {
            postgres::SimpleQueryMessage::Row(row) => row.get("id").map(str::to_owned),
            _ => None,
        })
        .collect();
    assert!(!ids.is_empty());
    let commands =
        ["pause", "kill", "kill postgres", "reconnect", "disable postgres", "shutdown", "reload", "set verbose = 0"];
    let kills = ids.iter().map(|id| format!("kill_client {id}"));
    for command in commands.map(str::to_owned).into_iter().chain(kills) {
        let refused = watcher.simple_query(&command).expect_err(&command);
        assert_eq!(refused.as_db_error().map(|error| error.message()), Some("admin access needed"), "{command}");
    }
    let same: i32 = client.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    assert_eq!(same, pid);
}

fn greeting(out: &mut Vec<u8>) {
    write::authentication_ok(out);
    write::parameter_status(out, "server_version", b"18.0");
    write::backend_key(out, 7, b"1234");
    write::ready(out, TransactionStatus::Idle);
}

/// A server that answers each connection so, once the startup packet has come; the second argument is that packet, or the request for TLS.
fn lying_server(answer: impl Fn(&mut TcpStream, &[u8]) + Send + 'static) -> u16 {
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(64) {
            let mut stream = stream.unwrap();
            let mut packet = [0; 4096];
            let count = stream.read(&mut packet).unwrap_or(0);
            answer(&mut stream, &packet[..count]);
        }
    });
    port
}

/// What a client is told whose server answers so, in front of one that asks for no TLS.
fn told_by(answer: impl Fn(&mut TcpStream, &[u8]) + Send + 'static) -> (String, Weir) {
    // Where logins break off there may be better ones: whoever waits for one does so up to that limit.
    let lines =
        "server_tls_sslmode = disable\nserver_login_retry = 1\nclient_login_timeout = 3\nsession_state = pgbouncer";
    let weir = Weir::start(lying_server(answer), lines);
    let code = match weir.try_client("dbname=postgres") {
        Ok(mut client) => client.simple_query("select 1").err().unwrap(),
        Err(error) => error,
    };
    assert!(TcpStream::connect(("127.0.0.1", weir.port)).is_ok(), "Weir is still there");
    (code.code().map(|code| code.code().to_owned()).unwrap_or_default(), weir)
}

/// CVE-2026-6665: a server's long nonce overflowed the answer to it.
#[test]
fn a_long_nonce_of_a_server_is_taken_or_refused() {
    for length in [64, 1_000, 100_000, 2_000_000] {
        let (code, _weir) = told_by(move |stream, _| {
            let mut answer = Vec::new();
            write::authentication_sasl(&mut answer, &["SCRAM-SHA-256"]);
            let _ = stream.write_all(&answer);
            let mut first = [0; 4096];
            let count = stream.read(&mut first).unwrap_or(0);
            let first = String::from_utf8_lossy(&first[..count]).into_owned();
            let Some((_, nonce)) = first.split_once(",r=") else { return };
            let more = "x".repeat(length);
            let mut answer = Vec::new();
            write::authentication_sasl_continue(
                &mut answer,
                format!("r={nonce}{more},s=c2FsdHNhbHQ=,i=4096").as_bytes(),
            );
            let _ = stream.write_all(&answer);
            let _ = stream.read(&mut [0; 4096]);
            // It goes without an end that would be right.
        });
        assert!(matches!(&*code, "08006" | "57014"), "{length}: {code}");
    }
}

/// CVE-2026-6666: an error without an SQLSTATE ended the process.
#[test]
fn an_error_of_a_server_without_an_sqlstate_is_one() {
    let errors: [&[u8]; 5] = [b"\0", b"SFATAL\0\0", b"SFATAL\0Mno\0\0", b"C\0\0", b""];
    for error in errors {
        let mut message = b"E".to_vec();
        message.extend_from_slice(&(error.len() as u32 + 4).to_be_bytes());
        message.extend_from_slice(error);
        let at_login = message.clone();
        let (code, _weir) = told_by(move |stream, _| {
            let _ = stream.write_all(&at_login);
        });
        assert!(matches!(&*code, "08006" | "57014"), "{error:?} at login: {code}");
        // Behind a query.
        let weir = Weir::start(
            lying_server(move |stream, _| {
                let mut answer = Vec::new();
                greeting(&mut answer);
                let _ = stream.write_all(&answer);
                let _ = stream.read(&mut [0; 4096]);
                let mut answer = message.clone();
                write::ready(&mut answer, TransactionStatus::Idle);
                let _ = stream.write_all(&answer);
                let _ = stream.read(&mut [0; 4096]);
            }),
            "server_tls_sslmode = disable\nsession_state = pgbouncer",
        );
        let mut raw: Raw = weir.raw();
        raw.log_in();
        raw.send(|out| write::query(out, b"select 1"));
        // It is passed on as it is, or the server has broken the protocol.
        let told = raw.message().map(|(tag, _)| tag);
        assert_eq!(told, Some(BackendTag::ErrorResponse as u8), "{error:?}");
    }
}
