//! The epoll driver: edge-triggered, one receive buffer for the whole worker. Knows nothing of pooling or TLS.
//!
//! A socket is registered once, for input. Output is added to its registration only while something is unsent, since a
//! Unix socket would otherwise wake us each time its peer reads. Not reading costs nothing: the edge is remembered.

use std::collections::VecDeque;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use weir_core::contract::RECEIVE_BYTES_MAX;
use weir_core::{ConnId, Side};

use super::sockets::{Event, Sockets, Step};

/// Events taken from the kernel in one turn.
const EVENTS_MAX: usize = 512;
/// A turn with more events than this sends what is small at its end: whoever is woken by a send takes the processor, and
/// is better woken when there is nothing left to read.
const PROMPT_EVENTS_MAX: usize = 4;
/// What is small enough to be copied for that.
const LATE_BYTES_MAX: usize = 4096;
/// Emptied send buffers that are kept for the next use.
const SPARE_MAX: usize = 1024;
/// Clients accepted in one turn.
const ACCEPTS_MAX: usize = 64;
const BELL: u64 = u64::MAX;
/// Listeners count down from here; no connection's slot comes near.
const LISTENER: u64 = u64::MAX - 1;
const LISTENERS_MAX: u64 = 1 << 16;

pub struct Epoll {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
    next: usize,
    /// Whether the event at `next` has had its turn as writable.
    written: bool,
    /// Sockets that may have more to read than one turn allows.
    again: VecDeque<ConnId>,
    /// How many of `again` belong to this turn.
    again_now: usize,
    listeners: Vec<OwnedFd>,
    accept_on: bool,
    accepts: usize,
    buffer: Option<Box<[u8]>>,
    #[expect(clippy::vec_box)]
    spare: Vec<Box<VecDeque<u8>>>,
}

pub struct EpollSocket {
    fd: OwnedFd,
    /// Boxed: an idle socket is to be small.
    #[expect(clippy::box_collection)]
    unsent: Option<Box<VecDeque<u8>>>,
    /// What is unsent has not been tried yet: a flush is asked for.
    late: bool,
    /// The kernel tells us of it.
    watched: bool,
    connecting: bool,
    paused: bool,
    /// An edge came that was not read to its end.
    readable: bool,
    /// The peer sends no more.
    hung_up: bool,
    /// Nor does it read, or the connection has failed.
    gone: bool,
    queued: bool,
    broken: bool,
}

pub enum Ready {
    Readable { hung_up: bool, gone: bool },
    Writable,
    Again,
}

/// The worker's receive buffer, on loan.
pub struct Filled {
    buffer: Box<[u8]>,
    len: usize,
}

