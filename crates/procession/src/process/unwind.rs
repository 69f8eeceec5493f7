//! Code of the user that may panic, and how its panics end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::Exit;
use crate::process::exit::Exiting;

/// Runs user code; a panic becomes the exit that it causes, as does a process's wish to end.
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
        Exit::Panicked(message)
    })
}

/// Drops several things of the user's, as [`drop_guarded`] does one.
pub(crate) fn drop_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(drop_guarded);
}

/// Drops something of the user's; a panic of its `Drop` ends here, like one of the payload that
/// this panic has, and so on.
pub(crate) fn drop_guarded<T>(value: T) {
    // Bounded: a payload whose drop panics with another such payload for ever is leaked at the
    // second one.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}
