//! The way of messages between a client and the server that it is linked to.
//!
//! An [`Exchange`] borrows the two for what the client sends, [`Answers`] for what the server sends, for the length of one input. They
//! answer why they are over; what comes of that is the worker's business. They know no other clients, servers and pools.

mod altering;
mod analysed;
mod begun;
mod completed;
mod deallocated;
mod elsewhere;
mod errors;
mod failing;
mod listens;
mod notified;
mod own_names;
mod own_rows;
mod parse;
mod prepared;
mod refused;
mod replies;
mod requests;
mod resets;
mod routed;
mod rows;
mod sequences;
mod shapes;
mod temporary;
mod told;
mod unlinked;
mod unnamed;

use weir_wire::backend::ErrorFields;

use parse::too_many_statements;
pub(crate) use requests::Exit;
use requests::Verdict;
pub(crate) use routed::Unrouted;
pub(crate) use unlinked::Unlinked;

use crate::client::{Client, ClientState, Discard, Link, Session};
use crate::context::Context;
use crate::failure::Failure;
use crate::id::{ClientId, ServerId, Table};
use crate::inbox::Inbox;
use crate::kept::exact::Unlistened;
use crate::kept::knowledge::Knowledge;
use crate::message::Message;
use crate::pool::{Pool, Pools};
use crate::server::Server;
use crate::stats::Counters;
use crate::timers::{Deadline, Subject};

/// What both are borrowed of.
pub(crate) struct Around<'w> {
    pub(crate) cx: &'w mut Context,
    pub(crate) clients: &'w mut Table<ClientId, Client>,
    pub(crate) servers: &'w mut Table<ServerId, Server>,
    pub(crate) pools: &'w mut Pools,
}

/// A client in its session, and the server that it is linked to.
pub(crate) struct Exchange<'w> {
    cx: &'w mut Context,
    /// Of the client's pool.
    counters: &'w mut Counters,
    reads_sequences: &'w mut bool,
    knowledge: &'w Knowledge,
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

/// A server in its session, and the client that it works for, where that is there.
pub(crate) struct Answers<'w> {
    cx: &'w mut Context,
    pool: &'w mut Pool,
    server_id: ServerId,
    server: &'w mut Server,
    client: Option<(ClientId, &'w mut Client)>,
    /// What comes of the message in hand.
    then: Option<Outcome>,
}

/// What comes of a server's messages for more than the two.
pub(crate) enum Outcome {
    /// Nothing: all that came is dealt with.
    Drained,
    /// ReadyForQuery: it may be free now. `cancels`: a cancel waited for the query of ours that is done.
    Ready {
        cancels: bool,
    },
    /// What comes next depends on whether the client still sends.
    LookEnded,
    /// A limit of its client's has passed, and it can be told now.
    Overdue,
    /// PostgreSQL asks for the data of a copy whose client has gone.
    CopyForNobody,
    OwnQueryFailed(Box<OwnFailure>),
    /// This notification was told to the pool's listener.
    Notified(Box<[u8]>),
    /// Its client leaves channels that another server hears for it. `None`: nobody knows which.
    LeavesChannels(Option<Unlistened>),
    /// It is about to be told what it listens to, of which its server does not know.
    AsksChannels,
    /// An error of a server that nobody uses.
    EndedIdle,
    /// It does what no server may do here.
    Broken(Box<Failure>),
}

/// What no server may do here.
#[derive(Debug, Clone, Copy)]
enum Fault {
    BrokeProtocol,
    ReportsTooMuch,
    PosesAsNode,
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::BrokeProtocol => Self::ServerBrokeProtocol,
            Fault::ReportsTooMuch => Self::ServerReportsTooMuch,
            Fault::PosesAsNode => Self::PosesAsNode,
        }
    }
}

/// An error that answers a query of ours.
pub(crate) struct OwnFailure {
    pub(crate) ends_session: bool,
    pub(crate) text: String,
    /// The body of the error, where it was short enough to be read.
    pub(crate) body: Option<Box<[u8]>>,
}

impl OwnFailure {
    fn new(fields: &ErrorFields<'_>, body: Option<&[u8]>) -> Self {
        let text = String::from_utf8_lossy(fields.message).into_owned();
        Self { ends_session: fields.ends_session(), text, body: body.map(Into::into) }
    }
}

impl<'w> Answers<'w> {
    pub(crate) fn of(server_id: ServerId, around: Around<'w>) -> Option<Self> {
        let Around { cx, clients, servers, pools } = around;
        let server = servers.get_mut(server_id)?;
        let client = server.client().and_then(|id| clients.get_mut(id).map(|client| (id, client)));
        Some(Self { cx, pool: &mut pools[server.pool], server_id, server, client, then: None })
    }

    fn pair(&mut self) -> (&mut Server, Option<&mut Session>) {
        (self.server, self.client.as_mut().and_then(|(_, client)| client.session_mut()))
    }
}

impl<'w> Exchange<'w> {
    /// Between this client, if it is linked, and its server. A client whose request was cancelled while it waited gets none.
    pub(crate) fn of(client_id: ClientId, around: Around<'w>) -> Option<Self> {
        let Around { cx, clients, servers, pools } = around;
        let client = clients.get_mut(client_id)?;
        let Link::Linked(server_id) = client.link else { return None };
        let ClientState::Ready(session) = &mut client.state else { return None };
        if session.discard != Discard::Nothing {
            return None;
        }
        let server = servers.get_mut(server_id)?;
        let pool = &mut pools[client.pool];
        Some(Self {
            cx,
            tracks: server.tracks,
            counters: &mut pool.counters,
            reads_sequences: &mut pool.reads_sequences,
            knowledge: &pool.knowledge,
            client_id,
            session,
            inbox: &mut client.inbox,
            deadline: &mut client.deadline,
            congested: client.congested,
            server_id,
            server,
        })
    }

    fn pair(&mut self) -> (&mut Session, &mut Server) {
        (self.session, self.server)
    }

    /// The client does something else than before.
    fn arm_client(&mut self) {
        let due = self.session.begins(self.server.doing(self.session.asks), self.cx.now);
        self.cx.timers.set(Subject::Client(self.client_id), self.deadline, due);
    }

    /// The message in hand is held back: what it depends on has not come yet. It is taken up again when anything has come
    /// (`wake_held_back`), so one rule wakes whoever waits, whatever for.
    #[inline(never)]
    fn wait_for_replies(&mut self) -> Verdict {
        self.server.await_replies(self.server_id, self.cx);
        debug_assert!(!self.server.is_stalled(), "who is held back waits for what comes");
        debug_assert!(self.server.owed.is_awaited(), "who waits on a link is woken by what comes");
        Verdict::Stop(Exit::Held)
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
        self.inbox.expect_rest(message.total, present, true);
        self.counters.bytes_received += present as u64;
        Verdict::Used(present)
    }

    fn skip(&mut self, message: &Message<'_>) -> Verdict {
        self.inbox.expect_rest(message.total, message.present(), false);
        Verdict::Used(message.present())
    }

    fn run_ahead(&mut self, text: Vec<u8>) {
        self.server.run_ahead(self.server_id, text, self.cx);
    }
}
