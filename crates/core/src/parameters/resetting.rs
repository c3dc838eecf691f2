//! Which of a session's startup values are the server's defaults at the moment, because a request has reset them.
//!
//! [`Standings`] is what has happened, as of the replies that have come. While a batch is sent, [`BatchResets`] tells when that is
//! enough to know what its next message meets. At a ReadyForQuery the values that stand there as reset are the client's again.
//! Knows nothing of sessions and servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_wire::TransactionStatus;

use crate::parameters::meanings::Meaning;
use crate::parameters::resets::Resets;

/// Startup values by name.
pub(crate) type Names = BTreeSet<Arc<str>>;

/// What a request is to the startup values, when its reply comes.
#[derive(Debug)]
pub(crate) enum Noted {
    /// It takes parameters back to the session's defaults.
    Resets(Arc<Resets>),
    /// It makes a name of the client's stand for something else.
    Means(Meaning),
    /// Ours: these are the client's again.
    GivenAgain(Names),
}

/// The batch that is being sent.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchResets {
    /// It resets nothing.
    #[default]
    Plain,
    /// It resets something; or, where it did, goes on with what may take back that the values were given again. The replies tell
    /// what the server has.
    Resets,
    /// What it had reset was given again.
    GivenAgain,
}

impl BatchResets {
    /// An Execute. `resets`: of what resets some.
    pub(crate) fn executes(&mut self, resets: bool) {
        if resets || *self != Self::Plain {
            *self = Self::Resets;
        }
    }

    /// A message that reads parameters has to wait for the replies, and for what is given ahead of it.
    pub(crate) fn resets(self) -> bool {
        self == Self::Resets
    }

    pub(super) fn given_again(&mut self) {
        *self = Self::GivenAgain;
    }

    /// What ends a batch is sent. Whether something was reset in it.
    pub(crate) fn ends(&mut self) -> bool {
        std::mem::take(self) != Self::Plain
    }
}

/// One startup value, whose server has the client's own value unless it is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The server's default, unless what follows fails.
    Reset,
    /// The server's default, whatever follows.
    ForGood,
    /// The client's own again; should what follows fail, the server's default.
    SetBehind,
    /// What SET LOCAL says, up to the transaction's end; then as [`Standing::Reset`].
    LocalOverReset,
    /// The same, then as [`Standing::ForGood`].
    LocalOverGood,
}

impl Standing {
    /// Whether the session's value, under what is local, is the server's default.
    fn is_default(self) -> bool {
        self != Self::SetBehind
    }

    fn is_local(self) -> bool {
        matches!(self, Self::LocalOverReset | Self::LocalOverGood)
    }
}

/// The startup values that a request has reset, while it is under way.
#[derive(Debug, Default)]
pub(super) struct Standings {
    standings: BTreeMap<Arc<str>, Standing>,
    /// A savepoint of the transaction under way has a value that was reset, and not given again yet: to go back to it would be to
    /// have the server's default.
    savepoint: Savepoint,
    /// A request has failed since the last ReadyForQuery, and may have taken back with its transaction what was given again in it.
    failed: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Savepoint {
    #[default]
    Harmless,
    HasDefaults,
    /// The client has gone back to one that may be it, or else nobody can tell what the server has.
    Lost,
}

impl Standings {
    pub(crate) fn is_empty(&self) -> bool {
        self.standings.is_empty() && self.savepoint == Savepoint::Harmless
    }

    /// Those for which the server has its default, as far as the replies say.
    pub(super) fn reset_names(&self) -> Names {
        self.standings.keys().filter(|name| self.is_reset(name)).cloned().collect()
    }

    /// Whether the server has its default for this one, as far as the replies say.
    pub(crate) fn is_reset(&self, name: &str) -> bool {
        match self.standings.get(name) {
            Some(Standing::Reset | Standing::ForGood) => true,
            Some(Standing::SetBehind) => self.failed,
            Some(Standing::LocalOverReset | Standing::LocalOverGood) | None => false,
        }
    }

    /// RESET, or SET to DEFAULT.
    pub(crate) fn reset(&mut self, name: &Arc<str>) {
        let standing = self.standings.entry(Arc::clone(name)).or_insert(Standing::Reset);
        *standing = match standing {
            Standing::Reset | Standing::LocalOverReset => Standing::Reset,
            Standing::ForGood | Standing::SetBehind | Standing::LocalOverGood => Standing::ForGood,
        };
    }

    /// DISCARD ALL: PostgreSQL commits it at once (`XACT_FLAGS_NEEDIMMEDIATECOMMIT`, src/backend/tcop/postgres.c at 15).
    pub(crate) fn discarded(&mut self, name: &Arc<str>) {
        self.standings.insert(Arc::clone(name), Standing::ForGood);
    }

