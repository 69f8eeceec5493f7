//! The handle of a job.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use super::block::block;
use super::engine::Inner;
use super::error::JobError;
use super::job::Outcome;
use crate::Waiting;
use crate::process::unwind::drop_guarded;
use crate::scheduler::block_on;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::time;

/// Jobs that run inside of others that wait for them: each needs room on the same stack.
const HELP_DEPTH_MAX: usize = 32;

thread_local! {
    static HELP_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// What handles and watchers need to know of a pool, whatever its jobs are.
pub(super) trait AnyPool: Send + Sync {
    fn cancel(&self, ticket: u64) -> bool;
    /// Runs a queued job, if the caller is a worker of the pool.
    fn help(&self, ticket: u64);
    fn begin_join(&self, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool;
    fn scheduler(&self) -> Option<Arc<Shared>>;
}

impl<J: Send + 'static> AnyPool for Inner<J> {
    fn cancel(&self, ticket: u64) -> bool {
        let job = self.woken(self.core.withdraw(ticket));
        let cancelled = job.is_some();
        drop_guarded(job);
        cancelled
    }

    fn help(&self, ticket: u64) {
        let depth = HELP_DEPTH.get();
        if depth >= HELP_DEPTH_MAX || !self.is_inside() {
            return;
        }
        if let Some(job) = self.woken(self.core.take_inline(ticket)) {
            HELP_DEPTH.set(depth + 1);
            self.run_inline(ticket, job);
            HELP_DEPTH.set(depth);
        }
    }

    fn begin_join(&self, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool {
        self.own_worker().is_none_or(|busy| self.core.join(busy, ticket, has_ended))
    }

    fn scheduler(&self) -> Option<Arc<Shared>> {
        self.engine.scheduler().cloned()
    }
}

/// A handle to the result of a job: a future of it, which threads can [`join`](Self::join).
///
/// Dropping the handle detaches the job, which runs nevertheless. It resolves in any case: with the result, or a [`JobError`].
#[must_use = "dropping a handle detaches the job; write `drop(handle)` to say so"]
pub struct JobHandle<T>(Option<Taken<T>>);

/// A job that was taken by a pool.
struct Taken<T> {
    job: Arc<dyn Outcome<T>>,
    pool: Arc<dyn AnyPool>,
    ticket: u64,
}

impl<T> JobHandle<T> {
    /// Of a job that was taken.
    pub(super) fn new<J, O>(pool: &Arc<Inner<J>>, job: Arc<O>, ticket: u64) -> Self
    where
        J: Send + 'static,
        O: Outcome<T> + 'static,
    {
        Self(Some(Taken { job, pool: Arc::clone(pool) as _, ticket }))
    }

    pub(super) fn refused() -> Self {
        Self(None)
    }

    /// Whether the result is there.
    pub fn is_finished(&self) -> bool {
        self.0.as_ref().is_none_or(Taken::has_ended)
    }

    /// Cancels the job, if it does not run yet. Says whether it did: then it never runs, and the handle answers
    /// [`JobError::Cancelled`].
    pub fn cancel(&self) -> bool {
        self.0.as_ref().is_some_and(|taken| taken.pool.cancel(taken.ticket))
    }

    /// Waits for the result on a thread. If the caller is a job of the same thread pool, and the job that it waits for is still queued, it
    /// runs it here.
    ///
    /// # Errors
    /// The [`JobError`] of a job that has no result; [`JobError::WouldDeadlock`] if the caller is a job of the same thread pool, and
    /// all others wait for jobs of it already.
    ///
    /// # Blocking
    /// Blocks the thread; in a process, await the handle instead.
    pub fn join(mut self) -> Result<T, JobError> {
        let Some(taken) = &self.0 else {
            return Err(JobError::Refused);
        };
        if let Some(shared) = taken.pool.scheduler() {
            return block_on::block_on(&shared, self);
        }
        taken.pool.help(taken.ticket);
        if !taken.pool.begin_join(taken.ticket, &|| taken.has_ended()) {
            return Err(JobError::WouldDeadlock);
        }
        block(None, |task| self.poll_result(task.waker())).unwrap_or(Err(JobError::Cancelled))
    }

    /// As [`join`](Self::join), for at most `patience`; it runs no job here.
    ///
    /// # Errors
    /// The handle itself, if the time is over first.
    pub fn join_timeout(mut self, timeout: Duration) -> Result<Result<T, JobError>, Self> {
        let Some(taken) = &self.0 else {
            return Ok(Err(JobError::Refused));
        };
        let result = match taken.pool.scheduler() {
            Some(shared) => block_on::block_on(&shared, async { time::timeout(timeout, &mut self).await.ok() }),
            None => block(Some(timeout), |task| self.poll_result(task.waker())),
        };
        result.ok_or(self)
    }

    fn poll_result(&mut self, waker: &Waker) -> Poll<Result<T, JobError>> {
        let Some(taken) = &self.0 else {
            return Poll::Ready(Err(JobError::Refused));
        };
        taken.job.cell().poll_result(waker)
    }
}

impl<T> Taken<T> {
    fn has_ended(&self) -> bool {
        self.job.cell().has_ended()
    }
}

impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    /// # Panics
    /// Never. Polled again after the result was taken, it answers [`JobError::Taken`].
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let result = self.get_mut().poll_result(task.waker());
        if result.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        result
    }
}

impl<T> fmt::Debug for JobHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle").field("is_finished", &self.is_finished()).finish_non_exhaustive()
    }
}
