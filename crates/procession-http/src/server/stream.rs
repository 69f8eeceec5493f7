//! The stream of a connection, with a limit for writes, which also watches for the end of the
//! client.

use std::any::Any;
use std::future::Future;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use procession_runtime::inner::{PeerEnd, peer_end, poll_last};
use procession_runtime::net::{TcpStream, UnixStream};
use procession_runtime::time::{Sleep, sleep};
use procession_sync::Mutex;

use super::limits::{AHEAD_MAX, LOOK_EVERY};
use super::watch::ConnectionWatch;

/// A stream that ends with an error if the peer does not read for longer than the limit. It also
/// notes what arrives.
struct WatchedStream<I> {
    io: I,
    /// Bytes that were read before the protocol asked for them.
    ahead: Vec<u8>,
    /// The last poll of the protocol waits for bytes, so it sees the end of the client itself.
    is_read: bool,
    watch: Arc<ConnectionWatch>,
    /// Present while `ahead` is full and nothing is read.
    next_look: Option<Pin<Box<Sleep>>>,
    /// The client has closed its half behind bytes that were not read.
    ends_behind: bool,
    limit: Option<Duration>,
    /// Present while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// The stream of a connection. The protocol uses it, and the process of the connection looks at it
/// between the polls of the protocol and closes it in the end.
///
/// Both run in the same process, so the lock is never contended. A stream that was handed over is
/// left to its new owner.
pub(super) struct SharedStream<I>(Arc<Mutex<WatchedStream<I>>>);

impl<I> SharedStream<I> {
    /// `ahead` are the bytes that were read from the stream already.
    pub(super) fn new(
        io: I,
        ahead: Vec<u8>,
        watch: Arc<ConnectionWatch>,
        limit: Option<Duration>,
    ) -> Self {
        let (next_look, stalled) = (None, None);
        let (is_read, ends_behind) = (false, false);
        let watched =
            WatchedStream { io, ahead, is_read, watch, next_look, ends_behind, limit, stalled };
        Self(Arc::new(Mutex::new(watched)))
    }

    /// Returns another handle of the stream.
    pub(super) fn share(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    /// Returns the stream, unless another handle exists.
    pub(super) fn into_inner(self) -> Option<I> {
        Arc::into_inner(self.0).map(|watched| watched.into_inner().io)
    }
}

impl<I: Read + Unpin + 'static> SharedStream<I> {
    /// Looks whether the client is still there, while a request is under way and the protocol does
    /// not read. Otherwise, the process is woken when the client ends or sends more.
    ///
    /// The end of a client is behind the bytes that it has sent, so this reads them. Behind more
    /// than [`AHEAD_MAX`] bytes that the service leaves unread, only the system knows of an end, so
    /// this asks it from time to time.
    ///
    /// # Errors
    /// Returns the error of a connection that was reset.
    pub(super) fn look(&self, task: &mut Context<'_>) -> io::Result<()> {
        let mut watched = self.0.lock();
        if std::mem::take(&mut watched.is_read) || watched.watch.is_half_closed() {
            return Ok(());
        }
        while watched.ahead.len() < AHEAD_MAX {
            let mut memory = [MaybeUninit::uninit(); 4096];
            let mut part = ReadBuf::uninit(&mut memory);
            match Pin::new(&mut watched.io).poll_read(task, part.unfilled()) {
                Poll::Pending => break,
                Poll::Ready(result) => result?,
            }
            if part.filled().is_empty() {
                watched.watch.half_close();
                break;
            }
            watched.ahead.extend_from_slice(part.filled());
        }
        if watched.ahead.len() >= AHEAD_MAX { watched.look_behind(task) } else { Ok(()) }
    }
}

/// Returns the socket of a connection, if its stream is one of `net`.
fn socket(io: &dyn Any) -> Option<BorrowedFd<'_>> {
    fn of<S: AsFd + Read + Write + Unpin + 'static>(io: &dyn Any) -> Option<BorrowedFd<'_>> {
        #[cfg(feature = "tls")]
        if let Some(stream) = io.downcast_ref::<crate::tls::TlsStream<S>>() {
            return Some(stream.get_ref().as_fd());
        }
        io.downcast_ref::<S>().map(AsFd::as_fd)
    }
    of::<TcpStream>(io).or_else(|| of::<UnixStream>(io))
}

