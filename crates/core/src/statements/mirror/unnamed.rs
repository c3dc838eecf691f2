//! The unnamed statement of a server's session.

use std::sync::Arc;

use super::Mirror;
use crate::parameters::ParameterSet;
use crate::statements::{UNNAMED_UNKNOWN, Unnamed};

impl Mirror {
    /// The text of a client's unnamed statement: of the last that it has sent, or of the one that is here.
    #[inline]
    pub(crate) fn unnamed_definition<'a>(&'a self, unnamed: &'a Unnamed) -> &'a [u8] {
        match (unnamed.last(), &self.long_unnamed) {
            (b"", Some((id, definition))) if *id == unnamed.id && !unnamed.is_awaited() => definition,
            (definition, _) => definition,
        }
    }

    /// That of a client is parsed here.
    pub(crate) fn unnamed_parsed(&mut self, unnamed: &mut Unnamed, parameters: &Arc<ParameterSet>) {
        let is_long = unnamed.parsed(parameters);
        self.unnamed = unnamed.id;
        if is_long || self.long_unnamed.is_some() {
            self.keep_long_unnamed(unnamed, is_long);
        }
    }

    #[cold]
    fn keep_long_unnamed(&mut self, unnamed: &mut Unnamed, is_long: bool) {
        self.long_unnamed = is_long.then(|| (unnamed.id, unnamed.take_definition()));
    }

    /// A simple query of ours is sent: the unnamed statement is none of anybody's when it is answered.
    pub(crate) fn own_query_sent(&mut self) {
        if self.unnamed != 0 {
            self.unnamed = UNNAMED_UNKNOWN;
        }
    }
}
