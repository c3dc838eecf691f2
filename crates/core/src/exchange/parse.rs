//! Parse: what it is sent as, and under which parameters it is carried out.

use std::sync::Arc;

use weir_wire::frontend::Parse;
use weir_wire::report::{Report, Severity};
use weir_wire::{TransactionStatus, write};

use super::{Exchange, Exit, Verdict};
use crate::message::Message;
use crate::owed::{Note, Owed, Request, Standing, Touched};
use crate::server::Server;
use crate::statements::{Parsed, Presence, Statement, UNNAMED_BYTES_KEPT};

/// What may be owed ahead of the first statement with a name.
const UNREAD_MAX: usize = 64;

impl Exchange<'_> {
    pub(super) fn parse(&mut self, message: &Message<'_>) -> Verdict {
        self.count_parse();
        if !self.tracks {
            self.server.owed.push(Owed::client(Request::Parse));
            return self.forward(message);
        }
        let definition = match Parse::read(message.body()) {
            // Only an unnamed one is so long that it is not gathered.
            _ if message.present() < message.total => None,
            Ok(Parse { name: b"", definition }) => Some(definition),
            Ok(parse) => return self.parse_named(message, &parse),
            // PostgreSQL refuses it, as where it comes in pieces.
            Err(_) if message.body().len() > UNNAMED_BYTES_KEPT && message.body()[0] == 0 => None,
            Err(malformed) => return Verdict::Stop(Exit::failed(malformed.into())),
        };
        self.parse_unnamed(message, definition)
    }

    /// Always carried out by the server, also where it knows the text: what parsing makes of it may have changed since, with
    /// the tables and types that it names.
    fn parse_named(&mut self, message: &Message<'_>, parse: &Parse<'_>) -> Verdict {
        if self.server.is_crowded(self.cx) || self.session.statements.is_crowded(&self.server.owed) {
            return self.wait_for_replies();
        }
        let (session, server) = self.pair();
        let taken = session.statements.get(parse.name).is_some_and(|held| !session.statements.is_doubted(held));
        let in_doubt = session.statements.touched(parse.name, &server.owed) == Touched::InDoubt;
        // DEALLOCATE ALL may be among what is not answered yet, so that the name is not taken after all. Before there is a name no query is read for
        // that, and behind each that does so all that is owed is looked through.
        let first_behind_many = !session.statements.has_given() && server.owed.len() >= UNREAD_MAX;
        if in_doubt || (taken && !server.owed.is_empty()) || first_behind_many {
            return self.wait_for_replies();
        }
        if taken {
            let name = String::from_utf8_lossy(parse.name).into_owned();
            self.analyses(parse.definition);
            self.parse_for_nobody(parse.definition, Owed::ours(Request::Parse).note(Note::Text));
            return self.fail_in_order(message, already_exists(&name));
        }
        if !session.statements.has_room_for(parse.name, parse.definition.len()) {
            return self.fail_in_order(message, too_many_statements());
        }
        let (session, server) = (&mut *self.session, &mut *self.server);
        let reading = session.reading(&mut self.cx.parameter_sets);
        let statement = match server.parameters() {
            Touched::InDoubt => return self.wait_for_replies(),
            Touched::InThisBatch => self.cx.statements.private(parse.definition, reading),
            Touched::Answered => self.cx.statements.intern(parse.definition, reading),
        };
        let parsed = parsed(&statement, server);
        let shared = Arc::strong_count(&statement) > 2;
        let server = &mut *self.server;
        let presence = server.mirror.presence(&statement, &server.owed);
        if presence == Presence::InDoubt {
            return self.wait_for_replies();
        }
        let tried = may_be_taken(server);
        let (session, server) = self.pair();
        let number = session.statements.insert(parse.name, Arc::clone(&statement), server.owed.batch(), parsed);
        let note = Note::Named { name: parse.name.into(), statement: Arc::clone(&statement) };
        let owed = Owed::client(Request::Parse).name(number).note(note);
        #[cfg(feature = "planted")]
        if presence == Presence::Known && self.cx.planted == Some(crate::planted::Planted::KeepOldCopy) {
            self.parse_for_nobody(parse.definition, owed);
            return Verdict::Used(message.total);
        }
        if !shared {
            // A server that was on another worker meanwhile may have it all the same.
            statement.begin_anew();
        }
        // What it sets itself it is not parsed under.
        let asks_first = parsed == Parsed::Asked && self.may_set_itself(parse);
        if asks_first {
            self.ask_parameters(&statement);
        }
        match tried {
            true => self.prepare_and_try_name(&statement, parse.name, owed),
            false => self.prepare(&statement, owed),
        }
        // What that may set is behind it.
        self.analyses(parse.definition);
        if shared {
            self.server.ask_shape(self.server_id, &statement, true, self.cx);
        }
        if parsed == Parsed::Asked && !asks_first {
            self.ask_parameters(&statement);
        }
        Verdict::Used(message.total)
    }

    /// PostgreSQL looks last whether the name is taken (`exec_parse_message`, src/backend/tcop/postgres.c): what else is wrong
    /// with a text is the error then.
    fn parse_for_nobody(&mut self, definition: &[u8], owed: Owed) {
        let name = self.cx.statements.random_name();
        self.cx.out.send(self.server_id, |out| {
            write::parse(out, name.as_bytes(), definition);
            write::close_statement(out, name.as_bytes());
        });
        self.server.owed.push(owed);
        self.server.owed.push(Owed::ours(Request::Close));
    }

    /// That it is analysed may set what it is read under from then on.
    fn may_set_itself(&self, parse: &Parse<'_>) -> bool {
        self.server.kept.is_told() || self.server.kept.analysis_sets(parse.definition) != Some(false)
    }

    /// SQL may have prepared one of that name, which names something else there: then this fails as the client's Parse would, behind
    /// its text, which is carried out once.
    #[cold]
    fn prepare_and_try_name(&mut self, statement: &Arc<Statement>, name: &[u8], owed: Owed) {
        self.prepare(statement, Owed::ours(Request::Parse).name(owed.name).note(Note::Text));
        self.cx.out.send(self.server_id, |out| {
            write::parse(out, name, &[0; 3]);
            write::close_statement(out, name);
        });
        self.server.owed.push(owed);
        self.server.owed.push(Owed::ours(Request::Close));
    }

    fn count_parse(&mut self) {
        // PgBouncer counts none where it keeps none.
        let counts = self.tracks && self.cx.settings.max_prepared_statements > 0;
        self.counters.client_parses += u64::from(counts);
        self.counters.server_parses += u64::from(counts);
    }

    /// Prepares a statement on the server, in the write that is under way.
    pub(super) fn prepare(&mut self, statement: &Arc<Statement>, owed: Owed) {
        let server = &mut *self.server;
        let is_first = server.status == TransactionStatus::Idle && server.parameters() == Touched::Answered;
        server.prepare(self.server_id, statement, owed, !is_first, self.cx);
    }

    /// Asks the server, in the client's batch, what the parameters are that parsing reads: a statement is parsed under them.
    fn ask_parameters(&mut self, statement: &Statement) {
        let owed = Owed::ours(Request::Execute).statement(statement.id);
        // Where PostgreSQL tells what a session holds, no text is read for what it calls.
        let others = has_set_unreported(self.server) || self.server.kept.is_told();
        let question = statement.reading.asking(others);
        self.server.run_in_batch(self.server_id, question, owed, self.cx);
    }
}

