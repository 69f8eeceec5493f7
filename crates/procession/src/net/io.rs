//! What all sockets share: trying first, waiting, and timeouts.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Waiting;
use crate::io::reactor::Registered;
use crate::io::readiness::{Direction, Seen, WaiterId};
use crate::scheduler::current;
use crate::scheduler::seat_id::NEVER;
use crate::scheduler::shared::Shared;
use crate::sys::nanoseconds;
use crate::time::{Elapsed, Sleep, is_last_try, poll_within, sleep_on};

/// How often one poll calls again because the descriptor has become ready meanwhile, or a signal came, before the process gives way.
const TRIES: u32 = 16;

/// Reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// What a call gave, and whether that says that there is nothing more.
pub(crate) struct Done<R> {
    pub(crate) value: R,
    pub(crate) short: bool,
}

impl<R> Done<R> {
    /// Of a call that says nothing about what is left.
    pub(crate) fn whole(value: R) -> Self {
        Self { value, short: false }
    }
}

/// A stream's socket.
pub(crate) trait StreamSocket: AsFd {
    /// Whether a call that gives, or takes, less than it could says that there is nothing more, or
    /// no room.
    const SHORT_IS_ALL: bool;
}

/// What comes in order is given as far as it has come. Urgent data split it, of which the kernel
/// tells (`translate` in `sys/epoll.rs`).
impl StreamSocket for std::net::TcpStream {
    const SHORT_IS_ALL: bool = true;
}

/// A read ends at what was sent with descriptors or credentials, and with it what it is given,
/// though there is more behind. Writes are treated alike: they are made of parts, each of which can
/// find no memory.
impl StreamSocket for std::os::unix::net::UnixStream {
    const SHORT_IS_ALL: bool = false;
}

impl Done<usize> {
    /// Stream semantics: a transfer may be partial; zero bytes is the end, which stays.
    pub(crate) fn part<T: StreamSocket>(count: usize, wanted: usize) -> Self {
        Self { value: count, short: T::SHORT_IS_ALL && 0 < count && count < wanted }
    }
}

/// A descriptor in non-blocking mode, with its scheduler and its timeouts.
pub(crate) struct Io<T: AsFd> {
    registered: Registered<T>,
    read: Limit,
    write: Limit,
}

/// How long an operation may wait.
struct Limit {
    /// In nanoseconds; `NEVER` is for ever.
    patience: AtomicU64,
    /// The time of the operation that is polled through one of the I/O traits, which keep nothing
    /// between polls. If it is given up, its time goes on for the next.
    running: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Limit {
    fn none() -> Self {
        Self { patience: AtomicU64::new(NEVER), running: Mutex::new(None) }
    }

    fn take_running(&self) -> Option<Pin<Box<Sleep>>> {
        self.running.lock().expect("nothing that can panic runs under this lock").take()
    }

    fn put_running(&self, sleep: Pin<Box<Sleep>>) {
        let before = self.running.lock().expect("nothing that can panic runs under this lock").replace(sleep);
        drop(before);
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Io<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.registered.fmt(f)
    }
}

/// Somebody who waits in an operation of its own; when it goes, so does its waker.
struct Waiter<'a, T: AsFd> {
    io: &'a Io<T>,
    side: Side,
    number: Option<WaiterId>,
}

impl<T: AsFd> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        self.io.registered.forget(self.io.direction(self.side), self.number);
    }
}

impl<T: AsFd> Io<T> {
    /// Of a descriptor that is in non-blocking mode, on the scheduler of this thread.
    pub(crate) fn new(io: T) -> io::Result<Self> {
        Self::on(&crate::scheduler::owner::here(), io)
    }

