//! The handle of a job.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use procession_protocols::pool::state::busy::Lender;

use super::block::block;
use super::current::worker_of;
use super::engine::Inner;
use super::error::JobError;
use super::hooks::Hooks;
use super::job::ResultCell;
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::block_on;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::time;

/// The depth of jobs that run inside jobs that wait for them. Each needs room on the same stack.
const HELP_DEPTH_MAX: usize = 32;

thread_local! {
    static HELP_DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// The pool of a handle, whatever the type of its jobs.
pub(super) trait AnyPool: Send + Sync {
    fn cancel(&self, ticket: u64) -> bool;
    /// Begins a wait of the calling thread for a job. If the caller is a worker of the pool or of
    /// another one of its family, and the job is queued, runs the job on this thread. Returns
    /// `false` if the wait would have no end.
    fn join(&self, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool;
    /// Returns the caller if it is a job in a process, of the pool or of another one of its family.
    fn lender(&self) -> Option<Lender>;
    /// Notes that the lender waits for the job of this ticket, which begins in its place if it is
    /// queued. Returns `false` if the job has ended.
    fn lend(&self, lender: Lender, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool;
    fn take_back(&self, lender: Lender, ticket: u64);
    fn scheduler(&self) -> Option<Arc<Shared>>;
    /// Makes workers leave that have rested for longer than the keep-alive.
    fn reap(&self);
    /// Starts workers for queued jobs for which none could be started before.
    fn retry(&self);
    /// Counts a resting worker as gone, after its stop hook if `runs_hook`.
    fn leave(&self, runs_hook: bool);
}

impl<J: Send + 'static> AnyPool for Inner<J> {
    fn cancel(&self, ticket: u64) -> bool {
        let job = self.woken(self.core.withdraw(ticket));
        let cancelled = job.is_some();
        drop_guarded(job);
        cancelled
    }

    fn join(&self, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool {
        let Some(worker) = worker_of(self.family()) else { return true };
        let depth = HELP_DEPTH.get();
        if depth < HELP_DEPTH_MAX
            && let Some(job) = self.woken(self.core.take_inline(ticket))
        {
            HELP_DEPTH.set(depth + 1);
            self.arc().run_inline(ticket, job);
            HELP_DEPTH.set(depth);
        }
        self.own(worker).is_none_or(|busy| self.core.join(busy, ticket, has_ended))
    }

    fn lender(&self) -> Option<Lender> {
        self.scheduler.as_ref()?;
        let (pool, worker) = worker_of(self.family())?;
        Some(self.own((pool, worker)).map_or(Lender::Guest(pool, worker), Lender::Own))
    }

    fn lend(&self, lender: Lender, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool {
        self.arc().step(|core, start| core.lend(lender, ticket, has_ended, start))
    }

    fn take_back(&self, lender: Lender, ticket: u64) {
        self.core.take_back(lender, ticket);
    }

    fn scheduler(&self) -> Option<Arc<Shared>> {
        self.scheduler.clone()
    }

    fn reap(&self) {
        if let Some(shared) = &self.scheduler {
            self.reap_at(self.woken(self.core.reap(shared.world.now())));
        }
    }

    fn retry(&self) {
        self.arc().step(|core, start| ((), core.retry(start)));
    }

    fn leave(&self, runs_hook: bool) {
        if runs_hook {
            Hooks::run(self.hooks.stop.as_ref());
        }
        self.left();
    }
}

/// A wait that the pool knows. Dropping it ends the wait.
struct JobWait {
    pool: Arc<dyn AnyPool>,
    lender: Lender,
    ticket: u64,
}

impl Drop for JobWait {
    fn drop(&mut self) {
        self.pool.take_back(self.lender, self.ticket);
    }
}

/// Awaits the result of a job.
///
/// It is a future of the result; plain threads [`join`](Self::join) it. It always resolves, either
/// to the result or to a [`JobError`]. Dropping the handle detaches the job, which still runs.
///
/// ```
/// use procession::pool::{JobError, Pool};
///
/// let pool = Pool::builder().capacity(1).build()?;
/// let (sum, word) = (pool.submit(|| 1 + 2)?, pool.submit(|| "two")?);
/// assert_eq!(sum.join(), Ok(3)); // On a plain thread.
/// procession::run(async {
///     assert_eq!(word.await, Ok("two"));
/// });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping a handle detaches the job; write `drop(handle)` to say so"]
pub struct JobHandle<T> {
    cell: Arc<ResultCell<T>>,
    pool: Arc<dyn AnyPool>,
    ticket: u64,
    /// The job of the same family that has awaited the handle last.
    lender: Option<Lender>,
    /// Its wait, in which it lends its place if the job of the handle is queued.
    wait: Option<JobWait>,
}

impl<T> JobHandle<T> {
    /// Returns the handle of a job that a pool has taken.
    pub(super) fn new(pool: Arc<dyn AnyPool>, cell: Arc<ResultCell<T>>, ticket: u64) -> Self {
        Self { cell, pool, ticket, lender: None, wait: None }
    }

    /// Returns `true` if the result is there.
    pub fn is_finished(&self) -> bool {
        self.cell.has_ended()
    }

    /// Cancels the job, if it does not run yet.
    ///
    /// Returns `true` if it was cancelled. It never runs then, and the handle resolves to
    /// [`JobError::Cancelled`].
    pub fn cancel(&self) -> bool {
        self.pool.cancel(self.ticket)
    }

    /// Waits for the result on a thread. If the caller is a job of the same thread pool and the job
    /// is still queued, runs the job on this thread.
    ///
    /// # Errors
    /// The [`JobError`] of a job without a result. If the caller is a job of the same thread pool
    /// and all others wait for jobs of the pool already, [`JobError::WouldDeadlock`].
    ///
    /// # Blocking
    /// Blocks the thread. In a process, await the handle instead.
    pub fn join(mut self) -> Result<T, JobError> {
        if let Some(shared) = self.pool.scheduler() {
            return block_on::block_on(&shared, self);
        }
        if !self.pool.join(self.ticket, &|| self.cell.has_ended()) {
            return Err(JobError::WouldDeadlock);
        }
        block(None, |task| self.poll_result(task.waker())).unwrap_or(Err(JobError::Cancelled))
    }

    /// Waits for the result like [`join`](Self::join), but at most for `timeout`. It never runs a
    /// queued job on this thread.
    ///
    /// # Errors
    /// After the timeout, the handle itself.
    pub fn join_timeout(mut self, timeout: Duration) -> Result<Result<T, JobError>, Self> {
        let result = match self.pool.scheduler() {
            Some(shared) => {
                block_on::block_on(&shared, async { time::timeout(timeout, &mut self).await.ok() })
            }
            None => block(Some(timeout), |task| self.poll_result(task.waker())),
        };
        result.ok_or(self)
    }

    fn poll_result(&mut self, waker: &Waker) -> Poll<Result<T, JobError>> {
        let Self { cell, pool, ticket, lender, wait } = self;
        let result = cell.poll_result(waker);
        if result.is_ready() {
            *wait = None;
            return result;
        }
        let own = pool.lender();
        // A job that is not queued will not be, so each lender asks once.
        if let Some(new) = own.filter(|_| own != *lender) {
            *lender = own;
            let waits = pool.lend(new, *ticket, &|| cell.has_ended());
            *wait = waits.then(|| JobWait { pool: Arc::clone(pool), lender: new, ticket: *ticket });
        }
        result
    }
}

impl<T> Future for JobHandle<T> {
    type Output = Result<T, JobError>;

    /// # Panics
    /// Never. After the result was taken, it returns [`JobError::Taken`].
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
        f.debug_struct("JobHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
