//! SQL that reaches what the protocol has prepared: EXECUTE, PREPARE and DEALLOCATE of such a name, and `pg_prepared_statements`.
//!
//! On servers those have names of Weir's, and other clients' are beside them. A client whose text reaches them gets a server of its own: Weir's
//! are closed there, its own are prepared by its own names, and what it sends from then on goes there as it is, up to its end. Who has
//! prepared nothing, and only looks, needs none of its own: there is nothing to see where all are closed.

use std::sync::Arc;

use weir_wire::backend::StatementShape;
use weir_wire::frontend::{Parse, SMALL_MESSAGE_LEN_MAX};
use weir_wire::{BackendTag, FrontendTag, TransactionStatus, write};

use super::deallocated::deallocated;
use super::replies::Reply;
use super::requests::calls_large_object;
use super::sequences::{Carried, carried};
use super::shapes::rows_of;
use super::{Answers, Exchange, Exit, Verdict};
use crate::client::Session;
use crate::context::Context;
use crate::failure::statements_elsewhere;
use crate::id::ServerId;
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::kept::words::NESTED_MAX;
use crate::message::Message;
use crate::owed::{Owed, Request, Standing, UNNAMED};
use crate::parameters::ParameterSet;
use crate::server::Server;
use crate::sql::{Raw, Tokens};
use crate::statements::definition::text_of;

/// What one client may have prepared again, all at once.
const STATEMENTS_MAX: usize = 1000;
const BYTES_MAX: usize = 1024 * 1024;
/// For a table that one of them names, and somebody has locked: no cancel of the client's ends that.
const LOCK_TIMEOUT_MS: u32 = 100;

/// PostgreSQL has it since 17.
const NO_TRANSACTION_TIMEOUT: &[u8] = b"SELECT pg_catalog.set_config(E'transaction_timeout', E'0', true) \
    WHERE pg_catalog.current_setting(E'transaction_timeout', true) IS NOT NULL";

/// What a text does with what the protocol has prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reaches {
    Nothing,
    /// It runs what only PostgreSQL knows.
    Perhaps,
    /// It names one of the client's.
    Own,
    /// It asks which there are.
    All,
}

