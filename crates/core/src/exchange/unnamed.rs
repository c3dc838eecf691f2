//! Requests of the unnamed statement: it is its client's, on whichever server that is.

use std::sync::Arc;

use weir_wire::{FrontendTag, TransactionStatus, write};

use super::parse::has_set_unreported;
use super::prepared::Named;
use super::{Exchange, Verdict};
use crate::kept::leaves::Leaves;
use crate::message::Message;
use crate::owed::{Note, Owed, Request, Touched, UNNAMED};
use crate::server::Server;
use crate::statements::{Effect, Shape, UNNAMED_UNKNOWN, Under, reads_nothing};

impl Exchange<'_> {
    /// There is no `definition` where that is too long to be read: that it is analysed may leave anything.
    pub(super) fn parse_unnamed(&mut self, message: &Message<'_>, definition: Option<&[u8]>) -> Verdict {
        if !self.session.unnamed.has_room_for(definition.map_or(0, <[u8]>::len)) {
            return self.wait_for_replies();
        }
        let owed = self.sends_unnamed(definition);
        match definition {
            Some(definition) => self.analyses(definition),
            None if self.server.kept.reads => self.server.kept.sent(&Leaves::unknown(), b"Parse"),
            None => {}
        }
        self.server.owed.push(owed);
        self.forward(message)
    }

    /// Its Parse is sent; what is owed for it.
    pub(super) fn sends_unnamed(&mut self, definition: Option<&[u8]>) -> Owed {
        let under = self.parses_under(definition);
        let statement = self.cx.statements.next_id();
        let (session, server) = self.pair();
        session.unnamed.sends(statement, definition, under);
        server.mirror.unnamed_unasked = 0;
        server.mirror.unnamed_in = server.owed.batch();
        server.mirror.unnamed_shape = Shape::Unknown;
        server.mirror.unnamed_sent = statement;
        if under == Under::Asked {
            self.ask_of_next_unnamed(statement, definition);
        }
        Owed::client(Request::Parse).statement(UNNAMED)
    }

    /// What will be known of the parameters that one is parsed under which is sent now.
    #[inline]
    fn parses_under(&self, definition: Option<&[u8]>) -> Under {
        let server = &*self.server;
        match server.owed.has_executed() {
            // Where PostgreSQL tells, nobody has read what that calls.
            executed if has_set_unreported(server) || (executed && server.kept.is_told()) => {
                parses_behind_a_set(server, definition)
            }
            true => Under::Told,
            false => Under::Known,
        }
    }

    /// What may set parameters, or ends the batch, comes behind a Parse of which it is not known under which it is carried out: only the last one of
    /// a batch outlives it.
    #[cold]
    pub(super) fn ask_of_unnamed(&mut self, message: &Message<'_>, plain: bool) {
        let may_set = match message.tag {
            FrontendTag::Sync => true,
            // A query takes the statement away, and neither may be in one transaction with a query of ours alone.
            FrontendTag::Query | FrontendTag::FunctionCall => return self.server.mirror.unnamed_unasked = 0,
            // So does another of it, carried out or not.
            FrontendTag::Parse if message.body().first() == Some(&0) => return self.server.mirror.unnamed_unasked = 0,
            FrontendTag::Execute => {
                let (named, effect) = self.effect_of(message);
                let is_plain = matches!(effect, Effect::Plain | Effect::BeginsTransaction | Effect::SetsUnread);
                named || !is_plain || self.server.kept.is_told()
            }
            // It may have PostgreSQL analyse a statement anew.
            FrontendTag::Describe => true,
            FrontendTag::Terminate => false,
            _ => !plain || self.server.kept.is_told(),
        };
        if may_set {
            self.ask_parameters_of_unnamed();
        }
    }

    /// Before something is sent behind it that may set parameters, or ahead of it where it may do so itself.
    #[cold]
    #[inline(never)]
    fn ask_of_next_unnamed(&mut self, statement: u64, definition: Option<&[u8]>) {
        self.server.mirror.unnamed_unasked = statement;
        let may_set = |text| self.server.kept.analysis_sets(text).is_none();
        if definition.is_some_and(may_set) {
            self.ask_parameters_of_unnamed();
        }
    }

    #[cold]
    pub(super) fn ask_parameters_of_unnamed(&mut self) {
        let statement = std::mem::take(&mut self.server.mirror.unnamed_unasked);
        if self.server.owed.skipping() {
            return;
        }
        let reading = Arc::clone(self.session.reading(&mut self.cx.parameter_sets));
        let question = reading.asking(true);
        let owed = Owed::ours(Request::Execute).note(Note::Unnamed(statement, reading));
        self.server.run_in_batch(self.server_id, question, owed, self.cx);
    }

    /// The unnamed statement is the client's, wherever it was parsed: another server gets it again, and one that holds
    /// somebody else's has it closed, so that nobody ever binds what is not his.
    #[inline(never)]
    pub(super) fn restore_unnamed(&mut self) -> Named {
        #[cfg(feature = "planted")]
        let believed = self.cx.planted == Some(crate::planted::Planted::BelieveUnnamed);
        #[cfg(not(feature = "planted"))]
        let believed = false;
        let (session, server) = (&mut *self.session, &mut *self.server);
        match server.owed.touched(server.mirror.unnamed_in) {
            Touched::InThisBatch => return self.unnamed_of_this_batch(),
            Touched::InDoubt if believed => return Named::AsItIs,
            Touched::InDoubt => return Named::InDoubt,
            Touched::Answered if session.unnamed.id == server.mirror.unnamed => {
                server.mirror.unnamed_sent = session.unnamed.id;
                return Named::AsItIs;
            }
            Touched::Answered => {}
        }
        let exists = session.unnamed.is_portable();
        if exists && server.owed.describes_unnamed(session.unnamed.id) {
            // What the client is told of it comes with that answer.
            return Named::InDoubt;
        }
        if exists && server.parameters() == Touched::InDoubt {
            return Named::InDoubt;
        }
        if session.unnamed.is_lost() {
            return Named::LostUnnamed;
        }
        server.mirror.unnamed_in = server.owed.batch();
        server.mirror.unnamed_shape = Shape::Unknown;
        server.mirror.unnamed_sent = session.unnamed.id;
        if !exists {
            server.owed.push(Owed::ours(Request::Close).statement(UNNAMED));
            self.cx.out.send(self.server_id, |out| write::close_statement(out, b""));
            return Named::AsItIs;
        }
        let then = session.unnamed_under();
        let (then, definition) = (Arc::clone(then), std::mem::take(&mut session.unnamed.kept.definition));
        let then = self.cx.parameter_sets.reading(&then);
        let [before, behind] = self.settings_around(&definition, &then);
        self.sets_around(&before);
        self.run_ahead(before);
        self.cx.out.send(self.server_id, |out| write::parse(out, b"", &definition));
        self.server.owed.push(Owed::ours(Request::Parse).statement(UNNAMED));
        self.server.owed.sends_own(definition.len());
        let compares = self.session.unnamed.is_described() && !reads_nothing(&definition);
        if compares {
            self.cx.out.send(self.server_id, |out| write::describe_statement(out, b""));
            self.server.owed.push(Owed::ours(Request::DescribeStatement).statement(UNNAMED));
            self.server.mirror.unnamed_shape = Shape::Asked { anew: true };
        }
        self.run_ahead(behind);
        self.analyses_again(&definition);
        self.session.unnamed.kept.definition = definition;
        if compares { Named::InDoubt } else { Named::AsItIs }
    }

    /// Where it was prepared again, the message that uses it waits until it is known to be as the client was told (`check_rows`).
    fn unnamed_of_this_batch(&mut self) -> Named {
        let (session, server) = self.pair();
        match server.mirror.unnamed_shape {
            Shape::Unknown => return Named::AsItIs,
            Shape::Asked { .. } => return Named::InDoubt,
            Shape::Is(shape) => {
                server.mirror.unnamed_shape = Shape::Unknown;
                if session.unnamed.is_as_told(shape) {
                    server.mirror.unnamed = session.unnamed.id;
                    return Named::AsItIs;
                }
            }
        }
        // The next message that uses it has it prepared again.
        server.mirror.unnamed = UNNAMED_UNKNOWN;
        Named::Changed
    }
}

#[cold]
fn parses_behind_a_set(server: &Server, definition: Option<&[u8]>) -> Under {
    let begins = server.status == TransactionStatus::Idle;
    match begins || server.owed.has_executed() || server.owed.is_joined(server.status) {
        _ if definition.is_some_and(reads_nothing) => Under::Known,
        // It is asked for behind it, and that tells also what it sets itself.
        _ if definition.is_some_and(|text| server.kept.analysis_sets(text) == Some(true)) => Under::Unknown,
        true => Under::Asked,
        // To ask each time in a transaction that has set something would cost more than those are worth that outlive it.
        false => Under::Unknown,
    }
}
