//! Cancel requests for other processes' sessions: each is passed on to the process that its key names (`[peers]`, `peering.rs`).
//!
//! Behind a load balancer a request may come in at any of several processes. The steward's worker passes it on, so that a peer's `pool_size` is one limit
//! for the whole process; whoever asked sees its connection closed when the other process has closed ours.

use std::sync::Arc;

use crate::id::NO_POOL;
use crate::id::{ClientId, WorkerId};
use crate::mail::{Letter, Stray};
use crate::making::{Making, Purpose, Target};
use crate::peer::Endpoint;
use crate::peering::PeerKey;
use crate::server::{Server, ServerState};
use crate::time::{Duration, Time};
use crate::timers::Subject;
use crate::worker::Service;
use crate::worker::patience::RECOVERY;

/// Requests for one peer that wait until others have been passed on. More of them are dropped: who has sent them may have gone long ago.
const WAITING_MAX: usize = 1024;
/// How old a request may be, at most, whose sender has closed its connection.
const GONE_PATIENCE: Duration = Duration::from_secs(1);
/// Bytes of a cancel key in protocol 3.2, as PostgreSQL 18 has them (`MyCancelKeyLength`).
const CANCEL_KEY_LEN: usize = 32;
/// The process whose place this one has taken, among the peers, whose own numbers begin with 1.
pub(super) const PREDECESSOR: u16 = 0;
/// And the one that has taken this one's, whose last is 16383.
pub(super) const SUCCESSOR: u16 = u16::MAX;

/// From when on a request that came then is of no use to whoever asked. `patience`: how long it may be on its way.
pub(super) fn late_from(since: Time, left: bool, patience: Duration) -> Time {
    since + if left { patience.min(GONE_PATIENCE) } else { patience }
}

impl Service {
    /// What the client of a session is told: a process id, and a cancel key, of which protocol 3.0 has the first four bytes.
    pub(super) fn cancel_key(&mut self, number: u32) -> (u32, [u8; CANCEL_KEY_LEN]) {
        let mut key = self.traffic.cx.random::<CANCEL_KEY_LEN>();
        let peer = self.traffic.cx.settings.peer_id;
        if peer == 0 {
            return (number, key);
        }
        loop {
            let random = u16::from_ne_bytes(self.traffic.cx.random());
            if let Some(sealed) = PeerKey::seal(number, random, peer, &self.traffic.cx.config.process_secret) {
                key[..4].copy_from_slice(sealed.key());
                return (sealed.process_id(), key);
            }
        }
    }

