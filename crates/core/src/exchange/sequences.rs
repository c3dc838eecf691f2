//! `currval` and `lastval`: what `nextval` gave last in a session is of a client's own transaction, or of nobody's.
//!
//! PostgreSQL keeps it for the session, so for whoever has the server next. Once a client of a pool has asked for it, each that gets a server has
//! it forgotten first (DISCARD SEQUENCES): what an earlier transaction was given is an error then, PostgreSQL's own (55000).

use std::sync::Arc;

use weir_wire::frontend::{BindNames, Parse};
use weir_wire::{FrontendTag, TransactionStatus};

use super::parse::has_set_unreported;
use super::requests::calls_large_object;
use super::{Exchange, Exit, Verdict};
use crate::client::Session;
use crate::failure::sequences_elsewhere;
use crate::message::Message;
use crate::ours::FORGETS_SEQUENCES;
use crate::owed::Standing;
use crate::statements::definition::text_of;
use crate::statements::{Mirror, Statement};

/// Of what a Parse says of types that declares none.
const NO_TYPES: usize = 2;
/// Bytes that are read about as fast as a Bind is carried out.
const SHORT_TEXT: usize = 1024;

impl Exchange<'_> {
    /// A message may need what is not on this server, where what clients leave in sessions is kept. `None`: it may be sent.
    #[cold]
    pub(super) fn before_what_is_elsewhere(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if self.server.kept.has_read_much() && self.others_come_first(message) {
            return Some(self.wait_for_replies());
        }
        if self.begins_behind_a_set(message) {
            return Some(self.wait_for_replies());
        }
        if self.server.kept.gives_names() {
            self.names_are_given();
        }
        if self.server.kept.names_are_own() {
            self.before_own_names(message);
        }
        // What a text calls may be another than when the two were linked.
        self.server.kept.meets(&self.knowledge.code, self.knowledge.version);
        if self.server.kept.altered.is_pending() {
            self.may_commit_code(message);
        }
        let plain = self.is_plain(message) && !self.server.kept.asks_later && !self.server.kept.may_ask_later;
        self.server.kept.plain = plain;
        if !plain {
            self.server.kept.altered.is_behind = self.server.owed.has_unanswered();
        }
        if self.server.mirror.unnamed_unasked != 0 {
            self.ask_of_unnamed(message, plain);
        }
        // It may end a transaction.
        let channels = if self.session.listens { self.before_channels(message) } else { None };
        channels.or_else(|| {
            if plain {
                return None;
            }
            let temporary = if self.server.kept.others_temporary { self.before_temporary(message) } else { None };
            temporary.or_else(|| self.before_sequences(message)).or_else(|| self.before_statements(message))
        })
    }

    /// A batch begins behind what may have set parameters that PostgreSQL does not report: what it parses may be parsed again elsewhere, under those,
    /// and between two batches they can be asked for.
    #[inline]
    fn begins_behind_a_set(&self, message: &Message<'_>) -> bool {
        use FrontendTag as Tag;
        let owed = &self.server.owed;
        let begins = !owed.is_empty() && !owed.unsynced();
        begins
            && matches!(message.tag, Tag::Parse | Tag::Bind | Tag::Describe | Tag::Close)
            && has_set_unreported(self.server)
    }

    /// A message uses a statement whose text is read for that, and so much was read for those before it that others shall have their turn.
    #[cold]
    fn others_come_first(&mut self, message: &Message<'_>) -> bool {
        if self.server.owed.is_empty() {
            self.server.kept.read_again = 0;
        }
        matches!(message.tag, FrontendTag::Bind | FrontendTag::Describe) && self.server.kept.has_read_much()
    }

    /// Whether a message leaves nothing in its session for certain, and needs nothing that is elsewhere.
    pub(super) fn is_plain(&mut self, message: &Message<'_>) -> bool {
        let (kept, parameters) = (&mut self.server.kept, &self.session.parameters);
        match carried(self.session, &self.server.mirror, message) {
            Carried::Nothing => message.tag != FrontendTag::FunctionCall,
            Carried::Text(text, types) => {
                if text.len() > SHORT_TEXT && message.tag == FrontendTag::Bind {
                    kept.reads_again(text);
                }
                let declares = types.len() > NO_TYPES;
                if let Some(texts) = kept.runs() {
                    if declares { texts.add_declaring(text, types) } else { texts.add(text) }
                }
                !declares && kept.is_plain(text, parameters, &mut self.cx.plain_text)
            }
            Carried::Statement(statement) => {
                if let Some(texts) = kept.runs() {
                    texts.add_statement(statement);
                }
                let plain = kept.is_plain_statement(statement, parameters);
                // For those its text is read though it leaves nothing.
                let is_read = || !plain || self.session.listens || kept.asks_later || kept.may_ask_later;
                if statement.definition.len() > SHORT_TEXT && is_read() {
                    kept.reads_again(&statement.definition);
                }
                plain
            }
            Carried::TooLong | Carried::Unknown => {
                kept.runs().into_iter().for_each(|texts| texts.add_unknown());
                false
            }
        }
    }

    fn before_sequences(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let status = self.server.status;
        let unread = matches!(carried(self.session, &self.server.mirror, message), Carried::TooLong);
        let asks = !self.server.kept.own_sequences && status != TransactionStatus::Failed;
        if !asks || !(unread || self.reads_sequences(message)) {
            return None;
        }
        *self.reads_sequences |= !unread;
        match self.server.owed.standing(self.server.status) {
            // What nobody has read costs its transaction the numbers of before: an error, should it ask for one.
            Standing::Between if unread || status == TransactionStatus::Idle => {
                return Some(Verdict::Stop(Exit::NeedsSequences));
            }
            Standing::Later => return Some(self.wait_for_replies()),
            Standing::Within if unread => {
                // Where the batch fails before, this is skipped: it counts for this message alone, however often that is taken up.
                if self.server.kept.forgot_up_to != Some(self.server.owed.next_place()) {
                    self.run_ahead(FORGETS_SEQUENCES.to_vec());
                    self.server.kept.forgot_up_to = Some(self.server.owed.next_place());
                }
                return None;
            }
            Standing::Between | Standing::Within => {}
        }
        Some(self.fail_message(message, sequences_elsewhere()))
    }

    fn reads_sequences(&self, message: &Message<'_>) -> bool {
        match carried(self.session, &self.server.mirror, message) {
            Carried::Text(text, _) => {
                names_sequences(text) || has_escaped_name(text) || self.server.kept.reads_sequences_by_call(text)
            }
            Carried::Statement(statement) => self.server.kept.statement_reads_sequences(statement),
            // Which function it is only its number tells.
            Carried::Nothing => message.tag == FrontendTag::FunctionCall && !calls_large_object(message),
            // Nobody else has had the server since it was prepared, or there is none.
            Carried::TooLong | Carried::Unknown => false,
        }
    }
}