impl Deref for Filled {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

fn name(id: ConnId) -> u64 {
    let side = match id.side {
        Side::Client => 0,
        Side::Server => 1,
    };
    u64::from(id.generation) << 32 | u64::from(id.slot) << 1 | side
}

fn conn(name: u64) -> ConnId {
    let side = if name & 1 == 0 { Side::Client } else { Side::Server };
    ConnId { side, slot: (name as u32) >> 1, generation: (name >> 32) as u32 }
}

impl Epoll {
    pub fn new(bell: BorrowedFd<'_>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        Ok(Self {
            epoll,
            events: Vec::with_capacity(EVENTS_MAX),
            next: 0,
            written: false,
            again: VecDeque::new(),
            again_now: 0,
            listeners: Vec::new(),
            accept_on: true,
            accepts: 0,
            buffer: Some(vec![0; RECEIVE_BYTES_MAX].into_boxed_slice()),
            spare: Vec::new(),
        })
    }

    fn watch(&self, id: ConnId, socket: &EpollSocket) -> io::Result<()> {
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if socket.connecting || socket.unsent.is_some() {
            flags |= epoll::EventFlags::OUT;
        }
        Ok(epoll::add(&self.epoll, &socket.fd, epoll::EventData::new_u64(name(id)), flags)?)
    }

    /// Sets whether we hear of room to send. The kernel looks again, so no edge is lost.
    fn watch_output(&self, id: ConnId, socket: &mut EpollSocket, on: bool) {
        if !socket.watched {
            return;
        }
        let mut flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        if on {
            flags |= epoll::EventFlags::OUT;
        }
        if epoll::modify(&self.epoll, &socket.fd, epoll::EventData::new_u64(name(id)), flags).is_err() {
            socket.break_off();
        }
    }

    fn queue(&mut self, id: ConnId, socket: &mut EpollSocket) {
        if !socket.queued {
            socket.queued = true;
            self.again.push_back(id);
        }
    }

    fn receive(&mut self, id: ConnId, socket: &mut EpollSocket) -> Step<Filled> {
        if socket.paused {
            socket.readable = true;
            return if socket.gone { Step::HungUp } else { Step::Nothing };
        }
        // The buffer is here unless the engine forgot to give it back.
        let Some(mut buffer) = self.buffer.take() else { return Step::Nothing };
        match recv(&socket.fd, &mut buffer[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) if len > 0 => {
                // A short read has emptied the socket, but for the end that may stand behind it.
                socket.readable = len == buffer.len() || socket.hung_up;
                if socket.readable {
                    self.queue(id, socket);
                }
                Step::Received(Filled { buffer, len })
            }
            other => {
                self.buffer = Some(buffer);
                socket.readable = false;
                match other {
                    Err(Errno::WOULDBLOCK) => Step::Nothing,
                    Err(Errno::INTR) => {
                        self.queue(id, socket);
                        Step::Nothing
                    }
                    Ok(_) if !socket.gone => Step::Ended,
                    _ => Step::Lost,
                }
            }
        }
    }

    fn send_unsent(&mut self, id: ConnId, socket: &mut EpollSocket) -> Step<Filled> {
        let Some(mut unsent) = socket.unsent.take() else { return Step::Nothing };
        let before = unsent.len();
        let late = std::mem::replace(&mut socket.late, false);
        while !unsent.is_empty() && !socket.broken {
            match send(&socket.fd, unsent.as_slices().0, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => drop(unsent.drain(..sent)),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(_) => socket.break_off(),
            }
        }
        if unsent.is_empty() || socket.broken {
            if !late {
                self.watch_output(id, socket, false);
            }
            if self.spare.len() < SPARE_MAX && unsent.capacity() <= LATE_BYTES_MAX * 2 {
                unsent.clear();
                self.spare.push(unsent);
            }
            return Step::Sent;
        }
        if late {
            self.watch_output(id, socket, true);
        }
        let sent = unsent.len() < before;
        socket.unsent = Some(unsent);
        if sent { Step::Sent } else { Step::Nothing }
    }

    fn accept(&mut self, listener: usize) -> Option<Event<Ready>> {
        let fd = self.listeners.get(listener)?;
        if !self.accept_on || self.accepts == 0 {
            return None;
        }
        self.accepts -= 1;
        match accept_with(fd, SocketFlags::CLOEXEC) {
            Ok(fd) => Some(Event::Accepted(fd)),
            Err(Errno::WOULDBLOCK | Errno::INTR | Errno::CONNABORTED) => None,
            Err(error) => Some(Event::AcceptFailed(error.into())),
        }
    }

    fn watch_listeners(&self, on: bool) {
        let flags = if on { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        for (index, fd) in self.listeners.iter().enumerate() {
            // Modifying what is registered cannot fail.
            let _ = epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(LISTENER - index as u64), flags);
        }
    }
}

impl EpollSocket {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            unsent: None,
            late: false,
            watched: false,
            connecting: false,
            paused: false,
            readable: false,
            hung_up: false,
            gone: false,
            queued: false,
            broken: false,
        }
    }

    fn break_off(&mut self) {
        self.broken = true;
        self.unsent = None;
    }

    fn keep(&mut self, bytes: &[u8]) {
        self.unsent.get_or_insert_default().extend(bytes);
    }
}

impl Sockets for Epoll {
    type Socket = EpollSocket;
    type Piece = Filled;
    type Raw = Ready;

    // Pausing costs nothing here: the next edge is left unread.
    const HOLD_BYTES_MAX: usize = 1;

    fn listen(&mut self, listeners: Vec<OwnedFd>) -> io::Result<()> {
        for (index, fd) in listeners.iter().enumerate().take(LISTENERS_MAX as usize) {
            epoll::add(&self.epoll, fd, epoll::EventData::new_u64(LISTENER - index as u64), epoll::EventFlags::IN)?;
        }
        self.listeners = listeners;
        Ok(())
    }

    fn listeners(&self) -> &[OwnedFd] {
        &self.listeners
    }

    fn pause_accept(&mut self) {
        self.accept_on = false;
        self.watch_listeners(false);
    }

    fn resume_accept(&mut self) {
        self.accept_on = true;
        self.watch_listeners(true);
    }

    fn stop_accept(&mut self, first: usize) {
        self.listeners.truncate(first);
    }

    fn adopt(&mut self, fd: OwnedFd) -> EpollSocket {
        EpollSocket::new(fd)
    }

    fn begin(&mut self, id: ConnId, socket: &mut EpollSocket) -> io::Result<()> {
        self.watch(id, socket)?;
        socket.watched = true;
        Ok(())
    }

    fn is_full(&mut self) -> bool {
        // Only the process has a limit here.
        false
    }

    fn begin_connect(&mut self, id: ConnId, fd: OwnedFd) -> io::Result<EpollSocket> {
        let mut socket = EpollSocket { connecting: true, ..EpollSocket::new(fd) };
        self.begin(id, &mut socket)?;
        Ok(socket)
    }

    fn connected(&mut self, id: ConnId, socket: &mut EpollSocket) -> io::Result<()> {
        socket.connecting = false;
        self.watch_output(id, socket, false);
        Ok(())
    }

