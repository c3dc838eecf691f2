//! From core to sockets: bytes, their congestion, and closing.

use weir_core::ConnId;
use weir_core::Side;
use weir_core::contract::{CONGESTED_BYTES, LINGER, Level, Span};
use weir_core::time::Duration;

use super::super::machine::Machine;
use super::super::net::{self, SLICES_MAX};
use super::super::sockets::Sockets;
use super::super::transport::{Phase, Place};
use super::{Deferred, Engine, Lingering};

/// A buffer that grew beyond this is not kept for the next use.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

impl<M: Machine, S: Sockets> Engine<M, S> {
    /// Sends the collected spans of one connection, in one system call where there is no TLS and they are not too many.
    pub(super) fn send_batch(&mut self, bytes: &[u8], piece: Option<&S::Piece>) {
        let Some(id) = self.batch_conn.take() else { return };
        let batch = std::mem::take(&mut self.batch);
        for spans in batch.chunks(SLICES_MAX) {
            self.send_spans(id, spans, bytes, piece);
        }
        self.batch = batch;
        self.batch.clear();
        self.after_sending(id);
    }

    fn send_spans(&mut self, id: ConnId, spans: &[Span], bytes: &[u8], piece: Option<&S::Piece>) {
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        let mut slices: [&[u8]; SLICES_MAX] = [&[]; SLICES_MAX];
        for (slice, span) in slices.iter_mut().zip(spans) {
            *slice = match *span {
                Span::Received { start, end } => bytes.get(start as usize..end as usize).unwrap_or_default(),
                Span::Made { .. } => self.machine.made(*span),
            };
        }
        let slices = &slices[..spans.len()];
        let (asks, encrypted) = match &mut transport.tls {
            None => (self.sockets.send(id, &mut transport.socket, slices, piece), Ok(())),
            Some(session) => {
                self.cipher.clear();
                let encrypted = session.encrypt(slices, &mut self.incoming, &mut self.cipher);
                let sends = !self.cipher.is_empty();
                (sends && self.sockets.send(id, &mut transport.socket, &[&self.cipher], None), encrypted)
            }
        };
        if asks {
            self.dirty.push(id);
        }
        if let Err(reason) = encrypted {
            self.cannot_encrypt(id, &reason);
        }
    }

    /// Nothing more can be said on a connection, as with TLS 1.2 once its key has encrypted as many records as it may.
    fn cannot_encrypt(&mut self, id: ConnId, reason: &str) {
        let whom = self.peer_name(id);
        self.log(Level::Warning, format!("TLS with {whom} has to end: {reason}"));
        self.close(id);
    }

    /// Sends what TLS itself has to say.
    pub(super) fn send_handshake(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id) else { return };
        let Some(session) = &mut transport.tls else { return };
        self.cipher.clear();
        session.take_outgoing(&mut self.cipher);
        if !self.cipher.is_empty() {
            if self.sockets.send(id, &mut transport.socket, &[&self.cipher], None) {
                self.dirty.push(id);
            }
            self.after_sending(id);
        }
    }

    /// Looks whether a send has filled or broken the connection.
    pub(super) fn after_sending(&mut self, id: ConnId) {
        if self.cipher.capacity() > SCRATCH_BYTES_MAX {
            self.cipher = Vec::new();
        }
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        if !transport.congested && self.sockets.unsent(&transport.socket) > CONGESTED_BYTES {
            transport.congested = true;
            self.deferred.push_back(Deferred::Congested(id));
        }
        // What a server still has to say is worth reading; its end will be received.
        if id.side == Side::Client && self.sockets.is_broken(&transport.socket) {
            self.end(id);
        }
    }

    /// Begins the sends of a turn: those to servers first. A server that is woken has its query to work on; a program whose
    /// answers come one by one between the wake-ups of servers is itself woken for each of them.
    pub(super) fn flush_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for side in [Side::Server, Side::Client] {
            for id in dirty.iter().copied().filter(|id| id.side == side) {
                self.flush(id);
            }
        }
        dirty.clear();
        // What that led to may have added some.
        dirty.append(&mut self.dirty);
        self.dirty = dirty;
    }

    fn flush(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id) else { return };
        // The last words of a connection are waited for.
        let tell = transport.phase != Phase::Open;
        self.sockets.flush(id, &mut transport.socket, tell);
        self.sent(id);
    }

    /// Something of what was unsent has gone.
    pub(super) fn sent(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id) else { return };
        if self.sockets.unsent(&transport.socket) > 0 {
            return;
        }
        match transport.phase {
            Phase::Closing => self.end(id),
            Phase::Open => {
                if transport.congested {
                    transport.congested = false;
                    self.deferred.push_back(Deferred::Writable(id));
                }
                self.after_sending(id);
            }
            Phase::Ending | Phase::Leaving => {}
        }
    }

    /// `Output::Close`.
    pub(super) fn close(&mut self, id: ConnId) {
        if self.transports.connecting(id).is_some() {
            return self.close_attempt(id);
        }
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        if let Some(session) = &mut transport.tls {
            self.cipher.clear();
            session.say_goodbye(&mut self.cipher);
            if self.sockets.send(id, &mut transport.socket, &[&self.cipher], None) {
                self.dirty.push(id);
            }
        }
        self.begin_close(id);
    }

    /// Sends what is unsent, for a while, then ends.
    pub(super) fn begin_close(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        transport.phase = Phase::Closing;
        transport.held = Vec::new();
        self.sockets.make_certain(id, &mut transport.socket);
        if self.sockets.unsent(&transport.socket) == 0 {
            return self.end(id);
        }
        self.linger(id, false);
    }

    /// What is taken is looked at twice in that time: how much has gone of what is under way is told only later.
    fn linger(&mut self, id: ConnId, idle: bool) {
        let Some(transport) = self.transports.open(id) else { return };
        let unsent = self.sockets.unsent(&transport.socket);
        self.sockets.count_unsent(id, &mut transport.socket);
        let deadline = self.now + Duration(LINGER.0 / 2);
        self.lingering.push_back(Lingering { id, deadline, unsent, idle });
    }

    /// Time has passed: whoever has taken something meanwhile is given more.
    pub(super) fn linger_on(&mut self, before: &Lingering) {
        let Some(transport) = self.transports.open(before.id).filter(|it| it.phase == Phase::Closing) else { return };
        let idle = self.sockets.unsent(&transport.socket) >= before.unsent;
        if idle && before.idle {
            self.end(before.id);
        } else {
            self.linger(before.id, idle);
        }
    }

    /// Ends a connection without further words; `Closed` follows once nothing is under way on its socket.
    pub(super) fn end(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id) else { return };
        if !matches!(transport.phase, Phase::Open | Phase::Closing) {
            return;
        }
        transport.phase = Phase::Ending;
        transport.held = Vec::new();
        if self.sockets.retire(id, &mut transport.socket) {
            self.remove(id);
        }
    }

    /// Nothing is under way on a socket any more.
    pub(super) fn retired(&mut self, id: ConnId) {
        match self.transports.open(id).map(|transport| transport.phase) {
            Some(Phase::Leaving) => self.depart(id),
            Some(_) => self.remove(id),
            None => self.attempt_retired(id),
        }
    }

    fn remove(&mut self, id: ConnId) {
        if let Place::Open(transport) = self.transports.take(id) {
            match self.sockets.dismantle(transport.socket) {
                (Some(fd), unsent) if unsent.is_empty() => net::close(fd),
                (Some(fd), _) => net::reset(fd),
                (None, _) => {}
            }
            self.deferred.push_back(Deferred::Closed(id));
        }
    }
}
