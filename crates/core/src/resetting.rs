//! Which of a session's startup values are the server's defaults at the moment, because a request has reset them.
//!
//! Two views of one batch. [`Sending`] is what the next message meets, should all go well that was sent of the batch in front of
//! it: else PostgreSQL skips that message. [`Standings`] is what has happened, as of the replies that have come; at a
//! ReadyForQuery the values that stand there as reset are the client's again. Knows nothing of sessions and servers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Startup values by name.
pub(crate) type Names = BTreeSet<Arc<str>>;

/// The batch that is being sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Sending {
    /// It resets nothing.
    #[default]
    Plain,
    /// What follows in it would run under the server's defaults for these.
    Reset(Names),
    /// They were given again within it.
    GivenAgain,
}

impl Sending {
    /// An Execute of what resets these.
    pub(crate) fn resets(&mut self, names: Names) {
        match self {
            Self::Reset(reset) => reset.extend(names),
            Self::Plain | Self::GivenAgain => *self = Self::Reset(names),
        }
    }

    pub(crate) fn is_reset(&self) -> bool {
        matches!(self, Self::Reset(names) if !names.is_empty())
    }

    /// A message follows that reads parameters: what is to be given ahead of it.
    pub(crate) fn gives(&mut self) -> Option<Names> {
        if !self.is_reset() {
            return None;
        }
        match std::mem::replace(self, Self::GivenAgain) {
            Self::Reset(names) => Some(names),
            Self::Plain | Self::GivenAgain => None,
        }
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

    /// An error has taken back what was not for good.
    pub(crate) fn failed(&mut self) {
        self.standings.retain(|_, standing| *standing != Standing::Reset);
        self.standings.values_mut().for_each(|standing| *standing = Standing::ForGood);
    }

    /// ReadyForQuery: the values that are to be the client's again.
    pub(crate) fn ready(&mut self) -> Names {
        let standings = std::mem::take(&mut self.standings);
        standings.into_iter().filter(|(_, standing)| *standing != Standing::SetBehind).map(|(name, _)| name).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Names {
        names.iter().map(|&name| name.into()).collect()
    }

    #[test]
    fn what_a_batch_resets_is_given_once_ahead_of_what_reads_it() {
        let mut batch = Sending::default();
        assert_eq!(batch.gives(), None);
        batch.resets(names(&["a"]));
        batch.resets(names(&["b"]));
        assert_eq!(batch.gives(), Some(names(&["a", "b"])));
        assert_eq!(batch.gives(), None);
        batch.resets(names(&["c"]));
        assert_eq!(batch.gives(), Some(names(&["c"])));
        assert!(batch.ends(), "something was reset, though it was given again");
        assert!(!batch.ends());
    }

    #[test]
    fn a_reset_of_other_parameters_gives_nothing() {
        let mut batch = Sending::default();
        batch.resets(names(&[]));
        assert!(!batch.is_reset() && batch.gives().is_none());
        assert!(batch.ends(), "its requests are in order all the same");
    }

    /// What was said of one value, and whether it is the server's default then.
    fn is_default_after(said: &[fn(&mut Standings, &Arc<str>)]) -> bool {
        let (mut standings, name) = (Standings::default(), "a".into());
        for say in said {
            say(&mut standings, &name);
        }
        let is_reset = standings.is_reset(&name);
        assert_eq!(!standings.ready().is_empty(), is_reset);
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
        let error: Say = |standings, _| standings.failed();
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
        ] {
            assert_eq!(is_default_after(said), expected);
        }
    }
}
