//! What a client has sent on a link: should what it calls change meanwhile, it is judged again.

use super::leaves::declared_types;
use crate::statements::text_of;

/// Of texts that are kept on one link.
const BYTES_MAX: usize = 8 * 1024;

/// One behind the other.
#[derive(Debug, Default)]
pub(super) struct Texts {
    bytes: Vec<u8>,
    /// It is more than is kept, or not all of it can be read.
    unknown: bool,
}

impl Texts {
    /// A text is sent, with the types that a Parse declares behind its end; `None` for one that is not known.
    #[inline]
    pub(super) fn add(&mut self, definition: Option<&[u8]>) {
        let Some(definition) = definition else {
            self.unknown = true;
            return;
        };
        let text = text_of(definition);
        if self.bytes.ends_with(text) || self.unknown {
            // Again, as of a message that has waited.
            return;
        }
        self.unknown = self.bytes.len() + text.len() > BYTES_MAX || declared_types(definition).next().is_some();
        if !self.unknown {
            self.bytes.push(b'\n');
            self.bytes.extend_from_slice(text);
        }
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.unknown = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.unknown
    }

    /// `None` where they are not known.
    pub(super) fn known(&self) -> Option<&[u8]> {
        (!self.unknown).then_some(&self.bytes)
    }
}
