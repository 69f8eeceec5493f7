//! The base of all sockets: try first, then wait, within a timeout.

use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use procession_protocols::io::readiness::{Direction, SeenReadiness, WaiterId};
use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::simulated;
use crate::process::wait_reason::Waiting;
use crate::reactor::Registered;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::sys::nanoseconds;
use crate::sys::system::events::REPORTS_URGENT_DATA;
#[cfg(feature = "hyper")]
use crate::sys::system::sockets::HALF_CLOSED;
use crate::time::{Elapsed, Sleep, is_last_try, poll_within, sleep_on};

/// Number of times that one poll repeats a call before the process yields. A call is repeated if
/// the descriptor has become ready in the meantime or a signal interrupted it.
const TRIES: u32 = 16;

/// The direction of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Read,
    Write,
}

/// The result of a system call, and whether it has used up the readiness of the descriptor.
pub(crate) struct IoResult<R> {
    pub(crate) value: R,
    /// `true` if the call shows that the descriptor has no more data, or no more room.
    pub(crate) short: bool,
}

impl<R> IoResult<R> {
    /// Creates a result that says nothing about what is left.
    pub(crate) fn whole(value: R) -> Self {
        Self { value, short: false }
    }
}

/// The socket of a stream.
pub(crate) trait StreamSocket: AsFd {
    /// `true` if a partial transfer shows that the socket has no more data, or no more room.
    const SHORT_IS_ALL: bool;
}

/// A read returns all data that has arrived in order. Urgent data splits a read, which proves
/// nothing unless the kernel reports urgent data (`translate` in `sys/linux/events.rs`).
impl StreamSocket for std::net::TcpStream {
    const SHORT_IS_ALL: bool = REPORTS_URGENT_DATA;
}

/// A read also ends where descriptors or credentials were sent along with the bytes, although more
/// data may follow. A write consists of several buffers, and the kernel may find no memory for any
/// buffer, so a partial write proves nothing either.
impl StreamSocket for std::os::unix::net::UnixStream {
    const SHORT_IS_ALL: bool = false;
}

impl IoResult<usize> {
    /// Stream semantics: a transfer may be partial; zero bytes is the end of the stream, and the
    /// end stays.
    pub(crate) fn part<T: StreamSocket>(count: usize, wanted: usize) -> Self {
        Self { value: count, short: T::SHORT_IS_ALL && 0 < count && count < wanted }
    }
}

/// A descriptor in non-blocking mode, with its scheduler and its timeouts.
pub(crate) struct Io<T: AsFd> {
    registered: Registered<T>,
    /// It is a socket of TCP or UDP, and closes it when it is dropped.
    is_socket: bool,
    /// Set for a listener that this program has bound, so that no other program has a handle to it.
    is_bound_here: bool,
    read: Limit,
    write: Limit,
}

/// The timeout of one direction.
struct Limit {
    /// In nanoseconds. `NEVER` is no timeout, and then no timer is in `running`, where a later
    /// operation would find it. Written under the lock of `running`.
    timeout: AtomicU64,
    /// The timer of the operation that is polled through one of the I/O traits, because these
    /// traits keep no state between polls. If that operation is abandoned, its timer continues for
    /// the next operation.
    running: Mutex<Option<Pin<Box<Sleep>>>>,
}

impl Limit {
    fn none() -> Self {
        Self { timeout: AtomicU64::new(NEVER), running: Mutex::new(None) }
    }

    fn set(&self, timeout: u64) {
        let mut running = self.running.lock();
        // Relaxed: a setting, which publishes nothing.
        self.timeout.store(timeout, Relaxed);
        let ended = running.take_if(|_| timeout == NEVER);
        drop(running);
        drop(ended);
    }

    fn take_running(&self) -> Option<Pin<Box<Sleep>>> {
        self.running.lock().take()
    }

    fn put_running(&self, sleep: Pin<Box<Sleep>>) {
        let mut running = self.running.lock();
        // Relaxed: as above.
        let is_limited = self.timeout.load(Relaxed) != NEVER;
        let before = if is_limited { running.replace(sleep) } else { Some(sleep) };
        drop(running);
        drop(before);
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for Io<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.registered.fmt(f)
    }
}

impl<T: AsFd> Drop for Io<T> {
    fn drop(&mut self) {
        if let Some(io) = self.registered.io_if_any()
            && self.is_socket
        {
            simulated::close(io);
        }
    }
}

/// The registered waker of an operation. Dropping this removes the waker.
struct LeftWaker<'a, T: AsFd> {
    io: &'a Io<T>,
    side: Side,
    number: Option<WaiterId>,
}

impl<T: AsFd> Drop for LeftWaker<'_, T> {
    fn drop(&mut self) {
        self.io.registered.forget(self.io.direction(self.side), self.number);
    }
}

