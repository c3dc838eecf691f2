//! Both drivers under the same tests, driven by a small relay in core's place.

mod newcomers;
mod relay;
mod stream;
mod tls;
mod tls_sessions;

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use relay::{Relay, Script, Seen};

/// Patience of a test with something that must happen.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on each driver that works here.
fn both(test: impl Fn(DriverKind)) {
    test(DriverKind::Epoll);
    match probe_uring() {
        Ok(()) => test(DriverKind::IoUring),
        Err(error) => println!("skipped on io_uring: {error}"),
    }
}

/// A running driver with a relay on each worker.
struct Running {
    handle: Handle,
    seen: Arc<Mutex<Seen>>,
}

fn loopback() -> Listen {
    Listen::Tcp("127.0.0.1:0".parse().unwrap())
}

fn run(kind: DriverKind, script: Script, mut options: Options) -> Running {
    options.kind = kind;
    if options.listeners.is_empty() {
        options.listeners.push(loopback());
    }
    if options.workers == 0 {
        options.workers = 1;
    }
    let seen = Arc::new(Mutex::new(Seen::default()));
    let for_machines = seen.clone();
    let handle =
        start_machines(options, move |id, workers| Relay::new(id, workers, script.clone(), for_machines.clone()));
    Running { handle: handle.unwrap(), seen }
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.handle.addresses[0]
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Waits until what was seen is as wanted.
    fn wait(&self, what: &str, wanted: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !wanted(&self.seen.lock().unwrap()) {
            assert!(Instant::now() < deadline, "{what}: {:?}", self.seen.lock().unwrap());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn end(self) {
        self.handle.join().unwrap();
        let seen = self.seen.lock().unwrap();
        assert!(seen.faults.is_empty(), "{:?}", seen.faults);
    }
}
