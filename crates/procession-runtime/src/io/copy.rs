//! Copying between streams.

use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};

use crate::process::exit::causes::Idle;
use crate::scheduler::placed::placed;
use crate::scheduler::{budget, current};
use crate::time::{self, Elapsed, Instant, Sleep, poll_within};

/// The size of the buffer of one direction.
const BUFFER: usize = 16 << 10;

/// Copies everything from `reader` to `writer`, until the end of `reader`, and returns the number
/// of bytes. Flushes `writer` at the end, and whenever `reader` has no more data for now. Closes
/// neither.
///
/// ```
/// use futures_lite::io::Cursor;
/// use procession::io;
///
/// let mut copied = Vec::new();
/// let count = procession::run(io::copy(&mut Cursor::new("some text"), &mut copied))?;
/// assert_eq!((count, &copied[..]), (9, &b"some text"[..]));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the first error of a read or write, and [`WriteZero`](io::ErrorKind::WriteZero) if
/// `writer` takes nothing. A read or write that fails with
/// [`Interrupted`](io::ErrorKind::Interrupted) is tried again.
///
/// # Cancellation
/// If the future is dropped before it completes, data that was read and not written is lost, at
/// most 16 KiB.
#[track_caller]
pub fn copy<R, W>(reader: &mut R, writer: &mut W) -> impl Future<Output = io::Result<u64>>
where
    R: AsyncRead + Unpin + ?Sized,
    W: AsyncWrite + Unpin + ?Sized,
{
    let mut transfer = CopyBuffer::default();
    placed(poll_fn(move |task| transfer.poll_copy(task, reader, writer)))
}

/// Copies in both directions between `a` and `b`, at the same time. Returns the number of bytes
/// from `a` to `b`, and from `b` to `a`.
///
/// At the end of one stream, the other is closed for writing, and the other direction continues
/// until its end. [`idle_timeout`](CopyBidirectional::idle_timeout) limits how long both may be
/// silent.
///
/// ```
/// use procession::io;
/// use procession::net::UnixStream;
///
/// procession::run(async {
///     let (client, mut ours) = UnixStream::pair()?;
///     let (mut theirs, server) = UnixStream::pair()?;
///     let proxy =
///         procession::spawn(async move { io::copy_bidirectional(&mut ours, &mut theirs).await });
///     client.write_all(b"question").await?;
///     server.read_exact(&mut [0; 8]).await?;
///     server.write_all(b"answer").await?;
///     client.read_exact(&mut [0; 6]).await?;
///     drop((client, server));
///     assert_eq!(proxy.await.expect("it does not panic")?, (8, 6));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the first error of either direction. The other direction ends with it. A read or write
/// that fails with [`Interrupted`](io::ErrorKind::Interrupted) is tried again.
///
/// # Cancellation
/// If the future is dropped before it completes, data that was read and not written is lost, at
/// most 16 KiB in each direction.
#[track_caller]
pub fn copy_bidirectional<'a, A, B>(a: &'a mut A, b: &'a mut B) -> CopyBidirectional<'a, A, B>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let (there, back) = (CopyDirection::default(), CopyDirection::default());
    let both = BothDirections { a, b, there, back, is_back_first: false };
    CopyBidirectional { both, idle: None, call: Location::caller() }
}

/// The future of [`copy_bidirectional`].
#[must_use = "futures do nothing unless awaited"]
pub struct CopyBidirectional<'a, A: ?Sized, B: ?Sized> {
    both: BothDirections<'a, A, B>,
    idle: Option<IdleLimit>,
    call: &'static Location<'static>,
}

struct BothDirections<'a, A: ?Sized, B: ?Sized> {
    a: &'a mut A,
    b: &'a mut B,
    there: CopyDirection,
    back: CopyDirection,
    /// The direction to poll first. The directions take turns, because the first one may spend the
    /// whole budget of the step.
    is_back_first: bool,
}

/// The time for which no data may move.
struct IdleLimit {
    timeout: Duration,
    /// Runs since data moved last. Set at the first poll.
    sleep: Option<Sleep>,
    /// The data that had moved by then, read and written, in bytes.
    moved: u64,
}

impl<A: ?Sized, B: ?Sized> CopyBidirectional<'_, A, B> {
    /// Ends the copy when no data has moved in either direction for `timeout`: nothing was read,
    /// and nothing was written. By default, the copy waits forever, so a peer that has vanished
    /// without a word holds both connections.
    ///
    /// The copy then returns an error of the kind [`TimedOut`](io::ErrorKind::TimedOut). The
    /// streams stay as they are; drop them to end the connections. A process that returns the error
    /// ends with [`Exit::Disconnected`](crate::Exit::Disconnected), because a silent connection is
    /// no failure of the program.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::io;
    /// use procession::net::UnixStream;
    ///
    /// procession::run(async {
    ///     let (_silent, mut ours) = UnixStream::pair()?;
    ///     let (mut theirs, _silent_too) = UnixStream::pair()?;
    ///     let copied = io::copy_bidirectional(&mut ours, &mut theirs)
    ///         .idle_timeout(Duration::from_millis(1))
    ///         .await;
    ///     assert_eq!(copied.unwrap_err().kind(), std::io::ErrorKind::TimedOut);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle = Some(IdleLimit { timeout, sleep: None, moved: 0 });
        self
    }
}

