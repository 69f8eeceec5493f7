//! The stream of a connection, with a limit for writes.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};

use super::watch::ConnectionWatch;
use crate::time::{Sleep, sleep};

/// A stream that ends with an error if the peer does not read for too long. It also notes what
/// arrives.
pub(super) struct Watched<I> {
    io: I,
    /// Bytes that were read before, to find out the protocol.
    before: Vec<u8>,
    watch: Arc<ConnectionWatch>,
    limit: Option<Duration>,
    /// Present while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<I> Watched<I> {
    /// `before` are the bytes that were read from the stream already.
    pub(super) fn new(
        io: I,
        before: Vec<u8>,
        watch: Arc<ConnectionWatch>,
        limit: Option<Duration>,
    ) -> Self {
        Self { io, before, watch, limit, stalled: None }
    }

    /// ServerLimits a wait of the write side. Each result that is ready ends the wait.
    #[inline]
    fn limited<R>(
        &mut self,
        task: &mut Context<'_>,
        polled: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if polled.is_pending() {
            return self.poll_stalled(task);
        }
        if self.stalled.is_some() {
            self.stalled = None;
        }
        polled
    }

    #[cold]
    fn poll_stalled<R>(&mut self, task: &mut Context<'_>) -> Poll<io::Result<R>> {
        let Some(limit) = self.limit.filter(|_| !self.watch.is_upgraded()) else {
            return Poll::Pending;
        };
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        if stalled.as_mut().poll(task).is_pending() {
            return Poll::Pending;
        }
        let text = "the peer did not read within the write timeout";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }

    fn note_written(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = polled {
            self.watch.write(*count);
        }
    }
}

impl<I: Read + Unpin> Read for Watched<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.before.is_empty() {
            let count = self.before.len().min(buffer.remaining());
            buffer.put_slice(&self.before[..count]);
            self.before.drain(..count);
            self.watch.hear();
            return Poll::Ready(Ok(()));
        }
        let polled = Pin::new(&mut self.io).poll_read(task, buffer);
        if polled.is_ready() {
            // The end of the stream ends the connection, so it may count, too.
            self.watch.hear();
        }
        polled
    }
}

impl<I: Write + Unpin> Write for Watched<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(task, bytes);
        self.note_written(&polled);
        self.limited(task, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(task, parts);
        self.note_written(&polled);
        self.limited(task, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_flush(task);
        self.limited(task, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.io).poll_shutdown(task);
        self.limited(task, polled)
    }
}