/// What a message has PostgreSQL analyse or run, as far as that is a text.
pub(super) fn carried<'a>(session: &'a Session, mirror: &'a Mirror, message: &Message<'a>) -> Carried<'a> {
    let body = message.body();
    match message.tag {
        FrontendTag::Query | FrontendTag::Parse if message.present() < message.total => Carried::TooLong,
        FrontendTag::Query => Carried::Text(text_of(body), b""),
        FrontendTag::Parse => Parse::definition_of(body).map_or(Carried::Nothing, text_and_types),
        FrontendTag::Bind => {
            let Some(names) = BindNames::parse(body) else { return Carried::Nothing };
            if names.statement.is_empty() {
                let long = mirror.long_unnamed(&session.unnamed);
                return match session.unnamed.is_unread() {
                    true => Carried::TooLong,
                    false => long.map_or_else(|| text_and_types(session.unnamed.last()), Carried::Statement),
                };
            }
            let held = session.statements.get(names.statement);
            held.map_or(Carried::Unknown, |held| Carried::Statement(&held.statement))
        }
        _ => Carried::Nothing,
    }
}

fn text_and_types(definition: &[u8]) -> Carried<'_> {
    let text = text_of(definition);
    Carried::Text(text, definition.get(text.len() + 1..).unwrap_or_default())
}

/// What a message is about.
pub(super) enum Carried<'a> {
    Nothing,
    /// And what a Parse says of types behind its end: how many, and which.
    Text(&'a [u8], &'a [u8]),
    Statement(&'a Arc<Statement>),
    /// A text that is not read.
    TooLong,
    /// A statement that SQL has prepared, perhaps.
    Unknown,
}

/// Whether the one word or the other is in a text, wherever that is.
fn names_sequences(text: &[u8]) -> bool {
    const END: &[u8] = b"val";
    const LEN: usize = b"lastval".len();
    let is_word = |begin: usize| {
        text[begin..].get(..LEN).is_some_and(|word| {
            let named = word.eq_ignore_ascii_case(b"currval") || word.eq_ignore_ascii_case(b"lastval");
            named && begins_word(text, begin) && !text.get(begin + LEN).is_some_and(|next| is_in_word(*next))
        })
    };
    let ends = text.windows(END.len()).enumerate().filter(|(_, at)| at.eq_ignore_ascii_case(END));
    ends.filter_map(|(at, _)| at.checked_sub(LEN - END.len())).any(is_word)
}

/// A name in escapes may be any.
fn has_escaped_name(text: &[u8]) -> bool {
    const OPENS: &[u8] = b"u&\"";
    let escaped = text.windows(OPENS.len()).enumerate().filter(|(_, at)| at.eq_ignore_ascii_case(OPENS));
    escaped.map(|(at, _)| at).any(|at| begins_word(text, at))
}

/// What is in front of a place is no word that goes on there. A number may have one behind it, up to 14.
fn begins_word(text: &[u8], at: usize) -> bool {
    let in_front = text[..at].iter().rev().take_while(|byte| is_in_word(**byte)).last();
    in_front.is_none_or(|first| first.is_ascii_digit() || *first == b'$')
}

/// As PostgreSQL has it (`ident_cont`, src/backend/parser/scan.l).
fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::{has_escaped_name, names_sequences};

    #[test]
    fn the_words_are_found_wherever_they_stand() {
        for text in [
            "select currval('s')",
            "SELECT LastVal()",
            "x\0currval",
            "lastval",
            "'\"lastval\"'",
            "1lastval",
            "$1currval",
        ] {
            assert!(names_sequences(text.as_bytes()), "{text}");
        }
        let others = ["lastvalue", "LastValidated", "x_lastval", "x1lastval", "lastval_x", "\u{fc}currval", "currval$"];
        for text in ["", "val", "curval", "select nextval('s')", "lastva", "interval '1 day'"].iter().chain(&others) {
            assert!(!names_sequences(text.as_bytes()), "{text}");
        }
        for (text, expected) in [
            ("select U&\"l\\0061stval\"()", true),
            ("'u&\"x\"'", true),
            ("<a href=\"?a=1&\">", false),
            ("{\"q\":\"menu&\"}", false),
            ("u&'x'", false),
        ] {
            assert_eq!(has_escaped_name(text.as_bytes()), expected, "{text}");
        }
    }
}
