//! What workers say to each other.
//!
//! The steward (part of worker 0) keeps what is one for the whole process: who may connect, and how many servers each pool,
//! database and user has. Everything here is rare: a transaction that finds a server on its own worker sends no mail.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::cluster::Known;
use crate::console::report::{Answer, Question};
use crate::contract::event::Command;
use crate::id::{ClientId, Moved, ServerId, WorkerId};
use crate::kept::words::Changed;
use crate::login::strangers::{Asked, Realm};
use crate::names::PoolName;
use crate::passport::Passport;
use crate::peer::{Endpoint, Peer};
use crate::pool::credentials::Credentials;
use crate::pool::endpoints::{Fails, Setback};
use crate::pool::told::{Share, Wait};
use crate::pool::welcome::Welcome;
use crate::server::Server;
use crate::stats::Counters;
use crate::time::Time;
use crate::whereabouts::birthplace;

/// One message between workers; its content is core's own affair, drivers only carry it.
#[derive(Debug)]
pub struct Mail(pub(crate) Letter);

/// A cancel request for a session of another process.
#[derive(Debug)]
pub(crate) struct Stray {
    pub(crate) peer: u16,
    pub(crate) process_id: u32,
    pub(crate) key: Box<[u8]>,
    /// Who is told when it has been passed on.
    pub(crate) reply_to: ClientId,
    /// When it came. `cancel_wait_timeout` later it is of no use: whoever asked is turned away, and its session does something else.
    pub(crate) since: Time,
    /// Whoever asked has gone already.
    pub(crate) left: bool,
}

/// One server connection may be made.
#[derive(Debug)]
pub(crate) struct Permit {
    /// There.
    pub(crate) endpoint: Option<Endpoint>,
    /// Also if nobody waits.
    pub(crate) fill: bool,
    /// The last logins there failed, or none was made there yet, and others depend on how this one ends.
    pub(crate) alone: bool,
    /// It is one of `reserve_pool_size`.
    pub(crate) of_reserve: bool,
}

#[derive(Debug)]
pub(crate) enum Letter {
    // To the steward.
    /// My first client in this pool's queue has waited since then, and I have no server for it.
    Want {
        pool: Arc<PoolName>,
        since: Time,
        /// Whoever waits here cannot go to another worker: logins, and connections for replication.
        bound: bool,
    },
    /// Nobody waits there any more, and some have left.
    WantsNoMore {
        pool: Arc<PoolName>,
    },
    /// I have clients in this pool: does it have its smallest size?
    Fill {
        pool: Arc<PoolName>,
    },
    /// A cluster's catalogue is due to be looked at, and none of this pool's servers is idle here: is there one?
    FillOne {
        pool: Arc<PoolName>,
    },
    /// A server of mine is gone. `tried`: it was the one that was tried there, and nobody has heard how that ended.
    PermitBack {
        pool: Arc<PoolName>,
        tried: Option<Endpoint>,
    },
    /// I make no server of that permit: nobody waits any more.
    Unused {
        pool: Arc<PoolName>,
        endpoint: Option<Endpoint>,
    },
    /// A login to a server of this pool failed there, with this for its clients if waiting is of no use.
    LoginFailed {
        pool: Arc<PoolName>,
        endpoint: Endpoint,
        fails: Fails,
    },
    /// They are logged in with another secret from now on.
    SecretChanged {
        pool: Arc<PoolName>,
    },
    /// And now one succeeded.
    LoginSucceeded {
        pool: Arc<PoolName>,
        endpoint: Endpoint,
    },
    /// None of my servers of this pool, which are so many, will be free for others: all are to be closed.
    NoneLasts {
        pool: Arc<PoolName>,
        servers: u32,
    },
    /// So many servers of this pool stay with their clients here.
    /// `standing`: they did before there was a limit.
    Pinned {
        pool: Arc<PoolName>,
        pinned: u32,
        standing: bool,
    },
    /// I handed a server to that worker.
    Gave {
        pool: Arc<PoolName>,
        to: WorkerId,
    },
    /// I have a server of this pool that is beyond my share: tell me that again, if you know of the server.
    ShareExceeded {
        pool: Arc<PoolName>,
    },
    /// A client asks to come in.
    Admit {
        client: ClientId,
        database: Arc<str>,
        user: Arc<str>,
    },
    /// A connection is gone; with the names it was admitted under, if it was, and how often it moved, if it did.
    Gone {
        admitted: Option<(Arc<str>, Arc<str>)>,
        moved: Option<Moved>,
    },
    /// This client has moved from that worker to me.
    Lives {
        moved: Moved,
        left: WorkerId,
    },
    /// What was counted in the last period of the averages.
    Counted {
        counted: Box<Counters>,
    },
    /// Has the session of this number moved? Then its worker is asked whether the cancel is for it.
    CancelFor {
        process_id: u32,
        key: Box<[u8]>,
        reply_to: ClientId,
    },
    /// A cancel request came in for a session of another process: pass it on.
    PassOn {
        stray: Stray,
    },
    /// Whoever sent that request for this process has gone before it was passed on.
    AskerLeft {
        peer: u16,
        reply_to: ClientId,
    },
    /// The client that was admitted under these names had gone already.
    Withdraw {
        database: Arc<str>,
        user: Arc<str>,
    },
    /// How busy I am, and how much of the time was for which pool.
    Load {
        busy_permille: u16,
        pools: Vec<(Arc<PoolName>, u16)>,
    },
    /// I can take no more connections, or some again.
    Crowded {
        full: bool,
    },
    /// The console asks for something that concerns the whole process.
    Order {
        command: Command,
    },
    /// My share of a shutdown that waits is done.
    Quiet,

