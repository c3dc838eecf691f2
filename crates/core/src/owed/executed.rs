//! What a simple query would be part of that has no Sync in front of it.
//!
//! Since 18 PostgreSQL takes it into the transaction that an Execute in front of it has begun (`start_xact_command`,
//! src/backend/tcop/postgres.c); where nothing was executed since that transaction's end, it commits by itself.

use weir_wire::TransactionStatus;

use super::{BatchState, OwedQueue};
use crate::statements::Runs;

/// Who has executed something since the last Sync, or since what may have ended the transaction.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum By {
    #[default]
    Nobody,
    /// Requests of ours alone.
    Ours,
    Client,
}

#[derive(Debug, Default)]
pub(super) struct Executed {
    by: By,
    /// A simple query was sent behind what no Sync has ended since: the next Sync ends the transaction that it is in.
    joined: bool,
    /// Behind that query nothing was sent that has PostgreSQL take up its transaction again.
    dormant: bool,
    /// Since the last Sync or query the client has sent more than what prepares, and what runs.
    pub(super) acts: bool,
    runs: bool,
}

impl Executed {
    pub(super) fn query(&mut self, synced: bool) {
        self.joined |= !synced;
        self.dormant = self.joined;
        self.by = By::Nobody;
        (self.acts, self.runs) = (false, false);
    }

    /// The Sync that was sent last was ignored, behind what the client has executed.
    pub(super) fn goes_on(&mut self) {
        self.by = By::Client;
        (self.acts, self.runs) = (true, true);
    }
}

impl OwedQueue {
    /// Counts what was executed by the extended protocol that may end a transaction.
    pub(crate) fn ends(&self) -> u64 {
        self.ends
    }

    /// No Sync is behind what was sent.
    pub(crate) fn unsynced(&self) -> bool {
        self.sending != BatchState::Synced
    }

    /// An Execute was sent of a statement that may change parameters: PostgreSQL reports it with the next ReadyForQuery.
    pub(crate) fn executes_anything(&mut self) {
        self.reported_by = self.readies_sent + 1;
    }

    /// The same, of one that may do so by its own words.
    pub(crate) fn executes_set(&mut self) {
        self.executes_anything();
        self.set_by = self.reported_by;
    }

    /// An Execute of the client's is sent.
    #[inline]
    pub(crate) fn executes(&mut self, runs: Runs) {
        self.executed.runs = true;
        if runs == Runs::Within {
            self.executed.by = By::Client;
            return;
        }
        self.ends += 1;
        if !(runs == Runs::MayBeEmpty && self.executed.by == By::Ours) {
            self.executed.by = By::Nobody;
        }
    }

    /// An Execute of ours is sent in the client's batch.
    pub(crate) fn executes_ours(&mut self) {
        if self.executed.by == By::Nobody {
            self.executed.by = By::Ours;
        }
    }

    /// Whether a simple query sent now would be part of a transaction that only we have begun.
    #[inline]
    pub(crate) fn joins_ours(&self) -> bool {
        self.executed.by == By::Ours
    }

    /// A Sync of ours would end nothing of the client's: no transaction, and no portal outside of a block. `status`: as was told last.
    pub(crate) fn may_be_synced(&self, status: TransactionStatus) -> bool {
        let ends_nothing = !self.executed.acts || status == TransactionStatus::InTransaction;
        ends_nothing && !self.executed.runs && !self.is_joined(status) && !self.is_in_copy() && !self.skipping()
    }

    /// A Parse, Bind, Describe or Execute is sent.
    #[inline]
    pub(super) fn takes_up(&mut self) {
        self.executed.dormant = false;
    }

    /// Whether a Sync sent now might end nothing, for all that a transaction is open: see [`crate::server::Server::parse_nothing`].
    #[inline]
    pub(crate) fn is_dormant(&self) -> bool {
        // In a copy it is ignored, and behind an error it ends the batch.
        self.executed.dormant && !self.is_in_copy() && !self.skipping()
    }

    /// Whether a Sync may end a transaction that a simple query is part of. A transaction block it would not end, but that is not known here.
    pub(crate) fn is_joined(&self, status: TransactionStatus) -> bool {
        self.executed.joined && status == TransactionStatus::InTransaction
    }
}