impl<T: AsFd> Io<T> {
    /// Registers a descriptor, which must be in non-blocking mode, with the scheduler of this
    /// thread.
    pub(crate) fn new(io: T) -> io::Result<Self> {
        Self::on(&crate::scheduler::owner::here(), io)
    }

    /// Registers a descriptor, which must be in non-blocking mode, with `shared`.
    pub(crate) fn on(shared: &Arc<Shared>, io: T) -> io::Result<Self> {
        Self::register(shared, io).map_err(|(error, _)| error)
    }

    /// Registers a socket of TCP or UDP with the scheduler of this thread.
    pub(crate) fn socket(io: T) -> io::Result<Self> {
        Self::socket_on(&crate::scheduler::owner::here(), io)
    }

    /// Registers a socket of TCP or UDP with `shared`.
    pub(crate) fn socket_on(shared: &Arc<Shared>, io: T) -> io::Result<Self> {
        let mut socket = Self::register(shared, io).map_err(|(error, io)| {
            simulated::close(&io);
            error
        })?;
        socket.is_socket = true;
        Ok(socket)
    }

    fn register(shared: &Arc<Shared>, io: T) -> Result<Self, (io::Error, T)> {
        let registered = Registered::new(Arc::clone(shared), io)?;
        let (read, write) = (Limit::none(), Limit::none());
        Ok(Self { registered, is_socket: false, is_bound_here: false, read, write })
    }

    /// Notes that this program has bound the listener.
    pub(crate) fn bound_here(mut self) -> Self {
        self.is_bound_here = true;
        self
    }

