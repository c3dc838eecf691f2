//! Messages of ours to a server, and replies that are ours to make. Knows of a client only who it is, and what its session has.

use std::sync::Arc;

use weir_wire::{TransactionStatus, write};

use crate::client::Session;
use crate::context::Context;
use crate::id::{ClientId, ServerId};
use crate::inbox::Body;
use crate::kept::look::{Look, write_seed};
use crate::kept::words::Code;
use crate::kept::{Kinds, Lists};
use crate::owed::{COMMITS, Note, Owed, Request, Touched};
use crate::parameters::ParameterSet;
use crate::parameters::startup::Startup;
use crate::pool::welcome::{STANDBY, standby_value};
use crate::server::{Hold, Server, ServerState};
use crate::statements::{Evicted, Shape, Statement, reads_nothing};

pub(crate) const FORGETS_SEQUENCES: &[u8] = b"DISCARD SEQUENCES";
/// The user that a session is of: PostgreSQL reports it.
const SESSION_USER: &str = "session_authorization";

impl Server {
    /// Sends simple queries of ours; answers how many, as `write` does. `mark`: what stands with what is owed.
    pub(crate) fn send_own_queries(
        &mut self,
        id: ServerId,
        mark: u64,
        cx: &mut Context,
        write: impl FnOnce(&mut Vec<u8>) -> usize,
    ) -> usize {
        let mut queries = 0;
        cx.out.send(id, |out| queries = write(out));
        for _ in 0..queries {
            self.owe_own_query(mark);
        }
        queries
    }

    /// Brings its session to these parameters; answers by how many queries.
    pub(crate) fn bring_to(&mut self, id: ServerId, wanted: &Arc<ParameterSet>, cx: &mut Context) -> usize {
        let have = std::mem::replace(&mut self.parameters, Arc::clone(wanted));
        let mark = have.mark_of_former();
        self.send_own_queries(id, mark, cx, |out| have.write_difference(wanted, out))
    }

    /// A client that gets it was told otherwise by another server, or before it was promoted.
    #[cold]
    pub(crate) fn tell_standby(&self, id: ClientId, session: &mut Session, cx: &mut Context) {
        if let Some(is_standby) = self.standby.filter(|_| session.standby != self.standby) {
            cx.out.send(id, |out| write::parameter_status(out, STANDBY, standby_value(is_standby)));
            session.standby = self.standby;
        }
    }

    /// What `nextval` gave to others is nobody's any more.
    #[cold]
    pub(crate) fn forget_sequences(&mut self, id: ServerId, cx: &mut Context) {
        self.kept.own_sequences = true;
        self.hold = Hold::Parameters;
        self.run_ahead(id, FORGETS_SEQUENCES.to_vec(), cx);
        self.sync_ours(id, cx);
    }

    /// Whether it may rest with those that its client has: all of them are known, since what texts leave is or the module has told them, and
    /// the next client that has the same needs no query.
    #[cold]
    pub(crate) fn keeps_parameters(&self) -> bool {
        self.kept.on && self.parameters.may_rest()
    }

    /// Whether it has parameters of its client's that PostgreSQL does not report.
    pub(crate) fn leaves_unreported(&self, cx: &Context) -> bool {
        let unreported = self.parameters.has_unreported();
        #[cfg(feature = "planted")]
        let unreported =
            unreported && (cx.planted != Some(crate::planted::Planted::BelieveTags) || self.kept.has_set_unreported());
        #[cfg(not(feature = "planted"))]
        let _ = cx;
        unreported
    }

    /// Runs a query of ours, if there is one, in messages of the extended protocol: part of the client's batch, with which they are skipped where it
    /// fails, or of one that a Sync of ours ends.
    pub(crate) fn run_ahead(&mut self, id: ServerId, text: Vec<u8>, cx: &mut Context) {
        self.run_in_batch(id, text, Owed::ours(Request::Execute), cx);
    }

