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

use crate::client::{Client, Session};
use crate::exchange::requests::{Message, Verdict};
use crate::failure::Failure;
use crate::id::{ClientId, ServerId, Table};
use crate::owed::{HARMLESS, Note, Owed, Request, Touched, UNNAMED};
use crate::parameters::ParameterSet;
use crate::server::Server;
use crate::statements::{
    Bound, Effect, Parsed, Presence, Shape, Statement, UNNAMED_BYTES_KEPT, is_server_name, reads_nothing,
};
use crate::worker::Worker;

impl Worker {
    pub(crate) fn parse(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, tracks: bool) -> Verdict {
        let Some((_, server)) = self.pair(id, server_id) else { return Verdict::Wait };
        if !tracks {
            server.owed.push(Owed::client(Request::Parse));
            self.count_parse(id, tracks);
            return self.forward_request(id, server_id, message);
        }
        if message.present() < message.total {
            // Only an unnamed one is so long that it is not gathered.
            return self.parse_unnamed(id, server_id, message, b"");
        }
        match Parse::read(message.body()) {
            Ok(Parse { name: b"", definition }) => {
                let kept = if definition.len() <= UNNAMED_BYTES_KEPT { definition } else { b"" };
                self.parse_unnamed(id, server_id, message, kept)
            }
            Ok(parse) => self.parse_named(id, server_id, message, &parse),
            Err(malformed) => Verdict::Fail(malformed.into()),
        }
    }

    fn parse_unnamed(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, kept: &[u8]) -> Verdict {
        let statement = self.cx.statements.next_id();
        let Some((session, server)) = self.pair(id, server_id) else { return Verdict::Wait };
        if !session.unnamed.has_room_for(kept.len()) {
            return self.wait_for_replies(server_id);
        }
        session.unnamed.sends(statement, kept, server.owed.has_executed());
        server.mirror.unnamed_in = server.owed.batch();
        server.owed.push(Owed::client(Request::Parse).statement(UNNAMED));
        self.count_parse(id, true);
        self.forward_request(id, server_id, message)
    }

    /// Always carried out by the server, also where it knows the text: what parsing makes of it may have changed since, with
    /// the tables and types that it names.
    fn parse_named(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, parse: &Parse<'_>) -> Verdict {
        let Some((session, server)) = self.pair(id, server_id) else { return Verdict::Wait };
        let taken = session.statements.get(parse.name).is_some();
        let in_doubt = session.statements.touched(parse.name, &server.owed) == Touched::InDoubt;
        // DEALLOCATE ALL may be among what is not answered yet, so that the name is not taken after all.
        if in_doubt || (taken && !server.owed.is_empty()) {
            return self.wait_for_replies(server_id);
        }
        if taken {
            let name = String::from_utf8_lossy(parse.name).into_owned();
            self.parse_for_nobody(server_id, parse.definition, Owed::ours(Request::Parse));
            return self.fail_in_order(id, server_id, message, already_exists(&name));
        }
        if !session.statements.has_room_for(parse.name, parse.definition.len()) {
            return self.fail_in_order(id, server_id, message, too_many_statements());
        }
        let Some((session, server)) = pair(&mut self.clients, &mut self.servers, id, server_id) else {
            return Verdict::Wait;
        };
        let reading = session.reading(&mut self.cx.parameter_sets);
        let statement = match server.owed.parameters() {
            Touched::InDoubt => return self.wait_for_replies(server_id),
            Touched::InThisBatch => self.cx.statements.private(parse.definition, reading),
            Touched::Answered => self.cx.statements.intern(parse.definition, reading),
        };
        let parsed = parsed(&statement, server);
        let shared = Arc::strong_count(&statement) > 2;
        let Some((session, server)) = self.pair(id, server_id) else { return Verdict::Wait };
        let presence = server.mirror.presence(&statement, &server.owed);
        if presence == Presence::InDoubt {
            return self.wait_for_replies(server_id);
        }
        let number = session.statements.insert(parse.name, Arc::clone(&statement), server.owed.batch(), parsed);
        let note = Note::Named { name: parse.name.into(), statement: Arc::clone(&statement) };
        let owed = Owed::client(Request::Parse).name(number).note(note);
        #[cfg(feature = "planted")]
        if presence == Presence::Known && self.cx.planted == Some(crate::planted::Planted::KeepOldCopy) {
            self.parse_for_nobody(server_id, parse.definition, owed);
            return Verdict::Used(message.total);
        }
        if !shared {
            // A server that was on another worker meanwhile may have it all the same.
            statement.begin_anew();
        }
        self.prepare(server_id, &statement, owed);
        if shared {
            self.ask_shape(server_id, &statement, true);
        }
        if parsed == Parsed::Asked {
            self.ask_parameters(server_id, &statement);
        }
        self.count_parse(id, true);
        Verdict::Used(message.total)
    }

