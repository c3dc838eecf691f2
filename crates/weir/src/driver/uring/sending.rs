//! How bytes are sent: by the ring, with a completion or quickly without one, or at once past the ring. Knows nothing of
//! receiving.

use std::io;
use std::os::fd::AsFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use weir_core::ConnId;

use super::super::net;
use super::super::sockets::Step;
use super::buffers::Piece;
use super::files::Descriptor;
use super::outbox::Flight;
use super::quick::Refused;
use super::ring::{NUMBERS, Operation, Tag};
use super::{Uring, UringSocket};

impl Uring {
    pub(super) fn start_send(&mut self, id: ConnId, socket: &mut UringSocket) {
        let Some(outbox) = &mut socket.outbox else { return };
        if socket.sending || socket.retiring {
            return;
        }
        let fd = Fd(socket.descriptor.number());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        // The memory of a flight stays where it is until it lands: the outbox is boxed, its flying segments are left alone,
        // and a socket is taken apart only when no operation is under way.
        let send = match outbox.take_off() {
            Flight::Plain { start, len } => {
                opcode::Send::new(fd, start, u32::try_from(len).unwrap_or(u32::MAX)).flags(flags).build()
            }
            Flight::Vector(header) => opcode::SendMsg::new(fd, header).flags(flags as u32).build(),
        };
        self.ring.push(send.flags(socket.descriptor.flags()), Tag::conn(Operation::Send, id));
        socket.sending = true;
        socket.ops += 1;
    }

    /// Sends what is small: without a completion, or past the ring. `false`: it is too much for that, or more is on its way
    /// already.
    pub(super) fn start_quick(&mut self, id: ConnId, socket: &mut UringSocket) -> bool {
        if socket.sending || socket.retiring {
            return false;
        }
        let Some(mut outbox) = socket.outbox.take() else { return true };
        let Some(bytes) = outbox.take_only_copy() else {
            socket.outbox = Some(outbox);
            return false;
        };
        self.spares.put_outbox(outbox, &mut self.buffers);
        match &socket.descriptor {
            Descriptor::Open(fd) if self.prompt => {
                let result = net::send_slices(fd.as_fd(), &[&bytes]);
                self.sent_at_once(id, socket, bytes, result);
            }
            // What lies in the ring's table is the ring's alone.
            _ => self.launch(id, socket, bytes),
        }
        true
    }

    /// A send past the ring is over. What it left goes through the ring, which waits until the peer has room.
    fn sent_at_once(&mut self, id: ConnId, socket: &mut UringSocket, bytes: Vec<u8>, result: io::Result<usize>) {
        let result = match result {
            Ok(sent) if sent == bytes.len() => return self.spares.put_copy(bytes),
            Ok(sent) => i32::try_from(sent).unwrap_or(i32::MAX),
            Err(error) => -error.raw_os_error().unwrap_or(libc::EIO),
        };
        self.restore(socket, Refused { id, bytes: Some(bytes), result });
        self.start_send(id, socket);
    }

    fn launch(&mut self, id: ConnId, socket: &mut UringSocket, bytes: Vec<u8>) {
        let number = socket.launches;
        socket.launches = (number + 1) % NUMBERS;
        let (start, len, at) = self.quick.launch(id, number, bytes);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT;
        let send = opcode::Send::new(Fd(socket.descriptor.number()), start, len).flags(flags).build();
        self.ring.push(
            send.flags(squeue::Flags::SKIP_SUCCESS | socket.descriptor.flags()),
            Tag::conn(Operation::QuickSend, id).numbered(number),
        );
        (socket.launched_in, socket.launched_at) = (self.turn, at);
    }

    /// Puts back what a quick send, or one past the ring, could not send.
    pub(super) fn restore(&mut self, socket: &mut UringSocket, refused: Refused) {
        let Refused { bytes, result, .. } = refused;
        let Some(bytes) = bytes else { return self.shut(socket) };
        socket.broken |= result < 0 && !matches!(-result, libc::EINTR | libc::EAGAIN | libc::ECANCELED);
        if socket.broken {
            return self.spares.put_copy(bytes);
        }
        let sent = usize::try_from(result).unwrap_or(0).min(bytes.len());
        socket.outbox.get_or_insert_with(|| self.spares.outbox()).push_front(bytes, sent);
    }

    /// Ends a connection both ways: bytes to its peer are lost, and none may follow them.
    fn shut(&mut self, socket: &mut UringSocket) {
        socket.broken = true;
        let shutdown = opcode::Shutdown::new(Fd(socket.descriptor.number()), libc::SHUT_RDWR).build();
        let flags = squeue::Flags::SKIP_SUCCESS | socket.descriptor.flags();
        self.ring.push(shutdown.flags(flags), Tag::other(Operation::Shutdown, 0));
        self.ring.submit();
    }

    /// Finds out what became of a quick send of this turn. `false`: the ring is broken, and nobody knows.
    pub(super) fn settle_launched(&mut self, id: ConnId, socket: &mut UringSocket) -> bool {
        if socket.launched_in != self.turn {
            return true;
        }
        if !self.ring.submit() {
            return false;
        }
        socket.launched_in = 0;
        self.harvest();
        if let Some(refused) = self.quick.settle(id, socket.launched_at, &mut self.spares) {
            self.restore(socket, refused);
        }
        true
    }

    pub(super) fn sent(&mut self, id: ConnId, socket: &mut UringSocket, result: i32) -> Step<Piece> {
        socket.sending = false;
        socket.ops -= 1;
        if let Some(mut outbox) = socket.outbox.take() {
            outbox.landed(usize::try_from(result).unwrap_or(0), &mut self.buffers, &mut self.spares);
            let is_lost = result < 0 && !matches!(-result, libc::ECANCELED | libc::EINTR | libc::EAGAIN);
            socket.broken |= is_lost;
            if outbox.unsent() == 0 || socket.broken {
                self.spares.put_outbox(outbox, &mut self.buffers);
            } else {
                socket.outbox = Some(outbox);
            }
        }
        if socket.retiring {
            return socket.retired();
        }
        self.start_send(id, socket);
        Step::Sent
    }
}