    pub(crate) fn run_in_batch(&mut self, id: ServerId, text: Vec<u8>, execute: Owed, cx: &mut Context) {
        if !text.is_empty() {
            self.run_with(id, text, &[0; 6], execute, cx);
        }
    }

    /// `values`: what its Bind says behind the names.
    fn run_with(&mut self, id: ServerId, text: Vec<u8>, values: &[u8], execute: Owed, cx: &mut Context) {
        let mut definition = text;
        // The end of the text, and no types.
        definition.extend_from_slice(&[0; 3]);
        self.close_left_over(id, cx);
        let own = cx.statements.random_name();
        let name = own.as_bytes();
        cx.out.send(id, |out| {
            write::parse(out, name, &definition);
            write::bind_names(out, name, name, values.len());
            out.extend_from_slice(values);
            write::execute(out, name);
            write::close_portal(out, name);
            write::close_statement(out, name);
        });
        let [parse, bind, close] = [Request::Parse, Request::Bind, Request::Close].map(Owed::ours);
        for owed in [parse, bind, execute, close.note(Note::Own(own.into())), Owed::ours(Request::Close)] {
            self.owed.push(owed);
        }
        self.owed.sends_own(definition.len());
        self.owed.executes_ours();
    }

    /// Asks for a user's secret or roles. The client whose login waits for that hears of no error.
    pub(crate) fn ask_about_user(&mut self, id: ServerId, query: &str, user: &str, cx: &mut Context) {
        // One value, as text; and text is wanted.
        let length = (user.len() as u32).to_be_bytes();
        let values = [&[0, 0, 0, 1][..], &length, user.as_bytes(), &[0, 0]].concat();
        self.run_with(id, query.into(), &values, Owed::ours(Request::Execute), cx);
        self.hold = Hold::Parameters;
        self.sync_ours(id, cx);
    }

    /// Statements of queries of ours that have failed.
    pub(crate) fn close_left_over(&mut self, id: ServerId, cx: &mut Context) {
        for own in std::mem::take(&mut self.left_over) {
            cx.out.send(id, |out| write::close_statement(out, own.as_bytes()));
            self.owed.push(Owed::ours(Request::Close).note(Note::Own(own)));
        }
    }

    /// Prepares a statement in the write that is under way; closes an older copy, and makes room for it. `behind_others`: something may
    /// have been executed in its transaction already.
    pub(crate) fn prepare(
        &mut self,
        id: ServerId,
        statement: &Arc<Statement>,
        owed: Owed,
        behind_others: bool,
        cx: &mut Context,
    ) {
        let limit = cx.settings.max_prepared_statements as usize;
        let batch = self.owed.batch();
        if let Some(older) = self.mirror.close(statement.id, batch) {
            self.send_close(id, older, cx);
        }
        for evicted in self.mirror.make_room(limit, &self.owed) {
            self.send_close(id, evicted, cx);
        }
        let (name, definition) = (statement.server_name.as_bytes(), &statement.definition);
        cx.out.send(id, |out| write::parse(out, name, definition));
        self.mirror.add(statement, &self.owed, behind_others);
        let ours = owed.ours;
        self.owed.push(owed.statement(statement.id));
        if ours {
            self.owed.sends_own(definition.len());
        }
    }

    /// Nothing more is prepared before it has answered.
    pub(crate) fn is_crowded(&self, cx: &Context) -> bool {
        self.mirror.is_crowded(cx.settings.max_prepared_statements as usize, &self.owed)
    }

    pub(crate) fn send_close(&mut self, id: ServerId, evicted: Evicted, cx: &mut Context) {
        let name = evicted.statement().server_name.as_bytes();
        cx.out.send(id, |out| write::close_statement(out, name));
        self.owed.push(Owed::ours(Request::Close).note(Note::Evicted(evicted)));
    }

