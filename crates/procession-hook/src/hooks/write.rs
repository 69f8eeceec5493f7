//! Writes and sends.

use std::ffi::{c_int, c_uint, c_void};

use libc::{
    MSG_DONTWAIT, MSG_NOSIGNAL, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t,
};

use super::read::message_of;
use crate::transfer::{Forms, rest_of, total_of, whole};
use crate::wait::{Side, block, is_possible};
use crate::{errno, real};

/// Returns `true` for the standard output and error. Rust's library holds a lock of the thread
/// while it writes there, so another coroutine of the thread must not run during the write.
fn is_standard(fd: c_int) -> bool {
    matches!(fd, libc::STDOUT_FILENO | libc::STDERR_FILENO)
}

/// The flag of all sends but the first: in the kernel, a call that returns a count raises no
/// `SIGPIPE`.
fn quiet(done: size_t) -> c_int {
    if done > 0 { MSG_NOSIGNAL } else { 0 }
}

/// # Safety
/// The contract of `write(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    if count == 0 || !is_possible() {
        // SAFETY: by the caller.
        return unsafe { real::write(fd, buffer, count) };
    }
    if is_standard(fd) {
        // SAFETY: by the caller.
        return block(|| unsafe { real::write(fd, buffer, count) });
    }
    let rest = |done: size_t| (buffer.wrapping_byte_add(done), count - done);
    whole(
        fd,
        Side::WRITE,
        count,
        Forms {
            socket: |fd, done| {
                let (buffer, count) = rest(done);
                // SAFETY: by the caller.
                unsafe { real::send(fd, buffer, count, MSG_DONTWAIT | quiet(done)) }
            },
            no_wait: |fd, done| {
                let (buffer, count) = rest(done);
                let vector = iovec { iov_base: buffer.cast_mut(), iov_len: count };
                // SAFETY: by the caller.
                unsafe { libc::pwritev2(fd, &raw const vector, 1, -1, libc::RWF_NOWAIT) }
            },
            plain: |fd, done| {
                let (buffer, count) = rest(done);
                // SAFETY: by the caller.
                unsafe { real::write(fd, buffer, count) }
            },
        },
    )
}

/// # Safety
/// The contract of `writev(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t {
    let is_plain = !(1..=libc::UIO_MAXIOV).contains(&count) || !is_possible();
    // SAFETY: by the caller.
    let total = if is_plain { 0 } else { unsafe { total_of(vectors, count as size_t) } };
    if total == 0 {
        // SAFETY: by the caller.
        return unsafe { real::writev(fd, vectors, count) };
    }
    if is_standard(fd) {
        // SAFETY: by the caller.
        return block(|| unsafe { real::writev(fd, vectors, count) });
    }
    let message = message_of(vectors, count);
    // SAFETY: by the caller; less than all is done.
    let rest = |done| unsafe { rest_of(vectors, count as size_t, done) };
    whole(
        fd,
        Side::WRITE,
        total,
        Forms {
            socket: |fd, done| {
                if done == 0 {
                    // SAFETY: by the caller.
                    return unsafe { real::sendmsg(fd, &raw const message, MSG_DONTWAIT) };
                }
                let rest = rest(done);
                let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
                // SAFETY: by the caller.
                unsafe { real::send(fd, rest.iov_base, rest.iov_len, flags) }
            },
            no_wait: |fd, done| {
                if done == 0 {
                    // SAFETY: by the caller.
                    return unsafe { libc::pwritev2(fd, vectors, count, -1, libc::RWF_NOWAIT) };
                }
                let rest = rest(done);
                // SAFETY: by the caller.
                unsafe { libc::pwritev2(fd, &raw const rest, 1, -1, libc::RWF_NOWAIT) }
            },
            plain: |fd, done| {
                if done == 0 {
                    // SAFETY: by the caller.
                    return unsafe { real::writev(fd, vectors, count) };
                }
                plain_rest(total, done, &rest, |rest| {
                    // SAFETY: by the caller.
                    unsafe { real::write(fd, rest.iov_base, rest.iov_len) }
                })
            },
        },
    )
}

/// Makes plain calls, vector by vector, for what is left after `done` bytes. Returns the number of
/// bytes that they have transferred, or -1 if the first one fails.
fn plain_rest(
    total: size_t,
    done: size_t,
    rest: &impl Fn(size_t) -> iovec,
    call: impl Fn(iovec) -> ssize_t,
) -> ssize_t {
    let mut more = 0;
    while done + more < total {
        let vector = rest(done + more);
        let count = call(vector);
        if count < 0 {
            return if more > 0 { more as ssize_t } else { -1 };
        }
        more += count as size_t;
        if (count as size_t) < vector.iov_len {
            break;
        }
    }
    more as ssize_t
}

