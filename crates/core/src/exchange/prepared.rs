//! Requests that use prepared statements: Bind, Execute, Describe and Close. Parse is in `parse.rs`.
//!
//! A client's name leads to a statement, a statement to a name that the server knows; where the server does not know it
//! yet, it is prepared in the same write. What a statement is, and who knows which, is kept in `statements`.
//!
//! What an unanswered batch has touched (a name, a server's copy, the unnamed statement, the parameters that parsing reads) is
//! not certain in a later batch: the message that needs it waits for the answer.

use std::sync::Arc;

use weir_wire::frontend::{BindNames, Target};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, TransactionStatus, write};

use super::rows::Rows;
use super::{Exchange, Exit, Verdict};
use crate::failure::Failure;
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::message::{Message, PORTAL_NAME_MAX};
use crate::owed::{HARMLESS, Note, Owed, Request, Touched, UNNAMED};
use crate::parameters::ParameterSet;
use crate::server::Server;
use crate::statements::{Bound, Closes, Effect, Held, Presence, Runs, Shape, Statement, is_server_name};

impl Exchange<'_> {
    pub(super) fn bind(&mut self, message: &Message<'_>) -> Verdict {
        if !self.tracks {
            self.server.owed.push(Owed::client(Request::Bind));
            return self.forward(message);
        }
        let Some(names) = BindNames::parse(message.body()) else {
            return Verdict::Stop(Exit::failed(Failure::NameTooLong));
        };
        if !names.portal.is_empty() {
            if names.portal.len() >= PORTAL_NAME_MAX {
                return Verdict::Stop(Exit::failed(Failure::NameTooLong));
            }
            if self.server.kept.on {
                self.may_commit_code(message);
            }
        }
        match self.statement_for(names.statement, message.tag) {
            Named::InDoubt => self.wait_for_replies(),
            Named::AsItIs => {
                let unnamed = names.statement.is_empty();
                if self.server.kept.reads {
                    self.binds_leaving(unnamed);
                }
                let effect = if unnamed { self.session.unnamed.effect } else { Effect::Anything };
                self.binds(&names, if unnamed { UNNAMED } else { 0 }, 0, effect);
                self.forward(message)
            }
            Named::Anothers => self.fail_in_order(message, does_not_exist(names.statement)),
            Named::Changed => self.refuse_changed(message),
            Named::Lost => self.give_up(message, names.statement),
            Named::LostUnnamed => self.fail_in_order(message, lost_unnamed()),
            Named::Ours(statement, number) => {
                match self.check_rows(&statement, number) {
                    Rows::AsExpected => {}
                    rows => match self.is_told_with_it(message, names.portal, number) {
                        Ok(true) => self.doubt_copy(&rows, statement.id),
                        Ok(false) => return self.not_as_told(&rows, statement.id, message),
                        Err(need) => return Verdict::More(need),
                    },
                }
                if self.server.kept.reads {
                    self.binds_leaving_so_much(&statement);
                }
                self.binds(&names, statement.id, number, statement.effect);
                let values = message.total - HEADER_LEN - names.len();
                let name = statement.server_name.as_bytes();
                self.cx.out.send(self.server_id, |out| write::bind_names(out, names.portal, name, values));
                self.forward_rest(message, HEADER_LEN + names.len())
            }
        }
    }

    #[inline(never)]
    fn binds_leaving_so_much(&mut self, statement: &Statement) {
        if self.server.kept.plain {
            return;
        }
        self.leaves(statement.leaves(), &statement.definition, &statement.reading, false);
        self.server.kept.calls_statement(statement);
    }

    /// The unnamed statement is bound, or one that SQL has prepared, whose text is not known here.
    #[inline(never)]
    fn binds_leaving(&mut self, unnamed: bool) {
        if !unnamed {
            return self.server.kept.sent(&Leaves::any(Kinds::ANY), b"Bind");
        }
        if self.server.kept.plain {
            return;
        }
        let unnamed = &self.session.unnamed;
        let then = Arc::clone(self.session.unnamed_under());
        if let Some(statement) = self.server.mirror.long_unnamed(unnamed).map(Arc::clone) {
            self.leaves(statement.leaves(), &statement.definition, &then, false);
            return self.server.kept.calls_statement(&statement);
        }
        let text = unnamed.last().to_vec();
        let leaves = if unnamed.is_unread() { Leaves::unknown() } else { Leaves::of(&text) };
        self.leaves(&leaves, &text, &then, false);
        self.server.kept.calls(&text, &leaves);
    }

    fn binds(&mut self, names: &BindNames<'_>, statement: u64, name: u64, effect: Effect) {
        let counts = self.cx.settings.max_prepared_statements > 0;
        self.counters.binds += u64::from(counts);
        let which = if statement == UNNAMED { self.server.mirror.unnamed_sent } else { name };
        let bound = Bound {
            statement,
            name: which,
            batch: self.server.owed.batch(),
            place: self.server.owed.next_place(),
            effect,
        };
        if names.portal.is_empty() {
            self.server.mirror.binds(bound);
        } else {
            self.server.mirror.binds_portal(names.portal, bound);
            if effect.may_set_untold() {
                // What is in a portal with a name is not known any more when it is executed.
                self.server.kept.sets_unreported();
            }
        }
        if Closes::of_execute(effect) != Closes::Nothing {
            self.server.mirror.deallocating_portal_in = self.server.owed.batch();
        }
        // For what its planning runs, or the check of a value's domain.
        self.may_run_what_nobody_reads();
        self.server.owed.push(Owed::client(Request::Bind).statement(statement).name(name));
    }

    pub(super) fn execute(&mut self, message: &Message<'_>) -> Verdict {
        let (named, effect) = self.effect_of(message);
        if !named && !matches!(effect, Effect::Plain | Effect::BeginsTransaction | Effect::SetsUnread) {
            // It may be a CLOSE, or a DECLARE.
            self.server.mirror.forget_named_portals();
        }
        if effect.may_set() {
            self.executes_set(effect);
        } else {
            if matches!(effect, Effect::Plain | Effect::EndsTransaction) {
                self.server.owed.executes_anything();
            }
            let harmless = effect == Effect::SetsUnread;
            self.server.owed.push(Owed::client(Request::Execute).statement(if harmless { HARMLESS } else { 0 }));
        }
        // What a named portal executes is not known.
        self.server.owed.executes(if named { Runs::MayBeEmpty } else { effect.runs() });
        self.forward(message)
    }

    /// What an Execute may do, and whether it is of a portal with a name.
    #[inline(always)]
    pub(super) fn effect_of(&self, message: &Message<'_>) -> (bool, Effect) {
        let batch = self.server.owed.batch();
        let mirror = &self.server.mirror;
        let bound = mirror.bound_in(batch);
        let named = message.body().first() != Some(&0);
        let effect = match named {
            false if bound.batch == batch => bound.effect,
            _ if mirror.has_deallocating_portal() => Effect::Unknown,
            false => Effect::Anything,
            true => Effect::Tagged,
        };
        (named, effect)
    }

    /// Something is executed that may set parameters, for all that its text says.
    fn executes_set(&mut self, effect: Effect) {
        let (session, server) = self.pair();
        let last_given = session.statements.last_given();
        server.owed.executes_set();
        if effect.may_set_untold() {
            server.kept.sets_unreported();
        }
        let closes = Closes::of_execute(effect);
        if closes != Closes::Nothing {
            server.owed.deallocates();
        }
        server.owed.push(closes.mark(Owed::client(Request::Execute), last_given));
    }

    /// Describe and Close.
    pub(super) fn target(&mut self, message: &Message<'_>) -> Verdict {
        let target = match Target::parse(message.body()) {
            Ok(target) => target,
            Err(malformed) => return Verdict::Stop(Exit::failed(malformed.into())),
        };
        let close = message.tag == FrontendTag::Close;
        let request = match (close, target) {
            (true, _) => Request::Close,
            (false, Target::Statement(_)) => Request::DescribeStatement,
            (false, Target::Portal(_)) => Request::DescribePortal,
        };
        if let (true, Target::Statement(name)) = (self.tracks, target) {
            if close {
                return self.close_statement(message, name);
            }
            match self.statement_for(name, message.tag) {
                Named::InDoubt => return self.wait_for_replies(),
                Named::Ours(statement, number) => {
                    match self.check_rows(&statement, number) {
                        Rows::AsExpected => {}
                        rows => return self.not_as_told(&rows, statement.id, message),
                    }
                    self.may_be_analysed_anew(&statement);
                    let name = statement.server_name.as_bytes();
                    self.cx.out.send(self.server_id, |out| write::describe_statement(out, name));
                    self.server.owed.push(Owed::client(request).statement(statement.id).name(number));
                    return Verdict::Used(message.total);
                }
                Named::Lost => return self.give_up(message, name),
                Named::LostUnnamed => return self.fail_in_order(message, lost_unnamed()),
                Named::Anothers => return self.fail_in_order(message, does_not_exist(name)),
                Named::Changed => return self.refuse_changed(message),
                // No name that SQL gives is so long.
                Named::AsItIs if message.is_too_long() => return self.fail_in_order(message, does_not_exist(name)),
                Named::AsItIs => {}
            }
        } else if message.is_too_long() {
            return Verdict::Stop(Exit::failed(Failure::MessageLength { tag: message.tag as u8 }));
        }
        let bound = match target {
            // That is no Close of its statement.
            Target::Portal(name) if close => {
                self.server.mirror.closes_portal(name);
                Bound::default()
            }
            Target::Portal(name) => self.described_portal(name),
            Target::Statement(b"") if self.tracks => {
                self.unnamed_may_be_analysed_anew();
                Bound { statement: UNNAMED, name: self.server.mirror.unnamed_sent, ..Bound::default() }
            }
            _ => Bound::default(),
        };
        if bound.batch != 0 && self.server.owed.touched(bound.batch) == Touched::InDoubt {
            // Where its Bind fails, a portal of before is described.
            return self.wait_for_replies();
        }
        if request == Request::DescribePortal {
            self.server.mirror.describes_portal(bound);
        }
        self.server.owed.push(Owed::client(request).statement(bound.statement).name(bound.name));
        self.forward(message)
    }

    /// A named statement stays on the server for its other users; only the client forgets it.
    fn close_statement(&mut self, message: &Message<'_>, name: &[u8]) -> Verdict {
        let (session, server) = self.pair();
        let batch = server.owed.batch();
        if name.is_empty() {
            server.mirror.unnamed_in = batch;
            server.mirror.unnamed_shape = Shape::Unknown;
            server.owed.push(Owed::client(Request::Close).statement(UNNAMED));
            return self.forward(message);
        }
        // It may be gone with that: where its Close is skipped it would count as there again.
        let deallocates = server.owed.is_deallocating();
        // A copy that is closed with it must be there, or not: what is evicted counts as there again where its Close is skipped.
        let closes_in_doubt =
            |held: &Held| held.statement.private && server.mirror.awaits(held.statement.id, &server.owed);
        if deallocates
            || session.statements.touched(name, &server.owed) == Touched::InDoubt
            || session.statements.get(name).is_some_and(closes_in_doubt)
        {
            return self.wait_for_replies();
        }
        let removed = session.statements.remove(name, batch);
        // To close a statement that does not exist is no error: nor is it for one that exists for others only.
        if removed.is_none() && !is_server_name(name) && !message.is_too_long() {
            // One that SQL PREPARE made: PostgreSQL's own.
            server.owed.push(Owed::client(Request::Close));
            return self.forward(message);
        }
        let statement = removed.as_ref().map(|held| Arc::clone(&held.statement));
        let note = Note::Closed { name: name.into(), held: removed };
        server.owed.push(Owed::client(Request::Made).note(note));
        if let Some(statement) = statement {
            self.server.close_private(self.server_id, &statement, self.cx);
        }
        self.server.answer_made(self.cx);
        Verdict::Used(message.total)
    }

    /// Makes sure that the server knows the statement a client names.
    fn statement_for(&mut self, name: &[u8], of: FrontendTag) -> Named {
        if name.is_empty() {
            return self.restore_unnamed();
        }
        let (session, server) = (&mut *self.session, &mut *self.server);
        if server.owed.is_deallocating() || session.statements.touched(name, &server.owed) == Touched::InDoubt {
            return Named::InDoubt;
        }
        let doubted_until = session.statements.doubted_until;
        let (statements, reading) = session.statements_under(&mut self.cx.parameter_sets);
        let Some(held) = statements.get_mut(name) else {
            // An unknown name is PostgreSQL's to answer: it may be one that SQL PREPARE made.
            return if is_server_name(name) { Named::Anothers } else { Named::AsItIs };
        };
        if held.number <= doubted_until {
            return Named::Lost;
        }
        let (statement, number) = (Arc::clone(held.used_under(reading, &mut self.cx.statements)), held.number);
        let parameters = server.parameters();
        let planned = parameters != Touched::Answered && !statement.private && !statement.reads_nothing();
        let unsure = planned.then(|| Arc::clone(reading));
        match server.mirror.presence(&statement, &server.owed) {
            Presence::InDoubt => return Named::InDoubt,
            Presence::Unknown if held.is_unknown() => match use_of_doubtful(server, &statement) {
                Use::None => return Named::Lost,
                Use::NotKnownYet => return Named::InDoubt,
                Use::AsItIs => {}
            },
            Presence::Unknown if parameters == Touched::InDoubt => return Named::InDoubt,
            // What the client is told of it comes with that answer.
            Presence::Unknown if server.owed.describes(number) => return Named::InDoubt,
            Presence::Unknown if server.is_crowded(self.cx) => return Named::InDoubt,
            Presence::Unknown => self.prepare_under(&statement, number),
            Presence::Known => {}
        }
        if let Some(reading) = unsure {
            self.server.mirror.used_unsure(statement.id);
            // What PostgreSQL does not report no answer tells: it is prepared again behind the transaction.
            if parameters == Touched::InThisBatch && !self.server.kept.has_set_unreported() {
                self.ask_ahead(&statement, reading, of);
            }
        }
        Named::Ours(statement, number)
    }

    /// PostgreSQL plans or analyses anew what is used, under the parameters of that moment, and keeps that for all. What was executed ahead
    /// of it in this batch may have set any, and may take it back before a ReadyForQuery tells.
    #[cold]
    fn ask_ahead(&mut self, statement: &Statement, reading: Arc<ParameterSet>, of: FrontendTag) {
        // A Describe takes no snapshot, and a CALL may have to be the first of its transaction: no query may stand in front of those.
        let asks = of == FrontendTag::Bind && matches!(statement.effect, Effect::Plain | Effect::Calls);
        let batch = self.server.owed.batch();
        if self.server.mirror.used_blindly(statement.id, batch, asks && reading.is_ascii()) {
            let question = reading.asking(false);
            let owed = Owed::ours(Request::Execute).statement(statement.id).note(Note::Presumes(reading));
            self.server.run_in_batch(self.server_id, question, owed, self.cx);
        }
    }

    /// Nobody can tell what the statement that the client names was parsed under, and the server does not have it, or nobody can
    /// tell whether the client still has it: it is gone.
    fn give_up(&mut self, message: &Message<'_>, name: &[u8]) -> Verdict {
        let held = self.session.statements.remove(name, self.server.owed.batch());
        let detail = if held.as_ref().is_some_and(|held| self.session.statements.is_doubted(held)) {
            "A request that failed may have deallocated it: PostgreSQL does not tell whether it came so far."
        } else {
            "Parameters changed in the batch in which it was prepared, and only the server that has it knows which it was parsed under."
        };
        // PostgreSQL may skip this message: the client is told nothing then, and has the name still.
        self.server.owed.push(Owed::ours(Request::Made).note(Note::Closed { name: name.into(), held }));
        self.server.answer_made(self.cx);
        let report = does_not_exist(name).detail(detail).hint("Prepare the statement again.");
        self.fail_in_order(message, report)
    }

    /// Prepares a client's statement on another server than the one that it was prepared on, under the parameters of that time.
    fn prepare_under(&mut self, statement: &Arc<Statement>, number: u64) {
        let [before, behind] = self.settings_around(&statement.definition, &statement.reading);
        self.sets_around(&before);
        self.run_ahead(before);
        self.prepare(statement, Owed::ours(Request::Parse).name(number));
        self.run_ahead(behind);
        self.analyses_again(&statement.definition);
    }

    /// Where PostgreSQL tells what a session holds, it tells of these too, with the ReadyForQuery of the client's batch.
    pub(super) fn sets_around(&mut self, settings: &[u8]) {
        if self.server.exact.is_some() && !settings.is_empty() {
            self.server.owed.executes_set();
        }
    }

    pub(super) fn settings_around(&mut self, definition: &[u8], reading: &Arc<ParameterSet>) -> [Vec<u8>; 2] {
        let now = self.session.reading(&mut self.cx.parameter_sets);
        self.server.settings_around(definition, reading, now)
    }
}

