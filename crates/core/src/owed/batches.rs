//! Which batch touched something, and what that makes certain.

/// When something was last touched, as seen from the batch being sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Touched {
    /// In a batch that is answered: what is known of it is so.
    Answered,
    /// In this batch: if that was not carried out, neither is what follows.
    InThisBatch,
    /// In an earlier batch whose end is not known.
    InDoubt,
}

/// The last batches in which something of a kind was touched. Where the last is the one being sent, the one before decides
/// whether any is in doubt.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LastBatches {
    pub(super) last: u64,
    pub(super) before: u64,
}

impl LastBatches {
    pub(crate) const NONE: Self = Self { last: 0, before: 0 };

    pub(crate) fn touch(&mut self, batch: u64) {
        if batch != self.last {
            *self = Self { last: batch, before: self.last };
        }
    }
}
