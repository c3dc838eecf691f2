//! What a client may have changed in what texts call, up to when everybody has been told of it.

use weir_wire::TransactionStatus;

use super::words::Changed;

#[derive(Debug, Default)]
pub(crate) struct Altered {
    by: Option<Changed>,
    /// An answer since that was told last may say that it is there.
    answered: bool,
    /// It is on its way to being told, behind the input in hand.
    due: bool,
    /// Since what was told last of its transaction block something has ended that, or may have.
    pub(crate) block_may_be_over: bool,
    /// Something that runs is not answered ahead of the message in hand.
    pub(crate) is_behind: bool,
    /// A portal may hold what makes visible what is altered behind its Bind.
    pub(crate) portals_commit: bool,
}

impl Altered {
    pub(super) fn add(&mut self, by: Changed) {
        self.by = Some(self.by.as_ref().map_or(by.clone(), |altered| altered.with(&by)));
    }

    /// There is something of which not all has been told.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.by.is_some()
    }

    /// Whether it is to be put on its way, which it is once for an input.
    pub(crate) fn is_due(&mut self) -> bool {
        !std::mem::replace(&mut self.due, true)
    }

    /// A ReadyForQuery. `settled`: nothing more is owed.
    #[inline]
    pub(crate) fn ready(&mut self, before: TransactionStatus, status: TransactionStatus, settled: bool) {
        let idle = status == TransactionStatus::Idle;
        // What is changed in a transaction block nobody else sees before it ends.
        if idle || before == TransactionStatus::Idle || self.block_may_be_over {
            self.answered = self.by.is_some();
        }
        self.block_may_be_over &= !settled;
        self.portals_commit &= !(settled && idle);
    }

    /// Whether it is to be told.
    #[inline]
    pub(crate) fn is_to_tell(&self) -> bool {
        self.answered
    }

    /// What is told. `over`: its transaction, so that no more comes of that.
    pub(crate) fn tell(&mut self, over: bool) -> Option<Changed> {
        (self.answered, self.due) = (false, false);
        if over { self.by.take() } else { self.by.clone() }
    }
}
