//! The replies that a server owes, in order.
//!
//! PostgreSQL answers in the order asked; what is asked goes in at the back, each reply takes from the front. Messages
//! that we put between the client's are in the same queue, marked ours, so their replies are kept from the client.
//! Knows nothing of connections: what a reply means for client and server is the caller's business.

use std::collections::VecDeque;
use std::sync::Arc;

use weir_wire::report::Report;

use crate::statements::{ClientStatements, Evicted, Statement};

/// Replies that may be owed on one link before its client is no longer read.
const OWED_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Query,
    /// A simple query of ours: parameters, ROLLBACK, a reset.
    OwnQuery,
    FunctionCall,
    Sync,
    Parse,
    Bind,
    DescribeStatement,
    DescribePortal,
    Execute,
    Close,
    /// CopyDone or CopyFail: has no reply, and marks where PostgreSQL reads messages again.
    CopyEnd,
    /// Nothing was sent: the reply is ours to make when its turn comes.
    Made,
    /// Has no reply either: a query of ours behind it asks whether Syncs of a failed copy are still answered.
    Doubt,
}

impl Request {
    /// Ends with a ReadyForQuery of its own.
    fn ends_with_ready(self) -> bool {
        matches!(self, Self::Query | Self::OwnQuery | Self::FunctionCall | Self::Sync)
    }
}

/// What must be done or undone when the reply comes, or when an error takes its place.
#[derive(Debug)]
pub(crate) enum Note {
    /// The client named a statement; undone if the message is never carried out. Under `Made`: ParseComplete.
    Named { name: Box<[u8]>, statement: Arc<Statement> },
    /// The client closed a statement. Under `Made`: CloseComplete.
    Closed { name: Box<[u8]>, statement: Option<Arc<Statement>> },
    /// We close a statement on the server.
    Evicted(Evicted),
    /// This request was sent to fail: the error the client gets is this one.
    Fails(Box<Report>),
}

#[derive(Debug)]
pub(crate) struct Owed {
    pub(crate) request: Request,
    /// Asked by us: the client does not see the reply.
    pub(crate) ours: bool,
    /// The statement it uses, 0 for none.
    pub(crate) statement: u64,
    pub(crate) note: Option<Box<Note>>,
}

impl Owed {
    pub(crate) fn client(request: Request) -> Self {
        Self { request, ours: false, statement: 0, note: None }
    }

    pub(crate) fn ours(request: Request) -> Self {
        Self { request, ours: true, statement: 0, note: None }
    }

    pub(crate) fn statement(mut self, id: u64) -> Self {
        self.statement = id;
        self
    }

    pub(crate) fn note(mut self, note: Note) -> Self {
        self.note = Some(Box::new(note));
        self
    }
}

#[derive(Debug, Default)]
pub(crate) struct OwedQueue {
    queue: VecDeque<Owed>,
    /// After an error outside of a simple query PostgreSQL reads on to the next Sync; that one was not sent yet.
    skipping: bool,
    /// Messages of the extended protocol were sent after the last Sync.
    unsynced: bool,
    /// PostgreSQL waits for the client's copy data.
    copy_in: bool,
    /// A copy has begun, and neither its end nor an error has come.
    copying: bool,
    /// Syncs sent ahead of a copy's end. PostgreSQL ignores those that it reads in the copy (`CopyGetData`,
    /// src/backend/commands/copyfromparse.c), and answers those that it reads after the copy has failed.
    doubtful: u32,
    /// As many replies are owed as may be.
    full: bool,
}

