//! Closing, reopening and resizing a pool, and waiting for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::pool::state::outcome::{Quiescence, WatchResult};
use procession_sync::atomic::Ordering::Relaxed;

use super::block::block;
use super::builder::{check_capacity, keep_alive_nanoseconds};
use super::engine::Inner;
use super::error::{PoolError, WaitError};
use crate::process::unwind::{drop_guarded, guarded};
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;

impl<J> Inner<J> {
    pub(super) fn close(&self) -> bool {
        // Before the close, because afterwards the timer may belong to a pool that was reopened.
        self.stop_reaper();
        self.woken(self.core.close())
    }

    pub(super) fn shutdown_now(&self) -> usize {
        // As in `close`.
        self.stop_reaper();
        let jobs = self.woken(self.core.clear());
        let count = jobs.len();
        // One by one: a panic of one drop must not keep the other jobs from being resolved.
        jobs.into_iter().for_each(drop_guarded);
        count
    }

    pub(super) fn reopen(&self) -> Result<(), PoolError> {
        if self.core.reopen() { Ok(()) } else { Err(PoolError::NotDrained) }
    }

    pub(super) fn resize(self: &Arc<Self>, capacity: usize) -> Result<usize, PoolError> {
        check_capacity(capacity)?;
        Ok(self.step(|core, start| core.resize(capacity, start)))
    }

    pub(super) fn set_keep_alive(&self, idle: Duration) {
        self.keep_alive.store(keep_alive_nanoseconds(idle), Relaxed);
        self.core.expect_uneven();
    }
}

impl<J: Send + 'static> Inner<J> {
    fn watch(&self, quiescence: Quiescence) -> QuiescenceWait<'_, J> {
        // Relaxed: the numbers only have to differ.
        let number = self.last_watch.fetch_add(1, Relaxed);
        QuiescenceWait { inner: self, quiescence, number, is_enlisted: false }
    }

    /// Waits until the last worker of the closed pool has left.
    pub(super) fn drained(&self) -> QuiescenceWait<'_, J> {
        self.watch(Quiescence::Drained)
    }

    /// Waits until no job runs and none is queued.
    pub(super) fn idle(&self) -> QuiescenceWait<'_, J> {
        self.watch(Quiescence::Idle)
    }
}

/// A waiter for a quiescent pool, enlisted by its first poll. Dropping it ends the wait.
pub(super) struct QuiescenceWait<'a, J: Send + 'static> {
    inner: &'a Inner<J>,
    quiescence: Quiescence,
    number: u64,
    is_enlisted: bool,
}

impl<J: Send + 'static> QuiescenceWait<'_, J> {
    /// Waits on this thread.
    pub(super) fn block(mut self, timeout: Option<Duration>) -> Result<(), WaitError> {
        block(timeout, |task| Pin::new(&mut self).poll(task)).unwrap_or(Err(WaitError::TimedOut))
    }
}

impl<J: Send + 'static> Future for QuiescenceWait<'_, J> {
    type Output = Result<(), WaitError>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let Self { inner, quiescence, number, is_enlisted } = *self;
        if inner.is_inside() {
            let is_open = quiescence == Quiescence::Drained && !inner.is_closed();
            return Poll::Ready(Err(if is_open { WaitError::Open } else { WaitError::Inside }));
        }
        let waker = task.waker().clone();
        let (watched, waker) = inner.core.watch(number, quiescence, is_enlisted, waker);
        drop(waker);
        match watched {
            WatchResult::Reached => Poll::Ready(Ok(())),
            WatchResult::Open => Poll::Ready(Err(WaitError::Open)),
            WatchResult::Waits => {
                self.is_enlisted = true;
                current::note_waiting(Waiting::JOB);
                Poll::Pending
            }
        }
    }
}

/// Polls the waits for several pools, each of which is enlisted by the first poll: a pool that has
/// ended may be opened again before the next one has ended. Removes those that are over.
pub(super) fn poll_all<J: Send + 'static>(
    waits: &mut Vec<QuiescenceWait<'_, J>>,
    task: &mut TaskContext<'_>,
) -> Poll<Result<(), WaitError>> {
    let mut result = Ok(());
    waits.retain_mut(|wait| match Pin::new(wait).poll(task) {
        Poll::Ready(ended) => {
            result = result.and(ended);
            false
        }
        Poll::Pending => true,
    });
    if result.is_err() || waits.is_empty() { Poll::Ready(result) } else { Poll::Pending }
}

impl<J: Send + 'static> Drop for QuiescenceWait<'_, J> {
    fn drop(&mut self) {
        drop(self.inner.core.unwatch(self.number));
    }
}

/// Shared by the handles of a pool. When the last handle is dropped, the pool is closed.
pub(super) struct PoolOwner<J>(pub(super) Arc<Inner<J>>);

impl<J> Drop for PoolOwner<J> {
    fn drop(&mut self) {
        drop(guarded(|| self.0.close()));
    }
}
