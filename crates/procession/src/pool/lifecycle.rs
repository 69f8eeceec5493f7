//! Closing, reopening and resizing a pool, and waiting for it.

use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_sync::atomic::Ordering::Relaxed;

use super::block::block;
use super::builder::{check_capacity, keep_alive_nanoseconds};
use super::engine::Inner;
use super::error::{PoolError, WaitError};
use super::state::outcome::Quiescence;
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
        QuiescenceWait { inner: self, quiescence, number: self.last_watch.fetch_add(1, Relaxed) }
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        if !self.is_closed() {
            return Err(WaitError::Open);
        }
        self.wait_for(Quiescence::Drained, timeout)
    }

    pub(super) fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for(Quiescence::Idle, timeout)
    }

    fn wait_for(&self, quiescence: Quiescence, timeout: Option<Duration>) -> Result<(), WaitError> {
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let watch = self.watch(quiescence);
        block(timeout, |task| watch.poll_quiescence(task)).ok_or(WaitError::TimedOut)
    }

    pub(super) async fn drained(&self) -> Result<(), WaitError> {
        if !self.is_closed() {
            return Err(WaitError::Open);
        }
        self.until(Quiescence::Drained).await
    }

    pub(super) async fn idle(&self) -> Result<(), WaitError> {
        self.until(Quiescence::Idle).await
    }

    async fn until(&self, quiescence: Quiescence) -> Result<(), WaitError> {
        if self.is_inside() {
            return Err(WaitError::Inside);
        }
        let watch = self.watch(quiescence);
        std::future::poll_fn(|task| watch.poll_quiescence(task)).await;
        Ok(())
    }
}

/// A waiter for a quiescent pool. Dropping it ends the wait.
struct QuiescenceWait<'a, J: Send + 'static> {
    inner: &'a Inner<J>,
    quiescence: Quiescence,
    number: u64,
}

impl<J: Send + 'static> QuiescenceWait<'_, J> {
    fn poll_quiescence(&self, task: &mut TaskContext<'_>) -> Poll<()> {
        let (is_calm, waker) =
            self.inner.core.watch(self.number, self.quiescence, task.waker().clone());
        drop(waker);
        if is_calm {
            return Poll::Ready(());
        }
        current::note_waiting(Waiting::JOB);
        Poll::Pending
    }
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
