//! A connection that we accepted: who it is, and what its session holds.
//!
//! ```text
//! Login ──> Ready: link None <──> Waiting <──> Linked(server)      (Tunnel for replication)
//!   ├────> Console
//!   └────> CancelRequest                          all of them ──> Closing
//! ```

use std::sync::Arc;

use crate::console::Console;
use crate::contract::{Peer, TlsInfo};
use crate::id::ConnId;
use crate::inbox::Inbox;
use crate::login::Login;
use crate::mail::Moved;
use crate::parameters::ParameterSet;
use crate::settings::Settings;
use crate::statements::{ClientStatements, Unnamed};
use crate::time::{Duration, Time};
use crate::timers::Deadline;

#[derive(Debug)]
pub(crate) enum ClientState {
    /// The driver brings it in; its first input says what it is.
    Reserved,
    Login(Box<Login>),
    Ready(Box<Session>),
    Console(Box<Console>),
    /// Asked for a cancel; it is closed when that is done.
    CancelRequest,
    Closing,
    /// It lives on another worker: what is left is a name, until the connection has left.
    Departed,
}

/// Which server a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    None,
    Waiting {
        since: Time,
    },
    Linked(ConnId),
    /// Waits for a connection of its own (replication).
    WaitingTunnel {
        since: Time,
    },
    Tunnel(ConnId),
}

impl Link {
    pub(crate) fn server(self) -> Option<ConnId> {
        match self {
            Self::Linked(server) | Self::Tunnel(server) => Some(server),
            _ => None,
        }
    }

    pub(crate) fn waiting_since(self) -> Option<Time> {
        match self {
            Self::Waiting { since } | Self::WaitingTunnel { since } => Some(since),
            _ => None,
        }
    }
}

/// Messages that were answered before they were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discard {
    Nothing,
    /// The message in hand; a ReadyForQuery is owed after it if it is a simple query, else after the next Sync.
    Cancelled,
    UntilSync,
}

/// How long a session may do what; zero where there is no limit. The user's own settings come first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    idle: Duration,
    query: Duration,
    idle_in_transaction: Duration,
    transaction: Duration,
}

impl Limits {
    pub(crate) fn of(settings: &Settings, user: &str) -> Self {
        let user = settings.users.get(user);
        let limit = |own: Option<Duration>, all: Duration| own.unwrap_or(all);
        Self {
            idle: limit(user.and_then(|user| user.client_idle_timeout), settings.client_idle_timeout),
            query: limit(user.and_then(|user| user.query_timeout), settings.query_timeout),
            idle_in_transaction: limit(
                user.and_then(|user| user.idle_transaction_timeout),
                settings.idle_transaction_timeout,
            ),
            transaction: limit(user.and_then(|user| user.transaction_timeout), settings.transaction_timeout),
        }
    }

    /// Nothing that a session may do has a limit: the default.
    pub(crate) fn none(&self) -> bool {
        self.idle.0 | self.query.0 | self.idle_in_transaction.0 | self.transaction.0 == 0
    }

    /// When an idle client has been idle too long.
    pub(crate) fn idle_due(&self, now: Time) -> Time {
        after(self.idle, now)
    }

    /// When a linked client has taken too long for what it is doing.
    pub(crate) fn linked_due(&self, doing: Doing, request_at: Time, transaction_at: Time, now: Time) -> Time {
        let doing_due = match doing {
            Doing::Query => after(self.query, request_at),
            Doing::IdleInTransaction => after(self.idle_in_transaction, now),
            Doing::Idle => return self.idle_due(now),
        };
        doing_due.min(self.transaction_due(transaction_at))
    }

    pub(crate) fn transaction_due(&self, transaction_at: Time) -> Time {
        after(self.transaction, transaction_at)
    }
}

/// What a linked client's server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    Query,
    IdleInTransaction,
    /// Session pooling: nothing, and nobody else may use it.
    Idle,
}

/// A limit's end; never for a limit of zero.
pub(crate) fn after(limit: Duration, from: Time) -> Time {
    limit.limit().map_or(Time::NEVER, |limit| from + limit)
}

/// What a client's session holds, whichever server it is linked to.
#[derive(Debug)]
pub(crate) struct Session {
    /// The name it asked for.
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) parameters: Arc<ParameterSet>,
    pub(crate) statements: ClientStatements,
    pub(crate) unnamed: Unnamed,
    pub(crate) process_id: u32,
    pub(crate) cancel_key: Box<[u8]>,
    pub(crate) discard: Discard,
    pub(crate) limits: Limits,
    /// When its last request began to be served.
    pub(crate) request_at: Time,
    /// When its transaction began.
    pub(crate) transaction_at: Time,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) state: ClientState,
    pub(crate) link: Link,
    pub(crate) pool: u32,
    pub(crate) inbox: Inbox,
    pub(crate) peer: Peer,
    pub(crate) local: Peer,
    pub(crate) tls: Option<Box<TlsInfo>>,
    /// Database and user it was counted in under.
    pub(crate) admitted: Option<(Arc<str>, Arc<str>)>,
    /// The steward counts this connection among ours.
    pub(crate) counted: bool,
    /// How often it went from worker to worker; the number in it counts from the first time.
    pub(crate) moved: Moved,
    /// The last shedding in which it was drawn whether it goes.
    pub(crate) drawn: u32,
    /// Not read.
    pub(crate) held: bool,
    /// Does not take what is sent to it: whoever feeds it is not read.
    pub(crate) congested: bool,
    pub(crate) deadline: Deadline,
    pub(crate) connected_at: Time,
    /// For SHOW CLIENTS.
    pub(crate) number: u64,
}

impl Client {
    /// Nothing is read from it, and nothing said to it, any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, ClientState::Closing | ClientState::Departed)
    }

    pub(crate) fn reserved(now: Time, number: u64) -> Self {
        let nowhere = Peer::Unix { uid: None };
        Self {
            state: ClientState::Reserved,
            link: Link::None,
            pool: crate::server::NO_POOL,
            inbox: Inbox::default(),
            peer: nowhere.clone(),
            local: nowhere,
            tls: None,
            admitted: None,
            counted: false,
            moved: Moved { process_id: 0, moves: 0 },
            drawn: 0,
            held: false,
            congested: false,
            deadline: Deadline::default(),
            connected_at: now,
            number,
        }
    }

    pub(crate) fn session(&self) -> Option<&Session> {
        match &self.state {
            ClientState::Ready(session) => Some(session),
            _ => None,
        }
    }

    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.state {
            ClientState::Ready(session) => Some(session),
            _ => None,
        }
    }

    /// For the log: who this is, as far as it said.
    pub(crate) fn label(&self) -> String {
        let address = match &self.peer {
            Peer::Tcp { ip, port } => format!("{ip}:{port}"),
            Peer::Unix { .. } => "unix".to_owned(),
        };
        match &self.admitted {
            Some((database, user)) => format!("{database}/{user}@{address}"),
            None => format!("(nodb)/(nouser)@{address}"),
        }
    }
}
