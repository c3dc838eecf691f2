//! What a client may have changed in what texts call, up to when everybody has been told of it.

use super::words::Changed;

#[derive(Debug, Default)]
pub(crate) struct Altered {
    by: Option<Changed>,
    /// An answer since that was told last may say that it is there.
    answered: bool,
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

    /// Something is answered that may say that it is there.
    #[inline]
    pub(crate) fn answered(&mut self) {
        self.answered = self.by.is_some();
    }

    /// Whether it is to be told.
    #[inline]
    pub(crate) fn is_to_tell(&self) -> bool {
        self.answered
    }

    /// What is told. `over`: its transaction, so that no more comes of that.
    pub(crate) fn tell(&mut self, over: bool) -> Option<Changed> {
        self.answered = false;
        if over { self.by.take() } else { self.by.clone() }
    }
}
