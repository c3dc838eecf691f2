//! What takes away from what a client listens to, or reads it, where its pool's listener hears that for it (`kept/channels.rs`).
//!
//! Its own server knows nothing of those channels. So it is told to listen to them first, and what is left of them behind the transaction is what the
//! client still listens to.

use weir_wire::{FrontendTag, TransactionStatus};

use super::requests::calls_large_object;
use super::sequences::{Carried, carried};
use super::{Exchange, Exit, Verdict};
use crate::failure::channels_elsewhere;
use crate::kept::leaves::Leaves;
use crate::kept::{Lists, NeedsChannels};
use crate::message::Message;
use crate::owed::Standing;
use crate::statements::definition::text_of;

impl Exchange<'_> {
    /// `None`: the message may be sent.
    pub(super) fn before_channels(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let needed =
            if self.server.kept.is_told() { self.channels_asked(message) } else { self.channels_needed(message) };
        let Needed { needs, leaves, takes_back, ends_transaction, resets_all } = needed;
        let (status, owed) = (self.server.status, &self.server.owed);
        let begins = status == TransactionStatus::Idle && owed.standing(status) == Standing::Between;
        if leaves && begins && !(self.session.asks && self.server.kept.heard_out == Some(self.session.asked_at)) {
            self.session.request_comes(status, self.cx.now);
            self.arm_client();
            return Some(Verdict::Stop(Exit::NeedsNotifications));
        }
        if needs == NeedsChannels::No {
            let Lists::IfSet { taken_back, .. } = &mut self.server.kept.lists else { return None };
            // Where it had failed, its COMMIT has taken it back.
            *taken_back |= takes_back || ends_transaction;
            // It takes the mark away.
            return resets_all.then(|| self.fail_message(message, channels_elsewhere()));
        }
        if status == TransactionStatus::Failed && !ends_transaction {
            // Nothing is carried out.
            return None;
        }
        let standing = owed.standing(status);
        let is_right = match &self.server.kept.lists {
            Lists::Certainly { .. } => true,
            Lists::IfSet { taken_back, .. } => {
                !(takes_back || resets_all || *taken_back)
                    && needs != NeedsChannels::Reads
                    && status == TransactionStatus::InTransaction
            }
            Lists::No => false,
        };
        if is_right {
            self.server.kept.uses_lists(needs != NeedsChannels::Reads);
            return None;
        }
        if standing == Standing::Later {
            return Some(self.wait_for_replies());
        }
        let in_transaction = status == TransactionStatus::InTransaction
            && self.server.kept.lists == Lists::No
            && !(takes_back || resets_all)
            && needs != NeedsChannels::Reads;
        if standing == Standing::Between && (status == TransactionStatus::Idle || in_transaction) {
            return Some(Verdict::Stop(Exit::NeedsChannels));
        }
        // Where nobody knows what it calls, it mostly leaves none.
        (needs != NeedsChannels::Unseen).then(|| self.fail_message(message, channels_elsewhere()))
    }

    fn channels_needed(&self, message: &Message<'_>) -> Needed {
        if message.tag == FrontendTag::FunctionCall && !calls_large_object(message) {
            return Needed { needs: NeedsChannels::Perhaps, ..Needed::default() };
        }
        match carried(self.session, &self.server.mirror, message) {
            Carried::Nothing => Needed::default(),
            // There is none of that name, as PostgreSQL is about to say.
            Carried::Unknown if !self.server.kept.may_have_prepared() && !self.server.kept.names_are_own() => {
                Needed::default()
            }
            Carried::TooLong | Carried::Unknown => Needed::unread(),
            Carried::Text(text, _) => self.needed_by(text),
            Carried::Statement(statement) => self.needed_by(text_of(&statement.definition)),
        }
    }

    /// Where PostgreSQL tells what the client leaves, and what it asks for by what it calls.
    fn channels_asked(&self, message: &Message<'_>) -> Needed {
        let Leaves { asks_channels, unlistens, .. } = match carried(self.session, &self.server.mirror, message) {
            Carried::Nothing | Carried::TooLong | Carried::Unknown => Leaves::default(),
            Carried::Text(text, _) => Leaves::of(text),
            Carried::Statement(statement) => Leaves::of(text_of(&statement.definition)),
        };
        let needs = if asks_channels { NeedsChannels::Reads } else { NeedsChannels::No };
        Needed { needs, leaves: unlistens, ..Needed::default() }
    }

    fn needed_by(&self, text: &[u8]) -> Needed {
        let leaves = Leaves::of(text);
        let (by_call, call_resets_all) = self.server.kept.channels_needed_by_call(text);
        let Leaves { takes_back, ends_transaction, resets_all, .. } = leaves;
        Needed {
            needs: NeedsChannels::by_words(&leaves).max(by_call),
            leaves: leaves.unlistens,
            takes_back,
            ends_transaction,
            resets_all: resets_all || call_resets_all,
        }
    }
}

/// What a message needs of what its client listens to, and does to its transaction.
#[derive(Default)]
struct Needed {
    needs: NeedsChannels,
    /// By its own words it takes some away.
    leaves: bool,
    takes_back: bool,
    ends_transaction: bool,
    resets_all: bool,
}

impl Needed {
    /// Its text is too long, or is not known here.
    fn unread() -> Self {
        Self {
            needs: NeedsChannels::Perhaps,
            takes_back: true,
            ends_transaction: true,
            resets_all: true,
            ..Self::default()
        }
    }
}
