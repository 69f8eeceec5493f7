//! What TCP and Unix streams have in common, which is nearly all.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use rustix::net::RecvFlags;

use super::io::{Done, Io, Side, StreamSocket};
use super::parts::{read_parts, write_parts};

fn read_from<T: StreamSocket>(mut from: &T, buffer: &mut [u8]) -> io::Result<Done<usize>>
where
    for<'a> &'a T: Read,
{
    Ok(Done::part::<T>(from.read(buffer)?, buffer.len()))
}

fn write_to<T: StreamSocket>(mut to: &T, bytes: &[u8]) -> io::Result<Done<usize>>
where
    for<'a> &'a T: Write,
{
    Ok(Done::part::<T>(to.write(bytes)?, bytes.len()))
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
                let text = format!("the peer has closed the connection, {} bytes too early", buffer.len());
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
            }
            buffer = &mut buffer[count..];
        }
        Ok(())
    }

    pub(super) async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // It takes nothing out, so how much it gives says nothing.
        let call = |io: &T| Ok(Done::whole(rustix::net::recv(io, &mut *buffer, RecvFlags::PEEK)?.0));
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
            // A stream takes at least one byte, or it is an error.
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

    pub(super) fn poll_read(&self, task: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll(Side::Read, task, |io| read_from(io, buffer))
    }

    /// Reads into memory that need not be initialised; says how much of it is, then.
    #[cfg(any(feature = "tokio-io", feature = "hyper"))]
    pub(super) fn poll_receive(
        &self,
        task: &mut Context<'_>,
        buffer: &mut [std::mem::MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        self.poll(Side::Read, task, |io| {
            let ((received, _), _) = rustix::net::recv(io, &mut *buffer, RecvFlags::empty())?;
            Ok(Done::part::<T>(received.len(), buffer.len()))
        })
    }

    pub(super) fn poll_read_vectored(
        &self,
        task: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(Side::Read, task, |io| read_parts(io, buffers))
    }

    pub(super) fn poll_write(&self, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(Side::Write, task, |io| write_to(io, bytes))
    }

    pub(super) fn poll_write_vectored(&self, task: &mut Context<'_>, parts: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.poll(Side::Write, task, |io| write_parts(io, parts))
    }

    /// For `poll_close`: a peer that has gone need not be told.
    pub(super) fn close_writing(&self) -> io::Result<()> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
            result => result,
        }
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

/// A timeout of ours as std's sockets report theirs; one of the system's, which has a code, stays what it is.
pub(super) fn as_std_reports(error: io::Error) -> io::Error {
    let ours = error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none();
    if ours { io::ErrorKind::WouldBlock.into() } else { error }
}

