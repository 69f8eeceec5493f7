//! What a process is told of others.

use std::fmt;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::{Exit, Pid};

/// One monitor. No two of a program are the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorRef(u64);

impl MonitorRef {
    pub(crate) fn draw() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only that they differ matters.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

impl fmt::Debug for MonitorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// A process that was monitored has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// Which monitor this answers.
    pub monitor: MonitorRef,
    /// The process.
    pub pid: Pid,
    /// How it ended; [`Exit::NoProcess`] if it had ended before it was monitored.
    pub exit: Exit,
}

/// An exit signal that was trapped: of a link, or sent by
/// [`send_exit`](crate::relations::send_exit).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExitSignal {
    /// The process that ended, or that sent the signal; `None` if a thread that is no process sent
    /// it.
    pub from: Option<Pid>,
    /// How it ended, or what it sent.
    pub exit: Exit,
}

/// What the runtime tells a process of others.
#[derive(Debug)]
pub(crate) enum Signal {
    Down(Down),
    Exit(ExitSignal),
}
