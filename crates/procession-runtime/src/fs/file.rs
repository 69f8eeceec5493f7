//! Open files.

use std::fmt;
use std::fs::{File as StdFile, Metadata, Permissions};
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::PollFlags;

use super::buffered::{BlockingFile, Buffered, JobEnd, until_done};
use super::jobs::{run, run_write};
use crate::scheduler::budget;
use crate::scheduler::placed::placed;
use crate::sys::system::cached_files;

/// The most that a worker itself copies from the page cache in one read.
pub(super) const INLINE_MAX: usize = 64 << 10;

/// The room for a read into a buffer that grows.
const READ_SIZE: usize = 32 << 10;

/// An open file.
///
/// It implements the I/O traits of `futures-io`, and with the feature `tokio-io` the traits for
/// reading and writing of tokio. In coroutines and on plain threads, use [`std::io::Read`],
/// [`std::io::Write`] and [`std::io::Seek`].
///
/// A pipe or a terminal may be in non-blocking mode. The helper then waits until it is ready.
///
/// # Writes
/// A write hands a copy of the data to a helper thread and returns, without waiting for the system.
/// The next operation waits for it. If the system refuses a part of the data, the next operation
/// that reads, writes, moves the position, flushes or syncs returns the error, and does nothing
/// else. The file keeps the data: each such operation after that first tries again to write the
/// rest, and returns the error again if it cannot. So once [`flush`](Self::flush) returns `Ok`, the
/// system has all data, for example because a full disk has room again. The exception is a file
/// that is not open for writing: after the first error, writes, `flush` and syncs continue to fail,
/// and the file can be read.
///
/// Call `flush` before the file is dropped: a drop neither waits nor returns an error. The helper
/// still finishes the write, and the end of the scheduler or of the program waits for it; see
/// [At the end](crate::fs#at-the-end).
///
/// # Reads and the position
/// A read takes from the system what it asks for and nothing beyond, so the position is behind what
/// was read, for all that share it: the file of [`into_std`](Self::into_std), handles of
/// [`try_clone`](Self::try_clone), a child process that inherits the file. Each read is a call of
/// the system. For many small reads, wrap the file into a `BufReader` of `futures-lite` or tokio.
///
/// # Cancellation
/// Reads and writes may be dropped at any time. A read that was dropped leaves its data for the
/// next read, and the position is behind that data until then. If the next read asks for less, the
/// file gets the rest back; one without a position, such as a FIFO, leaves it for the next read. A
/// write that was dropped while it waited has taken nothing.
///
/// ```
/// use std::io::SeekFrom;
/// use procession::fs::{self, File};
///
/// # let path = std::env::temp_dir().join(format!("procession-file-{}", std::process::id()));
/// procession::run(async {
///     let mut file = File::options().read(true).write(true).create(true).open(&path).await?;
///     file.write_all(b"hello world").await?;
///     file.seek(SeekFrom::Start(6)).await?;
///     let mut text = String::new();
///     file.read_to_string(&mut text).await?;
///     assert_eq!(text, "world");
///     fs::remove_file(&path).await
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct File {
    pub(super) buffered: Buffered<StdFile>,
    /// The seek that runs as a job, for a caller that polls.
    seeking: Option<SeekFrom>,
    /// `true` until the kernel says that it cannot read this file without waiting.
    reads_inline: bool,
}

impl BlockingFile for StdFile {
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut &*self, bytes)
    }

    fn hand_over(&self) -> io::Result<()> {
        Write::flush(&mut &*self)
    }

    fn step_back(&self, count: usize) -> io::Result<()> {
        let back = i64::try_from(count).expect("a buffer is smaller");
        let mut file = self;
        let before = file.stream_position()?;
        let after = file.seek(SeekFrom::Current(-back))?;
        // Some devices have no position and accept every seek.
        let is_back = before.checked_sub(after) == Some(count as u64);
        if is_back { Ok(()) } else { Err(io::ErrorKind::NotSeekable.into()) }
    }
}

