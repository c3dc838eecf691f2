//! Clients that are not in yet: accepting them, their TLS handshakes, their logins. A handshake takes a hundred times as
//! long as a query's way through, so all of it has a share of each turn, and what is over waits for the next one.
//! Knows nothing of what a login is: the machine says when it is over.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use weir_core::ConnId;
use weir_core::contract::RECEIVE_BYTES_MAX;

use super::super::machine::Machine;
use super::super::sockets::Sockets;
use super::super::transport::Phase;
use super::Engine;

/// The share of a turn. What was begun is finished, so one TLS handshake may come on top.
const SHARE: Duration = Duration::from_micros(100);
/// Accepted connections that wait for their turn; more wait in the listener's backlog.
const ACCEPTED_MAX: usize = 1024;

/// Who waits for a share.
#[derive(Default)]
pub(super) struct Newcomers {
    accepted: VecDeque<OwnedFd>,
    /// Of those that received; who was taken out since is still in it.
    order: VecDeque<ConnId>,
    /// Received and not looked at. A connection with so much that its driver holds no more is not read further.
    received: HashMap<ConnId, Vec<u8>>,
    /// Of this turn's share.
    spent: Duration,
    /// The listeners are left alone until fewer wait.
    full: bool,
}

impl Newcomers {
    fn has_share(&self) -> bool {
        self.spent < SHARE
    }

    pub(super) fn wait(&self) -> bool {
        !self.order.is_empty() || !self.accepted.is_empty()
    }

    pub(super) fn are_many(&self) -> bool {
        self.full
    }

    /// What waits of one connection, which waits no longer.
    pub(super) fn take(&mut self, id: ConnId) -> Option<Vec<u8>> {
        self.received.remove(&id)
    }
}

impl<M: Machine, S: Sockets> Engine<M, S> {
    /// The system has accepted a client.
    pub(super) fn accepted(&mut self, fd: OwnedFd) {
        if self.newcomers.has_share() && !self.newcomers.wait() {
            return self.spend(|engine| engine.welcome(fd));
        }
        self.newcomers.accepted.push_back(fd);
        if self.newcomers.accepted.len() >= ACCEPTED_MAX && !self.newcomers.full {
            self.newcomers.full = true;
            self.sockets.pause_accept();
        }
    }

    /// Bytes of a newcomer, as they came. Those that are in are heard first.
    pub(super) fn newcomer_received(&mut self, id: ConnId, piece: &S::Piece) {
        if self.newcomers.has_share() && !self.newcomers.received.contains_key(&id) {
            return self.spend(|engine| engine.newcomer_bytes(id, piece, Some(piece)));
        }
        let Some(transport) = self.transports.open(id) else { return };
        let waiting = self.newcomers.received.entry(id).or_default();
        if waiting.is_empty() {
            self.newcomers.order.push_back(id);
        }
        waiting.extend_from_slice(piece);
        if waiting.len() >= S::HOLD_BYTES_MAX && transport.phase == Phase::Open && !transport.paused {
            transport.paused = true;
            self.sockets.pause_read(id, &mut transport.socket);
        }
    }

    /// A newcomer goes: what it said before, a cancel request perhaps, is heard before.
    pub(super) fn hear_out(&mut self, id: ConnId) {
        if let Some(bytes) = self.newcomers.take(id) {
            self.newcomer_bytes(id, &bytes, None);
        }
    }

    /// Serves those who wait, while the turn's share lasts: first who has begun.
    pub(super) fn serve_newcomers(&mut self) {
        while self.newcomers.wait() && self.newcomers.has_share() {
            if let Some(id) = self.newcomers.order.pop_front() {
                let Some(bytes) = self.newcomers.take(id) else { continue };
                self.spend(|engine| engine.newcomer_bytes(id, &bytes, None));
            } else if let Some(fd) = self.newcomers.accepted.pop_front() {
                self.spend(|engine| engine.welcome(fd));
            }
        }
        if self.newcomers.full && self.newcomers.accepted.len() <= ACCEPTED_MAX / 2 {
            self.newcomers.full = false;
            if self.accept_paused_until.is_none() {
                self.sockets.resume_accept();
            }
        }
        self.newcomers.spent = Duration::ZERO;
    }

    fn spend(&mut self, serve: impl FnOnce(&mut Self)) {
        let start = Instant::now();
        serve(self);
        self.settle();
        self.newcomers.spent += start.elapsed();
    }

    fn newcomer_bytes(&mut self, id: ConnId, bytes: &[u8], piece: Option<&S::Piece>) {
        let has_tls = self.transports.open(id).is_some_and(|transport| transport.tls.is_some());
        if has_tls || bytes.len() <= RECEIVE_BYTES_MAX {
            self.bytes(id, bytes, piece);
        } else {
            // What waited has grown beyond one input; and core may send the connection to another worker for a part of it.
            self.hold(id, bytes);
            self.feed_held(id);
        }
        let is_new = self.machine.is_logging_in(id);
        let Some(transport) = self.transports.open(id) else { return };
        transport.newcomer = is_new;
        // Reading was stopped because bytes waited here. What is held now will see to it by itself.
        if transport.phase == Phase::Open && transport.held.is_empty() {
            self.resume(id);
        }
    }
}