    /// PostgreSQL looks last whether the name is taken (`exec_parse_message`, src/backend/tcop/postgres.c): what else is wrong
    /// with a text is the error then.
    fn parse_for_nobody(&mut self, server_id: ServerId, definition: &[u8], owed: Owed) {
        let name = self.cx.statements.random_name();
        let Some(server) = self.servers.get_mut(server_id) else { return };
        self.cx.out.send(server_id, |out| {
            write::parse(out, name.as_bytes(), definition);
            write::close_statement(out, name.as_bytes());
        });
        server.owed.push(owed);
        server.owed.push(Owed::ours(Request::Close));
    }

    fn count_parse(&mut self, id: ClientId, tracks: bool) {
        // PgBouncer counts none where it keeps none.
        let counts = tracks && self.cx.settings.max_prepared_statements > 0;
        if let Some(client) = self.clients.get(id) {
            let counters = &mut self.pools[client.pool].counters;
            counters.client_parses += u64::from(counts);
            counters.server_parses += u64::from(counts);
        }
    }

    fn pair(&mut self, id: ClientId, server_id: ServerId) -> Option<(&mut Session, &mut Server)> {
        pair(&mut self.clients, &mut self.servers, id, server_id)
    }

    /// Prepares a statement on a server, in the write that is under way; closes an older copy, and makes room for it.
    fn prepare(&mut self, server_id: ServerId, statement: &Arc<Statement>, owed: Owed) {
        let Some(server) = self.servers.get_mut(server_id) else { return };
        let limit = self.cx.settings.max_prepared_statements as usize;
        let batch = server.owed.batch();
        let older = server.mirror.close(statement.id, batch);
        for evicted in [older, server.mirror.evict(limit, &server.owed)].into_iter().flatten() {
            let name = Arc::clone(&evicted.statement);
            self.cx.out.send(server_id, |out| write::close_statement(out, name.server_name.as_bytes()));
            server.owed.push(Owed::ours(Request::Close).note(Note::Evicted(evicted)));
        }
        let (name, definition) = (statement.server_name.as_bytes(), &statement.definition);
        self.cx.out.send(server_id, |out| write::parse(out, name, definition));
        let is_first = server.status == TransactionStatus::Idle && server.owed.parameters() == Touched::Answered;
        server.mirror.add(statement, batch, !is_first);
        server.owed.push(owed.statement(statement.id));
    }

    /// Asks the server what it makes of a statement. `anew`: right behind its Parse.
    fn ask_shape(&mut self, server_id: ServerId, statement: &Statement, anew: bool) {
        let Some(server) = self.servers.get_mut(server_id) else { return };
        server.mirror.set_shape(statement.id, Shape::Asked { anew });
        server.owed.push(Owed::ours(Request::DescribeStatement).statement(statement.id));
        self.cx.out.send(server_id, |out| write::describe_statement(out, statement.server_name.as_bytes()));
    }

    /// Asks the server, in the client's batch, what the parameters are that parsing reads: a statement was parsed under them.
    fn ask_parameters(&mut self, server_id: ServerId, statement: &Statement) {
        self.run_in_batch(server_id, statement.reading.asking(), Owed::ours(Request::Execute).statement(statement.id));
    }

