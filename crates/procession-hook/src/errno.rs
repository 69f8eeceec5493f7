//! The calling thread's error number.

use std::ffi::c_int;

pub(crate) fn get() -> c_int {
    // SAFETY: the address is that of the thread's own number.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set(number: c_int) {
    // SAFETY: as in `get`.
    unsafe { *libc::__errno_location() = number };
}

/// Sets the number, and returns what a failed call returns.
pub(crate) fn fail<T: From<i8>>(number: c_int) -> T {
    set(number);
    T::from(-1)
}
