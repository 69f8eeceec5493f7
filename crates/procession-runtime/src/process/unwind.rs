//! Guards for user code, which may panic.

use std::any::Any;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::Exit;
use crate::process::exit::Exiting;
use crate::sys::os;

/// The function that is called for each caught panic that no report contains, if the panic hook of
/// the program leaves panics to reports.
static PRINT: OnceLock<fn(&str)> = OnceLock::new();

/// Sets what is called for each caught panic that no report contains. Only the first call counts.
pub(crate) fn print_panics_by(print: fn(&str)) {
    PRINT.get_or_init(|| print);
}

/// Has the text of a caught panic printed if the panic hook has not printed it. No report contains
/// it.
#[cold]
pub(crate) fn print_text(message: &str) {
    if let Some(print) = PRINT.get() {
        print(message);
    }
}

/// Runs user code. Returns a panic, or a process's wish to end, as an exit.
///
/// The panic is printed if the panic hook of the program has left it to a report. If the report of
/// the caller contains the panic, use [`guarded_for_report`] instead.
pub(crate) fn guarded<R>(user_code: impl FnOnce() -> R) -> Result<R, Exit> {
    guarded_for_report(user_code).inspect_err(print_panic)
}

/// Runs code of a user, for a crate that calls such code within processes. Returns `None` if the
/// code panics, and catches the panic.
///
/// The panic is printed once. Usually the panic hook of the program prints it. If
/// [`install_panic_hook`](crate::report::install_panic_hook) has installed the hook of the runtime,
/// the panic is printed as a line with the process and the place.
///
/// ```
/// use procession::process::catch_panic;
///
/// assert_eq!(catch_panic(|| 1), Some(1));
/// assert_eq!(catch_panic(|| panic!("wrong input")), None::<()>);
/// ```
pub fn catch_panic<R>(code: impl FnOnce() -> R) -> Option<R> {
    guarded(code).ok()
}

/// Runs user code like [`guarded`], for a caller that reports the panic with its text.
pub(crate) fn guarded_for_report<R>(user_code: impl FnOnce() -> R) -> Result<R, Exit> {
    catch_unwind(AssertUnwindSafe(user_code)).map_err(exit_of)
}

// Apart from the functions that catch, which are compiled once for each closure.
#[cold]
fn exit_of(payload: Box<dyn Any + Send>) -> Exit {
    let payload = match payload.downcast::<Exiting>() {
        Ok(exiting) => return exiting.0,
        Err(payload) => payload,
    };
    let message: Arc<str> = Arc::from(text_of(&*payload));
    drop_guarded(payload);
    os::tell_panic(&message);
    Exit::Panicked(message)
}

#[cold]
fn print_panic(exit: &Exit) {
    if let Exit::Panicked(message) = exit {
        print_text(message);
    }
}

/// Returns the text of a panic.
pub(crate) fn text_of(payload: &(dyn Any + Send)) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "a value that is no text",
    }
}

/// Drops the payload of a panic that nothing reports, and has the panic printed like
/// [`guarded`] does.
#[cold]
pub(crate) fn print_caught(payload: Box<dyn Any + Send>) {
    if !payload.is::<Exiting>() {
        print_text(text_of(&*payload));
    }
    // Bounded: the second payload is leaked, since each drop could panic with another one.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Drops several user values, each like [`drop_guarded`].
pub(crate) fn drop_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(drop_guarded);
}

/// Drops a user value. A panic of its `Drop` is caught here, and so is a panic of that panic's
/// payload. The first panic is printed as [`guarded`] does.
pub(crate) fn drop_guarded<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        print_caught(payload);
    }
}

/// A user value that is dropped by [`drop_guarded`], also while one of its methods unwinds.
///
/// A value with several user values, such as a list, holds each of them in one, because Rust drops
/// the others while the panic of the first unwinds, and aborts at the second panic.
#[derive(Debug)]
pub(crate) struct DropGuarded<T>(Option<T>);

impl<T> DropGuarded<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Some(value))
    }
}

impl<T: ?Sized> Clone for DropGuarded<Arc<T>> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(self))
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
