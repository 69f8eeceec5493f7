//! Copying between streams.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};

use crate::scheduler::budget;
use crate::scheduler::placed::placed;

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
/// `writer` takes nothing.
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
/// At the end of one stream, the other is closed for writing, and the other direction goes on until
/// its end.
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
/// Returns the first error of either direction. The other direction ends with it.
///
/// # Cancellation
/// If the future is dropped before it completes, data that was read and not written is lost, at
/// most 16 KiB in each direction.
#[track_caller]
pub fn copy_bidirectional<A, B>(
    a: &mut A,
    b: &mut B,
) -> impl Future<Output = io::Result<(u64, u64)>>
where
    A: AsyncRead + AsyncWrite + Unpin + ?Sized,
    B: AsyncRead + AsyncWrite + Unpin + ?Sized,
{
    let (mut there, mut back) = (CopyDirection::default(), CopyDirection::default());
    placed(poll_fn(move |task| {
        let there = there.poll(task, a, b)?;
        let back = back.poll(task, b, a)?;
        let (there, back) = (ready!(there), ready!(back));
        Poll::Ready(Ok((there, back)))
    }))
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
        loop {
            // Readers and writers in memory never wait.
            if !budget::charge(task) {
                return Poll::Pending;
            }
            if self.start == self.end && !self.read_all {
                match Pin::new(&mut *reader).poll_read(task, &mut self.buffer) {
                    Poll::Ready(Ok(0)) => self.read_all = true,
                    Poll::Ready(Ok(count)) => (self.start, self.end) = (0, count),
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
                let count = ready!(Pin::new(&mut *writer).poll_write(task, left))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
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
