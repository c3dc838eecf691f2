//! Statements that are served only where they return what their client was told (docs/decisions/rows-as-described.md).

use std::sync::Arc;

use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, TransactionStatus, write};

use super::{Exchange, Verdict};
use crate::message::Message;
use crate::owed::{Owed, Request, UNKNOWN_PORTAL, UNNAMED};
use crate::statements::{Bound, Portal, Shape, Statement};

/// Whether a statement returns what its client expects.
pub(super) enum Rows {
    AsExpected,
    NotKnownYet,
    Changed,
}

impl Exchange<'_> {
    /// A message uses a statement of which the client was told something else, or may have been. A Describe does so too, as with PostgreSQL: what
    /// comes behind it in the same write is of what the client knew before.
    #[cold]
    pub(super) fn not_as_told(&mut self, rows: &Rows, statement: u64, message: &Message<'_>) -> Verdict {
        if matches!(rows, Rows::NotKnownYet) {
            return self.wait_for_replies();
        }
        self.doubt_copy(rows, statement);
        self.refuse_changed(message)
    }

    /// PostgreSQL takes the unnamed portal of before away ahead of its look at the rows of the next (`exec_bind_message`,
    /// src/backend/tcop/postgres.c).
    #[cold]
    pub(super) fn close_unnamed_portal(&mut self) {
        if self.server.status == TransactionStatus::Idle && !self.may_be_another_transaction() {
            // There is none.
            return;
        }
        self.cx.out.send(self.server_id, |out| write::close_portal(out, b""));
        self.server.owed.push(Owed::ours(Request::Close));
        self.server.mirror.replaces_portal();
    }

    /// The status that was told last is not that of what comes now: something was sent since.
    pub(super) fn may_be_another_transaction(&self) -> bool {
        let owed = &self.server.owed;
        owed.has_executed() || owed.awaits_earlier()
    }

    #[cold]
    pub(super) fn refuse_changed(&mut self, message: &Message<'_>) -> Verdict {
        if message.tag == FrontendTag::Bind && message.body().first() == Some(&0) {
            self.close_unnamed_portal();
        }
        self.fail_in_order(message, result_type_changed())
    }

    /// What a portal that is described is bound to; where that is not known, the last name that was given.
    pub(super) fn described_portal(&self, portal: &[u8]) -> Bound {
        let none = Bound::default();
        match self.server.mirror.bound_to(portal) {
            Portal::Of(bound) => bound,
            Portal::Never => none,
            // If its client was told of the statement before, that holds: what is told of a cursor says nothing of it.
            Portal::OfOrCursor(bound) if self.is_told_of(bound) => none,
            Portal::OfOrCursor(bound) => bound,
            // In a failed transaction one is described as nothing whose Bind has failed (`exec_describe_portal_message`,
            // src/backend/tcop/postgres.c).
            Portal::Unknown
                if self.server.status == TransactionStatus::Failed && !self.may_be_another_transaction() =>
            {
                none
            }
            Portal::Unknown => Bound { statement: UNKNOWN_PORTAL, name: self.session.statements.last_given(), ..none },
        }
    }

    fn is_told_of(&self, bound: Bound) -> bool {
        let (statements, unnamed) = (&self.session.statements, &self.session.unnamed);
        match bound.statement {
            UNNAMED => unnamed.id == bound.name && unnamed.is_described(),
            _ => statements.expected(bound.name).is_some(),
        }
    }

    /// It may be the server's copy that is old.
    pub(super) fn doubt_copy(&mut self, rows: &Rows, statement: u64) {
        if matches!(rows, Rows::Changed) {
            self.server.mirror.doubt(statement);
        }
    }

    /// Whether the client is told of the rows of what this message binds ahead of them, and was told of nothing else but rows: it asks with the
    /// very next message. An error is how much of that must be there to know.
    pub(super) fn is_told_with_it(&self, bind: &Message<'_>, portal: &[u8], number: u64) -> Result<bool, usize> {
        let told = self.session.statements.expected(number);
        if told.is_some_and(|told| !told.is_whole()) { bind.describes_next(portal) } else { Ok(false) }
    }

    /// Compares the rows that the server's plan returns with those that the client was told to expect.
    ///
    /// A plan's rows change when somebody alters a table. A server that planned before then refuses the statement
    /// itself; one that planned after would return rows that the client takes for something else. So a client that has
    /// asked for the description of a statement is served only where the description is known to be the same: the
    /// first time that a server gets the statement, the client's message waits for it. `number`: of the client's name for it.
    pub(super) fn check_rows(&mut self, statement: &Arc<Statement>, number: u64) -> Rows {
        let (session, server) = self.pair();
        let Some(expected) = session.statements.expected(number) else { return Rows::AsExpected };
        // The rows of a FETCH are those of its cursor, whatever was described: PostgreSQL looks at none of these twice.
        if statement.is_utility() {
            return Rows::AsExpected;
        }
        match server.mirror.shape(statement.id) {
            Shape::Is(shape) if shape.agrees(&expected) => Rows::AsExpected,
            Shape::Is(_) => Rows::Changed,
            Shape::Asked { .. } => Rows::NotKnownYet,
            Shape::Unknown => {
                self.may_be_analysed_anew(statement);
                self.server.ask_shape(self.server_id, statement, false, self.cx);
                Rows::NotKnownYet
            }
        }
    }
}

/// PostgreSQL's own words for it (`RevalidateCachedQuery`).
fn result_type_changed() -> Report {
    Report::new(Severity::Error, "0A000", "cached plan must not change result type")
        .hint("Prepare the statement again.")
        // asyncpg and pgjdbc look for it before they prepare anew by themselves.
        .routine("RevalidateCachedQuery")
}
