//! What a client has sent on a link: should what it calls change meanwhile, it is judged again.

use std::sync::Arc;

use super::Kept;
use super::leaves::Leaves;
use super::words::Code;
use crate::statements::Statement;

/// What is kept of one link: bytes of texts, texts, and prepared statements.
const BYTES_MAX: usize = 64 * 1024;
const TEXTS_MAX: usize = 4096;
const STATEMENTS_MAX: usize = 256;
/// Of the statements.
const STATEMENT_BYTES_MAX: usize = 1024 * 1024;
/// Of that what stays allocated from one link to the next.
const BYTES_STAY: usize = 8 * 1024;
const TEXTS_STAY: usize = 256;
/// Of statements' texts, by a client's messages that are not answered yet: those that use one are of a few bytes, and would hold up all others.
const READ_AGAIN_MAX: usize = 256 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// One behind the other, and where each ends: what one of them leaves open, a string or a comment, is none of the next.
    bytes: Vec<u8>,
    ends: Vec<u32>,
    statements: Vec<Arc<Statement>>,
    statement_bytes: usize,
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
        if self.has_room(text.len()) {
            self.bytes.extend_from_slice(text);
            self.ends.push(self.bytes.len() as u32);
        } else {
            self.add_unknown();
        }
    }

    #[inline]
    fn has_room(&self, len: usize) -> bool {
        self.bytes.len() + len <= BYTES_MAX && self.ends.len() < TEXTS_MAX
    }

    /// One that declares types, as they stand behind it in a Parse: numbers of users' types count as their names.
    pub(crate) fn add_declaring(&mut self, text: &[u8], types: &[u8]) {
        let is_last = |last: &[u8]| last.strip_prefix(text).and_then(|rest| rest.strip_prefix(b"\0")) == Some(types);
        if self.last().is_some_and(is_last) {
            return;
        }
        if self.has_room(text.len() + 1 + types.len()) {
            [text, b"\0", types].into_iter().for_each(|part| self.bytes.extend_from_slice(part));
            self.ends.push(self.bytes.len() as u32);
        } else {
            self.add_unknown();
        }
    }

    fn last(&self) -> Option<&[u8]> {
        let (end, before) = self.ends.split_last()?;
        self.bytes.get(before.last().map_or(0, |end| *end as usize)..*end as usize)
    }

    #[inline]
    pub(crate) fn add_statement(&mut self, statement: &Arc<Statement>) {
        if self.statements.iter().rev().any(|known| Arc::ptr_eq(known, statement)) {
            return;
        }
        self.statement_bytes += statement.definition.len();
        if self.statements.len() == STATEMENTS_MAX || self.statement_bytes > STATEMENT_BYTES_MAX {
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
        self.ends.shrink_to(TEXTS_STAY);
        self.statements.clear();
        self.statement_bytes = 0;
        self.unknown = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends.is_empty() && self.statements.is_empty() && !self.unknown
    }

    pub(super) fn are_known(&self) -> bool {
        !self.unknown
    }

    /// What they leave by what they call, and by the types that they declare.
    pub(super) fn left<'c>(&'c self, code: &'c Code) -> impl Iterator<Item = Leaves> + use<'c> {
        let called = |statement: &Arc<Statement>| statement.called(code.words()?);
        self.iter().filter_map(|text| code.leaves(text)).chain(self.statements.iter().filter_map(called))
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        (0..self.ends.len()).filter_map(|at| {
            let begins = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            self.bytes.get(begins as usize..self.ends[at] as usize)
        })
    }
}

impl Kept {
    /// A message is sent: what it has PostgreSQL run, where that is kept.
    #[inline]
    pub(crate) fn runs(&mut self) -> Option<&mut Texts> {
        self.reads.then(|| &mut **self.texts.get_or_insert_default())
    }

    /// All that was sent is answered, and judged by what its texts call now.
    #[inline]
    pub(crate) fn judged(&mut self) {
        if !self.blind {
            self.clear_texts();
        }
    }

    #[inline]
    pub(super) fn clear_texts(&mut self) {
        if let Some(texts) = &mut self.texts {
            texts.clear();
        }
    }

    /// Many bytes of statements' texts were read for messages of a few bytes that use them.
    #[inline]
    pub(crate) fn has_read_much(&self) -> bool {
        self.read_again > READ_AGAIN_MAX
    }

    #[cold]
    pub(crate) fn reads_again(&mut self, text: &[u8]) {
        self.read_again += text.len();
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
        let int4 = [0, 1, 0, 0, 0, 23];
        texts.add_declaring(b"select $1", &int4);
        texts.add_declaring(b"select $1", &int4);
        assert_eq!(texts.iter().last(), Some(&b"select $1\0\0\x01\0\0\0\x17"[..]));
        texts.add(&[b'x'; BYTES_MAX - 64]);
        assert!(texts.are_known() && texts.iter().count() == 6);
        texts.add(&[b'y'; 64]);
        assert!(!texts.are_known() && texts.iter().count() == 0);
        texts.clear();
        assert!(texts.is_empty() && texts.are_known());
        assert!(texts.bytes.capacity() <= BYTES_STAY);
    }
}
