//! The wake-ups and launches that a step leaves to be done outside the lock.

use std::task::Waker;

use procession_protocols::util::small_vec::SmallVec;

/// A resting or new worker, to be started with a job.
#[derive(Debug)]
pub(crate) struct Launch<J> {
    pub(crate) ticket: u64,
    pub(crate) job: J,
    /// `true` if its start hook was called before.
    pub(crate) has_begun: bool,
}

/// The waiters to wake and the workers to start, outside the lock. Most often this is one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Wakes<J> {
    pub(super) wakers: SmallVec<Waker>,
    /// In the order in which the starts were permitted.
    pub(crate) launches: SmallVec<Launch<J>>,
    /// The number of resting workers that leave and have a hook to run.
    pub(crate) leavers: usize,
    /// Set if jobs are queued because no worker could be started. The caller must arrange a
    /// [retry](super::core::PoolCore::retry).
    pub(crate) starved: bool,
    /// Set if workers may be started for queued jobs, after a step that could start none. The
    /// caller must [do so](super::core::PoolCore::employ).
    pub(crate) understaffed: bool,
}

impl<J> Default for Wakes<J> {
    fn default() -> Self {
        Self {
            wakers: SmallVec::default(),
            launches: SmallVec::default(),
            leavers: 0,
            starved: false,
            understaffed: false,
        }
    }
}

impl<J> Wakes<J> {
    /// Wakes the waiters. Wakers are user code.
    pub(crate) fn wake(mut self) {
        debug_assert!(self.launches.is_empty(), "launches come before wake-ups");
        self.wakers.drain().for_each(|waker| {
            #[cfg(not(procession_loom))]
            drop(crate::process::unwind::guarded(|| waker.wake()));
            #[cfg(procession_loom)]
            waker.wake();
        });
    }
}