    /// It was set to something, by the client or by us.
    pub(crate) fn set(&mut self, name: &str) {
        match self.standings.get_mut(name) {
            Some(standing @ (Standing::ForGood | Standing::LocalOverGood)) => *standing = Standing::SetBehind,
            Some(Standing::Reset | Standing::LocalOverReset) => _ = self.standings.remove(name),
            Some(Standing::SetBehind) | None => {}
        }
    }

    /// SET LOCAL: it is nobody's to give again before the transaction's end.
    pub(crate) fn set_local(&mut self, name: &str) {
        match self.standings.get_mut(name) {
            Some(standing @ Standing::Reset) => *standing = Standing::LocalOverReset,
            Some(standing @ Standing::ForGood) => *standing = Standing::LocalOverGood,
            _ => {}
        }
    }

    pub(super) fn savepoint_set(&mut self) {
        if self.savepoint == Savepoint::Harmless && self.standings.values().any(|standing| standing.is_default()) {
            self.savepoint = Savepoint::HasDefaults;
        }
    }

    /// ROLLBACK TO a savepoint.
    pub(super) fn gone_back(&mut self) {
        // It may be one that was set before what is local now, and before the reset under it.
        if self.savepoint == Savepoint::HasDefaults || self.have_local() {
            self.savepoint = Savepoint::Lost;
        }
    }

    /// Nobody can tell what the server has.
    pub(super) fn are_lost(&self) -> bool {
        self.savepoint == Savepoint::Lost
    }

    /// Whether a ROLLBACK, of all or to a savepoint, or a COMMIT may leave the server's defaults.
    pub(super) fn are_undoable(&self) -> bool {
        let undoable = |standing: &Standing| !standing.is_default() || standing.is_local();
        self.savepoint != Savepoint::Harmless || self.standings.values().any(undoable)
    }

    /// Whether the end of the transaction, whichever, is the end of a value that is set for its length.
    pub(super) fn have_local(&self) -> bool {
        self.standings.values().any(|standing| standing.is_local())
    }

    /// Something was set for the session, and nobody has read what.
    pub(super) fn lose(&mut self) {
        self.savepoint = Savepoint::Lost;
    }

    /// COMMIT: no error takes anything back any more.
    pub(super) fn committed(&mut self) {
        self.savepoint = Savepoint::Harmless;
        self.standings.retain(|_, standing| *standing != Standing::SetBehind);
        self.standings.values_mut().for_each(|standing| *standing = Standing::ForGood);
    }

    /// A ROLLBACK of the transaction has taken back what was not for good.
    pub(crate) fn rolled_back(&mut self) {
        self.savepoint = Savepoint::Harmless;
        self.take_resets_back();
        self.standings.values_mut().for_each(|standing| *standing = Standing::ForGood);
    }

    /// The same, unless it was to a savepoint; then the transaction goes on.
    pub(super) fn perhaps_gone_back(&mut self) {
        let savepoint = self.savepoint;
        self.rolled_back();
        self.savepoint = savepoint;
        self.gone_back();
    }

    /// An error has taken resets back. Whether all else that is not for good is taken back with them, the ReadyForQuery tells: a
    /// transaction that waits for its ROLLBACK may go back to what a savepoint holds.
    pub(super) fn failed(&mut self) {
        self.take_resets_back();
        self.failed = !self.standings.is_empty();
    }

    /// Whether the server may have its default for this one, or what was set behind: what it tells is what it has.
    pub(crate) fn is_told(&self, name: &str) -> bool {
        self.failed && self.standings.get(name) == Some(&Standing::SetBehind)
    }

    fn take_resets_back(&mut self) {
        self.standings.retain(|_, standing| !matches!(standing, Standing::Reset | Standing::LocalOverReset));
    }

    /// Whether the server has its default for this one, whatever follows.
    pub(crate) fn is_for_good(&self, name: &str) -> bool {
        self.standings.get(name) == Some(&Standing::ForGood)
    }

