//! A transaction in steady state asks the whole program for no memory: core, engine and driver, on real sockets.

use std::net::SocketAddr;
use std::sync::Arc;

use weir::driver::{self, DriverKind, Listen, Options};
use weir_guard::allocations::{self, Counting};
use weir_guard::kinds::{self, Act};
use weir_guard::peers::Peers;
use weir_guard::recording;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CLIENTS: usize = 32;
const POOL_SIZE: u32 = 20;
const ROUNDS: usize = 320;
/// Buffers and queues grow to the most that was ever needed at once, which a busy machine may find out late. What a
/// transaction allocates is allocated in every window.
const WINDOWS: usize = 5;
/// A window has no more: where others take the cores, now and then a message comes in pieces, and is put together.
const ALLOCATIONS_MAX: u64 = (ROUNDS * CLIENTS / 1000) as u64;
/// What comes in one write from one client, and is answered in one.
const KINDS: [&str; 5] = ["simple", "rows", "extended", "prepared", "described"];

/// One test for all: another test's threads would be counted too.
#[test]
fn no_driver_allocates_for_a_transaction() {
    allocations::do_not_count_this_thread();
    let mut drivers = vec![DriverKind::Epoll];
    match driver::probe_uring() {
        Ok(()) => drivers.push(DriverKind::IoUring),
        Err(error) => println!("skipped on io_uring: {error}"),
    }
    for driver in drivers {
        for kind in KINDS {
            let windows = windows(driver, kind);
            assert!(
                windows.last().is_some_and(|&last| last <= ALLOCATIONS_MAX),
                "{driver:?}, {kind}: allocations in each {} transactions: {windows:?}",
                ROUNDS * CLIENTS
            );
        }
    }
}

/// The allocations of one window after the other, up to the first that has hardly any.
fn windows(driver: DriverKind, kind: &str) -> Vec<u64> {
    let kind = kinds::all().into_iter().find(|other| other.name == kind).expect("the kind exists");
    let mut peers = Peers::new().expect("loopback");
    let settings = recording::settings(peers.server_address().expect("it listens"), POOL_SIZE);
    let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
    let options = Options { listeners: vec![Listen::Tcp(listen)], workers: 1, kind: driver, ..Options::default() };
    let pooler = driver::start(options, Arc::new(settings)).expect("the driver starts");
    peers.log_in(pooler.addresses[0], CLIENTS).expect("the logins succeed");
    for act in kind.prelude.iter().chain(&kind.cycle) {
        round(&mut peers, act);
    }
    let mut windows = Vec::new();
    while windows.len() < WINDOWS && windows.last().is_none_or(|&last| last > ALLOCATIONS_MAX) {
        let before = allocations::count();
        for _ in 0..ROUNDS {
            kind.cycle.iter().for_each(|act| round(&mut peers, act));
        }
        windows.push(allocations::count() - before);
    }
    pooler.join().expect("the workers end well");
    windows
}

/// All clients say the same; servers answer at once.
fn round(peers: &mut Peers, act: &Act) {
    if let Act::Say(_, bytes) = act {
        peers.say_all(bytes).expect("the sockets are open");
        peers.serve().expect("everybody is answered");
    }
}
