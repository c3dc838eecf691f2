//! Bytes through plain sockets: order, back-pressure, closing, many connections, faults.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use weir_core::contract::{Command, Endpoint, Peer};

use super::*;

fn small_buffers() -> Options {
    Options { tcp: TcpOptions { socket_buffer_bytes: Some(32 * 1024), ..TcpOptions::default() }, ..Options::default() }
}

fn tcp(address: SocketAddr) -> Endpoint {
    Endpoint::Tcp { host: address.ip().to_string().into(), port: address.port() }
}

/// Bytes that differ from place to place, so that a lost or doubled piece shows.
fn pattern(start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|place| ((place.wrapping_mul(2_654_435_761)) >> 13) as u8).collect()
}

fn send_pattern(mut stream: TcpStream, total: usize) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut sent = 0;
        while sent < total {
            let len = (total - sent).min(37_123);
            stream.write_all(&pattern(sent, len)).unwrap();
            sent += len;
        }
    })
}

fn expect_pattern(stream: &mut impl Read, total: usize, mut each: impl FnMut(usize)) {
    let mut got = 0;
    let mut buffer = vec![0; 50_000];
    while got < total {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "ended after {got} of {total}");
        assert!(buffer[..len] == pattern(got, len), "other bytes somewhere after {got}");
        got += len;
        each(got);
    }
}

#[test]
fn a_hundred_megabytes_come_back() {
    both(|kind| {
        let running = run(kind, Script::default(), Options::default());
        let mut stream = running.connect();
        let writer = send_pattern(stream.try_clone().unwrap(), 100_000_000);
        expect_pattern(&mut stream, 100_000_000, |_| {});
        writer.join().unwrap();
        running.end();
    });
}

#[test]
fn a_slow_reader_is_not_buffered_for() {
    both(|kind| {
        let echo = run(kind, Script::default(), small_buffers());
        let script = Script { target: Some(tcp(echo.address())), ..Script::default() };
        let running = run(kind, script, small_buffers());
        let mut stream = running.connect();
        let total = 20_000_000;
        let writer = send_pattern(stream.try_clone().unwrap(), total);
        let mut most = 0;
        let mut naps = 0;
        expect_pattern(&mut stream, total, |got| {
            if got / 1_000_000 > naps {
                naps += 1;
                thread::sleep(Duration::from_millis(30));
                // The relay takes each byte twice: there and back.
                most = most.max(running.seen.lock().unwrap().taken.saturating_sub(2 * got));
            }
        });
        writer.join().unwrap();
        // Our own client socket has the system's buffers, which may grow to some megabytes.
        assert!(most < 16_000_000, "{most} bytes were under way on {kind:?}");
        let seen = running.seen.lock().unwrap();
        assert!(seen.congested > 0 && seen.congested == seen.writable, "{seen:?}");
        drop(seen);
        drop(stream);
        running.end();
        echo.end();
    });
}

#[test]
fn what_is_not_taken_comes_again() {
    both(|kind| {
        let running = run(kind, Script { bite: Some(777), ..Script::default() }, Options::default());
        let mut stream = running.connect();
        let writer = send_pattern(stream.try_clone().unwrap(), 400_000);
        expect_pattern(&mut stream, 400_000, |_| {});
        writer.join().unwrap();
        running.end();
    });
}

#[test]
fn a_deaf_worker_stops_its_peer() {
    both(|kind| {
        let running = run(kind, Script { deaf: true, ..Script::default() }, small_buffers());
        let mut stream = running.connect();
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut written = 0;
        let stuck = loop {
            match stream.write(&pattern(0, 10_000)) {
                Ok(len) => written += len,
                Err(error) => break error,
            }
            assert!(written < 50_000_000, "nobody stops the peer of a worker that reads nothing");
        };
        assert_eq!(stuck.kind(), ErrorKind::WouldBlock);
        // A reset: an orderly end would wait behind the bytes that nobody reads.
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        running.wait("the client has gone", |seen| seen.closed == 1);
        running.end();
    });
}

#[test]
fn last_words_are_sent_before_closing() {
    both(|kind| {
        let running = run(kind, Script { burst: Some(5_000_000), ..Script::default() }, small_buffers());
        let mut stream = running.connect();
        stream.write_all(b"go").unwrap();
        thread::sleep(Duration::from_millis(50));
        // Unread input must not turn the close into a reset.
        stream.write_all(b"more that nobody reads").unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 5_000_000);
        running.wait("closed", |seen| seen.closed == 1 && seen.open == 0);
        running.end();
    });
}

