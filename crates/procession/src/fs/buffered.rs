//! The buffer between a process and a file with blocking calls.
//!
//! One job at a time runs on a helper, so the operations on a file have an order. The buffer of a
//! job is its own: a read fills it and a write takes a copy. So the future of an operation can be
//! dropped at any time. What a job has read stays here for the next read. The error of a write
//! stays for the next write or flush.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::jobs::submit;
use crate::pool::JobHandle;

/// The most that one job reads or writes, as in tokio: 2 MiB.
const BUFFER_MAX: usize = 2 << 20;

/// A file with calls that may block.
pub(crate) trait BlockingFile: Send + Sync + 'static {
    fn write_all(&self, bytes: &[u8]) -> io::Result<()>;

    /// Moves the position back, over data that was read ahead. Does not block.
    fn step_back(&self, count: usize) -> io::Result<()>;
}

pub(crate) struct Buffered<T> {
    target: Arc<T>,
    job: Option<JobHandle<JobDone>>,
    /// What was read and not taken yet, from `taken` on.
    ahead: Vec<u8>,
    taken: usize,
    read_error: Option<io::Error>,
    /// The buffer of the last write, for the next one.
    spare: Vec<u8>,
    write_error: Option<io::Error>,
}

/// The end of a job, with its buffer.
enum JobDone {
    Read(Vec<u8>, io::Result<()>),
    Wrote(Vec<u8>, io::Result<()>),
    Moved(io::Result<u64>),
}

/// The kind of a job that has ended.
pub(super) enum JobEnd {
    Read,
    Wrote,
    Moved(io::Result<u64>),
}

impl<T: BlockingFile> Buffered<T> {
    pub(crate) fn new(target: T) -> Self {
        Self {
            target: Arc::new(target),
            job: None,
            ahead: Vec::new(),
            taken: 0,
            read_error: None,
            spare: Vec::new(),
            write_error: None,
        }
    }

    pub(crate) fn target(&self) -> &Arc<T> {
        &self.target
    }

    pub(crate) fn into_target(self) -> Arc<T> {
        self.target
    }

    /// Returns `true` if a job runs, or has ended and its result was not looked at.
    pub(super) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Waits until no job runs. Returns the kind of the one that has ended.
    pub(super) fn poll_idle(&mut self, task: &mut Context<'_>) -> Poll<Option<JobEnd>> {
        let Some(job) = &mut self.job else { return Poll::Ready(None) };
        let done = ready!(Pin::new(job).poll(task));
        self.job = None;
        Poll::Ready(match done {
            Ok(JobDone::Read(buffer, result)) => {
                (self.ahead, self.taken) = (buffer, 0);
                self.read_error = result.err();
                Some(JobEnd::Read)
            }
            Ok(JobDone::Wrote(buffer, result)) => {
                self.spare = buffer;
                self.write_error = self.write_error.take().or(result.err());
                Some(JobEnd::Wrote)
            }
            Ok(JobDone::Moved(result)) => Some(JobEnd::Moved(result)),
            // A job neither panics nor is cancelled. If it did, a write was perhaps lost.
            Err(error) => {
                self.write_error = Some(io::Error::other(error));
                None
            }
        })
    }

    /// Returns the data that was read ahead.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead[self.taken..]
    }

    /// Waits for data that was not taken yet; none is the end. Reads at most `room` bytes.
    pub(super) fn poll_fill(
        &mut self,
        task: &mut Context<'_>,
        room: usize,
        read: impl FnOnce(&T, &mut Vec<u8>) -> io::Result<()> + Send + 'static,
    ) -> Poll<io::Result<&[u8]>> {
        let has_read = matches!(ready!(self.poll_idle(task)), Some(JobEnd::Read));
        if let Some(error) = self.read_error.take() {
            return Poll::Ready(Err(error));
        }
        if has_read || !self.ahead().is_empty() {
            return Poll::Ready(Ok(self.ahead()));
        }
        let (target, mut buffer) = (Arc::clone(&self.target), std::mem::take(&mut self.ahead));
        self.taken = 0;
        buffer.clear();
        buffer.reserve_exact(room.min(BUFFER_MAX));
        self.job = Some(submit(move || {
            let result = read(&target, &mut buffer);
            JobDone::Read(buffer, result)
        })?);
        ready!(self.poll_idle(task));
        match self.read_error.take() {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Ready(Ok(self.ahead())),
        }
    }

    /// Takes data that was read ahead.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
    }

    /// Forgets what was read ahead, and moves the position back over it. A file without a position
    /// keeps it.
    pub(super) fn step_back(&mut self) -> io::Result<()> {
        let count = self.ahead().len();
        if count > 0 {
            match self.target.step_back(count) {
                Err(error) if error.kind() == io::ErrorKind::NotSeekable => return Ok(()),
                result => result?,
            }
        }
        (self.taken, self.read_error) = (0, None);
        self.ahead.clear();
        Ok(())
    }

    /// Hands a part of `bytes` to a helper, and returns its length.
    pub(crate) fn poll_write(
        &mut self,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_written(task))?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.step_back()?;
        let bytes = &bytes[..bytes.len().min(BUFFER_MAX)];
        let (target, mut buffer) = (Arc::clone(&self.target), std::mem::take(&mut self.spare));
        buffer.extend_from_slice(bytes);
        self.job = Some(submit(move || {
            let result = target.write_all(&buffer);
            buffer.clear();
            JobDone::Wrote(buffer, result)
        })?);
        Poll::Ready(Ok(bytes.len()))
    }

    /// Waits until everything is written that was handed over. Returns the first error since the
    /// last call.
    pub(crate) fn poll_written(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_idle(task));
        Poll::Ready(self.write_error.take().map_or(Ok(()), Err))
    }

    /// Starts to move the position, when no job runs.
    pub(super) fn start_to_move(
        &mut self,
        call: impl FnOnce(&T) -> io::Result<u64> + Send + 'static,
    ) -> io::Result<()> {
        let target = Arc::clone(&self.target);
        self.job = Some(submit(move || JobDone::Moved(call(&target)))?);
        Ok(())
    }
}
