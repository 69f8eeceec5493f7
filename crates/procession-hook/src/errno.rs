//! The calling thread's error number.

use std::ffi::c_int;

fn place() -> *mut c_int {
    // SAFETY: it has no preconditions.
    unsafe { libc::__errno_location() }
}

pub(crate) fn get() -> c_int {
    // SAFETY: this is the address of the thread's own error number.
    unsafe { place().read() }
}

pub(crate) fn set(number: c_int) {
    // SAFETY: as in `get`.
    unsafe { place().write(number) }
}

/// Sets the number, and returns what a failed call returns.
pub(crate) fn fail<T: From<i8>>(number: c_int) -> T {
    set(number);
    T::from(-1)
}
