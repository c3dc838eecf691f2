//! Which of a session's startup values are the server's defaults at the moment, because a request has reset them.
//!
//! [`Standings`] is what has happened, as of the replies that have come. While a batch is sent, [`Sending`] tells when that is
//! enough to know what its next message meets. At a ReadyForQuery the values that stand there as reset are the client's again.
//! Knows nothing of sessions and servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_wire::TransactionStatus;

use crate::meanings::Meaning;
use crate::resets::Resets;

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
pub(crate) enum Sending {
    /// It resets nothing.
    #[default]
    Plain,
    /// It resets something; or, where it did, goes on with what may take back that the values were given again. The replies tell
    /// what the server has.
    Resets,
    /// What it had reset was given again.
    GivenAgain,
}

impl Sending {
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

    pub(crate) fn given_again(&mut self) {
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
}

/// The startup values that a request has reset, while it is under way.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    standings: BTreeMap<Arc<str>, Standing>,
}

impl Standings {
    pub(crate) fn is_empty(&self) -> bool {
        self.standings.is_empty()
    }

    /// Those for which the server has its default, as far as the replies say.
    pub(crate) fn reset_names(&self) -> Names {
        self.standings.keys().filter(|name| self.is_reset(name)).cloned().collect()
    }

    /// Whether the server has its default for this one, as far as the replies say.
    pub(crate) fn is_reset(&self, name: &str) -> bool {
        matches!(self.standings.get(name), Some(Standing::Reset | Standing::ForGood))
    }

    /// RESET, or SET to DEFAULT.
    pub(crate) fn reset(&mut self, name: &Arc<str>) {
        let standing = self.standings.entry(Arc::clone(name)).or_insert(Standing::Reset);
        if *standing == Standing::SetBehind {
            *standing = Standing::ForGood;
        }
    }

    /// DISCARD ALL: PostgreSQL commits it at once (`XACT_FLAGS_NEEDIMMEDIATECOMMIT`, src/backend/tcop/postgres.c at 15).
    pub(crate) fn discarded(&mut self, name: &Arc<str>) {
        self.standings.insert(Arc::clone(name), Standing::ForGood);
    }

    /// It was set to something, by the client or by us.
    pub(crate) fn set(&mut self, name: &str) {
        match self.standings.get_mut(name) {
            Some(standing @ Standing::ForGood) => *standing = Standing::SetBehind,
            Some(Standing::Reset) => _ = self.standings.remove(name),
            Some(Standing::SetBehind) | None => {}
        }
    }

    /// COMMIT: no error takes anything back any more.
    pub(crate) fn committed(&mut self) {
        self.standings.retain(|_, standing| *standing != Standing::SetBehind);
        self.standings.values_mut().for_each(|standing| *standing = Standing::ForGood);
    }

    /// An error or a ROLLBACK has taken back what was not for good.
    pub(crate) fn undone(&mut self) {
        self.standings.retain(|_, standing| *standing != Standing::Reset);
        self.standings.values_mut().for_each(|standing| *standing = Standing::ForGood);
    }

    /// Whether the server has its default for this one, whatever follows.
    pub(crate) fn is_for_good(&self, name: &str) -> bool {
        self.standings.get(name) == Some(&Standing::ForGood)
    }

    /// ReadyForQuery: the values that are to be the client's again. In a transaction they are given within it, and what takes that back
    /// takes it back together with a reset in it, but not with one before it.
    pub(crate) fn ready(&mut self, status: TransactionStatus) -> Names {
        let names = self.reset_names();
        match status {
            TransactionStatus::Idle => self.standings.clear(),
            _ => {
                self.standings.retain(|_, standing| *standing != Standing::Reset);
                self.standings.values_mut().for_each(|standing| *standing = Standing::SetBehind);
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_reset_in_its_batch_waits_once() {
        let mut batch = Sending::default();
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
        let error: Say = |standings, _| standings.undone();
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
        ] {
            assert_eq!(is_default_after(said), expected);
        }
    }
}
