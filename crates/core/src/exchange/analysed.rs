//! That PostgreSQL analyses a statement runs what reads the values of a type, and a domain's check: they may leave something, too.

use std::sync::Arc;

use super::Exchange;
use crate::kept::leaves::Leaves;
use crate::owed::Touched;
use crate::parameters::ParameterSet;
use crate::parameters::encodings::{lowers_to_ascii, reads_bytes};
use crate::statements::Statement;
use crate::statements::definition::text_of;

impl Exchange<'_> {
    /// A Parse is sent.
    #[inline]
    pub(super) fn analyses(&mut self, definition: &[u8]) {
        let kept = &self.server.kept;
        if kept.on && !(kept.reads && kept.plain) {
            self.analyses_again(definition);
        }
    }

    /// Where PostgreSQL tells what a session holds, whatever may run code counts as what is executed.
    pub(super) fn may_run_what_nobody_reads(&mut self) -> bool {
        let is_told = self.server.kept.is_told();
        if is_told {
            self.server.owed.executes_anything();
        }
        is_told
    }

    /// One of ours is, for a message that may be plain itself.
    #[cold]
    pub(super) fn analyses_again(&mut self, definition: &[u8]) {
        if self.may_run_what_nobody_reads() {
            return;
        }
        if !self.server.kept.reads {
            return;
        }
        self.server.kept.calls(definition, &Leaves::default());
        // Later nobody knows under what it was parsed.
        if self.may_be_read_otherwise() && (!definition.is_ascii() || text_of(definition).contains(&b'\\')) {
            self.server.kept.sent(&Leaves::unknown(), definition);
        }
    }

    /// A Describe has PostgreSQL analyse a statement again whose tables or functions have changed (`RevalidateCachedQuery`, src/backend/utils/cache/plancache.c).
    #[cold]
    pub(super) fn may_be_analysed_anew(&mut self, statement: &Arc<Statement>) {
        if self.may_run_what_nobody_reads() {
            return;
        }
        let kept = &mut self.server.kept;
        let Some(texts) = kept.runs() else { return };
        texts.add_statement(statement);
        kept.calls_statement(statement);
    }

    /// The same of the unnamed one.
    #[cold]
    pub(super) fn unnamed_may_be_analysed_anew(&mut self) {
        if self.may_run_what_nobody_reads() {
            return;
        }
        let unnamed = &self.session.unnamed;
        let Some(texts) = self.server.kept.runs().filter(|_| unnamed.exists()) else { return };
        if unnamed.is_unread() {
            texts.add_unknown();
            return self.server.kept.sent(&Leaves::unknown(), b"Describe");
        }
        if let Some(statement) = self.server.mirror.long_unnamed(unnamed).map(Arc::clone) {
            return self.may_be_analysed_anew(&statement);
        }
        let definition = unnamed.last().to_vec();
        texts.add(&definition);
        self.server.kept.reads_again(&definition);
        // Its own batch has said so.
        if self.server.mirror.unnamed_in != self.server.owed.batch() {
            self.analyses_again(&definition);
        }
    }

    /// What a text says cannot be known: its strings and letters may be others than they seem, under the parameters under which it is read.
    pub(super) fn misreads(&self, leaves: &Leaves, under: &ParameterSet, doubtful: bool) -> bool {
        (leaves.uncertain && (doubtful || !under.has_standard_strings()))
            || (leaves.beyond_ascii && (doubtful || !reads_bytes(under.encoding())))
            || (leaves.words_beyond_ascii && lowers_to_ascii(self.server.encoding()))
    }

    /// A text that is sent now may be read under other parameters than its client has been told: what may have changed them is not
    /// answered yet.
    #[inline]
    pub(super) fn may_be_read_otherwise(&self) -> bool {
        self.server.kept.strings_set && self.server.owed.reported_parameters() != Touched::Answered
    }
}
