//! The operations of all kinds of pool, and places reserved in one.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::pool::state::outcome::{EnterError, PoolStats, Quiescence, WatchResult};
use procession_sync::atomic::Ordering::Relaxed;

use super::block::block;
use super::builder::{Builder, check_capacity, keep_alive_nanoseconds};
use super::engine::{Inner, Workers};
use super::error::{PoolError, SubmitError, WaitError};
use super::job_handle::JobHandle;
use super::members::{MEMBERS_MAX, PoolOwner, pick};
use super::source::{ClosureJob, JobSource, Owning};
use super::submit::{BlockingCalls, Calls, JobBuilder, PlaceWait, ReservedPlace};
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::scheduler::budget::charge_after;
use crate::scheduler::current;
use crate::scheduler::placed::placed;
use crate::scheduler::shared::Shared;
use crate::util::out_of_range::OutOfRange;

/// A pool of workers. `Pool` alone is a pool of threads that run closures.
///
/// The two parameters are the way in which its methods wait, and the type of its jobs. In the
/// signature of a method, `M::Returned<impl Future<Output = R>>` is `R` for a pool of threads, and
/// a future of `R` for a pool of processes or coroutines, which you await. The other kinds of pool
/// have names of their own: [`AsyncPool`](super::AsyncPool),
/// [`CoPool`](super::CoPool), [`FnPool`](super::FnPool) and [`AsyncFnPool`](super::AsyncFnPool).
///
/// If no worker is idle and fewer are live than the capacity, the pool starts one for a job. A
/// worker that was idle for the keep-alive ends. A panic goes to the handle of the job, or to the
/// handler of the pool, and the worker continues. If a closure, future or argument is refused, the
/// error returns it.
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
/// wait for a place already, no worker could ever continue. So the job gets an error
/// ([`SubmitError::is_deadlock`]). Waits with a timeout are not counted, nor is anything else that
/// a job may wait for, such as a lock.
pub struct Pool<M = BlockingCalls, J: Send + 'static = ClosureJob> {
    all: Arc<[PoolOwner<J>]>,
    /// The place of the member, if this handle stands for one member only.
    only: Option<usize>,
    calls: PhantomData<fn() -> M>,
}

impl<M, J: Send + 'static> Clone for Pool<M, J> {
    fn clone(&self) -> Self {
        Self { all: Arc::clone(&self.all), only: self.only, calls: PhantomData }
    }
}

impl Pool {
    /// Returns a builder with the default values, for a pool of any kind.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl<M, J: Send + 'static> Pool<M, J> {
    pub(super) fn owners(&self) -> &[PoolOwner<J>] {
        self.only.map_or(&self.all, |place| &self.all[place..=place])
    }

    pub(super) fn inners(&self) -> impl Iterator<Item = &Arc<Inner<J>>> {
        self.owners().iter().map(|owner| &owner.0)
    }
}

