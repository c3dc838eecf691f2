//! What a driver supplies: operations on sockets, and what happened to them. Knows nothing of pooling or TLS.
//!
//! The engine calls `wait`, then takes each event with `next`; an event about a connection is a driver's own `Raw`,
//! which `advance` turns into a [`Step`] once the engine has found the connection's socket.

use std::io;
use std::ops::Deref;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use weir_core::ConnId;

/// What one turn of the loop brought.
pub enum Event<R> {
    Connection(ConnId, R),
    Accepted(OwnedFd),
    AcceptFailed(io::Error),
}

/// What became of one connection.
pub enum Step<P> {
    Nothing,
    /// Bytes came. The piece goes back with `give_back`.
    Received(P),
    /// The peer sends no more; it may still read.
    Ended,
    /// The connection failed, or the peer has closed it both ways: nothing more will be received or heard.
    Lost,
    /// The peer is gone, though its bytes may not be read yet because reading is paused.
    HungUp,
    /// Something of what was unsent has been sent.
    Sent,
    /// A connection under way stands, or has failed.
    Connectable,
    /// What `retire` waited for has happened.
    Retired,
}

/// Operations on sockets; one implementation for each driver.
pub trait Sockets: Sized {
    /// What the driver keeps for each connection.
    type Socket;
    /// Received bytes, owned until given back.
    type Piece: Deref<Target = [u8]>;
    type Raw;

    /// How much may be held while reading is off before receiving is paused.
    const HOLD_BYTES_MAX: usize;

    /// Starts to accept on these listeners.
    fn listen(&mut self, listeners: Vec<OwnedFd>) -> io::Result<()>;
    fn listeners(&self) -> &[OwnedFd];
    fn pause_accept(&mut self);
    fn resume_accept(&mut self);
    /// Closes the listeners from this one on.
    fn stop_accept(&mut self, first: usize);

    /// Takes a connection that stands. Nothing is done on it until `begin`.
    fn adopt(&mut self, fd: OwnedFd) -> Self::Socket;
    /// Starts to receive on a connection that was taken.
    fn begin(&mut self, id: ConnId, socket: &mut Self::Socket) -> io::Result<()>;
    /// Whether there is room for a few more connections only, and no more should be brought here.
    fn is_full(&mut self) -> bool;
    /// Takes a connection under way; [`Step::Connectable`] follows.
    fn begin_connect(&mut self, id: ConnId, fd: OwnedFd) -> io::Result<Self::Socket>;
    /// Starts to receive on a connection that was under way and stands now.
    fn connected(&mut self, id: ConnId, socket: &mut Self::Socket) -> io::Result<()>;
    /// The descriptor of a connection under way; one that stands may have none.
    fn fd<'a>(&self, socket: &'a Self::Socket) -> Option<BorrowedFd<'a>>;

    /// Sends what can be sent and keeps the rest. `from`: the piece that some of the slices may point into.
    /// `true` asks for one `flush` at the end of the turn.
    fn send(&mut self, id: ConnId, socket: &mut Self::Socket, slices: &[&[u8]], from: Option<&Self::Piece>) -> bool;
    /// `tell`: [`Step::Sent`] follows if something is still unsent afterwards. Without it, that is so only as far as is known.
    fn flush(&mut self, id: ConnId, socket: &mut Self::Socket, tell: bool);
    /// Finds out what became of all that was flushed.
    fn make_certain(&mut self, id: ConnId, socket: &mut Self::Socket);
    /// How many bytes wait to be sent, as far as is known.
    fn unsent(&self, socket: &Self::Socket) -> usize;
    /// Has that counted anew, where a part of what is under way may have gone.
    fn count_unsent(&mut self, _id: ConnId, _socket: &mut Self::Socket) {}
    /// Whether sending has failed: what is sent from now on is thrown away.
    fn is_broken(&self, socket: &Self::Socket) -> bool;

    /// Stops to receive; a little more may come.
    fn pause_read(&mut self, id: ConnId, socket: &mut Self::Socket);
    fn resume_read(&mut self, id: ConnId, socket: &mut Self::Socket);

    /// [`Step::HungUp`] follows when a peer that sends no more is gone altogether.
    fn watch_end(&mut self, _id: ConnId, _socket: &mut Self::Socket) {}

    /// Ends all that is under way on a socket. `false`: [`Step::Retired`] follows, and bytes may come until then.
    fn retire(&mut self, id: ConnId, socket: &mut Self::Socket) -> bool;
    /// Gives a socket a descriptor, if it has none. `false`: the process has none left just now, and all is as before.
    fn bring_out(&mut self, _socket: &mut Self::Socket) -> bool {
        true
    }
    /// Takes a retired socket apart: the descriptor, and what was not sent. Without a descriptor the connection is closed.
    fn dismantle(&mut self, socket: Self::Socket) -> (Option<OwnedFd>, Vec<u8>);

    /// Sleeps until something happens, or until the time is over. `None`: as long as it takes. Answers whether something
    /// happened.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<bool>;
    fn next(&mut self) -> Option<Event<Self::Raw>>;
    fn advance(&mut self, id: ConnId, socket: &mut Self::Socket, raw: Self::Raw) -> Step<Self::Piece>;
    fn give_back(&mut self, piece: Self::Piece);
}
