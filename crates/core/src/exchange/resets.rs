//! What goes ahead of a request because of what its batch resets, and what is noted of one that does.

use super::{Exchange, Message, Verdict, too_many_statements};
use crate::failure::Failure;
use crate::owed::{Note, Request};
use crate::startup::{Hindrance, Noted};

impl Exchange<'_> {
    /// What comes of a message that cannot go on yet, or at all, because of what it may reset; else what goes ahead of it is sent.
    #[inline(never)]
    pub(super) fn before_resets(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let Some(hindrance) = self.session.hinders(message, self.tracks, self.server) else {
            self.give_again_ahead_of(message);
            return None;
        };
        Some(match hindrance {
            Hindrance::Unanswered => self.wait_for_replies(),
            Hindrance::NameTooLong => Verdict::Fail(Failure::NameTooLong),
            Hindrance::TooMany => self.fail_in_order(message, too_many_statements()),
        })
    }

    /// Where a batch has reset something, what follows in it runs under the session's defaults, not the server's.
    fn give_again_ahead_of(&mut self, message: &Message<'_>) {
        let Some((names, query)) = self.session.gives_again(message, self.tracks, &self.server.owed) else { return };
        self.run_ahead(query);
        if let Some(note) = self.server.owed.last_note(Request::Close, true) {
            *note = Some(Box::new(Note::Startup(Noted::GivenAgain(names))));
        }
    }

    /// A request went to the server: what it resets is noted with the reply that is owed.
    pub(super) fn read_resets(&mut self, message: &Message<'_>) {
        let bound = self.session.binds_reset(message, self.tracks, &self.server.owed).ok().flatten();
        if let Some(startup) = self.session.startup.as_mut() {
            startup.sent(message, bound, self.tracks, self.server);
        }
    }
}
