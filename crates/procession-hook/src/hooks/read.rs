//! Reads and receives.

use std::ffi::{c_int, c_uint, c_void};
use std::time::Duration;

use libc::{
    MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_WAITALL, MSG_WAITFORONE, iovec, mmsghdr,
    msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec,
};
use procession::time::Instant;

use super::options::{has_enough, is_stream};
use super::{deadline_of, to_timespec};
use crate::transfer::{Forms, once, total_of, whole};
use crate::wait::{Side, block, is_possible, reports};
use crate::{errno, real};

/// The flags of calls that never block, or that cannot be made in parts.
const AS_IT_IS: c_int = MSG_DONTWAIT | MSG_ERRQUEUE | MSG_OOB;

/// Returns `true` for a receive that waits until all is there.
fn waits_for_all(flags: c_int) -> bool {
    flags & MSG_WAITALL != 0
}

/// # Safety
/// The contract of `read(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    if count == 0 || !is_possible() {
        // SAFETY: by the caller.
        return unsafe { real::read(fd, buffer, count) };
    }
    let vector = iovec { iov_base: buffer, iov_len: count };
    once(
        fd,
        Side::READ,
        |fd| has_enough(fd, || count),
        Forms {
            // SAFETY: by the caller.
            socket: |fd| unsafe { real::recv(fd, buffer, count, MSG_DONTWAIT) },
            // SAFETY: by the caller.
            no_wait: |fd| unsafe { libc::preadv2(fd, &raw const vector, 1, -1, libc::RWF_NOWAIT) },
            // SAFETY: by the caller.
            plain: |fd| unsafe { real::read(fd, buffer, count) },
        },
    )
}

/// # Safety
/// The contract of `readv(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let is_plain = !(1..=libc::UIO_MAXIOV).contains(&count) || !is_possible();
    // SAFETY: by the caller.
    let total = if is_plain { 0 } else { unsafe { total_of(vectors, count as size_t) } };
    if total == 0 {
        // SAFETY: by the caller.
        return unsafe { real::readv(fd, vectors, count) };
    }
    let mut message = message_of(vectors, count);
    once(
        fd,
        Side::READ,
        |fd| has_enough(fd, || total),
        Forms {
            // SAFETY: by the caller.
            socket: |fd| unsafe { real::recvmsg(fd, &raw mut message, MSG_DONTWAIT) },
            // SAFETY: by the caller.
            no_wait: |fd| unsafe { libc::preadv2(fd, vectors, count, -1, libc::RWF_NOWAIT) },
            // SAFETY: by the caller.
            plain: |fd| unsafe { real::readv(fd, vectors, count) },
        },
    )
}

/// Returns a message with these vectors and nothing else.
pub(super) fn message_of(vectors: *const iovec, count: c_int) -> msghdr {
    // SAFETY: no address and no length are what zeroes say.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.cast_mut();
    message.msg_iovlen = count as size_t;
    message
}

/// # Safety
/// The contract of `recv(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn recv(fd: c_int, buffer: *mut c_void, count: size_t, flags: c_int) -> ssize_t {
    // SAFETY: by the caller.
    unsafe { recvfrom(fd, buffer, count, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// # Safety
/// The contract of `recvfrom(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvfrom(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: by the caller.
    let plain = |fd| unsafe { real::recvfrom(fd, buffer, count, flags, address, length) };
    if flags & AS_IT_IS != 0 || !is_possible() {
        return plain(fd);
    }
    if waits_for_all(flags) && flags & MSG_PEEK != 0 {
        // A call with `MSG_PEEK` sees the same bytes again, so it cannot be made in parts.
        return block(|| plain(fd));
    }
    let at_once = flags | MSG_DONTWAIT;
    if waits_for_all(flags) && count > 0 && is_stream(fd) {
        // Only the first part returns the address.
        let receive = |fd, done: size_t, flags: c_int| {
            let rest = buffer.wrapping_byte_add(done);
            let none = (std::ptr::null_mut(), std::ptr::null_mut());
            let (address, length) = if done == 0 { (address, length) } else { none };
            // SAFETY: by the caller; `done` is less than `count`.
            unsafe { real::recvfrom(fd, rest, count - done, flags, address, length) }
        };
        return whole(
            fd,
            Side::READ,
            count,
            Forms {
                socket: |fd, done| receive(fd, done, at_once),
                no_wait: |fd, done| receive(fd, done, flags),
                plain: |fd, done| receive(fd, done, flags),
            },
        );
    }
    once(
        fd,
        Side::READ,
        |fd| has_enough(fd, || count),
        Forms {
            // SAFETY: by the caller.
            socket: |fd| unsafe { real::recvfrom(fd, buffer, count, at_once, address, length) },
            no_wait: plain,
            plain,
        },
    )
}

/// # Safety
/// The contract of `recvmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by the caller.
    unsafe { receive(fd, message, flags, true) }
}