/// # Safety
/// The contract of `send(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn send(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: by the caller.
    unsafe { sendto(fd, buffer, count, flags, std::ptr::null(), 0) }
}

/// # Safety
/// The contract of `sendto(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendto(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    flags: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> ssize_t {
    let call = |fd, done: size_t, flags: c_int| {
        let (rest, count, flags) =
            (buffer.wrapping_byte_add(done), count - done, flags | quiet(done));
        // SAFETY: by the caller.
        unsafe { real::sendto(fd, rest, count, flags, address, length) }
    };
    if flags & MSG_DONTWAIT != 0 || !is_possible() {
        return call(fd, 0, flags);
    }
    if flags & libc::MSG_FASTOPEN != 0 {
        // It may connect first.
        return block(|| call(fd, 0, flags));
    }
    whole(
        fd,
        Side::WRITE,
        count,
        Forms {
            socket: |fd, done| call(fd, done, flags | MSG_DONTWAIT),
            no_wait: |fd, done| call(fd, done, flags),
            plain: |fd, done| call(fd, done, flags),
        },
    )
}

/// # Safety
/// The contract of `sendmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    // SAFETY: by the caller.
    let plain = |fd| unsafe { real::sendmsg(fd, message, flags) };
    // SAFETY: by the caller.
    let Some(header) = (unsafe { message.as_ref() }) else { return plain(fd) };
    let count = header.msg_iovlen;
    if flags & MSG_DONTWAIT != 0 || count > libc::UIO_MAXIOV as size_t || !is_possible() {
        return plain(fd);
    }
    if flags & libc::MSG_FASTOPEN != 0 {
        // It may connect first.
        return block(|| plain(fd));
    }
    // SAFETY: by the caller.
    let total = unsafe { total_of(header.msg_iov, count) };
    // SAFETY: by the caller; less than all is done.
    let rest = |done| unsafe { rest_of(header.msg_iov, count, done) };
    whole(
        fd,
        Side::WRITE,
        total,
        Forms {
            socket: |fd, done| {
                if done == 0 {
                    // SAFETY: by the caller.
                    return unsafe { real::sendmsg(fd, message, flags | MSG_DONTWAIT) };
                }
                let rest = rest(done);
                let flags = flags | MSG_DONTWAIT | MSG_NOSIGNAL;
                // SAFETY: by the caller. The control data was sent with the first byte.
                unsafe { real::send(fd, rest.iov_base, rest.iov_len, flags) }
            },
            no_wait: |fd, _| plain(fd),
            plain: |fd, done| {
                if done == 0 {
                    return plain(fd);
                }
                plain_rest(total, done, &rest, |rest| {
                    // SAFETY: by the caller.
                    unsafe { real::send(fd, rest.iov_base, rest.iov_len, flags | MSG_NOSIGNAL) }
                })
            },
        },
    )
}

/// # Safety
/// The contract of `sendmmsg(2)`.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if flags & MSG_DONTWAIT != 0 || !is_possible() {
        // SAFETY: by the caller.
        return unsafe { real::sendmmsg(fd, messages, count, flags) };
    }
    let entry = errno::get();
    let mut sent = 0;
    while sent < count.min(libc::UIO_MAXIOV as c_uint) {
        // SAFETY: by the caller; the number is less than `count`.
        let message = unsafe { messages.add(sent as usize) };
        // SAFETY: by the caller.
        let message = unsafe { &mut *message };
        // SAFETY: by the caller.
        let length = unsafe { sendmsg(fd, &raw const message.msg_hdr, flags) };
        if length < 0 {
            if sent == 0 {
                return -1;
            }
            break;
        }
        message.msg_len = length as c_uint;
        sent += 1;
        let header = &message.msg_hdr;
        // SAFETY: by the caller. The system has just read the vectors.
        if (length as size_t) < unsafe { total_of(header.msg_iov, header.msg_iovlen) } {
            // The next message would follow a part of this one.
            break;
        }
    }
    errno::set(entry);
    sent as c_int
}

/// # Safety
/// The contract of `write(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __write(fd: c_int, buffer: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: by the caller.
    unsafe { write(fd, buffer, count) }
}

/// # Safety
/// The contract of `send(2)`. An alias that the C library exports.
#[unsafe(no_mangle)]
unsafe extern "C" fn __send(
    fd: c_int,
    buffer: *const c_void,
    count: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: by the caller.
    unsafe { send(fd, buffer, count, flags) }
}
