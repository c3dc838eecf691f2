//! The contract between core and whoever drives it: a driver over sockets, or the simulator.
//!
//! ```text
//! worker.handle(now, input) -> consumed     one input; for Bytes, how many of them were taken
//! worker.poll_output() -> Option<Output>    drain all of them before the next input
//! worker.made(span) -> &[u8]                the bytes of a span that the worker made itself
//! worker.poll_timeout() -> Option<Time>     when to hand in Input::Timeout at the latest
//! ```
//!
//! Rules, which the simulator checks on both sides:
//! - Time never goes back.
//! - The driver asks [`Worker::reserve`](crate::Worker::reserve) for the id of a connection it brings in (Accepted, a Mail with a
//!   connection); core names those that it asks for (Connect). Each id ends with exactly one
//!   `Closed` or `ConnectFailed`, also after `Output::Close`, after a connection was mailed away, and after an abort.
//! - `Bytes` may be taken in part. What was not taken stays with the driver, which hands it in again, followed by what came
//!   since, once `Read { on: true }` is put out. Core never leaves bytes without having put out `Read { on: false }` or
//!   `StartTls` or `Close`. A connection starts with reading on.
//! - After `Read { on: false }` the driver hands in no bytes; it may have received more, and holds at most one receive
//!   buffer of them before it stops reading from the socket.
//! - A `Send` span of `Received` bytes points into the bytes of the input just handled; both kinds of spans are valid until the
//!   next `handle`. Spans to one connection are sent in the order put out.
//! - When more than [`CONGESTED_BYTES`] wait to be sent on a connection, the driver hands in `Congested` once, and
//!   `Writable` once all were sent. Core then stops reading from whoever feeds it.
//! - `Close` means: send what is pending (as long as some of it is taken within [`LINGER`]), then close, then `Closed`.
//! - `Mail` is delivered in order for each pair of workers, and always in the end. Only a client that was here before this input may
//!   be kept back, and then `Stays` is the next input: nobody else heard of its leaving.

pub mod event;
pub(crate) mod names;

use std::net::IpAddr;
use std::sync::Arc;

use crate::id::{ClientId, ConnId, WorkerId};
use crate::outside::{Finding, Inquiry};
use crate::settings::Settings;
use crate::time::Duration;

pub use crate::mail::Mail;
pub use crate::peer::{Endpoint, Peer, TlsInfo, TlsRole};
pub use event::{Command, Event, Level, Reloaded};
pub use names::{Host, Names, Zone};

/// How the reason begins why there is no connection, where the host's name leads nowhere.
pub const UNRESOLVED: &str = "cannot resolve host";
/// Bytes waiting to be sent on one connection above which its source is no longer read.
pub const CONGESTED_BYTES: usize = 64 * 1024;
/// The largest piece of input that a driver hands in at once.
pub const RECEIVE_BYTES_MAX: usize = 64 * 1024;
/// How long a closing connection may take none of its last bytes.
pub const LINGER: Duration = Duration::from_secs(10);

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A client was accepted. Only the steward (worker 0) listens.
    Accepted { conn: ConnId, peer: Peer, local: Peer },
    /// Bytes came (after TLS, where it is on).
    Bytes { conn: ConnId, bytes: &'a [u8] },
    /// The client sends no more, and may still read: all its bytes have been handed in and taken. `Closed` follows as always.
    Ended { conn: ConnId },
    /// The connection with a server has failed, which did not end it: what was sent there may be lost, or still arrive. `Closed`
    /// follows.
    Failed { conn: ConnId },
    /// The connection is gone: closed by the peer, failed, or closed because we said so. The last word about it.
    Closed { conn: ConnId },
    /// A connection asked for with `Connect` stands.
    Connected { conn: ConnId, peer: Peer, local: Peer },
    /// A connection asked for with `Connect` could not be made. The last word about it. See `UNRESOLVED`.
    ConnectFailed { conn: ConnId, reason: String },
    /// More than `CONGESTED_BYTES` wait to be sent.
    Congested { conn: ConnId },
    /// What was congested has been sent.
    Writable { conn: ConnId },
    /// The TLS handshake asked for with `StartTls` is done. One that fails ends in `Closed`, with a server behind `TlsFailed`.
    TlsReady { conn: ConnId, tls: TlsInfo },
    /// TLS with a server failed, in the handshake or later, and why: in words for clients, without names. `Closed` follows.
    TlsFailed { conn: ConnId, reason: String },
    /// The answer to `Derive`.
    Derived { job: u32, salted_password: [u8; 32] },
    /// The answer to `Ask`. The client may be gone.
    Answered { client: ClientId, finding: Finding },
    /// The answer to `TellNames`. The client may be gone.
    NamesTold { asker: ClientId, names: Box<Names> },
    /// A host's name leads to these addresses no more. Handed to every worker.
    HostMoved { host: Arc<str>, gone: Vec<IpAddr> },
    /// New settings, after a reload. Handed to every worker.
    Settings(Arc<Settings>),
    /// A signal's command. Handed to the steward only.
    Command(Command),
    /// Mail from another worker, with the connection that came with it, if one did.
    Mail { from: WorkerId, mail: Mail, conn: Option<ConnId> },
    /// That connection of a client's cannot go to another worker just now: its mail comes back unsent.
    Stays { conn: ConnId, mail: Mail },
    /// How busy this worker's thread was since the last such input, in thousandths.
    Load { busy_permille: u16 },
    /// The driver can take no more connections on this worker (`full`), or some again.
    Crowded { full: bool },
    /// The answer to `Event::Reload`, with who asked.
    ReloadDone { asker: Option<ClientId>, result: Reloaded },
    /// The process ends now: handed to every worker once, whatever `Event::Exit` or a failure led to it. What is put out is sent
    /// for a moment longer, and nothing else is done.
    Stop,
    /// Time has come to what `poll_timeout` gave, or just passed.
    Timeout,
}

