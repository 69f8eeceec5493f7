//! The transfers of bytes: attempts that do not block, and waits between them.
//!
//! The descriptor is not changed, because others may use it at the same time, in either mode. A
//! socket is asked with `MSG_DONTWAIT`, a pipe with `RWF_NOWAIT`. Other files know no such flag.
//! The coroutine waits until `poll` says that they are ready, and then the plain call runs as a
//! blocking section, in case that it blocks all the same.

use std::ffi::c_int;

use libc::{iovec, size_t, ssize_t};

use crate::errno;
use crate::wait::{self, Side, Waited, Waits};

/// The way to a result that does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A socket: flags of the call.
    Socket,
    /// A file that knows `RWF_NOWAIT`: pipes, and many devices.
    NoWait,
    /// Only the plain call, once the file is ready.
    WhenReady,
    /// Only the plain call: regular files and directories, for which there is no readiness.
    Plain,
}

/// Returns `true` for a terminal on which a read returns immediately, or after the terminal's own
/// timeout.
fn reads_at_once(fd: c_int) -> bool {
    let mut mode = std::mem::MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: there is room for the answer.
    if unsafe { libc::tcgetattr(fd, mode.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: it is plain memory, which was zero before the call.
    let mode = unsafe { mode.assume_init() };
    mode.c_lflag & libc::ICANON == 0 && mode.c_cc[libc::VMIN] == 0
}

/// Returns the way for a file that is no socket.
fn way_of(fd: c_int, side: Side) -> Way {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for the answer.
    if unsafe { libc::fstat(fd, status.as_mut_ptr()) } != 0 {
        return Way::Plain;
    }
    // SAFETY: it is plain memory, which was zero before the call.
    let status = unsafe { status.assume_init() };
    match status.st_mode & libc::S_IFMT {
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => Way::Plain,
        // Not every device reports that there is room.
        // SAFETY: it has no preconditions.
        libc::S_IFCHR if side.is_write() && unsafe { libc::isatty(fd) } == 0 => Way::Plain,
        libc::S_IFCHR if !side.is_write() && reads_at_once(fd) => Way::Plain,
        libc::S_IFCHR => Way::WhenReady,
        _ => Way::NoWait,
    }
}

/// The three forms of one call. Each gets the descriptor to make the call with. Once the call has
/// let others run, this is the held duplicate, and not the caller's descriptor.
pub(crate) struct Forms<S, N, P> {
    /// As a call for sockets that does not block.
    pub(crate) socket: S,
    /// As a call for files that does not block.
    pub(crate) no_wait: N,
    /// As it was made.
    pub(crate) plain: P,
}

/// A read, or another call that is over once it has any result. A socket for which `has_enough`
/// returns `false` would block.
pub(crate) fn once(
    fd: c_int,
    side: Side,
    has_enough: impl Fn(c_int) -> bool,
    mut forms: Forms<
        impl FnMut(c_int) -> ssize_t,
        impl FnMut(c_int) -> ssize_t,
        impl FnOnce(c_int) -> ssize_t,
    >,
) -> ssize_t {
    let entry = errno::get();
    let mut waits = Waits::new(fd, side);
    let (mut way, mut is_last) = (Way::Socket, false);
    loop {
        let count = match way {
            Way::Socket if !is_last && !has_enough(waits.fd()) => errno::fail(libc::EAGAIN),
            Way::Socket => (forms.socket)(waits.fd()),
            Way::NoWait => (forms.no_wait)(waits.fd()),
            Way::WhenReady => match when_ready(&mut waits) {
                Some(waited) => {
                    return end_of_wait(waited, entry, || (forms.plain)(waits.fd()));
                }
                None => return plainly(entry, || (forms.plain)(waits.fd())),
            },
            Way::Plain => return plainly(entry, || (forms.plain)(waits.fd())),
        };
        if count >= 0 {
            errno::set(entry);
            return count;
        }
        match errno::get() {
            libc::EAGAIN => match waits.again() {
                Waited::Again => {}
                // In non-blocking mode, and after the time limit, what is there is enough.
                Waited::Fails(libc::EAGAIN) if !is_last && !has_enough(waits.fd()) => {
                    is_last = true;
                }
                waited => return end_of_wait(waited, entry, || (forms.plain)(waits.fd())),
            },
            number => match next_way(way, number, fd, side) {
                Some(next) => way = next,
                None => return -1,
            },
        }
    }
}

/// Returns the way to try after `number`, or `None` if that is the result of the call.
fn next_way(way: Way, number: c_int, fd: c_int, side: Side) -> Option<Way> {
    match (way, number) {
        (Way::Socket, libc::ENOTSOCK) => Some(way_of(fd, side)),
        (Way::NoWait, libc::EOPNOTSUPP | libc::ENOSYS | libc::ESPIPE) => Some(Way::WhenReady),
        _ => None,
    }
}

/// Waits until a file without calls that do not block is ready. Returns `None` if it is, and
/// otherwise the end of the wait.
fn when_ready(waits: &mut Waits) -> Option<Waited> {
    loop {
        if waits.is_ready_now() {
            return None;
        }
        match waits.again() {
            Waited::Again => {}
            Waited::Fails(libc::EAGAIN) if waits.is_nonblocking() => return Some(Waited::Plain),
            waited => return Some(waited),
        }
    }
}

/// Makes the plain call with the error number that the caller had, which a success leaves as it
/// was.
fn plainly(entry: c_int, plain: impl FnOnce() -> ssize_t) -> ssize_t {
    errno::set(entry);
    wait::block(plain)
}

fn end_of_wait(waited: Waited, entry: c_int, plain: impl FnOnce() -> ssize_t) -> ssize_t {
    match waited {
        Waited::Fails(number) => errno::fail(number),
        Waited::Again | Waited::Plain => plainly(entry, plain),
    }
}

/// A write, or another call that is over only once all is transferred. The forms also get the
/// number of bytes that were transferred before.
pub(crate) fn whole(
    fd: c_int,
    side: Side,
    total: size_t,
    mut forms: Forms<
        impl FnMut(c_int, size_t) -> ssize_t,
        impl FnMut(c_int, size_t) -> ssize_t,
        impl FnOnce(c_int, size_t) -> ssize_t,
    >,
) -> ssize_t {
    let entry = errno::get();
    let mut waits = Waits::new(fd, side);
    let (mut way, mut done) = (Way::Socket, 0);
    // What a call returns that fails after `done` bytes.
    let failed = |done: size_t| {
        if done == 0 {
            return -1;
        }
        errno::set(entry);
        done as ssize_t
    };
    let rest = |done: size_t, count: ssize_t| {
        if count < 0 { failed(done) } else { done as ssize_t + count }
    };
    loop {
        let count = match way {
            // The error of a connection that has ended belongs to the next call, as in the kernel.
            Way::Socket if done > 0 && has_ended(waits.fd(), side) => return failed(done),
            Way::Socket => (forms.socket)(waits.fd(), done),
            Way::NoWait => (forms.no_wait)(waits.fd(), done),
            Way::WhenReady => match when_ready(&mut waits) {
                Some(waited) => {
                    return rest(
                        done,
                        end_of_wait(waited, entry, || (forms.plain)(waits.fd(), done)),
                    );
                }
                None => return rest(done, plainly(entry, || (forms.plain)(waits.fd(), done))),
            },
            Way::Plain => return rest(done, plainly(entry, || (forms.plain)(waits.fd(), done))),
        };
        if count >= 0 {
            done += count as size_t;
            if done >= total || count == 0 {
                errno::set(entry);
                return done as ssize_t;
            }
            waits.progress();
            continue;
        }
        match errno::get() {
            libc::EAGAIN => match waits.again() {
                Waited::Again => {}
                // The plain call would take the error of a connection that ends meanwhile.
                Waited::Plain if way == Way::Socket && done > 0 => {
                    if !waits.block_until_ready() {
                        return failed(done);
                    }
                }
                waited => {
                    return rest(
                        done,
                        end_of_wait(waited, entry, || (forms.plain)(waits.fd(), done)),
                    );
                }
            },
            number => match next_way(way, number, fd, side) {
                Some(next) => way = next,
                None => return failed(done),
            },
        }
    }
}

/// Returns `true` if a connection has ended and there is nothing left to transfer: a further
/// attempt would only take its error.
fn has_ended(fd: c_int, side: Side) -> bool {
    let is_over = wait::reports(fd, 0) & libc::POLLHUP != 0;
    is_over && (side.is_write() || unread(fd) == Some(0))
}

/// Returns the number of bytes that can be read from a socket, if it counts them.
pub(crate) fn unread(fd: c_int) -> Option<size_t> {
    let mut count: c_int = 0;
    // SAFETY: there is room for the answer.
    let asked = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut count) };
    (asked == 0).then_some(count as size_t)
}

/// Returns the number of bytes that vectors have room for.
///
/// # Safety
/// `vectors` are `count` vectors, or `count` is 0.
pub(crate) unsafe fn total_of(vectors: *const iovec, count: size_t) -> size_t {
    if count == 0 {
        return 0;
    }
    // SAFETY: by the caller.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count) };
    vectors.iter().fold(0, |total, vector| total.saturating_add(vector.iov_len))
}

/// Returns what is left of the vector in which the byte after `done` lies.
///
/// # Safety
/// `vectors` are `count` vectors, with more than `done` bytes.
pub(crate) unsafe fn rest_of(vectors: *const iovec, count: size_t, done: size_t) -> iovec {
    // SAFETY: by the caller.
    let vectors = unsafe { std::slice::from_raw_parts(vectors, count) };
    let mut before = done;
    for vector in vectors {
        if before < vector.iov_len {
            return iovec {
                iov_base: vector.iov_base.wrapping_byte_add(before),
                iov_len: vector.iov_len - before,
            };
        }
        before -= vector.iov_len;
    }
    iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }
}
