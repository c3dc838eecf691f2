//! The place of each request among all that the server was ever sent.

use super::{Owed, OwedQueue};

impl OwedQueue {
    pub(super) fn append(&mut self, owed: Owed) {
        self.queue.push_back(owed);
        self.pushed += 1;
    }

    /// What is sent next comes in this place, of all that was ever sent.
    pub(crate) fn next_place(&self) -> u64 {
        self.pushed
    }

    /// The place of what is in front, or one behind it.
    pub(crate) fn front_place(&self) -> u64 {
        self.pushed - self.queue.len() as u64
    }
}
