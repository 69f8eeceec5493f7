//! The decision to wait, and the wait.

use std::ffi::{c_int, c_short};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use libc::timeval;
use procession::coroutine::{self, FdWait, HeldFd, Interest};
use procession::time::Instant;

use crate::{errno, real};

/// The result of a decision to wait.
#[must_use]
pub(crate) enum Waited {
    /// Try again.
    Again,
    /// This is no place to wait: make the plain call.
    Plain,
    /// The hook fails with this error number.
    Fails(c_int),
}

/// Returns `true` if a hook has to do more than the plain call. It is cheap, and wrong in the rare
/// cases that [`may_wait`] finds out.
#[inline]
pub(crate) fn is_possible() -> bool {
    coroutine::may_suspend()
}

/// Returns `true` if the coroutine may be suspended here. Asked only if a call would block.
pub(crate) fn may_wait() -> bool {
    coroutine::may_suspend_foreign()
}

/// Runs a plain call that may block, while other processes run on another thread. Keeps the error
/// number of the call.
///
/// In a child process and in a signal handler, this only makes the call: the runtime must not be
/// entered there.
pub(crate) fn block<R>(call: impl FnOnce() -> R) -> R {
    if !may_wait() {
        return call();
    }
    let (result, number) = procession::blocking(|| (call(), errno::get()));
    errno::set(number);
    result
}

/// A direction of a socket or other file, and its time limit.
#[derive(Clone, Copy)]
pub(crate) struct Side {
    pub(crate) interest: Interest,
    /// The option of a socket that limits waits, if there is one.
    option: Option<c_int>,
}

impl Side {
    pub(crate) const READ: Self =
        Self { interest: Interest::Read, option: Some(libc::SO_RCVTIMEO) };
    pub(crate) const WRITE: Self =
        Self { interest: Interest::Write, option: Some(libc::SO_SNDTIMEO) };
}

impl Side {
    pub(crate) fn is_write(self) -> bool {
        self.interest == Interest::Write
    }
}

/// The waits of one call. Before the first wait, the call lets other processes that are ready run,
/// and tries again. From then on, it holds the open file, as the kernel does during a call that
/// blocks: if another thread closes the descriptor, and even if its number is used again, the call
/// continues with its own file.
pub(crate) struct Waits {
    number: c_int,
    held: HeldFd,
    side: Side,
    /// The time at which the call let others run.
    begun: Option<Instant>,
    /// Known from the first wait on.
    deadline: Option<Option<Instant>>,
    /// Number of waits in a row after which the call still would have blocked.
    idle: u32,
}

/// After so many waits without effect, the call pauses: the kernel calls the descriptor ready, but
/// something else is not, such as the peer of a datagram.
const IDLE_MAX: u32 = 2;
const PAUSE: Duration = Duration::from_millis(1);

impl Waits {
    pub(crate) fn new(fd: c_int, side: Side) -> Self {
        Self { number: fd, held: HeldFd::default(), side, begun: None, deadline: None, idle: 0 }
    }

    /// Returns the descriptor to make calls with.
    pub(crate) fn fd(&self) -> c_int {
        self.held.get().map_or(self.number, |held| held.as_raw_fd())
    }

    /// Waits until the call is worth trying again. The caller has just found that it would block.
    pub(crate) fn again(&mut self) -> Waited {
        let Some(begun) = self.begun else {
            // As in the system, the mode counts when the call begins.
            if is_nonblocking(self.fd()) {
                return Waited::Fails(libc::EAGAIN);
            }
            if !may_wait() {
                return Waited::Plain;
            }
            self.begun = Some(Instant::now());
            return match pass(&mut self.held, self.number) {
                Ok(()) => Waited::Again,
                Err(Refused) => Waited::Fails(libc::ECANCELED),
            };
        };
        if self.deadline.is_none() {
            let limit = self.side.option.and_then(|option| time_limit(self.fd(), option));
            self.deadline = Some(limit.map(|limit| begun + limit));
        }
        let deadline = self.deadline.flatten();
        self.idle += 1;
        if self.idle > IDLE_MAX && self.is_ready_now() {
            return match pause(deadline) {
                Some(number) => Waited::Fails(number),
                None => Waited::Again,
            };
        }
        match ready(&mut self.held, self.number, self.side.interest, deadline) {
            None => Waited::Again,
            Some(number) => Waited::Fails(number),
        }
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        is_nonblocking(self.fd())
    }

