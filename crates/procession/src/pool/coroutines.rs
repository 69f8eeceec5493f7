//! Pools of coroutines.

use std::future::Future;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use super::builder::Builder;
use super::error::{PoolError, SubmitError};
use super::job::{Caught, Promise, Settled, caught};
use super::job_handle::JobHandle;
use super::operations::{Entrance, Permit, Pooling, operations};
use super::processes::{Processes, Worker};
use super::state::busy::Busy;
use super::state::outcome::Next;
use super::state::seat::Order;
use super::submit::FullPolicy;
use crate::coroutine;
use crate::process::async_body::Settle;
use crate::scheduler::shared::Shared;
use crate::{Scheduler, SpawnOptions};

/// A job of a pool of coroutines. If it is dropped before its end, it is cancelled.
pub(super) type CoroutineJob = Box<dyn Runs>;

/// A job, as a coroutine runs it.
pub(super) trait Runs: Send {
    fn run(self: Box<Self>) -> Settled;
}

/// Returns an engine of coroutines that run their jobs by `run`.
pub(super) fn coroutines<J, R>(
    builder: &Builder,
    shared: Arc<Shared>,
    run: R,
) -> Result<Processes<J>, PoolError>
where
    J: Send + 'static,
    R: Fn(J) -> Settled + Clone + Send + Sync + 'static,
{
    if shared.coroutines.stacks.is_none() {
        return Err(PoolError::NoCoroutines { scheduler: shared.name().to_owned() });
    }
    Ok(Processes::parking(builder, shared, move |options, worker, shared| {
        start(options, worker, shared, run.clone())
    }))
}

fn start<J, R>(
    options: SpawnOptions,
    worker: Worker<J>,
    shared: Arc<Shared>,
    run: R,
) -> io::Result<()>
where
    J: Send + 'static,
    R: Fn(J) -> Settled + Send + 'static,
{
    // A cancel of the worker leaves its jobs alone, as for async processes. The pool ends only when
    // it is closed.
    let runs = move |_: coroutine::Context<()>| coroutine::shield(|| work(worker, &shared, run));
    options.spawn_coroutine(runs).map(drop).map_err(|refused| io::Error::other(refused.to_string()))
}

/// The main function of a worker. A closure runs outside of polls, so that it can be suspended.
fn work<J: Send + 'static>(
    mut worker: Worker<J>,
    shared: &Arc<Shared>,
    run: impl Fn(J) -> Settled,
) {
    worker.inner.hooks.run_start();
    let mark = worker.inner.coroutine_mark();
    let mut idle = None;
    let mut order = coroutine::wait(worker.await_order(shared, &mut idle));
    while let Order::Run(ticket, job) = order {
        worker.runs = Some(ticket);
        mark.set(Busy::with_job(ticket));
        let outcome = run(job);
        order = match worker.finish(ticket, outcome) {
            Next::Run(ticket, job) => Order::Run(ticket, job),
            Next::Park => coroutine::wait(worker.await_order(shared, &mut idle)),
            Next::Leave => Order::Leave,
            Next::Rest(_) => unreachable!("a coroutine parks"),
        };
    }
    worker.leave();
}

/// Runs user code like [`caught`], but lets the unwinding of the coroutine itself go on. If the
/// code ends itself by [`exit`](crate::exit()), only the job ends, as in the other pools.
pub(super) fn caught_in_coroutine<T>(closure: impl FnOnce() -> T) -> Caught<T> {
    caught(closure).or_else(|payload| {
        if coroutine::is_unwound(&*payload) { resume_unwind(payload) } else { Err(payload) }
    })
}

/// A closure, and the promise of its result, if the job has a handle.
struct Closure<F, T> {
    closure: F,
    promise: Option<Promise<T>>,
}

impl<F: FnOnce() -> T + Send, T: Send> Runs for Closure<F, T> {
    fn run(self: Box<Self>) -> Settled {
        let Self { closure, promise } = *self;
        promise.settle(caught_in_coroutine(closure))
    }
}

fn boxed<F, T>(closure: F, promise: Option<Promise<T>>) -> Box<Closure<F, T>> {
    Box::new(Closure { closure, promise })
}

fn into_job<F, T>(boxed: Box<Closure<F, T>>) -> CoroutineJob
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    boxed
}

fn refused<F, T>(error: SubmitError<Box<Closure<F, T>>>) -> SubmitError<F> {
    SubmitError::of(error, |boxed| boxed.closure)
}

