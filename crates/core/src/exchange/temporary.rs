//! What is otherwise on a server that has had temporary objects of others: `temp_buffers` cannot be set there any more, and a transaction that looks
//! at a `search_path` of `pg_temp` does not make that schema, which is there, and could be prepared.

use weir_wire::TransactionStatus;

use super::sequences::{Carried, carried};
use super::{Exchange, Exit, Verdict};
use crate::failure::temporary_elsewhere;
use crate::message::Message;
use crate::owed::Standing;
use crate::sql::{Raw, Tokens};
use crate::statements::definition::text_of;

impl Exchange<'_> {
    /// What its client would not meet in a session of its own is not met: before its transaction it gets another server, in it an error.
    #[cold]
    pub(super) fn before_temporary(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let text = match carried(self.session, &self.server.mirror, message) {
            Carried::Text(text, _) => text,
            Carried::Statement(statement) => text_of(&statement.definition),
            Carried::Nothing | Carried::TooLong | Carried::Unknown => return None,
        };
        match (self.server.owed.standing(self.server.status), self.server.status) {
            (Standing::Between, TransactionStatus::Idle) => {
                let needs = self.server.kept.is_blank() && names_buffers(text);
                needs.then_some(Verdict::Stop(Exit::NeedsNoTemporary))
            }
            (_, TransactionStatus::Failed) => None,
            (standing, _) => {
                if !self.session.parameters.names_temporary() || !prepares_transaction(text) {
                    return None;
                }
                match standing {
                    Standing::Later => Some(self.wait_for_replies()),
                    _ => Some(self.fail_message(message, temporary_elsewhere())),
                }
            }
        }
    }
}

/// Whether it says the parameter, wherever that is.
fn names_buffers(text: &[u8]) -> bool {
    const NAME: &[u8] = b"temp_buffers";
    text.windows(NAME.len()).any(|word| word.eq_ignore_ascii_case(NAME))
}

/// Whether a statement in it is PREPARE TRANSACTION.
fn prepares_transaction(text: &[u8]) -> bool {
    let mut tokens = Tokens::of(text);
    let mut before = false;
    while let Some(token) = tokens.raw() {
        let Raw::Word(word) = token else {
            before = false;
            continue;
        };
        if before && word.eq_ignore_ascii_case(b"transaction") {
            return true;
        }
        before = word.eq_ignore_ascii_case(b"prepare");
    }
    false
}

#[cfg(test)]
mod tests {
    use super::{names_buffers, prepares_transaction};

    #[test]
    fn the_words_are_found() {
        for (text, expected) in [
            ("prepare transaction 'a'", true),
            ("select 1; PREPARE /* it */ Transaction 'a'", true),
            ("prepare transactions as select 1", false),
            ("select 'prepare transaction'", false),
            ("commit prepared 'a'", false),
        ] {
            assert_eq!(prepares_transaction(text.as_bytes()), expected, "{text}");
        }
        assert!(names_buffers(b"set session Temp_Buffers = 100"));
        assert!(!names_buffers(b"set temp_buffer = 100"));
    }
}
