//! Texts that say that they leave something in their session, where that is refused (`session_state = refuse`).
//!
//! PostgreSQL is sent a text in their place that it takes for none, and the client is told why: whatever else a statement that fails does,
//! to its transaction, to the unnamed statement, is as it would be, and it is skipped where it would be skipped.

use weir_wire::frontend::Parse;
use weir_wire::report::{Report, Severity};
use weir_wire::{FrontendTag, write};

use super::{Exchange, Verdict};
use crate::failure::state_refused;
use crate::kept::leaves::Leaves;
use crate::message::Message;
use crate::owed::{Note, Owed, Request};
use crate::statements::text_of;

/// A syntax error, and what a server's log is to say of it.
const REFUSED: &[u8] = b"refused by the pooler";

impl Exchange<'_> {
    /// `None`: it is carried out.
    #[cold]
    pub(super) fn refuse_state(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if message.present() < message.total {
            // Too long to be read: what it leaves is found behind it.
            return None;
        }
        let (name, text) = match message.tag {
            FrontendTag::Query => (None, message.body()),
            FrontendTag::Parse => {
                let parse = Parse::read(message.body()).ok()?;
                (Some(parse.name), text_of(parse.definition))
            }
            _ => return None,
        };
        let says = Leaves::of(text).says;
        if says.is_none() {
            return None;
        }
        let report = state_refused(Severity::Error, &says.words());
        Some(self.fail_text(message, name, report))
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
}
