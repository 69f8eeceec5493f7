//! The methods that TCP and Unix streams share. Nearly all methods of the two are here.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use rustix::net::RecvFlags;

use super::io::{Io, IoResult, Side, StreamSocket};
use super::parts::{read_parts, write_parts};
use super::simulated;
use crate::scheduler::budget;

fn read_from<T: StreamSocket>(mut from: &T, buffer: &mut [u8]) -> io::Result<IoResult<usize>>
where
    for<'a> &'a T: Read,
{
    Ok(IoResult::part::<T>(from.read(buffer)?, buffer.len()))
}

fn write_to<T: StreamSocket>(mut to: &T, bytes: &[u8]) -> io::Result<IoResult<usize>>
where
    for<'a> &'a T: Write,
{
    let bytes = simulated::shorten(bytes);
    Ok(IoResult::part::<T>(to.write(bytes)?, bytes.len()))
}

impl<T: StreamSocket> Io<T>
where
    for<'a> &'a T: Read + Write,
{
    pub(super) async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.run(Side::Read, |io| read_from(io, buffer)).await
    }

    pub(super) async fn read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.run(Side::Read, |io| read_parts(io, buffers)).await
    }

    pub(super) async fn read_exact(&self, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let count = self.read(buffer).await?;
            if count == 0 {
                let text =
                    format!("the peer has closed the connection, {} bytes too early", buffer.len());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            buffer = &mut buffer[count..];
        }
        Ok(())
    }

    pub(super) async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // A peek consumes nothing, so a short result says nothing about what is left.
        let call =
            |io: &T| Ok(IoResult::whole(rustix::net::recv(io, &mut *buffer, RecvFlags::PEEK)?.0));
        self.run(Side::Read, call).await
    }

    pub(super) async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.run(Side::Write, |io| write_to(io, bytes)).await
    }

    pub(super) async fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.run(Side::Write, |io| write_parts(io, parts)).await
    }

    pub(super) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            // A write to a stream takes at least one byte, or returns an error.
            let count = self.write(bytes).await?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_once(Side::Read, |io| read_from(io, buffer))
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_once(Side::Write, |io| write_to(io, bytes))
    }

    pub(super) fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.try_once(Side::Read, |io| read_parts(io, buffers))
    }

    pub(super) fn try_write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.try_once(Side::Write, |io| write_parts(io, parts))
    }

    pub(super) fn poll_read(
        &self,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(Side::Read, task, |io| read_from(io, buffer))
    }

    /// Reads into the part of a buffer that is not filled yet.
    #[cfg(any(feature = "tokio-io", feature = "hyper"))]
    pub(super) fn poll_receive(
        &self,
        task: &mut Context<'_>,
        buffer: &mut impl super::read_buf::Unfilled,
    ) -> Poll<io::Result<()>> {
        let received = self.poll(Side::Read, task, |io| {
            let (count, room) = super::read_buf::recv(io, buffer)?;
            Ok(IoResult::part::<T>(count, room))
        });
        received.map_ok(|_| ())
    }

    pub(super) fn poll_read_vectored(
        &self,
        task: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(Side::Read, task, |io| read_parts(io, buffers))
    }

    pub(super) fn poll_write(
        &self,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(Side::Write, task, |io| write_to(io, bytes))
    }

    pub(super) fn poll_write_vectored(
        &self,
        task: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(Side::Write, task, |io| write_parts(io, parts))
    }

    /// Shuts down the write direction. A peer that is gone is not an error.
    pub(super) fn poll_close(&self, task: &Context<'_>) -> Poll<io::Result<()>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        Poll::Ready(match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        })
    }
}

impl<T: AsFd> Io<T> {
    pub(super) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let how = match how {
            Shutdown::Read => rustix::net::Shutdown::Read,
            Shutdown::Write => rustix::net::Shutdown::Write,
            Shutdown::Both => rustix::net::Shutdown::Both,
        };
        Ok(rustix::net::shutdown(self.get(), how)?)
    }
}

/// Translates a timeout of this module into the error that std's sockets return, `WouldBlock`. A
/// timeout of the system, which has an error code, stays as it is.
pub(super) fn as_std_reports(error: io::Error) -> io::Error {
    let ours = error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
    if ours { io::ErrorKind::WouldBlock.into() } else { error }
}

