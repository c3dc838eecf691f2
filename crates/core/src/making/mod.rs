//! Making a server: what is known of it from connect to the first ReadyForQuery. How it goes on is in `server_login.rs`.
//!
//! ```text
//! Connecting ─> (TlsAnswer ─> TlsHandshake) ─> Authentication ─> Settling ─> (ConnectQuery) ─> done
//! ```
//! A connection that carries a cancel request leaves after the TLS part: it sends its request and waits for the end.

pub(crate) mod login_failure;
pub(crate) mod server_login;

use std::sync::Arc;

use crate::auth::{ClientFinalPending, ClientFirst, ServerVerify};
use crate::id::{ClientId, ServerId, WorkerId};
use crate::kept::exact::Exact;
use crate::parameters::ParameterSet;
use crate::peer::TlsInfo;
use crate::time::Time;

/// What the connection is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    Pool,
    /// A client's own connection, with its startup parameters.
    Tunnel {
        client: ClientId,
        parameters: Vec<(Arc<str>, Arc<str>)>,
    },
    Cancel {
        target: Target,
        process_id: u32,
        key: Box<[u8]>,
    },
}

/// What a cancel request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// What this server does.
    Server(ServerId),
    /// A session of another process. Whoever asked, at that worker, is told when the request has been passed on.
    Peer { peer: u16, asker: WorkerId, reply_to: ClientId, since: Time, left: bool },
}

impl Purpose {
    pub(crate) fn is_tunnel(&self) -> bool {
        matches!(self, Self::Tunnel { .. })
    }
}

#[derive(Debug)]
pub(crate) enum Phase {
    Connecting,
    /// SSLRequest was sent: one byte is the answer.
    TlsAnswer,
    TlsHandshake,
    Authentication(AuthState),
    /// Authenticated: parameters, the cancel key, ReadyForQuery.
    Settling,
    /// A query of the settings, or of ours.
    ConnectQuery {
        asks: Asks,
        told: Told,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// `connect_query`.
    Configured,
    /// Whether PostgreSQL has the module, and which database it is.
    WithDatabase,
    /// Whether it has the module.
    Module,
    /// Which of a cluster's nodes a load balancer has led to.
    Group,
}

/// How a query is answered so far; ReadyForQuery comes behind that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    /// A command has ended well.
    Ended,
    /// Nothing but ReadyForQuery follows.
    Failed,
}

/// Where the authentication stands.
#[derive(Debug)]
pub(crate) enum AuthState {
    /// The server says what it wants.
    Open,
    /// A password or its hash was sent.
    Answered,
    ScramFirst(Box<ClientFirst>),
    /// The salted password is being derived.
    Deriving(Box<ClientFinalPending>),
    ScramFinal(Box<ServerVerify>),
    /// The server has proved itself, and may say that all is well.
    Verified,
}

#[derive(Debug)]
pub(crate) struct Making {
    pub(crate) purpose: Purpose,
    phase: Phase,
    tls: Option<TlsInfo>,
    /// The server was asked for TLS.
    pub(crate) tls_tried: bool,
    pub(crate) facts: Vec<(Arc<str>, Arc<[u8]>)>,
    pub(crate) parameters: ParameterSet,
    /// What the session holds, where PostgreSQL tells that.
    pub(crate) exact: Option<Box<Exact>>,
    /// Which database it is, by its number, where that was asked.
    pub(crate) database: Option<Box<[u8]>>,
    /// The group of its node, where that was asked.
    pub(crate) group: Option<i32>,
    /// So many notices were logged.
    notices: u32,
}

impl Making {
    pub(crate) fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            phase: Phase::Connecting,
            tls: None,
            tls_tried: false,
            facts: Vec::new(),
            parameters: ParameterSet::default(),
            exact: None,
            database: None,
            group: None,
            notices: 0,
        }
    }
}
