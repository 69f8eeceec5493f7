//! The operations of all kinds of pool, and places reserved in one.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::pool::state::picture::Limits;

use super::builder::{Builder, OnFull, check_capacity};
use super::engine::{Engine, Inner};
use super::error::{PoolError, SubmitError, SubmitErrorKind, WaitError};
use super::job_builder::{AsyncCalls, BlockingCalls, EntryWay, JobBuilder};
use super::job_handle::JobHandle;
use super::lifecycle::PoolOwner;
use super::source::{ClosureJob, JobSource, Owning};
use super::stats::PoolStats;
use super::submit::{PlaceWait, ReservedPlace};
use crate::scheduler::placed::placed;

/// A pool of workers. `Pool` alone is a pool of threads that run closures.
///
/// The two parameters are the way in which its methods wait, and the type of its jobs. The other
/// kinds of pool have names of their own: [`AsyncPool`](super::AsyncPool),
/// [`CoPool`](super::CoPool), [`FnPool`](super::FnPool) and [`AsyncFnPool`](super::AsyncFnPool).
///
/// If no worker is idle and fewer are live than the capacity, the pool starts one for a job. A
/// worker that was idle for the keep-alive ends. A panic goes to the handle of the job, or to the
/// handler of the pool, and the worker goes on. Every refused closure, future or argument comes
/// back in the error.
///
/// This is a handle, and its clones stand for the same pool. When the last one is dropped, the pool
/// is closed: queued jobs still run, and then the workers end. The drop waits for nothing.
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
pub struct Pool<M = BlockingCalls, J = ClosureJob> {
    owner: Arc<PoolOwner<J>>,
    pub(super) on_full: OnFull,
    calls: PhantomData<fn() -> M>,
}

impl<M, J> Clone for Pool<M, J> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner), on_full: self.on_full, calls: PhantomData }
    }
}

impl Pool {
    /// Returns a builder with the default values, for a pool of any kind.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<M, J> Pool<M, J> {
    pub(super) fn inner(&self) -> &Arc<Inner<J>> {
        &self.owner.0
    }
}