    /// Its client has given up the name of a statement that is nobody else's.
    pub(crate) fn close_private(&mut self, id: ServerId, statement: &Statement, cx: &mut Context) {
        if statement.private
            && let Some(evicted) = self.mirror.close(statement.id, self.owed.batch())
        {
            self.send_close(id, evicted, cx);
        }
    }

    /// Asks what it makes of a statement. `anew`: right behind its Parse.
    pub(crate) fn ask_shape(&mut self, id: ServerId, statement: &Statement, anew: bool, cx: &mut Context) {
        self.mirror.set_shape(statement.id, Shape::Asked { anew });
        self.owed.push(Owed::ours(Request::DescribeStatement).statement(statement.id));
        cx.out.send(id, |out| write::describe_statement(out, statement.server_name.as_bytes()));
    }

    /// The queries that bring the parameters that parsing reads to these values and back, up to the end of the transaction at the
    /// latest; `now`: what they are. Behind a request of the same batch that may have changed them nobody knows that: they are kept by
    /// the server, and taken back from there.
    pub(crate) fn settings_around(
        &self,
        definition: &[u8],
        reading: &Arc<ParameterSet>,
        now: &Arc<ParameterSet>,
    ) -> [Vec<u8>; 2] {
        if reads_nothing(definition) {
            Default::default()
        } else if self.parameters() != Touched::Answered {
            [reading.pinning(), reading.unpinning()]
        } else if Arc::ptr_eq(now, reading) {
            Default::default()
        } else {
            // The client has changed them since.
            [now.local_settings(reading), reading.local_settings(now)]
        }
    }

    /// Prepares again the next statement that was prepared behind something else in a transaction that is over: tables and types which that
    /// had alone may be in the copy. False where there is none. One after the other, so that no lock on a table is held while another is
    /// waited for, and no more than one text is under way.
    ///
    /// `code`: what texts call, where clients' session state is kept. One whose analysis may run that is prepared again when it is used.
    pub(crate) fn prove_next_statement(&mut self, id: ServerId, code: Option<&Code>, cx: &mut Context) -> bool {
        if !self.mirror.has_unproved() {
            return false;
        }
        let runs_code = |statement: &Statement| code.is_some_and(|code| !statement.calls_nothing_of(code));
        let statement = loop {
            let Some(statement) = self.mirror.next_unproved() else { return false };
            if !runs_code(&statement) {
                break statement;
            }
            self.mirror.doubt(statement.id);
        };
        let now = cx.parameter_sets.reading(&self.parameters);
        let [before, behind] = self.settings_around(&statement.definition, &statement.reading, &now);
        self.run_ahead(id, before, cx);
        self.prepare(id, &statement, Owed::ours(Request::Parse), false, cx);
        self.ask_shape(id, &statement, true, cx);
        self.run_ahead(id, behind, cx);
        self.sync_ours(id, cx);
        true
    }

    /// It stays with its client, which has startup values again that it has not: it gets them before the client's next request. False
    /// where that is nothing.
    pub(crate) fn give_missing(&mut self, id: ServerId, startup: &mut Startup, cx: &mut Context) -> bool {
        if self.cancel_is_on_its_way() {
            // It would hit this query of ours.
            self.hold = Hold::Reset;
            return false;
        }
        if startup.missing().is_empty() {
            return false;
        }
        if self.status == TransactionStatus::Failed {
            // PostgreSQL takes nothing before its end.
            self.hold = Hold::Reset;
            return false;
        }
        let missing = std::mem::take(startup.missing());
        self.hold = Hold::Parameters;
        // A simple query would take the unnamed statement and portal away.
        let statements = match self.status {
            TransactionStatus::Idle => vec![missing.settings(|_| true)],
            _ => missing.settings_amid(|_| true),
        };
        statements.into_iter().for_each(|statement| self.run_ahead(id, statement, cx));
        self.sync_ours(id, cx);
        true
    }

