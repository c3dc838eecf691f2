//! What goes ahead of a request because of what its batch resets, and what is noted of one that does.

use weir_wire::TransactionStatus;

use super::{Answers, Exchange, Message, Verdict, too_many_statements};
use crate::failure::Failure;
use crate::id::ClientId;
use crate::owed::{Note, Request};
use crate::resetting::Noted;
use crate::server::Hold;
use crate::startup::{Hindrance, Startup};

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
            Hindrance::TooLate => Verdict::Fail(Failure::ResetTooLate),
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

impl Answers<'_> {
    fn startup(&mut self) -> Option<&mut Startup> {
        self.pair().1?.startup.as_deref_mut()
    }

    /// The reply to a request has come that was noted.
    #[cold]
    pub(super) fn noted_answered(&mut self, note: Note) {
        if let (Note::Startup(noted), Some(startup)) = (note, self.startup()) {
            startup.answered(noted);
        }
    }

    /// RESET, DISCARD ALL, SET, or the end of a transaction behind them is complete.
    pub(super) fn reset_completed(&mut self, tag: &[u8]) {
        let (server, session) = self.pair();
        let startup = session.and_then(|session| session.startup.as_mut());
        if let (Some(startup), Some(front)) = (startup, server.owed.front().filter(|owed| !owed.ours))
            && startup.completes(tag, front)
        {
            server.hold = Hold::Reset;
        }
    }

    /// What was reset is not, because the request failed.
    pub(super) fn reset_failed(&mut self) {
        if let Some(startup) = self.startup() {
            startup.failed();
        }
    }

    /// Whether the client is not to hear of this, because it has its startup value again.
    pub(super) fn is_taken_back(&self, name: &str, value: &[u8]) -> bool {
        let session = self.client.as_ref().and_then(|(_, client)| client.session());
        let startup = session.and_then(|session| session.startup.as_ref());
        startup
            .zip(self.pool.welcome.as_ref())
            .is_some_and(|(startup, welcome)| startup.takes_back(name, value, &welcome.defaults))
    }

    /// ReadyForQuery after a reset: the session has its startup values again.
    pub(super) fn take_back(&mut self, id: ClientId, status: TransactionStatus) {
        let Self { cx, pool, server, client, .. } = self;
        let session = client.as_mut().and_then(|(_, client)| client.session_mut());
        if let (Some(session), Some(welcome)) = (session, &pool.welcome)
            && !session.take_back(id, server, status, &welcome.defaults, cx)
        {
            // As where PostgreSQL itself tells of another encoding.
            (server.keeps_client, server.close_needed) = (true, true);
        }
    }
}