    /// Whom a cancel request is for: the letter that finds out. `Err`: nobody, and why.
    pub(super) fn addressed(&self, process_id: u32, key: &[u8], reply_to: ClientId) -> Result<Letter, &'static str> {
        let (own, peers) = (self.traffic.cx.settings.peer_id, &self.traffic.cx.settings.peers);
        let mut key: Box<[u8]> = key.into();
        if own == 0 {
            return Ok(Letter::CancelFor { process_id, key, reply_to });
        }
        let sealed = PeerKey::of(process_id, &key).ok_or("failed cancel request")?;
        if sealed.peer() == own {
            let told = sealed.as_told();
            key[..4].copy_from_slice(told.key());
            return Ok(Letter::CancelFor {
                process_id: told.number(&self.traffic.cx.config.process_secret),
                key,
                reply_to,
            });
        }
        let next = sealed.passed_on().ok_or("failed to forward cancel request because its TTL was exhausted")?;
        if !peers.contains_key(&next.peer()) {
            return Err("could not find peer to forward request to");
        }
        key[..4].copy_from_slice(next.key());
        let (peer, process_id, since) = (next.peer(), next.process_id(), self.traffic.cx.now);
        Ok(Letter::PassOn { stray: Stray { peer, process_id, key, reply_to, since, left: false } })
    }

    /// A request came in at another worker, or here.
    pub(super) fn pass_on(&mut self, asker: WorkerId, stray: Stray) {
        let peer = stray.peer;
        let waiting = &mut self.strays.entry(peer).or_default().waiting;
        if waiting.len() < WAITING_MAX {
            waiting.push_back((asker, stray));
        } else {
            self.traffic.cx.post(asker, Letter::CancelDone { reply_to: stray.reply_to, unknown: false });
        }
        self.serve_peer(peer);
    }

    /// The connection that carried it has ended, or is not going to be.
    pub(super) fn passed_on(&mut self, peer: u16, asker: WorkerId, reply_to: ClientId) {
        self.traffic.cx.post(asker, Letter::CancelDone { reply_to, unknown: false });
        if let Some(line) = self.strays.get_mut(&peer) {
            line.carried = line.carried.saturating_sub(1);
        }
        self.serve_peer(peer);
    }

    /// Whoever waits is on its way, as far as `pool_size` goes. What has waited too long is over, and what is for a peer that a reload has
    /// taken away.
    fn serve_peer(&mut self, peer: u16) {
        let patience = self.cancel_patience();
        let (endpoint, limit) = match self.traffic.cx.settings.peers.get(&peer) {
            _ if peer == PREDECESSOR => (self.traffic.cx.config.predecessor.clone(), None),
            _ if peer == SUCCESSOR => (self.traffic.cx.config.place.clone(), None),
            Some(peer) => (
                Some(peer.endpoint.clone()),
                Some(peer.pool_size.unwrap_or(self.traffic.cx.settings.default_pool_size)),
            ),
            None => (None, None),
        };
        while let Some(line) = self.strays.get_mut(&peer) {
            if limit.is_some_and(|limit| limit > 0 && line.carried >= limit) {
                return;
            }
            let Some((asker, stray)) = line.waiting.pop_front() else {
                if line.carried == 0 {
                    self.strays.remove(&peer);
                }
                return;
            };
            let Stray { process_id, key, reply_to, since, left, .. } = stray;
            let is_late = self.traffic.cx.now >= late_from(since, left, patience);
            let Some(endpoint) = endpoint.clone().filter(|_| !is_late) else {
                self.traffic.cx.post(asker, Letter::CancelDone { reply_to, unknown: false });
                continue;
            };
            line.carried += 1;
            let target = Target::Peer { peer, asker, reply_to, since, left };
            self.connect_canceller(Purpose::Cancel { target, process_id, key }, endpoint.clone(), endpoint);
        }
    }

    /// Whoever asked has gone. There are clients that send a request and close at once; but who has waited for its answer and waits no more
    /// does something else.
    pub(super) fn asker_left(&mut self, asker: WorkerId, peer: u16, reply_to: ClientId) {
        let waiting = self.strays.get_mut(&peer).into_iter().flat_map(|line| &mut line.waiting);
        for (_, stray) in waiting.filter(|(worker, stray)| *worker == asker && stray.reply_to == reply_to) {
            stray.left = true;
        }
        let carrier = self.traffic.servers.iter().find_map(|(id, server)| match server.carries()? {
            Target::Peer { asker: from, reply_to: whom, since, .. } if (from, whom) == (asker, reply_to) => {
                Some((id, since))
            }
            _ => None,
        });
        let Some((id, since)) = carrier else { return };
        let late = late_from(since, true, self.cancel_patience());
        let Some(server) = self.traffic.servers.get_mut(id) else { return };
        if let ServerState::Making(making) = &mut server.state {
            if let Purpose::Cancel { target: Target::Peer { left, .. }, .. } = &mut making.purpose {
                *left = true;
            }
            self.traffic.cx.timers.set(Subject::Server(id), &mut server.deadline, late);
        } else {
            // The other process may have to pass it on too: it hears of it so.
            self.traffic.close_server(id, "whoever sent the cancel request has gone");
            self.passed_on(peer, asker, reply_to);
        }
    }

    /// Opens a connection that carries a cancel request, for a peer or to a server of ours. `endpoint`: what it is called, `address`: where it is.
    pub(super) fn connect_canceller(&mut self, purpose: Purpose, endpoint: Endpoint, address: Endpoint) {
        let (number, patience) = (self.traffic.cx.next_number(), self.cancel_patience());
        let due = match purpose {
            Purpose::Cancel { target: Target::Peer { since, left, .. }, .. } => late_from(since, left, patience),
            _ => self.traffic.cx.now + patience,
        };
        let making = ServerState::Making(Box::new(Making::new(purpose)));
        let mut canceller =
            Server::new(making, NO_POOL, Arc::clone(&self.traffic.cx.no_parameters), self.traffic.cx.now, number);
        canceller.endpoint = Some(endpoint);
        let canceller = self.traffic.servers.insert(canceller);
        self.traffic.cx.out.connect(canceller, address);
        if let Some(server) = self.traffic.servers.get_mut(canceller) {
            self.traffic.cx.timers.set(Subject::Server(canceller), &mut server.deadline, due);
        }
    }

    /// How long a cancel request may be on its way: all that its session does next waits for it, and so does whoever wants the server. Where
    /// `cancel_wait_timeout` is off, that is not without end.
    pub(super) fn cancel_patience(&self) -> Duration {
        self.traffic.cx.settings.cancel_wait_timeout.limit().unwrap_or(RECOVERY)
    }
}
