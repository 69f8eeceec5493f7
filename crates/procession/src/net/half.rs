//! The two halves of a stream.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

/// The half of a stream that is read: of a borrowed stream, `S` is a reference; of one that both halves own, an [`Arc`].
///
/// Dropping it closes nothing. The socket is closed when both halves are gone.
#[derive(Debug)]
pub struct ReadHalf<S>(pub(super) S);

/// The half of a stream that is written; see [`ReadHalf`].
///
/// Dropping it does not tell the peer that no more will come: [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
pub struct WriteHalf<S>(pub(super) S);

/// A stream that has halves: [`TcpStream`](super::TcpStream) and [`UnixStream`](super::UnixStream).
pub trait Splits: Sync {
    /// As the stream's own `read`: a time that was given up with an earlier read does not count, as
    /// it does with the I/O traits.
    #[doc(hidden)]
    fn read_some(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    /// As the stream's own `write`.
    #[doc(hidden)]
    fn write_some(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Two halves that are not of one stream; both come back.
pub struct ReuniteError<T>(pub ReadHalf<Arc<T>>, pub WriteHalf<Arc<T>>);

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
    /// Makes one stream of its halves again.
    ///
    /// # Errors
    /// [`ReuniteError`], with both, if they are not of one stream.
    pub fn reunite(self, other: WriteHalf<Arc<T>>) -> Result<T, ReuniteError<T>> {
        if !Arc::ptr_eq(&self.0, &other.0) {
            return Err(ReuniteError(self, other));
        }
        drop(other);
        Ok(Arc::into_inner(self.0).expect("there are two halves, and one is gone"))
    }
}

impl<S: Deref> ReadHalf<S> {
    /// The stream.
    pub fn stream(&self) -> &S::Target {
        &self.0
    }

    /// Reads what there is, at most as much as `buffer` holds; 0 is the end.
    ///
    /// # Errors
    /// Those of the stream's `read`.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>
    where
        S::Target: Splits,
    {
        self.0.read_some(buffer).await
    }
}

impl<S: Deref> WriteHalf<S> {
    /// The stream.
    pub fn stream(&self) -> &S::Target {
        &self.0
    }

    /// Writes some of `bytes`, and says how many.
    ///
    /// # Errors
    /// Those of the stream's `write`.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize>
    where
        S::Target: Splits,
    {
        self.0.write_some(bytes).await
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Those of the stream's `write`.
    ///
    /// # Cancellation
    /// Dropped before it is complete, some may have been written.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()>
    where
        S::Target: Splits,
    {
        while !bytes.is_empty() {
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Tells the peer that no more will come.
    ///
    /// # Errors
    /// The system's, if the stream is not connected any more.
    pub async fn shutdown(&mut self) -> io::Result<()>
    where
        for<'a> &'a S::Target: AsyncWrite + Unpin,
    {
        poll_fn(|task| Pin::new(&mut &*self.0).poll_close(task)).await
    }
}

impl<S: Deref + Unpin> AsyncRead for ReadHalf<S>
where
    for<'a> &'a S::Target: AsyncRead + Unpin,
{
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
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
    fn poll_write(self: Pin<&mut Self>, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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
