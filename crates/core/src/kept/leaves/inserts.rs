//! Where a text inserts, and where it only has a column of that name.

use crate::kept::glance::is_insert;
use crate::sql::Raw;

/// Where INTO makes no table: right behind an INSERT or a MERGE. Either may be a column's name too, at the end of a SELECT's list.
pub(in crate::kept) struct Inserts<'a> {
    before: Raw<'a>,
    /// The statement begins with WITH, and has not come to what it does.
    with: bool,
    /// Open brackets.
    depth: usize,
    /// It stands right in front.
    pub(in crate::kept) into: bool,
}

impl Default for Inserts<'_> {
    fn default() -> Self {
        Self { before: Raw::Sign(b';'), with: false, depth: 0, into: false }
    }
}

impl<'a> Inserts<'a> {
    pub(in crate::kept) fn meet(&mut self, token: Raw<'a>) {
        let before = std::mem::replace(&mut self.before, token);
        self.into = false;
        match token {
            Raw::Sign(b';') => *self = Self::default(),
            Raw::Sign(b'(') => self.depth += 1,
            Raw::Sign(b')') => self.depth = self.depth.saturating_sub(1),
            Raw::Word(word) => {
                let is = |own: &str| word.eq_ignore_ascii_case(own.as_bytes());
                let (begins, closes) = (before == Raw::Sign(b';'), before == Raw::Sign(b')') && self.depth == 0);
                let is_first = begins || before == Raw::Sign(b'(') || (self.with && closes);
                self.into = is_first && is_insert(word);
                // Behind a bracket of its list nothing else goes on with that.
                let goes_on = !closes || is("as") || is("search") || is("cycle");
                // What ends a SEARCH or CYCLE is a column's name, which this is not.
                let selects = self.depth == 0 && is("select");
                self.with = (begins && is("with")) || (self.with && goes_on && !selects);
            }
            _ => {}
        }
    }
}
