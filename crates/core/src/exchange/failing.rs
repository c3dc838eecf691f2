//! Errors of ours in the place of a message's reply: something that PostgreSQL refuses is sent for it, so that it fails where and as it would.
//! And simple queries behind what no Sync has ended, which may not be sent, or not yet.

use weir_wire::frontend::Parse;
use weir_wire::report::Report;
use weir_wire::{FrontendTag, write};

use super::{Exchange, Exit, Verdict};
use crate::failure::{BatchFailure, Failure};
use crate::message::Message;
use crate::owed::{Note, Owed, Request};

/// A syntax error, and what a server's log is to say of it.
const REFUSED: &[u8] = b"refused by the pooler";

impl Exchange<'_> {
    /// A text, or what uses one, is not carried out, in its turn.
    pub(super) fn fail_message(&mut self, message: &Message<'_>, report: Report) -> Verdict {
        if let Some(verdict) = self.before_unsynced_query(message) {
            return verdict;
        }
        match message.tag {
            FrontendTag::Query => self.fail_text(message, None, report),
            FrontendTag::FunctionCall => {
                // Its error has a ReadyForQuery behind it. There is no function of this number.
                self.server.owed.push(Owed::client(Request::FunctionCall).note(Note::Fails(Box::new(report))));
                self.cx.out.send(self.server_id, |out| write::function_call(out, 0));
                self.skip(message)
            }
            FrontendTag::Parse => {
                let name = Parse::read(message.body()).map_or(&b""[..], |parse| parse.name);
                self.fail_text(message, Some(name), report)
            }
            _ => self.fail_in_order(message, report),
        }
    }

    /// A text is not carried out: `name` is that of its statement, if it is no simple query.
    pub(super) fn fail_text(&mut self, message: &Message<'_>, name: Option<&[u8]>, report: Report) -> Verdict {
        match name {
            None => {
                self.server.mirror.unnamed_in = self.server.owed.batch();
                self.server.mirror.replaces_portal();
                let fails = Note::Fails(Box::new(report));
                self.server.owed.push(Owed::client(Request::Query).note(fails));
                self.cx.out.send(self.server_id, |out| write::query(out, REFUSED));
            }
            Some(b"") => {
                if !self.session.unnamed.has_room_for(0) {
                    return self.wait_for_replies();
                }
                let owed = self.sends_unnamed(Some(b""));
                self.server.owed.push(owed.note(Note::Fails(Box::new(report))));
                let definition = [REFUSED, &[0; 3]].concat();
                self.cx.out.send(self.server_id, |out| write::parse(out, b"", &definition));
            }
            Some(_) => return self.fail_in_order(message, report),
        }
        self.skip(message)
    }

    /// Answers a message with an error of ours where its reply belongs: something that must fail is sent in its place.
    pub(super) fn fail_in_order(&mut self, message: &Message<'_>, report: Report) -> Verdict {
        if self.server.mirror.unnamed_unasked != 0 {
            // Nothing behind it is carried out.
            self.ask_parameters_of_unnamed();
        }
        let owed = Owed::client(Request::DescribeStatement);
        self.server.send_what_fails(self.server_id, owed.note(Note::Fails(Box::new(report))), self.cx);
        self.skip(message)
    }

    /// A simple query or a function call behind what no Sync has ended.
    #[inline]
    pub(super) fn before_unsynced_query(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let asks = matches!(message.tag, FrontendTag::Query | FrontendTag::FunctionCall);
        if asks && self.server.owed.unsynced() { self.joins_unsynced() } else { None }
    }

    fn joins_unsynced(&mut self) -> Option<Verdict> {
        let owed = &self.server.owed;
        if owed.joins_ours() && owed.is_empty() && owed.may_be_synced(self.server.status) {
            // What is prepared stays, and no query of ours stands ahead of the client's in its transaction.
            return Some(Verdict::Stop(Exit::NeedsSync));
        }
        if owed.joins_ours() && !owed.is_empty() {
            return Some(self.wait_for_replies());
        }
        // PostgreSQL 18 fails what follows the Sync of a batch that one of these ended: "StartTransactionCommand: unexpected state
        // STARTED" (src/backend/access/transam/xact.c).
        self.server.close_needed = true;
        let failed = || Verdict::Stop(Exit::failed(Failure::Batch(BatchFailure::QueryJoinsOurs)));
        self.server.owed.joins_ours().then(failed)
    }
}
