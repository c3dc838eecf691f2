//! Sends that are over once they are submitted: small, never waited for, and silent where all went well. Knows nothing of rings.
//!
//! Such a send says DONTWAIT, so the kernel tries it inside the system call that submits it, and SKIP_SUCCESS, so only one
//! that could not send everything has a completion. A completion for each would cost as much again, and would end the
//! wait that the same system call begins.

use std::collections::VecDeque;

use weir_core::ConnId;

use super::outbox::Spares;

/// What was not, or not wholly, sent.
pub struct Refused {
    pub id: ConnId,
    /// `None`: they are gone, since nobody counted on this any more.
    pub bytes: Option<Vec<u8>>,
    /// How much went, or the errno, negative.
    pub result: i32,
}

/// A quick send whose bytes the kernel may still read.
struct Launched {
    id: ConnId,
    /// Which of its connection's.
    number: u8,
    /// `None`: it was refused, or has become certain.
    bytes: Option<Vec<u8>>,
}

/// The quick sends of a turn, of each connection at most one that is not certain.
#[derive(Default)]
pub struct Quick {
    launched: Vec<Launched>,
    /// Where the last refusal was found: they come in the order of the sends.
    found_at: usize,
    refused: VecDeque<Refused>,
}

impl Quick {
    /// Keeps the bytes of a send until it is certain; answers where they are, and its place here.
    pub fn launch(&mut self, id: ConnId, number: u8, bytes: Vec<u8>) -> (*const u8, u32, u32) {
        let at = self.launched.len() as u32;
        let (start, len) = (bytes.as_ptr(), bytes.len() as u32);
        self.launched.push(Launched { id, number, bytes: Some(bytes) });
        (start, len, at)
    }

    /// A completion of a quick send: it failed.
    pub fn refuse(&mut self, id: ConnId, number: u8, result: i32) {
        let (before, after) = self.launched.split_at(self.found_at.min(self.launched.len()));
        let is_it = |launched: &&Launched| launched.id == id && launched.number == number;
        let place = after.iter().chain(before).position(|launched| is_it(&launched));
        let bytes = place.and_then(|place| {
            self.found_at = (self.found_at + place) % self.launched.len();
            self.launched[self.found_at].bytes.take()
        });
        self.refused.push_back(Refused { id, bytes, result });
    }

    /// The send of this connection at this place has been submitted; what came of it, if it was refused.
    pub fn settle(&mut self, id: ConnId, at: u32, spares: &mut Spares) -> Option<Refused> {
        let launched = self.launched.get_mut(at as usize).filter(|launched| launched.id == id);
        if let Some(bytes) = launched.and_then(|launched| launched.bytes.take()) {
            spares.put_copy(bytes);
        }
        let at = self.refused.iter().position(|refused| refused.id == id)?;
        self.refused.remove(at)
    }

    /// All that was launched has been submitted, and what failed of it was refused.
    pub fn landed(&mut self, spares: &mut Spares) {
        for bytes in self.launched.drain(..).filter_map(|launched| launched.bytes) {
            spares.put_copy(bytes);
        }
        self.found_at = 0;
    }

    pub fn next_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }
}