impl<I: Read + Unpin> Read for SharedStream<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_read(task, buffer)
    }
}

impl<I: Write + Unpin> Write for SharedStream<I> {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.lock()).poll_write_vectored(task, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.lock().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_flush(task)
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.lock()).poll_shutdown(task)
    }
}

impl<I> WatchedStream<I> {
    /// Notes that the protocol has read something.
    fn hear(&self) {
        self.watch.hear();
        if self.ends_behind {
            self.watch.note_read();
        }
    }
}

impl<I: 'static> WatchedStream<I> {
    /// Asks the system whether the client is still there, each time that nothing was read for
    /// [`LOOK_EVERY`].
    #[cold]
    fn look_behind(&mut self, task: &mut Context<'_>) -> io::Result<()> {
        let Some(socket) = socket(&self.io) else { return Ok(()) };
        loop {
            let next_look = self.next_look.get_or_insert_with(|| Box::pin(sleep(LOOK_EVERY)));
            if next_look.as_mut().poll(task).is_pending() {
                return Ok(());
            }
            self.next_look = None;
            match peer_end(&socket)? {
                PeerEnd::Open => {}
                PeerEnd::HalfClosed => {
                    self.ends_behind = true;
                    self.watch.half_close();
                    return Ok(());
                }
                PeerEnd::Gone => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    }
}

impl<I> WatchedStream<I> {
    /// Polls the write side, and limits its wait. Each result that is ready ends the wait.
    #[inline]
    fn limited<R>(
        &mut self,
        task: &mut Context<'_>,
        mut poll: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let polled = poll(self, task);
        if polled.is_pending() {
            return self.poll_stalled(task, poll);
        }
        if self.stalled.is_some() {
            self.stalled = None;
        }
        polled
    }

    #[cold]
    fn poll_stalled<R>(
        &mut self,
        task: &mut Context<'_>,
        mut poll: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        let Some(limit) = self.limit.filter(|_| !self.watch.is_upgraded()) else {
            return Poll::Pending;
        };
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        if stalled.as_mut().poll(task).is_pending() {
            return Poll::Pending;
        }
        // There may be room, and nothing has noted it yet.
        if let Some(result) = ready!(poll_last(task, |task| poll(self, task))) {
            self.stalled = None;
            return Poll::Ready(result);
        }
        let text = "the peer did not read within the write timeout";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }

    /// Notes the result of a write. A protocol that could not write all of its bytes tries again
    /// until the stream takes none, so the last result says whether bytes are left.
    fn note_written(&self, polled: &Poll<io::Result<usize>>) {
        self.watch.hold_up(polled.is_pending());
        if let Poll::Ready(Ok(count)) = polled {
            self.watch.write(*count);
        }
    }
}

impl<I: Read + Unpin> Read for WatchedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            buffer.put_slice(&self.ahead[..count]);
            self.ahead.drain(..count);
            self.next_look = None;
            self.hear();
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.io).poll_read(task, buffer);
        self.is_read = polled.is_pending();
        if polled.is_ready() {
            // The end of the stream may count as bytes that arrived, because it ends the
            // connection.
            self.hear();
        }
        polled
    }
}

impl<I: Write + Unpin> Write for WatchedStream<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.limited(task, |stream, task| {
            let polled = Pin::new(&mut stream.io).poll_write(task, bytes);
            stream.note_written(&polled);
            polled
        })
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.limited(task, |stream, task| {
            let polled = Pin::new(&mut stream.io).poll_write_vectored(task, parts);
            stream.note_written(&polled);
            polled
        })
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(task, |stream, task| {
            let polled = Pin::new(&mut stream.io).poll_flush(task);
            stream.watch.hold_up(polled.is_pending());
            polled
        })
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limited(task, |stream, task| Pin::new(&mut stream.io).poll_shutdown(task))
    }
}
