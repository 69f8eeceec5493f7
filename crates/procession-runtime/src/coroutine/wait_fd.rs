//! Waiting for descriptors of foreign code, below frames that must not be unwound.
//!
//! Each wait duplicates the descriptor, and registers the duplicate, which is closed in the end. So
//! the wait holds the open file, as a system call that blocks does:
//! - If another thread closes the descriptor, the wait still ends with the event of the file that
//!   it began with, even if the number is used again. Ending the registration cannot touch the new
//!   file, which has the number now.
//! - A descriptor that its scheduler knows already, such as the descriptor of a socket, can be
//!   waited for.
//!
//! [`HeldFd`] keeps the duplicate until the call that follows the wait has been made with it, so
//! that this call also uses the same file.
//!
//! # Rejected
//! - A registration of the number itself, without a duplicate. It saves two calls (0.3 us). If the
//!   number is closed and used again during the wait, the end of the wait removes the registration
//!   of the new file, and its waiter sleeps on.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::io::readiness::WaiterId;
use rustix::event::Timespec;
use rustix::fs::RawMode;
use rustix::io::Errno;

use crate::coroutine::try_wait::Interrupted;
use crate::process::wait_reason::Waiting;
use crate::reactor::Registered;
use crate::scheduler::current;
use crate::scheduler::frame::{Frame, suspendable};
use crate::scheduler::shared::Shared;
use crate::scheduler::starved::Starved;
use crate::sys::events::EventMask;
use crate::time::{Instant, sleep, sleep_until};
use crate::yield_now;

/// The least number of a duplicate, if the limit of the program allows it.
const DUPLICATE_MIN: i32 = 1024;
/// The number of the standard streams.
const STANDARD: i32 = 3;

/// The direction in which [`wait_fd`] waits for a descriptor. Urgent data of TCP is in neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interest {
    /// There is something to read, or the end of the stream.
    Read,
    /// There is room to write, or a connection attempt has ended.
    Write,
}

/// The result of [`wait_fd`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub enum FdWait {
    /// The call that the caller waits for is worth trying.
    Ready,
    /// The deadline has passed.
    TimedOut,
    /// The coroutine was cancelled.
    Cancelled,
    /// The coroutine was terminated.
    Terminated,
}

impl crate::Outcome for FdWait {}

/// Waits until a descriptor is ready, or until `deadline`. Never unwinds.
///
/// This is the wait for foreign code, such as a client library in C, with calls that block. The
/// descriptor may be in blocking mode, and its scheduler may know it already. Nothing about it is
/// changed. `None` waits without a limit. At the deadline, the wait asks the system once more, so a
/// descriptor that is ready is in time. The wait may end although the descriptor is not ready: make
/// a call that does not block, and wait again.
///
/// The wait holds the open file. If another thread closes the descriptor during the wait, the wait
/// continues, as a blocked system call does on Linux, and the file is closed after the wait.
/// Several coroutines may wait for one descriptor.
///
/// A regular file or a directory is always ready. A descriptor that is not open also counts as
/// ready, because the following call then reports the error.
///
/// ```
/// use std::io::{ErrorKind, Read, Write};
/// use std::os::fd::AsFd;
/// use std::os::unix::net::UnixStream;
/// use procession::SpawnOptions;
/// use procession::coroutine::{self, FdWait, Interest};
///
/// # // SAFETY: the coroutine keeps the residual rule.
/// let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// let (mut writer, mut reader) = UnixStream::pair()?;
/// let options = SpawnOptions::new().on(&scheduler);
/// let reads = options.try_start_coroutine(move |_: coroutine::Context<()>| {
///     let waited = coroutine::wait_fd(reader.as_fd(), Interest::Read, None);
///     let mut bytes = [0; 16];
///     (waited, reader.read(&mut bytes).expect("it is ready"))
/// })?;
/// writer.write_all(b"hello")?;
/// assert_eq!(reads.join(), Ok((FdWait::Ready, 5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// Suspends a coroutine. Outside of coroutines, and where a coroutine cannot be suspended, blocks
/// the thread in the system, in a process as a [blocking section](crate::blocking).
///
/// If the system has no file descriptor left to wait with, the coroutine asks again after 1 to
/// 50 ms, until the descriptor is ready.
///
/// # Cancellation
/// Like [`try_wait`](super::try_wait()): a wait that is refused returns [`FdWait::Cancelled`] or
/// [`FdWait::Terminated`].
///
/// If the scheduler has ended, returns [`FdWait::Terminated`].
pub fn wait_fd(fd: BorrowedFd<'_>, interest: Interest, deadline: Option<Instant>) -> FdWait {
    HeldFd::default().wait(fd, interest, deadline)
}

