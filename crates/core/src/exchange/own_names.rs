//! SQL that reaches what the protocol has prepared: EXECUTE, PREPARE and DEALLOCATE of such a name, and `pg_prepared_statements`.
//!
//! On servers those have names of Weir's, and other clients' are beside them. A client whose text reaches them gets a server of its own: Weir's
//! are closed there, its own are prepared by its own names, and what it sends from then on goes there as it is, up to its end. Who has
//! prepared nothing, and only looks, needs none of its own: there is nothing to see where all are closed.

use std::sync::Arc;

use weir_wire::frontend::Parse;
use weir_wire::{FrontendTag, TransactionStatus, write};

use super::deallocated::deallocated;
use super::sequences::{Carried, carried};
use super::{Exchange, Exit, Verdict};
use crate::client::Session;
use crate::context::Context;
use crate::failure::statements_elsewhere;
use crate::id::ServerId;
use crate::kept::leaves::Leaves;
use crate::message::Message;
use crate::owed::{Note, Owed, Request, UNNAMED};
use crate::parameters::ParameterSet;
use crate::server::Server;
use crate::sql::{Raw, Tokens};
use crate::statements::{ClientStatements, text_of};

/// What one client may have prepared again, all at once.
const STATEMENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 1024 * 1024;
/// Texts that stand in one another.
const NESTED_MAX: usize = 8;

/// What a text does with what the protocol has prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaches {
    Nothing,
    /// It names one of the client's.
    Own,
    /// It asks which there are.
    All,
}

impl Exchange<'_> {
    /// `None`: the message may be sent.
    pub(super) fn before_statements(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if !self.tracks || self.server.kept.refuses {
            return None;
        }
        let reaches = self.reaches_statements(message);
        let has_any = self.session.statements.len() > 0 || names_one(message);
        let own_names = match reaches {
            Reaches::Own => true,
            Reaches::All => has_any,
            Reaches::Nothing => return None,
        };
        let mirror = &self.server.mirror;
        if !own_names && mirror.len() == 0 && !mirror.is_in_doubt(&self.server.owed) {
            return None;
        }
        let (status, owed) = (self.server.status, &self.server.owed);
        let begins = owed.settled() || owed.closes_alone();
        if own_names && status == TransactionStatus::Failed && begins {
            // Nothing can be prepared before its end, and but for what ends it PostgreSQL carries nothing out.
            let ends = self.text_of(message).is_some_and(|text| Leaves::of(text).ends_transaction);
            return ends.then(|| self.fail_message(message, statements_elsewhere("End the transaction block first.")));
        }
        let comes = !owed.settled() && !owed.unsynced() && !owed.skipping();
        if comes || self.server.cancel_is_on_its_way() {
            // A cancel would hit what is sent for this.
            return Some(self.wait_for_replies());
        }
        if !own_names && message.tag != FrontendTag::Query {
            if self.server.mirror.is_in_doubt(&self.server.owed) {
                return Some(self.wait_for_replies());
            }
            self.server.close_statements(self.server_id, self.cx);
            return None;
        }
        if !begins {
            return Some(self.fail_message(message, statements_elsewhere("Send it behind a Sync.")));
        }
        let statements = &self.session.statements;
        if own_names && (statements.len() > STATEMENTS_MAX || statements.bytes() > BYTES_MAX) {
            return Some(self.fail_message(message, statements_elsewhere("Close statements that are no longer used.")));
        }
        let text = self.text_of(message).unwrap_or_default().to_vec();
        self.server.kept.shows(&text);
        Some(Verdict::Stop(Exit::NeedsStatements { own_names }))
    }

    fn text_of<'a>(&'a self, message: &'a Message<'_>) -> Option<&'a [u8]> {
        match carried(self.session, message) {
            Carried::Text(text, _) => Some(text),
            Carried::Statement(statement) => Some(text_of(&statement.definition)),
            Carried::Nothing | Carried::Unknown => None,
        }
    }

    fn reaches_statements(&self, message: &Message<'_>) -> Reaches {
        let (kept, statements) = (&self.server.kept, &self.session.statements);
        let Some(text) = self.text_of(message) else { return Reaches::Nothing };
        if Leaves::of(text).asks_statements || kept.asks_statements_by_call(text) {
            return Reaches::All;
        }
        let deallocates_one = message.tag == FrontendTag::Query && deallocated(message.body()).is_some();
        if !deallocates_one && uses_one(text, statements, 0) { Reaches::Own } else { Reaches::Nothing }
    }
}

/// Whether it prepares one that has a name.
fn names_one(message: &Message<'_>) -> bool {
    message.tag == FrontendTag::Parse && Parse::read(message.body()).is_ok_and(|parse| !parse.name.is_empty())
}

