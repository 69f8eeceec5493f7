//! Values of the user, whose drop may panic.

use std::fmt;
use std::mem::forget;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A value with code of the user. A panic of its drop ends here, so that it harms neither the
/// process of a connection nor the keeper of a node.
#[derive(Clone)]
pub(crate) struct Guarded<T>(Option<T>);

impl<T> Guarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for Guarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only the drop takes it")
    }
}

impl<T> Drop for Guarded<T> {
    fn drop(&mut self) {
        let value = self.0.take();
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
            && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
        {
            // Bounded: each drop could panic with another one.
            forget(second);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}
