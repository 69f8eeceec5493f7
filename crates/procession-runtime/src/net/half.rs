//! The read half and the write half of a stream.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

/// The read half of a stream.
///
/// [`TcpStream::split`](super::TcpStream::split) borrows the stream, and `S` is a reference.
/// [`TcpStream::into_split`](super::TcpStream::into_split) makes both halves own the stream, and
/// `S` is an [`Arc`].
///
/// Dropping a half closes nothing. The socket is closed once both halves are dropped.
///
/// ```
/// use procession::net::UnixStream;
///
/// procession::run(async {
///     let (ours, theirs) = UnixStream::pair()?;
///     let (mut reads, mut writes) = ours.into_split();
///     // One process writes while another one reads.
///     let writer = procession::spawn(async move { writes.write_all(b"hello").await });
///     let mut bytes = [0; 5];
///     theirs.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"hello");
///     theirs.write_all(b"!").await?;
///     assert_eq!(reads.read(&mut bytes).await?, 1);
///     writer.await.expect("it does not panic")
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadHalf<S>(pub(super) S);

/// The write half of a stream; see [`ReadHalf`].
///
/// If this half is dropped, the peer does not learn that the data has ended. Call
/// [`shutdown`](Self::shutdown) for that.
#[derive(Debug)]
pub struct WriteHalf<S>(pub(super) S);

/// A stream that can be split: [`TcpStream`](super::TcpStream) or
/// [`UnixStream`](super::UnixStream).
pub trait Splits: Sync {
    /// Reads with the stream's own `read`. Unlike the I/O traits, this restarts the read timeout
    /// for each call.
    #[doc(hidden)]
    fn read_some(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// Writes with the stream's own `write`.
    #[doc(hidden)]
    fn write_some(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// The error of [`ReadHalf::reunite`] for two halves that belong to different streams. It returns
/// both halves.
pub struct ReuniteError<T>(ReadHalf<Arc<T>>, WriteHalf<Arc<T>>);

impl<T> ReuniteError<T> {
    /// Returns both halves.
    pub fn into_inner(self) -> (ReadHalf<Arc<T>>, WriteHalf<Arc<T>>) {
        (self.0, self.1)
    }
}

impl<T> fmt::Debug for ReuniteError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReuniteError(..)")
    }
}

impl<T> fmt::Display for ReuniteError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot reunite halves of two streams")
    }
}

impl<T> Error for ReuniteError<T> {}

impl<T> ReadHalf<Arc<T>> {
    /// Puts the two halves of a stream together again.
    ///
    /// # Errors
    /// Returns [`ReuniteError`], which contains both halves, if they belong to different streams.
    pub fn reunite(self, other: WriteHalf<Arc<T>>) -> Result<T, ReuniteError<T>> {
        if !Arc::ptr_eq(&self.0, &other.0) {
            return Err(ReuniteError(self, other));
        }
        drop(other);
        Ok(Arc::into_inner(self.0).expect("there are two halves, and one is gone"))
    }
}

impl<S: Deref> ReadHalf<S> {
    /// Returns the stream.
    pub fn stream(&self) -> &S::Target {
        &self.0
    }

    /// Reads available data into `buffer`, and returns the number of bytes. Zero bytes is the end
    /// of the stream, unless `buffer` is empty.
    ///
    /// # Errors
    /// Returns the errors of the stream's `read`.
    #[track_caller]
    pub fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>>
    where
        S::Target: Splits,
    {
        crate::scheduler::placed::placed(async move { self.0.read_some(buffer).await })
    }
}

impl<S: Deref> WriteHalf<S> {
    /// Returns the stream.
    pub fn stream(&self) -> &S::Target {
        &self.0
    }

    /// Writes a part of `bytes`, and returns the number of bytes written.
    ///
    /// # Errors
    /// Returns the errors of the stream's `write`.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>>
    where
        S::Target: Splits,
    {
        crate::scheduler::placed::placed(async move { self.0.write_some(bytes).await })
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Returns the errors of the stream's `write`.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, a part of `bytes` may have been written.
    #[track_caller]
    pub fn write_all(&mut self, mut bytes: &[u8]) -> impl Future<Output = io::Result<()>>
    where
        S::Target: Splits,
    {
        crate::scheduler::placed::placed(async move {
            while !bytes.is_empty() {
                let count = self.write(bytes).await?;
                bytes = &bytes[count..];
            }
            Ok(())
        })
    }

    /// Shuts down the write direction, so that the peer reads the end of the stream.
    ///
    /// # Errors
    /// Returns the system's error. A stream that is no longer connected is not an error.
    #[track_caller]
    pub fn shutdown(&mut self) -> impl Future<Output = io::Result<()>>
    where
        for<'a> &'a S::Target: AsyncWrite + Unpin,
    {
        crate::scheduler::placed::placed(async move {
            poll_fn(|task| Pin::new(&mut &*self.0).poll_close(task)).await
        })
    }
}

impl<S: Deref + Unpin> AsyncRead for ReadHalf<S>
where
    for<'a> &'a S::Target: AsyncRead + Unpin,
{
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.get_mut().0).poll_read(task, buffer)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.get_mut().0).poll_read_vectored(task, buffers)
    }
}

impl<S: Deref + Unpin> AsyncWrite for WriteHalf<S>
where
    for<'a> &'a S::Target: AsyncWrite + Unpin,
{
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.get_mut().0).poll_write(task, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self.get_mut().0).poll_write_vectored(task, parts)
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.get_mut().0).poll_flush(task)
    }

    fn poll_close(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self.get_mut().0).poll_close(task)
    }
}