    fn fd<'a>(&self, socket: &'a EpollSocket) -> Option<BorrowedFd<'a>> {
        Some(socket.fd.as_fd())
    }

    fn send(&mut self, id: ConnId, socket: &mut EpollSocket, slices: &[&[u8]], _from: Option<&Filled>) -> bool {
        if socket.broken {
            return false;
        }
        if socket.unsent.is_some() {
            slices.iter().for_each(|slice| socket.keep(slice));
            return false;
        }
        let small = slices.iter().map(|slice| slice.len()).sum::<usize>() <= LATE_BYTES_MAX;
        if small && self.events.len() > PROMPT_EVENTS_MAX {
            let mut unsent = self.spare.pop().unwrap_or_default();
            slices.iter().for_each(|slice| unsent.extend(*slice));
            socket.unsent = Some(unsent);
            socket.late = true;
            return true;
        }
        let mut sent = match super::net::send_slices(socket.fd.as_fd(), slices) {
            Ok(sent) => sent,
            Err(_) => {
                socket.break_off();
                return false;
            }
        };
        for slice in slices {
            let skipped = sent.min(slice.len());
            sent -= skipped;
            if skipped < slice.len() {
                socket.keep(&slice[skipped..]);
            }
        }
        if socket.unsent.is_some() {
            self.watch_output(id, socket, true);
        }
        false
    }

    fn flush(&mut self, id: ConnId, socket: &mut EpollSocket, _tell: bool) {
        if socket.late {
            self.send_unsent(id, socket);
        }
    }

    fn make_certain(&mut self, _id: ConnId, _socket: &mut EpollSocket) {}

    fn unsent(&self, socket: &EpollSocket) -> usize {
        socket.unsent.as_ref().map_or(0, |unsent| unsent.len())
    }

    fn is_broken(&self, socket: &EpollSocket) -> bool {
        socket.broken
    }

    fn pause_read(&mut self, _id: ConnId, socket: &mut EpollSocket) {
        socket.paused = true;
    }

    fn resume_read(&mut self, id: ConnId, socket: &mut EpollSocket) {
        socket.paused = false;
        if socket.readable {
            self.queue(id, socket);
        }
    }

    fn retire(&mut self, _id: ConnId, _socket: &mut EpollSocket) -> bool {
        true
    }

    fn dismantle(&mut self, socket: EpollSocket) -> (Option<OwnedFd>, Vec<u8>) {
        if socket.watched {
            // Closing the descriptor would do it otherwise, but a moved one stays open. What is watched can be forgotten.
            let _ = epoll::delete(&self.epoll, &socket.fd);
        }
        (Some(socket.fd), socket.unsent.map_or_else(Vec::new, |unsent| Vec::from(*unsent)))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let timeout = if self.again.is_empty() { timeout } else { Some(Duration::ZERO) };
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().min(i32::MAX as u64) as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        self.events.clear();
        self.next = 0;
        self.written = false;
        self.accepts = ACCEPTS_MAX;
        self.again_now = self.again.len();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(!self.events.is_empty() || self.again_now > 0),
            Err(error) => Err(error.into()),
        }
    }

    fn next(&mut self) -> Option<Event<Ready>> {
        while let Some(event) = self.events.get(self.next).copied() {
            let (name, flags) = (event.data.u64(), event.flags);
            if name > LISTENER - LISTENERS_MAX {
                let accepted = if name == BELL { None } else { self.accept((LISTENER - name) as usize) };
                if accepted.is_some() {
                    return accepted;
                }
                self.next += 1;
                continue;
            }
            if !self.written {
                self.written = true;
                if flags.intersects(epoll::EventFlags::OUT | epoll::EventFlags::ERR | epoll::EventFlags::HUP) {
                    return Some(Event::Connection(conn(name), Ready::Writable));
                }
            }
            self.next += 1;
            self.written = false;
            let gone = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
            let hung_up = gone || flags.contains(epoll::EventFlags::RDHUP);
            if hung_up || flags.contains(epoll::EventFlags::IN) {
                return Some(Event::Connection(conn(name), Ready::Readable { hung_up, gone }));
            }
        }
        self.again_now = self.again_now.checked_sub(1)?;
        Some(Event::Connection(self.again.pop_front()?, Ready::Again))
    }

    fn advance(&mut self, id: ConnId, socket: &mut EpollSocket, raw: Ready) -> Step<Filled> {
        match raw {
            Ready::Writable if socket.connecting => Step::Connectable,
            Ready::Writable => self.send_unsent(id, socket),
            Ready::Readable { .. } if socket.connecting => Step::Nothing,
            Ready::Readable { hung_up, gone } => {
                socket.hung_up |= hung_up;
                socket.gone |= gone;
                self.receive(id, socket)
            }
            Ready::Again => {
                socket.queued = false;
                self.receive(id, socket)
            }
        }
    }

    fn give_back(&mut self, piece: Filled) {
        self.buffer = Some(piece.buffer);
    }
}