/// How a statement's name goes to the server.
pub(super) enum Named {
    AsItIs,
    /// By the name on the server of the statement, or of the copy that is for this client's parameters.
    /// The number is that of the client's name.
    Ours(Arc<Statement>, u64),
    /// No server can be given it any more.
    Lost,
    LostUnnamed,
    /// By our name for it, which no client is told: to this client it does not exist.
    Anothers,
    /// It is not as the client was told.
    Changed,
    /// Not known before something that is owed has come.
    InDoubt,
}

#[cold]
fn lost_unnamed() -> Report {
    Report::new(Severity::Error, "26000", "unnamed prepared statement does not exist any more")
        .detail("It was parsed behind a change of parameters in its transaction, and only the server that has it knows which it was parsed under.")
        .hint("Parse it again, or give it a name.")
}

/// PostgreSQL's own words for it (`FetchPreparedStatement`).
fn does_not_exist(name: &[u8]) -> Report {
    let name = String::from_utf8_lossy(name);
    Report::new(Severity::Error, "26000", format!("prepared statement \"{name}\" does not exist"))
}

/// Of what use a copy is that may be planned under anything.
enum Use {
    None,
    NotKnownYet,
    AsItIs,
}

/// In a transaction that has failed nothing is carried out, so whatever the copy was planned under, it is the client's statement.
fn use_of_doubtful(server: &Server, statement: &Statement) -> Use {
    let failed = server.status == TransactionStatus::Failed && server.mirror.get(statement.id).is_some();
    match (failed, server.owed.awaits_ready()) {
        // What is under way may end the transaction.
        (true, true) => Use::NotKnownYet,
        (true, false) if !server.owed.has_executed() => Use::AsItIs,
        _ => Use::None,
    }
}
