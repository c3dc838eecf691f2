//! Online restart (`-R`): a new process takes the place of one that runs, and no client notices.
//!
//! ```text
//! new                                       old
//! connects to <Unix socket>.takeover ─────> looks who it is: its own user, or root
//! Hello ──────────────────────────────────>
//!               <────────────────────────── Sockets: those it listens on, and where it hears cancel requests
//! starts, and listens
//! Listens ────────────────────────────────> lets go of its listeners and its pidfile; serves on whom it has
//!               <────────────────────────── Left
//! takes the pidfile, and is the one to be taken over from next
//!               <────────────────────────── Mail: each client that is between two transactions, with its connection;
//!                                           what it still has of servers
//! Taken, for each client, before it is served ─>
//! ```
//!
//! Up to `Listens` nothing has changed for the old one: where the new one fails, it goes on as before. Knows nothing of pools.

mod channel;
mod new;
mod old;
mod relay;

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use new::Predecessor;
pub use old::{Offer, Takeovers};

/// Two that do not speak the same one do not take over from each other.
const PROTOCOL: u32 = 1;

/// What the two processes say to each other.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// New: which protocol it speaks.
    Hello { protocol: u32, version: String, pid: u32 },
    /// Old: why not.
    Refused { reason: String },
    /// Old: what it listens on, in the order of the descriptors that come along.
    Sockets(Sockets),
    /// New: it takes clients in from now on.
    Listens,
    /// Old: whoever comes from now on comes to the new one, and the pidfile is free.
    Left,
    /// Old: for the new one's workers.
    Mail(Mail),
    /// New: that client is here. One that is not answered for comes back to the old one.
    Taken,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Mail {
    /// In core's own words.
    text: String,
    /// Of a client, whose connection comes along. Received of it, and not dealt with.
    held: Vec<u8>,
    /// To be sent to it.
    unsent: Vec<u8>,
    /// It sends no more.
    ended: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Sockets {
    version: String,
    pid: u32,
    listeners: Vec<Place>,
    /// The abstract socket where it hears cancel requests for sessions that are still its own.
    cancels: String,
    /// What tells its sessions' numbers from their keys (`[peers]`).
    process_secret: [u8; 32],
}

/// Where somebody listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    Tcp(SocketAddr),
    /// The path of a Unix socket, or `@name`.
    Unix(PathBuf),
    Metrics(SocketAddr),
}

/// The socket at which a process that listens on this one is taken over from.
fn path_beside(unix_socket: &str) -> PathBuf {
    PathBuf::from(format!("{unix_socket}.takeover"))
}
