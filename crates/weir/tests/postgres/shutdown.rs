//! The end of the process: who hears of it, and how soon it comes.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use weir_core::contract::LINGER;
use weir_wire::{BackendTag, ProtocolVersion, write};

use super::bench::{DRIVERS, Raw, Weir, shared, wait_until};

fn query(raw: &mut Raw, text: &str) {
    raw.send(|out| write::query(out, text.as_bytes()));
}

fn begin(raw: &mut Raw) {
    raw.log_in();
    query(raw, "begin");
    raw.read_until(BackendTag::ReadyForQuery);
}

/// Both wait in the pool's queue once nothing but their query can be under way.
const QUEUE: Duration = Duration::from_millis(100);

#[test]
fn a_shutdown_that_waits_for_servers_tells_everybody_else_at_once() {
    for driver in DRIVERS {
        let mut weir = Weir::start(shared(), &format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 1"));
        let [mut busy, mut waiting, mut asking, mut idle] = [(); 4].map(|()| weir.raw());
        begin(&mut busy);
        [&mut waiting, &mut asking, &mut idle].into_iter().for_each(Raw::log_in);
        query(&mut waiting, "select 'waits'");
        std::thread::sleep(QUEUE);
        weir.signal(Signal::SIGINT);
        assert_eq!(waiting.last_error(), "57P01");
        query(&mut asking, "select 'asks'");
        assert_eq!(asking.last_error(), "57P01");
        query(&mut busy, "commit");
        busy.read_until(BackendTag::ReadyForQuery);
        assert_eq!(busy.last_error(), "57P01");
        assert_eq!(idle.last_error(), "57P01");
        wait_until("Weir ends", || weir.has_ended());
    }
}

#[test]
fn an_immediate_shutdown_tells_everybody_and_waits_for_nobody() {
    for driver in DRIVERS {
        let mut weir = Weir::start(shared(), &format!("driver = {driver}\nworkers = 2\ndefault_pool_size = 2"));
        let [mut running, mut deaf, mut waiting, mut idle, mut login] = [(); 5].map(|()| weir.raw());
        [&mut running, &mut deaf, &mut waiting, &mut idle].into_iter().for_each(Raw::log_in);
        query(&mut running, "select pg_sleep(600)");
        // It never looks at what it is sent.
        query(&mut deaf, "select repeat('x', 1000) from generate_series(1, 1000000)");
        std::thread::sleep(QUEUE);
        query(&mut waiting, "select 'waits'");
        login.send(|out| out.extend_from_slice(&[0, 0]));
        std::thread::sleep(QUEUE);
        let asked = Instant::now();
        weir.signal(Signal::SIGQUIT);
        for raw in [&mut running, &mut waiting, &mut idle] {
            assert_eq!(raw.last_error(), "57P01");
        }
        wait_until("Weir ends", || weir.has_ended());
        assert!(
            asked.elapsed() < Duration::from_micros(LINGER.0),
            "{:?}: as long as for one that does not read",
            asked.elapsed()
        );
    }
}

#[test]
fn the_console_can_be_opened_while_a_shutdown_waits() {
    for driver in DRIVERS {
        let folder = tempfile::Builder::new().prefix("weir-socket").tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let lines = format!("driver = {driver}\nunix_socket_dir = {}", folder.path().display());
        let mut weir = Weir::start(shared(), &lines);
        let socket = folder.path().join(format!(".s.PGSQL.{}", weir.port));
        let mut idle = weir.raw();
        idle.log_in();
        weir.signal(Signal::SIGTERM);
        let port = weir.port;
        wait_until("TCP is closed", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
        assert_eq!(local(&socket, "postgres").last_error(), "57P03");
        let mut console = local(&socket, "pgbouncer");
        console.read_until(BackendTag::ReadyForQuery);
        console.send(|out| write::query(out, b"SHUTDOWN"));
        assert_eq!(console.last_error(), "57P01");
        assert_eq!(idle.last_error(), "57P01");
        wait_until("Weir ends", || weir.has_ended());
        assert!(!socket.exists());
    }
}

/// Whoever takes the place of a Weir that still has clients may not wait for its end.
#[test]
fn the_end_leaves_another_processs_socket_alone() {
    let folder = tempfile::Builder::new().prefix("weir-socket").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let mut weir = Weir::start(shared(), &format!("unix_socket_dir = {}", folder.path().display()));
    let socket = folder.path().join(format!(".s.PGSQL.{}", weir.port));
    // TCP is open a moment before the file is there.
    weir.raw().log_in();
    std::fs::remove_file(&socket).unwrap();
    let other = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    weir.signal(Signal::SIGQUIT);
    wait_until("Weir ends", || weir.has_ended());
    UnixStream::connect(&socket).unwrap();
    drop(other);
}

/// Asks for a database over the Unix socket.
fn local(socket: &std::path::Path, database: &str) -> Raw<UnixStream> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let mut bytes = Vec::new();
    write::startup(&mut bytes, ProtocolVersion::V3_0, &[("user", "postgres"), ("database", database)]);
    stream.write_all(&bytes).unwrap();
    Raw(stream)
}