    /// Asks the system whether the descriptor is ready, without waiting.
    pub(crate) fn is_ready_now(&self) -> bool {
        reports(self.fd(), self.events()) != 0
    }

    /// Waits in the system until the descriptor is ready. Returns `false` after the time limit, or
    /// after a signal.
    pub(crate) fn block_until_ready(&self) -> bool {
        let limit = self.side.option.and_then(|option| time_limit(self.fd(), option));
        let limit = limit.map_or(-1, |limit| limit.as_millis().try_into().unwrap_or(c_int::MAX));
        let mut entry = libc::pollfd { fd: self.fd(), events: self.events(), revents: 0 };
        // SAFETY: there is one entry.
        block(|| unsafe { real::poll(&raw mut entry, 1, limit) }) > 0
    }

    /// Returns what `ready` waits for.
    fn events(&self) -> c_short {
        match self.side.interest {
            Interest::Read => libc::POLLIN | libc::POLLRDHUP,
            Interest::Write => libc::POLLOUT,
        }
    }

    /// Notes that the call had an effect.
    pub(crate) fn progress(&mut self) {
        self.idle = 0;
    }
}

/// Asks the system what it reports about a descriptor, without waiting.
pub(crate) fn reports(fd: c_int, events: c_short) -> c_short {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: there is one entry.
    let answer = uninterrupted(|| unsafe { real::poll(&raw mut entry, 1, 0) });
    if answer < 0 { libc::POLLNVAL } else { entry.revents }
}

/// Asks a question that does not wait. A signal can interrupt it all the same, and the question is
/// asked again.
pub(crate) fn uninterrupted(mut ask: impl FnMut() -> c_int) -> c_int {
    loop {
        let answer = ask();
        if answer >= 0 || errno::get() != libc::EINTR {
            return answer;
        }
    }
}

/// Waits for a descriptor, and holds its file. Returns the error number of a wait that failed:
/// `EAGAIN` after the deadline.
pub(crate) fn ready(
    held: &mut HeldFd,
    fd: c_int,
    interest: Interest,
    deadline: Option<Instant>,
) -> Option<c_int> {
    // The call that follows says so if it is no descriptor.
    let fd = descriptor(fd)?;
    match held.wait(fd, interest, deadline) {
        FdWait::Ready => None,
        FdWait::TimedOut => Some(libc::EAGAIN),
        FdWait::Cancelled | FdWait::Terminated => Some(libc::ECANCELED),
    }
}

fn descriptor(fd: c_int) -> Option<BorrowedFd<'static>> {
    // SAFETY: the number is used for calls only. If it is not open, they fail.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Lets other processes that are ready run, and holds the file of the descriptor while they run.
pub(crate) fn pass(held: &mut HeldFd, fd: c_int) -> Result<(), Refused> {
    descriptor(fd).map_or(Ok(()), |fd| held.pass(fd)).map_err(|_| Refused)
}

/// Waits for a moment, at most until the deadline. Returns the error number of a wait that failed.
pub(crate) fn pause(deadline: Option<Instant>) -> Option<c_int> {
    let until = Instant::now() + PAUSE;
    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
        return Some(libc::EAGAIN);
    }
    sleep_until(Some(until)).err().map(|Refused| libc::ECANCELED)
}

/// The coroutine was cancelled or terminated.
pub(crate) struct Refused;

/// Waits until `deadline`, or forever.
pub(crate) fn sleep_until(deadline: Option<Instant>) -> Result<(), Refused> {
    let waited = match deadline {
        Some(deadline) => coroutine::try_wait(procession::time::sleep_until(deadline)),
        None => coroutine::try_wait(std::future::pending()),
    };
    waited.map_err(|_| Refused)
}

pub(crate) fn is_nonblocking(fd: c_int) -> bool {
    // SAFETY: it only returns the flags.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags >= 0 && flags & libc::O_NONBLOCK != 0
}

/// Returns the time limit of a socket. Other files have none.
fn time_limit(fd: c_int, option: c_int) -> Option<Duration> {
    let mut limit = timeval { tv_sec: 0, tv_usec: 0 };
    let mut length = size_of::<timeval>() as libc::socklen_t;
    // SAFETY: the room is as large as is said.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut limit).cast(), &raw mut length)
    };
    let is_set = result == 0 && (limit.tv_sec > 0 || limit.tv_usec > 0);
    is_set.then(|| Duration::new(limit.tv_sec as u64, limit.tv_usec as u32 * 1000))
}
