//! When a ReadyForQuery is owed, and when one may come.

use super::{Copy, OwedQueue, Request};

impl OwedQueue {
    /// Whether the request in front is one that a ReadyForQuery ends.
    #[inline]
    pub(crate) fn front_awaits_ready(&self) -> bool {
        self.front().is_some_and(|owed| owed.request.ends_with_ready())
    }

    /// CommandComplete, EmptyQueryResponse, FunctionCallResponse or an error: the request in front has one at least, however little
    /// it is (`exec_simple_query`, `HandleFunctionRequest`).
    #[inline]
    pub(crate) fn told(&mut self) {
        self.told = true;
    }

    /// Whether a ReadyForQuery may come now. One too many would answer the next client's request.
    #[inline]
    pub(crate) fn may_be_ready(&self) -> bool {
        let told = self.told || self.front().is_some_and(|owed| owed.request == Request::Sync);
        // PostgreSQL has ended each copy before that, with a CommandComplete or an error.
        told && self.copy == Copy::None
    }

    /// Whether a ReadyForQuery is owed.
    #[inline]
    pub(crate) fn awaits_ready(&self) -> bool {
        self.queue.iter().any(|owed| owed.request.ends_with_ready())
    }

    /// The rest of a long message has come.
    #[inline]
    pub(crate) fn message_is_whole(&mut self) {
        self.moved = true;
    }
}