/// The methods that TCP and Unix streams share. Each stream is a tuple struct of one `Io`.
macro_rules! stream_methods {
    ($Stream:ident, $Std:ty) => {
        impl $Stream {
            #[inline]
            pub(super) fn io(&self) -> &Io<$Std> {
                &self.0
            }

            /// Reads available data into `buffer`, and returns the number of bytes.
            ///
            /// Waits if there is none. Zero bytes is the end of the stream, unless `buffer` is
            /// empty.
            ///
            /// # Errors
            /// Returns the system's error, or [`TimedOut`](std::io::ErrorKind::TimedOut) if the
            /// read timeout elapses.
            #[track_caller]
            pub fn read(&self, buffer: &mut [u8]) -> impl Future<Output = std::io::Result<usize>> {
                crate::scheduler::placed::placed(async move { self.0.read(buffer).await })
            }

            /// Like [`read`](Self::read), but fills several buffers, one after the other.
            ///
            /// # Errors
            /// Returns the same errors as [`read`](Self::read).
            #[track_caller]
            pub fn read_vectored(
                &self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> impl Future<Output = std::io::Result<usize>> {
                crate::scheduler::placed::placed(async move { self.0.read_vectored(buffers).await })
            }

            /// Reads until `buffer` is full. The read timeout applies to each part that arrives,
            /// not to the whole.
            ///
            /// # Errors
            /// Returns the errors of [`read`](Self::read). Returns
            /// [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof) if the stream ends first.
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, the data it has read so far is lost.
            #[track_caller]
            pub fn read_exact(
                &self,
                buffer: &mut [u8],
            ) -> impl Future<Output = std::io::Result<()>> {
                crate::scheduler::placed::placed(async move { self.0.read_exact(buffer).await })
            }

            /// Reads available data into `buffer` without removing it, so that the next read
            /// returns it again.
            ///
            /// # Errors
            /// Returns the same errors as [`read`](Self::read).
            #[track_caller]
            pub fn peek(&self, buffer: &mut [u8]) -> impl Future<Output = std::io::Result<usize>> {
                crate::scheduler::placed::placed(async move { self.0.peek(buffer).await })
            }

            /// Writes a part of `bytes`, and returns the number of bytes written. Waits if there is
            /// no room.
            ///
            /// # Errors
            /// Returns the system's error, or [`TimedOut`](std::io::ErrorKind::TimedOut) if the
            /// write timeout elapses.
            #[track_caller]
            pub fn write(&self, bytes: &[u8]) -> impl Future<Output = std::io::Result<usize>> {
                crate::scheduler::placed::placed(async move { self.0.write(bytes).await })
            }

            /// Like [`write`](Self::write), but writes several buffers, one after the other.
            ///
            /// # Errors
            /// Returns the same errors as [`write`](Self::write).
            #[track_caller]
            pub fn write_vectored(
                &self,
                parts: &[std::io::IoSlice<'_>],
            ) -> impl Future<Output = std::io::Result<usize>> {
                crate::scheduler::placed::placed(async move { self.0.write_vectored(parts).await })
            }

            /// Writes all of `bytes`. The write timeout applies to each part that is written, not
            /// to the whole.
            ///
            /// # Errors
            /// Returns the same errors as [`write`](Self::write).
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, a part of `bytes` may have been
            /// written.
            #[track_caller]
            pub fn write_all(&self, bytes: &[u8]) -> impl Future<Output = std::io::Result<()>> {
                crate::scheduler::placed::placed(async move { self.0.write_all(bytes).await })
            }

            /// Like [`read`](Self::read), but without waiting.
            ///
            /// # Errors
            /// Returns the system's error, or [`WouldBlock`](std::io::ErrorKind::WouldBlock) if
            /// there is nothing to read.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.try_read(buffer)
            }

            /// Like [`write`](Self::write), but without waiting.
            ///
            /// # Errors
            /// Returns the system's error, or [`WouldBlock`](std::io::ErrorKind::WouldBlock) if
            /// there is no room.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.try_write(bytes)
            }

            /// Like [`read_vectored`](Self::read_vectored), but without waiting.
            ///
            /// # Errors
            /// Returns the same errors as [`try_read`](Self::try_read).
            pub fn try_read_vectored(
                &self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                self.0.try_read_vectored(buffers)
            }

            /// Like [`write_vectored`](Self::write_vectored), but without waiting.
            ///
            /// # Errors
            /// Returns the same errors as [`try_write`](Self::try_write).
            pub fn try_write_vectored(
                &self,
                parts: &[std::io::IoSlice<'_>],
            ) -> std::io::Result<usize> {
                self.0.try_write_vectored(parts)
            }

            /// Polls a read, for futures that are written by hand and for state machines.
            ///
            /// If several callers poll one direction of a socket this way, only the last caller is
            /// woken.
            ///
            /// The read timeout starts at the first poll that returns `Pending` and ends with the
            /// first poll that returns `Ready`. The stream cannot know whether a read was abandoned
            /// between two polls. So if one was, its timeout continues for the next read, which may
            /// then end early. The I/O traits behave the same way. [`read`](Self::read), and `read`
            /// of a [half](ReadHalf), restart the timeout each time.
            ///
            /// # Errors
            /// Returns the same errors as [`read`](Self::read).
            pub fn poll_read(
                &self,
                task: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read(task, buffer)
            }

            /// Like [`poll_read`](Self::poll_read), but polls a write.
            ///
            /// # Errors
            /// Returns the same errors as [`write`](Self::write).
            pub fn poll_write(
                &self,
                task: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write(task, bytes)
            }

            /// Shuts down one direction of the connection, or both. The peer reads everything that
            /// was written before, and then the end of the stream.
            ///
            /// # Errors
            /// Returns the system's error, for example if the stream is no longer connected.
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.0.shutdown(how)
            }

            /// Splits the stream into a read half and a write half that borrow it.
            ///
            /// All methods of a stream take `&self`, so a split is never required. It only makes
            /// clear which code reads and which code writes.
            pub fn split(&self) -> (ReadHalf<&Self>, WriteHalf<&Self>) {
                (ReadHalf(self), WriteHalf(self))
            }

            /// Splits the stream into a read half and a write half that own it together, for two
            /// processes.
            pub fn into_split(self) -> (ReadHalf<Arc<Self>>, WriteHalf<Arc<Self>>) {
                let stream = Arc::new(self);
                (ReadHalf(Arc::clone(&stream)), WriteHalf(stream))
            }
        }

        impl super::half::Splits for $Stream {
            fn read_some(
                &self,
                buffer: &mut [u8],
            ) -> impl Future<Output = std::io::Result<usize>> + Send {
                self.read(buffer)
            }

            fn write_some(
                &self,
                bytes: &[u8],
            ) -> impl Future<Output = std::io::Result<usize>> + Send {
                self.write(bytes)
            }
        }

        /// Reads in blocking style. A coroutine is suspended while it waits, and a plain thread is
        /// parked. In an async process the wait is a [blocking section](crate::blocking). If the
        /// read timeout elapses, the error is `WouldBlock`, as in std.
        impl std::io::Read for &$Stream {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::read(self, buffer))
                    .map_err(super::stream::as_std_reports)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::read_vectored(self, buffers))
                    .map_err(super::stream::as_std_reports)
            }
        }

        /// Writes in blocking style, in the same way as the implementation of `Read`.
        impl std::io::Write for &$Stream {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::write(self, bytes))
                    .map_err(super::stream::as_std_reports)
            }

            fn write_vectored(&mut self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::write_vectored(self, parts))
                    .map_err(super::stream::as_std_reports)
            }

            /// Does nothing, since a stream has no buffer.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        /// Reads in blocking style, like the implementation for a reference.
        impl std::io::Read for $Stream {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                std::io::Read::read(&mut &*self, buffer)
            }

            fn read_vectored(
                &mut self,
                buffers: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                std::io::Read::read_vectored(&mut &*self, buffers)
            }
        }

        /// Writes in blocking style, like the implementation for a reference.
        impl std::io::Write for $Stream {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                std::io::Write::write(&mut &*self, bytes)
            }

            fn write_vectored(&mut self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                std::io::Write::write_vectored(&mut &*self, parts)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        super::options::waiting_methods!($Stream);
    };
}

pub(super) use stream_methods;

/// Conversions from and to std's type of the same socket. Both can fail, since they change the mode
/// of the descriptor. `$register` is the function that makes the `Io`.
macro_rules! std_conversions {
    ($Ours:ident, $Std:ty, $register:ident) => {
        impl TryFrom<$Std> for $Ours {
            type Error = std::io::Error;

            /// Puts the socket into non-blocking mode and registers it with the scheduler of the
            /// calling process or thread.
            ///
            /// # Errors
            /// Returns the system's error, for example `AlreadyExists` if this scheduler already
            /// knows the descriptor.
            fn try_from(socket: $Std) -> std::io::Result<Self> {
                socket.set_nonblocking(true)?;
                Io::$register(socket).map(Self)
            }
        }

        impl TryFrom<$Ours> for $Std {
            type Error = std::io::Error;

            /// Ends the registration and puts the socket into blocking mode.
            ///
            /// # Errors
            /// Returns the system's error.
            fn try_from(socket: $Ours) -> std::io::Result<Self> {
                let socket = socket.0.into_inner();
                socket.set_nonblocking(false)?;
                Ok(socket)
            }
        }
    };
}

pub(super) use std_conversions;