    // From the steward.
    /// No more than so many of this pool's servers may stay with their clients there.
    KeepPinned {
        pool: Arc<PoolName>,
        keep: u32,
    },
    Permit {
        pool: Arc<PoolName>,
        permit: Permit,
    },
    /// Logins to this pool's servers fail, or do no more.
    Setback {
        pool: Arc<PoolName>,
        setback: Setback,
    },
    /// You may not, for now. `alone`: no other worker has servers of this pool, so yours are all there are.
    Full {
        pool: Arc<PoolName>,
        alone: bool,
    },
    /// So many servers of this pool you keep, and more than so many are too many.
    Share {
        pool: Arc<PoolName>,
        share: Share,
    },
    /// A client of that worker waits: it gets your next free server, unless yours wait as long. `only_hope`: logins fail, so if
    /// none of yours will be free, I want to know.
    Recall {
        pool: Arc<PoolName>,
        to: WorkerId,
        wait: Wait,
        only_hope: bool,
    },
    /// This pool lives on these workers: a client that you have no server for goes there, and so do your servers,
    /// unless you are one of them.
    Homes {
        pool: Arc<PoolName>,
        homes: Vec<WorkerId>,
    },
    /// You have too much to do, that worker has not: so much of this pool's clients and servers goes there.
    Shed {
        pool: Arc<PoolName>,
        to: WorkerId,
        share_permille: u16,
    },
    /// Where that client lives now is known: you need not send on what comes for it.
    Forget {
        moved: Moved,
    },
    /// The client that had this number of yours is gone: you may give it to another.
    Released {
        process_id: u32,
    },
    /// Close an idle server of this pool: another pool of its database or user needs the place.
    Evict {
        pool: Arc<PoolName>,
    },
    /// To the worker itself: what this server's client changes in code is there, or may be as soon as what was sent is carried out.
    CodeAltered {
        server: ServerId,
    },
    /// A cluster's catalogue tells this of it; the steward is told, too.
    Cluster {
        database: Arc<str>,
        known: Arc<Known>,
    },
    /// What texts of this database call may have changed; by its name on the server.
    CodeChanged {
        database: Box<str>,
        by: Changed,
    },
    /// The answer to Admit: welcome, or the limit that is reached.
    Admitted {
        client: ClientId,
        database: Arc<str>,
        user: Arc<str>,
        refused: Option<(u32, &'static str)>,
    },
    /// Shut down: no new links (servers), or no new clients.
    Shutdown {
        command: Command,
    },

    /// The process before this one had a client that was admitted under these names; it is mine now.
    CameOver {
        database: Arc<str>,
        user: Arc<str>,
    },

    /// To the steward: a client is on its way to the process that takes over.
    OnItsWay,
    /// One of those has been sent, or is here again.
    OffItsWay,
    /// To the steward: the process before this one has ended.
    PredecessorEnded,
    /// To the steward of the process that takes over: I still have so many servers of these pools, and so many clients.
    Abroad {
        servers: Vec<(Arc<PoolName>, u32)>,
        clients: u32,
        /// And no other servers.
        is_all: bool,
    },

    // Between any two.
    /// A client that goes to another process, or has come from one; its connection comes along.
    Guest {
        passport: Box<Passport>,
    },
    /// A client between two transactions, with all that its session holds; its connection comes along.
    Moves {
        pool: Arc<PoolName>,
        client: Box<Client>,
        /// How often its database's clients were killed, as far as its worker knows.
        kills: u32,
    },
    /// A client of yours came to me for this pool, which does not live here any more.
    Astray {
        pool: Arc<PoolName>,
    },
    /// KILL_CLIENT for one that moved to you.
    KillClient {
        number: u64,
    },
    /// To ourselves: the server that listened for these is gone.
    ListenerLost {
        clients: Vec<ClientId>,
    },
    /// A client that was just accepted; its connection comes along.
    Client {
        peer: Peer,
        local: Peer,
        number: u64,
    },
    /// An idle server; its connection comes along.
    Server {
        pool: Arc<PoolName>,
        server: Box<Server>,
        welcome: Option<Arc<Welcome>>,
        /// How often its database's servers were marked to be replaced, as far as its worker knows.
        reconnects: u32,
        /// Which database it is of, by its number, where that was asked.
        database: Option<Box<[u8]>>,
    },
    /// What a client of this pool is greeted with, and what logins to its servers can use.
    Welcome {
        pool: Arc<PoolName>,
        welcome: Arc<Welcome>,
        credentials: Box<Credentials>,
    },
    /// Logins to this pool's servers can use these from now on.
    Credentials {
        pool: Arc<PoolName>,
        credentials: Box<Credentials>,
    },
    /// A cancel request came in at that connection of yours: is it for a client of ours?
    Cancel {
        process_id: u32,
        key: Box<[u8]>,
        reply_to: ClientId,
        /// Where the request came in.
        asker: WorkerId,
    },
    /// It was not, or the cancel has been carried out.
    CancelDone {
        reply_to: ClientId,
        /// No session here has this key.
        unknown: bool,
    },
    /// A user was looked up there and found, the first one of his kind: strangers are asked for the same from now on.
    Met {
        realm: Realm,
        asked: Asked,
    },
    /// Copies of this statement on servers may be older than the tables that they were made for.
    Outdated {
        definition: Arc<[u8]>,
    },
    /// A console's question, and one worker's share of the answer.
    Ask {
        question: Question,
        /// Nobody waits for the answer where a signal asked.
        asker: Option<ClientId>,
    },
    Tell {
        answer: Box<Answer>,
        asker: ClientId,
    },
}

impl Mail {
    /// For another process, as text; `None`: it is for none.
    pub fn written(self) -> Option<String> {
        let written = match self.0 {
            Letter::Guest { passport } => Written::Guest(passport),
            Letter::Abroad { servers, clients, is_all } => Written::Abroad { servers, clients, is_all },
            _ => return None,
        };
        serde_json::to_string(&written).ok()
    }

    /// Of another process, for this worker of one that has so many.
    pub fn read(text: &str, workers: u16) -> Result<(WorkerId, Self), String> {
        Ok(match serde_json::from_str(text).map_err(|error| error.to_string())? {
            // The one that would have given it its number.
            Written::Guest(passport) => (birthplace(passport.process_id, workers), Letter::Guest { passport }.into()),
            Written::Abroad { servers, clients, is_all } => {
                (WorkerId::STEWARD, Letter::Abroad { servers, clients, is_all }.into())
            }
        })
    }

    /// For the steward: a client that was to go to another process has been sent.
    pub fn sent() -> Self {
        Letter::OffItsWay.into()
    }

    /// For the steward: the process that was taken over from has ended.
    pub fn predecessor_ended() -> Self {
        Letter::PredecessorEnded.into()
    }
}

/// What goes from one process to another.
#[derive(Debug, Serialize, Deserialize)]
enum Written {
    Guest(Box<Passport>),
    Abroad { servers: Vec<(Arc<PoolName>, u32)>, clients: u32, is_all: bool },
}

impl From<Letter> for Mail {
    fn from(letter: Letter) -> Self {
        Self(letter)
    }
}
