//! Threads: their numbers, and what no portable interface tells about them.

use std::io::{self, ErrorKind};

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::thread;

use crate::sys::os::RunState;

/// Returns a number that no other thread has had.
pub(in crate::sys) fn number() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    thread_local! {
        // Relaxed: only that the numbers differ matters.
        static NUMBER: u32 = LAST.fetch_add(1, Relaxed) + 1;
    }
    NUMBER.with(|number| *number)
}

/// Returns `true` on the main thread, to which std gives this name. Other threads may have the same
/// name.
pub(in crate::sys) fn is_main() -> bool {
    thread::current().name() == Some("main")
}

/// There is no processor time of another thread.
pub(in crate::sys) fn processor_time(_: u32) -> Option<u64> {
    None
}

/// There are no files about threads.
#[derive(Debug)]
pub(crate) enum ThreadFile {}

impl ThreadFile {
    pub(crate) fn open(_: u32) -> Option<Self> {
        None
    }

    pub(crate) fn state(&self) -> Option<RunState> {
        match *self {}
    }
}

/// Threads cannot be bound to processors.
#[derive(Clone)]
pub(crate) enum Cpus {}

impl Cpus {
    /// The number of processors that can be named, as on Linux.
    pub(crate) const LIMIT: usize = 1024;

    #[cfg(feature = "sim")]
    pub(crate) fn bind_to_one() -> io::Result<()> {
        Err(refused())
    }

    pub(crate) fn allowed_of(_: &[usize]) -> io::Result<Option<Self>> {
        Err(refused())
    }

    pub(crate) fn count(&self) -> usize {
        match *self {}
    }

    pub(crate) fn bind_this_thread(&self) -> io::Result<()> {
        match *self {}
    }
}

fn refused() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "threads cannot be bound to processors on this system")
}

/// The system wakes threads at their deadlines as it does.
pub(in crate::sys) fn wake_precisely() {}

/// A thread that may belong to the user.
pub(crate) struct LentThread;

impl Drop for LentThread {
    fn drop(&mut self) {
        // Nothing of the thread has been changed.
    }
}
