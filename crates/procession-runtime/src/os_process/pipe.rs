//! The pipes to and from a process of the system.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::process::Stdio;
use std::task::{Context, Poll};

use rustix::buffer::spare_capacity;
use rustix::io::ioctl_fionbio;

use crate::coroutine::wait;
use crate::net::io::{Io, IoResult, Side};
use crate::scheduler::budget;
use crate::scheduler::placed::placed;

/// The room for a read into a buffer that grows.
const READ_SIZE: usize = 16 << 10;

/// The largest pipe that the system makes by default (`/proc/sys/fs/pipe-max-size`).
const PIPE_SIZE_MAX: usize = 1 << 20;

/// Our end of a pipe. It is non-blocking; the end of the child is another open file, and is not.
#[derive(Debug)]
pub(super) struct Pipe(Io<OwnedFd>);

fn read(pipe: &OwnedFd, buffer: &mut [u8]) -> io::Result<IoResult<usize>> {
    Ok(IoResult::whole(rustix::io::read(pipe, buffer)?))
}

fn write(pipe: &OwnedFd, bytes: &[u8]) -> io::Result<IoResult<usize>> {
    Ok(IoResult::whole(rustix::io::write(pipe, bytes)?))
}

impl Pipe {
    pub(super) fn new(pipe: OwnedFd) -> io::Result<Self> {
        ioctl_fionbio(&pipe, true)?;
        Io::new(pipe).map(Self)
    }

    fn into_owned_fd(self) -> io::Result<OwnedFd> {
        let pipe = self.0.into_inner();
        ioctl_fionbio(&pipe, false)?;
        Ok(pipe)
    }

    async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.run(Side::Read, |pipe| read(pipe, buffer)).await
    }

    pub(super) async fn read_to_end(&self, bytes: &mut Vec<u8>) -> io::Result<()> {
        loop {
            bytes.reserve(READ_SIZE);
            let call = |pipe: &OwnedFd| {
                Ok(IoResult::whole(rustix::io::read(pipe, spare_capacity(bytes))?))
            };
            if self.0.run(Side::Read, call).await? == 0 {
                return Ok(());
            }
        }
    }

    /// Reads what the pipe has, at most as much as the largest pipe may have. Errors are left to
    /// the next read.
    pub(super) fn read_available(&self, bytes: &mut Vec<u8>) {
        for _ in 0..PIPE_SIZE_MAX / READ_SIZE {
            bytes.reserve(READ_SIZE);
            if !matches!(rustix::io::read(self.0.get(), spare_capacity(bytes)), Ok(1..)) {
                return;
            }
        }
    }

    fn poll_read(&self, task: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll(Side::Read, task, |pipe| read(pipe, buffer))
    }

    async fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.run(Side::Write, |pipe| write(pipe, bytes)).await
    }

    fn poll_write(&self, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll(Side::Write, task, |pipe| write(pipe, bytes))
    }
}

/// The conversions of all three.
macro_rules! conversions {
    ($Pipe:ident) => {
        /// Hands the pipe to another child, in blocking mode.
        impl TryFrom<$Pipe> for Stdio {
            type Error = io::Error;

            /// # Errors
            /// Returns the system's error.
            fn try_from(pipe: $Pipe) -> io::Result<Self> {
                pipe.into_owned_fd().map(Self::from)
            }
        }

        impl fmt::Debug for $Pipe {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($Pipe), "(..)"))
            }
        }
    };
}

