//! Requests that name prepared statements: Parse, Bind, Describe and Close.
//!
//! A client's name leads to a statement, a statement to a name that the server knows; where the server does not know it
//! yet, it is prepared in the same write. What a statement is, and who knows which, is kept in `statements`.
//!
//! What an unanswered batch has touched (a name, a server's copy, the unnamed statement, the parameters that parsing reads) is
//! not certain in a later batch: the message that needs it waits for the answer.

use std::sync::Arc;

use weir_wire::frontend::{BindNames, Parse, Target};
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, HEADER_LEN, TransactionStatus, write};

use super::rows::Rows;
use super::{Exchange, Exit, Verdict};
use crate::failure::Failure;
use crate::kept::Kinds;
use crate::kept::leaves::Leaves;
use crate::message::Message;
use crate::owed::{HARMLESS, Note, Owed, Request, Standing, Touched, UNNAMED};
use crate::parameters::ParameterSet;
use crate::server::Server;
use crate::statements::{
    Bound, Closes, Effect, Held, Parsed, Presence, Runs, Shape, Statement, UNNAMED_BYTES_KEPT, is_server_name,
};

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
            self.parse_for_nobody(parse.definition, Owed::ours(Request::Parse));
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
        // PostgreSQL tells it only between transactions.
        let is_told_now =
            server.owed.standing(server.status) == Standing::Between && server.status == TransactionStatus::Idle;
        if server.kept.may_have_prepared() || (server.kept.is_told() && !is_told_now) {
            self.try_name(parse);
        }
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
        self.prepare(&statement, owed);
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

    /// SQL may have prepared one of that name: then this fails as the client's Parse would, which names something else there.
    #[cold]
    fn try_name(&mut self, parse: &Parse<'_>) {
        if !self.may_set_itself(parse) {
            self.parse_for_nobody(parse.definition, Owed::ours(Request::Parse));
        }
        self.cx.out.send(self.server_id, |out| {
            write::parse(out, parse.name, &[0; 3]);
            write::close_statement(out, parse.name);
        });
        self.server.owed.push(Owed::ours(Request::Parse));
        self.server.owed.push(Owed::ours(Request::Close));
    }

    fn count_parse(&mut self) {
        // PgBouncer counts none where it keeps none.
        let counts = self.tracks && self.cx.settings.max_prepared_statements > 0;
        self.counters.client_parses += u64::from(counts);
        self.counters.server_parses += u64::from(counts);
    }

    /// Prepares a statement on the server, in the write that is under way.
    fn prepare(&mut self, statement: &Arc<Statement>, owed: Owed) {
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

    pub(super) fn bind(&mut self, message: &Message<'_>) -> Verdict {
        if !self.tracks {
            self.server.owed.push(Owed::client(Request::Bind));
            return self.forward(message);
        }
        let Some(names) = BindNames::parse(message.body()) else {
            return Verdict::Stop(Exit::failed(Failure::NameTooLong));
        };
        if !names.portal.is_empty() && self.server.kept.on {
            self.may_commit_code(message);
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
        let leaves = if unnamed.is_unread() { Leaves::unknown() } else { Leaves::of_definition(&text) };
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
        if self.server.kept.is_told() {
            // No text is read for what its planning runs, or the check of a value's domain.
            self.server.owed.executes_anything();
        }
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
                Named::AsItIs => {}
            }
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
        if removed.is_none() && !is_server_name(name) {
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

    /// Answers a message with an error of ours where its reply belongs: something that must fail is sent in its place.
    pub(super) fn fail_in_order(&mut self, message: &Message<'_>, report: Report) -> Verdict {
        let owed = Owed::client(Request::DescribeStatement);
        self.server.send_what_fails(self.server_id, owed.note(Note::Fails(Box::new(report))), self.cx);
        self.skip(message)
    }
}

/// What is known of the parameters that a statement is parsed under which is sent now.
fn parsed(statement: &Statement, server: &Server) -> Parsed {
    // Anything executed in this batch may have called a function that sets some, and whatever its end tells, an error or a ROLLBACK may
    // have taken that back. Those that an earlier batch of the transaction has set are known as far as PostgreSQL reports them.
    let owed = &server.owed;
    let may_be_others = owed.has_executed()
        || (server.kept.has_set_unreported() && statement.reading.has_unreported())
        || has_set_unreported(server);
    if statement.private && may_be_others && !statement.reads_nothing() { Parsed::Asked } else { Parsed::Known }
}

/// Whether what is not reported may have been set since it was known last, where that goes with its client.
#[inline]
pub(super) fn has_set_unreported(server: &Server) -> bool {
    server.kept.on && (server.kept.has_set_unreported() || server.owed.has_executed_set())
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

fn already_exists(name: &str) -> Report {
    Report::new(Severity::Error, "42P05", format!("prepared statement \"{name}\" already exists"))
}

pub(super) fn too_many_statements() -> Report {
    Report::new(Severity::Error, "53400", "this client holds too many prepared statements")
        .hint("Close the statements that are no longer used.")
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