    pub(crate) fn bind(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, tracks: bool) -> Verdict {
        if !tracks {
            if let Some(server) = self.servers.get_mut(server_id) {
                server.owed.push(Owed::client(Request::Bind));
            }
            return self.forward_request(id, server_id, message);
        }
        let Some(names) = BindNames::parse(message.body()) else {
            return Verdict::Fail(Failure::NameTooLong);
        };
        match self.statement_for(id, server_id, names.statement) {
            Named::InDoubt => self.wait_for_replies(server_id),
            Named::AsItIs => {
                let unnamed = names.statement.is_empty();
                let session = self.clients.get(id).and_then(|client| client.session());
                let effect = session.filter(|_| unnamed).map_or(Effect::Anything, |session| session.unnamed.effect);
                self.binds(server_id, &names, if unnamed { UNNAMED } else { 0 }, 0, effect);
                self.forward_request(id, server_id, message)
            }
            Named::Anothers => self.fail_in_order(id, server_id, message, does_not_exist(names.statement)),
            Named::Lost => self.give_up(id, server_id, message, names.statement),
            Named::Ours(statement, number) => {
                match self.check_rows(id, server_id, &statement, number) {
                    Rows::AsExpected => {}
                    Rows::NotKnownYet => return self.wait_for_replies(server_id),
                    Rows::Changed => {
                        if let Some((session, server)) = self.pair(id, server_id) {
                            session.statements.refuses(number, server.owed.batch());
                        }
                        return self.fail_in_order(id, server_id, message, result_type_changed());
                    }
                }
                self.binds(server_id, &names, statement.id, number, statement.effect);
                let values = message.total - HEADER_LEN - names.len();
                let name = statement.server_name.as_bytes();
                self.cx.out.send(server_id, |out| write::bind_names(out, names.portal, name, values));
                self.forward_rest(id, server_id, message, HEADER_LEN + names.len())
            }
        }
    }

    fn binds(&mut self, server_id: ServerId, names: &BindNames<'_>, statement: u64, name: u64, effect: Effect) {
        let counts = self.cx.settings.max_prepared_statements > 0;
        let Some(server) = self.servers.get_mut(server_id) else { return };
        self.pools[server.pool].counters.binds += u64::from(counts);
        if names.portal.is_empty() {
            let batch = server.owed.batch();
            let statement = if statement == UNNAMED { 0 } else { statement };
            server.mirror.binds(Bound { statement, name, batch, effect });
        } else if effect == Effect::Anything {
            // What is in a portal with a name is not known any more when it is executed.
            server.owed.sets_unreported();
        }
        server.owed.push(Owed::client(Request::Bind).statement(statement).name(name));
    }

    pub(crate) fn execute(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>) -> Verdict {
        let Some(server) = self.servers.get_mut(server_id) else { return Verdict::Wait };
        let unnamed = message.body().first() == Some(&0);
        let effect = if unnamed { server.mirror.bound_in(server.owed.batch()).effect } else { Effect::Tagged };
        if effect.may_set() {
            self.executes_set(id, server_id, effect);
        } else {
            if effect == Effect::Plain {
                server.owed.executes_anything();
            }
            let harmless = effect == Effect::SetsUnread;
            server.owed.push(Owed::client(Request::Execute).statement(if harmless { HARMLESS } else { 0 }));
        }
        self.forward_request(id, server_id, message)
    }

    /// Something is executed that may set parameters, for all that its text says.
    fn executes_set(&mut self, id: ClientId, server_id: ServerId, effect: Effect) {
        let Some((session, server)) = self.pair(id, server_id) else { return };
        let batch = server.owed.batch();
        server.mirror.set_in = batch;
        if let Some(parsed) = session.statements.parsed_as_before(batch).map(Arc::clone) {
            // What was parsed earlier in this batch was parsed under what there is in front of this.
            self.ask_parameters(server_id, &parsed);
        }
        let Some(server) = self.servers.get_mut(server_id) else { return };
        server.owed.executes_anything();
        match effect {
            Effect::Anything => server.owed.sets_unreported(),
            Effect::Deallocates => server.owed.deallocates(),
            _ => {}
        }
        server.owed.push(Owed::client(Request::Execute));
    }

    /// Describe and Close.
    pub(crate) fn target(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, tracks: bool) -> Verdict {
        let target = match Target::parse(message.body()) {
            Ok(target) => target,
            Err(malformed) => return Verdict::Fail(malformed.into()),
        };
        let close = message.tag == FrontendTag::Close;
        let request = match (close, target) {
            (true, _) => Request::Close,
            (false, Target::Statement(_)) => Request::DescribeStatement,
            (false, Target::Portal(_)) => Request::DescribePortal,
        };
        if let (true, Target::Statement(name)) = (tracks, target) {
            if close {
                return self.close_statement(id, server_id, message, name);
            }
            match self.statement_for(id, server_id, name) {
                Named::InDoubt => return self.wait_for_replies(server_id),
                Named::Ours(statement, number) => {
                    let name = statement.server_name.as_bytes();
                    self.cx.out.send(server_id, |out| write::describe_statement(out, name));
                    if let Some(server) = self.servers.get_mut(server_id) {
                        server.owed.push(Owed::client(request).statement(statement.id).name(number));
                    }
                    return Verdict::Used(message.total);
                }
                Named::Lost => return self.give_up(id, server_id, message, name),
                Named::Anothers => return self.fail_in_order(id, server_id, message, does_not_exist(name)),
                Named::AsItIs => {}
            }
        }
        let Some(server) = self.servers.get_mut(server_id) else { return Verdict::Wait };
        let bound =
            if target == Target::Portal(b"") { server.mirror.bound_in(server.owed.batch()) } else { Bound::default() };
        server.owed.push(Owed::client(request).statement(bound.statement).name(bound.name));
        self.forward_request(id, server_id, message)
    }

