//! Connections: `connect`, `accept`.

use std::ffi::c_int;

use libc::{sockaddr, socklen_t};

use super::options::option_of;
use crate::wait::{self, Side, Waited, Waits, block, is_possible, may_wait};
use crate::{errno, real};

/// # Safety
/// The contract of `connect(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: by the caller.
    let plain = |fd| unsafe { real::connect(fd, address, length) };
    if !is_possible() || wait::is_nonblocking(fd) || !may_wait() {
        return plain(fd);
    }
    let entry = errno::get();
    let mut result = number_of(without_blocking(fd, || plain(fd)));
    // This includes an attempt that was begun before this call and has not ended.
    if matches!(result, libc::EINPROGRESS | libc::EALREADY) {
        let waits = match settled(fd) {
            Ok(waits) => waits,
            Err(number) => return errno::fail(number),
        };
        // The system learns by a second call that the attempt is over. Without that call, the
        // next `connect` of the program would get the outcome of this attempt: 0 for a socket
        // that is connected, and an old error for a socket that was refused.
        result = number_of(without_blocking(waits.fd(), || plain(waits.fd())));
    }
    match result {
        0 => {
            errno::set(entry);
            0
        }
        // The queue of a Unix listener is full, and nothing reports when it is not.
        libc::EAGAIN => {
            errno::set(entry);
            block(|| plain(fd))
        }
        number => errno::fail(number),
    }
}

/// Returns the error number of a call, or 0 if the call has succeeded.
fn number_of(result: c_int) -> c_int {
    if result == 0 { 0 } else { errno::get() }
}

/// Makes a call while the descriptor is in non-blocking mode.
fn without_blocking(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: it only returns the flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    if flags < 0 {
        return call();
    }
    // SAFETY: these are flags of the file.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) };
    let result = call();
    let number = errno::get();
    // SAFETY: the flags that it had.
    unsafe { libc::fcntl(fd, libc::F_SETFL, flags) };
    errno::set(number);
    result
}

/// Waits for the end of a connection attempt. Returns the error number of the wait if it fails.
fn settled(fd: c_int) -> Result<Waits, c_int> {
    let mut waits = Waits::new(fd, Side::WRITE);
    while !waits.is_ready_now() {
        match waits.again() {
            Waited::Again => {}
            // As in the system, the attempt continues after the timeout.
            Waited::Fails(libc::EAGAIN) => return Err(libc::EINPROGRESS),
            Waited::Fails(number) => return Err(number),
            Waited::Plain => {
                // Nothing can be suspended any more. Waits in the system.
                let mut entry = libc::pollfd { fd: waits.fd(), events: libc::POLLOUT, revents: 0 };
                // SAFETY: there is one entry.
                block(|| unsafe { real::poll(&raw mut entry, 1, -1) });
            }
        }
    }
    Ok(waits)
}

/// # Safety
/// The contract of `accept(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: by the caller.
    unsafe { accept4(fd, address, length, 0) }
}

/// # Safety
/// The contract of `accept4(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    // SAFETY: by the caller.
    let plain = |fd| unsafe { real::accept4(fd, address, length, flags) };
    if !is_possible() || !is_listener(fd) {
        return plain(fd);
    }
    let entry = errno::get();
    let mut waits = Waits::new(fd, Side::READ);
    while !waits.is_ready_now() {
        match waits.again() {
            Waited::Again => {}
            Waited::Fails(libc::EAGAIN) if waits.is_nonblocking() => break,
            Waited::Fails(number) => return errno::fail(number),
            Waited::Plain => break,
        }
    }
    errno::set(entry);
    // The listener has no flag for one call, and another thread may take the connection first.
    block(|| plain(waits.fd()))
}

/// Returns `true` if a call to accept can wait.
fn is_listener(fd: c_int) -> bool {
    option_of(fd, libc::SO_ACCEPTCONN).is_some_and(|listens| listens != 0)
}

/// # Safety
/// The contract of `connect(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    // SAFETY: by the caller.
    unsafe { connect(fd, address, length) }
}
