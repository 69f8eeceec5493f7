//! The wake-ups and launches that a step leaves to be done outside the lock.

use std::task::Waker;

use crate::util::small_vec::SmallVec;

/// A resting or new worker, to be started with a job.
#[derive(Debug)]
pub struct Launch<J> {
    /// The number of the job.
    pub ticket: u64,
    /// The job.
    pub job: J,
    /// `true` if its start hook was called before.
    pub has_begun: bool,
}

/// The waiters to wake and the workers to start, outside the lock. Most often this is one.
#[derive(Debug)]
#[must_use]
pub struct Wakes<J> {
    pub(super) wakers: SmallVec<Waker>,
    /// In the order in which the starts were permitted.
    pub launches: SmallVec<Launch<J>>,
    /// The number of resting workers that leave and have a hook to run.
    pub leavers: usize,
    /// Set if jobs are queued because no worker could be started. The caller must arrange a
    /// [retry](super::core::PoolCore::retry).
    pub starved: bool,
    /// Set if workers may be started for queued jobs, after a step that could start none. The
    /// caller must [do so](super::core::PoolCore::employ).
    pub understaffed: bool,
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
    /// Takes the wakers of the waiters out. The caller wakes them outside of all locks, and catches
    /// their panics, because wakers are code of the user.
    #[inline]
    pub fn wakers(&mut self) -> impl Iterator<Item = Waker> {
        debug_assert!(self.launches.is_empty(), "launches come before wake-ups");
        self.wakers.drain()
    }

    /// Wakes the waiters.
    #[cfg(test)]
    pub(super) fn wake(mut self) {
        self.wakers().for_each(Waker::wake);
    }
}
