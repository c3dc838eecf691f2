//! What a client has sent on a link: should what it calls change meanwhile, it is judged again.

use std::sync::Arc;

use crate::statements::Statement;

/// What is kept of one link: bytes of texts, texts, and prepared statements.
const BYTES_MAX: usize = 64 * 1024;
const TEXTS_MAX: usize = 256;
const STATEMENTS_MAX: usize = 64;
/// Bytes that stay allocated from one link to the next.
const BYTES_STAY: usize = 8 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// One behind the other, and where each ends: what one of them leaves open, a string or a comment, is none of the next.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    statements: Vec<Arc<Statement>>,
    /// There were more than are kept, or not all can be read.
    unknown: bool,
}

impl Texts {
    #[inline]
    pub(crate) fn add(&mut self, text: &[u8]) {
        // Again, as of a Bind behind its Parse, or of a message that has waited.
        if self.last() == Some(text) {
            return;
        }
        if self.bytes.len() + text.len() > BYTES_MAX || self.ends.len() == TEXTS_MAX {
            return self.add_unknown();
        }
        self.bytes.extend_from_slice(text);
        self.ends.push(self.bytes.len());
    }

    fn last(&self) -> Option<&[u8]> {
        let (end, before) = self.ends.split_last()?;
        self.bytes.get(before.last().copied().unwrap_or(0)..*end)
    }

    #[inline]
    pub(crate) fn add_statement(&mut self, statement: &Arc<Statement>) {
        if self.statements.last().is_some_and(|last| Arc::ptr_eq(last, statement)) {
            return;
        }
        if self.statements.len() == STATEMENTS_MAX {
            return self.add_unknown();
        }
        self.statements.push(Arc::clone(statement));
    }

    /// What is run is not known.
    #[cold]
    pub(crate) fn add_unknown(&mut self) {
        self.clear();
        self.unknown = true;
    }

    #[inline]
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_STAY);
        self.ends.clear();
        self.statements.clear();
        self.unknown = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.statements.is_empty() && !self.unknown
    }

    pub(super) fn are_known(&self) -> bool {
        !self.unknown
    }

    /// All of them, of statements with the types that they declare.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let texts = (0..self.ends.len()).filter_map(|at| {
            let begins = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.bytes.get(begins..self.ends[at])
        });
        texts.chain(self.statements.iter().map(|statement| &*statement.definition))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_is_one() {
        let mut texts = Texts::default();
        for text in [&b"select '"[..], b"select f()", b"f()", b"f()", b""] {
            texts.add(text);
        }
        let kept: Vec<_> = texts.iter().collect();
        assert_eq!(kept, [&b"select '"[..], b"select f()", b"f()", b""]);
        texts.add(&[b'x'; BYTES_MAX - 64]);
        assert!(texts.are_known() && texts.iter().count() == 5);
        texts.add(&[b'y'; 64]);
        assert!(!texts.are_known() && texts.iter().count() == 0);
        texts.clear();
        assert!(texts.is_empty() && texts.are_known());
        assert!(texts.bytes.capacity() <= BYTES_STAY);
    }
}
