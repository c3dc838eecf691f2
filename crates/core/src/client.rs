//! A connection that we accepted: who it is, and what its session holds.
//!
//! ```text
//! Login ──> Ready: link None <──> Waiting <──> Linked(server)      (Tunnel for replication)
//!   ├────> Console
//!   └────> CancelRequest                          all of them ──> Closing
//! ```

use std::sync::Arc;

use weir_wire::{FrontendTag, TransactionStatus};

use crate::console::session::Console;
use crate::id::NO_POOL;
use crate::id::{Moved, ServerId};
use crate::inbox::{Body, Inbox};
use crate::label;
use crate::login::Login;
use crate::parameters::startup::Startup;
use crate::parameters::{ParameterSet, ParameterSets};
use crate::peer::{Peer, TlsInfo};
use crate::settings::{PoolMode, Settings};
use crate::sparse::{Blank, Sparse};
use crate::statements::{ClientStatements, Unnamed};
use crate::time::{Duration, Time};
use crate::timers::Deadline;

/// A cancel request.
#[derive(Debug)]
pub(crate) struct Asked {
    /// When it came.
    pub(crate) since: Time,
    /// The session, as it names it.
    pub(crate) process_id: u32,
    pub(crate) key: Box<[u8]>,
    /// The process that it is passed on to, until that has been done.
    pub(crate) peer: Option<u16>,
}

#[derive(Debug)]
pub(crate) enum ClientState {
    /// The driver brings it in; its first input says what it is.
    Reserved,
    Login(Box<Login>),
    Ready(Box<Session>),
    Console(Box<Console>),
    /// It is closed when that is done.
    CancelRequest(Box<Asked>),
    Closing,
    /// It lives on another worker: what is left is a name, until the connection has left.
    Departed,
}

impl ClientState {
    /// The arrows above.
    fn may_become(&self, next: &Self) -> bool {
        match self {
            // In its session it comes from another process.
            Self::Reserved => matches!(next, Self::Login(_) | Self::Ready(_) | Self::Departed | Self::Closing),
            Self::Login(_) => {
                matches!(next, Self::Ready(_) | Self::Console(_) | Self::CancelRequest(_) | Self::Closing)
            }
            Self::Ready(_) | Self::Console(_) | Self::CancelRequest(_) | Self::Closing => {
                matches!(next, Self::Closing)
            }
            Self::Departed => false,
        }
    }
}

/// Which server a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    None,
    Waiting {
        since: Time,
    },
    Linked(ServerId),
    /// Waits for a connection of its own (replication).
    WaitingTunnel {
        since: Time,
    },
    Tunnel(ServerId),
}

impl Link {
    /// Whoever waits may do so in another queue, or as long by another clock.
    fn may_become(self, next: Self) -> bool {
        match self {
            _ if next == Self::None => true,
            Self::None => !matches!(next, Self::Tunnel(_)),
            Self::Waiting { .. } => matches!(next, Self::Waiting { .. } | Self::Linked(_)),
            Self::WaitingTunnel { .. } => matches!(next, Self::Tunnel(_)),
            Self::Linked(_) | Self::Tunnel(_) => false,
        }
    }

    pub(crate) fn server(self) -> Option<ServerId> {
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
    Answered,
    UntilSync,
    /// None: the client's transaction has begun, and what begins it (`Session::begun`) goes ahead of its next request.
    Begun,
}

/// How long a session may do what; zero where there is no limit. The user's own settings come first.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Limits {
    /// For a server; the user's or the database's own.
    wait: Option<Duration>,
    idle: Duration,
    query: Duration,
    idle_in_transaction: Duration,
    transaction: Duration,
}

impl Blank for Limits {
    const BLANK: &'static Self = &Self {
        wait: None,
        idle: Duration::ZERO,
        query: Duration::ZERO,
        idle_in_transaction: Duration::ZERO,
        transaction: Duration::ZERO,
    };
}

impl Limits {
    pub(crate) fn of(settings: &Settings, database: &str, user: &str) -> Sparse<Self> {
        let wait = settings.own_query_wait_timeout(database, user);
        let user = settings.users.get(user);
        let limit = |own: Option<Duration>, all: Duration| own.unwrap_or(all);
        let limits = Self {
            wait,
            idle: limit(user.and_then(|user| user.client_idle_timeout), settings.client_idle_timeout),
            query: limit(user.and_then(|user| user.query_timeout), settings.query_timeout),
            idle_in_transaction: limit(
                user.and_then(|user| user.idle_transaction_timeout),
                settings.idle_transaction_timeout,
            ),
            transaction: limit(user.and_then(|user| user.transaction_timeout), settings.transaction_timeout),
        };
        let Self { wait, idle, query, idle_in_transaction, transaction } = limits;
        // By default nothing that a session may do has a limit.
        let none = [idle, query, idle_in_transaction, transaction].iter().all(|limit| *limit == Duration::ZERO);
        if none && wait.is_none() { Sparse::default() } else { limits.into() }
    }

