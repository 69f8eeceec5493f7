//! The I/O traits of std and of other crates for files.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::file::File;
use crate::coroutine::wait;

impl futures_io::AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().poll_read_into(task, buffer)
    }
}

/// A write is handed over; see [Writes](File#writes).
impl futures_io::AsyncWrite for File {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().buffered.poll_write(task, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().buffered.poll_written(task)
    }

    /// Does what `poll_flush` does. The file is closed when it is dropped.
    fn poll_close(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().buffered.poll_written(task)
    }
}

/// A seek that is polled again with the same position is the same seek, so an abandoned seek may be
/// completed by a later seek to that position.
impl futures_io::AsyncSeek for File {
    fn poll_seek(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        self.get_mut().poll_seek_to(task, position)
    }
}

#[cfg(feature = "tokio-io")]
impl tokio::io::AsyncRead for File {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let unfilled = buffer.initialize_unfilled();
        self.get_mut().poll_read_into(task, unfilled).map_ok(|count| buffer.advance(count))
    }
}

#[cfg(feature = "tokio-io")]
impl tokio::io::AsyncWrite for File {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().buffered.poll_write(task, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().buffered.poll_written(task)
    }

    fn poll_shutdown(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().buffered.poll_written(task)
    }
}

/// Reads in blocking style. A coroutine is suspended while it waits, and a plain thread is parked.
impl Read for File {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        wait(File::read(self, buffer))
    }
}

/// Writes in blocking style. A write is handed over, and `flush` waits for it; see
/// [Writes](File#writes).
impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(File::write(self, bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        wait(File::flush(self))
    }
}

/// Seeks in blocking style.
impl Seek for File {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        wait(File::seek(self, position))
    }
}
