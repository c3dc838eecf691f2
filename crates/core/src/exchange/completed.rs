//! What the tags of completed commands tell of a session. They are words of SQL (src/include/tcop/cmdtaglist.h), as SQLSTATEs are, and stand where they
//! mean something rather than in `wire`, which has the protocol's own bytes.

use super::Answers;
use super::replies::Reply;
use crate::owed::{HARMLESS, OwedQueue};

impl Answers<'_> {
    /// Commands that change what we know of a session.
    pub(super) fn command_complete(&mut self, reply: &Reply<'_>) {
        let server = &mut *self.server;
        server.owed.command_completed();
        let Some(tag) = reply.whole_body() else { return };
        // That of a query ends with how many rows it was, and means nothing.
        if tag.len().checked_sub(2).and_then(|last| tag.get(last)).is_some_and(u8::is_ascii_digit) {
            return;
        }
        let statements_gone = matches!(tag, b"DISCARD ALL\0" | b"DEALLOCATE ALL\0");
        if statements_gone {
            let prepared_behind = server.owed.statements_gone();
            server.mirror.forget_all_but(&prepared_behind);
        }
        // The last two where it is of their own.
        if matches!(tag, b"COMMIT\0" | b"ROLLBACK\0" | b"PREPARE TRANSACTION\0" | b"CALL\0" | b"DO\0") {
            server.mirror.transaction_ended();
            self.block_may_have_ended(tag);
        } else if tag == b"COMMIT PREPARED\0" {
            self.block_may_have_ended(tag);
        }
        let server = &mut *self.server;
        let harmless = |owed: &OwedQueue| owed.front().is_some_and(|owed| owed.statement == HARMLESS);
        let ours = |owed: &OwedQueue| owed.front().is_some_and(|owed| owed.ours);
        match tag {
            b"DEALLOCATE\0" if !harmless(&server.owed) => server.mirror.doubt_all(),
            b"DEALLOCATE\0" => self.deallocated(),
            b"ROLLBACK\0" | b"PREPARE TRANSACTION\0" => server.mirror.rolled_back(server.owed.front_place()),
            // What is behind the last three may be anything.
            b"SET\0" | b"RESET\0" | b"DISCARD ALL\0" | b"DO\0" | b"CALL\0" | b"SET CONSTRAINTS\0"
                if !harmless(&server.owed) && !ours(&server.owed) =>
            {
                server.kept.sets_unreported();
            }
            _ => {}
        }
        let (server, session) = self.pair();
        if statements_gone
            && server.owed.front().is_some_and(|owed| !owed.ours)
            && let Some(session) = session
        {
            if !session.statements.is_blank() {
                server.owed.name_again(&mut session.statements);
            }
            if let Some(startup) = &mut session.startup {
                startup.deallocated_all();
            }
        }
        if matches!(
            tag,
            b"RESET\0"
                | b"SET\0"
                | b"DISCARD ALL\0"
                | b"SAVEPOINT\0"
                | b"COMMIT\0"
                | b"ROLLBACK\0"
                | b"PREPARE TRANSACTION\0"
        ) {
            self.reset_completed(tag);
        }
    }
}
