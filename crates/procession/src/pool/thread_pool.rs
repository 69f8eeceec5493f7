//! Pools of threads.

use std::sync::Arc;
use std::time::Duration;

use super::builder::Builder;
use super::engine::Inner;
use super::error::{PoolError, SubmitError};
use super::job::{ClosureJob, Outstanding, Runnable, caught};
use super::job_handle::JobHandle;
use super::operations::{Entrance, Permit, Pooling, operations, thread_operations};
use super::state::outcome::Ended;
use super::submit::FullPolicy;
use super::threads::Threads;
use crate::process::unwind::drop_guarded;
use crate::scheduler::origin::JobOrigin;

/// A job with a handle. If it is dropped before it runs, it is cancelled.
pub(super) struct Held(Arc<dyn Runnable>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// A job of a scope, which borrows for `'a`.
pub(super) type Scoped<'a> = Box<dyn FnOnce(&Inner<PlainJob>) -> Ended + Send + 'a>;

/// A job, and where it comes from.
pub(super) struct PlainJob {
    pub(super) origin: JobOrigin,
    pub(super) work: JobWork,
}

pub(super) enum JobWork {
    /// A job without a handle.
    Detached(Box<dyn FnOnce() + Send>, Option<Outstanding>),
    /// A job with a handle.
    WithHandle(Held),
    /// A job of a scope.
    Scoped(Scoped<'static>),
}

fn run(inner: &Inner<PlainJob>, job: PlainJob) -> Ended {
    let _place = job.origin.enter();
    match job.work {
        JobWork::Detached(closure, outstanding) => {
            let ended = inner.hooks.ended(caught(closure).map_err(Some));
            drop(outstanding);
            ended
        }
        JobWork::WithHandle(job) => {
            let ended = job.0.run();
            // The result is dropped with it if the handle is gone.
            drop_guarded(job);
            ended
        }
        JobWork::Scoped(run) => run(inner),
    }
}

/// A closure without a handle, boxed before the pool is locked.
struct Detached<F> {
    closure: Box<F>,
    origin: JobOrigin,
    outstanding: Option<Outstanding>,
}

impl<F: FnOnce() + Send + 'static> Detached<F> {
    fn new(closure: F) -> Self {
        let origin = JobOrigin::current();
        let outstanding = Outstanding::of(&origin);
        Self { closure: Box::new(closure), origin, outstanding }
    }

    fn into_job(self) -> PlainJob {
        let Self { closure, origin, outstanding } = self;
        PlainJob { origin, work: JobWork::Detached(closure, outstanding) }
    }

    fn refused(error: SubmitError<Self>) -> SubmitError<F> {
        SubmitError::of(error, |call| *call.closure)
    }
}

fn with_handle<F, T>(closure: F, origin: &JobOrigin) -> Arc<ClosureJob<F, T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    Arc::new(ClosureJob::new(closure, Outstanding::of(origin)))
}

fn handle_job<F, T>(job: &Arc<ClosureJob<F, T>>, origin: &JobOrigin) -> PlainJob
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    PlainJob { origin: origin.clone(), work: JobWork::WithHandle(Held(Arc::clone(job) as _)) }
}

fn refused_closure<F, T>(error: SubmitError<&Arc<ClosureJob<F, T>>>) -> SubmitError<F>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    SubmitError::of(error, |job| job.take().expect("a refused job did not run"))
}

/// A pool of threads that run closures.
///
/// If no thread is idle and fewer are live than the capacity, it starts one for a job. A thread
/// that was idle for the keep-alive ends. A panic goes to the handle of the job, or to the handler
/// of the pool, and the worker goes on. Every refused closure comes back in the error.
///
/// This is a handle, and its clones stand for the same pool. When the last one is dropped, the pool
/// is closed: queued jobs still run, and then the threads end. The drop waits for nothing.
///
/// ```
/// use procession::pool::Pool;
///
/// let pool = Pool::builder().capacity(2).build()?;
/// let words = pool.submit(|| "so much to do".split(' ').count())?;
/// let panics = pool.submit(|| -> usize { std::panic::resume_unwind(Box::new("out of luck")) })?;
/// assert_eq!(words.join(), Ok(4));
/// assert_eq!(panics.join().unwrap_err().to_string(), "the job panicked: out of luck");
///
/// pool.close();
/// let refused = pool.execute(|| println!("never")).unwrap_err();
/// assert!(refused.is_closed());
/// let closure = refused.into_inner();
/// closure(); // Nothing is lost.
/// pool.wait(None)?;
/// assert_eq!(pool.stats().live, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Jobs that use their own pool
/// A job may submit to its own pool. If it would have to wait for a place while all other workers
/// wait for the same already, none of them could ever go on. It then gets an error
/// ([`SubmitError::is_deadlock`]). Waits with a timeout are not counted, nor is anything else that
/// a job may wait for, such as a lock.
#[derive(Clone)]
pub struct Pool(Entrance<PlainJob>);