    /// A named statement stays on the server for its other users; only the client forgets it.
    fn close_statement(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, name: &[u8]) -> Verdict {
        let Some((session, server)) = self.pair(id, server_id) else { return Verdict::Wait };
        let batch = server.owed.batch();
        if name.is_empty() {
            server.mirror.unnamed_in = batch;
            server.owed.push(Owed::client(Request::Close).statement(UNNAMED));
            return self.forward_request(id, server_id, message);
        }
        if session.statements.touched(name, &server.owed) == Touched::InDoubt {
            return self.wait_for_replies(server_id);
        }
        let removed = session.statements.remove(name, batch);
        // To close a statement that does not exist is no error: nor is it for one that exists for others only.
        if removed.is_none() && !is_server_name(name) {
            // One that SQL PREPARE made: PostgreSQL's own.
            server.owed.push(Owed::client(Request::Close));
            return self.forward_request(id, server_id, message);
        }
        let note = Note::Closed { name: name.into(), held: removed };
        server.owed.push(Owed::client(Request::Made).note(note));
        self.answer_made(server_id);
        Verdict::Used(message.total)
    }

    /// Makes sure that the server knows the statement a client names.
    fn statement_for(&mut self, id: ClientId, server_id: ServerId, name: &[u8]) -> Named {
        if name.is_empty() {
            return self.restore_unnamed(id, server_id);
        }
        let Some((session, server)) = pair(&mut self.clients, &mut self.servers, id, server_id) else {
            return Named::AsItIs;
        };
        if server.owed.is_deallocating() || session.statements.touched(name, &server.owed) == Touched::InDoubt {
            return Named::InDoubt;
        }
        let (statements, reading) = session.statements_under(&mut self.cx.parameter_sets);
        let Some(held) = statements.get_mut(name) else {
            // An unknown name is PostgreSQL's to answer: it may be one that SQL PREPARE made.
            return if is_server_name(name) { Named::Anothers } else { Named::AsItIs };
        };
        let (statement, number) = (Arc::clone(held.used_under(reading, &mut self.cx.statements)), held.number);
        let parameters = server.owed.parameters();
        let presumed = (parameters != Touched::Answered).then(|| Arc::clone(reading));
        match server.mirror.presence(&statement, &server.owed) {
            Presence::InDoubt => return Named::InDoubt,
            Presence::Unknown if held.is_unknown() => return Named::Lost,
            Presence::Unknown if parameters == Touched::InDoubt => return Named::InDoubt,
            Presence::Unknown => self.prepare_under(id, server_id, &statement, number),
            Presence::Known => {}
        }
        if let (Some(reading), Some(server)) = (presumed, self.servers.get_mut(server_id)) {
            server.mirror.used_presuming(statement.id, &reading);
        }
        Named::Ours(statement, number)
    }

    /// Nobody can tell what the statement that the client names was parsed under, and the server does not have it: it is gone.
    fn give_up(&mut self, id: ClientId, server_id: ServerId, message: &Message<'_>, name: &[u8]) -> Verdict {
        if let Some((session, server)) = self.pair(id, server_id) {
            session.statements.remove(name, server.owed.batch());
        }
        let report = does_not_exist(name)
            .detail("Parameters changed in the batch in which it was prepared, and only the server that has it knows which it was parsed under.")
            .hint("Prepare the statement again.");
        self.fail_in_order(id, server_id, message, report)
    }

    /// Prepares a client's statement on another server than the one that it was prepared on, under the parameters of that time.
    fn prepare_under(&mut self, id: ClientId, server_id: ServerId, statement: &Arc<Statement>, number: u64) {
        let [before, behind] = self.settings_around(id, server_id, &statement.definition, &statement.reading);
        self.run_ahead(server_id, before);
        self.prepare(server_id, statement, Owed::ours(Request::Parse).name(number));
        self.run_ahead(server_id, behind);
    }