    /// Makes the system refuse connections to a listener, although it stays open. Does nothing if
    /// another program may have a handle to the listener, for example the program that has started
    /// this program.
    #[cfg(feature = "hyper")]
    pub(crate) fn refuse_connections(&self) {
        if self.is_bound_here {
            // Ignored: where the system does not know this, connections wait in the backlog.
            let _ = rustix::net::shutdown(self.get(), rustix::net::Shutdown::Read);
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.registered.io()
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.registered.shared()
    }

    pub(crate) fn into_inner(mut self) -> T {
        let io = self.registered.deregister().expect("there until the drop");
        if self.is_socket {
            simulated::release(&io);
        }
        io
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

    pub(crate) fn timeout(&self, side: Side) -> Option<Duration> {
        // Relaxed: a setting, which publishes nothing.
        let timeout = self.limit(side).timeout.load(Relaxed);
        (timeout != NEVER).then(|| Duration::from_nanos(timeout))
    }

    /// Sets the timeout of one direction; `None` is no timeout.
    ///
    /// # Errors
    /// Returns `InvalidInput` for a timeout of zero, as std does.
    pub(crate) fn set_timeout(&self, side: Side, timeout: Option<Duration>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "cannot set a timeout of zero: use None for no timeout",
            ));
        }
        self.limit(side).set(timeout.map_or(NEVER, nanoseconds));
        Ok(())
    }

    /// Calls once, unless the direction is known to be not ready.
    pub(crate) fn try_once<R>(
        &self,
        side: Side,
        call: impl FnOnce(&T) -> io::Result<IoResult<R>>,
    ) -> io::Result<R> {
        let direction = self.direction(side);
        let seen = direction.see();
        if !seen.is_ready() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(error) = simulated::error(self.get(), side == Side::Read) {
            return Err(error);
        }
        self.call(direction, seen, call)
    }

    fn call<R>(
        &self,
        direction: &Direction,
        seen: SeenReadiness,
        call: impl FnOnce(&T) -> io::Result<IoResult<R>>,
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

    /// Calls until the result is known, or registers the waker and returns `Pending`. After the
    /// wake-up the caller polls again. Every other operation is built on this method.
    fn poll_as<R>(
        &self,
        side: Side,
        waiter: &mut Option<WaiterId>,
        task: &Context<'_>,
        call: &mut impl FnMut(&T) -> io::Result<IoResult<R>>,
    ) -> Poll<io::Result<R>> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let direction = self.direction(side);
        for _ in 0..TRIES {
            let seen = direction.see();
            if seen.is_ready() || is_last_try() {
                let refused = simulated::error_of_wait(self.get(), side == Side::Read);
                let called = match refused {
                    Some(error) => Err(error),
                    None => self.call(direction, seen, &mut *call),
                };
                match called {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => return Poll::Ready(result),
                }
            }
            if self.registered.leave(
                direction,
                waiter,
                crate::process::waker::another(task.waker()),
            )? {
                current::note_waiting(match side {
                    Side::Read => Waiting::READABLE,
                    Side::Write => Waiting::WRITABLE,
                });
                return Poll::Pending;
            }
        }
        crate::scheduler::budget::yield_step(task);
        Poll::Pending
    }

    /// Polls one operation for the I/O traits, with the timeout of its direction. If several
    /// callers poll one direction this way, only the last caller is woken.
    pub(crate) fn poll<R>(
        &self,
        side: Side,
        task: &mut Context<'_>,
        mut call: impl FnMut(&T) -> io::Result<IoResult<R>>,
    ) -> Poll<io::Result<R>> {
        let mut poll =
            |task: &mut Context<'_>| self.poll_as(side, &mut Some(WaiterId::ANY), task, &mut call);
        let limit = self.limit(side);
        let timeout = limit.timeout.load(Relaxed);
        if timeout == NEVER {
            return poll(task);
        }
        let mut running = None;
        let polled = poll_within(task, poll, || {
            let sleep = limit.take_running();
            let sleep =
                sleep.unwrap_or_else(|| Box::pin(self.sleep(Duration::from_nanos(timeout))));
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

    fn sleep(&self, timeout: Duration) -> Sleep {
        let shared = self.shared();
        sleep_on(Arc::clone(shared), shared.world.now().saturating_add(nanoseconds(timeout)))
    }

    /// Runs one operation with the timeout of its direction. Any number of operations may wait at
    /// the same time.
    pub(crate) async fn run<R>(
        &self,
        side: Side,
        call: impl FnMut(&T) -> io::Result<IoResult<R>>,
    ) -> io::Result<R> {
        let timeout = self.timeout(side);
        self.run_within(side, timeout, call).await
    }

    /// Runs one operation with the given timeout; `None` is no timeout.
    pub(crate) async fn run_within<R>(
        &self,
        side: Side,
        timeout: Option<Duration>,
        mut call: impl FnMut(&T) -> io::Result<IoResult<R>>,
    ) -> io::Result<R> {
        let mut waiter = LeftWaker { io: self, side, number: None };
        let mut sleep = pin!(None::<Sleep>);
        poll_fn(|task| {
            let mut poll =
                |task: &mut Context<'_>| self.poll_as(side, &mut waiter.number, task, &mut call);
            let Some(timeout) = timeout else { return poll(task) };
            let mut sleep = sleep.as_mut();
            let polled = poll_within(task, poll, || {
                if sleep.is_none() {
                    sleep.set(Some(self.sleep(timeout)));
                }
                sleep.as_pin_mut().expect("set above")
            });
            polled.map(|polled| polled.unwrap_or_else(|Elapsed| Err(timed_out(side))))
        })
        .await
    }

    /// Waits until the direction is ready for another attempt.
    pub(super) async fn ready(&self, side: Side) -> io::Result<()> {
        let mut waiter = LeftWaker { io: self, side, number: None };
        // `poll_as` calls this if the direction is ready, and then it changes nothing. It also
        // calls this for the last attempt at a deadline, when the kernel knows more than the
        // direction's state.
        let mut call = |io: &T| {
            if is_last_try() {
                if !is_ready_now(io, side)? {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                // Lets the attempt that follows reach the system.
                self.direction(side).note_ready();
            }
            Ok(IoResult::whole(()))
        };
        poll_fn(|task| self.poll_as(side, &mut waiter.number, task, &mut call)).await
    }
}

/// Asks the kernel whether a descriptor is ready, without waiting.
fn is_ready_now(io: &impl AsFd, side: Side) -> io::Result<bool> {
    let wanted = match side {
        // The end of a stream can be read, too.
        Side::Read => PollFlags::IN,
        Side::Write => PollFlags::OUT,
    };
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut [PollFd::new(io, wanted)], Some(&at_once))? > 0)
}

/// What the kernel knows of the other end of a stream, whatever has not been read yet.
#[cfg(feature = "hyper")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerEnd {
    /// The peer has ended nothing.
    Open,
    /// The peer has shut down its write direction, or has closed the stream.
    HalfClosed,
    /// The peer has closed both directions, or has reset the stream.
    Gone,
}

/// Asks the kernel for the other end of a stream, without waiting.
///
/// # Errors
/// The error of the system.
#[cfg(feature = "hyper")]
pub fn peer_end(io: &impl AsFd) -> io::Result<PeerEnd> {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut asked = [PollFd::new(io, HALF_CLOSED)];
    poll(&mut asked, Some(&at_once))?;
    let flags = asked[0].revents();
    let gone = (PollFlags::HUP | PollFlags::ERR).difference(HALF_CLOSED);
    Ok(if flags.intersects(gone) {
        PeerEnd::Gone
    } else if flags.contains(HALF_CLOSED) {
        PeerEnd::HalfClosed
    } else {
        PeerEnd::Open
    })
}