    /// ReadyForQuery: the values that are to be the client's again. In a transaction they are given within it, and what takes that back
    /// takes it back together with a reset in it, but not with one before it.
    pub(super) fn ready(&mut self, status: TransactionStatus) -> Names {
        let failed = std::mem::take(&mut self.failed);
        if status == TransactionStatus::Idle {
            if failed {
                self.rolled_back();
            }
            let standings = std::mem::take(self).standings;
            return standings.into_iter().filter(|(_, standing)| standing.is_default()).map(|(name, _)| name).collect();
        }
        let names = self.reset_names();
        self.standings.retain(|_, standing| *standing != Standing::Reset);
        for standing in self.standings.values_mut().filter(|standing| **standing == Standing::ForGood) {
            *standing = Standing::SetBehind;
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_reset_in_its_batch_waits_once() {
        let mut batch = BatchResets::default();
        batch.executes(false);
        assert!(!batch.resets() && !batch.ends());
        batch.executes(true);
        assert!(batch.resets());
        batch.given_again();
        assert!(!batch.resets());
        batch.executes(false);
        assert!(batch.resets(), "it may be a ROLLBACK");
        batch.given_again();
        assert!(batch.ends() && !batch.ends(), "something was reset, though it was given again");
    }

    /// What was said of one value, and whether it is the server's default then.
    fn is_default_after(said: &[fn(&mut Standings, &Arc<str>)]) -> bool {
        let (mut standings, name) = (Standings::default(), "a".into());
        for say in said {
            say(&mut standings, &name);
        }
        let is_reset = standings.is_reset(&name);
        assert_eq!(!standings.reset_names().is_empty(), is_reset);
        assert_eq!(!standings.ready(TransactionStatus::Idle).is_empty(), is_reset);
        assert!(standings.is_empty());
        is_reset
    }

    #[test]
    fn a_value_stands_as_what_was_answered_last_leaves_it() {
        type Say = fn(&mut Standings, &Arc<str>);
        let reset: Say = |standings, name| standings.reset(name);
        let discard: Say = |standings, name| standings.discarded(name);
        let set: Say = |standings, name| standings.set(name);
        let commit: Say = |standings, _| standings.committed();
        let ready: Say = |standings, _| drop(standings.ready(TransactionStatus::InTransaction));
        let error: Say = |standings, _| standings.failed();
        let rollback: Say = |standings, _| standings.rolled_back();
        for (said, expected) in [
            (&[][..], false),
            (&[set, error], false),
            (&[reset], true),
            (&[reset, set], false),
            (&[reset, set, reset], true),
            (&[reset, error], false),
            (&[reset, set, error], false),
            (&[reset, commit, error], true),
            (&[reset, commit, set], false),
            (&[reset, commit, set, error], true),
            (&[reset, commit, set, commit, error], false),
            (&[discard, error], true),
            (&[discard, set], false),
            (&[discard, set, error], true),
            (&[discard, set, reset, error], true),
            (&[reset, discard, reset, error], true),
            // The value is given again in a transaction that began behind the reset, or before it.
            (&[reset, commit, ready], false),
            (&[reset, commit, ready, error], true),
            (&[discard, set, ready, error], true),
            (&[reset, commit, ready, commit, error], false),
            (&[reset, ready, error], false),
            (&[reset, ready, rollback], false),
        ] {
            assert_eq!(is_default_after(said), expected);
        }
    }

    /// What the client itself has set behind in that transaction may be what a savepoint holds.
    #[test]
    fn a_transaction_that_waits_for_its_rollback_has_given_nothing_up() {
        let name: Arc<str> = "a".into();
        let mut standings = Standings::default();
        standings.discarded(&name);
        standings.ready(TransactionStatus::InTransaction);
        standings.failed();
        assert!(standings.is_reset("a") && standings.is_told("a"));
        assert!(standings.ready(TransactionStatus::Failed).is_empty());
        assert!(!standings.is_reset("a"));
        standings.gone_back();
        assert!(standings.ready(TransactionStatus::InTransaction).is_empty() && !standings.are_lost());
        standings.failed();
        standings.rolled_back();
        assert_eq!(standings.ready(TransactionStatus::Idle).len(), 1);
    }

    /// What is local is left alone up to the transaction's end.
    #[test]
    fn what_is_local_over_a_reset_is_given_again_behind_the_transaction() {
        let (in_transaction, idle) = (TransactionStatus::InTransaction, TransactionStatus::Idle);
        let name: Arc<str> = "a".into();
        let local = |discards: bool| {
            let mut standings = Standings::default();
            if discards {
                standings.discarded(&name)
            } else {
                standings.reset(&name)
            }
            standings.set_local(&name);
            assert!(!standings.is_reset(&name) && standings.ready(in_transaction).is_empty());
            standings
        };
        for (discards, then, expected) in [
            (false, Standings::committed as fn(&mut Standings), true),
            (true, Standings::committed, true),
            (false, Standings::rolled_back, false),
            (true, Standings::rolled_back, true),
            (false, |standings| standings.set("a"), false),
            (false, |standings| standings.reset(&"a".into()), true),
            (false, |_| {}, true),
        ] {
            let mut standings = local(discards);
            then(&mut standings);
            assert_eq!(!standings.ready(idle).is_empty(), expected);
        }
    }

    #[test]
    fn a_savepoint_that_has_defaults_is_not_gone_back_to() {
        let name: Arc<str> = "a".into();
        let mut standings = Standings::default();
        standings.savepoint_set();
        standings.gone_back();
        assert!(!standings.are_lost(), "nothing was reset in front of it");
        standings.reset(&name);
        standings.savepoint_set();
        standings.ready(TransactionStatus::InTransaction);
        assert!(standings.are_undoable() && !standings.are_lost());
        standings.gone_back();
        assert!(standings.are_lost());
        standings.ready(TransactionStatus::Idle);
        assert!(!standings.are_lost() && standings.is_empty());
        standings.reset(&name);
        standings.set_local(&name);
        standings.gone_back();
        assert!(standings.are_lost(), "the savepoint may be older than the reset");
    }
}
