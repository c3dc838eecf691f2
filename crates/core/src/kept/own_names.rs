//! Whether a server's prepared statements have its client's own names (`exchange/own_names.rs`).

use super::{Kept, Kinds};
use crate::time::{Duration, Time};

/// How long names that could not be given are not tried again for what needs them only perhaps.
const AGAIN: Duration = Duration::from_secs(1);

/// Whether statements of the protocol have their client's own names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum OwnNames {
    /// They have Weir's.
    #[default]
    No,
    /// They are prepared by what was sent up to this place.
    Sent { by: u64 },
    /// One of them could not be.
    Failed { by: u64 },
    /// Up to the client's end.
    Given,
}

impl Kept {
    /// Its statements are given its client's own names, and the two stay together. `by`: the place behind what gives them.
    pub(crate) fn gives_own_names(&mut self, by: u64, now: Time) {
        self.own_names = OwnNames::Sent { by };
        self.hold(self.held, now);
    }

    /// What stands in this place has failed, or is not as it should be. Whether it gives names.
    pub(crate) fn names_fail(&mut self, place: u64) -> bool {
        let (OwnNames::Sent { by } | OwnNames::Failed { by }) = self.own_names else { return false };
        let gives = place < by;
        if gives {
            self.own_names = OwnNames::Failed { by };
        }
        gives
    }

    /// Or are to be.
    pub(crate) fn names_are_own(&self) -> bool {
        self.own_names != OwnNames::No
    }

    #[inline]
    pub(crate) fn gives_names(&self) -> bool {
        matches!(self.own_names, OwnNames::Sent { .. } | OwnNames::Failed { .. })
    }

    /// All is answered. Whether they are there, for good.
    pub(crate) fn has_own_names(&mut self, now: Time) -> bool {
        let failed = matches!(self.own_names, OwnNames::Failed { .. });
        self.own_names = if failed { OwnNames::No } else { OwnNames::Given };
        // Whether SQL has prepared anything is looked for.
        self.ends = if failed { self.ends.with(Kinds::PREPARED) } else { self.ends };
        if failed {
            (self.names_failed, self.names_again_at) = (true, now + AGAIN);
        }
        !failed
    }
}