#[test]
fn refused_connections_are_told() {
    both(|kind| {
        // A port that was free a moment ago.
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let unix = Endpoint::Unix { path: "/nonexistent/.s.PGSQL.5432".into() };
        let name = Endpoint::Tcp { host: "no-such-host.invalid".into(), port: 1 };
        for (target, word) in [(tcp(free), "refused"), (unix, "No such file"), (name, "resolve")] {
            let running = run(kind, Script { target: Some(target), ..Script::default() }, Options::default());
            let mut stream = running.connect();
            assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
            running.wait("told", |seen| seen.connect_failed.iter().any(|reason| reason.contains(word)));
            running.end();
        }
    });
}

#[test]
fn names_are_resolved_and_all_addresses_tried() {
    both(|kind| {
        let echo = run(kind, Script::default(), Options::default());
        // The echo listens on 127.0.0.1 only; `localhost` may be ::1 first.
        let target = Endpoint::Tcp { host: "localhost".into(), port: echo.address().port() };
        let running = run(kind, Script { target: Some(target), ..Script::default() }, Options::default());
        let mut stream = running.connect();
        let writer = send_pattern(stream.try_clone().unwrap(), 1_000);
        expect_pattern(&mut stream, 1_000, |_| {});
        writer.join().unwrap();
        running.end();
        echo.end();
    });
}