/// The methods that TCP and Unix streams share; each is a struct of one `Io`.
macro_rules! stream_methods {
    ($Stream:ident, $Std:ty) => {
        impl $Stream {
            #[inline]
            pub(super) fn io(&self) -> &Io<$Std> {
                &self.0
            }

            /// Reads what there is, at most as much as `buffer` holds; 0 is the end.
            ///
            /// # Errors
            /// The system's; [`TimedOut`](std::io::ErrorKind::TimedOut) after the read timeout.
            pub async fn read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.read(buffer).await
            }

            /// As [`read`](Self::read), into several buffers, one after the other.
            ///
            /// # Errors
            /// As there.
            pub async fn read_vectored(&self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                self.0.read_vectored(buffers).await
            }

            /// Reads until `buffer` is full. The read timeout is for each part that comes.
            ///
            /// # Errors
            /// As [`read`](Self::read); [`UnexpectedEof`](std::io::ErrorKind::UnexpectedEof) if the end comes first.
            ///
            /// # Cancellation
            /// Dropped before it is complete, what it has read is lost.
            pub async fn read_exact(&self, buffer: &mut [u8]) -> std::io::Result<()> {
                self.0.read_exact(buffer).await
            }

            /// Reads what there is, and leaves it there.
            ///
            /// # Errors
            /// As [`read`](Self::read).
            pub async fn peek(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.peek(buffer).await
            }

            /// Writes some of `bytes`, and says how many.
            ///
            /// # Errors
            /// The system's; [`TimedOut`](std::io::ErrorKind::TimedOut) after the write timeout.
            pub async fn write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.write(bytes).await
            }

            /// As [`write`](Self::write), out of several parts, one after the other.
            ///
            /// # Errors
            /// As there.
            pub async fn write_vectored(&self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.0.write_vectored(parts).await
            }

            /// Writes all of `bytes`. The write timeout is for each part that there is room for.
            ///
            /// # Errors
            /// As [`write`](Self::write).
            ///
            /// # Cancellation
            /// Dropped before it is complete, some may have been written.
            pub async fn write_all(&self, bytes: &[u8]) -> std::io::Result<()> {
                self.0.write_all(bytes).await
            }

            /// As [`read`](Self::read), without waiting.
            ///
            /// # Errors
            /// The system's; [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is nothing to read.
            pub fn try_read(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
                self.0.try_read(buffer)
            }

            /// As [`write`](Self::write), without waiting.
            ///
            /// # Errors
            /// The system's; [`WouldBlock`](std::io::ErrorKind::WouldBlock) if there is no room.
            pub fn try_write(&self, bytes: &[u8]) -> std::io::Result<usize> {
                self.0.try_write(bytes)
            }

            /// As [`read_vectored`](Self::read_vectored), without waiting.
            ///
            /// # Errors
            /// As [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                self.0.try_read_vectored(buffers)
            }

            /// As [`write_vectored`](Self::write_vectored), without waiting.
            ///
            /// # Errors
            /// As [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                self.0.try_write_vectored(parts)
            }

            /// Reads, or leaves the waker: what async code by hand, and other kinds of processes, stand on. Of several who poll one side of a
            /// socket so, the last is woken.
            ///
            /// The read timeout begins with the first poll that waits, and ends with the first one
            /// that does not. Between polls nobody knows whether the read was given up, so the time
            /// of one that was goes on for the next, which may end early. The same holds for the
            /// I/O traits. [`read`](Self::read), and `read` of a [half](ReadHalf), begin anew each
            /// time.
            ///
            /// # Errors
            /// As [`read`](Self::read).
            pub fn poll_read(
                &self,
                task: &mut std::task::Context<'_>,
                buffer: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_read(task, buffer)
            }

            /// As [`poll_read`](Self::poll_read), for writing.
            ///
            /// # Errors
            /// As [`write`](Self::write).
            pub fn poll_write(
                &self,
                task: &mut std::task::Context<'_>,
                bytes: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                self.0.poll_write(task, bytes)
            }

            /// Ends one direction, or both: the peer reads what was written before, and then the end.
            ///
            /// # Errors
            /// The system's, if the stream is not connected any more.
            pub fn shutdown(&self, how: std::net::Shutdown) -> std::io::Result<()> {
                self.0.shutdown(how)
            }

            /// A half to read and a half to write, so that two can work at once. `&self` can be read and written as it is, so this only says
            /// who does what.
            pub fn split(&self) -> (ReadHalf<&Self>, WriteHalf<&Self>) {
                (ReadHalf(self), WriteHalf(self))
            }

            /// As [`split`](Self::split), but both halves own the stream: for two processes.
            pub fn into_split(self) -> (ReadHalf<Arc<Self>>, WriteHalf<Arc<Self>>) {
                let stream = Arc::new(self);
                (ReadHalf(Arc::clone(&stream)), WriteHalf(stream))
            }
        }

        impl super::half::Splits for $Stream {
            fn read_some(&self, buffer: &mut [u8]) -> impl Future<Output = std::io::Result<usize>> + Send {
                self.read(buffer)
            }

            fn write_some(&self, bytes: &[u8]) -> impl Future<Output = std::io::Result<usize>> + Send {
                self.write(bytes)
            }
        }

        /// In blocking style: a coroutine is suspended while it waits, a plain thread is parked. In an async process this is a blocking section.
        impl std::io::Read for &$Stream {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::read(self, buffer)).map_err(super::stream::as_std_reports)
            }

            fn read_vectored(&mut self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::read_vectored(self, buffers)).map_err(super::stream::as_std_reports)
            }
        }

        /// As for `Read`.
        impl std::io::Write for &$Stream {
            fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::write(self, bytes)).map_err(super::stream::as_std_reports)
            }

            fn write_vectored(&mut self, parts: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                crate::coroutine::wait($Stream::write_vectored(self, parts)).map_err(super::stream::as_std_reports)
            }

            /// Nothing is kept back.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        /// As for a reference to it.
        impl std::io::Read for $Stream {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                std::io::Read::read(&mut &*self, buffer)
            }

            fn read_vectored(&mut self, buffers: &mut [std::io::IoSliceMut<'_>]) -> std::io::Result<usize> {
                std::io::Read::read_vectored(&mut &*self, buffers)
            }
        }

        /// As for a reference to it.
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

/// To and from std's type of the same socket. Both may fail, since the mode of the descriptor changes.
macro_rules! std_conversions {
    ($Ours:ident, $Std:ty) => {
        impl TryFrom<$Std> for $Ours {
            type Error = std::io::Error;

            /// Puts it into non-blocking mode.
            ///
            /// # Errors
            /// The system's; this scheduler knows the descriptor already.
            fn try_from(socket: $Std) -> std::io::Result<Self> {
                socket.set_nonblocking(true)?;
                Io::new(socket).map(Self)
            }
        }

        impl TryFrom<$Ours> for $Std {
            type Error = std::io::Error;

            /// Puts it into blocking mode.
            ///
            /// # Errors
            /// The system's.
            fn try_from(socket: $Ours) -> std::io::Result<Self> {
                let socket = socket.0.into_inner();
                socket.set_nonblocking(false)?;
                Ok(socket)
            }
        }
    };
}

pub(super) use std_conversions;
