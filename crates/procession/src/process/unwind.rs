//! Guards for user code, which may panic.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Exit;
use crate::process::exit::Exiting;
use crate::sys;

/// Runs user code. Returns a panic, or a process's wish to end, as an exit.
pub(crate) fn guarded<R>(user_code: impl FnOnce() -> R) -> Result<R, Exit> {
    catch_unwind(AssertUnwindSafe(user_code)).map_err(|payload| {
        let payload = match payload.downcast::<Exiting>() {
            Ok(exiting) => return exiting.0,
            Err(payload) => payload,
        };
        let message: Arc<str> =
            match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
                (Some(text), _) => Arc::from(*text),
                (_, Some(text)) => Arc::from(text.as_str()),
                _ => Arc::from("a value that is no text"),
            };
        drop_guarded(payload);
        sys::tell_panic(&message);
        Exit::Panicked(message)
    })
}

/// Drops several user values, each like [`drop_guarded`].
pub(crate) fn drop_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(drop_guarded);
}

/// Drops a user value. A panic of its `Drop` ends here, and so does a panic of that panic's
/// payload.
pub(crate) fn drop_guarded<T>(value: T) {
    let _ = is_dropped(value);
}

/// Drops a user value like [`drop_guarded`]. Returns `false` if its `Drop` has panicked.
#[must_use]
pub(crate) fn is_dropped<T>(value: T) -> bool {
    let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) else { return true };
    // Bounded: the second payload is leaked, since each drop could panic with another one.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    false
}

/// A user value that is dropped by [`drop_guarded`], also while one of its methods unwinds.
pub(crate) struct DropGuarded<T>(Option<T>);

impl<T> DropGuarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T> Deref for DropGuarded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("only the drop takes it")
    }
}

impl<T> Drop for DropGuarded<T> {
    fn drop(&mut self) {
        drop_guarded(self.0.take());
    }
}