impl<M, J: Send + 'static> Pool<M, J> {
    /// Builds a pool. Its workers are threads, unless they are processes of a scheduler.
    pub(super) fn open(
        builder: &Builder,
        scheduler: Option<&Arc<Shared>>,
        workers: Workers<J>,
    ) -> Result<Self, PoolError> {
        builder.check_used(scheduler.is_none(), matches!(workers, Workers::Resting(_)))?;
        check_capacity(builder.limits.capacity)?;
        OutOfRange::check("members", builder.members, 1, MEMBERS_MAX)?;
        if builder.name.contains('\0') {
            return Err(PoolError::Name(builder.name.clone()));
        }
        let workers = Arc::new(workers);
        let mut family = None;
        let open = |_| {
            let owner = PoolOwner(Inner::new(builder, scheduler, &workers, family));
            family = Some(owner.0.family());
            owner.0.prestart(builder.prestart).map_err(PoolError::Worker)?;
            #[cfg(any(feature = "door", feature = "metrics"))]
            super::figures::register(&owner.0);
            Ok(owner)
        };
        let all = (0..builder.members).map(open).collect::<Result<_, PoolError>>()?;
        Ok(Self { all, only: None, calls: PhantomData })
    }

    /// Returns a handle to each [member](Builder::members), which can be observed, resized and used
    /// on its own. Each of the handles keeps all members open.
    pub fn members(&self) -> Vec<Self> {
        let first = self.only.unwrap_or(0);
        let handle = |only| Self { only: Some(only), ..self.clone() };
        (first..first + self.owners().len()).map(handle).collect()
    }

    /// Describes a job: a closure, a future, or the argument of a function pool, as the kind of the
    /// pool says. The job is submitted by a method of the [`JobBuilder`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::pool::{Pool, Priority, Queue};
    ///
    /// let pool = Pool::builder().queue(Queue::Bounded(100)).build()?;
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
        M: Calls,
        Owning: JobSource<J, C>,
    {
        JobBuilder::new(self.owners(), None, Owning, content)
    }

    /// Submits a job without a handle: `job(content).execute()`. See [`JobBuilder::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure, the future or the argument.
    ///
    /// # Blocking
    /// In a pool of threads, blocks the thread while it waits for a place. In async code,
    /// [`reserve`](Self::reserve) a place instead.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it leaves the wait list and drops the job,
    /// which the pool has not taken then.
    #[track_caller]
    pub fn execute<C: Send>(
        &self,
        content: C,
    ) -> M::Returned<impl Future<Output = Result<(), SubmitError<C>>> + Send>
    where
        M: Calls,
        Owning: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).execute()
    }

    /// Submits a job, and returns a handle to its result: `job(content).submit()`. See
    /// [`JobBuilder::submit`]. A pool of threads returns the handle, and a pool of processes or
    /// coroutines a future of the handle:
    ///
    /// ```
    /// use procession::pool::Pool;
    ///
    /// let threads = Pool::builder().capacity(1).build()?;
    /// assert_eq!(threads.submit(|| 1 + 2)?.join(), Ok(3));
    ///
    /// procession::run(async {
    ///     let processes = Pool::builder().capacity(1).build_async()?;
    ///     assert_eq!(processes.submit(async { 1 + 2 }).await?.await, Ok(3));
    ///     Ok::<(), Box<dyn std::error::Error>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure, the future or the argument.
    ///
    /// # Blocking
    /// Like [`execute`](Self::execute).
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit<C: Send, T>(
        &self,
        content: C,
    ) -> M::Returned<impl Future<Output = Result<JobHandle<T>, SubmitError<C>>> + Send>
    where
        M: Calls,
        Owning: JobSource<J, C, Output = T>,
    {
        self.job(content).submit()
    }

    /// Waits for a place in the pool, behind all earlier waiters, and reserves it. Async code that
    /// submits through it is slowed down to the pace of the pool. It waits whatever
    /// [`Builder::on_full`] says. In a pool of several members, it waits for the member that would
    /// get the next job.
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is closed, the limit of waiting submitters is reached, or the
    /// caller is a job of the pool that would wait forever.
    ///
    /// # Cancellation
    /// If it is dropped while it waits, it leaves the wait list. If it was just granted a place,
    /// the place goes to the next waiter.
    #[track_caller]
    pub fn reserve(&self) -> impl Future<Output = Result<Permit<'_, M, J>, SubmitError<()>>> {
        placed(async move {
            let inner = pick(self.owners());
            let mut wait = PlaceWait::new(inner, false);
            // The result, while it is kept over the end of a step.
            let mut kept = None;
            poll_fn(|task| {
                let polled = match kept.take() {
                    Some(reserved) => Poll::Ready(reserved),
                    None => wait.poll::<J>(task, None).map(|granted| self.permit(inner, granted)),
                };
                if polled.is_pending() {
                    current::note_waiting(Waiting::JOB);
                }
                charge_after(task, polled, |reserved| kept = Some(reserved))
            })
            .await
        })
    }

    /// Reserves a place, if there is one. In a pool of several members, it asks the member that
    /// would get the next job.
    ///
    /// # Errors
    /// [`SubmitError`]: the pool is full or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, M, J>, SubmitError<()>> {
        let inner = pick(self.owners());
        let reserved = self.permit(inner, inner.core.try_reserve());
        reserved.inspect_err(|_| inner.core.count_refused())
    }

    fn permit<'a>(
        &'a self,
        inner: &'a Arc<Inner<J>>,
        granted: Result<u64, EnterError>,
    ) -> Result<Permit<'a, M, J>, SubmitError<()>> {
        let place = |generation| ReservedPlace { inner, generation };
        let permit = |generation| Permit { pool: self, place: place(generation) };
        granted.map(permit).map_err(|error| SubmitError::new((), error))
    }

    /// Returns the numbers of the pool, all taken at the same moment.
    ///
    /// In a pool of several members, the figures of all members are added up. Different members are
    /// read at different moments. `closed` is then true if all members are closed, and `capacity`
    /// is at most [`UNLIMITED`](super::UNLIMITED).
    pub fn stats(&self) -> PoolStats {
        let all = self.inners().map(|inner| inner.stats());
        all.reduce(PoolStats::plus).expect("there is at least one member")
    }

    /// Returns `true` if the pool is closed.
    pub fn is_closed(&self) -> bool {
        self.inners().all(|inner| inner.is_closed())
    }

    /// Changes the capacity of each member, and returns the old one.
    ///
    /// If it grows, waiters continue immediately. If it shrinks, surplus idle workers leave
    /// immediately, and surplus busy workers leave after their job.
    ///
    /// # Errors
    /// [`PoolError::OutOfRange`]: the capacity is 0.
    pub fn resize(&self, capacity: usize) -> Result<usize, PoolError> {
        check_capacity(capacity)?;
        let resize = |inner: &Arc<Inner<J>>| inner.step(|core, start| core.resize(capacity, start));
        Ok(self.inners().map(resize).fold(0, usize::max))
    }

    /// Changes how long an idle worker stays. It applies to workers that become idle later.
    pub fn set_keep_alive(&self, idle: Duration) {
        for inner in self.inners() {
            inner.keep_alive.store(keep_alive_nanoseconds(idle), Relaxed);
            inner.core.expect_uneven();
        }
    }

    /// Closes the pool, and returns `true` if it was open.
    ///
    /// Once this has returned, no job is taken any more. Submitters that wait for a place get their
    /// jobs back, and queued jobs still run. The call waits for nothing, and a job may make it.
    pub fn close(&self) -> bool {
        self.inners().fold(false, |was_open, inner| inner.close() | was_open)
    }

    /// Closes the pool, cancels the queued jobs and returns how many there were. Running jobs go
    /// on. Every handle resolves. All members are closed before the first queue is emptied.
    pub fn shutdown_now(&self) -> usize {
        self.close();
        // One by one: a panic of one drop must not keep the other jobs from being resolved.
        let cancel = |jobs: Vec<J>| jobs.into_iter().map(drop_guarded).count();
        self.inners().map(|inner| cancel(inner.woken(inner.core.clear()))).sum()
    }

    /// Waits until a closed pool has run all its jobs, and its workers have run their hooks. It can
    /// be repeated.
    ///
    /// # Errors
    /// [`WaitError`]: the pool is open, or the caller is one of its jobs.
    #[track_caller]
    pub fn ended(&self) -> impl Future<Output = Result<(), WaitError>> {
        placed(poll_fn(self.quiescence(Quiescence::Drained)))
    }

    /// Waits until no job is queued and none runs, whether the pool is open or closed.
    ///
    /// # Errors
    /// [`WaitError`]: the caller is one of its jobs.
    #[track_caller]
    pub fn idle(&self) -> impl Future<Output = Result<(), WaitError>> {
        placed(poll_fn(self.quiescence(Quiescence::Idle)))
    }

    /// Returns the poll of a wait for all members. Each is enlisted by the first poll: a member
    /// that has ended may be opened again before the next one has ended.
    fn quiescence(
        &self,
        quiescence: Quiescence,
    ) -> impl FnMut(&mut TaskContext<'_>) -> Poll<Result<(), WaitError>> {
        let wait = |inner| QuiescenceWait::new(inner, quiescence);
        let mut waits: Vec<_> = self.inners().map(wait).collect();
        move |task| {
            let mut result = Ok(());
            waits.retain_mut(|wait| match wait.poll(task) {
                Poll::Ready(ended) => {
                    result = result.and(ended);
                    false
                }
                Poll::Pending => true,
            });
            if result.is_err() || waits.is_empty() { Poll::Ready(result) } else { Poll::Pending }
        }
    }

    /// Opens a closed pool again, once its last worker has left. Places that were reserved before
    /// stay void.
    ///
    /// # Errors
    /// [`PoolError::NotDrained`]: the pool is open, or not all of its jobs and workers have ended.
    /// If a member has not ended, the members before it are open, and the call can be repeated.
    pub fn reopen(&self) -> Result<(), PoolError> {
        let mut closed = self.inners().filter(|inner| inner.is_closed()).peekable();
        let reopens = closed.peek().is_some() && closed.all(|inner| inner.core.reopen());
        if reopens { Ok(()) } else { Err(PoolError::NotDrained) }
    }
}

