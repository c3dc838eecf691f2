//! `currval` and `lastval`: what `nextval` gave last in a session is of a client's own transaction, or of nobody's.
//!
//! PostgreSQL keeps it for the session, so for whoever has the server next. Once a client of a pool has asked for it, each that gets a server has
//! it forgotten first (DISCARD SEQUENCES): what an earlier transaction was given is an error then, PostgreSQL's own (55000).

use weir_wire::frontend::{BindNames, Parse};
use weir_wire::{FrontendTag, TransactionStatus};

use super::{Exchange, Exit, Verdict};
use crate::failure::sequences_elsewhere;
use crate::message::Message;
use crate::statements::text_of;

impl Exchange<'_> {
    /// A message may need what is not on this server, where what clients leave in sessions is kept. `None`: it may be sent.
    #[cold]
    pub(super) fn before_what_is_elsewhere(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let channels = if self.session.listens { self.before_channels(message) } else { None };
        channels.or_else(|| self.before_sequences(message))
    }

    fn before_sequences(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let status = self.server.status;
        if self.server.kept.own_sequences || status == TransactionStatus::Failed || !self.reads_sequences(message) {
            return None;
        }
        *self.reads_sequences = true;
        let owed = &self.server.owed;
        if status == TransactionStatus::Idle && (owed.settled() || owed.closes_alone()) {
            return Some(Verdict::Stop(Exit::NeedsSequences));
        }
        if !owed.settled() && !owed.unsynced() && !owed.skipping() {
            return Some(self.wait_for_replies());
        }
        Some(self.fail_message(message, sequences_elsewhere()))
    }

    fn reads_sequences(&self, message: &Message<'_>) -> bool {
        let body = message.body();
        match message.tag {
            FrontendTag::Query => names_sequences(text_of(body)),
            FrontendTag::Parse => Parse::read(body).is_ok_and(|parse| names_sequences(text_of(parse.definition))),
            FrontendTag::Bind => BindNames::parse(body).is_some_and(|names| {
                if names.statement.is_empty() {
                    return names_sequences(text_of(self.session.unnamed.last()));
                }
                let held = self.session.statements.get(names.statement);
                held.is_some_and(|held| held.statement.leaves().reads_sequences)
            }),
            _ => false,
        }
    }
}

/// Whether the one word or the other is in a text, wherever that is.
fn names_sequences(text: &[u8]) -> bool {
    const END: &[u8] = b"val";
    let is_word = |at: &[u8]| at.eq_ignore_ascii_case(b"currval") || at.eq_ignore_ascii_case(b"lastval");
    let ends = text.windows(END.len()).enumerate().filter(|(_, at)| at.eq_ignore_ascii_case(END));
    ends.filter_map(|(at, _)| text.get(at.checked_sub(4)?..at + END.len())).any(is_word)
}

#[cfg(test)]
mod tests {
    use super::names_sequences;

    #[test]
    fn the_words_are_found_wherever_they_stand() {
        for text in ["select currval('s')", "SELECT LastVal()", "x\0currval", "lastval"] {
            assert!(names_sequences(text.as_bytes()), "{text}");
        }
        for text in ["", "val", "curval", "select nextval('s')", "lastva", "interval '1 day'"] {
            assert!(!names_sequences(text.as_bytes()), "{text}");
        }
    }
}
