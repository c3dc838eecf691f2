//! What takes away from what a client listens to, or reads it, where its pool's listener hears that for it (`kept/channels.rs`).
//!
//! Its own server knows nothing of those channels. So it is told to listen to them first, and what is left of them behind the transaction is what the
//! client still listens to.

use weir_wire::frontend::{BindNames, Parse};
use weir_wire::report::Report;
use weir_wire::{FrontendTag, TransactionStatus};

use super::requests::calls_large_object;
use super::{Exchange, Exit, Verdict};
use crate::failure::channels_elsewhere;
use crate::kept::leaves::Leaves;
use crate::kept::{Lists, NeedsChannels};
use crate::message::Message;
use crate::statements::text_of;

impl Exchange<'_> {
    /// `None`: the message may be sent.
    pub(super) fn before_channels(&mut self, message: &Message<'_>) -> Option<Verdict> {
        let (needs, takes_back) = self.channels_needed(message);
        let (status, owed) = (self.server.status, &self.server.owed);
        if needs == NeedsChannels::No {
            if let Lists::IfSet { taken_back, .. } = &mut self.server.kept.lists {
                *taken_back |= takes_back;
            }
            return None;
        }
        if status == TransactionStatus::Failed && !takes_back {
            // Nothing is carried out.
            return None;
        }
        let (settled, comes) = (owed.settled(), !owed.unsynced() && !owed.skipping());
        let owed_closes_alone = owed.closes_alone();
        let is_right = match &self.server.kept.lists {
            Lists::Certainly => true,
            Lists::IfSet { taken_back, .. } => {
                !takes_back
                    && !taken_back
                    && needs != NeedsChannels::Reads
                    && status == TransactionStatus::InTransaction
            }
            Lists::No => false,
        };
        if is_right {
            return None;
        }
        if !settled && comes {
            return Some(self.wait_for_replies());
        }
        let in_transaction = status == TransactionStatus::InTransaction
            && self.server.kept.lists == Lists::No
            && !takes_back
            && needs != NeedsChannels::Reads;
        // A Close cannot fail: whatever comes behind it may be a batch of its own.
        let begins = settled || owed_closes_alone;
        if begins && (status == TransactionStatus::Idle || in_transaction) {
            return Some(Verdict::Stop(Exit::NeedsChannels));
        }
        // A text that leaves some only perhaps mostly does not.
        (needs != NeedsChannels::Perhaps).then(|| self.fail_message(message, channels_elsewhere()))
    }

    /// A text, or what uses one, is not carried out, in its turn.
    pub(super) fn fail_message(&mut self, message: &Message<'_>, report: Report) -> Verdict {
        match message.tag {
            FrontendTag::Query => self.fail_text(message, None, report),
            FrontendTag::Parse => {
                let name = Parse::read(message.body()).map_or(&b""[..], |parse| parse.name);
                self.fail_text(message, Some(name), report)
            }
            _ => self.fail_in_order(message, report),
        }
    }

    /// And whether it may take back a part of its transaction.
    fn channels_needed(&self, message: &Message<'_>) -> (NeedsChannels, bool) {
        use NeedsChannels::{No, Perhaps};
        let whole = message.present() == message.total;
        let of_text = |text: &[u8]| {
            let leaves = Leaves::of(text);
            let words = NeedsChannels::by_words(&leaves);
            (words.max(self.server.kept.channels_needed_by_call(text)), leaves.takes_back)
        };
        match message.tag {
            FrontendTag::Query | FrontendTag::Parse if !whole => (Perhaps, true),
            FrontendTag::FunctionCall if !calls_large_object(message) => (Perhaps, false),
            FrontendTag::Query => of_text(text_of(message.body())),
            FrontendTag::Parse => {
                Parse::read(message.body()).map_or((No, false), |parse| of_text(text_of(parse.definition)))
            }
            FrontendTag::Bind => {
                let Some(names) = BindNames::parse(message.body()) else { return (No, false) };
                if names.statement.is_empty() {
                    return match self.session.unnamed.last() {
                        b"" => (Perhaps, true),
                        definition => of_text(text_of(definition)),
                    };
                }
                let held = self.session.statements.get(names.statement);
                held.map_or((Perhaps, true), |held| of_text(text_of(&held.statement.definition)))
            }
            _ => (No, false),
        }
    }
}