    /// Whether it stays with its client behind a transaction, for what that has left in its session; it is asked where that is not known.
    /// `hold`: what the client's next request has waited for, which is dealt with here. `ended`: none comes, and all goes with the client.
    #[cold]
    pub(crate) fn is_kept_for(
        &mut self,
        session: &mut Session,
        hold: &mut Hold,
        ended: bool,
        id: ServerId,
        cx: &mut Context,
    ) -> bool {
        match std::mem::take(hold) {
            Hold::Nothing | Hold::End => {}
            // Where it failed it would fail again: it is tried behind the client's next request.
            Hold::Parameters if !self.looked(session, cx) => return true,
            Hold::Parameters => {}
            // It is asked when it has them again.
            Hold::Reset => {
                if let Some(startup) = &mut session.startup
                    && (self.give_missing(id, startup, cx) || self.hold == Hold::Reset)
                {
                    return true;
                }
            }
        }
        self.learn_exactly(session, cx);
        self.kept.judged();
        let due = self.kept.due(session.parameters.has_unreported());
        if due.is_none() {
            self.parameters_are_known();
        } else if !ended {
            self.look(id, session, due, cx);
        }
        !due.is_none() || self.kept.holds() || self.is_anothers()
    }

    /// No transaction is open, and all that one may have left is known. What was used meanwhile may be planned under anything.
    pub(crate) fn parameters_are_known(&mut self) {
        if self.kept.parameters_are_known() {
            self.mirror.doubt_unsure();
            self.mirror.told();
        }
    }

    /// Its session is of another user than it was.
    pub(crate) fn is_anothers(&self) -> bool {
        self.facts_changed.iter().any(|fact| &**fact == SESSION_USER)
    }

    /// What PostgreSQL has told of the session, where it does, is its client's.
    fn learn_exactly(&mut self, session: &mut Session, cx: &mut Context) {
        let Some(exact) = &mut self.exact else { return };
        self.kept.hold(exact.held(), cx.now);
        self.kept.is_told_channels(exact.channels(self.kept.channels_are_unread()));
        if exact.has_changed() {
            let behind = exact.parameters_behind(&session.parameters);
            self.adopt(behind, session, cx);
        }
    }

    /// These are in its session, and its client's from now on; where none may be that it did not come with, they are to be refused.
    fn adopt(&mut self, parameters: ParameterSet, session: &mut Session, cx: &mut Context) {
        if self.kept.refuses && parameters.iter().any(|own| session.parameters.get(&own.name).is_none()) {
            return self.kept.hold(self.kept.held().with(Kinds::PARAMETERS), cx.now);
        }
        let parameters = cx.parameter_sets.intern(parameters);
        self.parameters = Arc::clone(&parameters);
        session.parameters = parameters;
    }

    /// Asks what its client has left in its session. The client's next request waits for that.
    fn look(&mut self, id: ServerId, session: &Session, due: Kinds, cx: &mut Context) {
        if self.cancel_is_on_its_way() {
            // It would hit this question.
            self.hold = Hold::Reset;
            return;
        }
        self.hold = Hold::Parameters;
        let ends = due.with(self.kept.held()).has(Kinds::LASTING);
        // A server that ends with its client goes on with the client's own seed.
        let asked = due.and(if ends { Kinds::ANY } else { Kinds::LOOKED_FOR });
        let own = session.parameters.iter().filter(|own| !own.reported && own.name.contains('.'));
        let own = own.map(|own| (&*own.name, true));
        let others = self.kept.custom().iter().filter(|other| session.parameters.get(&other.name).is_none());
        let marked = matches!(self.kept.lists, Lists::IfSet { .. });
        let mut question = Look::question(asked, marked, own.chain(others.map(|other| (&*other.name, other.said))));
        if asked.has(Kinds::SEED) {
            write_seed(&mut question, cx.random());
        }
        self.kept.looks_for(asked, cx.now);
        // A simple query would take the unnamed statement and portal away. Where nothing can be asked, nothing comes but the end of this.
        self.run_ahead(id, question, cx);
        self.sync_ours(id, cx);
    }