    /// When a request that waits for a server since then has waited too long.
    pub(crate) fn wait_due(&self, settings: &Settings, since: Time) -> Time {
        after(self.wait.unwrap_or(settings.query_wait_timeout), since).min(self.query_due(since))
    }

    /// When a request that came then has taken too long.
    pub(crate) fn query_due(&self, asked_at: Time) -> Time {
        after(self.query, asked_at)
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
    /// What parsing reads of a set of parameters: of those above, where it is the same set.
    pub(crate) read: Option<(Arc<ParameterSet>, Arc<ParameterSet>)>,
    /// What its startup packet made its defaults, where those are not the server's.
    pub(crate) startup: Option<Box<Startup>>,
    pub(crate) statements: Sparse<ClientStatements>,
    pub(crate) unnamed: Unnamed,
    /// The process id that it was told: the number of its client's `moved`, but among peers.
    pub(crate) told: u32,
    pub(crate) cancel_key: Box<[u8]>,
    pub(crate) discard: Discard,
    /// What begins a transaction that has no server yet.
    #[expect(clippy::box_collection, reason = "it takes a pointer of each session, and few have one")]
    pub(crate) begun: Option<Box<Vec<u8>>>,
    pub(crate) limits: Sparse<Limits>,
    /// The last batch on the server that it had last.
    pub(crate) batch: u64,
    /// Its pool's listener hears channels for it.
    pub(crate) listens: bool,
    /// The defaults that servers told it; as reported those that it has left as they were.
    pub(crate) greeted: Arc<ParameterSet>,
    /// What it was told of whether its server is a standby.
    pub(crate) standby: Option<bool>,
    /// When its last request began to be served.
    pub(crate) request_at: Time,
    /// When the one came that is served, or is to be next.
    pub(crate) asked_at: Time,
    /// It has come and is not served yet: it waits for a server, or for what is done ahead of it.
    pub(crate) asks: bool,
    /// Since when it is idle, in a transaction or not, if it is.
    pub(crate) idle_at: Time,
    /// When its transaction began.
    pub(crate) transaction_at: Time,
}

/// What a client takes for good that has asked nothing, of which there may be a hundred thousand.
const _: () = assert!(size_of::<Session>() <= 192 && size_of::<Client>() <= 216);

impl Session {
    /// The parameters under which the unnamed statement was parsed: the last one that was sent, or the one that is there.
    pub(crate) fn unnamed_under(&self) -> &Arc<ParameterSet> {
        let known = self.unnamed.parameters.as_ref().filter(|_| !self.unnamed.is_awaited());
        known.unwrap_or(&self.parameters)
    }

    /// Whether names of its statements are ours on the server that it is given. In session mode they live on its own server; but whoever
    /// has prepared any elsewhere, before a reload, has them still.
    pub(crate) fn tracks_statements(&self, mode: PoolMode) -> bool {
        mode != PoolMode::Session || self.statements.has_given() || self.unnamed.exists()
    }

    /// When it has taken too long for what it is doing, while it does not wait for a server.
    pub(crate) fn due(&self, doing: Doing) -> Time {
        let limits = &self.limits;
        if limits.is_blank() {
            return Time::NEVER;
        }
        let doing_due = match doing {
            Doing::Query => limits.query_due(self.asked_at),
            Doing::IdleInTransaction => after(limits.idle_in_transaction, self.idle_at),
            Doing::Idle => return after(limits.idle, self.idle_at),
        };
        doing_due.min(limits.transaction_due(self.transaction_at))
    }

    /// It may have begun a transaction that has no server yet.
    pub(crate) fn does_without_server(&self) -> Doing {
        if self.discard == Discard::Begun { Doing::IdleInTransaction } else { Doing::Idle }
    }

    /// It does something else from now on; answers until when it may.
    #[inline]
    pub(crate) fn begins(&mut self, doing: Doing, now: Time) -> Time {
        self.idle_at = now;
        self.due(doing)
    }

    /// A request has come while nothing of the client's was owed. Outside of a transaction its own begins with it.
    #[inline]
    pub(crate) fn request_comes(&mut self, status: TransactionStatus, now: Time) {
        if std::mem::replace(&mut self.asks, true) {
            return;
        }
        self.asked_at = now;
        if status == TransactionStatus::Idle {
            self.transaction_at = now;
        }
    }

    /// It begins to be served.
    #[inline]
    pub(crate) fn request_begins(&mut self, status: TransactionStatus, now: Time) {
        self.request_comes(status, now);
        self.asks = false;
        self.request_at = now;
    }
}

impl Session {
    /// What parsing reads of its parameters; the same pointer for the same values.
    #[inline]
    pub(crate) fn reading(&mut self, sets: &mut ParameterSets) -> &Arc<ParameterSet> {
        read_by_parsing(&self.parameters, &mut self.read, sets)
    }

    /// What it calls its statements, and what parsing reads of its parameters.
    #[inline]
    pub(crate) fn statements_under(&mut self, sets: &mut ParameterSets) -> (&mut ClientStatements, &Arc<ParameterSet>) {
        let Self { parameters, read, statements, .. } = self;
        (statements, read_by_parsing(parameters, read, sets))
    }

