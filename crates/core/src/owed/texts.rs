//! The texts of prepared statements that go with what is owed: they are kept until it is answered.

use super::{Note, OwedQueue};

/// Bytes of texts of prepared statements that may go with the replies that are owed on one link, before its client is no longer read.
const OWED_TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Note {
    /// Bytes of the text that it keeps.
    pub(super) fn text_bytes(&self) -> usize {
        match self {
            Self::Named { statement, .. } => statement.definition.len(),
            Self::Closed { held: Some(held), .. } => held.statement.definition.len(),
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

    #[cold]
    pub(super) fn is_heavy(&mut self) -> bool {
        self.count_texts();
        self.heavy = self.text_bytes > OWED_TEXT_BYTES_MAX / 2;
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
    fn texts_that_are_owed_are_counted() {
        let statement = crate::statements::tests::cache().intern(&[b'x'; 1 << 20], &Arc::default());
        let mut queue = queue(&[]);
        for _ in 0..=16 {
            assert!(!queue.is_full());
            let note = Note::Named { name: (*b"n").into(), statement: Arc::clone(&statement) };
            queue.push(Owed::client(Request::Parse).note(note));
        }
        assert!(queue.is_full() && queue.awaits());
        let left = std::iter::from_fn(|| queue.pop().filter(|_| !queue.wakes())).count();
        assert_eq!(left, 8, "half of them have to be answered");
    }
}
