//! A connection to PostgreSQL: what it is doing, and the mirror of its session.
//!
//! ```text
//! Making ──> Idle <──> Linked(client) ──> Recovering ──> Idle
//!    │         │             │                │  └──> Held (a cancel is on its way) ──> Idle
//!    │         └─────────────┴── handed to another worker, or Closing
//!    ├──> Tunnel(client): replication, never shared
//!    ├──> Listener, from Linked: listens for many ──> Recovering
//!    └──> Canceller: carries one cancel request, then ends
//! ```

use std::sync::Arc;

use weir_wire::{BackendTag, TransactionStatus};

use crate::client::{Doing, Session};
use crate::failure::Failure;
use crate::id::ClientId;
use crate::inbox::{Body, Inbox};
use crate::kept::Kept;
use crate::kept::exact::Exact;
use crate::label;
use crate::making::{Making, Purpose, Target};
use crate::names::PoolName;
use crate::owed::{Owed, OwedQueue, Request, Touched};
use crate::parameters::ParameterSet;
use crate::peer::{Endpoint, Peer};
use crate::pool::Pool;
use crate::pool::limits::PoolLimits;
use crate::pool::origin::Origin;
use crate::pool::welcome::Welcome;
use crate::settings::Settings;
use crate::statements::Mirror;
use crate::time::{Duration, Time};
use crate::timers::Deadline;

#[derive(Debug)]
pub(crate) enum ServerState {
    /// The driver brings it in; its first input says what it is.
    Reserved,
    Making(Box<Making>),
    Idle,
    Linked(ClientId),
    Tunnel(ClientId),
    /// Listens for clients of its pool (`kept/channels.rs`).
    Listener,
    /// Its client has gone, or a reset query runs: nothing that comes is for anybody.
    Recovering {
        reset_due: Reset,
        /// A ROLLBACK of ours was sent.
        rolled_back: bool,
        cancelled: bool,
    },
    /// Clean, but a cancel request may still be on its way to it.
    Held,
    Canceller {
        target: Target,
    },
    Closing,
}

/// What is run where a server's client has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reset {
    Nothing,
    /// `server_reset_query`
    AsConfigured,
    /// DISCARD ALL, whatever is configured: the client's session state is nobody else's.
    All,
    /// That is done.
    Done,
    /// Nothing would take back what it holds: it is closed.
    Never,
}

impl Reset {
    /// `server_reset_query`, where there is one and it is due.
    pub(crate) fn configured(due: bool, query: &str) -> Self {
        if due && !query.is_empty() { Self::AsConfigured } else { Self::Nothing }
    }
}

impl ServerState {
    /// The arrows above. A server that is handed over, or made, is idle for a moment, whatever comes next.
    fn may_become(&self, next: &Self) -> bool {
        match self {
            _ if matches!(next, Self::Closing) => true,
            Self::Reserved | Self::Tunnel(_) | Self::Canceller { .. } | Self::Closing => false,
            Self::Making(_) => matches!(next, Self::Idle | Self::Canceller { .. }),
            Self::Idle => {
                matches!(next, Self::Idle | Self::Linked(_) | Self::Held | Self::Tunnel(_) | Self::Recovering { .. })
            }
            Self::Linked(_) if matches!(next, Self::Listener) => true,
            Self::Linked(_) | Self::Recovering { .. } => {
                matches!(next, Self::Recovering { .. } | Self::Idle | Self::Held)
            }
            Self::Listener => matches!(next, Self::Recovering { .. }),
            Self::Held => matches!(next, Self::Idle | Self::Held | Self::Recovering { .. }),
        }
    }
}

/// A cancel request for one of a server's requests (`OwedQueue::front_number`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Cancel {
    #[default]
    None,
    /// It leaves when the query of ours in front is done.
    BehindOwn(u64),
    /// It may hit whatever is sent now.
    OnItsWay(u64),
}

impl Cancel {
    /// Which request it is for.
    pub(crate) fn request(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::BehindOwn(request) | Self::OnItsWay(request) => Some(request),
        }
    }
}