pub(super) fn timed_out(side: Side) -> io::Error {
    let text = match side {
        Side::Read => "no data arrived within the read timeout",
        Side::Write => "there was no room within the write timeout",
    };
    io::Error::new(io::ErrorKind::TimedOut, text)
}

impl<T: AsFd> AsFd for Io<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registered.as_fd()
    }
}

/// Any file descriptor that the kernel can report readiness for: a pipe, a terminal, a timer, or
/// the socket of another crate.
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use procession::net::Readiness;
///
/// procession::run(async {
///     let (mut writer, reader) = UnixStream::pair()?;
///     let reader = Readiness::new(reader)?;
///     let process = procession::spawn(async move {
///         let mut bytes = [0; 16];
///         let count = reader.read_with(|mut reader| reader.read(&mut bytes)).await?;
///         Ok::<_, std::io::Error>(bytes[..count].to_vec())
///     });
///     writer.write_all(b"hello")?;
///     assert_eq!(process.await.expect("it does not panic")?, b"hello");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Readiness<T: AsFd>(Io<T>);

impl<T: AsFd> Readiness<T> {
    /// Puts the descriptor into non-blocking mode and registers it with the scheduler of the
    /// calling process or thread.
    ///
    /// The mode belongs to the open file. It applies to all descriptors that refer to that file,
    /// and it stays after this value is dropped.
    ///
    /// # Errors
    /// Returns `PermissionDenied` for a regular file or a directory, for which the kernel reports
    /// no readiness. Returns `AlreadyExists` for a descriptor that this scheduler already knows,
    /// such as the descriptor of one of its sockets; duplicate it first. Returns the system's error
    /// if no file descriptors are left.
    pub fn new(io: T) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&io, true)?;
        Io::new(io).map(Self)
    }

    /// Returns a reference to the value that was passed to [`new`](Self::new).
    pub fn get_ref(&self) -> &T {
        self.0.get()
    }

    /// Ends the registration and returns the value that was passed to [`new`](Self::new). It stays
    /// in non-blocking mode.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }

    /// Calls `call`, and waits for the descriptor to become readable as often as `call` asks for
    /// it.
    ///
    /// `call` runs immediately. If it returns [`WouldBlock`](io::ErrorKind::WouldBlock), it runs
    /// again each time the descriptor has become readable. If it returns
    /// [`Interrupted`](io::ErrorKind::Interrupted), it runs again without waiting. Any other result
    /// is returned.
    ///
    /// # Errors
    /// Returns the errors of `call`, and an error if the scheduler has ended.
    #[track_caller]
    pub fn read_with<R>(
        &self,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> impl Future<Output = io::Result<R>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Read, |io| call(io).map(IoResult::whole)).await
        })
    }

    /// Like [`read_with`](Self::read_with), but waits for the descriptor to become writable.
    ///
    /// # Errors
    /// Returns the same errors as [`read_with`](Self::read_with).
    #[track_caller]
    pub fn write_with<R>(
        &self,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> impl Future<Output = io::Result<R>> {
        crate::scheduler::placed::placed(async move {
            self.0.run(Side::Write, |io| call(io).map(IoResult::whole)).await
        })
    }

    /// Calls `call` once, without waiting.
    ///
    /// If `call` returns [`WouldBlock`](io::ErrorKind::WouldBlock), this is remembered. Until the
    /// descriptor has become readable again, further calls return `WouldBlock` without running
    /// `call`.
    ///
    /// # Errors
    /// Returns the errors of `call`, and `WouldBlock` if `call` does not run.
    pub fn try_read_with<R>(&self, call: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.try_once(Side::Read, |io| call(io).map(IoResult::whole))
    }

    /// The counterpart of [`try_read_with`](Self::try_read_with) for writing.
    ///
    /// # Errors
    /// Returns the same errors as [`try_read_with`](Self::try_read_with).
    pub fn try_write_with<R>(&self, call: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.try_once(Side::Write, |io| call(io).map(IoResult::whole))
    }

    /// Waits until [`try_read_with`](Self::try_read_with) is worth calling. The wait may end
    /// although there is nothing to read.
    ///
    /// # Errors
    /// Returns an error if the scheduler has ended.
    #[track_caller]
    pub fn readable(&self) -> impl Future<Output = io::Result<()>> {
        crate::scheduler::placed::placed(async move { self.0.ready(Side::Read).await })
    }

    /// The counterpart of [`readable`](Self::readable) for writing.
    ///
    /// # Errors
    /// Returns an error if the scheduler has ended.
    #[track_caller]
    pub fn writable(&self) -> impl Future<Output = io::Result<()>> {
        crate::scheduler::placed::placed(async move { self.0.ready(Side::Write).await })
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