/// Reads once.
fn read_some(file: &StdFile, buffer: &mut [u8]) -> io::Result<usize> {
    until_done(file, PollFlags::IN, || Ok(rustix::io::read(file, &mut *buffer)?))
}

impl File {
    /// Waits for the operation that runs, and returns the file as one of std. If a read that was
    /// dropped has left data, the position is moved back over it. A file without a position, such
    /// as a FIFO, loses that data.
    ///
    /// If the future of another operation was abandoned, such as [`sync_all`](Self::sync_all) or
    /// [`metadata`](Self::metadata), the result is a duplicate of the descriptor, and the original
    /// descriptor is closed when that operation ends.
    ///
    /// # Errors
    /// Returns the error of an earlier write, of moving the position, or of the duplicate. The file
    /// is closed then.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the file is closed.
    #[track_caller]
    pub fn into_std(mut self) -> impl Future<Output = io::Result<StdFile>> {
        placed(async move {
            poll_fn(|task| self.buffered.poll_settled(task)).await?;
            self.buffered.step_back()?;
            // An operation that was abandoned, or not begun, may also have a share.
            Arc::try_unwrap(self.buffered.into_target()).or_else(|shared| shared.try_clone())
        })
    }

    /// Reads a part of the file into `buffer`, and returns the number of bytes. Zero bytes is the
    /// end of the file, unless `buffer` is empty.
    ///
    /// # Errors
    /// Returns the system's error, or the error of an earlier write.
    #[track_caller]
    pub fn read(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> {
        self.buffered.begin_read();
        placed(poll_fn(move |task| self.poll_read_into(task, buffer)))
    }

    /// Reads until `buffer` is full.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](Self::read), or
    /// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof) if the file ends first.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, a part of the data may have been read.
    #[track_caller]
    pub fn read_exact(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<()>> {
        placed(async move {
            let mut filled = 0;
            while filled < buffer.len() {
                match self.read(&mut buffer[filled..]).await? {
                    0 => {
                        let text = format!("the file ends {} bytes early", buffer.len() - filled);
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
                    }
                    count => filled += count,
                }
            }
            Ok(())
        })
    }

    /// Reads until the end of the file, appends the data to `buffer`, and returns the number of
    /// bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](Self::read). What was read before is in `buffer`.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, a part of the data is in `buffer`.
    #[track_caller]
    pub fn read_to_end(&mut self, buffer: &mut Vec<u8>) -> impl Future<Output = io::Result<usize>> {
        self.buffered.begin_read();
        placed(async move {
            let before = buffer.len();
            // Larger and larger, so that few jobs read a large file.
            let mut room = READ_SIZE;
            loop {
                let count = poll_fn(|task| {
                    let data = ready!(self.buffered.poll_fill(task, room, read_some))?;
                    buffer.extend_from_slice(data);
                    let count = data.len();
                    self.buffered.take(count);
                    Poll::Ready(io::Result::Ok(count))
                });
                if count.await? == 0 {
                    return Ok(buffer.len() - before);
                }
                room = room.saturating_mul(2);
            }
        })
    }

    /// Reads until the end of the file, appends the text to `buffer`, and returns the number of
    /// bytes.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](Self::read), or
    /// [`InvalidData`](io::ErrorKind::InvalidData) if the data is not UTF-8. `buffer` is unchanged
    /// then, and the data is lost.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, the data it has read so far is lost.
    #[track_caller]
    pub fn read_to_string(
        &mut self,
        buffer: &mut String,
    ) -> impl Future<Output = io::Result<usize>> {
        placed(async move {
            let mut bytes = Vec::new();
            self.read_to_end(&mut bytes).await?;
            let text = String::from_utf8(bytes)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            buffer.push_str(&text);
            Ok(text.len())
        })
    }

    /// Hands a part of `bytes`, at most 2 MiB, to a helper, and returns its length. Waits only for
    /// the previous operation; see [Writes](Self#writes).
    ///
    /// # Errors
    /// Returns the error of an earlier write, which keeps its data, or an error if the system has
    /// no thread for the call. In both cases nothing of `bytes` was taken.
    #[track_caller]
    pub fn write(&mut self, bytes: &[u8]) -> impl Future<Output = io::Result<usize>> {
        placed(poll_fn(move |task| self.buffered.poll_write(task, bytes)))
    }

    /// Hands all of `bytes` to a helper; see [Writes](Self#writes).
    ///
    /// # Errors
    /// Returns the same errors as [`write`](Self::write).
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, a part of `bytes` may have been taken.
    #[track_caller]
    pub fn write_all(&mut self, mut bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        placed(async move {
            while !bytes.is_empty() {
                let count = self.write(bytes).await?;
                bytes = &bytes[count..];
            }
            Ok(())
        })
    }

    /// Waits until the system has all the data that was written. It need not be on the disk yet;
    /// see [`sync_all`](Self::sync_all).
    ///
    /// # Errors
    /// Returns the error of an earlier write. The data is kept, and the next operation tries again;
    /// see [Writes](Self#writes).
    #[track_caller]
    pub fn flush(&mut self) -> impl Future<Output = io::Result<()>> {
        placed(poll_fn(move |task| self.buffered.poll_written(task)))
    }

    /// Moves the position, and returns it as the distance from the start.
    ///
    /// # Errors
    /// Returns the system's error, for example for a position before the start or for a file
    /// without a position, such as a FIFO. Also returns the error of an earlier write.
    ///
    /// # Cancellation
    /// If the future is dropped after it was polled, the position may or may not be moved.
    #[track_caller]
    pub fn seek(&mut self, position: SeekFrom) -> impl Future<Output = io::Result<u64>> {
        // Another seek that was abandoned is not this one.
        self.seeking = None;
        placed(poll_fn(move |task| self.poll_seek_to(task, position)))
    }

    /// Moves the position to the start.
    ///
    /// # Errors
    /// Returns the same errors as [`seek`](Self::seek).
    #[track_caller]
    pub fn rewind(&mut self) -> impl Future<Output = io::Result<()>> {
        placed(async move { self.seek(SeekFrom::Start(0)).await.map(drop) })
    }

    /// Returns the metadata of the file. The length is without data that is still handed over; call
    /// [`flush`](Self::flush) first.
    ///
    /// # Errors
    /// Returns the system's error.
    #[track_caller]
    pub fn metadata(&self) -> impl Future<Output = io::Result<Metadata>> + use<> {
        let file = Arc::clone(self.buffered.target());
        placed(run(move || file.metadata()))
    }

    /// Changes the permissions of the file.
    ///
    /// # Errors
    /// Returns the system's error.
    #[track_caller]
    pub fn set_permissions(
        &self,
        permissions: Permissions,
    ) -> impl Future<Output = io::Result<()>> + use<> {
        let file = Arc::clone(self.buffered.target());
        placed(run_write(move || file.set_permissions(permissions)))
    }

    /// Cuts the file, or extends it with zeros, to `length` bytes. The position stays.
    ///
    /// # Errors
    /// Returns the system's error, or the error of an earlier write.
    ///
    /// # Cancellation
    /// If the future is dropped after it was polled, the length may or may not change, and may do
    /// so after operations that follow.
    #[track_caller]
    pub fn set_len(&mut self, length: u64) -> impl Future<Output = io::Result<()>> {
        self.after_writes(move |file| file.set_len(length))
    }

    /// Waits until the disk has all data and metadata of the file.
    ///
    /// # Errors
    /// Returns the system's error, or the error of an earlier write.
    #[track_caller]
    pub fn sync_all(&mut self) -> impl Future<Output = io::Result<()>> {
        self.after_writes(StdFile::sync_all)
    }

    /// Waits until the disk has all data of the file, and what is needed to read it.
    ///
    /// # Errors
    /// Returns the system's error, or the error of an earlier write.
    #[track_caller]
    pub fn sync_data(&mut self) -> impl Future<Output = io::Result<()>> {
        self.after_writes(StdFile::sync_data)
    }

    /// Creates another handle to the open file, which shares its position. Waits for the operation
    /// that runs.
    ///
    /// # Errors
    /// Returns the system's error, or the error of an earlier write.
    #[track_caller]
    pub fn try_clone(&mut self) -> impl Future<Output = io::Result<Self>> {
        placed(async move {
            poll_fn(|task| self.buffered.poll_settled(task)).await?;
            self.buffered.step_back()?;
            self.buffered.target().try_clone().map(Self::from)
        })
    }

    #[track_caller]
    fn after_writes(
        &mut self,
        call: impl FnOnce(&StdFile) -> io::Result<()> + Send + 'static,
    ) -> impl Future<Output = io::Result<()>> {
        placed(async move {
            self.flush().await?;
            self.buffered.step_back()?;
            let file = Arc::clone(self.buffered.target());
            run_write(move || call(&file)).await
        })
    }

    pub(super) fn poll_read_into(
        &mut self,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(count) = ready!(self.poll_read_inline(task, buffer)) {
            return Poll::Ready(Ok(count));
        }
        let data = ready!(self.buffered.poll_fill(task, buffer.len(), read_some))?;
        let count = data.len().min(buffer.len());
        buffer[..count].copy_from_slice(&data[..count]);
        self.buffered.take(count);
        Poll::Ready(Ok(count))
    }

    /// Reads what the page cache has, on this thread. `None` means that a helper must read.
    ///
    /// The helper also reads if the result is zero bytes, because some kernels return zero for data
    /// that is not there yet (Linux 5.9 and 5.10).
    fn poll_read_inline(
        &mut self,
        task: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<Option<usize>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        if buffer.is_empty() {
            return Poll::Ready(Some(0));
        }
        if !self.reads_inline || self.buffered.is_engaged() {
            return Poll::Ready(None);
        }
        let room = buffer.len().min(INLINE_MAX);
        match cached_files::read_on(self.buffered.target(), &mut buffer[..room]) {
            Ok(0) => Poll::Ready(None),
            Ok(count) => Poll::Ready(Some(count)),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Poll::Ready(None)
            }
            Err(_) => {
                self.reads_inline = false;
                Poll::Ready(None)
            }
        }
    }

    pub(super) fn poll_seek_to(
        &mut self,
        task: &mut Context<'_>,
        position: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        let ended = ready!(self.buffered.poll_idle(task));
        if self.seeking.take() == Some(position)
            && let Some(JobEnd::Moved(result)) = ended
        {
            return Poll::Ready(result);
        }
        ready!(self.buffered.poll_settled(task))?;
        self.buffered.step_back()?;
        self.buffered.start_to_move(move |file| (&mut &*file).seek(position))?;
        self.seeking = Some(position);
        match ready!(self.buffered.poll_idle(task)) {
            Some(JobEnd::Moved(result)) => {
                self.seeking = None;
                Poll::Ready(result)
            }
            // The job was lost. The file keeps that error.
            _ => {
                self.seeking = None;
                ready!(self.buffered.poll_settled(task))?;
                Poll::Ready(Err(io::Error::other("the position was not moved")))
            }
        }
    }
}

impl From<StdFile> for File {
    fn from(file: StdFile) -> Self {
        Self { buffered: Buffered::new(file), seeking: None, reads_inline: true }
    }
}

impl From<OwnedFd> for File {
    fn from(file: OwnedFd) -> Self {
        Self::from(StdFile::from(file))
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.buffered.target().as_fd()
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("File").field(&**self.buffered.target()).finish()
    }
}

#[cfg(test)]
mod tests;