/// Why requests wait for what was sent before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    #[default]
    Nothing,
    /// A query of ours sets the client's parameters, asks what it has left in its session or what texts call, or brings what the request needs.
    Parameters,
    /// A request of the client's takes parameters back to its startup values.
    Reset,
    /// A cancel request may come yet: what is sent behind what is owed would be hit, and the session ends there.
    End,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) state: ServerState,
    pub(crate) pool: u32,
    /// The settings that it was made by; none for the carrier of a cancel.
    pub(crate) origin: Option<Origin>,
    pub(crate) inbox: Inbox,
    /// The message of which the inbox has a part began while nobody was linked to it.
    pub(crate) began_before: bool,
    pub(crate) owed: OwedQueue,
    pub(crate) status: TransactionStatus,
    pub(crate) parameters: Arc<ParameterSet>,
    /// As its session began: what RESET goes back to, unless PostgreSQL has read its configuration again since.
    pub(crate) welcome: Option<Arc<Welcome>>,
    /// What it told last of whether it is a standby.
    pub(crate) standby: Option<bool>,
    /// What its login told of its database, if it did.
    pub(crate) database: Option<Box<[u8]>>,
    /// What its parameters were before the trial under way, should it be refused.
    pub(crate) parameters_before: Option<Arc<ParameterSet>>,
    /// Why its client's next request waits until nothing is owed.
    pub(crate) hold: Hold,
    pub(crate) mirror: Mirror,
    /// Of queries of ours that have failed: their statements are there still.
    pub(crate) left_over: Vec<Box<str>>,
    /// Names of statements are ours, for as long as it is linked to the client that it has.
    pub(crate) tracks: bool,
    /// What its session holds of its client's that is not to be anybody else's.
    pub(crate) kept: Kept,
    /// All that its session holds, where PostgreSQL tells that.
    pub(crate) exact: Option<Box<Exact>>,
    pub(crate) key: Option<(u32, Box<[u8]>)>,
    pub(crate) endpoint: Option<Endpoint>,
    /// The one that is tried where logins fail, and how it ended has not been told: the steward gives no other permit for there.
    pub(crate) alone: bool,
    pub(crate) peer: Option<Peer>,
    pub(crate) local: Option<Peer>,
    /// As SHOW SERVERS prints it; empty without TLS.
    pub(crate) tls: Arc<str>,
    pub(crate) made_at: Time,
    /// Since it is nobody's: how long statements are prepared again.
    pub(crate) proofs_until: Time,
    /// When it was last given to a client.
    pub(crate) linked_at: Time,
    /// It was given to a client once.
    pub(crate) used: bool,
    /// All that `nextval` gave in its session is of the client of this number, up to this batch of that client's: where its last batch is
    /// that one, it has had no other server since.
    pub(crate) sequences_of: Option<(u64, u64)>,
    /// Since when it is idle, if it is.
    pub(crate) idle_at: Time,
    /// It was made, or has answered `server_check_query`, and nobody has had it since.
    pub(crate) checked: bool,
    pub(crate) cancel: Cancel,
    /// Facts of its login that a client has changed.
    pub(crate) facts_changed: Vec<Arc<str>>,
    /// Right for nobody new: its settings changed, or it is too old.
    pub(crate) close_needed: bool,
    /// RECONNECT, or a reload, has others in its place.
    pub(crate) outdated: bool,
    /// Its client's session is like no other server's can be made: when its transaction is over, so is the client.
    pub(crate) keeps_client: bool,
    /// Its connection is being closed.
    pub(crate) closing: bool,
    /// It has told of a parameter behind messages of ours: the client may have to hear of it.
    pub(crate) unheard: bool,
    /// What its parameters were before it told of one amid a query of ours in a client's batch.
    pub(crate) told_amid: Option<Arc<ParameterSet>>,
    /// Its client has been told that the session is over.
    pub(crate) told: bool,
    /// What its client is to be told behind the message that has begun.
    pub(crate) overdue: Option<Box<Failure>>,
    /// How a cancel request has ended is not known: it may arrive yet, and hit whatever is carried out then.
    pub(crate) cancel_may_come: bool,
    /// Not read, because its client does not take what came.
    pub(crate) held: bool,
    /// Does not take what is sent to it: its client is not read.
    pub(crate) congested: bool,
    pub(crate) deadline: Deadline,
    /// For SHOW SERVERS.
    pub(crate) number: u64,
}

impl Server {
    /// For the log.
    pub(crate) fn label(&self, pool: Option<&PoolName>) -> String {
        label::of_server(self.number, pool, self.peer.as_ref(), self.endpoint.as_ref())
    }

