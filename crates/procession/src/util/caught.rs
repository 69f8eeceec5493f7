//! Panics that the runtime has caught, of which a simulated system is told.

use std::cell::Cell;

thread_local! {
    /// What is called for each panic that is caught on this thread.
    static TELL: Cell<Option<fn(&str)>> = const { Cell::new(None) };
}

/// Tells of a panic that was caught.
#[cold]
pub(crate) fn tell(message: &str) {
    if let Some(tell) = TELL.get() {
        tell(message);
    }
}

/// Sets what is called for each panic that is caught on this thread.
#[cfg(feature = "sim")]
pub(crate) fn set(tell: Option<fn(&str)>) {
    TELL.set(tell);
}