/// What to do.
#[derive(Debug)]
pub enum Output {
    /// Send bytes.
    Send { conn: ConnId, span: Span },
    /// Hand in received bytes, or hold them.
    Read { conn: ConnId, on: bool },
    /// Open a connection to a server.
    Connect { conn: ConnId, endpoint: Endpoint },
    /// The bytes from here on, those not yet taken included, are TLS.
    StartTls { conn: ConnId, role: TlsRole },
    /// Send what is pending, then close.
    Close { conn: ConnId },
    /// Compute a SCRAM salted password (PBKDF2) off the workers.
    Derive { job: u32, password: Arc<str>, salt: Vec<u8>, iterations: u32 },
    /// Ask others than PostgreSQL about a client, off the workers.
    Ask { client: ClientId, inquiry: Box<Inquiry> },
    /// The client has gone: what was asked about it, and is not yet, need not be.
    AskNoMore { client: ClientId },
    /// Tell what names are remembered as, for SHOW DNS_HOSTS and DNS_ZONES.
    TellNames { asker: ClientId },
    /// Deliver to another worker; `conn` goes with it, what was received and not taken included.
    Mail { to: WorkerId, mail: Mail, conn: Option<ConnId> },
    /// Something for the program around the workers.
    Event(Event),
}

/// What travels between the threads of two workers: the driver adds the transport.
#[derive(Debug)]
pub struct Parcel<T> {
    pub from: WorkerId,
    pub mail: Mail,
    pub transport: Option<T>,
}

/// Bytes to send: of the input just handled, or made by the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    Received { start: u32, end: u32 },
    Made { start: u32, end: u32 },
}

impl Input<'_> {
    /// The connection that an input is of; a letter's is only brought by it.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Accepted { conn, .. }
            | Self::Bytes { conn, .. }
            | Self::Ended { conn }
            | Self::Failed { conn }
            | Self::Closed { conn }
            | Self::Connected { conn, .. }
            | Self::ConnectFailed { conn, .. }
            | Self::Congested { conn }
            | Self::Writable { conn }
            | Self::TlsReady { conn, .. }
            | Self::TlsFailed { conn, .. }
            | Self::Stays { conn, .. } => Some(*conn),
            Self::Derived { .. }
            | Self::Answered { .. }
            | Self::NamesTold { .. }
            | Self::HostMoved { .. }
            | Self::Settings(_)
            | Self::Command(_)
            | Self::Mail { .. }
            | Self::Load { .. }
            | Self::Crowded { .. }
            | Self::ReloadDone { .. }
            | Self::Stop
            | Self::Timeout => None,
        }
    }
}

impl Output {
    /// The connection an output speaks of.
    pub fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Send { conn, .. }
            | Self::Read { conn, .. }
            | Self::Connect { conn, .. }
            | Self::StartTls { conn, .. }
            | Self::Close { conn } => Some(*conn),
            Self::Mail { conn, .. } => *conn,
            Self::Derive { .. }
            | Self::Ask { .. }
            | Self::AskNoMore { .. }
            | Self::TellNames { .. }
            | Self::Event(_) => None,
        }
    }
}