impl Exchange<'_> {
    /// The client's own names were to be given, and all is answered that was sent for it.
    #[cold]
    pub(super) fn names_are_given(&mut self) {
        if self.server.kept.has_own_names(self.cx.now) {
            (self.server.tracks, self.tracks) = (false, false);
            let statements = &self.session.statements;
            let named =
                statements.iter().any(|(_, _, held)| self.alters(held.statement.leaves(), &held.statement.reading));
            let then = self.session.unnamed_under();
            let unnamed = self.server.mirror.unnamed_definition(&self.session.unnamed);
            let is_unread = self.session.unnamed.is_unread();
            let unnamed_alters = is_unread || self.alters(&Leaves::of(unnamed), then);
            self.server.kept.own_names_alter |= named || unnamed_alters;
            if let Some(startup) = &mut self.session.startup {
                for (name, _, held) in self.session.statements.iter() {
                    startup.has_own_name(name, text_of(&held.statement.definition));
                }
                let unnamed = self.server.mirror.unnamed_definition(&self.session.unnamed);
                startup.has_own_name(b"", text_of(unnamed));
            }
            // What is prepared from here on is not known, nor what that leaves.
            return self.server.kept.sent(&Leaves::any(Kinds::LASTING), b"EXECUTE");
        }
        // Those that were given go: nothing has changed for the client.
        let (server, session) = (&mut *self.server, &mut *self.session);
        for (name, _, _) in session.statements.iter() {
            self.cx.out.send(self.server_id, |out| write::close_statement(out, name));
            server.owed.push(Owed::ours(Request::Close));
        }
        server.sync_ours(self.server_id, self.cx);
    }

    /// A message goes to where names are its client's own.
    #[cold]
    pub(super) fn before_own_names(&mut self, message: &Message<'_>) {
        // The client would see them.
        self.server.close_left_over(self.server_id, self.cx);
        if !self.server.kept.reads {
            return;
        }
        if message.tag == FrontendTag::Parse {
            let alters = match carried(self.session, &self.server.mirror, message) {
                Carried::Text(text, _) => self.alters(&Leaves::of(text), &self.session.parameters),
                _ => true,
            };
            // For good: a Parse of the same name that would take its place may be skipped.
            self.server.kept.own_names_alter |= alters;
        } else if matches!(message.tag, FrontendTag::Bind | FrontendTag::Query) && self.server.kept.own_names_alter {
            self.server.kept.sent(&Leaves::unknown(), b"EXECUTE");
        }
    }

    /// Whether it may change code that others call.
    fn alters(&self, leaves: &Leaves, under: &ParameterSet) -> bool {
        leaves.alters || self.misreads(leaves, under, self.may_be_read_otherwise())
    }

    /// `None`: the message may be sent.
    pub(super) fn before_statements(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if !self.tracks || self.server.kept.refuses {
            return None;
        }
        let reaches = self.reaches_statements(message);
        if reaches != Reaches::Nothing && self.closes_in_doubt() {
            // What the client has closed may be there after all, where that was skipped.
            return Some(self.wait_for_replies());
        }
        let has_any = self.session.statements.len() > 0 || names_one(message);
        let own_names = match reaches {
            Reaches::Own => true,
            Reaches::All | Reaches::Perhaps => has_any,
            Reaches::Nothing => return None,
        };
        self.server.kept.asks_later |= reaches == Reaches::All;
        self.server.kept.may_ask_later |= reaches == Reaches::Perhaps;
        if reaches == Reaches::Perhaps && !self.may_have_own_names() {
            self.server.kept.names_failed = false;
            return None;
        }
        let Server { mirror, owed, .. } = &*self.server;
        if !own_names && mirror.len() == 0 && !mirror.is_in_doubt(owed) {
            // In the same write: behind a Sync of its own what is held would be looked for again, which may fail again.
            self.server.close_left_over(self.server_id, self.cx);
            return None;
        }
        let standing = self.server.owed.standing(self.server.status);
        if own_names && self.server.status == TransactionStatus::Failed && standing == Standing::Between {
            // Nothing can be prepared before its end, and but for what ends it PostgreSQL carries nothing out.
            let ends = self.text_of(message).is_some_and(|text| Leaves::of(text).ends_transaction);
            return ends.then(|| self.fail_message(message, statements_elsewhere("End the transaction block first.")));
        }
        if standing == Standing::Later || self.server.cancel_is_on_its_way() {
            // A cancel would hit what is sent for this.
            return Some(self.wait_for_replies());
        }
        if !own_names && !matches!(message.tag, FrontendTag::Query | FrontendTag::FunctionCall) {
            if self.server.mirror.is_in_doubt(&self.server.owed) {
                return Some(self.wait_for_replies());
            }
            self.server.close_statements(self.server_id, self.cx);
            return None;
        }
        if standing == Standing::Within {
            return Some(self.fail_message(message, statements_elsewhere("Send it behind a Sync.")));
        }
        if own_names && self.session.listens {
            // What it sends by its own names is not known here, nor what that leaves of its channels.
            return Some(
                self.fail_message(message, statements_elsewhere("UNLISTEN, or listen on another connection.")),
            );
        }
        if own_names && (self.has_too_many() || std::mem::take(&mut self.server.kept.names_failed)) {
            return Some(self.fail_message(message, statements_elsewhere("Close statements that are no longer used.")));
        }
        let text = self.text_of(message).unwrap_or_default().to_vec();
        self.server.kept.shows(&text);
        Some(Verdict::Stop(Exit::NeedsStatements { own_names }))
    }

    /// Where it cannot be had, what may need it mostly does not.
    fn may_have_own_names(&self) -> bool {
        let fails = self.server.status == TransactionStatus::Failed || self.cx.now < self.server.kept.names_again_at;
        self.server.owed.standing(self.server.status) != Standing::Within
            && !fails
            && !self.has_too_many()
            && !self.session.listens
    }

    /// There are more than are given names at once, or one that cannot be prepared again, or be described by its name.
    fn has_too_many(&self) -> bool {
        let statements = &self.session.statements;
        statements.len() > STATEMENTS_MAX
            || statements.bytes() > BYTES_MAX
            || statements.iter().any(|(name, _, held)| {
                name.len() >= SMALL_MESSAGE_LEN_MAX as usize - 1 || held.is_unknown() || statements.is_doubted(held)
            })
    }

    fn text_of<'a>(&'a self, message: &'a Message<'_>) -> Option<&'a [u8]> {
        match carried(self.session, &self.server.mirror, message) {
            Carried::Text(text, _) => Some(text),
            Carried::Statement(statement) => Some(text_of(&statement.definition)),
            Carried::Nothing | Carried::TooLong | Carried::Unknown => None,
        }
    }

    fn reaches_statements(&self, message: &Message<'_>) -> Reaches {
        let (kept, statements) = (&self.server.kept, &self.session.statements);
        let calls = message.tag == FrontendTag::FunctionCall && !calls_large_object(message);
        let is_unread = matches!(carried(self.session, &self.server.mirror, message), Carried::TooLong);
        if calls || is_unread {
            return Reaches::Perhaps;
        }
        let Some(text) = self.text_of(message) else { return Reaches::Nothing };
        let deallocates_one = message.tag == FrontendTag::Query && deallocated(message.body()).is_some();
        match kept.asks_statements(text) {
            Some(true) => Reaches::All,
            _ if kept.asks_later && names_one(message) => Reaches::All,
            _ if !deallocates_one && (statements.len() > 0 || self.closes_in_doubt()) && self.uses_one(text, 0) => {
                Reaches::Own
            }
            Some(false) if !(kept.may_ask_later && names_one(message)) => Reaches::Nothing,
            _ => Reaches::Perhaps,
        }
    }

    fn closes_in_doubt(&self) -> bool {
        self.session.statements.closes_in_doubt(&self.server.owed)
    }

    /// Whether a text, or one within it, names one of the client's where SQL names what is prepared, or one that may be there.
    fn uses_one(&self, text: &[u8], depth: usize) -> bool {
        let mut tokens = Tokens::of(text);
        // Behind one of the words a name may stand.
        let (mut names, mut any) = (false, false);
        let in_doubt = self.closes_in_doubt();
        let may_be_one = |name: &[u8]| in_doubt || self.session.statements.has_for_sql(name);
        while let Some(token) = tokens.raw() {
            match token {
                Raw::Word(word) if names && may_be_one(&word.to_ascii_lowercase()) => return true,
                // Two quotes stand for one.
                Raw::Name(name)
                    if names && may_be_one(&String::from_utf8_lossy(name).replace("\"\"", "\"").into_bytes()) =>
                {
                    return true;
                }
                Raw::Text(inner) | Raw::Dollars(inner) if depth < NESTED_MAX && self.uses_one(inner, depth + 1) => {
                    return true;
                }
                _ => {}
            }
            let is_word = |word: &[u8]| matches!(token, Raw::Word(own) if own.eq_ignore_ascii_case(word));
            // DEALLOCATE PREPARE s.
            names = is_word(b"execute") || is_word(b"prepare") || is_word(b"deallocate");
            any |= names;
        }
        any && tokens.are_illegible()
    }
}

