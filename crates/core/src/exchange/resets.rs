//! What goes ahead of a request because of what its batch resets, and what is noted of one that does.

use std::sync::Arc;

use weir_wire::frontend::BindNames;
use weir_wire::{FrontendTag, TransactionStatus, write};

use super::{Answers, Exchange, Exit, Verdict, too_many_statements};
use crate::failure::{BatchFailure, Failure};
use crate::id::ClientId;
use crate::message::Message;
use crate::owed::{Note, Request};
use crate::parameters::encodings::reads_alike;
use crate::parameters::meanings::InDoubt;
use crate::parameters::resets::Resets;
use crate::parameters::resetting::{Names, Noted};
use crate::parameters::startup::{Hindrance, Startup};
use crate::server::Hold;
use crate::statements::definition::text_of;
use crate::statements::reads_nothing;

impl Exchange<'_> {
    /// What comes of a message that cannot go on yet, or at all, because of what it may reset; else what goes ahead of it is sent.
    #[inline(never)]
    pub(super) fn before_resets(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let Some(hindrance) = self.hinders(message) else {
            self.give_again_ahead_of(message);
            return None;
        };
        Some(match hindrance {
            Hindrance::Unanswered => self.wait_for_replies(),
            Hindrance::NameTooLong => Verdict::Stop(Exit::failed(Failure::NameTooLong)),
            Hindrance::TooLate => Verdict::Stop(Exit::failed(Failure::Batch(BatchFailure::ResetTooLate))),
            Hindrance::GoesOn => Verdict::Stop(Exit::failed(Failure::Batch(BatchFailure::GoesOnBehindRollback))),
            Hindrance::Lost => Verdict::Stop(Exit::failed(Failure::Batch(BatchFailure::SavepointBehindReset))),
            Hindrance::TooMany => self.fail_in_order(message, too_many_statements()),
        })
    }

    /// What hinders a message from being sent whose name may reset something.
    fn hinders(&mut self, message: &Message<'_>) -> Option<Hindrance> {
        if message.tag == FrontendTag::Bind && BindNames::parse(message.body()).is_none() {
            return Some(Hindrance::NameTooLong);
        }
        let Ok(bound) = self.binds_reset(message) else { return Some(Hindrance::Unanswered) };
        let owed = &self.server.owed;
        let startup = self.session.startup.as_ref()?;
        if let Some(hindrance) = startup.forbids(message, self.server.status == TransactionStatus::Failed) {
            return Some(hindrance);
        }
        if startup.resets() && self.reads_parameters(message) {
            if !owed.is_empty() {
                return Some(Hindrance::Unanswered);
            }
            if startup.is_too_late() {
                return Some(Hindrance::TooLate);
            }
        }
        if startup.has_room(message, bound.as_ref(), self.tracks, owed.batch()) {
            return None;
        }
        if !owed.is_empty() {
            return Some(Hindrance::Unanswered);
        }
        let outside = owed.settled() && self.server.status == TransactionStatus::Idle;
        if message.tag == FrontendTag::Bind && outside {
            self.session.startup.as_mut()?.forget_portals();
            return None;
        }
        Some(Hindrance::TooMany)
    }

    /// What the statement resets that this message binds.
    fn binds_reset(&self, message: &Message<'_>) -> Result<Option<Arc<Resets>>, InDoubt> {
        let session = &self.session;
        let (FrontendTag::Bind, Some(names), Some(startup)) =
            (message.tag, BindNames::parse(message.body()), session.startup.as_ref())
        else {
            return Ok(None);
        };
        Ok(match (self.tracks, names.statement) {
            (false, name) => startup.means(name, self.server.owed.batch())?,
            (true, b"") => Resets::of_text(text_of(self.server.mirror.unnamed_definition(&session.unnamed))),
            (true, name) => session.statements.get(name).and_then(|held| held.statement.resets.clone()),
        })
    }

    /// Whether the message does what the session's parameters count for. What resets them, or parses what has no literals, is
    /// not held up: DISCARD ALL and VACUUM may not run behind another statement of ours in their batch.
    fn reads_parameters(&self, message: &Message<'_>) -> bool {
        let body = message.body();
        let name_end = body.iter().position(|&byte| byte == 0).unwrap_or(body.len());
        match message.tag {
            FrontendTag::Parse => !reads_nothing(body.get(name_end + 1..).unwrap_or_default()),
            FrontendTag::Bind => matches!(self.binds_reset(message), Ok(None)),
            FrontendTag::Describe | FrontendTag::Query | FrontendTag::FunctionCall => true,
            FrontendTag::Execute => {
                let startup = self.session.startup.as_ref();
                startup.is_some_and(|startup| matches!(startup.executes(body, self.server.owed.batch()), Ok(None)))
            }
            _ => false,
        }
    }

    /// Where a batch has reset something, what follows in it runs under the session's defaults, not the server's.
    fn give_again_ahead_of(&mut self, message: &Message<'_>) {
        if !self.session.startup.as_ref().is_some_and(|startup| startup.resets()) || !self.reads_parameters(message) {
            return;
        }
        let Some((names, statements)) = self.session.startup.as_mut().and_then(|startup| startup.give_again()) else {
            return;
        };
        statements.into_iter().for_each(|statement| self.run_ahead(statement));
        if let Some(note) = self.server.owed.last_note(Request::Close, true) {
            *note = Some(Box::new(Note::Startup(Noted::GivenAgain(names))));
        }
    }

    /// A request went to the server: what it resets is noted with the reply that is owed.
    pub(super) fn read_resets(&mut self, message: &Message<'_>) {
        let bound = self.binds_reset(message).ok().flatten();
        if let Some(startup) = self.session.startup.as_mut()
            && startup.sent(message, bound, self.tracks, &mut self.server.owed)
        {
            self.server.hold = Hold::Reset;
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
        let Note::Startup(noted) = note else { return };
        if let Noted::GivenAgain(names) = &noted {
            self.tell_given_again(names);
        }
        if let Some(startup) = self.startup() {
            startup.answered(noted);
        }
    }

    /// Up to PostgreSQL 13 the client was told of the reset at once, and not of what was given again: that stood amid a query of ours.
    fn tell_given_again(&mut self, names: &Names) {
        let here = Arc::clone(&self.server.parameters);
        for own in names.iter().filter_map(|name| here.get(name)).filter(|own| own.reported) {
            let Some((id, client)) = &self.client else { return };
            let told = client.session().and_then(|session| session.parameters.get(&own.name));
            let id = *id;
            if told.is_some_and(|told| told.value != own.value) && self.is_told(&own.name, &own.value) {
                self.cx.out.send(id, |out| write::parameter_status(out, &own.name, &own.value));
            }
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

    /// What was reset is not, because the request failed; and what was given again behind a reset may be taken back with its transaction,
    /// though that was long ago and no command tag tells of it.
    pub(super) fn reset_failed(&mut self) {
        if self.startup().is_some_and(Startup::failed) && self.server.hold == Hold::Nothing {
            self.server.hold = Hold::Reset;
        }
    }

    /// Whether the client is not to hear of this, because it has its startup value again.
    pub(super) fn is_taken_back(&self, name: &str, value: &[u8]) -> bool {
        let session = self.client.as_ref().and_then(|(_, client)| client.session());
        let startup = session.and_then(|session| session.startup.as_ref());
        startup
            .zip(self.server.welcome.as_ref())
            .is_some_and(|(startup, welcome)| startup.takes_back(name, value, &welcome.defaults))
    }

    /// ReadyForQuery after a reset: the session has its startup values again, and the client is told so.
    pub(super) fn take_back(&mut self, id: ClientId, status: TransactionStatus) {
        let Self { cx, server, client, .. } = self;
        let session = client.as_mut().and_then(|(_, client)| client.session_mut());
        let (Some(session), Some(welcome)) = (session, server.welcome.clone()) else { return };
        let Some(startup) = &mut session.startup else { return };
        let server_encoding = welcome.encoding();
        let mut parameters = None;
        for own in startup.take_back(status, &server.parameters, &welcome.defaults).iter() {
            if session.parameters.get(&own.name).is_none_or(|told| told.value != own.value) {
                let set = parameters.get_or_insert_with(|| (*session.parameters).clone());
                set.set(&own.name, &own.value, own.reported);
                // One that is not ASCII is told as the server tells it, where the client reads it in another encoding.
                if own.reported && (own.value.is_ascii() || reads_alike(session.parameters.encoding(), server_encoding))
                {
                    cx.out.send(id, |out| write::parameter_status(out, &own.name, &own.value));
                }
            }
        }
        if let Some(parameters) = parameters {
            session.parameters = cx.parameter_sets.intern(parameters);
        }
        if !session.parameters.is_legible(server_encoding) {
            // As where PostgreSQL itself tells of another encoding: no server's session can be made like this one any more.
            (server.keeps_client, server.close_needed) = (true, true);
        }
    }
}
