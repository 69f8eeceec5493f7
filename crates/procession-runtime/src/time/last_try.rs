//! Polls that are given up unless they are ready now.

use std::cell::Cell;
#[cfg(feature = "hyper")]
use std::task::{Context as TaskContext, Poll};

thread_local! {
    static IS_LAST_TRY: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if what is polled on this thread is given up unless it is ready now. The cached
/// readiness of a descriptor may be older than its data, so such a poll asks the system in any
/// case.
#[inline]
pub(crate) fn is_last_try() -> bool {
    IS_LAST_TRY.get()
}

/// Marks all polls on this thread as last tries until it is dropped. If a poll suspends its
/// coroutine before that, other processes on this thread make needless system calls.
pub(super) struct LastTry(bool);

impl LastTry {
    pub(super) fn begin() -> Self {
        Self(IS_LAST_TRY.replace(true))
    }
}

impl Drop for LastTry {
    fn drop(&mut self) {
        IS_LAST_TRY.set(self.0);
    }
}

/// Polls a future that shall not wait any longer. Returns `None` if it would have to.
///
/// The poll is a last try: it asks the system. A step that has spent its budget cannot poll, so the
/// next step does.
#[cfg(feature = "hyper")]
pub(crate) fn poll_last<R>(
    task: &mut TaskContext<'_>,
    poll: impl FnOnce(&mut TaskContext<'_>) -> Poll<R>,
) -> Poll<Option<R>> {
    if !crate::scheduler::budget::is_spent() {
        let last = LastTry::begin();
        let polled = poll(task);
        drop(last);
        if let Poll::Ready(output) = polled {
            return Poll::Ready(Some(output));
        }
        if !crate::scheduler::budget::is_spent() {
            return Poll::Ready(None);
        }
    }
    crate::scheduler::budget::yield_step(task);
    Poll::Pending
}