/// Whether it prepares one that has a name.
fn names_one(message: &Message<'_>) -> bool {
    message.tag == FrontendTag::Parse && Parse::read(message.body()).is_ok_and(|parse| !parse.name.is_empty())
}

impl Answers<'_> {
    /// What a statement takes and returns that has got its client's name. False where that cannot be read.
    pub(super) fn own_name_described(&mut self, reply: &Reply<'_>) -> bool {
        let Some(body) = reply.whole_body() else { return false };
        if reply.tag == BackendTag::ParameterDescription {
            self.server.owed.takes(body);
            return true;
        }
        let Some(rows) = rows_of(reply.tag, body) else { return false };
        let (server, session) = self.pair();
        let shape = StatementShape::new(rows, server.owed.taken());
        let number = server.owed.front().map_or(0, |owed| owed.name);
        let expected = session.and_then(|session| session.statements.expected(number));
        if expected.is_some_and(|expected| !shape.agrees(&expected)) {
            server.kept.names_fail(server.owed.front_place());
        }
        true
    }
}

impl Server {
    /// Those of Weir's go, in the batch under way.
    pub(crate) fn close_statements(&mut self, id: ServerId, cx: &mut Context) {
        self.close_left_over(id, cx);
        for closed in self.mirror.close_all(self.owed.batch()) {
            self.send_close(id, closed, cx);
        }
    }