/// The open file of several waits in a row, and of the calls between them. It holds nothing until
/// the first wait or pass. Private: used by `procession-hook`.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct HeldFd(Option<HeldFile>);

impl HeldFd {
    /// Waits like [`wait_fd`]. The first wait or pass is for `fd`. Later waits are for the same
    /// file, whatever has become of `fd`.
    pub fn wait(
        &mut self,
        fd: BorrowedFd<'_>,
        interest: Interest,
        deadline: Option<Instant>,
    ) -> FdWait {
        wait_and_hold(&mut self.0, fd, interest, deadline)
    }

    /// Lets the other processes that are ready run first, and holds the file of `fd` until they
    /// have run. Often there is no need to wait after that, and the registration is saved. Does
    /// nothing if the file is always ready, if the system has no descriptor left, or where the
    /// caller cannot be suspended.
    pub fn pass(&mut self, fd: BorrowedFd<'_>) -> Result<(), Interrupted> {
        let Some(frame) = suspendable() else { return Ok(()) };
        if self.0.is_none() {
            let Ok(Some(own)) = duplicate(fd) else { return Ok(()) };
            self.0 = Some(HeldFile { own: Some(own), shared: frame.slot().shared().arc() });
        }
        frame.try_wait(pin!(yield_now()))
    }

    /// Returns a descriptor of the file that is held, if there is one.
    pub fn get(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().and_then(HeldFile::fd)
    }
}

/// A duplicate, and the scheduler with which it is registered for waits.
struct HeldFile {
    /// `Some` until the drop.
    own: Option<OwnedFd>,
    shared: Arc<Shared>,
}

impl HeldFile {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(AsFd::as_fd)
    }
}

impl fmt::Debug for HeldFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own.fmt(f)
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        if let Some(own) = self.own.take() {
            drop(own);
            // Whatever waits for a free descriptor may have one now.
            Starved::of(&self.shared).note_closed();
        }
    }
}

fn wait_and_hold(
    held: &mut Option<HeldFile>,
    fd: BorrowedFd<'_>,
    interest: Interest,
    deadline: Option<Instant>,
) -> FdWait {
    let Some(frame) = suspendable() else {
        let fd = held.as_ref().and_then(HeldFile::fd).unwrap_or(fd);
        return crate::blocking(|| block_in_poll(fd, interest, deadline));
    };
    let shared = frame.slot().shared().arc();
    let own = held.take().and_then(|mut held| held.own.take());
    let waited = match register(&shared, fd, own, interest) {
        Ok(mut registered) => {
            let ready = FdReady { registered: &registered, interest, waiter: Some(WaiterId::ANY) };
            let waited = within(frame, deadline, ready);
            *held = Some(HeldFile { own: registered.deregister(), shared });
            waited
        }
        Err((unwatched, own)) => {
            *held = own.map(|own| HeldFile { own: Some(own), shared });
            if unwatched == Unwatched::NotNeeded {
                return FdWait::Ready;
            }
            let fd = held.as_ref().and_then(HeldFile::fd).unwrap_or(fd);
            within(frame, deadline, ask_repeatedly(fd, interest))
        }
    };
    match waited {
        Ok(Some(Ok(()))) => FdWait::Ready,
        Ok(None) => {
            // The file may have become ready in time, and nothing has asked the system since.
            let fd = held.as_ref().and_then(HeldFile::fd).unwrap_or(fd);
            let is_ready = is_ready(fd, interest, Some(Duration::ZERO));
            if is_ready { FdWait::Ready } else { FdWait::TimedOut }
        }
        Err(Interrupted::Cancelled) => FdWait::Cancelled,
        Err(Interrupted::Terminated) | Ok(Some(Err(_))) => FdWait::Terminated,
    }
}

