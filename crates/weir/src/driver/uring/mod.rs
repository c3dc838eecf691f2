//! The io_uring driver: multishot receives into a shared ring of buffers, all submits of a turn in the system call that
//! waits, but for the sends of a turn that brought little. Knows nothing of pooling or TLS.
//!
//! A socket may be closed or moved only when nothing is under way on it, so `ops` counts what is, but for quick sends, which
//! are over once they are submitted ([`quick`]).

mod buffers;
mod files;
mod outbox;
mod quick;
mod ring;
mod sending;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use io_uring::types::{Fd, Fixed};
use io_uring::{cqueue, opcode, squeue};
use weir_core::{ConnId, Side};

use super::net;
use super::sockets::{Event, Sockets, Step};
use buffers::{Buffers, Piece};
use files::{Descriptor, Files};
pub use files::{capacity, has_tables};
use outbox::{Outbox, Spares};
use quick::{Quick, Refused};
pub use ring::probe;
use ring::{Operation, Ring, Tag};

/// What is held of a connection that is not read before its receive is cancelled, which costs two operations.
const PAUSE_BYTES: usize = 8 * 1024;
/// A turn with more completions than this leaves its sends to the ring. With fewer nothing is won by gathering them.
const PROMPT_COMPLETIONS_MAX: usize = 4;
/// What a poll says of a peer that is gone altogether.
const GONE: i16 = libc::POLLERR | libc::POLLHUP;

pub struct Uring {
    // Before the memory that the kernel writes to, so that it ends first.
    ring: Ring,
    buffers: Buffers,
    files: Files,
    /// Counts the slots that are made descriptors, and what came of the last one.
    installs: u32,
    installed: Option<i32>,
    receive_limit: u32,
    spares: Spares,
    quick: Quick,
    /// This turn brought little: what is small is sent at once.
    prompt: bool,
    /// Counts the waits: `UringSocket::launched_in` tells what is not certain yet.
    turn: u32,
    completions: VecDeque<cqueue::Entry>,
    /// Retired by a completion that had something else to say as well.
    retired: VecDeque<ConnId>,
    bell: Fd,
    listeners: Vec<OwnedFd>,
    /// Which listeners the kernel accepts on.
    accepting: Vec<bool>,
    accept_on: bool,
}

pub struct UringSocket {
    descriptor: Descriptor,
    outbox: Option<Box<Outbox>>,
    /// The turn of the last quick send: in that turn nobody knows yet whether all of it went.
    launched_in: u32,
    /// Its place among those of that turn.
    launched_at: u32,
    /// The number of the next one.
    launches: u8,
    /// Receives, sends and polls that the kernel has not ended.
    ops: u8,
    receiving: bool,
    sending: bool,
    polling: bool,
    connecting: bool,
    paused: bool,
    ended: bool,
    retiring: bool,
    broken: bool,
    /// `flush` is asked for.
    dirty: bool,
}

pub enum Completed {
    Receive { result: i32, flags: u32 },
    Send { result: i32 },
    Refused(Refused),
    Poll { result: i32, flags: u32 },
    CancelMissed,
    Retired,
}

impl Uring {
    pub fn new(bell: BorrowedFd<'_>) -> io::Result<Self> {
        let ring = Ring::new()?;
        let mut buffers = Buffers::new()?;
        buffers.register(&ring.submitter())?;
        let files = Files::new(&ring.submitter());
        let mut uring = Self {
            ring,
            buffers,
            files,
            installs: 0,
            installed: None,
            receive_limit: ring::receive_limit(),
            spares: Spares::default(),
            quick: Quick::default(),
            prompt: false,
            turn: 1,
            completions: VecDeque::new(),
            retired: VecDeque::new(),
            bell: Fd(bell.as_raw_fd()),
            listeners: Vec::new(),
            accepting: Vec::new(),
            accept_on: true,
        };
        uring.watch_bell();
        Ok(uring)
    }

    fn watch_bell(&mut self) {
        let poll = opcode::PollAdd::new(self.bell, libc::POLLIN as u32).multi(true).build();
        self.ring.push(poll, Tag::other(Operation::Bell, 0));
    }

