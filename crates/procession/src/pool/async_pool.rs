//! Pools whose workers are async processes.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use super::builder::Builder;
use super::error::{PoolError, SubmitError};
use super::job::{Promise, Settled};
use super::job_handle::JobHandle;
use super::operations::{Entrance, Permit, Pooling, operations};
use super::processes::{JobWorker, Processes, Succeed, Work, Working};
use super::submit::FullPolicy;
use crate::Scheduler;
use crate::process::async_body::{AsyncBody, Guarded, OwnOr};
use crate::scheduler::shared::Shared;
use crate::spawn::options::Reservation;

/// What a worker runs. Dropped before its end, it is cancelled.
pub(super) struct Job(Box<dyn AsyncJob>);

// It takes room in the box of each job.
const _: () = assert!(size_of::<JobWorker<Job>>() <= 24);

/// A job in the box that becomes the body of its process, so that it is allocated once, and not looked for when it goes on.
trait AsyncJob: Send {
    fn launch(self: Box<Self>, reservation: Reservation<'_>, worker: JobWorker<Job>);

    /// Runs it in the process of another job.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Settled>;
}

/// A job that runs in the process of another.
struct Nested(Pin<Box<dyn AsyncJob>>);

impl Future for Nested {
    type Output = Settled;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(task)
    }
}

/// Has the next job run nested. A type and no pointer to a function, which would take room in the box of each job.
struct Nest;

impl<F> Succeed<Job, OwnOr<F, Nested>> for Nest {
    fn succeed(&self, mut place: Pin<&mut OwnOr<F, Nested>>, job: Job) {
        place.set(OwnOr::Other(Nested(Box::into_pin(job.0))));
    }
}

type OwnOrNested<F> = OwnOr<Guarded<F, Option<Promise<<F as Future>::Output>>>, Nested>;

/// A future as a job.
type Prepared<F> = AsyncBody<Work<Job, Nest, OwnOrNested<F>>>;

impl<F> AsyncJob for Prepared<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn launch(mut self: Box<Self>, reservation: Reservation<'_>, worker: JobWorker<Job>) {
        self.future().expect("a job is launched once").state.worker = Some(worker);
        reservation.start(self);
    }

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Settled> {
        self.pinned().expect("it is no process").split().1.poll(task)
    }
}

fn prepared<F: Future>(future: F, promise: Option<Promise<F::Output>>) -> Box<Prepared<F>> {
    let future = OwnOr::Own(Guarded::new(future, promise));
    Box::new(AsyncBody::new(Work { future, state: Working { worker: None, next: Nest } }))
}

fn into_job<F>(prepared: Box<Prepared<F>>) -> Job
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    Job(prepared)
}

fn refused<F: Future>(error: SubmitError<Box<Prepared<F>>>) -> SubmitError<F> {
    SubmitError::of(error, |prepared| match prepared.into_future().map(|work| work.future) {
        Some(OwnOr::Own(future)) => future.into_future(),
        _ => unreachable!("what was refused did not run"),
    })
}

/// A pool of processes that run futures: at most as many at once as its capacity.
///
/// The workers are processes of one scheduler, started as they are needed. One that is idle has no process, and waits as a number only; it
/// leaves when it has been idle for the keep-alive, on the scheduler's clock. Its hooks run in processes of their own. What a
/// [`Pool`](super::Pool) does, this does; only who waits for a place, or for the end, awaits. A plain thread waits by
/// [`Wait`](crate::Wait), or in [`Scheduler::block_on`]. [`OnFull::CallerRuns`](super::OnFull::CallerRuns) waits here.
///
/// ```
/// use procession::pool::Pool;
///
/// let sum = procession::run(async {
///     let pool = Pool::builder().capacity(100).build_async()?;
///     let mut handles = Vec::new();
///     for n in 1..=1000 {
///         handles.push(pool.submit(async move { n }).await?);
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
/// Its workers are terminated, their jobs and what is queued are cancelled, and what is submitted then comes back. Idle workers, which have no
/// process, are counted until the pool is closed.
///
/// # Jobs of a pool that use it
/// A job that submits to its own full pool gets an error if all others wait for the same already ([`SubmitError::is_deadlock`]), also if it would have
/// given up after a while. What else jobs await, also the handle of another job, is not seen.
#[derive(Clone)]
pub struct AsyncPool(Entrance<Job>);