impl<M, J: Send + 'static> Pool<M, J> {
    pub(super) fn open(
        builder: &Builder,
        engine: impl Engine<J> + 'static,
    ) -> Result<Self, PoolError> {
        check_capacity(builder.limits.capacity)?;
        if builder.name.contains('\0') {
            return Err(PoolError::Name(builder.name.clone()));
        }
        let limits = Limits {
            rests: engine.rests(),
            threads: engine.scheduler().is_none(),
            ..builder.limits
        };
        let inner = Inner::new(
            builder.name.clone(),
            limits,
            builder.keep_alive,
            builder.hooks.clone(),
            Box::new(engine),
        );
        if let Err(error) = inner.prestart(builder.prestart) {
            inner.close();
            return Err(PoolError::Worker(error));
        }
        #[cfg(any(feature = "door", feature = "metrics"))]
        super::figures::register(&inner);
        let owner = Arc::new(PoolOwner(inner));
        Ok(Self { owner, on_full: builder.on_full, calls: PhantomData })
    }

    /// Describes a job: a closure, a future, or the argument of a function pool, as the kind of the
    /// pool says. The job is submitted by a method of the [`JobBuilder`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::pool::{Pool, Priority};
    ///
    /// let pool = Pool::builder().build()?;
    /// let sum = pool
    ///     .job(|| 1 + 2)
    ///     .priority(Priority::High)
    ///     .key("account 7")
    ///     .timeout(Duration::from_secs(1))
    ///     .submit()?;
    /// assert_eq!(sum.join(), Ok(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn job<C: Send>(&self, content: C) -> JobBuilder<'_, M, J, C>
    where
        Owning: JobSource<J, C>,
    {
        JobBuilder::new(self.inner(), EntryWay::OfThePool, Owning, content, self.on_full)
    }

    /// Waits for a place in the pool, behind all earlier waiters, and reserves it. Async code that
    /// submits through it is slowed down to the pace of the pool. It waits whatever
    /// [`Builder::on_full`] says.
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is closed, the limit of waiting submitters is reached, or the
    /// caller is a job of the pool that would wait forever.
    ///
    /// # Cancellation
    /// If it is dropped while it waits, it leaves the wait list. A place that it was granted
    /// meanwhile goes to the next waiter.
    pub fn reserve(&self) -> Reserve<'_, M, J> {
        Reserve { pool: self, place: self.inner().place(false) }
    }

    /// Reserves a place, if there is one.
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is full or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, M, J>, SubmitError<()>> {
        Permit::of(self, self.inner().try_reserve())
    }

    /// Returns the numbers of the pool, all taken at the same moment.
    pub fn stats(&self) -> PoolStats {
        self.inner().stats()
    }

    /// Returns `true` if the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.inner().is_closed()
    }

    /// Changes the capacity, and returns the old one.
    ///
    /// If it grows, waiters go on at once. If it shrinks, surplus idle workers leave at once, and
    /// surplus busy ones after their job.
    ///
    /// # Errors
    /// [`PoolError::OutOfRange`]: the capacity is 0.
    pub fn resize(&self, capacity: usize) -> Result<usize, PoolError> {
        self.inner().resize(capacity)
    }

    /// Changes how long an idle worker stays. It applies to workers that become idle later.
    pub fn set_keep_alive(&self, idle: Duration) {
        self.inner().set_keep_alive(idle);
    }

    /// Closes the pool, and returns `true` if it was open.
    ///
    /// Once this has returned, no job is taken any more. Submitters that wait for a place get their
    /// jobs back, and queued jobs still run. The call waits for nothing, and a job may make it.
    pub fn close(&self) -> bool {
        self.inner().close()
    }

    /// Closes the pool, cancels the queued jobs and returns how many there were. Running jobs go
    /// on. Every handle resolves.
    pub fn shutdown_now(&self) -> usize {
        self.inner().shutdown_now()
    }

    /// Waits until a closed pool has run all its jobs, and its workers have run their hooks. It can
    /// be repeated.
    ///
    /// # Errors
    /// [`WaitError`]: the pool is open, or the caller is one of its jobs.
    #[track_caller]
    pub fn ended(&self) -> impl Future<Output = Result<(), WaitError>> {
        placed(async move { self.inner().drained().await })
    }

    /// Waits until no job is queued and none runs, whether the pool is open or closed.
    ///
    /// # Errors
    /// [`WaitError`]: the caller is one of its jobs.
    #[track_caller]
    pub fn idle(&self) -> impl Future<Output = Result<(), WaitError>> {
        placed(async move { self.inner().idle().await })
    }

    /// Opens a closed pool again, once its last worker has left. Places that were reserved before
    /// stay void.
    ///
    /// # Errors
    /// [`PoolError::NotDrained`]: the pool is open, or not all of its jobs and workers have ended.
    pub fn reopen(&self) -> Result<(), PoolError> {
        self.inner().reopen()
    }
}

impl<J: Send + 'static> Pool<BlockingCalls, J> {
    /// Submits a job without a handle: `job(content).execute()`. See [`JobBuilder::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure or the argument.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place. In async code, [`reserve`](Self::reserve) a
    /// place instead.
    pub fn execute<C: Send>(&self, content: C) -> Result<(), SubmitError<C>>
    where
        Owning: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).execute()
    }

    /// Submits a job, and returns a handle to its result: `job(content).submit()`. See
    /// [`JobBuilder::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure or the argument.
    ///
    /// # Blocking
    /// Like [`execute`](Self::execute).
    pub fn submit<C: Send, T>(&self, content: C) -> Result<JobHandle<T>, SubmitError<C>>
    where
        Owning: JobSource<J, C, Handle = JobHandle<T>>,
    {
        self.job(content).submit()
    }

    /// Waits until a closed pool has run all its jobs, and its workers have run their hooks. It
    /// waits at most for `timeout`, if there is one, and can be repeated.
    ///
    /// # Errors
    /// [`WaitError`]: the timeout was reached, the pool is open, or the caller is one of its jobs.
    ///
    /// # Blocking
    /// Blocks the thread. In async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.inner().drained().block(timeout)
    }

    /// Waits until no job is queued and none runs, whether the pool is open or closed. It waits at
    /// most for `timeout`, if there is one.
    ///
    /// # Errors
    /// [`WaitError`]: the timeout was reached, or the caller is one of its jobs.
    ///
    /// # Blocking
    /// Blocks the thread. In async code, await [`idle`](Self::idle).
    pub fn wait_idle(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.inner().idle().block(timeout)
    }
}

