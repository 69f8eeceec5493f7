//! The I/O traits of other crates for streams.

use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{TcpStream, UnixStream};

macro_rules! futures_io {
    ($Stream:ty) => {
        impl futures_io::AsyncRead for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_read(task, buffer)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                buffers: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_read_vectored(task, buffers)
            }
        }

        impl futures_io::AsyncWrite for $Stream {
            fn poll_write(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_write(task, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_write_vectored(task, parts)
            }

            /// Does nothing, since a stream has no buffer.
            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Shuts down the write direction, so that the peer reads the end of the stream.
            fn poll_close(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.io().poll_close(task)
            }
        }
    };
}

futures_io!(TcpStream);
futures_io!(&TcpStream);
futures_io!(UnixStream);
futures_io!(&UnixStream);

/// The traits of tokio and of hyper for writing, which differ in their names.
macro_rules! write_traits {
    ($feature:literal, $Write:path: $($Stream:ty),+) => {$(
        #[cfg(feature = $feature)]
        impl $Write for $Stream {
            fn poll_write(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                bytes: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_write(task, bytes)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                parts: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.io().poll_write_vectored(task, parts)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.io().poll_close(task)
            }
        }
    )+};
}

write_traits!("tokio-io", tokio::io::AsyncWrite: TcpStream, UnixStream);
write_traits!("hyper", hyper::rt::Write: TcpStream, UnixStream);

macro_rules! read_traits {
    ($($Stream:ty),+) => {$(
        #[cfg(feature = "tokio-io")]
        impl tokio::io::AsyncRead for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                buffer: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                self.io().poll_receive(task, buffer)
            }
        }

        #[cfg(feature = "hyper")]
        impl hyper::rt::Read for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                task: &mut Context<'_>,
                mut buffer: hyper::rt::ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                self.io().poll_receive(task, &mut buffer)
            }
        }
    )+};
}

read_traits!(TcpStream, UnixStream);
