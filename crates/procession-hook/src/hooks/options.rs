//! Options of sockets that change what a call waits for.

use std::ffi::{c_int, c_void};

use libc::{SO_RCVLOWAT, SO_TYPE, SOL_SOCKET, size_t, socklen_t};
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::Relaxed;

use crate::real;
use crate::transfer::unread;
use crate::wait::reports;

/// Set once the program sets `SO_RCVLOWAT`, which few programs do. Only then does a receive ask for
/// the option, which is a call to the system.
static HAS_LOW_WATER: AtomicBool = AtomicBool::new(false);

/// # Safety
/// The contract of `setsockopt(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    if (level, name) == (SOL_SOCKET, SO_RCVLOWAT) {
        // Relaxed: a thread that receives with the option has heard of this call in another way.
        HAS_LOW_WATER.store(true, Relaxed);
    }
    // SAFETY: by the caller.
    unsafe { real::setsockopt(fd, level, name, value, length) }
}

/// Returns an option of a socket, or `None` if it has no such option.
pub(super) fn option_of(fd: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: the room is as large as is said.
    let result =
        unsafe { libc::getsockopt(fd, SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length) };
    (result == 0).then_some(value)
}

/// Returns `true` for a socket without boundaries between messages.
pub(super) fn is_stream(fd: c_int) -> bool {
    option_of(fd, SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// Returns `false` if a receive of at most `length` bytes would wait for more than there is,
/// because of `SO_RCVLOWAT`.
pub(super) fn has_enough(fd: c_int, length: impl FnOnce() -> size_t) -> bool {
    // Relaxed: see `setsockopt`.
    !HAS_LOW_WATER.load(Relaxed) || !is_below_mark(fd, length())
}

fn is_below_mark(fd: c_int, length: size_t) -> bool {
    let mark = option_of(fd, SO_RCVLOWAT).map_or(0, |mark| mark as size_t).min(length);
    mark > 1
        && is_stream(fd)
        && unread(fd).is_some_and(|unread| unread < mark)
        // An end or an error is not waited for. Nor is more, if the system calls the socket ready
        // below the mark: the sender may have no room until something is taken.
        && reports(fd, libc::POLLIN | libc::POLLRDHUP) == 0
}
