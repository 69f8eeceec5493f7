//! What a step leaves to be done outside the lock.

use std::task::Waker;

use crate::util::small_vec::Few;

/// A worker that rests or is new, to be started with a job.
#[derive(Debug)]
pub(crate) struct Launch<J> {
    pub(crate) ticket: u64,
    pub(crate) job: J,
    /// Its hook was called.
    pub(crate) has_begun: bool,
}

/// Who is to be woken or started, outside the lock: most often one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Wakes<J> {
    pub(super) wakers: Few<Waker>,
    /// In the order in which they were allowed.
    pub(crate) launches: Few<Launch<J>>,
    /// Workers that have left out of their rest, and whose hooks are to be run.
    pub(crate) leavers: usize,
    /// Jobs are queued for which no worker could be started, though there may be more: somebody is to [retry](Core::retry) after a while.
    pub(crate) starved: bool,
}

impl<J> Default for Wakes<J> {
    fn default() -> Self {
        Self { wakers: Few::default(), launches: Few::default(), leavers: 0, starved: false }
    }
}

impl<J> Wakes<J> {
    /// Wakes them. It is the user's code.
    pub(crate) fn wake(mut self) {
        debug_assert!(self.launches.is_empty(), "who is to be started was started before");
        self.wakers.drain().for_each(|waker| {
            #[cfg(not(procession_loom))]
            drop(crate::process::unwind::guarded(|| waker.wake()));
            #[cfg(procession_loom)]
            waker.wake();
        });
    }
}