    /// The same, on the scheduler of another.
    pub(crate) fn on(shared: &Arc<Shared>, io: T) -> io::Result<Self> {
        let registered = Registered::new(Arc::clone(shared), io)?;
        Ok(Self { registered, read: Limit::none(), write: Limit::none() })
    }

    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.registered.io()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.registered.shared()
    }

    pub(crate) fn into_inner(self) -> T {
        self.registered.into_io()
    }

    fn direction(&self, side: Side) -> &Direction {
        match side {
            Side::Read => &self.registered.source().read,
            Side::Write => &self.registered.source().write,
        }
    }

    fn limit(&self, side: Side) -> &Limit {
        match side {
            Side::Read => &self.read,
            Side::Write => &self.write,
        }
    }

    pub(crate) fn patience(&self, side: Side) -> Option<Duration> {
        // Relaxed: a setting, which publishes nothing.
        let patience = self.limit(side).patience.load(Relaxed);
        (patience != NEVER).then(|| Duration::from_nanos(patience))
    }

    /// # Errors
    /// A patience of zero, as in std.
    pub(crate) fn set_patience(&self, side: Side, patience: Option<Duration>) -> io::Result<()> {
        if patience == Some(Duration::ZERO) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "cannot set a timeout of zero: use None for none"));
        }
        self.limit(side).patience.store(patience.map_or(NEVER, nanoseconds), Relaxed);
        Ok(())
    }

    /// Calls once, if it is not known that there is nothing.
    pub(crate) fn try_once<R>(&self, side: Side, call: impl FnOnce(&T) -> io::Result<Done<R>>) -> io::Result<R> {
        let direction = self.direction(side);
        let seen = direction.see();
        if !seen.is_ready() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.call(direction, seen, call)
    }

    fn call<R>(
        &self,
        direction: &Direction,
        seen: Seen,
        call: impl FnOnce(&T) -> io::Result<Done<R>>,
    ) -> io::Result<R> {
        match call(self.get()) {
            Ok(done) => {
                if done.short {
                    direction.use_up_short(seen);
                }
                Ok(done.value)
            }
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    direction.use_up(seen);
                }
                Err(error)
            }
        }
    }

    /// Tries, or leaves the waker: woken, call this again. The layer that everything else stands on.
    fn poll_as<R>(
        &self,
        side: Side,
        waiter: &mut Option<WaiterId>,
        task: &Context<'_>,
        call: &mut impl FnMut(&T) -> io::Result<Done<R>>,
    ) -> Poll<io::Result<R>> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let direction = self.direction(side);
        for _ in 0..TRIES {
            let seen = direction.see();
            if seen.is_ready() || is_last_try() {
                match self.call(direction, seen, &mut *call) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => return Poll::Ready(result),
                }
            }
            if self.registered.leave(direction, waiter, task.waker().clone())? {
                current::note_waiting(match side {
                    Side::Read => Waiting::READABLE,
                    Side::Write => Waiting::WRITABLE,
                });
                return Poll::Pending;
            }
        }
        crate::scheduler::budget::give_way(task);
        Poll::Pending
    }

    /// One operation, for the I/O traits, with the timeout of the side. Of several who poll one side of a socket so, the last is woken.
    pub(crate) fn poll<R>(
        &self,
        side: Side,
        task: &mut Context<'_>,
        mut call: impl FnMut(&T) -> io::Result<Done<R>>,
    ) -> Poll<io::Result<R>> {
        let mut poll = |task: &mut Context<'_>| self.poll_as(side, &mut Some(WaiterId::ANY), task, &mut call);
        let Some(patience) = self.patience(side) else { return poll(task) };
        let limit = self.limit(side);
        let mut running = None;
        let polled = poll_within(task, poll, || {
            let sleep = limit.take_running().unwrap_or_else(|| Box::pin(self.sleep(patience)));
            running.insert(sleep).as_mut()
        });
        match polled {
            Poll::Ready(Ok(result)) => {
                drop(running.or_else(|| limit.take_running()));
                Poll::Ready(result)
            }
            Poll::Ready(Err(Elapsed)) => {
                self.registered.forget(self.direction(side), Some(WaiterId::ANY));
                Poll::Ready(Err(timed_out(side)))
            }
            Poll::Pending => {
                if let Some(sleep) = running {
                    limit.put_running(sleep);
                }
                Poll::Pending
            }
        }
    }

    fn sleep(&self, patience: Duration) -> Sleep {
        let shared = self.shared();
        sleep_on(Arc::clone(shared), shared.world.now().saturating_add(nanoseconds(patience)))
    }

    /// One operation, with the timeout of the side. Any number may wait at once.
    pub(crate) async fn run<R>(&self, side: Side, call: impl FnMut(&T) -> io::Result<Done<R>>) -> io::Result<R> {
        let patience = self.patience(side);
        self.run_within(side, patience, call).await
    }

    /// One operation that may wait so long.
    pub(crate) async fn run_within<R>(
        &self,
        side: Side,
        patience: Option<Duration>,
        mut call: impl FnMut(&T) -> io::Result<Done<R>>,
    ) -> io::Result<R> {
        let mut waiter = Waiter { io: self, side, number: None };
        let mut sleep = pin!(None::<Sleep>);
        poll_fn(|task| {
            let mut poll = |task: &mut Context<'_>| self.poll_as(side, &mut waiter.number, task, &mut call);
            let Some(patience) = patience else { return poll(task) };
            let mut sleep = sleep.as_mut();
            let polled = poll_within(task, poll, || {
                if sleep.is_none() {
                    sleep.set(Some(self.sleep(patience)));
                }
                sleep.as_pin_mut().expect("set above")
            });
            polled.map(|polled| polled.unwrap_or_else(|Elapsed| Err(timed_out(side))))
        })
        .await
    }

    /// Waits until the next try is worth it.
    pub(super) async fn ready(&self, side: Side) -> io::Result<()> {
        let mut waiter = Waiter { io: self, side, number: None };
        // It is called if the direction is ready, and changes nothing; or else for the last time,
        // when the kernel knows better.
        let mut call = |io: &T| {
            if is_last_try() {
                if !is_ready_now(io, side)? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                // So that the try that follows is made.
                self.direction(side).note_ready();
            }
            Ok(Done::whole(()))
        };
        poll_fn(|task| self.poll_as(side, &mut waiter.number, task, &mut call)).await
    }
}

