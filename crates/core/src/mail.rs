//! What workers say to each other.
//!
//! The steward (part of worker 0) keeps what is one for the whole process: who may connect, and how many servers each pool,
//! database and user has. Everything here is rare: a transaction that finds a server on its own worker sends no mail.

use std::sync::Arc;

use crate::auth::ScramKeys;
use crate::console::{Answer, Question};
use crate::contract::{Command, Peer};
use crate::id::{ConnId, WorkerId};
use crate::pool::{PoolName, Welcome};
use crate::server::Server;
use crate::time::Time;

/// One message between workers; its content is core's own affair, drivers only carry it.
#[derive(Debug)]
pub struct Mail(pub(crate) Letter);

#[derive(Debug)]
pub(crate) enum Letter {
    // To the steward.
    /// My first client in this pool's queue has waited since then, and I have no server for it.
    Want {
        pool: Arc<PoolName>,
        since: Time,
    },
    /// I have clients in this pool: does it have its smallest size?
    Fill {
        pool: Arc<PoolName>,
    },
    /// A server of mine is gone, or was never made.
    PermitBack {
        pool: Arc<PoolName>,
    },
    /// I handed a server to that worker.
    Gave {
        pool: Arc<PoolName>,
        to: WorkerId,
    },
    /// A client asks to come in.
    Admit {
        conn: ConnId,
        database: Arc<str>,
        user: Arc<str>,
    },
    /// A connection is gone; with the names it was admitted under, if it was.
    Gone {
        admitted: Option<(Arc<str>, Arc<str>)>,
    },
    /// The client that was admitted under these names had gone already.
    Withdraw {
        database: Arc<str>,
        user: Arc<str>,
    },
    /// How busy I am.
    Load {
        busy_permille: u16,
    },
    /// The console asks for something that concerns the whole process.
    Order {
        command: Command,
    },
    /// My share of a shutdown that waits is done.
    Quiet,

    // From the steward.
    /// You may make one server connection. `fill`: also if nobody waits.
    Permit {
        pool: Arc<PoolName>,
        fill: bool,
    },
    /// You may not, for now. `alone`: no other worker has servers of this pool, so yours are all there are.
    Full {
        pool: Arc<PoolName>,
        alone: bool,
    },
    /// A client of that worker has waited since then: it gets your next free server, unless one of yours waited longer.
    Recall {
        pool: Arc<PoolName>,
        to: WorkerId,
        since: Time,
    },
    /// Close an idle server of this pool: another pool of its database or user needs the place.
    Evict {
        pool: Arc<PoolName>,
    },
    /// The answer to Admit: welcome, or the limit that is reached.
    Admitted {
        conn: ConnId,
        database: Arc<str>,
        user: Arc<str>,
        refused: Option<(u32, &'static str)>,
    },
    /// Shut down: no new links (servers), or no new clients.
    Shutdown {
        command: Command,
    },

    // Between any two.
    /// A client that was just accepted; its connection comes along.
    Client {
        peer: Peer,
        local: Peer,
    },
    /// An idle server; its connection comes along.
    Server {
        pool: Arc<PoolName>,
        server: Box<Server>,
        welcome: Option<Arc<Welcome>>,
    },
    /// What a client of this pool is greeted with, and what logins to its servers can use.
    Welcome {
        pool: Arc<PoolName>,
        welcome: Arc<Welcome>,
        keys: Option<ScramKeys>,
    },
    /// A cancel request came in at that connection of yours: is it for a client of ours?
    Cancel {
        process_id: u32,
        key: Box<[u8]>,
        reply_to: ConnId,
    },
    /// It was, and the cancel has been carried out.
    CancelDone {
        reply_to: ConnId,
    },
    /// The result type of this statement changed.
    Outdated {
        definition: Arc<[u8]>,
    },
    /// A console's question, and one worker's share of the answer.
    Ask {
        question: Question,
        asker: ConnId,
    },
    Tell {
        answer: Box<Answer>,
        asker: ConnId,
    },
}

impl From<Letter> for Mail {
    fn from(letter: Letter) -> Self {
        Self(letter)
    }
}
