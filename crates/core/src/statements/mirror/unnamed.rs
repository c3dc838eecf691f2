//! The unnamed statement of a server's session.

use std::sync::Arc;

use super::Mirror;
use crate::statements::{Statement, UNNAMED_UNKNOWN, Unnamed};

impl Mirror {
    /// Which one it is from now on.
    #[inline]
    pub(crate) fn unnamed_is(&mut self, id: u64) {
        self.unnamed = id;
        if self.long_unnamed.is_some() {
            self.forget_long_unnamed();
        }
    }

    #[cold]
    fn forget_long_unnamed(&mut self) {
        self.long_unnamed.take_if(|(id, _)| *id != self.unnamed);
    }

    /// Its text is too long for its client to keep.
    pub(crate) fn keep_long_unnamed(&mut self, statement: Arc<Statement>) {
        self.long_unnamed = Some((self.unnamed, statement));
    }

    /// A client's unnamed statement, where that is the one here, and its text is too long to be kept by its client.
    pub(crate) fn long_unnamed(&self, unnamed: &Unnamed) -> Option<&Arc<Statement>> {
        let long = self.long_unnamed.as_ref().filter(|(id, _)| *id == unnamed.id && !unnamed.is_awaited());
        long.map(|(_, statement)| statement)
    }

    /// The text of a client's unnamed statement: of the last that it has sent, or of the one that is here.
    pub(crate) fn unnamed_definition<'a>(&'a self, unnamed: &'a Unnamed) -> &'a [u8] {
        match unnamed.last() {
            b"" => self.long_unnamed(unnamed).map_or(b"", |statement| &statement.definition),
            definition => definition,
        }
    }

    /// A simple query of ours is sent: the unnamed statement is none of anybody's when it is answered.
    pub(crate) fn own_query_sent(&mut self) {
        if self.unnamed != 0 {
            self.unnamed = UNNAMED_UNKNOWN;
        }
    }
}
