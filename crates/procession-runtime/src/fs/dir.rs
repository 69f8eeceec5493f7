//! Reading directories.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, FileType, Metadata};
use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use procession_sync::Mutex;

use super::jobs::{run, submit};
use crate::pool::JobHandle;
use crate::scheduler::budget;
use crate::scheduler::placed::placed;

/// Number of entries that one job reads, as in tokio.
const CHUNK: usize = 32;

/// Returns the entries of a directory, without `.` and `..`, in no particular order.
///
/// ```
/// use procession::fs;
///
/// procession::run(async {
///     let mut entries = fs::read_dir(".").await?;
///     let mut names = Vec::new();
///     while let Some(entry) = entries.next_entry().await? {
///         names.push(entry.file_name());
///     }
///     assert!(names.contains(&"Cargo.toml".into()));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// Returns the errors of [`std::fs::read_dir`], and an error if the system has no thread for the
/// call.
#[track_caller]
pub fn read_dir(path: impl AsRef<Path>) -> impl Future<Output = io::Result<ReadDir>> {
    let path = path.as_ref().to_owned();
    placed(run(move || {
        let mut entries =
            DirEntries { rest: fs::read_dir(path)?, chunk: VecDeque::new(), ended: false };
        entries.read();
        Ok(ReadDir { entries: Arc::new(Mutex::new(entries)), job: None })
    }))
}

/// The entries of a directory. Made by [`read_dir`].
///
/// With the feature `stream` it is a stream.
pub struct ReadDir {
    /// Locked by the job while it runs, and otherwise by the reader.
    entries: Arc<Mutex<DirEntries>>,
    /// A helper reads the next entries.
    job: Option<JobHandle<()>>,
}

struct DirEntries {
    rest: fs::ReadDir,
    chunk: VecDeque<io::Result<DirEntry>>,
    ended: bool,
}

impl DirEntries {
    fn read(&mut self) {
        for _ in 0..CHUNK {
            let Some(entry) = self.rest.next() else {
                self.ended = true;
                return;
            };
            let failed = entry.is_err();
            self.chunk.push_back(entry.map(|entry| DirEntry(Arc::new(entry))));
            if failed {
                return;
            }
        }
    }
}

impl ReadDir {
    /// Returns the next entry, or `None` at the end.
    ///
    /// # Errors
    /// Returns the system's error for this entry, or an error if the system has no thread for the
    /// call. The next call continues after it.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, no entry is lost.
    #[track_caller]
    pub fn next_entry(&mut self) -> impl Future<Output = io::Result<Option<DirEntry>>> {
        placed(poll_fn(|task| self.poll_next_entry(task)))
    }

    /// Polls for the next entry; see [`next_entry`](Self::next_entry).
    ///
    /// # Errors
    /// Returns the same errors as [`next_entry`](Self::next_entry).
    pub fn poll_next_entry(
        &mut self,
        task: &mut Context<'_>,
    ) -> Poll<io::Result<Option<DirEntry>>> {
        if !budget::charge(task) {
            return Poll::Pending;
        }
        loop {
            if let Some(job) = &mut self.job {
                let read = ready!(Pin::new(job).poll(task));
                self.job = None;
                read.map_err(io::Error::other)?;
            }
            let mut entries = self.entries.lock();
            if let Some(entry) = entries.chunk.pop_front() {
                return Poll::Ready(entry.map(Some));
            }
            if entries.ended {
                return Poll::Ready(Ok(None));
            }
            drop(entries);
            let entries = Arc::clone(&self.entries);
            self.job = Some(submit(move || entries.lock().read())?);
        }
    }
}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadDir").finish_non_exhaustive()
    }
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct DirEntry(Arc<fs::DirEntry>);

impl DirEntry {
    /// Returns the path of the directory, as it was given to [`read_dir`], with the name.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Returns the name.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// Returns the metadata. A symbolic link is not followed.
    ///
    /// # Errors
    /// Returns the system's error, for example if the entry was removed in the meantime.
    #[track_caller]
    pub fn metadata(&self) -> impl Future<Output = io::Result<Metadata>> + use<> {
        let entry = Arc::clone(&self.0);
        placed(run(move || entry.metadata()))
    }

    /// Returns whether the entry is a file, a directory or a symbolic link. Most file systems
    /// return the type with the name, and then this does not wait.
    ///
    /// # Errors
    /// Returns the system's error.
    #[track_caller]
    pub fn file_type(&self) -> impl Future<Output = io::Result<FileType>> + use<> {
        let entry = Arc::clone(&self.0);
        placed(run(move || entry.file_type()))
    }
}

#[cfg(test)]
mod tests;