/// Waits for a future until a deadline. Returns `None` if the deadline has passed first.
fn within<T>(
    frame: &Frame,
    deadline: Option<Instant>,
    future: impl Future<Output = T>,
) -> Result<Option<T>, Interrupted> {
    let Some(deadline) = deadline else { return frame.try_wait(pin!(future)).map(Some) };
    let mut future = pin!(future);
    let mut sleep = pin!(sleep_until(deadline));
    frame.try_wait(pin!(std::future::poll_fn(|task| {
        if let Poll::Ready(output) = future.as_mut().poll(task) {
            return Poll::Ready(Some(output));
        }
        sleep.as_mut().poll(task).map(|()| None)
    })))
}

/// The reason why a descriptor is not registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwatched {
    /// It is always ready, or not open.
    NotNeeded,
    /// The system has no descriptor left.
    Refused,
}

/// Registers `own`, or a duplicate of `fd`. If that fails, the error returns the duplicate.
fn register(
    shared: &Arc<Shared>,
    fd: BorrowedFd<'_>,
    own: Option<OwnedFd>,
    interest: Interest,
) -> Result<Registered<OwnedFd>, (Unwatched, Option<OwnedFd>)> {
    let unwatched = |errno: Option<Errno>| match errno {
        Some(Errno::PERM | Errno::BADF) => Unwatched::NotNeeded,
        _ => Unwatched::Refused,
    };
    let own = match own.map_or_else(|| duplicate(fd), |own| Ok(Some(own))) {
        Ok(Some(own)) => own,
        Ok(None) => return Err((Unwatched::NotNeeded, None)),
        Err(errno) => return Err((unwatched(Some(errno)), None)),
    };
    let watched = match interest {
        // Not urgent data: the call that follows would not read it, and would wait again.
        Interest::Read => EventMask::READ,
        Interest::Write => EventMask::WRITE,
    };
    Registered::for_one_wait(Arc::clone(shared), own, watched)
        .map_err(|(error, own)| (unwatched(Errno::from_io_error(&error)), Some(own)))
}

/// Duplicates a descriptor, unless its file is always ready: to close a duplicate would release the
/// locks that the process has on the file.
fn duplicate(fd: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    if rustix::fs::fstat(fd).is_ok_and(|status| is_always_ready(status.st_mode)) {
        return Ok(None);
    }
    // Low numbers stay free for the program: the standard streams, and the numbers that fit into
    // the sets of `select`.
    match rustix::io::fcntl_dupfd_cloexec(fd, DUPLICATE_MIN) {
        Err(Errno::INVAL | Errno::MFILE) => rustix::io::fcntl_dupfd_cloexec(fd, STANDARD).map(Some),
        duplicated => duplicated.map(Some),
    }
}

fn is_always_ready(mode: RawMode) -> bool {
    use rustix::fs::FileType;
    let kind = FileType::from_raw_mode(mode);
    matches!(kind, FileType::RegularFile | FileType::Directory | FileType::BlockDevice)
}

/// The wait for the first event of a registration that was made for it.
struct FdReady<'a> {
    registered: &'a Registered<OwnedFd>,
    interest: Interest,
    waiter: Option<WaiterId>,
}

impl Future for FdReady<'_> {
    type Output = io::Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let source = this.registered.source();
        let (direction, waiting) = match this.interest {
            Interest::Read => (&source.read, Waiting::READABLE),
            Interest::Write => (&source.write, Waiting::WRITABLE),
        };
        if this.registered.leave(
            direction,
            &mut this.waiter,
            crate::process::waker::another(task.waker()),
        )? {
            current::note_waiting(waiting);
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }
}

/// The first pause between two questions, which doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(50);

async fn ask_repeatedly(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<()> {
    let mut pause = PAUSE_MIN;
    while !is_ready(fd, interest, Some(Duration::ZERO)) {
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
    Ok(())
}

fn block_in_poll(fd: BorrowedFd<'_>, interest: Interest, deadline: Option<Instant>) -> FdWait {
    let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    if is_ready(fd, interest, timeout) { FdWait::Ready } else { FdWait::TimedOut }
}

/// Asks the system whether a descriptor is ready. A question that fails counts as an answer,
/// because the call that follows will fail as well.
fn is_ready(fd: BorrowedFd<'_>, interest: Interest, timeout: Option<Duration>) -> bool {
    use rustix::event::{PollFd, PollFlags, poll};
    let flags = match interest {
        Interest::Read => PollFlags::IN,
        Interest::Write => PollFlags::OUT,
    };
    // A timeout that the system cannot represent is longer than any program runs.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    poll(&mut [PollFd::from_borrowed_fd(fd.as_fd(), flags)], timeout.as_ref()) != Ok(0)
}