    /// The queries that bring the parameters that parsing reads to these values and back, up to the end of the transaction at the
    /// latest. Behind a request of the same batch that may have changed them nobody knows what they are: they are kept by the
    /// server, and taken back from there.
    fn settings_around(
        &mut self,
        id: ClientId,
        server_id: ServerId,
        definition: &[u8],
        reading: &Arc<ParameterSet>,
    ) -> [Vec<u8>; 2] {
        let parts = pair(&mut self.clients, &mut self.servers, id, server_id).filter(|_| !reads_nothing(definition));
        let Some((session, server)) = parts else { return Default::default() };
        if server.owed.parameters() != Touched::Answered {
            return [reading.pinning(), reading.unpinning()];
        }
        let now = session.reading(&mut self.cx.parameter_sets);
        if Arc::ptr_eq(now, reading) {
            return Default::default();
        }
        // The client has changed them since.
        [now.local_settings(reading), reading.local_settings(now)]
    }

    /// Runs a query of ours, if there is one, in messages that are part of the client's batch: they are skipped with it where it
    /// fails.
    pub(crate) fn run_ahead(&mut self, server_id: ServerId, text: Vec<u8>) {
        self.run_in_batch(server_id, text, Owed::ours(Request::Execute));
    }

    fn run_in_batch(&mut self, server_id: ServerId, text: Vec<u8>, execute: Owed) {
        if text.is_empty() {
            return;
        }
        let mut definition = text;
        // The end of the text, and no types.
        definition.extend_from_slice(&[0; 3]);
        let name = self.cx.statements.random_name();
        let name = name.as_bytes();
        let Some(server) = self.servers.get_mut(server_id) else { return };
        self.cx.out.send(server_id, |out| {
            write::parse(out, name, &definition);
            write::bind_without_values(out, name, name);
            write::execute(out, name);
            write::close_portal(out, name);
            write::close_statement(out, name);
        });
        let [parse, bind, close] = [Request::Parse, Request::Bind, Request::Close].map(Owed::ours);
        for owed in [parse, bind, execute, close, Owed::ours(Request::Close)] {
            server.owed.push(owed);
        }
    }

    pub(crate) fn sync_ours(&mut self, server_id: ServerId) {
        let Some(server) = self.servers.get_mut(server_id) else { return };
        self.cx.out.send(server_id, write::sync);
        server.owed.push(Owed::ours(Request::Sync));
    }

    /// The unnamed statement is the client's, wherever it was parsed: another server gets it again, and one that holds
    /// somebody else's has it closed, so that nobody ever binds what is not his.
    fn restore_unnamed(&mut self, id: ClientId, server_id: ServerId) -> Named {
        #[cfg(feature = "planted")]
        let believed = self.cx.planted == Some(crate::planted::Planted::BelieveUnnamed);
        #[cfg(not(feature = "planted"))]
        let believed = false;
        let Some((session, server)) = self.pair(id, server_id) else { return Named::AsItIs };
        match server.owed.touched(server.mirror.unnamed_in) {
            Touched::InThisBatch => return Named::AsItIs,
            Touched::InDoubt if believed => return Named::AsItIs,
            Touched::InDoubt => return Named::InDoubt,
            Touched::Answered if session.unnamed.id == server.mirror.unnamed => return Named::AsItIs,
            Touched::Answered => {}
        }
        let exists = session.unnamed.id != 0 && !session.unnamed.definition.is_empty();
        if exists && server.owed.parameters() == Touched::InDoubt {
            return Named::InDoubt;
        }
        server.mirror.unnamed_in = server.owed.batch();
        if !exists {
            server.owed.push(Owed::ours(Request::Close).statement(UNNAMED));
            self.cx.out.send(server_id, |out| write::close_statement(out, b""));
            return Named::AsItIs;
        }
        let then = session.unnamed.parameters.as_ref().unwrap_or(&session.parameters);
        let (then, definition) = (Arc::clone(then), std::mem::take(&mut session.unnamed.definition));
        let then = self.cx.parameter_sets.reading(&then);
        let [before, behind] = self.settings_around(id, server_id, &definition, &then);
        self.run_ahead(server_id, before);
        self.cx.out.send(server_id, |out| write::parse(out, b"", &definition));
        if let Some((session, server)) = self.pair(id, server_id) {
            session.unnamed.definition = definition;
            server.owed.push(Owed::ours(Request::Parse).statement(UNNAMED));
        }
        self.run_ahead(server_id, behind);
        Named::AsItIs
    }