impl<J: Send + 'static> Pool<AsyncCalls, J> {
    /// Submits a job without a handle: `job(content).execute()`. See [`JobBuilder::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure, the future or the argument.
    ///
    /// # Cancellation
    /// If it is dropped before it completes, it leaves the wait list and drops the job, which the
    /// pool has not taken then.
    #[track_caller]
    pub fn execute<C: Send>(
        &self,
        content: C,
    ) -> impl Future<Output = Result<(), SubmitError<C>>> + Send
    where
        Owning: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).execute()
    }

    /// Submits a job, and returns a handle to its result: `job(content).submit()`. See
    /// [`JobBuilder::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure, the future or the argument.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit<C: Send, T>(
        &self,
        content: C,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<C>>> + Send
    where
        Owning: JobSource<J, C, Handle = JobHandle<T>>,
    {
        self.job(content).submit()
    }
}

impl<M, J> fmt::Debug for Pool<M, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self.inner(), f)
    }
}

/// The future of a place in a pool, returned by [`Pool::reserve`].
#[must_use = "futures do nothing unless awaited"]
pub struct Reserve<'a, M, J: Send + 'static> {
    pool: &'a Pool<M, J>,
    place: PlaceWait<'a, J>,
}

impl<'a, M, J: Send + 'static> Future for Reserve<'a, M, J> {
    type Output = Result<Permit<'a, M, J>, SubmitError<()>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let pool = self.pool;
        Pin::new(&mut self.place).poll(task).map(|placed| Permit::of(pool, placed))
    }
}

impl<M, J: Send + 'static> fmt::Debug for Reserve<'_, M, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("waits", &self.place.is_enlisted()).finish_non_exhaustive()
    }
}

/// A reserved place in a pool, for one job. If it is dropped, the place goes to the next waiter. If
/// the pool is closed meanwhile, the reservation is void.
///
/// ```
/// use procession::pool::{Pool, Priority};
///
/// let pool = Pool::builder().capacity(1).build()?;
/// let sum = procession::run(async {
///     let mut sum = 0;
///     for n in 1..=3 {
///         sum += pool.reserve().await?.submit(move || n)?.await?;
///     }
///     let last = pool.reserve().await?.job(|| 4).priority(Priority::Low).try_submit()?;
///     Ok::<i32, Box<dyn std::error::Error>>(sum + last.await?)
/// })?;
/// assert_eq!(sum, 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it gives the place back"]
pub struct Permit<'a, M, J: Send + 'static> {
    pool: &'a Pool<M, J>,
    place: ReservedPlace<'a, J>,
}

impl<'a, M, J: Send + 'static> Permit<'a, M, J> {
    fn of(
        pool: &'a Pool<M, J>,
        placed: Result<u64, SubmitErrorKind>,
    ) -> Result<Self, SubmitError<()>> {
        match placed {
            Ok(generation) => {
                Ok(Self { pool, place: ReservedPlace::new(pool.inner(), generation) })
            }
            Err(kind) => Err(SubmitError::new((), kind)),
        }
    }

    /// Describes a job for the reserved place. No method of the [`JobBuilder`] waits then.
    pub fn job<C: Send>(self, content: C) -> JobBuilder<'a, M, J, C>
    where
        Owning: JobSource<J, C>,
    {
        let Self { pool, place } = self;
        JobBuilder::new(pool.inner(), EntryWay::Reserved(place), Owning, content, pool.on_full)
    }

    /// Runs a job in the reserved place, without a handle.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run: the pool is closed, or could start no worker.
    pub fn execute<C: Send>(self, content: C) -> Result<(), SubmitError<C>>
    where
        Owning: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).try_execute()
    }

    /// Runs a job in the reserved place, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run: the pool is closed, or could start no worker.
    pub fn submit<C: Send, T>(self, content: C) -> Result<JobHandle<T>, SubmitError<C>>
    where
        Owning: JobSource<J, C, Handle = JobHandle<T>>,
    {
        self.job(content).try_submit()
    }
}

impl<M, J: Send + 'static> fmt::Debug for Permit<'_, M, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}