#[test]
fn unix_sockets_on_both_sides() {
    both(|kind| {
        let folder = std::env::temp_dir().join(format!("weir-driver-{}-{kind:?}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(".s.PGSQL.6432");
        let listen = Listen::Unix { path: path.clone(), mode: 0o700, group: None };
        let echo = run(kind, Script::default(), Options { listeners: vec![listen], ..Options::default() });
        let name = format!("@weir-driver-{}-{kind:?}", std::process::id());
        let target = Endpoint::Unix { path: path.to_str().unwrap().into() };
        let listen = Listen::Unix { path: name.clone().into(), mode: 0, group: None };
        let options = Options { listeners: vec![loopback(), listen], ..Options::default() };
        let running = run(kind, Script { target: Some(target), ..Script::default() }, options);
        let mut stream = running.connect();
        let writer = send_pattern(stream.try_clone().unwrap(), 3_000_000);
        expect_pattern(&mut stream, 3_000_000, |_| {});
        writer.join().unwrap();
        let address =
            <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(&name[1..]);
        let mut abstract_stream = UnixStream::connect_addr(&address.unwrap()).unwrap();
        abstract_stream.write_all(b"hello").unwrap();
        abstract_stream.read_exact(&mut [0; 5]).unwrap();
        let uid = rustix::process::getuid().as_raw();
        let pid = Some(std::process::id());
        assert_eq!(echo.seen.lock().unwrap().accepted[0].0, Peer::Unix { uid: Some(uid), pid, port: 6432 });
        assert!(matches!(running.seen.lock().unwrap().accepted[0].0, Peer::Tcp { port: 1.., .. }));
        running.end();
        echo.end();
        assert!(!path.exists(), "the socket's file is left behind");
        std::fs::remove_dir(&folder).unwrap();
    });
}

#[test]
fn two_thousand_idle_connections() {
    both(|kind| {
        let running = run(kind, Script::default(), Options { backlog: 4096, ..Options::default() });
        let mut streams: Vec<_> = (0..2_000).map(|_| running.connect()).collect();
        running.wait("all accepted", |seen| seen.accepted.len() == 2_000);
        let quiet = running.seen.lock().unwrap().inputs;
        thread::sleep(Duration::from_millis(100));
        // One Load may follow what came before.
        assert!(running.seen.lock().unwrap().inputs <= quiet + 1, "idle connections cost something");
        for (index, stream) in streams.iter_mut().enumerate() {
            stream.write_all(&pattern(index, 100)).unwrap();
        }
        for (index, stream) in streams.iter_mut().enumerate() {
            let mut back = [0; 100];
            stream.read_exact(&mut back).unwrap();
            assert!(back[..] == pattern(index, 100));
        }
        drop(streams);
        running.wait("all closed", |seen| seen.closed == 2_000);
        running.end();
    });
}

#[test]
fn many_at_once_keep_their_bytes_apart() {
    both(|kind| {
        let echo = run(kind, Script::default(), Options::default());
        let script = Script { target: Some(tcp(echo.address())), ..Script::default() };
        let running = run(kind, script, Options::default());
        let clients: Vec<_> = (0..50)
            .map(|seed| {
                let mut stream = running.connect();
                thread::spawn(move || {
                    for round in 0..100 {
                        let sent = pattern(seed * 7919 + round, 1 + (round * 613) % 20_000);
                        stream.write_all(&sent).unwrap();
                        let mut back = vec![0; sent.len()];
                        stream.read_exact(&mut back).unwrap();
                        assert!(back == sent, "client {seed}, round {round}");
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        running.end();
        echo.end();
    });
}

#[test]
fn connections_move_between_workers_while_bytes_flow() {
    both(|kind| {
        let options = Options { workers: 3, ..small_buffers() };
        let running = run(kind, Script { moves: true, ..Script::default() }, options);
        let streams: Vec<_> = (0..8).map(|_| running.connect()).collect();
        let readers: Vec<_> = streams
            .into_iter()
            .map(|mut stream| {
                thread::spawn(move || {
                    let writer = send_pattern(stream.try_clone().unwrap(), 2_000_000);
                    expect_pattern(&mut stream, 2_000_000, |_| {});
                    writer.join().unwrap();
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        let moved = running.seen.lock().unwrap().moved;
        assert!(moved > 50, "moved only {moved} times");
        // Each move ends one name, and each client's end its last one.
        running.wait("all ended", |seen| seen.closed == seen.moved + 8);
        running.end();
    });
}

/// As core does it under load: the receive is begun and cancelled in one turn, while the first bytes are coming.
#[test]
fn clients_move_while_their_first_bytes_come() {
    both(|kind| {
        let options = Options { workers: 2, ..Options::default() };
        let running = run(kind, Script { moves_first: true, ..Script::default() }, options);
        let address = running.address();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                thread::spawn(move || {
                    for round in 0..200 {
                        let mut stream = TcpStream::connect(address).unwrap();
                        stream.set_read_timeout(Some(PATIENCE)).unwrap();
                        stream.write_all(&pattern(round, 100)).unwrap();
                        let mut back = [0; 100];
                        stream.read_exact(&mut back).unwrap();
                        assert!(back[..] == pattern(round, 100));
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        running.wait("all ended", |seen| seen.closed == 2 * 8 * 200);
        running.end();
    });
}

#[test]
fn listening_on_the_network_stops_and_the_rest_stays() {
    both(|kind| {
        let path = std::env::temp_dir().join(format!("weir-stop-{}-{kind:?}", std::process::id()));
        let unix = Listen::Unix { path: path.clone(), mode: 0o777, group: None };
        let options = Options { listeners: vec![loopback(), unix], ..Options::default() };
        let running = run(kind, Script::default(), options);
        let mut stream = running.connect();
        stream.write_all(b"a").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        running.handle.command(Command::Pause);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(running.address()).is_ok() {
            assert!(Instant::now() < deadline, "still listening");
            thread::sleep(Duration::from_millis(5));
        }
        let mut local = UnixStream::connect(&path).unwrap();
        local.set_read_timeout(Some(PATIENCE)).unwrap();
        local.write_all(b"c").unwrap();
        local.read_exact(&mut [0]).unwrap();
        stream.write_all(b"b").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        running.handle.command(Command::ShutdownNow);
        let event = || running.handle.events.recv_timeout(PATIENCE).unwrap();
        let (drains, exit) = (event(), event());
        assert!(matches!((&drains, &exit), (DriverEvent::Drains, DriverEvent::Exit)), "{drains:?}, {exit:?}");
        running.end();
        assert!(!path.exists(), "the socket's file is gone with its listener");
    });
}

#[test]
fn a_panic_ends_in_an_error() {
    both(|kind| {
        let running =
            run(kind, Script { panics: true, ..Script::default() }, Options { workers: 2, ..Options::default() });
        let mut stream = running.connect();
        stream.write_all(b"x").unwrap();
        let failed = running.handle.events.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(&failed, DriverEvent::Failed { text } if text.contains("told to")), "{failed:?}");
        assert!(running.handle.join().unwrap_err().contains("worker 0"));
    });
}

#[test]
fn a_port_in_use_is_said() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let options = Options { listeners: vec![Listen::Tcp(address)], workers: 1, ..Options::default() };
    let error = start(options, Arc::default()).unwrap_err();
    assert!(error.0.contains(&address.to_string()) && error.0.contains("in use"), "{error}");
}

/// As where memory is enough for some rings, and not for all.
#[test]
fn one_worker_without_a_ring_means_epoll_for_all() {
    if let Err(error) = probe_uring() {
        return println!("skipped: {error}");
    }
    let start = |kind| {
        let options = Options { kind, workers: 3, listeners: vec![loopback()], ..Options::default() };
        let seen = Arc::default();
        let make = move |id, workers| Relay::new(id, workers, Script::default(), Arc::clone(&seen));
        handle::start_with_rings(options, make, |id, bell| match id.0 {
            1 => Err(std::io::Error::from_raw_os_error(libc::ENOMEM)),
            _ => uring::Uring::new(bell),
        })
    };
    let handle = start(DriverKind::Auto).unwrap();
    assert!(handle.driver.starts_with("epoll (io_uring is not usable here: Cannot allocate"), "{}", handle.driver);
    let mut stream = TcpStream::connect(handle.addresses[0]).unwrap();
    stream.write_all(b"to and fro").unwrap();
    stream.read_exact(&mut [0; 10]).unwrap();
    drop(stream);
    handle.join().unwrap();
    let StartError(reason) = start(DriverKind::IoUring).unwrap_err();
    assert!(reason.contains("worker 1 failed: cannot set up io_uring: Cannot allocate"), "{reason}");
}

#[test]
fn a_client_that_sends_no_more_gets_its_answers() {
    both(|kind| {
        for bite in [None, Some(777)] {
            let running = run(kind, Script { bite, ..Script::default() }, small_buffers());
            let mut stream = running.connect();
            let mut writer = stream.try_clone().unwrap();
            let total = 200_000;
            let writes = thread::spawn(move || {
                writer.write_all(&pattern(0, total)).unwrap();
                writer.shutdown(std::net::Shutdown::Write).unwrap();
            });
            expect_pattern(&mut stream, total, |_| {});
            assert_eq!(stream.read(&mut [0; 10]).unwrap(), 0);
            writes.join().unwrap();
            running.wait("closed", |seen| (seen.ended, seen.closed, seen.open) == (1, 1, 0));
            running.end();
        }
    });
}

#[test]
fn a_client_that_sends_no_more_and_goes_is_noticed() {
    both(|kind| {
        let script = Script { stays: true, ..Script::default() };
        let running = run(kind, script, Options::default());
        let stream = running.connect();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        running.wait("ended", |seen| seen.ended == 1);
        thread::sleep(Duration::from_millis(30));
        assert_eq!(running.seen.lock().unwrap().closed, 0);
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        running.wait("closed", |seen| seen.closed == 1);
        running.end();
    });
}

#[test]
fn a_server_that_resets_its_connection_is_told_from_one_that_ends_it() {
    both(|kind| {
        for resets in [false, true] {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let target = Some(tcp(listener.local_addr().unwrap()));
            let running = run(kind, Script { target, ..Script::default() }, Options::default());
            let client = running.connect();
            let (server, _) = listener.accept().unwrap();
            running.wait("connected", |seen| seen.connected.len() == 1);
            if resets {
                socket2::SockRef::from(&server).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(server);
            running.wait("closed", |seen| seen.closed >= 1);
            assert_eq!(running.seen.lock().unwrap().failed, usize::from(resets));
            drop(client);
            running.wait("all closed", |seen| seen.open == 0);
            running.end();
        }
    });
}

/// Unix sockets tell at once whether the peer may still read.
#[test]
fn a_closed_unix_socket_is_no_half_closed_one() {
    both(|kind| {
        let path = std::env::temp_dir().join(format!("weir-half-{}-{kind:?}", std::process::id()));
        let listen = Listen::Unix { path: path.clone(), mode: 0o700, group: None };
        let script = Script { stays: true, ..Script::default() };
        let running = run(kind, script, Options { listeners: vec![listen], ..Options::default() });
        let half = UnixStream::connect(&path).unwrap();
        half.shutdown(std::net::Shutdown::Write).unwrap();
        running.wait("ended", |seen| seen.ended == 1);
        drop(UnixStream::connect(&path).unwrap());
        running.wait("closed", |seen| seen.closed == 1);
        drop(half);
        running.wait("closed", |seen| seen.closed == 2);
        running.end();
    });
}
