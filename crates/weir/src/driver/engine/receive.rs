//! From sockets to core: bytes as they come, bytes that were held, TLS, the end of a connection.

use std::net::SocketAddr;

use weir_core::contract::{Input, Level, RECEIVE_BYTES_MAX, TlsRole};
use weir_core::{ConnId, Peer, Side};

use super::super::machine::Machine;
use super::super::net;
use super::super::sockets::Sockets;
use super::super::tls::Session;
use super::super::transport::{Phase, Transport};
use super::{Deferred, Engine};

/// A buffer that grew beyond this is not kept for the next use.
const SCRATCH_BYTES_MAX: usize = 256 * 1024;

/// A client that waits for a server has its request held: buffers that are kept for that, and how large.
const SPARE_MAX: usize = 256;
const SPARE_BYTES_MAX: usize = 1024;

impl<M: Machine, S: Sockets> Engine<M, S> {
    pub(super) fn received(&mut self, id: ConnId, piece: S::Piece) {
        // Who leaves takes along what still comes: it must not wait here.
        let waits = |transport: &mut Transport<_>| transport.newcomer && transport.phase == Phase::Open;
        if self.transports.open(id).is_some_and(waits) {
            self.newcomer_received(id, &piece);
        } else {
            self.bytes(id, &piece, Some(&piece));
        }
        self.sockets.give_back(piece);
    }

    /// Bytes as they came, in `piece` if they still lie there.
    pub(super) fn bytes(&mut self, id: ConnId, bytes: &[u8], piece: Option<&S::Piece>) {
        match self.transports.open(id) {
            Some(transport) if transport.tls.is_some() => self.ciphertext(id, bytes),
            Some(_) => self.feed(id, bytes, piece),
            None => {}
        }
    }

