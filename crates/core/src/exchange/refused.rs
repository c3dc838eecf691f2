//! Texts that say that they leave something in their session, where that is refused (`session_state = refuse`).
//!
//! PostgreSQL is sent a text in their place that it takes for none, and the client is told why: whatever else a statement that fails does,
//! to its transaction, to the unnamed statement, is as it would be, and it is skipped where it would be skipped.

use weir_wire::FrontendTag;
use weir_wire::frontend::Parse;
use weir_wire::report::Severity;

use super::{Exchange, Verdict};
use crate::failure::state_refused;
use crate::kept::leaves::Leaves;
use crate::message::Message;
use crate::statements::definition::text_of;

impl Exchange<'_> {
    /// `None`: it is carried out.
    #[cold]
    pub(super) fn judge(&mut self, message: &Message<'_>) -> Option<Verdict> {
        if self.server.kept.refuses
            && let Some(verdict) = self.refuse_state(message)
        {
            return Some(verdict);
        }
        if !self.server.kept.elsewhere {
            return None;
        }
        let owed = &self.server.owed;
        if message.tag.begins_request() && !owed.is_empty() && !owed.is_fresh() && !owed.unsynced() {
            // Where no transaction is open then, it goes to a node of its own.
            return Some(self.wait_for_replies());
        }
        self.refuse_elsewhere(message)
    }

    fn refuse_state(&mut self, message: &Message<'_>) -> Option<Verdict> {
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
}
