//! Panics that the runtime has caught.

use std::cell::Cell;
use std::sync::OnceLock;

thread_local! {
    /// What a simulated system calls for each panic that is caught on this thread.
    static TELL: Cell<Option<fn(&str)>> = const { Cell::new(None) };
}

/// The function that is called for each caught panic that no report contains, if the panic hook of
/// the program leaves panics to reports.
static PRINT: OnceLock<fn(&str)> = OnceLock::new();

/// Reports a caught panic to a simulated system.
#[cold]
pub(crate) fn tell(message: &str) {
    if let Some(tell) = TELL.get() {
        tell(message);
    }
}

/// Has a caught panic printed if the panic hook has not. No report contains it.
#[cold]
pub(crate) fn print(message: &str) {
    if let Some(print) = PRINT.get() {
        print(message);
    }
}

/// Sets what is called for each caught panic that no report contains. Only the first call counts.
pub(crate) fn print_by(print: fn(&str)) {
    PRINT.get_or_init(|| print);
}

/// Sets what is called for each panic that is caught on this thread.
#[cfg(feature = "sim")]
pub(crate) fn set(tell: Option<fn(&str)>) {
    TELL.set(tell);
}
