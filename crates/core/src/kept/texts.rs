//! What a client has sent on a link: should what it calls change meanwhile, it is judged again.

use std::sync::Arc;

use crate::statements::Statement;

/// Of texts that are kept on one link, and of prepared statements.
const BYTES_MAX: usize = 8 * 1024;
const STATEMENTS_MAX: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// One behind the other.
    bytes: Vec<u8>,
    statements: Vec<Arc<Statement>>,
    /// There were more than are kept, or not all can be read.
    unknown: bool,
}

impl Texts {
    #[inline]
    pub(crate) fn add(&mut self, text: &[u8]) {
        // Again, as of a Bind behind its Parse, or of a message that has waited.
        if self.bytes.ends_with(text) {
            return;
        }
        if self.bytes.len() + text.len() > BYTES_MAX {
            return self.add_unknown();
        }
        self.bytes.push(b'\n');
        self.bytes.extend_from_slice(text);
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
        self.statements.clear();
        self.unknown = false;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.statements.is_empty() && !self.unknown
    }

    pub(super) fn are_known(&self) -> bool {
        !self.unknown
    }

    /// All of them, of statements with the types that they declare.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(&*self.bytes).chain(self.statements.iter().map(|statement| &*statement.definition))
    }
}
