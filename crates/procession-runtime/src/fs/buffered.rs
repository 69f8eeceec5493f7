//! The buffer between a process and a file with blocking calls.
//!
//! One job at a time runs on a helper, so the operations on a file have an order. The buffer of a
//! job is its own: a read fills it and a write has a copy. So the future of an operation can be
//! dropped at any time. What an abandoned read has read stays here for the next read.
//!
//! # Writes
//! A write is accepted once a job has a copy of the data, which then stays here until the system
//! has taken the whole copy. If the system refuses a part, the next operation returns the error.
//! Each later operation writes the rest first, and does nothing else while this fails. So no
//! operation reports data as written that is not, and no operation acts at the wrong position.
//!
//! A file that is not open for writing takes no data at any later time, so its data is not kept.
//! Writes and flushes fail from then on, and the file can still be read.
//!
//! # Reads
//! A job reads at most what its read asks for. So the position is where the reader believes it to
//! be, for all that share it. Only a read that is abandoned may move it further. Whatever a later
//! and smaller read leaves of that data is given back to the file, if the file has a position. An
//! end that an abandoned read has found is looked for again, because such a file may have grown.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::jobs::{submit, submit_write};
use crate::pool::{JobError, JobHandle};
use crate::scheduler::budget;
use crate::scheduler::writes::LostWrite;

/// The most that one job reads or writes, as in tokio: 2 MiB.
const BUFFER_MAX: usize = 2 << 20;

/// Repeats a call on this thread until it is done. A file may be in non-blocking mode, also because
/// another program that shares it has set the mode. This waits for such a file.
pub(crate) fn until_done<R>(
    file: &impl AsFd,
    ready: PollFlags,
    mut call: impl FnMut() -> io::Result<R>,
) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // Ignored: the call that follows has the error of the descriptor.
                let _ = poll(&mut [PollFd::new(file, ready)], None);
            }
            result => return result,
        }
    }
}

/// A file with calls that may block.
pub(crate) trait BlockingFile: AsFd + Send + Sync + 'static {
    /// Writes a part of `bytes`, and returns its length.
    fn write_some(&self, bytes: &[u8]) -> io::Result<usize>;

    /// Hands the system what `write_some` has kept.
    fn hand_over(&self) -> io::Result<()>;

    /// Moves the position back, over data that was read ahead. Does not block.
    fn step_back(&self, count: usize) -> io::Result<()>;
}

pub(crate) struct Buffered<T> {
    target: Arc<T>,
    job: Option<JobHandle<JobDone>>,
    /// The job that runs was begun before the present read, which did not begin it.
    is_abandoned: bool,
    /// What was read and not taken yet is between `taken` and `filled`. The rest is room.
    ahead: Vec<u8>,
    taken: usize,
    filled: usize,
    read_error: Option<io::Error>,
    /// The data that was accepted last. The system has taken its first `written` bytes.
    accepted: Arc<Vec<u8>>,
    written: usize,
    /// `true` until the system has everything that was accepted.
    is_unwritten: bool,
    write_error: Option<(io::Error, LostWrite)>,
    /// Set if the system has said that the file is not open for writing.
    is_read_only: bool,
    /// Set if a job was lost, and with it the count of what is written.
    lost: Option<JobError>,
}

/// The end of a job, with its buffer.
enum JobDone {
    Read(Vec<u8>, io::Result<usize>),
    /// The number of bytes that the system has.
    Wrote(usize, Result<(), (io::Error, LostWrite)>),
    Moved(io::Result<u64>),
}

/// The kind of a job that has ended.
pub(super) enum JobEnd {
    Read,
    Wrote,
    Moved(io::Result<u64>),
}

/// Writes everything but the first `written` bytes, and counts them there.
fn write_rest<T: BlockingFile>(target: &T, bytes: &[u8], written: &mut usize) -> io::Result<()> {
    while *written < bytes.len() {
        match until_done(target, PollFlags::OUT, || target.write_some(&bytes[*written..]))? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            count => *written += count,
        }
    }
    until_done(target, PollFlags::OUT, || target.hand_over())
}

impl<T: BlockingFile> Buffered<T> {
    pub(crate) fn new(target: T) -> Self {
        Self {
            target: Arc::new(target),
            job: None,
            is_abandoned: false,
            ahead: Vec::new(),
            taken: 0,
            filled: 0,
            read_error: None,
            accepted: Arc::default(),
            written: 0,
            is_unwritten: false,
            write_error: None,
            is_read_only: false,
            lost: None,
        }
    }

    pub(crate) fn target(&self) -> &Arc<T> {
        &self.target
    }

    pub(crate) fn into_target(self) -> Arc<T> {
        self.target
    }

    /// Returns `true` if the next read has to wait for a job, or finds what an earlier job left.
    pub(super) fn is_engaged(&self) -> bool {
        let has_read = !self.ahead().is_empty() || self.read_error.is_some();
        self.job.is_some() || self.is_unwritten || has_read
    }

    /// Notes that a read begins. A job that runs was begun for something else.
    pub(super) fn begin_read(&mut self) {
        self.is_abandoned = self.job.is_some();
    }