/// Whether a text, or one within it, names one of these where SQL names what is prepared.
fn uses_one(text: &[u8], statements: &ClientStatements, depth: usize) -> bool {
    if statements.len() == 0 {
        return false;
    }
    let mut tokens = Tokens::of(text);
    // Behind one of the words a name may stand.
    let (mut names, mut any) = (false, false);
    while let Some(token) = tokens.raw() {
        match token {
            Raw::Word(word) if names && statements.has_for_sql(&word.to_ascii_lowercase()) => return true,
            Raw::Name(name) if names && statements.has_for_sql(name) => return true,
            Raw::Text(inner) | Raw::Dollars(inner) if depth < NESTED_MAX && uses_one(inner, statements, depth + 1) => {
                return true;
            }
            _ => {}
        }
        let is_word = |word: &[u8]| matches!(token, Raw::Word(own) if own.eq_ignore_ascii_case(word));
        // DEALLOCATE PREPARE s.
        names = is_word(b"execute") || is_word(b"prepare") || is_word(b"deallocate");
        any |= names;
    }
    any && tokens.has_escaped_name()
}

impl Server {
    /// Those of Weir's go, in the batch under way.
    pub(crate) fn close_statements(&mut self, id: ServerId, cx: &mut Context) {
        for closed in self.mirror.close_all(self.owed.batch()) {
            cx.out.send(id, |out| write::close_statement(out, closed.statement().server_name.as_bytes()));
            self.owed.push(Owed::ours(Request::Close).note(Note::Evicted(closed)));
        }
    }

    /// The client's are prepared by its own names; what it sends from then on goes there as it is.
    pub(crate) fn give_own_names(&mut self, id: ServerId, session: &mut Session, cx: &mut Context) {
        let outside = self.status == TransactionStatus::Idle;
        let now = Arc::clone(session.reading(&mut cx.parameter_sets));
        let unnamed = self.clear_unnamed(id, session, cx);
        if outside {
            self.run_ahead(id, b"BEGIN".to_vec(), cx);
        }
        for (name, statement) in session.statements.certain() {
            self.give_own_name(id, name, &statement.definition, [&statement.reading, &now], cx);
            if let (Some(startup), Some(resets)) = (&mut session.startup, &statement.resets) {
                startup.has_own_name(name, resets);
            }
        }
        if let Some((definition, reading)) = unnamed {
            self.give_own_name(id, b"", &definition, [&reading, &now], cx);
        }
        if outside {
            self.run_ahead(id, b"ROLLBACK".to_vec(), cx);
        }
        self.tracks = false;
        self.kept.gives_own_names(self.owed.next_place(), cx.now);
    }

    /// Behind a savepoint: one that cannot be prepared any more is not there, and nothing else of the transaction is touched. What is prepared
    /// stays when that is gone back to (it is no part of any transaction, src/backend/commands/prepare.c). `reading`: the parameters that
    /// parsing reads, of when the client prepared it and of now.
    fn give_own_name(
        &mut self,
        id: ServerId,
        name: &[u8],
        definition: &[u8],
        reading: [&Arc<ParameterSet>; 2],
        cx: &mut Context,
    ) {
        let savepoint = cx.statements.random_name();
        let [of_then, now] = reading;
        self.run_ahead(id, format!("SAVEPOINT {savepoint}").into_bytes(), cx);
        let [before, _] = self.settings_around(definition, of_then, now);
        self.run_ahead(id, before, cx);
        cx.out.send(id, |out| write::parse(out, name, definition));
        let parse = Owed::ours(Request::Parse);
        self.owed.push(if name.is_empty() { parse.statement(UNNAMED) } else { parse });
        self.owed.sends_own(definition.len());
        let back = format!("ROLLBACK TO {savepoint}");
        self.run_ahead(id, back.clone().into_bytes(), cx);
        self.sync_ours(id, cx);
        // Where it has failed.
        self.run_ahead(id, back.into_bytes(), cx);
        self.run_ahead(id, format!("RELEASE {savepoint}").into_bytes(), cx);
        self.sync_ours(id, cx);
    }

    /// The unnamed statement is the client's too, or there is none. What is to be prepared, where that is not here.
    fn clear_unnamed(
        &mut self,
        id: ServerId,
        session: &mut Session,
        cx: &mut Context,
    ) -> Option<(Vec<u8>, Arc<ParameterSet>)> {
        let unnamed = &session.unnamed;
        if unnamed.id == self.mirror.unnamed {
            return None;
        }
        cx.out.send(id, |out| write::close_statement(out, b""));
        self.owed.push(Owed::ours(Request::Close).statement(UNNAMED));
        let then = unnamed.parameters.as_ref().unwrap_or(&session.parameters);
        let definition = unnamed.kept.definition.clone();
        let exists = unnamed.exists() && !definition.is_empty();
        exists.then(|| (definition, cx.parameter_sets.reading(then)))
    }
}
