//! TLS of clients that have gone over to another process: their keys stay here, and what they say in between goes both ways.
//!
//! ```text
//! client <── TLS ──> this thread <── a pair of Unix sockets ──> the process that took over
//! ```
//!
//! TLS's state cannot be handed to another process. One thread carries all of them, until each has left; to the other process theirs is a
//! connection like any other, which it can hand over to the next.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::driver::Session;
use crate::log::Log;

/// Taken from one end at a time.
const PIECE_BYTES: usize = 16 * 1024;
/// Pieces in a row that one connection may take before others have their turn.
const PIECES_MAX: usize = 8;
/// How long a client may take to read the last words that it is sent.
const LINGER: Duration = Duration::from_secs(5);
/// How often it is looked whether that is over.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const EVENTS_MAX: usize = 256;
/// The bell's name; no connection has it.
const BELL: u64 = u64::MAX;

/// The thread that carries them.
#[derive(Debug)]
pub struct Relay {
    new: mpsc::Sender<Carried>,
    bell: Arc<OwnedFd>,
    thread: JoinHandle<()>,
    carried: Cell<u64>,
}

impl Relay {
    pub fn start() -> io::Result<Self> {
        let (new, come) = mpsc::channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        let table =
            Table { poll, come: Some(come), all: BTreeMap::new(), next: 0, ready: VecDeque::new(), plain: Vec::new() };
        let thread = thread::Builder::new().name("weir-relay".to_owned()).spawn(move || table.run())?;
        Ok(Self { new, bell, thread, carried: Cell::new(0) })
    }

    /// `unsent`: what is still to be sent to the client, encrypted. Answers the end for the other process.
    pub fn carry(&self, client: OwnedFd, session: Box<Session>, unsent: Vec<u8>) -> io::Result<OwnedFd> {
        let (inner, theirs) = UnixStream::pair()?;
        let to_client = Unsent { bytes: unsent, sent: 0 };
        let carried = Carried {
            client,
            inner: inner.into(),
            session,
            to_client,
            to_inner: Unsent::default(),
            client_ended: false,
            told_end: false,
            inner_ended: None,
        };
        self.new.send(carried).map_err(|_| io::Error::other("the thread that carries TLS on has ended"))?;
        self.carried.set(self.carried.get() + 1);
        ring(&self.bell);
        Ok(theirs.into())
    }

    /// No more come: waits until all have left.
    pub fn end(self, log: &Log) {
        let Self { new, bell, thread, carried } = self;
        drop(new);
        ring(&bell);
        if carried.get() > 0 && !thread.is_finished() {
            log.info("carrying TLS on for the process that has taken over, until the clients leave that speak it");
        }
        let _ = thread.join();
    }
}

fn ring(bell: &OwnedFd) {
    // Fails only when the counter is full, and then it has rung.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Bytes that wait to be sent.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Vec<u8>,
    sent: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }

    /// Whether some of them went.
    fn flush(&mut self, to: BorrowedFd<'_>) -> io::Result<bool> {
        let before = self.sent;
        while !self.is_empty() {
            match send(to, &self.bytes[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => self.sent += count,
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(self.sent > before),
                Err(error) => return Err(error.into()),
            }
        }
        let went = self.sent > before;
        (self.bytes, self.sent) = (Vec::new(), 0);
        Ok(went)
    }
}

/// One client's connection, and ours to the other process.
#[derive(Debug)]
struct Carried {
    client: OwnedFd,
    inner: OwnedFd,
    session: Box<Session>,
    to_client: Unsent,
    to_inner: Unsent,
    /// It sends no more.
    client_ended: bool,
    /// Which the other process has been told, behind all that it sent.
    told_end: bool,
    /// Since when the other process sends no more: it has closed the session.
    inner_ended: Option<Instant>,
}

