//! Texts that go with what is owed: those of prepared statements are kept until it is answered, and those of queries of ours were
//! written for it.

use super::{Note, OwedQueue};

/// Bytes of texts of prepared statements that may go with the replies that are owed on one link, before its client is no longer read.
const OWED_TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of texts of ours that may be on their way to one server, before its client is no longer read: a short message of the client's
/// may need many times its length.
const OWN_BYTES_MAX: usize = 256 * 1024;

/// Texts of ours that were sent, and are answered up to this place.
#[derive(Debug, Default)]
pub(super) struct Own {
    bytes: usize,
    until: u64,
}

impl Note {
    /// Bytes of the texts that it keeps, names among them.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Named { name, statement } => name.len() + statement.definition.len(),
            Self::Closed { name, held } => name.len() + held.as_ref().map_or(0, |held| held.statement.definition.len()),
            Self::Fails(report) => report.message.len(),
            _ => 0,
        }
    }
}

impl OwedQueue {
    #[cold]
    pub(super) fn owes_text(&mut self, bytes: usize) {
        self.text_bytes += bytes;
        if self.text_bytes > OWED_TEXT_BYTES_MAX {
            self.count_texts();
            self.heavy |= self.text_bytes > OWED_TEXT_BYTES_MAX;
        }
    }

    fn count_texts(&mut self) {
        self.text_bytes = self.queue.iter().filter_map(|owed| owed.note.as_deref()).map(Note::text_bytes).sum();
    }

    /// A text of ours was sent, in the place that was taken last.
    pub(crate) fn sends_own(&mut self, bytes: usize) {
        let sent = if self.has_own() { self.own.bytes } else { 0 };
        self.own = Own { bytes: sent + bytes, until: self.next_place() };
        self.heavy |= self.is_full_of_own();
    }

    fn has_own(&self) -> bool {
        self.front_place() < self.own.until
    }

    fn is_full_of_own(&self) -> bool {
        self.own.bytes > OWN_BYTES_MAX && self.has_own()
    }

    #[cold]
    pub(super) fn is_heavy(&mut self) -> bool {
        self.count_texts();
        self.heavy = self.text_bytes > OWED_TEXT_BYTES_MAX / 2 || self.is_full_of_own();
        self.heavy
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::tests::queue;
    use super::super::{Owed, Request};
    use super::*;

    #[test]
    fn texts_of_ours_are_counted_until_they_are_answered() {
        let mut queue = queue(&[Request::Bind]);
        for _ in 0..=4 {
            assert!(!queue.is_full());
            queue.push(Owed::ours(Request::Execute));
            queue.sends_own(OWN_BYTES_MAX / 4);
        }
        assert!(queue.is_full() && queue.awaits());
        let answered = std::iter::from_fn(|| queue.pop().filter(|_| !queue.wakes())).count();
        assert_eq!((answered, queue.is_full()), (5, false));
        queue.push(Owed::ours(Request::Execute));
        queue.sends_own(OWN_BYTES_MAX);
        assert!(!queue.is_full(), "what is answered counts no more");
    }

    #[test]
    fn texts_that_are_owed_are_counted() {
        let statement = crate::statements::tests::cache().intern(&[b'x'; 1 << 20], &Arc::default());
        let mut queue = queue(&[]);
        for _ in 0..=16 {
            assert!(!queue.is_full());
            let note = Note::Named { name: [].into(), statement: Arc::clone(&statement) };
            queue.push(Owed::client(Request::Parse).note(note));
        }
        assert!(queue.is_full() && queue.awaits());
        let left = std::iter::from_fn(|| queue.pop().filter(|_| !queue.wakes())).count();
        assert_eq!(left, 8, "half of them have to be answered");
    }
}