impl Builder {
    /// Builds a pool of processes, of the scheduler of the calling process or thread; outside of all, of the default one.
    ///
    /// # Errors
    /// [`PoolError::Invalid`]: a value out of its range.
    pub fn build_async(self) -> Result<AsyncPool, PoolError> {
        self.build_async_in(Arc::clone(&crate::scheduler::owner::here()))
    }

    /// As [`build_async`](Self::build_async), on this scheduler. The pool does not keep the scheduler from being dropped.
    ///
    /// # Errors
    /// As [`build_async`](Self::build_async).
    pub fn build_async_on(self, scheduler: &Scheduler) -> Result<AsyncPool, PoolError> {
        self.build_async_in(Arc::clone(scheduler.shared()))
    }

    fn build_async_in(self, shared: Arc<Shared>) -> Result<AsyncPool, PoolError> {
        Entrance::open(
            &self,
            Processes::resting(shared, |reservation, worker, job: Job| job.0.launch(reservation, worker)),
        )
        .map(AsyncPool)
    }
}

impl AsyncPool {
    async fn put_with_handle<F>(&self, future: F, policy: FullPolicy) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (promise, cell) = Promise::new(None);
        let job = prepared(future, Some(promise));
        let ticket = self.inner().put_async(job, policy, into_job).await.map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }

    /// Runs a future whose result nobody wants. If the pool is full, this waits, or refuses if [the builder](Builder::on_full) said so.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    ///
    /// # Cancellation
    /// Dropped while it waits, it leaves the queue, and drops the future.
    pub async fn execute<F>(&self, future: F) -> Result<(), SubmitError<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.inner().put_async(prepared(future, None), self.0.policy(), into_job).await.map(drop).map_err(refused)
    }

    /// As [`execute`](Self::execute), with a handle to the result.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    ///
    /// # Cancellation
    /// As [`execute`](Self::execute).
    pub async fn submit<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.put_with_handle(future, self.0.policy()).await
    }

    /// As [`submit`](Self::submit), but waits for a place for at most `patience`.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    ///
    /// # Cancellation
    /// As [`execute`](Self::execute).
    pub async fn submit_timeout<F>(&self, future: F, timeout: Duration) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.put_with_handle(future, FullPolicy::Wait(Some(timeout))).await
    }

    /// As [`execute`](Self::execute), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub fn try_execute<F>(&self, future: F) -> Result<(), SubmitError<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        crate::scheduler::budget::spend();
        self.inner().put_now(prepared(future, None), into_job).map(drop).map_err(refused)
    }

    /// As [`submit`](Self::submit), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub fn try_submit<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        crate::scheduler::budget::spend();
        let (promise, cell) = Promise::new(None);
        let job = prepared(future, Some(promise));
        let ticket = self.inner().put_now(job, into_job).map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }
}

operations!([] AsyncPool, Job);

impl Permit<'_, AsyncPool> {
    /// As [`AsyncPool::execute`], without waiting.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it: the pool is closed, or could start no worker.
    pub fn execute<F>(self, future: F) -> Result<(), SubmitError<F>>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.enter(prepared(future, None), into_job).map(drop).map_err(refused)
    }

    /// As [`AsyncPool::submit`], without waiting.
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it: the pool is closed, or could start no worker.
    pub fn submit<F>(self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let pool = self.pool;
        let (promise, cell) = Promise::new(None);
        let job = prepared(future, Some(promise));
        let ticket = self.enter(job, into_job).map_err(refused)?;
        Ok(JobHandle::new(pool.inner(), cell, ticket))
    }
}