    pub(crate) fn new(state: ServerState, pool: u32, parameters: Arc<ParameterSet>, now: Time, number: u64) -> Self {
        Self {
            state,
            pool,
            origin: None,
            inbox: Inbox::default(),
            began_before: false,
            owed: OwedQueue::default(),
            status: TransactionStatus::Idle,
            parameters,
            welcome: None,
            standby: None,
            database: None,
            parameters_before: None,
            hold: Hold::Nothing,
            mirror: Mirror::default(),
            left_over: Vec::new(),
            tracks: true,
            kept: Kept::default(),
            exact: None,
            key: None,
            endpoint: None,
            alone: false,
            peer: None,
            local: None,
            tls: "".into(),
            made_at: now,
            proofs_until: now,
            linked_at: now,
            used: false,
            sequences_of: None,
            idle_at: now,
            checked: false,
            cancel: Cancel::None,
            facts_changed: Vec::new(),
            close_needed: false,
            outdated: false,
            keeps_client: false,
            closing: false,
            unheard: false,
            told_amid: None,
            told: false,
            overdue: None,
            cancel_may_come: false,
            held: false,
            congested: false,
            deadline: Deadline::default(),
            number,
        }
    }

    /// The one way to another state; answers the one before.
    #[inline]
    pub(crate) fn enter(&mut self, next: ServerState) -> ServerState {
        debug_assert!(self.state.may_become(&next), "{:?} becomes {next:?}", self.state);
        std::mem::replace(&mut self.state, next)
    }

    pub(crate) fn begins_with(&mut self, welcome: Arc<Welcome>) {
        self.standby = welcome.standby();
        self.welcome = Some(welcome);
    }

    /// What it answers now are messages of ours that are part of no batch of its client's.
    pub(crate) fn works_for_us(&self) -> bool {
        self.hold == Hold::Parameters && self.owed.front().is_some_and(|owed| owed.ours)
    }

    /// Whether the session's parameters are known as of the message that is sent next. [`Touched::InThisBatch`]: nothing that
    /// may be waited for tells.
    #[inline]
    pub(crate) fn parameters(&self) -> Touched {
        match self.owed.reported_parameters() {
            Touched::Answered if self.kept.has_set_unreported() => Touched::InThisBatch,
            touched => touched,
        }
    }

    /// And its client has no transaction open.
    pub(crate) fn works_between_transactions(&self) -> bool {
        self.status == TransactionStatus::Idle && (self.works_for_us() || self.kept.is_looking())
    }

    /// What the cancel request is for that it carries, or is made to carry.
    pub(crate) fn carries(&self) -> Option<Target> {
        match &self.state {
            ServerState::Canceller { target } => Some(*target),
            ServerState::Making(making) => match making.purpose {
                Purpose::Cancel { target, .. } => Some(target),
                Purpose::Pool | Purpose::Tunnel { .. } => None,
            },
            _ => None,
        }
    }

    /// Its client keeps it, between two transactions, though it is to be replaced: `server_fast_close` ends both.
    #[cold]
    pub(crate) fn ends_fast(&self, settings: &Settings) -> bool {
        settings.server_fast_close && self.idles() && !self.owed.is_fresh() && self.client().is_some()
    }

    /// It may be asked something of ours.
    pub(crate) fn idles(&self) -> bool {
        self.owed.settled() && self.status == TransactionStatus::Idle && self.hold == Hold::Nothing
    }

    /// It may hit whatever is sent now.
    pub(crate) fn cancel_is_on_its_way(&self) -> bool {
        matches!(self.cancel, Cancel::OnItsWay(_))
    }

    /// The name of its database on the server: a reload may have led its pool to another one.
    pub(crate) fn database(&self, pool: &Pool) -> Arc<str> {
        let of_origin = self.origin.as_ref().map(|origin| origin.server_database(&pool.name));
        of_origin.unwrap_or_else(|| Arc::clone(pool.server_database()))
    }

    /// Whether it was made after what its pool's servers are made after now.
    pub(crate) fn is_made_as_those_of(&self, pool: &Pool) -> bool {
        self.origin.as_ref().is_some_and(|origin| origin.equals(&pool.origin()))
    }

    /// Whether it is one of that pool's, and of the database that these are of now.
    pub(crate) fn is_of_use_to(&self, pool: u32) -> bool {
        // A tunnel may be one for physical replication, which is connected to no database.
        let is_made = !matches!(self.state, ServerState::Making(_) | ServerState::Tunnel(_) | ServerState::Closing);
        let is_left = self.told || self.close_needed || self.kept.of_another_database;
        self.pool == pool && is_made && !is_left
    }