    /// The answer is there, if the question was asked: what it tells of parameters is the client's. False where it is an error.
    pub(crate) fn looked(&mut self, session: &mut Session, cx: &mut Context) -> bool {
        #[cfg(feature = "planted")]
        if cx.planted == Some(crate::planted::Planted::OverlookLocks)
            && let Some(look) = self.kept.looking()
        {
            look.found = look.found.without(Kinds::LOCKS);
        }
        let Some(look) = self.kept.looked(cx.now) else { return true };
        if look.failed {
            return false;
        }
        if look.asked.has(Kinds::PARAMETERS) {
            self.adopt(look.parameters_behind(&session.parameters), session, cx);
        }
        true
    }

    /// The client goes on when something has come that is owed: PostgreSQL is asked for it where it may lie there unsent.
    #[cold]
    pub(crate) fn await_replies(&mut self, id: ServerId, cx: &mut Context) {
        if self.owed.awaits() {
            cx.out.send(id, write::flush);
        }
    }

    pub(crate) fn sync_ours(&mut self, id: ServerId, cx: &mut Context) {
        self.sync_with(id, Owed::ours(Request::Sync), cx);
    }

    fn sync_with(&mut self, id: ServerId, owed: Owed, cx: &mut Context) {
        let commits = self.owed.is_empty() && self.owed.is_joined(self.status);
        debug_assert!(!(commits && matches!(self.state, ServerState::Linked(_))), "a Sync of ours would commit");
        cx.out.send(id, write::sync);
        self.owed.push(owed);
    }

    /// What its client has prepared without a Sync is over, ahead of a query of ours. Where that is refused (by a constraint that is deferred)
    /// PostgreSQL's words are the answer to what waits.
    #[cold]
    pub(crate) fn end_unsynced(&mut self, id: ServerId, cx: &mut Context) {
        self.sync_with(id, Owed::ours(Request::Sync).statement(COMMITS), cx);
        if self.kept.is_told() {
            // What those have left is told with that Sync, as what a query of ours has.
            self.kept.sets_unreported();
        }
    }

    /// Has PostgreSQL know that it is in a transaction, for a Sync behind a simple query which is part of one that only a Sync ends:
    /// 18.6 answers the Sync alone, and commits nothing (`start_xact_command`, src/backend/tcop/postgres.c).
    pub(crate) fn parse_nothing(&mut self, id: ServerId, cx: &mut Context) {
        let name = cx.statements.random_name();
        cx.out.send(id, |out| {
            write::parse(out, name.as_bytes(), &[0; 3]);
            write::close_statement(out, name.as_bytes());
        });
        self.owed.push(Owed::ours(Request::Parse));
        self.owed.push(Owed::ours(Request::Close));
    }

    /// Has PostgreSQL skip what follows up to the next Sync: it is asked for a statement that is not there, under a name that
    /// nobody knows, so that nobody can give it.
    pub(crate) fn send_what_fails(&mut self, id: ServerId, owed: Owed, cx: &mut Context) {
        debug_assert!(owed.request == Request::DescribeStatement);
        let absent = cx.statements.random_name();
        cx.out.send(id, |out| write::describe_statement(out, absent.as_bytes()));
        self.owed.push(owed);
    }

    /// Makes the replies whose turn has come, but never in the middle of a message.
    pub(crate) fn answer_made(&mut self, cx: &mut Context) {
        if matches!(self.inbox.body, Body::Forward(_)) {
            return;
        }
        while self.owed.front().is_some_and(|owed| owed.request == Request::Made) {
            let Some(owed) = self.owed.pop().filter(|owed| !owed.ours) else { continue };
            let ServerState::Linked(client) = self.state else { continue };
            match owed.note.as_deref() {
                Some(Note::Closed { .. }) => cx.out.send(client, write::close_complete),
                _ => cx.out.send(client, write::parse_complete),
            }
        }
    }
}