    /// Some of its statements were parsed while nobody knew the parameters.
    #[inline]
    pub(crate) fn awaits_parameters(&self) -> bool {
        self.unnamed.awaits_parameters() || self.statements.has_private()
    }

    /// It goes to another worker, and shares nothing with this one any more.
    pub(crate) fn part(&mut self) {
        self.read = None;
        if !self.statements.is_blank() {
            self.statements.part();
        }
        self.unnamed.part();
    }

    /// Whether the texts of requests are read for what they reset.
    #[inline]
    pub(crate) fn reads(&self) -> bool {
        self.startup.as_ref().is_some_and(|startup| startup.reads())
    }
}

#[inline]
fn read_by_parsing<'a>(
    parameters: &Arc<ParameterSet>,
    read: &'a mut Option<(Arc<ParameterSet>, Arc<ParameterSet>)>,
    sets: &mut ParameterSets,
) -> &'a Arc<ParameterSet> {
    read.take_if(|(of, _)| !Arc::ptr_eq(of, parameters));
    &read.get_or_insert_with(|| (Arc::clone(parameters), sets.reading(parameters))).1
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) state: ClientState,
    pub(crate) link: Link,
    /// The number of its place in the queue, if it waits in one.
    pub(crate) place: u64,
    pub(crate) pool: u32,
    pub(crate) inbox: Inbox,
    pub(crate) peer: Peer,
    pub(crate) local: Peer,
    pub(crate) tls: Option<Box<TlsInfo>>,
    /// Database and user it was counted in under.
    pub(crate) admitted: Option<(Arc<str>, Arc<str>)>,
    /// The steward counts this connection among ours.
    pub(crate) counted: bool,
    /// The number of its session, and how often that went from worker to worker.
    pub(crate) moved: Moved,
    /// The last shedding in which it was drawn whether it goes.
    pub(crate) drawn: u32,
    /// Not read.
    pub(crate) held: bool,
    /// While it is: the message that waits asks for something.
    next_asks: bool,
    /// It is read again when the input in hand is dealt with.
    pub(crate) woken: bool,
    /// Sends no more.
    pub(crate) ended: bool,
    /// A limit has passed in the midst of a reply's message: that is told behind it (`Server`), and nothing more of the client's is read.
    pub(crate) overdue: bool,
    /// It was told that it waits, in the wait that is on.
    pub(crate) knows_it_waits: bool,
    /// Does not take what is sent to it: whoever feeds it is not read.
    pub(crate) congested: bool,
    pub(crate) deadline: Deadline,
    pub(crate) connected_at: Time,
    /// For SHOW CLIENTS and KILL_CLIENT: clients are counted as they come, over all workers.
    pub(crate) number: u64,
}

impl Client {
    /// The one way to another state; answers the one before.
    #[inline]
    pub(crate) fn enter(&mut self, next: ClientState) -> ClientState {
        debug_assert!(self.state.may_become(&next), "{:?} becomes {next:?}", self.state);
        std::mem::replace(&mut self.state, next)
    }

    /// The one way to another link; answers the one before.
    #[inline]
    pub(crate) fn bind(&mut self, next: Link) -> Link {
        debug_assert!(self.link.may_become(next), "{:?} becomes {next:?}", self.link);
        std::mem::replace(&mut self.link, next)
    }

    /// Nothing is read from it, and nothing said to it, any more.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, ClientState::Closing | ClientState::Departed)
    }

    /// A message, or its beginning, is taken up when the client is woken.
    pub(crate) fn has_message_waiting(&self) -> bool {
        self.held && self.inbox.has_partial()
    }

    /// What it sends next, if it is held back: this, or what is kept of it.
    pub(crate) fn waits_with(&mut self, rest: &[u8]) {
        let next = self.inbox.partial_tag().or_else(|| rest.first().copied());
        let tag = next.filter(|_| self.inbox.body == Body::None).and_then(FrontendTag::from_byte);
        self.next_asks = tag.is_some_and(FrontendTag::begins_request);
    }

    /// It is held back, and what it sends next asks for something: no data of a copy that has failed.
    pub(crate) fn has_request_waiting(&self) -> bool {
        self.held && self.next_asks
    }

    pub(crate) fn reserved(now: Time) -> Self {
        Self {
            state: ClientState::Reserved,
            link: Link::None,
            place: 0,
            pool: NO_POOL,
            inbox: Inbox::default(),
            peer: Peer::NOWHERE,
            local: Peer::NOWHERE,
            tls: None,
            admitted: None,
            counted: false,
            moved: Moved { process_id: 0, moves: 0 },
            drawn: 0,
            held: false,
            next_asks: false,
            woken: false,
            ended: false,
            overdue: false,
            knows_it_waits: false,
            congested: false,
            deadline: Deadline::default(),
            connected_at: now,
            number: 0,
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
        let named = match (&self.admitted, &self.state) {
            (Some((database, user)), _) => Some((&**database, &**user)),
            (None, ClientState::Login(login)) if login.is_named() => Some((&*login.database, &*login.user)),
            _ => None,
        };
        label::of_client(self.number, named, &self.peer)
    }
}