impl OwedQueue {
    #[inline]
    pub(crate) fn push(&mut self, owed: Owed) {
        match owed.request {
            // During copy-in Sync and Flush are ignored ("protocol-flow-copy").
            Request::Sync if self.copy_in => {
                self.doubtful = self.doubtful.saturating_add(1);
                return;
            }
            Request::Sync => {
                self.unsynced = false;
                self.skipping = false;
            }
            Request::CopyEnd => {
                self.copy_in = false;
                if self.queue.is_empty() {
                    return;
                }
            }
            // These end in a ReadyForQuery of their own: what was parsed before them needs no Sync any more.
            Request::Query | Request::OwnQuery | Request::FunctionCall => self.unsynced = false,
            _ => self.unsynced = true,
        }
        self.queue.push_back(owed);
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<&Owed> {
        self.queue.front()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Owed> {
        let owed = self.queue.pop_front();
        while self.queue.front().is_some_and(|owed| owed.request == Request::CopyEnd) {
            self.queue.pop_front();
        }
        owed
    }

    /// An error in reply to a message of the extended protocol: all up to the next Sync is not carried out. Answers
    /// what fell away, the failed one first.
    pub(crate) fn fail(&mut self) -> Vec<Owed> {
        (self.copy_in, self.copying) = (false, false);
        let sync = self.queue.iter().position(|owed| owed.request == Request::Sync);
        self.skipping = sync.is_none();
        self.queue.drain(..sync.unwrap_or(self.queue.len())).collect()
    }

    /// CopyInResponse: PostgreSQL ignores the Syncs that were sent ahead of the copy's end.
    pub(crate) fn begin_copy_in(&mut self) {
        let end = self.queue.iter().position(|owed| owed.request == Request::CopyEnd);
        (self.copying, self.copy_in) = (true, end.is_none());
        let end = end.unwrap_or(self.queue.len());
        let (mut at, before) = (0, self.queue.len());
        self.queue.retain(|owed| {
            at += 1;
            at > end || owed.request != Request::Sync
        });
        self.doubtful = self.doubtful.saturating_add((before - self.queue.len()) as u32);
        if !self.queue.iter().any(|owed| owed.request.ends_with_ready()) {
            // The Sync that was ignored does not end the batch.
            self.unsynced = true;
        }
    }

    /// A command of the request in front is complete: if it was a copy, PostgreSQL has read all that was sent before
    /// its end.
    pub(crate) fn command_completed(&mut self) {
        if self.copying {
            self.doubtful = 0;
            self.end_copy_in();
        }
    }

    /// A copy in the request in front has ended. It is not known yet whether PostgreSQL read the doubtful Syncs in it.
    pub(crate) fn end_copy_in(&mut self) {
        let copying = std::mem::replace(&mut self.copying, false);
        self.copy_in = false;
        if copying && self.queue.get(1).is_some_and(|owed| owed.request == Request::CopyEnd) {
            self.queue.remove(1);
        }
    }

    /// A ReadyForQuery came while nothing was owed: is it for a Sync sent ahead of the end of a copy that failed? Then that
    /// one is owed after all.
    pub(crate) fn doubtful_sync_answered(&mut self) {
        if self.queue.is_empty() && !self.copying && self.doubtful > 0 {
            self.doubtful -= 1;
            self.unsynced &= !self.skipping;
            self.skipping = false;
            self.queue.push_back(Owed::client(Request::Sync));
        }
    }

    /// Whether Syncs may be answered that nobody counts on. From now on they are in front of a query of ours that the
    /// caller sends.
    pub(crate) fn take_doubt(&mut self) -> bool {
        let doubt = std::mem::take(&mut self.doubtful) > 0;
        if doubt {
            self.queue.push_back(Owed::client(Request::Doubt));
        }
        doubt
    }

    /// Whether the request in front is one that a ReadyForQuery ends.
    pub(crate) fn front_awaits_ready(&self) -> bool {
        self.front().is_some_and(|owed| owed.request.ends_with_ready())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether no more may be owed. The client is not read then, until there is room again.
    #[inline]
    pub(crate) fn is_full(&mut self) -> bool {
        let len = self.queue.len();
        self.full = len >= OWED_MAX || (self.full && len > OWED_MAX / 2);
        self.full
    }

    #[inline]
    pub(crate) fn was_full(&self) -> bool {
        self.full
    }

    /// Whether it was full and is half empty now; true once.
    pub(crate) fn has_room_again(&mut self) -> bool {
        let room = self.full && self.queue.len() <= OWED_MAX / 2;
        self.full &= !room;
        room
    }

    pub(crate) fn skipping(&self) -> bool {
        self.skipping
    }

    pub(crate) fn unsynced(&self) -> bool {
        self.unsynced
    }

    pub(crate) fn copy_in(&self) -> bool {
        self.copy_in
    }

    /// The statements that are prepared behind the request in front.
    pub(crate) fn prepared_behind(&self) -> Vec<u64> {
        let parses = self.queue.iter().skip(1).filter(|owed| owed.request == Request::Parse && owed.statement != 0);
        parses.map(|owed| owed.statement).collect()
    }

    /// The request in front took all of the client's names: those that it gave since are there.
    pub(crate) fn name_again(&self, statements: &mut ClientStatements) {
        for owed in self.queue.iter().skip(1) {
            match owed.note.as_deref() {
                Some(Note::Named { name, statement }) => statements.insert(name, Arc::clone(statement)),
                Some(Note::Closed { name, .. }) => drop(statements.remove(name)),
                _ => {}
            }
        }
    }

    /// Nothing is owed, and PostgreSQL waits for nothing but the next request.
    #[inline]
    pub(crate) fn settled(&self) -> bool {
        self.queue.is_empty() && !self.unsynced && !self.skipping && !self.copy_in
    }

    /// The client is gone: nothing that is still owed is for anybody, and nothing of its is to be undone.
    pub(crate) fn disown(&mut self) {
        self.queue.retain(|owed| owed.request != Request::Made);
        for owed in &mut self.queue {
            if owed.note.as_deref().is_some_and(|note| !matches!(note, Note::Evicted(_))) {
                owed.note = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(requests: &[Request]) -> OwedQueue {
        let mut queue = OwedQueue::default();
        for &request in requests {
            queue.push(Owed::client(request));
        }
        queue
    }

    fn requests(queue: &OwedQueue) -> Vec<Request> {
        queue.queue.iter().map(|owed| owed.request).collect()
    }

    #[test]
    fn an_error_takes_the_place_of_all_up_to_the_sync() {
        let mut queue = queue(&[Request::Parse, Request::Bind, Request::Execute, Request::Sync, Request::Query]);
        assert_eq!(queue.fail().len(), 3);
        assert_eq!(requests(&queue), [Request::Sync, Request::Query]);
        assert!(!queue.skipping());
    }

    #[test]
    fn room_is_told_of_also_where_one_reply_takes_two_away() {
        let mut queue = queue(&[Request::Close]);
        while !queue.is_full() {
            queue.push(Owed::client(Request::Close));
            queue.push(Owed::client(Request::CopyEnd));
        }
        let mut told = 0;
        while queue.pop().is_some() {
            told += usize::from(queue.has_room_again());
        }
        assert_eq!((told, queue.was_full()), (1, false));
    }

    #[test]
    fn an_error_without_a_sync_skips_until_one_is_sent() {
        let mut queue = queue(&[Request::Parse, Request::Bind]);
        queue.fail();
        assert!(queue.skipping() && queue.is_empty() && !queue.settled());
        queue.push(Owed::client(Request::Sync));
        assert!(!queue.skipping());
        queue.pop();
        assert!(queue.settled());
    }

    #[test]
    fn a_sync_sent_ahead_of_copy_data_is_ignored() {
        let mut queue = queue(&[Request::Execute, Request::Sync]);
        queue.begin_copy_in();
        assert_eq!(requests(&queue), [Request::Execute]);
        queue.push(Owed::client(Request::Sync));
        queue.push(Owed::client(Request::CopyEnd));
        queue.push(Owed::client(Request::Sync));
        queue.pop();
        assert_eq!(requests(&queue), [Request::Sync]);
    }

    #[test]
    fn a_sync_after_the_copys_end_counts_also_when_all_was_sent_ahead() {
        let mut queue = queue(&[Request::Execute, Request::Sync, Request::CopyEnd, Request::Sync]);
        queue.begin_copy_in();
        assert_eq!(requests(&queue), [Request::Execute, Request::CopyEnd, Request::Sync]);
        assert!(!queue.copy_in());
    }

    #[test]
    fn a_stray_copy_end_is_owed_nothing() {
        let mut queue = OwedQueue::default();
        queue.push(Owed::client(Request::CopyEnd));
        assert!(queue.settled());
    }

    #[test]
    fn nothing_is_settled_before_the_sync() {
        let mut queue = queue(&[Request::Parse]);
        queue.pop();
        assert!(queue.is_empty() && !queue.settled());
    }
}