macro_rules! output {
    ($(#[$doc:meta])* $Output:ident) => {
        $(#[$doc])*
        ///
        /// It implements the traits for reading of `futures-io`, std and, with the feature
        /// `tokio-io`, tokio.
        pub struct $Output(Pipe);

        conversions!($Output);

        impl $Output {
            pub(super) fn of(pipe: Pipe) -> Self {
                Self(pipe)
            }

            pub(super) fn pipe(&self) -> &Pipe {
                &self.0
            }

            /// Reads available output into `buffer`, and returns the number of bytes. Waits if
            /// there is none. Zero bytes is the end, unless `buffer` is empty.
            ///
            /// # Errors
            /// Returns the system's error.
            ///
            /// # Cancellation
            /// If the future is dropped before it completes, no output is lost.
            #[track_caller]
            pub fn read(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
                placed(self.0.read(buffer))
            }

            /// Ends the registration, and returns the pipe in blocking mode.
            ///
            /// # Errors
            /// Returns the system's error.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                self.0.into_owned_fd()
            }
        }

        impl AsFd for $Output {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.0.get().as_fd()
            }
        }

        impl futures_io::AsyncRead for $Output {
            fn poll_read(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read(task, buffer)
            }
        }

        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncRead for $Output {
            fn poll_read(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let unfilled = buffer.initialize_unfilled();
                self.0.poll_read(task, unfilled).map_ok(|count| buffer.advance(count))
            }
        }

        /// Reads in blocking style. A coroutine is suspended while it waits, and a plain thread is
        /// parked.
        impl io::Read for $Output {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                wait($Output::read(self, buffer))
            }
        }
    };
}

output!(
    /// The reading end of the standard output of a [`Child`](super::Child).
    ChildStdout
);
output!(
    /// The reading end of the standard error of a [`Child`](super::Child).
    ChildStderr
);

/// The writing end of the standard input of a [`Child`](super::Child).
///
/// The child sees the end of its input when this is dropped or closed. It implements the traits for
/// writing of `futures-io`, std and, with the feature `tokio-io`, tokio.
pub struct ChildStdin(Option<Pipe>);

conversions!(ChildStdin);

impl ChildStdin {
    pub(super) fn of(pipe: Pipe) -> Self {
        Self(Some(pipe))
    }

    fn pipe(&self) -> io::Result<&Pipe> {
        let closed = || io::Error::new(io::ErrorKind::BrokenPipe, "the input is closed");
        self.0.as_ref().ok_or_else(closed)
    }

    /// Writes a part of `bytes`, and returns the number of bytes written. Waits if there is no
    /// room.
    ///
    /// # Errors
    /// Returns the system's error, for example [`BrokenPipe`](io::ErrorKind::BrokenPipe) if the
    /// child has ended or closed its input.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, nothing was written.
    #[track_caller]
    pub fn write(&self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> {
        placed(async move { self.pipe()?.write(bytes).await })
    }

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// Returns the same errors as [`write`](Self::write).
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, a part of `bytes` may have been written.
    #[track_caller]
    pub fn write_all(&self, mut bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        placed(async move {
            while !bytes.is_empty() {
                let count = self.write(bytes).await?;
                bytes = &bytes[count..];
            }
            Ok(())
        })
    }

    /// Ends the registration, and returns the pipe in blocking mode.
    ///
    /// # Errors
    /// Returns the system's error, or [`BrokenPipe`](io::ErrorKind::BrokenPipe) if it is closed.
    pub fn into_owned_fd(mut self) -> io::Result<OwnedFd> {
        self.pipe()?;
        self.0.take().expect("it is not closed").into_owned_fd()
    }

    fn poll_write_some(&self, task: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.pipe()?.poll_write(task, bytes)
    }
}

impl futures_io::AsyncWrite for ChildStdin {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_some(task, bytes)
    }

    /// Does nothing, since a pipe has no buffer here.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Closes the pipe, so that the child sees the end of its input.
    fn poll_close(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        self.get_mut().0 = None;
        Poll::Ready(Ok(()))
    }
}

#[cfg(feature = "tokio-io")]
impl tokio::io::AsyncWrite for ChildStdin {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_some(task, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        self.get_mut().0 = None;
        Poll::Ready(Ok(()))
    }
}

/// Writes in blocking style. A coroutine is suspended while it waits, and a plain thread is parked.
impl io::Write for ChildStdin {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(ChildStdin::write(self, bytes))
    }

    /// Does nothing, since a pipe has no buffer here.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