    /// Compares the rows that the server's plan returns with those that the client was told to expect.
    ///
    /// A plan's rows change when somebody alters a table. A server that planned before then refuses the statement
    /// itself; one that planned after would return rows that the client takes for something else. So a client that has
    /// asked for the description of a statement is served only where the description is known to be the same: the
    /// first time that a server gets the statement, the client's message waits for it. `number`: of the client's name for it.
    fn check_rows(&mut self, id: ClientId, server_id: ServerId, statement: &Statement, number: u64) -> Rows {
        let Some((session, server)) = self.pair(id, server_id) else { return Rows::NotKnownYet };
        let Some(expected) = session.statements.expected(number) else { return Rows::AsExpected };
        match server.mirror.shape(statement.id) {
            Shape::Is(shape) if shape.agrees(&expected) => Rows::AsExpected,
            Shape::Is(_) | Shape::Long => {
                // It may be the server's copy that is old.
                server.mirror.doubt(statement.id);
                Rows::Changed
            }
            Shape::Asked { .. } => Rows::NotKnownYet,
            Shape::Unknown => {
                self.ask_shape(server_id, statement, false);
                Rows::NotKnownYet
            }
        }
    }

    /// Answers a message with an error of ours where its reply belongs: something that must fail is sent in its place.
    pub(crate) fn fail_in_order(
        &mut self,
        id: ClientId,
        server_id: ServerId,
        message: &Message<'_>,
        report: Report,
    ) -> Verdict {
        let owed = Owed::client(Request::DescribeStatement);
        self.send_what_fails(server_id, owed.note(Note::Fails(Box::new(report))));
        self.skip(id, message)
    }

    /// Has PostgreSQL skip what follows up to the next Sync: it is asked for a statement that is not there, under a name that
    /// nobody knows, so that nobody can give it.
    pub(crate) fn send_what_fails(&mut self, id: ServerId, owed: Owed) {
        debug_assert!(owed.request == Request::DescribeStatement);
        let absent = self.cx.statements.random_name();
        let Some(server) = self.servers.get_mut(id) else { return };
        self.cx.out.send(id, |out| write::describe_statement(out, absent.as_bytes()));
        server.owed.push(owed);
    }
}

/// A client's session and the server that it is linked to.
fn pair<'a>(
    clients: &'a mut Table<ClientId, Client>,
    servers: &'a mut Table<ServerId, Server>,
    id: ClientId,
    server_id: ServerId,
) -> Option<(&'a mut Session, &'a mut Server)> {
    Some((clients.get_mut(id)?.session_mut()?, servers.get_mut(server_id)?))
}

/// What is known of the parameters that a statement is parsed under which is sent now.
fn parsed(statement: &Statement, server: &Server) -> Parsed {
    // Those that an earlier batch has set are known as far as PostgreSQL reports them.
    if !statement.private || !server.owed.has_executed() || statement.reads_nothing() {
        Parsed::Known
    } else if server.mirror.set_in == server.owed.batch() {
        Parsed::Asked
    } else {
        Parsed::AsBefore
    }
}

/// Whether a statement returns what its client expects.
enum Rows {
    AsExpected,
    NotKnownYet,
    Changed,
}

/// How a statement's name goes to the server.
enum Named {
    AsItIs,
    /// By the name on the server of the statement, or of the copy that is for this client's parameters.
    /// The number is that of the client's name.
    Ours(Arc<Statement>, u64),
    /// No server can be given it any more.
    Lost,
    /// By our name for it, which no client is told: to this client it does not exist.
    Anothers,
    /// Not known before something that is owed has come.
    InDoubt,
}

/// PostgreSQL's own words for it (`RevalidateCachedQuery`).
fn result_type_changed() -> Report {
    Report::new(Severity::Error, "0A000", "cached plan must not change result type")
        .hint("Prepare the statement again.")
        // asyncpg and pgjdbc look for it before they prepare anew by themselves.
        .routine("RevalidateCachedQuery")
}

/// PostgreSQL's own words for it (`FetchPreparedStatement`).
pub(crate) fn does_not_exist(name: &[u8]) -> Report {
    let name = String::from_utf8_lossy(name);
    Report::new(Severity::Error, "26000", format!("prepared statement \"{name}\" does not exist"))
}

fn already_exists(name: &str) -> Report {
    Report::new(Severity::Error, "42P05", format!("prepared statement \"{name}\" already exists"))
}

pub(crate) fn too_many_statements() -> Report {
    Report::new(Severity::Error, "53400", "this client holds too many prepared statements")
        .hint("Close the statements that are no longer used.")
}