impl Builder {
    /// Builds a pool of threads.
    ///
    /// # Errors
    /// [`PoolError`]: a value is out of its range, or the system refused one of the threads that
    /// [start with the pool](Self::prestart).
    pub fn build(self) -> Result<Pool, PoolError> {
        let engine = Threads { run: Box::new(run), stack_size: self.stack_size };
        Entrance::open(&self, engine).map(Pool)
    }
}

impl Pool {
    /// Returns a builder with the default values.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Returns what a submit call does by default if the pool is full.
    pub(super) fn policy(&self) -> FullPolicy {
        self.0.policy()
    }

    fn put_detached<F: FnOnce() + Send + 'static>(
        &self,
        closure: F,
        policy: FullPolicy,
    ) -> Result<(), SubmitError<F>> {
        self.inner()
            .put(self.0.lane, Detached::new(closure), policy, Detached::into_job)
            .map(drop)
            .map_err(Detached::refused)
    }

    fn put_with_handle<F, T>(
        &self,
        closure: F,
        policy: FullPolicy,
    ) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let origin = JobOrigin::current();
        let job = with_handle(closure, &origin);
        let make = |job| handle_job(job, &origin);
        let ticket = self.inner().put(self.0.lane, &job, policy, make).map_err(refused_closure)?;
        Ok(JobHandle::new(self.inner(), job, ticket))
    }

    /// Runs a closure without a handle. If the pool is full, does what [`Builder::on_full`] says.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place. In async code, [`reserve`](Self::reserve) a
    /// place instead.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        self.put_detached(closure, self.policy())
    }

    /// Runs a closure, and returns a handle to its result. If the pool is full, does what
    /// [`Builder::on_full`] says.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Like [`execute`](Self::execute).
    pub fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.put_with_handle(closure, self.policy())
    }

    /// Runs a closure without a handle, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    pub fn try_execute<F: FnOnce() + Send + 'static>(
        &self,
        closure: F,
    ) -> Result<(), SubmitError<F>> {
        self.put_detached(closure, FullPolicy::Refuse)
    }

    /// Runs a closure, and returns a handle to its result, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    pub fn try_submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.put_with_handle(closure, FullPolicy::Refuse)
    }

    /// Runs a closure without a handle. If the pool is full, waits for a place, at most for
    /// `timeout`.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute_timeout<F>(&self, closure: F, timeout: Duration) -> Result<(), SubmitError<F>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.put_detached(closure, FullPolicy::Wait(Some(timeout)))
    }

    /// Runs a closure, and returns a handle to its result. If the pool is full, waits for a place,
    /// at most for `timeout`.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit_timeout<F, T>(
        &self,
        closure: F,
        timeout: Duration,
    ) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.put_with_handle(closure, FullPolicy::Wait(Some(timeout)))
    }
}

operations!([] Pool, PlainJob);
thread_operations!([] Pool);

impl Permit<'_, Pool> {
    /// Runs a closure in the reserved place, without a handle.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure: the pool is closed, or could start no worker.
    pub fn execute<F: FnOnce() + Send + 'static>(self, closure: F) -> Result<(), SubmitError<F>> {
        self.enter(Detached::new(closure), Detached::into_job).map(drop).map_err(Detached::refused)
    }

    /// Runs a closure in the reserved place, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure: the pool is closed, or could start no worker.
    pub fn submit<F, T>(self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let pool = self.pool;
        let origin = JobOrigin::current();
        let job = with_handle(closure, &origin);
        let ticket = self.enter(&job, |job| handle_job(job, &origin)).map_err(refused_closure)?;
        Ok(JobHandle::new(pool.inner(), job, ticket))
    }
}