/// A pool of coroutines that run closures, which may [wait](crate::coroutine). It runs at most as
/// many at once as its capacity.
///
/// It behaves like an [`AsyncPool`](super::AsyncPool), with one exception. A worker keeps its
/// process and its stack while it is idle.
///
/// ```
/// use std::time::Duration;
/// use procession::pool::Pool;
/// use procession::{Scheduler, coroutine};
///
/// // SAFETY: no coroutine holds a thread-local pointer scoped to a frame across a suspension.
/// let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
/// let pool = Pool::builder().capacity(100).build_coroutines_on(&scheduler)?;
/// let sum = scheduler.block_on(async {
///     let mut handles = Vec::new();
///     for n in 1..=1000 {
///         let job = move || {
///             coroutine::sleep(Duration::from_micros(10));
///             n
///         };
///         handles.push(pool.submit(job).await?);
///     }
///     let mut sum = 0;
///     for handle in handles {
///         sum += handle.await?;
///     }
///     Ok::<i32, Box<dyn std::error::Error>>(sum)
/// })?;
/// assert_eq!(sum, 500_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # When the scheduler ends
/// The same happens as for an [`AsyncPool`](super::AsyncPool). The stacks of running jobs are
/// unwound.
#[derive(Clone)]
pub struct CoPool(Entrance<CoroutineJob>);

impl Builder {
    /// Builds a pool of coroutines, of the scheduler that the calling process or thread belongs to.
    /// Any other caller gets the default scheduler.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, the scheduler was built without
    /// [`enable_coroutines`](crate::Builder::enable_coroutines), or it refused one of the workers
    /// that [start with the pool](Self::prestart).
    pub fn build_coroutines(self) -> Result<CoPool, PoolError> {
        self.build_coroutines_in(Arc::clone(&crate::scheduler::owner::here()))
    }

    /// Builds a pool of coroutines of this scheduler. The pool does not keep the scheduler from
    /// being dropped.
    ///
    /// # Errors
    /// Like [`build_coroutines`](Self::build_coroutines).
    pub fn build_coroutines_on(self, scheduler: &Scheduler) -> Result<CoPool, PoolError> {
        self.build_coroutines_in(Arc::clone(scheduler.shared()))
    }

    fn build_coroutines_in(self, shared: Arc<Shared>) -> Result<CoPool, PoolError> {
        let engine = coroutines(&self, shared, |job: CoroutineJob| job.run())?;
        Entrance::open(&self, engine).map(CoPool)
    }
}

impl CoPool {
    /// Returns what a submit call does by default if the pool is full.
    pub(super) fn policy(&self) -> FullPolicy {
        self.0.policy()
    }

    async fn put_with_handle<F, T>(
        &self,
        closure: F,
        policy: FullPolicy,
    ) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (promise, cell) = Promise::new(None);
        let job = boxed(closure, Some(promise));
        let ticket =
            self.inner().put_async(self.0.lane, job, policy, into_job).await.map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }

    /// Runs a closure without a handle. If the pool is full, it waits for a place, or refuses if
    /// the [builder](Builder::on_full) said so.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Cancellation
    /// If it is dropped before it completes, it leaves the wait list and drops the closure. The
    /// pool has not taken the job then.
    #[track_caller]
    pub fn execute<F: FnOnce() + Send + 'static>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<(), SubmitError<F>>> {
        crate::scheduler::placed::placed(async move {
            self.inner()
                .put_async(self.0.lane, boxed(closure, None), self.0.policy(), into_job)
                .await
                .map(drop)
                .map_err(refused)
        })
    }

    /// Runs a closure, and returns a handle to the result. If the pool is full, does what
    /// [`execute`](Self::execute) does.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit<F, T>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<F>>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        crate::scheduler::placed::placed(async move {
            self.put_with_handle(closure, self.0.policy()).await
        })
    }

    /// Runs a closure, and returns a handle to the result. If the pool is full, waits for a place,
    /// at most for `timeout`.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit_timeout<F, T>(
        &self,
        closure: F,
        timeout: Duration,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<F>>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        crate::scheduler::placed::placed(async move {
            self.put_with_handle(closure, FullPolicy::Wait(Some(timeout))).await
        })
    }

    /// Runs a closure without a handle, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    pub fn try_execute<F: FnOnce() + Send + 'static>(
        &self,
        closure: F,
    ) -> Result<(), SubmitError<F>> {
        crate::scheduler::budget::spend();
        self.inner().put_now(self.0.lane, boxed(closure, None), into_job).map(drop).map_err(refused)
    }

    /// Runs a closure, and returns a handle to the result, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    pub fn try_submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        crate::scheduler::budget::spend();
        let (promise, cell) = Promise::new(None);
        let job = boxed(closure, Some(promise));
        let ticket = self.inner().put_now(self.0.lane, job, into_job).map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }
}

operations!([] CoPool, CoroutineJob);

impl Permit<'_, CoPool> {
    /// Runs a closure in the reserved place, without a handle.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure: the pool is closed, or could start no worker.
    pub fn execute<F: FnOnce() + Send + 'static>(self, closure: F) -> Result<(), SubmitError<F>> {
        self.enter(boxed(closure, None), into_job).map(drop).map_err(refused)
    }

    /// Runs a closure in the reserved place, and returns a handle to the result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure: the pool is closed, or could start no worker.
    pub fn submit<F, T>(self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let pool = self.pool;
        let (promise, cell) = Promise::new(None);
        let job = boxed(closure, Some(promise));
        let ticket = self.enter(job, into_job).map_err(refused)?;
        Ok(JobHandle::new(pool.inner(), cell, ticket))
    }
}
