//! A process that runs out of descriptors: clients wait, it says so, and they are served once there are some again.
//! A test binary of its own, since it takes all descriptors of its process.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use weir::driver::{DriverEvent, DriverKind, Listen, Machine, Options, probe_uring, start_machines};
use weir_core::contract::{Input, Output, Span};
use weir_core::id::{ClientId, Party, Table};
use weir_core::{ConnId, Side, Time};

/// Sends back what comes.
struct Echo {
    clients: Table<ClientId, ()>,
    outputs: VecDeque<Output>,
}

impl Machine for Echo {
    fn reserve(&mut self, _side: Side) -> ConnId {
        self.clients.insert(()).into()
    }

    fn handle(&mut self, _now: Time, input: Input<'_>) -> usize {
        match input {
            Input::Bytes { conn, bytes } => {
                let span = Span::Received { start: 0, end: bytes.len() as u32 };
                self.outputs.push_back(Output::Send { conn, span });
                bytes.len()
            }
            Input::Closed { conn } => {
                let Party::Client(client) = conn.party() else { panic!("only clients come") };
                self.clients.remove(client).unwrap();
                0
            }
            _ => 0,
        }
    }

    fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn made(&self, _span: Span) -> &[u8] {
        &[]
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

fn clients_wait_for_descriptors(kind: DriverKind) {
    // Before the start: io_uring remembers the limit of when an accept was begun.
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.min(200), hard).unwrap();
    let options = Options {
        listeners: vec![Listen::Tcp("127.0.0.1:0".parse().unwrap())],
        kind,
        workers: 1,
        ..Options::default()
    };
    let echo = |_, _| Echo { clients: Table::default(), outputs: VecDeque::new() };
    let handle = start_machines(options, echo).unwrap();
    let make = || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let sockets: Vec<_> = (0..5).map(|_| make()).collect();
    let mut hoard = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        hoard.push(file);
    }
    for socket in &sockets {
        socket.connect(&handle.addresses[0].into()).unwrap();
    }
    let said = handle.events.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(&said, DriverEvent::Log(line) if line.text.contains("cannot accept")), "{said:?}");
    drop(hoard);
    let freed = Instant::now();
    for socket in sockets {
        let mut stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
    }
    assert!(freed.elapsed() < Duration::from_secs(5));
    // Pausing is what keeps this from being said again and again.
    let more = std::iter::from_fn(|| handle.events.try_recv().ok()).count();
    assert!(more < 10, "said {more} more times");
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    handle.join().unwrap();
}

#[test]
fn clients_wait_for_descriptors_on_both_drivers() {
    clients_wait_for_descriptors(DriverKind::Epoll);
    match probe_uring() {
        Ok(()) => clients_wait_for_descriptors(DriverKind::IoUring),
        Err(error) => println!("skipped on io_uring: {error}"),
    }
}