/// Receives a message. Unless it is the first one of a call, this fails if the socket has an error,
/// and leaves the error to the next call.
///
/// # Safety
/// The contract of `recvmsg(2)`.
unsafe fn receive(fd: c_int, message: *mut msghdr, flags: c_int, is_first: bool) -> ssize_t {
    let call = |fd, flags| {
        if !is_first && reports(fd, 0) & libc::POLLERR != 0 {
            return errno::fail(libc::ECANCELED);
        }
        // SAFETY: by the caller.
        unsafe { real::recvmsg(fd, message, flags) }
    };
    let plain = |fd| call(fd, flags);
    // SAFETY: by the caller.
    let Some(header) = (unsafe { message.as_ref() }) else { return plain(fd) };
    let (vectors, count) = (header.msg_iov, header.msg_iovlen);
    if flags & AS_IT_IS != 0 || count > libc::UIO_MAXIOV as size_t || !is_possible() {
        return plain(fd);
    }
    if waits_for_all(flags) {
        // Parts are not possible, because the rest would have to be written to the rest of the
        // vectors, and after the control data.
        return block(|| plain(fd));
    }
    // SAFETY: by the caller.
    let total = || unsafe { total_of(vectors, count) };
    once(
        fd,
        Side::READ,
        |fd| has_enough(fd, total),
        Forms { socket: |fd| call(fd, flags | MSG_DONTWAIT), no_wait: plain, plain },
    )
}

/// # Safety
/// The contract of `recvmmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    if flags & AS_IT_IS != 0 || count == 0 || !is_possible() {
        // SAFETY: by the caller.
        return unsafe { real::recvmmsg(fd, messages, count, flags, timeout) };
    }
    // SAFETY: by the caller.
    let deadline = match unsafe { timeout.as_ref() }.map(deadline_of) {
        Some(None) => return errno::fail(libc::EINVAL),
        Some(deadline @ Some(_)) => deadline,
        None => None,
    };
    let entry = errno::get();
    let mut received = 0;
    // The time that was left after the last message, as in the kernel.
    let mut left = None;
    while received < count {
        // SAFETY: by the caller; the number is less than `count`.
        let message = unsafe { messages.add(received as usize) };
        // SAFETY: by the caller.
        let message = unsafe { &mut *message };
        // Only the first may wait, if one is enough.
        let at_once = if received > 0 && flags & MSG_WAITFORONE != 0 { MSG_DONTWAIT } else { 0 };
        let flags = flags & !MSG_WAITFORONE | at_once;
        // SAFETY: by the caller.
        let length = unsafe { receive(fd, &raw mut message.msg_hdr, flags, received == 0) };
        if length < 0 {
            break;
        }
        message.msg_len = length as c_uint;
        received += 1;
        // The time is looked at after each message only.
        left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            break;
        }
    }
    if received == 0 {
        return -1;
    }
    errno::set(entry);
    // SAFETY: by the caller.
    if let (Some(timeout), Some(left)) = (unsafe { timeout.as_mut() }, left) {
        *timeout = to_timespec(left);
    }
    received as c_int
}

/// # Safety
/// The contract of `read(2)`. Compilers with `_FORTIFY_SOURCE` call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    if count > room {
        // SAFETY: it ends the program.
        return unsafe { real::__read_chk(fd, buffer, count, room) };
    }
    // SAFETY: by the caller.
    unsafe { read(fd, buffer, count) }
}

/// # Safety
/// The contract of `recv(2)`. Compilers with `_FORTIFY_SOURCE` call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recv_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    if count > room {
        // SAFETY: it ends the program.
        return unsafe { real::__recv_chk(fd, buffer, count, room, flags) };
    }
    // SAFETY: by the caller.
    unsafe { recv(fd, buffer, count, flags) }
}

/// # Safety
/// The contract of `recvfrom(2)`. Compilers with `_FORTIFY_SOURCE` call this.
#[unsafe(no_mangle)]
unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    buffer: *mut c_void,
    count: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> ssize_t {
    if count > room {
        // SAFETY: it ends the program.
        return unsafe { real::__recvfrom_chk(fd, buffer, count, room, flags, address, length) };
    }
    // SAFETY: by the caller.
    unsafe { recvfrom(fd, buffer, count, flags, address, length) }
}

/// # Safety
/// The contract of `read(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __read(fd: c_int, buffer: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: by the caller.
    unsafe { read(fd, buffer, count) }
}
