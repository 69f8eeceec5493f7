//! The turn of a virtual thread, and why it passes the turn on.

use std::sync::OnceLock;

use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::{Acquire, Release};
use procession_sync::thread::{self, Thread};

/// The turn of one virtual thread.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_given: AtomicBool,
    pub(crate) thread: OnceLock<Thread>,
}

impl Turn {
    pub(crate) fn give(&self) {
        // Ordering: Release pairs with the Acquire in `take`; makes all that happened in earlier
        // turns visible.
        self.is_given.store(true, Release);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    pub(crate) fn take(&self) {
        while !self.is_given.swap(false, Acquire) {
            thread::park();
        }
    }
}

/// Why a thread passes a point.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// It can continue.
    Point,
    /// It can continue, but waits for others.
    Pause,
    /// It could continue, and is preempted.
    #[cfg(procession_sim)]
    Preempt,
    /// It waits.
    Wait,
    End,
}

impl Why {
    /// Returns `true` if another thread is to run although this one could continue.
    pub(crate) fn preempts(self) -> bool {
        #[cfg(procession_sim)]
        return self == Self::Preempt;
        #[cfg(not(procession_sim))]
        false
    }

    /// Returns `true` if the engine may wake a process. If operations are points, a lock that this
    /// takes can be held by another thread, and a thread that has begun to wait cannot wait again.
    pub(crate) fn can_call(self) -> bool {
        cfg!(not(procession_sim)) || !matches!(self, Self::Wait | Self::End)
    }
}
