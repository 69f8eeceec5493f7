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
        call(|| drop(value));
    }
}

/// Calls code of the user. Returns `None` if it panics.
pub(crate) fn call<R>(code: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Some(value),
        Err(payload) => {
            if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                // Bounded: each drop could panic with another one.
                forget(second);
            }
            None
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Guarded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::panic_any;

    use super::{Guarded, call};

    /// Panics when it is dropped.
    struct Rude;

    impl Drop for Rude {
        fn drop(&mut self) {
            panic!("a value of the user");
        }
    }

    #[test]
    fn panics_end_here_with_their_payloads() {
        assert_eq!(call(|| 1), Some(1));
        assert_eq!(call(|| panic_any(Rude)), None::<()>);
        drop(Guarded::new(Rude));
    }
}
