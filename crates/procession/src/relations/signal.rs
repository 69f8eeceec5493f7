//! Signals: the events that the runtime sends to a process about other processes.

use std::fmt;

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::{Exit, Pid};

/// Identifies one monitor. It is unique in the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorRef(u64);

impl MonitorRef {
    pub(crate) fn draw() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }

    /// Returns a number that no other monitor of the program has.
    #[cfg(feature = "sim")]
    pub(crate) fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Debug for MonitorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "m{}", self.0)
    }
}

/// The notice that a monitored process has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Down {
    /// The monitor that this answers.
    pub monitor: MonitorRef,
    /// The process that ended.
    pub pid: Pid,
    /// How it ended, or [`Exit::NoProcess`] if it had ended before it was monitored.
    pub exit: Exit,
}

/// A trapped exit signal, from a link or from [`send_exit`](crate::relations::send_exit).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExitSignal {
    /// The process that ended or sent the signal, or `None` if a plain thread sent it.
    pub from: Option<Pid>,
    /// How the process ended, or the exit that was sent.
    pub exit: Exit,
}

/// A signal to a process about another process.
#[derive(Debug)]
pub(crate) enum Signal {
    Down(Down),
    Exit(ExitSignal),
}