    /// Hands in bytes, at most `RECEIVE_BYTES_MAX`, or holds them.
    fn feed(&mut self, id: ConnId, bytes: &[u8], piece: Option<&S::Piece>) {
        let Some(transport) = self.transports.open(id) else { return };
        match transport.phase {
            Phase::Open if transport.read_on && transport.held.is_empty() => {}
            Phase::Open | Phase::Leaving => return self.hold(id, bytes),
            Phase::Closing | Phase::Ending => return,
        }
        let taken = self.machine.handle(self.now, Input::Bytes { conn: id, bytes });
        if let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
            self.hold(id, rest);
        }
        self.drain(bytes, piece);
    }

    pub(super) fn hold(&mut self, id: ConnId, bytes: &[u8]) {
        if let Some(transport) = self.transports.open(id) {
            if transport.held.capacity() == 0
                && let Some(spare) = self.spare.pop()
            {
                transport.held = spare;
            }
            transport.held.extend_from_slice(bytes);
        }
        self.pause_if_full(id);
    }

    /// Stops to receive once reading is off and a receive buffer is held: until then, reading off costs no system call.
    fn pause_if_full(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id) else { return };
        let is_full = transport.held.len() >= S::HOLD_BYTES_MAX;
        if transport.phase == Phase::Open && !transport.read_on && is_full && !transport.paused {
            transport.paused = true;
            self.sockets.pause_read(id, &mut transport.socket);
        }
    }

    /// `Output::Read`.
    pub(super) fn read(&mut self, id: ConnId, on: bool) {
        let Some(transport) = self.transports.open(id) else { return };
        if transport.phase != Phase::Open {
            return;
        }
        transport.read_on = on;
        if !on {
            return self.pause_if_full(id);
        }
        if transport.held.is_empty() {
            self.resume(id);
        }
        self.feed_soon(id);
    }

    /// What is held has its turn, if core reads.
    pub(super) fn feed_soon(&mut self, id: ConnId) {
        let feeds = |transport: &&mut Transport<_>| {
            transport.phase == Phase::Open && transport.read_on && !transport.held.is_empty() && !transport.feeding
        };
        if let Some(transport) = self.transports.open(id).filter(feeds) {
            transport.feeding = true;
            self.deferred.push_back(Deferred::Feed(id));
        }
    }

    pub(super) fn resume(&mut self, id: ConnId) {
        if let Some(transport) = self.transports.open(id)
            && transport.paused
        {
            transport.paused = false;
            self.sockets.resume_read(id, &mut transport.socket);
        }
    }

    /// Hands in what was held, one input's worth; the rest has its turn later.
    pub(super) fn feed_held(&mut self, id: ConnId) {
        let Some(transport) = self.transports.open(id) else { return };
        transport.feeding = false;
        if transport.phase != Phase::Open || !transport.read_on {
            return;
        }
        let mut held = std::mem::take(&mut transport.held);
        let bytes = &held[..held.len().min(RECEIVE_BYTES_MAX)];
        // TLS may have begun with what was held.
        let taken = match bytes {
            [] => 0,
            bytes => self.machine.handle(self.now, Input::Bytes { conn: id, bytes }).min(bytes.len()),
        };
        if let Some(transport) = self.transports.open(id) {
            transport.held.extend_from_slice(&held[taken..]);
        }
        self.drain(bytes, None);
        let is_whole = taken == bytes.len();
        if held.capacity() <= SPARE_BYTES_MAX && self.spare.len() < SPARE_MAX {
            held.clear();
            self.spare.push(held);
        }
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        if transport.held.is_empty() {
            if transport.ended {
                self.has_said_all(id);
            } else if transport.read_on {
                self.resume(id);
            }
        } else if is_whole && transport.read_on {
            self.feed_soon(id);
        } else {
            self.pause_if_full(id);
        }
    }

    /// The peer sends no more. What it said before is still handed in, when core wants it.
    pub(super) fn ended(&mut self, id: ConnId) {
        if self.transports.open(id).is_some_and(|transport| transport.newcomer) {
            self.hear_out(id);
        }
        let Some(transport) = self.transports.open(id) else { return };
        if !matches!(transport.phase, Phase::Open | Phase::Leaving) {
            return;
        }
        // Who leaves takes it along.
        let is_new = !std::mem::replace(&mut transport.ended, true) && transport.phase == Phase::Open;
        if is_new && transport.held.is_empty() {
            self.has_said_all(id);
        }
        if id.side == Side::Client
            && let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open)
        {
            self.sockets.watch_end(id, &mut transport.socket);
        }
    }

    /// The connection says no more. A server that has not said so within TLS did not end it perhaps (PostgreSQL does, in
    /// `secure_close`): what it was sent may still be on its way.
    pub(super) fn hung_up(&mut self, id: ConnId) {
        let cut = |transport: &mut Transport<_>| transport.tls.is_some() && !transport.ended;
        if id.side == Side::Server && self.transports.open(id).is_some_and(cut) {
            return self.lost(id);
        }
        self.ended(id);
    }

    /// Core has taken all that the peer ever sends. A client may still want its answers.
    fn has_said_all(&mut self, id: ConnId) {
        match id.side {
            Side::Client => self.input(Input::Ended { conn: id }),
            Side::Server => self.end(id),
        }
    }

    /// The connection is of no use any more. A server's last words are still handed in; a client that has gone wants no
    /// answer.
    pub(super) fn lost(&mut self, id: ConnId) {
        if id.side == Side::Server {
            if self.is_open(id) {
                self.input(Input::Failed { conn: id });
            }
            return self.ended(id);
        }
        if self.transports.open(id).is_some_and(|transport| transport.newcomer) {
            self.hear_out(id);
        }
        if self.is_open(id) {
            self.end(id);
        }
    }

    /// For the log: who is at the other end. A server's name is known, of a client only the address.
    pub(super) fn peer_name(&mut self, id: ConnId) -> String {
        let Some(transport) = self.transports.open(id) else { return String::new() };
        if let (Side::Server, Some(session)) = (id.side, &transport.tls) {
            return session.peer();
        }
        match self.sockets.fd(&transport.socket).map(net::ends) {
            Some((Peer::Tcp { ip, port }, _)) => format!("client {}", SocketAddr::new(ip, port)),
            Some((Peer::Unix { .. }, _)) => "a client on a Unix socket".to_owned(),
            // Among more sockets than the process may have files.
            None => "a client".to_owned(),
        }
    }

    pub(super) fn start_tls(&mut self, id: ConnId, role: &TlsRole) {
        let Some(transport) = self.transports.open(id).filter(|transport| transport.phase == Phase::Open) else {
            return;
        };
        match Session::new(&self.around.tls, role) {
            Ok(session) => transport.tls = Some(Box::new(session)),
            Err(reason) => {
                let whom = match role {
                    TlsRole::Connect { host, .. } => format!("server {host}"),
                    TlsRole::Accept { .. } => self.peer_name(id),
                };
                self.log(Level::Error, format!("cannot start TLS with {whom}: {reason}"));
                if id.side == Side::Server {
                    self.input(Input::TlsFailed { conn: id, reason });
                }
                return self.end(id);
            }
        }
        let ciphertext = std::mem::take(&mut transport.held);
        if !ciphertext.is_empty() {
            self.deferred.push_back(Deferred::Ciphertext(id, ciphertext));
        }
        // A handshake goes on whether core reads or not.
        self.resume(id);
        self.send_handshake(id);
    }

    /// What has come within TLS. Core may send the connection to another worker for a part of it: the rest is held by then, and goes along.
    fn plaintext(&mut self, id: ConnId, plain: &[u8], ended: bool) {
        let Some(transport) = self.transports.open(id) else { return };
        if plain.len() <= RECEIVE_BYTES_MAX && !ended {
            if !plain.is_empty() {
                self.feed(id, plain, None);
            }
        } else if matches!(transport.phase, Phase::Open | Phase::Leaving) {
            if !plain.is_empty() {
                self.hold(id, plain);
            }
            if ended {
                self.ended(id);
            }
            self.feed_soon(id);
        }
    }

    pub(super) fn ciphertext(&mut self, id: ConnId, bytes: &[u8]) {
        let Some(transport) = self.transports.open(id) else { return };
        if !matches!(transport.phase, Phase::Open | Phase::Leaving) {
            return;
        }
        let Some(session) = &mut transport.tls else { return };
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let result = session.decrypt(bytes, &mut self.incoming, &mut plain);
        self.send_handshake(id);
        match result {
            Ok(progress) => {
                if let Some(tls) = progress.ready {
                    self.input(Input::TlsReady { conn: id, tls });
                }
                self.plaintext(id, &plain, progress.ended);
            }
            Err(failed) => {
                let whom = self.peer_name(id);
                self.log(Level::Warning, format!("TLS with {whom} failed: {}", failed.reason));
                if id.side == Side::Server && self.is_open(id) {
                    self.input(Input::TlsFailed { conn: id, reason: failed.told });
                }
                // The alert that says why is the last word.
                self.begin_close(id);
            }
        }
        if plain.capacity() <= SCRATCH_BYTES_MAX {
            self.plain = plain;
        }
        if self.incoming.capacity() > SCRATCH_BYTES_MAX {
            self.incoming = Vec::new();
        }
    }
}
