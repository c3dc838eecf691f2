//! Peers that break the rules: each gets its error or is closed, memory stays bounded, the others are served.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use weir_wire::{BackendTag, ProtocolVersion, TransactionStatus, write};

use super::bench::{DRIVERS, Raw, Weir, shared, wait_until};
use super::ports::listener;

const MIB: u64 = 1024 * 1024;

/// Sends these bytes on a fresh connection; the SQLSTATE of the error, empty where it is closed without one.
fn answer_to(weir: &Weir, logged_in: bool, bytes: &[u8]) -> String {
    let mut raw = weir.raw();
    if logged_in {
        raw.log_in();
    }
    let _ = raw.0.write_all(bytes);
    let _ = raw.0.shutdown(Shutdown::Write);
    raw.last_error()
}

#[test]
fn bad_bytes_get_a_clear_error() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}"));
        weir.client().batch_execute("select 1").unwrap();
        let before = weir.memory_bytes();
        for _ in 0..50 {
            // Where no startup packet comes nobody is told, as with PostgreSQL.
            assert_eq!(answer_to(&weir, false, b"GET / HTTP/1.1\r\n\r\n"), "", "not our protocol");
            assert_eq!(answer_to(&weir, false, &[0, 0, 0, 4, 0, 3, 0, 0]), "", "a length too small");
            assert_eq!(answer_to(&weir, false, &[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0]), "", "too large");
            assert_eq!(answer_to(&weir, false, &[0, 0, 0, 9, 0, 3, 0, 0, b'u']), "08P01", "cut off inside");
            assert_eq!(answer_to(&weir, false, &[0, 0, 0, 9, 0, 9, 0, 0, 0]), "0A000", "another major version");
            assert_eq!(answer_to(&weir, true, b"~\0\0\0\x04"), "08P01", "an unknown message");
            assert_eq!(answer_to(&weir, true, b"p\0\0\0\x05\0"), "08P01", "a password after the login");
            assert_eq!(answer_to(&weir, true, b"Q\x7f\xff\xff\xff"), "08P01", "a query of 2 GB");
            assert_eq!(answer_to(&weir, true, b"Q\0\0\0\x01"), "08P01", "a length that lies");
            assert_eq!(answer_to(&weir, true, b"S\0\0\0\x08abcd"), "08P01", "a Sync with a body");
        }
        assert_eq!(answer_to(&weir, false, b""), "");
        let grown = weir.memory_bytes().saturating_sub(before);
        assert!(grown < 16 * MIB, "{grown} bytes more");
        weir.client().batch_execute("select 1").unwrap();
    }
}

#[test]
fn bytes_that_trickle_are_a_login_and_a_query() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}"));
        let mut raw = weir.raw();
        raw.0.set_nodelay(true).unwrap();
        let mut bytes = Vec::new();
        write::startup(&mut bytes, ProtocolVersion::V3_0, &[("user", "postgres"), ("database", "postgres")]);
        write::query(&mut bytes, b"select 'trickled'");
        for byte in bytes {
            raw.0.write_all(&[byte]).unwrap();
        }
        raw.read_until(BackendTag::ReadyForQuery);
        let messages = raw.read_until(BackendTag::ReadyForQuery);
        assert!(messages.iter().any(|(_, body)| body.ends_with(b"trickled")));
    }
}

#[test]
fn a_client_that_never_reads_holds_nobody_up() {
    for driver in DRIVERS {
        let weir = Weir::start(shared(), &format!("driver = {driver}\ndefault_pool_size = 2"));
        weir.client().batch_execute("select 1").unwrap();
        let before = weir.memory_bytes();
        let mut greedy = weir.raw();
        greedy.log_in();
        greedy.send(|out| write::query(out, b"select repeat('x', 1000000) from generate_series(1, 1000)"));
        std::thread::sleep(Duration::from_millis(500));
        let mut other = weir.client();
        for _ in 0..20 {
            other.batch_execute("select 1").unwrap();
        }
        let grown = weir.memory_bytes().saturating_sub(before);
        assert!(grown < 32 * MIB, "{driver}: {grown} bytes more for a result of 1 GB that nobody reads");
        // Read after all, it is there in whole.
        let mut bytes = 0;
        loop {
            let (tag, body) = greedy.message().unwrap();
            bytes += body.len();
            if tag == BackendTag::ReadyForQuery as u8 {
                break;
            }
        }
        assert!(bytes > 1_000_000_000);
    }
}

