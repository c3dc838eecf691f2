//! What a driver drives: core's worker, or a stand-in for it in tests. Knows nothing of sockets.

use weir_core::contract::{Input, Output, Span};
use weir_core::{ConnId, Party, Side, Time, Worker};

/// The calls of [`weir_core::contract`].
pub trait Machine {
    fn reserve(&mut self, side: Side) -> ConnId;
    fn handle(&mut self, now: Time, input: Input<'_>) -> usize;
    fn poll_output(&mut self) -> Option<Output>;
    fn made(&self, span: Span) -> &[u8];
    fn poll_timeout(&self) -> Option<Time>;
    /// Whether a client's login is not over yet.
    fn is_logging_in(&self, _conn: ConnId) -> bool {
        false
    }
}

impl Machine for Worker {
    fn reserve(&mut self, side: Side) -> ConnId {
        Worker::reserve(self, side)
    }

    fn handle(&mut self, now: Time, input: Input<'_>) -> usize {
        Worker::handle(self, now, input)
    }

    fn poll_output(&mut self) -> Option<Output> {
        Worker::poll_output(self)
    }

    fn made(&self, span: Span) -> &[u8] {
        Worker::made(self, span)
    }

    fn poll_timeout(&self) -> Option<Time> {
        Worker::poll_timeout(self)
    }

    fn is_logging_in(&self, conn: ConnId) -> bool {
        matches!(conn.party(), Party::Client(client) if Worker::is_logging_in(self, client))
    }
}
