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
    pub bytes: Vec<u8>,
    /// How much went, or the errno, negative.
    pub result: i32,
}

/// The quick sends of a turn.
#[derive(Default)]
pub struct Quick {
    /// Pushed, and not known to be submitted: the kernel may still read these bytes.
    launched: Vec<(ConnId, Vec<u8>)>,
    refused: VecDeque<Refused>,
}

impl Quick {
    /// Keeps the bytes of a send until `landed`; answers where they are.
    pub fn launch(&mut self, id: ConnId, bytes: Vec<u8>) -> (*const u8, u32) {
        let place = (bytes.as_ptr(), bytes.len() as u32);
        self.launched.push((id, bytes));
        place
    }

    /// A completion of a quick send: it failed.
    pub fn refuse(&mut self, id: ConnId, result: i32) {
        if let Some(at) = self.launched.iter().position(|(launched, _)| *launched == id) {
            let (id, bytes) = self.launched.swap_remove(at);
            self.refused.push_back(Refused { id, bytes, result });
        }
    }

    /// All that was launched has been submitted, and what failed of it was refused.
    pub fn landed(&mut self, spares: &mut Spares) {
        for (_, bytes) in self.launched.drain(..) {
            spares.put_copy(bytes);
        }
    }

    pub fn next_refused(&mut self) -> Option<Refused> {
        self.refused.pop_front()
    }

    pub fn take_refused(&mut self, id: ConnId) -> Option<Refused> {
        let at = self.refused.iter().position(|refused| refused.id == id)?;
        self.refused.remove(at)
    }

    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }
}
