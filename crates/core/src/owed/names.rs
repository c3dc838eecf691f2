//! What is owed says of statements and of a client's names for them.

use super::{Note, OWED_MAX, Owed, OwedQueue, Request, UNKNOWN_PORTAL, UNNAMED, WALKED_MAX};
use crate::statements::{ClientStatements, Held};

impl OwedQueue {
    /// A command was sent that closes statements by SQL.
    pub(crate) fn deallocates(&mut self) {
        self.deallocating = true;
        self.deallocates_at = self.pushed;
    }

    /// Of so many requests, whether that is as many as may be owed.
    #[cold]
    pub(super) fn is_long(&self, len: usize) -> bool {
        let deallocates = self.deallocating && self.front_place() <= self.deallocates_at;
        deallocates || len >= OWED_MAX || (self.full && len > OWED_MAX / 2)
    }

    /// A batch ahead of the one being sent is not answered.
    #[inline]
    pub(crate) fn awaits_earlier(&self) -> bool {
        self.answered() + 1 != self.batch()
    }

    /// Whether one may still close what the client names.
    #[inline]
    pub(crate) fn is_deallocating(&mut self) -> bool {
        self.deallocating &= !self.queue.is_empty();
        self.deallocating
    }

    /// The request in front has closed all statements on the server. Answers those that are prepared behind it.
    pub(crate) fn statements_gone(&mut self) -> Vec<u64> {
        let mut prepared = Vec::new();
        for owed in self.queue.iter_mut().skip(1) {
            if owed.request == Request::Parse && owed.named_statement() != 0 {
                prepared.push(owed.named_statement());
            }
            if let Some(Note::Evicted(evicted)) = owed.note.as_deref()
                && !prepared.contains(&evicted.statement().id)
            {
                // It is gone, also where its Close is never carried out.
                owed.note = None;
            }
        }
        prepared
    }

    /// What the client called by the name with this number, which it gives up behind the request in front.
    pub(crate) fn closed(&self, number: u64) -> Option<(&[u8], &Held)> {
        self.queue.iter().find_map(|owed| match owed.note.as_deref() {
            Some(Note::Closed { name, held: Some(held) }) if held.number == number => Some((&**name, held)),
            _ => None,
        })
    }

    /// Whether the statement of this name is described by what is owed, or a portal that is of it or may be. So much may be owed that it is better
    /// to wait than to look through it for each message.
    pub(crate) fn describes(&self, number: u64) -> bool {
        self.queue.len() >= WALKED_MAX
            || self.clients_describes().any(|owed| match owed.statement {
                UNKNOWN_PORTAL => owed.name >= number,
                _ => owed.name == number && owed.named_statement() != 0,
            })
    }

    /// The same of the unnamed one with this id.
    pub(crate) fn describes_unnamed(&self, id: u64) -> bool {
        self.clients_describes().any(|owed| match owed.statement {
            UNKNOWN_PORTAL => true,
            statement => statement == UNNAMED && owed.name == id,
        })
    }

    fn clients_describes(&self) -> impl Iterator<Item = &Owed> {
        let asks = |owed: &&Owed| matches!(owed.request, Request::DescribeStatement | Request::DescribePortal);
        self.queue.iter().filter(|owed| !owed.ours).filter(asks)
    }

    pub(crate) fn numbers_closed(&self) -> impl Iterator<Item = u64> {
        self.queue.iter().filter_map(|owed| match owed.note.as_deref() {
            Some(Note::Closed { held: Some(held), .. }) => Some(held.number),
            _ => None,
        })
    }

    /// The same for the name that stood for this statement.
    pub(crate) fn closes(&mut self, statement: u64) -> Option<&mut Held> {
        self.queue.iter_mut().find_map(|owed| match owed.note.as_deref_mut() {
            Some(Note::Closed { held: Some(held), .. }) if held.statement.id == statement => Some(held),
            _ => None,
        })
    }

    /// The request in front took all of the client's names: those that it gave since are there. None was closed since: a Close waits.
    pub(crate) fn name_again(&mut self, statements: &mut ClientStatements) {
        let mut kept = Vec::new();
        for owed in self.queue.iter().skip(1) {
            if let Some(Note::Named { name, .. }) = owed.note.as_deref() {
                kept.extend(statements.take(name).map(|held| (name.clone(), held)));
            }
        }
        statements.clear();
        for (name, held) in kept {
            statements.hold(&name, held);
        }
    }
}