impl Carried {
    /// Does what can be done. True where there may be more to do at once. The error is its end.
    fn go_on(&mut self, scratch: &mut Vec<u8>, plain: &mut Vec<u8>) -> io::Result<bool> {
        for _ in 0..PIECES_MAX {
            let mut went = self.to_client.flush(self.client.as_fd())?;
            went |= self.to_inner.flush(self.inner.as_fd())?;
            if self.client_ended && self.to_inner.is_empty() && !self.told_end {
                shutdown(&self.inner, Shutdown::Write)?;
                self.told_end = true;
            }
            if self.to_inner.is_empty() && !self.client_ended {
                went |= self.take_from_client(scratch, plain)?;
            }
            if self.to_client.is_empty() && self.inner_ended.is_none() {
                went |= self.take_from_inner(scratch, plain)?;
            }
            if !went {
                return if self.is_over() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(false) };
            }
        }
        Ok(true)
    }

    fn is_over(&self) -> bool {
        self.inner_ended.is_some_and(|at| self.to_client.is_empty() || at.elapsed() > LINGER)
    }

    fn take_from_client(&mut self, scratch: &mut Vec<u8>, plain: &mut Vec<u8>) -> io::Result<bool> {
        let Some(cipher) = receive(self.client.as_fd(), plain)? else { return Ok(false) };
        let ended = if cipher.is_empty() {
            true
        } else {
            let progress = self.session.decrypt(cipher, scratch, &mut self.to_inner.bytes);
            // What TLS itself has to say, an alert about what was wrong too.
            self.session.take_outgoing(&mut self.to_client.bytes);
            match progress {
                Ok(progress) => progress.ended,
                Err(failed) => {
                    let _ = self.to_client.flush(self.client.as_fd());
                    return Err(io::Error::other(failed.reason));
                }
            }
        };
        self.client_ended = ended;
        Ok(true)
    }

    fn take_from_inner(&mut self, scratch: &mut Vec<u8>, plain: &mut Vec<u8>) -> io::Result<bool> {
        let Some(bytes) = receive(self.inner.as_fd(), plain)? else { return Ok(false) };
        if bytes.is_empty() {
            self.inner_ended = Some(Instant::now());
            self.session.say_goodbye(&mut self.to_client.bytes);
        } else {
            let encrypted = self.session.encrypt(&[bytes], scratch, &mut self.to_client.bytes);
            encrypted.map_err(io::Error::other)?;
        }
        Ok(true)
    }
}

/// What has come, none of it where there is no more; `None`: nothing has, yet.
fn receive<'a>(from: BorrowedFd<'_>, into: &'a mut Vec<u8>) -> io::Result<Option<&'a [u8]>> {
    into.clear();
    into.reserve(PIECE_BYTES);
    match rustix::io::retry_on_intr(|| recv(from, spare_capacity(into), RecvFlags::DONTWAIT)) {
        Ok(_) => Ok(Some(into)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

struct Table {
    poll: OwnedFd,
    /// `None`: no more come.
    come: Option<mpsc::Receiver<Carried>>,
    all: BTreeMap<u64, Carried>,
    next: u64,
    /// Who may have more to do.
    ready: VecDeque<u64>,
    plain: Vec<u8>,
}

impl Table {
    fn run(mut self) {
        let mut scratch = Vec::new();
        let mut looked = Instant::now();
        while self.come.is_some() || !self.all.is_empty() {
            self.take_new();
            for _ in 0..self.ready.len() {
                let Some(name) = self.ready.pop_front() else { break };
                let Some(carried) = self.all.get_mut(&name) else { continue };
                match carried.go_on(&mut scratch, &mut self.plain) {
                    Ok(true) => self.ready.push_back(name),
                    Ok(false) => {}
                    // Its sockets close, which the two at their other ends see.
                    Err(_) => drop(self.all.remove(&name)),
                }
            }
            if looked.elapsed() >= LOOK_INTERVAL {
                looked = Instant::now();
                self.all.retain(|_, carried| !carried.is_over());
            }
            if self.wait().is_err() {
                // Nobody can be carried any further.
                return;
            }
        }
    }

    fn take_new(&mut self) {
        loop {
            match self.come.as_ref().map(mpsc::Receiver::try_recv) {
                Some(Ok(carried)) => {
                    let name = self.next;
                    self.next += 1;
                    let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
                    let data = epoll::EventData::new_u64(name);
                    let watched = epoll::add(&self.poll, &carried.client, data, flags)
                        .and_then(|()| epoll::add(&self.poll, &carried.inner, data, flags));
                    if watched.is_ok() {
                        self.all.insert(name, carried);
                        self.ready.push_back(name);
                    }
                }
                Some(Err(mpsc::TryRecvError::Empty)) | None => return,
                Some(Err(mpsc::TryRecvError::Disconnected)) => self.come = None,
            }
        }
    }

    fn wait(&mut self) -> io::Result<()> {
        let pause = if self.ready.is_empty() { LOOK_INTERVAL } else { Duration::ZERO };
        let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        let mut events = Vec::with_capacity(EVENTS_MAX);
        match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&pause)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events {
            let name = event.data.u64();
            if name != BELL && !self.ready.contains(&name) {
                self.ready.push_back(name);
            }
        }
        Ok(())
    }
}
