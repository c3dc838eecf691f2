//! What most sessions have nothing of, in the room of a pointer.

use std::ops::{Deref, DerefMut};

/// A value that has a beginning at which it takes no memory.
pub(crate) trait Blank: Default + 'static {
    const BLANK: &'static Self;
}

/// A value that is allocated when it is first written to: of a hundred thousand clients most never prepare a statement. Whoever may write
/// to many of them, and has nothing to say, asks first whether it [is blank](Self::is_blank).
#[derive(Debug, Default)]
pub(crate) struct Sparse<T>(Option<Box<T>>);

impl<T> Sparse<T> {
    /// It was never written to, and takes no memory.
    #[inline]
    pub(crate) fn is_blank(&self) -> bool {
        self.0.is_none()
    }
}

impl<T> From<T> for Sparse<T> {
    fn from(value: T) -> Self {
        Self(Some(Box::new(value)))
    }
}

impl<T: Blank> Deref for Sparse<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_deref().unwrap_or(T::BLANK)
    }
}

impl<T: Blank> DerefMut for Sparse<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}