    /// Waits until no job runs. Returns the kind of the job that has ended.
    pub(super) fn poll_idle(&mut self, task: &mut Context<'_>) -> Poll<Option<JobEnd>> {
        let Some(job) = &mut self.job else { return Poll::Ready(None) };
        let done = ready!(Pin::new(job).poll(task));
        self.job = None;
        Poll::Ready(match done {
            Ok(JobDone::Read(buffer, result)) => {
                (self.ahead, self.taken, self.filled) = (buffer, 0, 0);
                match result {
                    Ok(count) => self.filled = count,
                    Err(error) => self.read_error = Some(error),
                }
                Some(JobEnd::Read)
            }
            Ok(JobDone::Wrote(written, result)) => {
                self.written = written;
                self.write_error = result.err();
                let errno = self.write_error.as_ref().and_then(|error| error.0.raw_os_error());
                self.is_read_only = errno == Some(Errno::BADF.raw_os_error());
                self.is_unwritten = self.write_error.is_some() && !self.is_read_only;
                Some(JobEnd::Wrote)
            }
            Ok(JobDone::Moved(result)) => Some(JobEnd::Moved(result)),
            // A job neither panics nor is cancelled. If it did, a write was perhaps lost.
            Err(error) => {
                self.lost = Some(error);
                None
            }
        })
    }

    /// Returns the data that was read ahead.
    fn ahead(&self) -> &[u8] {
        &self.ahead[self.taken..self.filled]
    }

    /// Waits for data that was not taken yet; none is the end. Reads at most `room` bytes.
    pub(super) fn poll_fill(
        &mut self,
        task: &mut Context<'_>,
        room: usize,
        read: fn(&T, &mut [u8]) -> io::Result<usize>,
    ) -> Poll<io::Result<&[u8]>> {
        let has_read = matches!(ready!(self.poll_idle(task)), Some(JobEnd::Read));
        if let Some(error) = self.read_error.take() {
            return Poll::Ready(Err(error));
        }
        let is_done = has_read && !self.has_old_end();
        if is_done || !self.ahead().is_empty() {
            return Poll::Ready(Ok(self.ahead()));
        }
        ready!(self.poll_settled(task))?;
        let (target, mut buffer) = (Arc::clone(&self.target), std::mem::take(&mut self.ahead));
        (self.taken, self.filled, self.is_abandoned) = (0, 0, false);
        let room = room.min(BUFFER_MAX);
        if buffer.len() < room {
            buffer = vec![0; room];
        }
        self.job = Some(submit(move || {
            let result = read(&target, &mut buffer[..room]);
            JobDone::Read(buffer, result)
        })?);
        ready!(self.poll_idle(task));
        if let Some(error) = self.read_error.take() {
            return Poll::Ready(Err(error));
        }
        // Nothing is to be written. A job that was lost is no end of the file.
        ready!(self.poll_settled(task))?;
        Poll::Ready(Ok(self.ahead()))
    }

    /// Returns `true` if an abandoned read has found an end that may not be the end any more. A
    /// file with a position may have grown since. A terminal has no position, and tells an end
    /// once.
    fn has_old_end(&mut self) -> bool {
        std::mem::take(&mut self.is_abandoned)
            && self.ahead().is_empty()
            && self.target.step_back(0).is_ok()
    }

    /// Takes data that was read ahead. If an abandoned read has left more data, moves the position
    /// of the file back over the rest.
    pub(super) fn take(&mut self, count: usize) {
        self.taken += count;
        // Ignored: what the file does not take back stays for the next read.
        let _ = self.step_back();
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
        (self.taken, self.filled, self.read_error) = (0, 0, None);
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
        match Arc::get_mut(&mut self.accepted) {
            Some(buffer) => {
                buffer.clear();
                buffer.extend_from_slice(bytes);
            }
            None => self.accepted = Arc::new(bytes.to_vec()),
        }
        self.written = 0;
        self.start_to_write()?;
        Poll::Ready(Ok(bytes.len()))
    }

    /// Waits until the system has everything that was accepted. If it refuses a part, returns the
    /// error, and the next call tries again.
    pub(crate) fn poll_written(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        ready!(self.poll_settled(task))?;
        Poll::Ready(if self.is_read_only { Err(Errno::BADF.into()) } else { Ok(()) })
    }

    /// Waits until nothing is left to write. After the error that the file is not open for writing,
    /// nothing is.
    pub(super) fn poll_settled(&mut self, task: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_idle(task));
            if let Some((error, loss)) = self.write_error.take() {
                loss.returned();
                return Poll::Ready(Err(error));
            }
            if let Some(lost) = &self.lost {
                return Poll::Ready(Err(io::Error::other(lost.clone())));
            }
            if !self.is_unwritten {
                return Poll::Ready(Ok(()));
            }
            self.start_to_write()?;
        }
    }

    fn start_to_write(&mut self) -> io::Result<()> {
        let (target, bytes) = (Arc::clone(&self.target), Arc::clone(&self.accepted));
        let mut written = self.written;
        self.job = Some(submit_write(move |accepted| {
            let result = write_rest(&*target, &bytes, &mut written);
            JobDone::Wrote(written, result.map_err(|error| (error, accepted.fail())))
        })?);
        self.is_unwritten = true;
        Ok(())
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
