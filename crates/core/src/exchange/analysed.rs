//! That PostgreSQL analyses a statement runs what reads the values of a type, and a domain's check: they may leave something, too.

use std::sync::Arc;

use super::Exchange;
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::statements::{Statement, text_of};

impl Exchange<'_> {
    /// A Parse is sent.
    #[inline]
    pub(super) fn analyses(&mut self, definition: &[u8]) {
        let kept = &self.server.kept;
        if kept.reads && !kept.plain {
            self.analyses_again(definition);
        }
    }

    /// One of ours is, for a message that may be plain itself.
    #[cold]
    pub(super) fn analyses_again(&mut self, definition: &[u8]) {
        if !self.server.kept.reads {
            return;
        }
        self.server.kept.analyses(definition);
        // Later nobody knows under what it was parsed.
        if self.may_be_read_otherwise() && (!definition.is_ascii() || text_of(definition).contains(&b'\\')) {
            self.server.kept.sent(&Leaves::unknown(), definition);
        }
    }

    /// A Describe has PostgreSQL analyse a statement again whose tables or functions have changed (`RevalidateCachedQuery`, src/backend/utils/cache/plancache.c).
    #[cold]
    pub(super) fn may_be_analysed_anew(&mut self, statement: &Arc<Statement>) {
        let kept = &mut self.server.kept;
        let Some(texts) = kept.runs() else { return };
        texts.add_statement(statement);
        kept.calls_statement(statement);
    }

    /// The same of the unnamed one.
    #[cold]
    pub(super) fn unnamed_may_be_analysed_anew(&mut self) {
        let exists = self.session.unnamed.exists();
        let Some(texts) = self.server.kept.runs().filter(|_| exists) else { return };
        let definition = self.session.unnamed.last().to_vec();
        if definition.is_empty() {
            texts.add_unknown();
            let leaves = self.left_by_long_unnamed();
            return self.server.kept.sent(&leaves, b"Describe");
        }
        texts.add(&definition);
        // Its own batch has said so.
        if self.server.mirror.unnamed_in != self.server.owed.batch() {
            self.analyses_again(&definition);
        }
    }

    /// Of one that is too long to be kept. Where other code is known by now than at its Parse, all is looked for that can be: to keep the server for
    /// what no look finds would leave none for others, where code changes all the time.
    #[cold]
    pub(super) fn left_by_long_unnamed(&self) -> Leaves {
        let then = self.session.unnamed.leaves;
        let is_out_of_date = self.server.kept.judges_long_unnamed_otherwise();
        if is_out_of_date { Leaves::any(then.with(Kinds::ANY)) } else { Leaves::of_unkept(then) }
    }
}
