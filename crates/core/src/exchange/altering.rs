//! What a client changes in code is told to others as soon as PostgreSQL may carry out what makes it visible, a moment ahead of the answer.
//!
//! Inside of a transaction block that is its COMMIT, elsewhere a Sync or the change itself. Whether there is a block its last ReadyForQuery
//! tells, where nothing that may end it is on its way, or was answered since.

use weir_wire::{FrontendTag, TransactionStatus};

use super::sequences::{Carried, carried};
use super::{Answers, Exchange};
use crate::kept::leaves::Leaves;
use crate::message::Message;
use crate::server::Server;

impl Exchange<'_> {
    /// Looks at a message ahead of its sending: where something is to be told, and at each Bind of a portal with a name.
    #[cold]
    pub(super) fn may_commit_code(&mut self, message: &Message<'_>) {
        let (commits, alters) = match carried(self.session, &self.server.mirror, message) {
            Carried::Nothing => (false, false),
            Carried::Text(text, _) => commits_and_alters(&Leaves::of(text)),
            Carried::Statement(statement) => commits_and_alters(statement.leaves()),
            Carried::TooLong | Carried::Unknown => (true, true),
        };
        let altered = &mut self.server.kept.altered;
        if message.tag == FrontendTag::Bind {
            // Of two portals nobody knows which is executed first.
            altered.portals_commit |= commits || alters;
        }
        if !altered.is_pending() {
            return;
        }
        let runs = match message.tag {
            FrontendTag::Query | FrontendTag::Sync | FrontendTag::FunctionCall => true,
            FrontendTag::Execute if altered.portals_commit => return self.tell_altered(),
            FrontendTag::Execute => true,
            _ => false,
        };
        if commits || (runs && may_be_outside_of_a_block(self.server)) {
            self.tell_altered();
        }
    }

    /// A text is sent, and what it leaves is kept: it may alter code, and what makes that visible may be in it, or ends a block.
    #[inline]
    pub(super) fn behind_altering(&mut self, ends: bool) {
        if self.server.kept.altered.is_pending() {
            self.has_altered(ends);
        }
    }

    #[cold]
    fn has_altered(&mut self, ends: bool) {
        // What is not answered may have ended the block.
        if self.server.kept.altered.is_behind {
            self.server.kept.altered.block_may_be_over = true;
        }
        if ends || may_be_outside_of_a_block(self.server) {
            self.tell_altered();
        }
    }

    fn tell_altered(&mut self) {
        if self.server.kept.altered.is_due() {
            self.cx.code_may_be_there(self.server_id);
        }
    }
}

/// By what was told last, and has come since.
fn may_be_outside_of_a_block(server: &Server) -> bool {
    let (status, altered) = (server.status, &server.kept.altered);
    status == TransactionStatus::Idle || altered.block_may_be_over || server.owed.is_joined(status)
}

fn commits_and_alters(leaves: &Leaves) -> (bool, bool) {
    // Its strings and letters may be others than they seem.
    let unread = leaves.uncertain || leaves.beyond_ascii;
    (leaves.commits || unread, leaves.alters || unread)
}

impl Answers<'_> {
    /// This command has ended a transaction block, or may have. No ReadyForQuery need be near.
    #[cold]
    pub(super) fn block_may_have_ended(&mut self, tag: &[u8]) {
        if tag.starts_with(b"COMMIT") {
            self.tell_what_is_there();
        } else {
            self.may_have_committed();
        }
        let ends = matches!(tag, b"COMMIT\0" | b"ROLLBACK\0" | b"PREPARE TRANSACTION\0");
        self.server.kept.altered.block_may_be_over |= ends;
    }

    /// What is answered may have committed, if there is no block: a procedure or a DO does, which may fail behind that, or be suspended with a row of
    /// its own, and PREPARE TRANSACTION, whose tag is ROLLBACK then.
    #[inline]
    pub(super) fn may_have_committed(&mut self) {
        if self.server.kept.altered.is_pending() && may_be_outside_of_a_block(self.server) {
            self.tell_what_is_there();
        }
    }

    #[cold]
    fn tell_what_is_there(&mut self) {
        let altered = &mut self.server.kept.altered;
        if altered.is_pending() && altered.is_due() {
            self.cx.code_may_be_there(self.server_id);
        }
    }
}