    /// The client's are prepared by its own names, all of them or none: each must be as the client was told. What is prepared stays when the
    /// transaction, or the savepoint in the client's, is gone back to (it is no part of any, src/backend/commands/prepare.c).
    pub(crate) fn give_own_names(&mut self, id: ServerId, session: &mut Session, cx: &mut Context) {
        let within = self.status == TransactionStatus::InTransaction;
        let savepoint = cx.statements.random_name();
        let now = Arc::clone(session.reading(&mut cx.parameter_sets));
        let unnamed = self.clear_unnamed(id, session, cx);
        let begins = if within { format!("SAVEPOINT {savepoint}") } else { "BEGIN".to_owned() };
        self.run_ahead(id, begins.into_bytes(), cx);
        self.run_ahead(id, format!("SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}").into_bytes(), cx);
        // The client's is for what it asks for, and not for how many statements it has.
        self.run_ahead(id, b"SET LOCAL statement_timeout = 0".to_vec(), cx);
        if !within {
            self.run_ahead(id, NO_TRANSACTION_TIMEOUT.to_vec(), cx);
        }
        // `prepare_time` in pg_prepared_statements tells the order.
        for (name, number, held) in session.statements.as_given() {
            let statement = &held.statement;
            self.give_own_name(id, (name, number), &statement.definition, [&statement.reading, &now], cx);
        }
        if let Some((definition, reading)) = unnamed {
            self.give_own_name(id, (b"", 0), &definition, [&reading, &now], cx);
        }
        self.sync_ours(id, cx);
        let goes_back = if within { format!("ROLLBACK TO {savepoint}") } else { "ROLLBACK".to_owned() };
        self.run_ahead(id, goes_back.into_bytes(), cx);
        if within {
            self.run_ahead(id, format!("RELEASE {savepoint}").into_bytes(), cx);
        }
        self.sync_ours(id, cx);
        self.kept.gives_own_names(self.owed.next_place(), cx.now);
    }

    /// `reading`: the parameters that parsing reads, of when the client prepared it and of now.
    fn give_own_name(
        &mut self,
        id: ServerId,
        (name, number): (&[u8], u64),
        definition: &[u8],
        reading: [&Arc<ParameterSet>; 2],
        cx: &mut Context,
    ) {
        let [of_then, now] = reading;
        let [before, behind] = self.settings_around(definition, of_then, now);
        self.run_ahead(id, before, cx);
        cx.out.send(id, |out| write::parse(out, name, definition));
        let parse = Owed::ours(Request::Parse);
        self.owed.push(if name.is_empty() { parse.statement(UNNAMED) } else { parse });
        self.owed.sends_own(definition.len());
        if !name.is_empty() {
            cx.out.send(id, |out| write::describe_statement(out, name));
            self.owed.push(Owed::ours(Request::DescribeStatement).name(number));
        }
        self.run_ahead(id, behind, cx);
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
        let then = session.unnamed_under();
        let definition = unnamed.kept.definition.clone();
        unnamed.is_portable().then(|| (definition, cx.parameter_sets.reading(then)))
    }
}