impl<J: Send + 'static> Pool<BlockingCalls, J> {
    /// Waits until a closed pool has run all its jobs, and its workers have run their hooks. It
    /// waits at most for `timeout`, if there is one, and can be repeated.
    ///
    /// # Errors
    /// [`WaitError`]: the timeout was reached, the pool is open, or the caller is one of its jobs.
    ///
    /// # Blocking
    /// Blocks the thread. In async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let ended = block(timeout, self.quiescence(Quiescence::Drained));
        ended.unwrap_or(Err(WaitError::TimedOut))
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
        let idle = block(timeout, self.quiescence(Quiescence::Idle));
        idle.unwrap_or(Err(WaitError::TimedOut))
    }
}

impl<M, J: Send + 'static> fmt::Debug for Pool<M, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owners() {
            [only] => fmt::Debug::fmt(&*only.0, f),
            members => f.debug_list().entries(members.iter().map(|member| &member.0)).finish(),
        }
    }
}

/// A waiter for a quiescent pool, enlisted by its first poll. Dropping it ends the wait.
struct QuiescenceWait<'a, J: Send + 'static> {
    inner: &'a Inner<J>,
    quiescence: Quiescence,
    number: u64,
    is_enlisted: bool,
}

impl<'a, J: Send + 'static> QuiescenceWait<'a, J> {
    fn new(inner: &'a Arc<Inner<J>>, quiescence: Quiescence) -> Self {
        // Relaxed: the numbers only have to differ.
        let number = inner.last_watch.fetch_add(1, Relaxed);
        Self { inner, quiescence, number, is_enlisted: false }
    }

    fn poll(&mut self, task: &TaskContext<'_>) -> Poll<Result<(), WaitError>> {
        let Self { inner, quiescence, number, is_enlisted } = *self;
        if inner.is_inside() {
            let is_open = quiescence == Quiescence::Drained && !inner.is_closed();
            return Poll::Ready(Err(if is_open { WaitError::Open } else { WaitError::Inside }));
        }
        let waker = crate::process::waker::another(task.waker());
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

impl<J: Send + 'static> Drop for QuiescenceWait<'_, J> {
    fn drop(&mut self) {
        drop(self.inner.core.unwatch(self.number));
    }
}

/// A reserved place in a pool, for one job. If it is dropped, the place goes to the next waiter. If
/// the pool is closed before the permit is used, the reservation is void.
///
/// ```
/// use procession::pool::Pool;
///
/// let pool = Pool::builder().capacity(1).build()?;
/// let sum = procession::run(async {
///     let mut sum = 0;
///     for n in 1..=3 {
///         sum += pool.reserve().await?.submit(move || n)?.await?;
///     }
///     let last = pool.reserve().await?.job(|| 4).key("account 7").try_submit()?;
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

impl<'a, M: Calls, J: Send + 'static> Permit<'a, M, J> {
    /// Describes a job for the reserved place. No method of the [`JobBuilder`] waits then, with one
    /// exception: a job with a [key](JobBuilder::key) goes to the member of the key. If the place
    /// is in another [member](Builder::members), the place is given back.
    pub fn job<C: Send>(self, content: C) -> JobBuilder<'a, M, J, C>
    where
        Owning: JobSource<J, C>,
    {
        JobBuilder::new(self.pool.owners(), Some(self.place), Owning, content)
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
        Owning: JobSource<J, C, Output = T>,
    {
        self.job(content).try_submit()
    }
}

impl<M, J: Send + 'static> fmt::Debug for Permit<'_, M, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}
