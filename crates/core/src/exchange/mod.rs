//! The way of messages between a client and the server that it is linked to.
//!
//! An [`Exchange`] borrows the two, and what belongs to both, for the length of one input. It answers why it is over; what comes of
//! that is the worker's business. Knows no other clients, servers and pools.

mod errors;
mod prepared;
mod replies;
mod requests;
mod resets;
mod shapes;

use weir_wire::write;

use prepared::too_many_statements;
pub(crate) use requests::{Exit, Message, Verdict};

use crate::client::{ClientState, Discard, Link, Session};
use crate::context::Context;
use crate::id::{ClientId, ServerId};
use crate::inbox::{Body, Inbox};
use crate::server::Server;
use crate::stats::Counters;
use crate::timers::{Deadline, Subject};
use crate::worker::Worker;

/// A client in its session, and the server that it is linked to.
pub(crate) struct Exchange<'w> {
    cx: &'w mut Context,
    /// Of the client's pool.
    counters: &'w mut Counters,
    /// Names of statements are ours.
    tracks: bool,
    client_id: ClientId,
    session: &'w mut Session,
    inbox: &'w mut Inbox,
    deadline: &'w mut Deadline,
    congested: bool,
    server_id: ServerId,
    server: &'w mut Server,
}

impl<'w> Exchange<'w> {
    /// Between this client, if it is linked, and its server. A client whose request was cancelled while it waited gets none.
    pub(crate) fn of(worker: &'w mut Worker, client_id: ClientId) -> Option<Self> {
        let Worker { cx, clients, servers, pools, .. } = worker;
        let client = clients.get_mut(client_id)?;
        let Link::Linked(server_id) = client.link else { return None };
        let ClientState::Ready(session) = &mut client.state else { return None };
        if session.discard != Discard::Nothing {
            return None;
        }
        let pool = &mut pools[client.pool];
        Some(Self {
            cx,
            tracks: pool.tracks_statements(),
            counters: &mut pool.counters,
            client_id,
            session,
            inbox: &mut client.inbox,
            deadline: &mut client.deadline,
            congested: client.congested,
            server_id,
            server: servers.get_mut(server_id)?,
        })
    }

    fn pair(&mut self) -> (&mut Session, &mut Server) {
        (self.session, self.server)
    }

    /// The client does something else than before.
    fn arm_client(&mut self) {
        self.session.idle_at = self.cx.now;
        let due = self.session.due(self.server.doing());
        self.cx.timers.set(Subject::Client(self.client_id), self.deadline, due);
    }

    /// The message in hand is held back: what it depends on has not come yet. It is taken up again when anything has come
    /// (`wake_held_back`), so one rule wakes whoever waits, whatever for.
    fn wait_for_replies(&mut self) -> Verdict {
        if self.server.owed.awaits() {
            self.cx.out.send(self.server_id, write::flush);
        }
        debug_assert!(!self.server.is_stalled(), "who is held back waits for what comes");
        Verdict::Wait
    }

    /// Sends the message on as it is, now and while the rest of it comes.
    fn forward(&mut self, message: &Message<'_>) -> Verdict {
        self.forward_rest(message, 0)
    }

    /// Sends on what follows the message's first `from` bytes.
    fn forward_rest(&mut self, message: &Message<'_>, from: usize) -> Verdict {
        let present = message.present();
        let at = message.at.map(|at| at + from);
        self.cx.out.send_piece(self.server_id, &message.bytes[from..present], at);
        let left = message.total - present;
        self.inbox.body = if left == 0 { Body::None } else { Body::Forward(left as u32) };
        self.counters.bytes_received += present as u64;
        Verdict::Used(present)
    }

    fn skip(&mut self, message: &Message<'_>) -> Verdict {
        self.inbox.skip_rest(message.total, message.present());
        Verdict::Used(message.present())
    }

    fn run_ahead(&mut self, text: Vec<u8>) {
        self.server.run_ahead(self.server_id, text, self.cx);
    }
}
