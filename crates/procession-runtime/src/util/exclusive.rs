//! A value that is shared between threads only by exclusive reference.

use std::fmt;

/// A wrapper that is `Sync` whatever it holds, because a shared reference to it provides no access
/// to a value that is not `Sync`.
///
/// Errors hold what was refused in it, so that they are `Sync` and can be boxed as
/// `dyn Error + Send + Sync`. A context holds messages in it, so that a future may keep a shared
/// reference to the context. It is the `Exclusive` of the standard library, which is not stable.
pub(crate) struct Exclusive<T>(T);

// SAFETY: exclusive access: `&Exclusive<T>` leads to a `&T` only by `get` and what uses it, and
// these ask for `T: Sync`. All other access is by value or by `&mut`.
unsafe impl<T> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    pub(crate) fn into_inner(self) -> T {
        self.0
    }

    pub(crate) const fn get_mut(&mut self) -> &mut T {
        &mut self.0
    }

    pub(crate) fn get(&self) -> &T
    where
        T: Sync,
    {
        &self.0
    }
}

impl<T: Clone + Sync> Clone for Exclusive<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: PartialEq + Sync> PartialEq for Exclusive<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq + Sync> Eq for Exclusive<T> {}

impl<T> fmt::Debug for Exclusive<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
