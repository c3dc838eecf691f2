//! A worker's mailbox: what other threads send to it, and the bell that wakes it. Knows nothing of what letters mean.
//!
//! The bell is an eventfd, rung only when the worker sleeps: a busy worker's mail costs no system call.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::mpsc;

use rustix::event::{EventfdFlags, eventfd};
use weir_core::contract::{Command, Names, Parcel, Reloaded};
use weir_core::outside::Finding;
use weir_core::{ClientId, ConnId, Settings};

use super::options::TcpOptions;
use super::tls::Tls;
use super::transport::Shipment;

/// One letter to a worker.
#[derive(Debug)]
pub enum Letter {
    Parcel(Parcel<Shipment>),
    Settings(Arc<Settings>, Arc<Tls>, Arc<TcpOptions>),
    /// Is anybody there? Stores the number.
    Knock(Arc<AtomicU64>, u64),
    Command(Command),
    /// A connection of the program's own, to be taken in like those that are accepted.
    Client(OwnedFd),
    /// Which sockets are listened on? The worker that listens answers with its own descriptors of them.
    LendListeners(mpsc::Sender<Vec<OwnedFd>>),
    /// Another process listens there from now on: let go of all listeners, and leave the files of Unix sockets to it. Answered when that is done.
    LeaveListeners(mpsc::Sender<()>),
    /// Where clients go that are mailed to the process that takes over.
    Successor(mpsc::Sender<Parcel<Shipment>>),
    /// The other process has left.
    ListenAnew,
    Resolved {
        conn: ConnId,
        result: Result<Vec<SocketAddr>, String>,
    },
    Derived {
        job: u32,
        salted_password: [u8; 32],
    },
    Answered {
        client: ClientId,
        finding: Finding,
    },
    NamesTold {
        asker: ClientId,
        names: Names,
    },
    HostMoved {
        host: Arc<str>,
        gone: Vec<IpAddr>,
    },
    ReloadDone {
        asker: Option<ClientId>,
        result: Reloaded,
    },
    /// End the loop, once what is being closed is closed or has had its moment.
    Stop,
}

#[derive(Debug)]
struct Bell {
    event: OwnedFd,
    asleep: AtomicBool,
}

/// The end that others hold.
#[derive(Debug, Clone)]
pub struct Sender {
    letters: mpsc::Sender<Letter>,
    bell: Arc<Bell>,
}

/// The worker's own end.
#[derive(Debug)]
pub struct Receiver {
    letters: mpsc::Receiver<Letter>,
    bell: Arc<Bell>,
    /// Found while falling asleep.
    next: Option<Letter>,
}

pub fn mailbox() -> io::Result<(Sender, Receiver)> {
    let (sender, receiver) = mpsc::channel();
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let bell = Arc::new(Bell { event, asleep: AtomicBool::new(false) });
    Ok((Sender { letters: sender, bell: bell.clone() }, Receiver { letters: receiver, bell, next: None }))
}

impl Sender {
    /// Puts a letter in. One to a worker that has ended is dropped: there is nobody left to care.
    pub fn send(&self, letter: Letter) {
        if self.letters.send(letter).is_err() {
            return;
        }
        // Pairs with the fence in `fall_asleep`: either we see the sleeper, or the sleeper sees the letter.
        fence(Ordering::SeqCst);
        if self.bell.asleep.load(Ordering::Relaxed) && self.bell.asleep.swap(false, Ordering::Relaxed) {
            // Fails only when the counter is full, and then the bell has rung long ago.
            let _ = rustix::io::write(&self.bell.event, &1u64.to_ne_bytes());
        }
    }
}

impl Receiver {
    /// What to watch while asleep; each ring is a new edge.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }

    pub fn take(&mut self) -> Option<Letter> {
        self.next.take().or_else(|| self.letters.try_recv().ok())
    }

    pub fn is_empty(&mut self) -> bool {
        self.next = self.take();
        self.next.is_none()
    }

    /// Asks for the bell from now on. `false`: there is a letter, stay awake.
    pub fn fall_asleep(&mut self) -> bool {
        if !self.is_empty() {
            return false;
        }
        self.bell.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.next = self.letters.try_recv().ok();
        if self.next.is_some() {
            self.wake_up();
        }
        self.next.is_none()
    }

    pub fn wake_up(&mut self) {
        self.bell.asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rings(receiver: &Receiver) -> bool {
        let mut count = [0u8; 8];
        rustix::io::read(receiver.bell(), &mut count).is_ok()
    }

    #[test]
    fn rings_only_for_a_sleeper() {
        let (sender, mut receiver) = mailbox().unwrap();
        sender.send(Letter::Stop);
        assert!(!rings(&receiver));
        assert!(!receiver.fall_asleep());
        assert!(receiver.take().is_some());
        assert!(receiver.fall_asleep());
        sender.send(Letter::Stop);
        sender.send(Letter::Stop);
        assert!(rings(&receiver));
        assert!(receiver.take().is_some() && receiver.take().is_some() && receiver.take().is_none());
    }
}