    fn accept(&mut self, index: usize) {
        if let (Some(listener), Some(accepting)) = (self.listeners.get(index), self.accepting.get_mut(index))
            && self.accept_on
            && !*accepting
        {
            *accepting = true;
            let accept = opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC).build();
            self.ring.push(accept, Tag::other(Operation::Accept, index as u32));
        }
    }

    fn receive(&mut self, id: ConnId, socket: &mut UringSocket) {
        if socket.receiving || socket.ended || socket.retiring || socket.paused {
            return;
        }
        let receive = ring::receive(Fd(socket.descriptor.number()), self.receive_limit);
        self.ring.push(receive.flags(socket.descriptor.flags()), Tag::conn(Operation::Receive, id));
        socket.receiving = true;
        socket.ops += 1;
    }

    fn poll(&mut self, id: ConnId, socket: &mut UringSocket, poll: opcode::PollAdd) {
        if socket.polling || socket.retiring {
            return;
        }
        self.ring.push(poll.build().flags(socket.descriptor.flags()), Tag::conn(Operation::Poll, id));
        socket.polling = true;
        socket.ops += 1;
    }

    /// Waits for a peer to be gone that is not received from, in any number of completions: the kernel also tells that it
    /// sends no more, asked or not.
    fn poll_end(&mut self, id: ConnId, socket: &mut UringSocket) {
        self.poll(id, socket, opcode::PollAdd::new(Fd(socket.descriptor.number()), GONE as u32).multi(true));
    }

    fn polled(&mut self, id: ConnId, socket: &mut UringSocket, result: i32, flags: u32) -> Step<Piece> {
        if !cqueue::more(flags) {
            socket.polling = false;
            socket.ops -= 1;
        }
        if socket.retiring {
            return socket.retired();
        }
        if socket.connecting {
            return Step::Connectable;
        }
        if !socket.paused && !socket.ended {
            return Step::Nothing;
        }
        if result > 0 && result & i32::from(GONE) != 0 {
            return Step::HungUp;
        }
        // Cancelled by a resume, and paused again since.
        if result > 0 || result == -libc::ECANCELED {
            self.poll_end(id, socket);
        }
        Step::Nothing
    }

    /// Makes a slot of the table a descriptor again. `None`: the process has none left, and the slot stays as it is.
    fn install(&mut self, slot: u32) -> Option<OwnedFd> {
        let install = opcode::FixedFdInstall::new(Fixed(slot), 0).build();
        self.installs = self.installs.wrapping_add(1);
        self.installed = None;
        self.ring.push(install, Tag::other(Operation::Install, self.installs));
        // It is done inside the system call that submits it.
        self.ring.submit();
        self.harvest();
        let number = self.installed.take().filter(|&number| number >= 0)?;
        self.files.clear(&self.ring.submitter(), slot);
        // SAFETY: the kernel made this descriptor for this completion, and nobody else knows it.
        Some(unsafe { OwnedFd::from_raw_fd(number) })
    }

    fn harvest(&mut self) {
        let Self { ring, completions, quick, installs, installed, .. } = self;
        ring.harvest(|completion| {
            let (tag, result) = (Tag(completion.user_data()), completion.result());
            match tag.operation() {
                Operation::QuickSend => quick.refuse(tag.id(), tag.number(), result),
                Operation::Install => descriptor_made(tag.index() == *installs, installed, result),
                _ => completions.push_back(completion),
            }
        });
    }

    fn cancel(&mut self, operation: Operation, id: ConnId) {
        let cancel = opcode::AsyncCancel::new(Tag::conn(operation, id).0).build();
        self.ring.push(cancel.flags(squeue::Flags::SKIP_SUCCESS), Tag::conn(Operation::Cancel, id));
    }

    fn cancel_all(&mut self, id: ConnId, socket: &UringSocket) {
        let under_way = [
            (socket.receiving, Operation::Receive),
            (socket.sending, Operation::Send),
            (socket.polling, Operation::Poll),
        ];
        for (_, operation) in under_way.into_iter().filter(|(is_under_way, _)| *is_under_way) {
            self.cancel(operation, id);
        }
    }

    /// A cancel found nothing: what it was for has ended, or was just between two waits and goes on.
    fn cancel_missed(&mut self, id: ConnId, socket: &UringSocket) -> Step<Piece> {
        if socket.retiring {
            self.cancel_all(id, socket);
        } else if socket.paused && socket.receiving {
            self.cancel(Operation::Receive, id);
        }
        Step::Nothing
    }

    fn received(&mut self, id: ConnId, socket: &mut UringSocket, result: i32, flags: u32) -> Step<Piece> {
        if !cqueue::more(flags) {
            socket.receiving = false;
            socket.ops -= 1;
        }
        let buffer = cqueue::buffer_select(flags);
        let piece = buffer.and_then(|buffer| self.buffers.piece(buffer, usize::try_from(result).unwrap_or(0)));
        if let Some(piece) = piece {
            if piece.is_empty() {
                self.buffers.release(piece);
                return self.nothing_received(id, socket, result, flags);
            }
            if socket.retiring && socket.ops == 0 {
                self.retired.push_back(id);
            }
            self.receive(id, socket);
            return Step::Received(piece);
        }
        self.nothing_received(id, socket, result, flags)
    }

    fn nothing_received(&mut self, id: ConnId, socket: &mut UringSocket, result: i32, flags: u32) -> Step<Piece> {
        if -result == libc::ENOBUFS {
            self.buffers.ran_out();
        }
        let is_over = !matches!(-result, libc::ENOBUFS | libc::ECANCELED | libc::EINTR | libc::EAGAIN);
        socket.ended |= is_over && !cqueue::more(flags);
        if socket.retiring {
            return socket.retired();
        }
        self.receive(id, socket);
        match socket.ended {
            true if result == 0 => Step::Ended,
            true => Step::Lost,
            false => Step::Nothing,
        }
    }

    fn other(&mut self, tag: Tag, result: i32, flags: u32) -> Option<Event<Completed>> {
        let is_over = !cqueue::more(flags);
        match tag.operation() {
            Operation::Bell if is_over => self.watch_bell(),
            Operation::Accept => {
                let listener = tag.index() as usize;
                if is_over && let Some(accepting) = self.accepting.get_mut(listener) {
                    *accepting = false;
                }
                if is_over && (result >= 0 || !is_short_of_descriptors(-result)) {
                    self.accept(listener);
                }
                if result >= 0 {
                    // SAFETY: the kernel made this descriptor for this completion, and nobody else knows it.
                    let fd = unsafe { OwnedFd::from_raw_fd(result) };
                    return Some(Event::Accepted(fd));
                }
                if is_short_of_descriptors(-result) {
                    return Some(Event::AcceptFailed(io::Error::from_raw_os_error(-result)));
                }
            }
            _ => {}
        }
        None
    }

    fn socket(descriptor: Descriptor) -> UringSocket {
        UringSocket {
            descriptor,
            outbox: None,
            launched_in: 0,
            launched_at: 0,
            launches: 0,
            ops: 0,
            receiving: false,
            sending: false,
            polling: false,
            connecting: false,
            paused: false,
            ended: false,
            retiring: false,
            broken: false,
            dirty: false,
        }
    }
}