impl IdleLimit {
    /// Polls with this limit. `poll` also returns what has moved so far.
    ///
    /// When the time is over, `poll` may have missed data: the step had spent its budget, or the
    /// event of the data has not been noted yet. So what moves in the last poll of the time lets
    /// the time begin anew.
    fn poll<R>(
        &mut self,
        task: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> (Poll<R>, u64),
    ) -> Poll<Result<R, Idle>> {
        let moved = Cell::new(self.moved);
        let mut poll = |task: &mut Context<'_>| {
            let (polled, now_moved) = poll(task);
            moved.set(now_moved);
            polled
        };
        loop {
            let polled = poll_within(task, &mut poll, || self.sleep_since(moved.get()));
            match ready!(polled) {
                Ok(output) => return Poll::Ready(Ok(output)),
                Err(Elapsed) if self.moved == moved.get() => {
                    return Poll::Ready(Err(Idle(self.timeout)));
                }
                Err(Elapsed) => {}
            }
        }
    }

    /// Returns the sleep, which begins anew if `moved` has changed.
    fn sleep_since(&mut self, moved: u64) -> Pin<&mut Sleep> {
        let has_moved = std::mem::replace(&mut self.moved, moved) != moved;
        let sleep = self.sleep.get_or_insert_with(|| time::sleep(self.timeout));
        let mut sleep = Pin::new(sleep);
        if has_moved {
            sleep.as_mut().reset(Instant::now() + self.timeout);
        }
        sleep
    }
}

impl<A, B> BothDirections<'_, A, B>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    fn poll(&mut self, task: &mut Context<'_>) -> Poll<io::Result<(u64, u64)>> {
        let (mut there, mut back) = (Poll::Pending, Poll::Pending);
        for is_back in [self.is_back_first, !self.is_back_first] {
            if is_back {
                back = self.back.poll(task, self.b, self.a)?;
            } else {
                there = self.there.poll(task, self.a, self.b)?;
            }
        }
        self.is_back_first = !self.is_back_first;
        Poll::Ready(Ok((ready!(there), ready!(back))))
    }

    fn moved(&self) -> u64 {
        self.there.buffer.moved() + self.back.buffer.moved()
    }
}

impl<A, B> Future for CopyBidirectional<'_, A, B>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    type Output = io::Result<(u64, u64)>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { both, idle, call } = self.get_mut();
        let polled = match idle {
            None => both.poll(task),
            Some(idle) => idle.poll(task, |task| (both.poll(task), both.moved())).map(|polled| {
                polled.unwrap_or_else(|idle| Err(io::Error::new(io::ErrorKind::TimedOut, idle)))
            }),
        };
        if polled.is_pending() {
            current::note_place(call);
        }
        polled
    }
}

impl<A: ?Sized, B: ?Sized> fmt::Debug for CopyBidirectional<'_, A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyBidirectional")
            .field("a_to_b", &self.both.there.buffer.copied)
            .field("b_to_a", &self.both.back.buffer.copied)
            .field("idle_timeout", &self.idle.as_ref().map(|idle| idle.timeout))
            .finish_non_exhaustive()
    }
}

/// Returns `true` if the operation is to be tried again, as in [`std::io::copy`].
fn is_interrupted(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

/// One direction of a copy in both.
#[derive(Default)]
struct CopyDirection {
    buffer: CopyBuffer,
    copied: Option<u64>,
    closed: bool,
}

impl CopyDirection {
    fn poll<R, W>(
        &mut self,
        task: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<u64>>
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        let copied = match self.copied {
            Some(copied) => copied,
            None => *self.copied.insert(ready!(self.buffer.poll_copy(task, reader, writer))?),
        };
        if !self.closed {
            ready!(Pin::new(writer).poll_close(task))?;
            self.closed = true;
        }
        Poll::Ready(Ok(copied))
    }
}

/// Data on its way from a reader to a writer.
#[derive(Default)]
struct CopyBuffer {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    read_all: bool,
    needs_flush: bool,
    copied: u64,
}

impl CopyBuffer {
    /// Returns the number of bytes that were read, plus the number of bytes that were written. Each
    /// read and each write increases it.
    fn moved(&self) -> u64 {
        2 * self.copied + (self.end - self.start) as u64
    }

    fn poll_copy<R, W>(
        &mut self,
        task: &mut Context<'_>,
        reader: &mut R,
        writer: &mut W,
    ) -> Poll<io::Result<u64>>
    where
        R: AsyncRead + Unpin + ?Sized,
        W: AsyncWrite + Unpin + ?Sized,
    {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER].into();
        }
        'copy: loop {
            // Readers and writers in memory never wait.
            if !budget::charge(task) {
                return Poll::Pending;
            }
            if self.start == self.end && !self.read_all {
                match Pin::new(&mut *reader).poll_read(task, &mut self.buffer) {
                    Poll::Ready(Ok(0)) => self.read_all = true,
                    Poll::Ready(Ok(count)) => (self.start, self.end) = (0, count),
                    Poll::Ready(Err(error)) if is_interrupted(&error) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        if self.needs_flush {
                            ready!(Pin::new(&mut *writer).poll_flush(task))?;
                            self.needs_flush = false;
                        }
                        return Poll::Pending;
                    }
                }
            }
            while self.start < self.end {
                let left = &self.buffer[self.start..self.end];
                let count = match ready!(Pin::new(&mut *writer).poll_write(task, left)) {
                    Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    Ok(count) => count,
                    // Charged, like a read: a writer may be interrupted again and again.
                    Err(error) if is_interrupted(&error) => continue 'copy,
                    Err(error) => return Poll::Ready(Err(error)),
                };
                self.start += count;
                self.copied += count as u64;
                self.needs_flush = true;
            }
            if self.read_all {
                ready!(Pin::new(&mut *writer).poll_flush(task))?;
                return Poll::Ready(Ok(self.copied));
            }
        }
    }
}