/// SQL may have prepared anything. Where PostgreSQL tells that, it does so only between transactions.
fn may_be_taken(server: &Server) -> bool {
    let is_told_now =
        || server.owed.standing(server.status) == Standing::Between && server.status == TransactionStatus::Idle;
    server.kept.may_have_prepared() || (server.kept.is_told() && !is_told_now())
}

/// What is known of the parameters that a statement is parsed under which is sent now.
fn parsed(statement: &Statement, server: &Server) -> Parsed {
    // Anything executed in this batch may have called a function that sets some, and whatever its end tells, an error or a ROLLBACK may
    // have taken that back. Those that an earlier batch of the transaction has set are known as far as PostgreSQL reports them.
    let owed = &server.owed;
    let may_be_others = owed.has_executed()
        || (server.kept.has_set_unreported() && statement.reading.has_unreported())
        || has_set_unreported(server);
    // No question is answered in a failed transaction. What ends it is all that can be prepared there, and of that no more is read than strings.
    let ends_it = server.status == TransactionStatus::Failed && !owed.has_executed();
    if statement.private && may_be_others && !ends_it && !statement.reads_nothing() {
        Parsed::Asked
    } else {
        Parsed::Known
    }
}

/// Whether what is not reported may have been set since it was known last, where that goes with its client.
#[inline]
pub(super) fn has_set_unreported(server: &Server) -> bool {
    server.kept.on && (server.kept.has_set_unreported() || server.owed.has_executed_set())
}

fn already_exists(name: &str) -> Report {
    Report::new(Severity::Error, "42P05", format!("prepared statement \"{name}\" already exists"))
}

pub(super) fn too_many_statements() -> Report {
    Report::new(Severity::Error, "53400", "this client holds too many prepared statements")
        .hint("Close the statements that are no longer used.")
}
