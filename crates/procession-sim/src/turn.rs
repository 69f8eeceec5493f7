//! The turn of a virtual thread, and why it passes the turn on.

use std::sync::OnceLock;

use procession_sync::host::atomic::AtomicBool;
use procession_sync::host::atomic::Ordering::{Acquire, Release};
use procession_sync::thread::{self, Thread};
#[cfg(all(procession_sim, target_os = "linux"))]
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

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

/// Keeps the calling thread, and all threads that it starts, on the processor on which it runs,
/// until this is dropped. Threads that take turns lose nothing by that, and the next one begins
/// sooner, because no other processor has to wake up. If the system refuses, nothing changes.
#[cfg(all(procession_sim, target_os = "linux"))]
pub(crate) struct OneProcessor(Option<CpuSet>);

#[cfg(all(procession_sim, target_os = "linux"))]
impl OneProcessor {
    pub(crate) fn hold() -> Self {
        let mut one = CpuSet::new();
        // It panics beyond the size of a set.
        let here = Some(sched_getcpu()).filter(|&here| here < CpuSet::MAX_CPU);
        Self(here.and_then(|here| {
            one.set(here);
            let before = sched_getaffinity(None).ok()?;
            sched_setaffinity(None, &one).ok().map(|()| before)
        }))
    }
}

#[cfg(all(procession_sim, target_os = "linux"))]
impl Drop for OneProcessor {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _unchanged = sched_setaffinity(None, before);
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