    /// Its client is held back, and nothing comes that would wake it.
    pub(crate) fn is_stalled(&self) -> bool {
        let comes = self.cancel_is_on_its_way() || self.is_in_message();
        matches!(self.state, ServerState::Linked(_)) && self.owed.is_stalled() && !comes
    }

    /// The client has a part of a message; the queue of what is owed counts it as come.
    #[inline]
    pub(crate) fn is_in_message(&self) -> bool {
        matches!(self.inbox.body, Body::Forward(_))
    }

    /// What it has begun to say is no notice, notification or parameter: it answers something, and whoever comes next has not asked.
    pub(crate) fn has_part_of_a_reply(&self) -> bool {
        let asynchronous = |tag| BackendTag::from_byte(tag).is_some_and(BackendTag::is_asynchronous);
        self.inbox.partial_tag().is_some_and(|tag| !asynchronous(tag))
    }

    /// A simple query of ours was sent.
    pub(crate) fn owe_own_query(&mut self, mark: u64) {
        self.owed.push(Owed::ours(Request::OwnQuery).statement(mark));
        self.mirror.own_query_sent();
    }

    /// What `nextval` gave in its session is all of this client's, and the last that it was given is among that.
    pub(crate) fn has_sequences_of(&self, number: u64, session: &Session) -> bool {
        self.sequences_of == Some((number, session.batch))
    }

    /// When it is too old for anybody. Zero means, as in PgBouncer: used once, then closed.
    pub(crate) fn lifetime_end(&self, lifetime: Duration) -> Time {
        if lifetime == Duration::ZERO && !self.used { Time::NEVER } else { self.made_at + lifetime }
    }

    /// What it does for the client that it is linked to. `asks`: a request of the client's waits for what is done ahead of it.
    pub(crate) fn doing(&self, asks: bool) -> Doing {
        if asks || !(self.owed.settled() || self.works_for_us()) {
            Doing::Query
        } else if self.status != TransactionStatus::Idle {
            Doing::IdleInTransaction
        } else {
            Doing::Idle
        }
    }

    /// It has been idle for so long that it may be gone without a word: it is asked before somebody gets it.
    #[inline]
    pub(crate) fn is_to_check(&self, limits: &PoolLimits, now: Time) -> bool {
        // With a delay of 0 it is asked each time, and the one that is free behind its answer is given to whoever waits.
        self.idle_at + limits.check_after <= now && !(self.checked && self.idle_at == now)
    }

    /// Whether it reports this since its login, as others of the pool do. What is told only later is of a module that was loaded meanwhile, or
    /// of a server behind a pooler that has become another: whose it is nobody tells, and it counts as what is not reported.
    #[inline]
    pub(crate) fn reports_since_login(&self, name: &str) -> bool {
        self.parameters.reports(name) || self.welcome.as_ref().is_none_or(|welcome| welcome.defaults.reports(name))
    }

    /// The encoding of its database.
    pub(crate) fn encoding(&self) -> &[u8] {
        self.welcome.as_ref().map_or(b"", |welcome| welcome.encoding())
    }

    /// A pooler's console.
    #[cold]
    pub(crate) fn is_console(&self) -> bool {
        self.welcome.as_ref().is_some_and(|welcome| welcome.is_console())
    }

    /// Of PostgreSQL; 0 where that is not told.
    pub(crate) fn release(&self) -> u32 {
        self.welcome.as_ref().map_or(0, |welcome| welcome.release())
    }

    /// The client it works for.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self.state {
            ServerState::Linked(client) | ServerState::Tunnel(client) => Some(client),
            _ => None,
        }
    }

    /// PgBouncer's word for the state.
    pub(crate) fn state_word(&self, limits: &PoolLimits, now: Time) -> &'static str {
        match &self.state {
            ServerState::Reserved | ServerState::Making(_) => "new",
            ServerState::Idle if self.is_to_check(limits, now) => "used",
            ServerState::Idle => "idle",
            ServerState::Linked(_) | ServerState::Tunnel(_) | ServerState::Listener => "active",
            ServerState::Recovering { .. } => "tested",
            ServerState::Held => "being_canceled",
            ServerState::Canceller { .. } => "active_cancel",
            ServerState::Closing => "closing",
        }
    }
}
