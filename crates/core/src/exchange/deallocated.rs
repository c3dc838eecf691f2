//! SQL's DEALLOCATE of a statement that its client has prepared by the protocol, as PHP's PDO and libpq before 17 have it.
//!
//! The server knows it by our name, and others may use it there: only the client forgets it. PostgreSQL deallocates an empty statement in its
//! place, and so tells what it would tell.

use weir_wire::{TransactionStatus, write};

use super::{Answers, Exchange, Verdict};
use crate::failure::statements_elsewhere;
use crate::message::Message;
use crate::owed::{HARMLESS, Note, Owed, Request, Standing, Touched};
use crate::parameters::meanings::NAME_BYTES;
use crate::sql::{Tokens, is_keyword};

impl Exchange<'_> {
    /// A simple query that may close statements. `None`: it is sent as it is.
    #[cold]
    pub(super) fn deallocate_own(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if !self.tracks || message.present() < message.total {
            return None;
        }
        let name = deallocated(message.body())?;
        let (session, server) = self.pair();
        // One that it has closed may be there still: PostgreSQL skips what follows an error.
        let in_doubt = session.statements.touched(&name, &server.owed) == Touched::InDoubt;
        match session.statements.get(&name) {
            None if !in_doubt => return None,
            Some(held) if session.statements.is_doubted(held) => return None,
            _ => {}
        }
        match server.owed.standing(server.status) {
            Standing::Between if server.owed.unsynced() => {
                // Nothing was done in this batch: behind a Sync all of it is certain.
                self.server.sync_ours(self.server_id, self.cx);
                return Some(self.wait_for_replies());
            }
            Standing::Between => {}
            Standing::Later => return Some(self.wait_for_replies()),
            Standing::Within => {
                return Some(self.fail_message(message, statements_elsewhere("Send it behind a Sync.")));
            }
        }
        if server.status == TransactionStatus::Failed {
            // PostgreSQL does nothing of it.
            return None;
        }
        let empty = self.cx.statements.random_name();
        self.cx.out.send(self.server_id, |out| write::parse(out, empty.as_bytes(), &[0; 3]));
        self.server.owed.push(Owed::ours(Request::Parse));
        self.server.sync_ours(self.server_id, self.cx);
        self.server.mirror.unnamed_in = self.server.owed.batch();
        self.server.mirror.forget_portals();
        self.server.owed.deallocates();
        let query = Owed::client(Request::Query).statement(HARMLESS);
        self.server.owed.push(query.note(Note::Deallocated(name.into())));
        self.cx.out.send(self.server_id, |out| write::query(out, format!("DEALLOCATE {empty}").as_bytes()));
        Some(self.skip(message))
    }
}

impl Answers<'_> {
    /// A DEALLOCATE is carried out.
    #[cold]
    pub(super) fn deallocated(&mut self) {
        let batch = self.server.owed.answered() + 1;
        let Some(Note::Deallocated(name)) = self.server.owed.front().and_then(|owed| owed.note.as_deref()) else {
            return;
        };
        if let Some(session) = self.client.as_mut().and_then(|(_, client)| client.session_mut()) {
            session.statements.remove(name, batch);
        }
    }
}

/// The one statement that a text deallocates, and does nothing else.
pub(super) fn deallocated(body: &[u8]) -> Option<Vec<u8>> {
    let mut tokens = Tokens::of(body.strip_suffix(&[0]).unwrap_or(body));
    let words = std::iter::from_fn(|| tokens.statement()).find(|words| words[0] != ";")?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (["deallocate", name] | ["deallocate", "prepare", name]) = words[..] else { return None };
    // What is not known to be spelled as the client spells it is PostgreSQL's to look for.
    let is_name = name.starts_with(|first: char| first == '"' || first == '_' || first.is_ascii_alphabetic());
    let is_plain = is_name && name.len() <= NAME_BYTES && name.is_ascii() && !is_keyword(name.as_bytes(), true);
    let alone = tokens.statement().is_none() && !tokens.are_uncertain() && !tokens.has_open_comment();
    (is_plain && alone).then(|| name.strip_prefix('"').unwrap_or(name).as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::deallocated;

    #[test]
    fn a_lone_deallocate_names_one() {
        for (text, name) in [
            ("DEALLOCATE pdo_stmt_00000001", Some("pdo_stmt_00000001")),
            ("deallocate PREPARE \"S_1\" ;", Some("S_1")),
            ("deallocate S_1\0", Some("s_1")),
            ("deallocate all", None),
            ("deallocate a; select 1", None),
            ("deallocate a b", None),
            ("deallocate 'a'", None),
            ("deallocate \"\u{e4}\"", None),
            ("deallocate", None),
            ("; ;deallocate a", Some("a")),
            ("deallocate Select", None),
            ("deallocate \"select\"", Some("select")),
            ("deallocate a /* b", None),
            ("/* b */ deallocate a -- c", Some("a")),
        ] {
            assert_eq!(deallocated(text.as_bytes()).as_deref(), name.map(str::as_bytes), "{text}");
        }
    }
}