#[test]
fn silent_connections_are_held_and_then_closed() {
    for driver in DRIVERS {
        let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap().1;
        nix::sys::resource::setrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE, limit, limit).unwrap();
        // Both ends count, each in its own process; leave room for everything else.
        let count = (limit.saturating_sub(2000)).min(10_000) as usize;
        // Not deferred: the kernel would keep those who say nothing to itself, for a minute. And a longer queue
        // than the default of 128, which fills while the worker that was woken waits for a core: the kernel
        // then drops the connection's first packet, and each that it drops comes again a second later.
        let lines = format!(
            "driver = {driver}\nmax_client_conn = {count}\nclient_login_timeout = 5\ntcp_defer_accept = 0\n\
             listen_backlog = 4096"
        );
        let weir = Weir::start(shared(), &lines);
        weir.client().batch_execute("select 1").unwrap();
        let before = weir.memory_bytes();
        let mut silent: Vec<TcpStream> =
            (0..count).map(|_| TcpStream::connect(("127.0.0.1", weir.port)).unwrap()).collect();
        weir.client().batch_execute("select 1").unwrap();
        let each = weir.memory_bytes().saturating_sub(before) / count as u64;
        assert!(each < 4096, "{driver}: {each} bytes for a connection that says nothing");
        let mut last = Raw(silent.pop().unwrap());
        assert_eq!(last.last_error(), "57014");
        drop(silent);
        wait_until("others are served", || weir.try_client("dbname=postgres").is_ok());
    }
}

/// A server that greets as PostgreSQL does and answers each query with these bytes, then closes.
fn false_server(answer: Vec<u8>) -> u16 {
    // None of the ports that the system gives: a Weir of another test may still ask for a server that had it.
    let listener = listener();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().take(4) {
            let mut stream = stream.unwrap();
            let mut buffer = [0; 4096];
            let mut greeting = Vec::new();
            // An SSLRequest first, where Weir asks for TLS.
            let count = stream.read(&mut buffer).unwrap_or(0);
            if count == 8 {
                let _ = stream.write_all(b"N");
                let _ = stream.read(&mut buffer);
            }
            write::authentication_ok(&mut greeting);
            write::parameter_status(&mut greeting, "server_version", b"18.0");
            write::backend_key(&mut greeting, 7, b"1234");
            write::ready(&mut greeting, TransactionStatus::Idle);
            let _ = stream.write_all(&greeting);
            if stream.read(&mut buffer).unwrap_or(0) > 0 {
                let _ = stream.write_all(&answer);
            }
        }
    });
    port
}

#[test]
fn a_server_that_breaks_off_or_talks_nonsense_harms_its_own_client_only() {
    let mut whole = Vec::new();
    write::row_description(&mut whole, &[("one", write::ColumnType::Text)], false);
    write::data_row(&mut whole, [Some(&b"value"[..])].into_iter());
    write::command_complete(&mut whole, "SELECT 1");
    let mut answers: Vec<Vec<u8>> = (0..whole.len()).map(|cut| whole[..cut].to_vec()).collect();
    answers.push(b"\0\0\0\0\0\0\0\0\0".to_vec());
    answers.push(b"1\0\0\0\x04".to_vec());
    answers.push(b"Z\0\0\0\x05X".to_vec());
    answers.push(vec![b'D', 0xff, 0xff, 0xff, 0xff]);
    for answer in answers {
        // The first query is the client's, and none of Weir's about code.
        let lines = "session_state = pgbouncer\ndefault_pool_size = 1\nserver_login_retry = 1";
        let weir = Weir::start(false_server(answer.clone()), lines);
        let mut raw = weir.raw();
        raw.log_in();
        raw.send(|out| write::query(out, b"select 1"));
        let mut got = Vec::new();
        raw.0.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        raw.0.read_to_end(&mut got).expect("an error or an end, not a wait");
        let told = got.windows(5).any(|bytes| matches!(bytes, b"08006" | b"08P01"));
        let cut_inside = got.len() > 1 && !told;
        assert!(told || cut_inside, "answer {answer:?} led to {got:?}");
        assert!(TcpStream::connect(("127.0.0.1", weir.port)).is_ok(), "Weir is still there");
    }
}