/// A slot was made a descriptor: the one asked for last, or one that nobody waits for any more.
fn descriptor_made(is_wanted: bool, installed: &mut Option<i32>, result: i32) {
    if is_wanted && installed.is_none() {
        *installed = Some(result);
    } else if result >= 0 {
        // SAFETY: the kernel made this descriptor for this completion, and nobody else knows it.
        drop(unsafe { OwnedFd::from_raw_fd(result) });
    }
}

fn is_short_of_descriptors(errno: i32) -> bool {
    matches!(errno, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
}

/// More connections than tags can name: no system has so many descriptors.
fn check_name(id: ConnId) -> io::Result<()> {
    if Tag::can_name(id) { Ok(()) } else { Err(io::Error::other("too many connections for io_uring")) }
}

impl UringSocket {
    fn retired(&self) -> Step<Piece> {
        if self.ops == 0 { Step::Retired } else { Step::Nothing }
    }
}

impl Sockets for Uring {
    type Socket = UringSocket;
    type Piece = Piece;
    type Raw = Completed;

    const HOLD_BYTES_MAX: usize = PAUSE_BYTES;

    fn listen(&mut self, listeners: Vec<OwnedFd>) -> io::Result<()> {
        for listener in &listeners {
            net::set_blocking(listener.as_fd())?;
        }
        self.accepting = vec![false; listeners.len()];
        self.listeners = listeners;
        (0..self.listeners.len()).for_each(|index| self.accept(index));
        Ok(())
    }

    fn listeners(&self) -> &[OwnedFd] {
        &self.listeners
    }

    fn pause_accept(&mut self) {
        self.accept_on = false;
        for index in (0..self.listeners.len()).filter(|index| self.accepting[*index]) {
            let cancel = opcode::AsyncCancel::new(Tag::other(Operation::Accept, index as u32).0).build();
            self.ring.push(cancel.flags(squeue::Flags::SKIP_SUCCESS), Tag::other(Operation::CancelAccept, 0));
        }
    }

    fn resume_accept(&mut self) {
        self.accept_on = true;
        (0..self.listeners.len()).for_each(|index| self.accept(index));
    }

    fn stop_accept(&mut self, first: usize) {
        for index in first..self.listeners.len() {
            let cancel = opcode::AsyncCancel::new(Tag::other(Operation::Accept, index as u32).0).build();
            self.ring.push(cancel.flags(squeue::Flags::SKIP_SUCCESS), Tag::other(Operation::CancelAccept, 0));
        }
        // The kernel looks up descriptors when it is handed them: do that before they close.
        if self.ring.submit() {
            self.listeners.truncate(first);
        }
    }

    fn adopt(&mut self, fd: OwnedFd) -> UringSocket {
        Self::socket(Descriptor::Open(fd))
    }

    fn begin(&mut self, id: ConnId, socket: &mut UringSocket) -> io::Result<()> {
        check_name(id)?;
        // What is under way already names the descriptor. A server keeps its own: it is to go wherever somebody waits for it.
        if id.side == Side::Client && socket.ops == 0 && socket.launched_in != self.turn {
            self.files.take_in(&self.ring.submitter(), &mut socket.descriptor);
        }
        self.receive(id, socket);
        Ok(())
    }

    fn is_full(&mut self) -> bool {
        self.files.is_full()
    }

    fn begin_connect(&mut self, id: ConnId, fd: OwnedFd) -> io::Result<UringSocket> {
        check_name(id)?;
        let mut socket = Self::socket(Descriptor::Open(fd));
        socket.connecting = true;
        let poll = opcode::PollAdd::new(Fd(socket.descriptor.number()), libc::POLLOUT as u32);
        self.poll(id, &mut socket, poll);
        Ok(socket)
    }

    fn connected(&mut self, id: ConnId, socket: &mut UringSocket) -> io::Result<()> {
        if let Some(fd) = self.fd(socket) {
            net::set_blocking(fd)?;
        }
        socket.connecting = false;
        self.receive(id, socket);
        Ok(())
    }

    fn fd<'a>(&self, socket: &'a UringSocket) -> Option<BorrowedFd<'a>> {
        match &socket.descriptor {
            Descriptor::Open(fd) => Some(fd.as_fd()),
            Descriptor::Slot(_) => None,
        }
    }

    fn send(&mut self, _id: ConnId, socket: &mut UringSocket, slices: &[&[u8]], from: Option<&Piece>) -> bool {
        if socket.broken {
            return false;
        }
        for slice in slices {
            let outbox = socket.outbox.get_or_insert_with(|| self.spares.outbox());
            outbox.push(slice, from, &mut self.buffers, &mut self.spares);
        }
        let asks = socket.outbox.is_some() && !socket.sending && !socket.dirty;
        socket.dirty |= asks;
        asks
    }

    fn flush(&mut self, id: ConnId, socket: &mut UringSocket, tell: bool) {
        socket.dirty = false;
        if !self.settle_launched(id, socket) {
            return;
        }
        if tell || !self.start_quick(id, socket) {
            self.start_send(id, socket);
        }
    }

    fn make_certain(&mut self, id: ConnId, socket: &mut UringSocket) {
        self.settle_launched(id, socket);
    }

    fn unsent(&self, socket: &UringSocket) -> usize {
        socket.outbox.as_ref().map_or(0, |outbox| outbox.unsent())
    }

    fn count_unsent(&mut self, id: ConnId, socket: &mut UringSocket) {
        if socket.sending {
            // It ends with what has gone, and goes on with the rest (`sent`).
            self.cancel(Operation::Send, id);
        }
    }

    fn is_broken(&self, socket: &UringSocket) -> bool {
        socket.broken
    }

    fn pause_read(&mut self, id: ConnId, socket: &mut UringSocket) {
        if !socket.paused && socket.receiving {
            self.cancel(Operation::Receive, id);
        }
        socket.paused = true;
        // A client may go while nobody receives from it, and then gives up its place in the queue.
        if id.side == Side::Client {
            self.poll_end(id, socket);
        }
    }

    fn resume_read(&mut self, id: ConnId, socket: &mut UringSocket) {
        socket.paused = false;
        if socket.polling && !socket.ended {
            self.cancel(Operation::Poll, id);
        }
        self.receive(id, socket);
    }

    fn watch_end(&mut self, id: ConnId, socket: &mut UringSocket) {
        self.poll_end(id, socket);
    }

    fn retire(&mut self, id: ConnId, socket: &mut UringSocket) -> bool {
        if !socket.retiring {
            // Its descriptor must outlive what is not submitted yet.
            if !self.settle_launched(id, socket) {
                return false;
            }
            socket.retiring = true;
            self.cancel_all(id, socket);
        }
        socket.ops == 0
    }

    fn bring_out(&mut self, socket: &mut UringSocket) -> bool {
        let Descriptor::Slot(slot) = socket.descriptor else { return true };
        let Some(fd) = self.install(slot) else { return false };
        socket.descriptor = Descriptor::Open(fd);
        true
    }

    fn dismantle(&mut self, mut socket: UringSocket) -> (Option<OwnedFd>, Vec<u8>) {
        self.bring_out(&mut socket);
        let unsent = socket.outbox.map_or_else(Vec::new, |outbox| {
            let bytes = outbox.to_vec();
            self.spares.put_outbox(outbox, &mut self.buffers);
            bytes
        });
        let fd = match socket.descriptor {
            Descriptor::Open(fd) => Some(fd),
            Descriptor::Slot(slot) => {
                self.files.clear(&self.ring.submitter(), slot);
                None
            }
        };
        (fd, unsent)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool> {
        let is_idle = self.retired.is_empty() && self.completions.is_empty() && !self.quick.has_refused();
        self.ring.wait(if is_idle { timeout } else { Some(Duration::ZERO) })?;
        self.harvest();
        self.quick.landed(&mut self.spares);
        self.turn = self.turn.wrapping_add(1).max(1);
        self.prompt = self.completions.len() <= PROMPT_COMPLETIONS_MAX;
        Ok(!is_idle || !self.completions.is_empty() || self.quick.has_refused())
    }

    fn next(&mut self) -> Option<Event<Completed>> {
        // Before anything else: what follows on the same connection must go behind it.
        if let Some(refused) = self.quick.next_refused() {
            return Some(Event::Connection(refused.id, Completed::Refused(refused)));
        }
        while let Some(completion) = self.completions.pop_front() {
            let (tag, result, flags) = (Tag(completion.user_data()), completion.result(), completion.flags());
            let completed = match tag.operation() {
                Operation::Receive => Completed::Receive { result, flags },
                Operation::Send => Completed::Send { result },
                Operation::Poll => Completed::Poll { result, flags },
                Operation::Cancel => Completed::CancelMissed,
                _ => match self.other(tag, result, flags) {
                    Some(event) => return Some(event),
                    None => continue,
                },
            };
            return Some(Event::Connection(tag.id(), completed));
        }
        Some(Event::Connection(self.retired.pop_front()?, Completed::Retired))
    }

    fn advance(&mut self, id: ConnId, socket: &mut UringSocket, raw: Completed) -> Step<Piece> {
        match raw {
            Completed::Receive { result, flags } => self.received(id, socket, result, flags),
            Completed::Send { result } => self.sent(id, socket, result),
            Completed::Refused(refused) => {
                self.restore(socket, refused);
                self.start_send(id, socket);
                if socket.broken { Step::Sent } else { Step::Nothing }
            }
            Completed::Poll { result, flags } => self.polled(id, socket, result, flags),
            Completed::CancelMissed => self.cancel_missed(id, socket),
            Completed::Retired => Step::Retired,
        }
    }

    fn give_back(&mut self, piece: Piece) {
        self.buffers.release(piece);
    }
}