/// What the kernel says of a descriptor, without waiting.
fn is_ready_now(io: &impl AsFd, side: Side) -> io::Result<bool> {
    let wanted = match side {
        Side::Read => PollFlags::IN | PollFlags::RDHUP,
        Side::Write => PollFlags::OUT,
    };
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(io, wanted)], Some(&at_once))? > 0)
}

pub(super) fn timed_out(side: Side) -> io::Error {
    let text = match side {
        Side::Read => "nothing came within the read timeout",
        Side::Write => "there was no room within the write timeout",
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

impl<T: AsFd> AsFd for Io<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registered.as_fd()
    }
}

/// Any descriptor for whose readiness the kernel can be asked: a pipe, a terminal, a timer, somebody else's socket.
///
/// ```
/// use std::io::Write;
/// use std::os::unix::net::UnixStream;
/// use procession::net::Readiness;
///
/// procession::run(async {
///     let (mut here, there) = UnixStream::pair()?;
///     let there = Readiness::new(there)?;
///     let reader = procession::spawn(async move {
///         let mut bytes = [0; 16];
///         let count = there.read_with(|mut there| std::io::Read::read(&mut there, &mut bytes)).await?;
///         Ok::<_, std::io::Error>(bytes[..count].to_vec())
///     });
///     here.write_all(b"here")?;
///     assert_eq!(reader.await.expect("it does not panic")?, b"here");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Readiness<T: AsFd>(Io<T>);

impl<T: AsFd> Readiness<T> {
    /// Puts a descriptor into non-blocking mode, and asks the kernel to tell of its changes. The mode is one of the open file: it holds for all
    /// descriptors of it, and stays.
    ///
    /// # Errors
    /// The kernel tells nothing of files and directories (`PermissionDenied`); a descriptor that this scheduler knows already, such as that of
    /// one of its sockets, must be duplicated first (`AlreadyExists`); the system has no descriptors left.
    pub fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Io::new(io).map(Self)
    }

    /// What was given to [`new`](Self::new).
    pub fn get_ref(&self) -> &T {
        self.0.get()
    }

    /// Gives it back. It is still in non-blocking mode.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Waits until `call` reads something: calls it at once, and again whenever the descriptor has become readable, until it returns anything but
    /// [`WouldBlock`](io::ErrorKind::WouldBlock) or [`Interrupted`](io::ErrorKind::Interrupted).
    ///
    /// # Errors
    /// Those of `call`; the scheduler has ended.
    pub async fn read_with<R>(&self, mut call: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.run(Side::Read, |io| call(io).map(Done::whole)).await
    }

    /// As [`read_with`](Self::read_with), for writing.
    ///
    /// # Errors
    /// As there.
    pub async fn write_with<R>(&self, mut call: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.run(Side::Write, |io| call(io).map(Done::whole)).await
    }

    /// Calls once. If `call` returns [`WouldBlock`](io::ErrorKind::WouldBlock), that is noted, and it is not called again before the
    /// descriptor has become readable.
    ///
    /// # Errors
    /// Those of `call`, and `WouldBlock` if it is not called.
    pub fn try_read_with<R>(&self, call: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.try_once(Side::Read, |io| call(io).map(Done::whole))
    }

    /// As [`try_read_with`](Self::try_read_with), for writing.
    ///
    /// # Errors
    /// As there.
    pub fn try_write_with<R>(&self, call: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.try_once(Side::Write, |io| call(io).map(Done::whole))
    }

    /// Waits until it is worth to call [`try_read_with`](Self::try_read_with): until then nothing has been seen to be there. May be over for
    /// nothing.
    ///
    /// # Errors
    /// The scheduler has ended.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.ready(Side::Read).await
    }

    /// As [`readable`](Self::readable), for writing.
    ///
    /// # Errors
    /// As there.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.ready(Side::Write).await
    }
}

impl<T: AsFd> AsFd for Readiness<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Readiness<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Readiness").field(self.get_ref()).finish()
    }
}
