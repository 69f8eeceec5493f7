//! Jobs that borrow from the thread that waits for them.
//!
//! # Invariants
//! - `[waited]`: everything that borrows for `'scope` is in the job of a scope, or in the cell of
//!   its result. The job holds a [`CountedJob`], which is dropped after everything else in it,
//!   whether the job ran, panicked or was dropped. The `scope` method of a pool neither returns nor
//!   unwinds while a [`CountedJob`] exists.
//! - `[inside]`: adding a job needs a `&'scope Scope`. Only the body of the scope and its jobs have
//!   one. The body has not returned, and each job is counted. So once the count is 0, it does not
//!   rise again.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use procession_protocols::pool::state::outcome::Ended;
use procession_sync::Mutex;

use super::async_pool::{AsyncPool, FutureJob};
use super::block::block;
use super::error::{SubmitError, WaitError};
use super::hooks::{Hooks, Settled};
use super::job::{Caught, JobEnds, Promise, caught};
use super::job_handle::JobHandle;
use super::members::PoolOwner;
use super::operations::Pool;
use super::source::{Call, ClosureJob, JobSource, Runs, catch, opaque};
use super::submit::{AsyncCalls, BlockingCalls, Calls, JobBuilder};
use crate::process::async_body::{Guarded, Settle};
use crate::scheduler::block_on::try_block_on;
use crate::scheduler::current;
use crate::scheduler::inherit::within::Inheriting;
use crate::scheduler::shared::Shared;

/// The number of jobs of a scope that have not ended, and the waker of the thread that waits for
/// them.
struct Latch(Mutex<(usize, Option<Waker>)>);

impl Latch {
    fn change<R>(&self, change: impl FnOnce(&mut (usize, Option<Waker>)) -> R) -> R {
        change(&mut self.0.lock())
    }

    fn guard(self: &Arc<Self>) -> CountedJob {
        self.change(|(pending, _)| *pending += 1);
        CountedJob(Arc::clone(self))
    }

    fn poll_ended(&self, waker: &Waker) -> Poll<()> {
        // Only a scope waits, on a thread. So its waker is no user code.
        self.change(|(pending, waiting)| match *pending {
            0 => Poll::Ready(()),
            _ => {
                *waiting = Some(waker.clone());
                Poll::Pending
            }
        })
    }
}

/// Counts a job of a scope until the job has ended.
struct CountedJob(Arc<Latch>);

impl Drop for CountedJob {
    fn drop(&mut self) {
        let waker = self.0.change(|(pending, waiting)| {
            *pending -= 1;
            if *pending == 0 { waiting.take() } else { None }
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The source of the jobs of a scope.
///
/// Available with the crate feature `pool`.
pub struct Scoped<'scope> {
    latch: &'scope Arc<Latch>,
    /// Makes the source invariant, so that no caller can shorten or lengthen the lifetime.
    scope: PhantomData<&'scope mut &'scope ()>,
}

/// A closure of a scope. Its fields are dropped in their order, the guard last.
///
/// Available with the crate feature `pool`.
pub struct CountedCall<'scope, F, T> {
    call: Call<F, T>,
    latch: &'scope Arc<Latch>,
    guard: Option<CountedJob>,
}

impl<F, T> Runs for CountedCall<'_, F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(self: Box<Self>, hooks: &Hooks) -> Ended {
        // In this order, so that an unwinding of a coroutine drops the guard last.
        let Self { call, guard, .. } = *self;
        let _guard = guard;
        call.run(hooks, catch)
    }
}

impl<'scope, F, T> JobSource<ClosureJob, F> for Scoped<'scope>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    type Output = T;
    type Discarded = T;
    type Boxed = Box<CountedCall<'scope, F, T>>;

    fn boxed(&self, content: F, ends: JobEnds<T>) -> Self::Boxed {
        Box::new(CountedCall { call: Call { content, ends }, latch: self.latch, guard: None })
    }

    fn content(boxed: Self::Boxed) -> F {
        boxed.call.content
    }
}

impl<'scope, F, T> From<Box<CountedCall<'scope, F, T>>> for ClosureJob
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    fn from(mut boxed: Box<CountedCall<'scope, F, T>>) -> Self {
        boxed.guard = Some(boxed.latch.guard());
        let boxed: Box<dyn Runs + 'scope> = boxed;
        // SAFETY: [waited] what the job borrows lives until the guard is gone that the job itself
        // holds. The types differ in this lifetime only.
        Self(unsafe { std::mem::transmute::<Box<dyn Runs + 'scope>, Box<dyn Runs>>(boxed) })
    }
}

/// Settles the result of a future, which is dropped before. The guard is dropped last.
impl<T> Settle<T> for (Option<Promise<T>>, CountedJob) {
    type Settled = Settled;

    fn settle(self, outcome: Caught<T>) -> Settled {
        let (promise, _guard) = self;
        promise.settle(outcome)
    }
}

/// The future of a job of a scope, which borrows for `'a`.
type ScopedFuture<'a> = Pin<Box<dyn Future<Output = Settled> + Send + 'a>>;

impl<'scope, F> JobSource<FutureJob, F> for Scoped<'scope>
where
    F: Future<Output: Send + 'scope> + Send + 'scope,
{
    type Output = F::Output;
    type Discarded = F::Output;
    type Boxed = CountedFuture<'scope, F>;

    fn boxed(&self, content: F, ends: JobEnds<F::Output>) -> Self::Boxed {
        CountedFuture { content, ends, latch: self.latch }
    }

    fn content(boxed: Self::Boxed) -> F {
        boxed.content
    }
}

/// A future of a scope that the pool has not taken yet.
///
/// Available with the crate feature `pool`.
pub struct CountedFuture<'scope, F: Future> {
    content: F,
    ends: JobEnds<F::Output>,
    latch: &'scope Arc<Latch>,
}

impl<'scope, F> From<CountedFuture<'scope, F>> for FutureJob
where
    F: Future<Output: Send + 'scope> + Send + 'scope,
{
    fn from(job: CountedFuture<'scope, F>) -> Self {
        let counted = (job.ends.promise, job.latch.guard());
        let content = Inheriting::new(job.ends.inherited, job.content);
        let boxed: ScopedFuture<'scope> = Box::pin(Guarded::new(content, counted));
        // SAFETY: [waited] what the future borrows lives until the guard is gone, which is dropped
        // after it. The types differ in this lifetime only.
        Self::of(unsafe {
            std::mem::transmute::<ScopedFuture<'scope>, ScopedFuture<'static>>(boxed)
        })
    }
}

opaque! {
    [F, T] CountedCall<'_, F, T>;
    [F: Future] CountedFuture<'_, F>;
    [] Scoped<'_>;
}

/// Adds jobs to the scope of a pool. The jobs may borrow from outside the scope. The last two
/// parameters are the parameters of a [`Pool`].
///
/// Available with the crate feature `pool`.
pub struct Scope<'scope, 'env: 'scope, M = BlockingCalls, J: Send + 'static = ClosureJob> {
    members: &'env [PoolOwner<J>],
    latch: Arc<Latch>,
    calls: PhantomData<fn() -> M>,
    /// Makes the scope invariant, so that no caller can shorten or lengthen either lifetime.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Available with the crate feature `pool`.
impl<M> Pool<M, ClosureJob> {
    /// Runs `body`, which may add jobs that borrow from the caller, and waits until all these jobs
    /// have ended, even if `body` panics.
    ///
    /// ```
    /// use procession::pool::Pool;
    ///
    /// let pool = Pool::builder().capacity(2).build()?;
    /// let words = vec![String::from("so"), String::from("much"), String::from("to do")];
    /// let mut lengths = [0; 3];
    /// pool.scope(|scope| {
    ///     for (word, length) in words.iter().zip(&mut lengths) {
    ///         scope.execute(|| *length = word.len()).expect("the pool is open");
    ///     }
    /// })?;
    /// assert_eq!(lengths, [2, 4, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A job cannot borrow a value that is dropped before the job ends:
    ///
    /// ```compile_fail,E0373
    /// # let pool = procession::pool::Pool::builder().build().unwrap();
    /// pool.scope(|scope| {
    ///     let inside = 1;
    ///     scope.execute(|| drop(&inside)).unwrap();
    /// });
    /// ```
    ///
    /// The scope of a [`CoPool`](super::CoPool) is for plain threads. A coroutine can be unwound
    /// while it waits, and jobs would still borrow from it then. A process calls the scope in
    /// [`spawn_blocking`](crate::spawn_blocking), with what it owns.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::pool::Pool;
    /// use procession::{Scheduler, coroutine};
    ///
    /// // SAFETY: no coroutine holds a thread-local pointer scoped to a frame across a suspension.
    /// let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
    /// let pool = Pool::builder().capacity(10).on(&scheduler).build_coroutines()?;
    /// let words = vec![String::from("so"), String::from("much"), String::from("to do")];
    /// let mut lengths = [0; 3];
    /// pool.scope(|scope| {
    ///     for (word, length) in words.iter().zip(&mut lengths) {
    ///         let job = || {
    ///             coroutine::sleep(Duration::from_millis(1));
    ///             *length = word.len();
    ///         };
    ///         scope.execute(job).expect("the pool is open");
    ///     }
    /// })?;
    /// assert_eq!(lengths, [2, 4, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `body` is not run then.
    /// - [`WaitError::Inside`]: the caller is a job of this pool of threads, and the jobs of the
    ///   scope might need its place. In a job, use [`submit`](Self::submit) and
    ///   [`join`](super::JobHandle::join) instead, which runs a queued job on the thread of its
    ///   waiter.
    /// - [`WaitError::OnWorker`]: the workers are coroutines, and the caller is a process, or runs
    ///   on a worker of a scheduler.
    ///
    /// # Panics
    /// If `body` panics, with the same payload. The panic of a job goes to its handle, or to the
    /// handler of the pool.
    ///
    /// # Blocking
    /// Blocks the thread until the jobs have ended. In a process, call the scope of a pool of
    /// threads in [`blocking`](crate::blocking). When a scheduler ends, its coroutines are unwound.
    /// If a job neither suspends nor returns, it cannot be unwound, and the scope waits for it
    /// forever.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> Result<R, WaitError> {
        let members = self.owners();
        match &members[0].0.scheduler {
            Some(shared) => {
                check_caller(shared)?;
                run(members, body, |latch| wait_in(shared, latch))
            }
            None if self.inners().any(|inner| inner.is_inside()) => Err(WaitError::Inside),
            None => run(members, body, wait_for),
        }
    }
}

/// Available with the crate feature `pool`.
impl AsyncPool {
    /// Runs `body` on this thread. It may add futures to the pool that borrow from the caller. The
    /// scope waits until all these futures have ended, even if `body` panics.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::pool::Pool;
    /// use procession::{Scheduler, sleep};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let pool = Pool::builder().capacity(10).on(&scheduler).build_async()?;
    /// let words = vec![String::from("so"), String::from("much"), String::from("to do")];
    /// let mut lengths = [0; 3];
    /// pool.scope(async |scope| {
    ///     for (word, length) in words.iter().zip(&mut lengths) {
    ///         let job = async {
    ///             sleep(Duration::from_millis(1)).await;
    ///             *length = word.len();
    ///         };
    ///         scope.execute(job).await.expect("the pool is open");
    ///     }
    /// })?;
    /// assert_eq!(lengths, [2, 4, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A job cannot borrow a value that is dropped before the job ends:
    ///
    /// ```compile_fail,E0597
    /// # let scheduler = procession::Scheduler::builder().build().unwrap();
    /// # let pool = procession::pool::Pool::builder().on(&scheduler).build_async().unwrap();
    /// pool.scope(async |scope| {
    ///     let inside = 1;
    ///     let borrowed = &inside;
    ///     scope.execute(async move { drop(borrowed) }).await.unwrap();
    /// });
    /// ```
    ///
    /// The scope is for plain threads: a future that awaited its end could be dropped or forgotten
    /// while the jobs borrow from it. A process calls the scope in
    /// [`spawn_blocking`](crate::spawn_blocking), with what it owns, or uses
    /// [`group::scope`](crate::group::scope()). Its processes own what they use.
    ///
    /// # Errors
    /// [`WaitError::OnWorker`]: the caller is a process, or runs on a worker of a scheduler. `body`
    /// is not run then.
    ///
    /// # Panics
    /// If `body` panics, with the same payload. The panic of a job goes to its handle, or to the
    /// handler of the pool, which may still run when the scope has returned.
    ///
    /// # Blocking
    /// Blocks the thread until the jobs have ended. When the scheduler ends, they are terminated. A
    /// job that never ends its step cannot be terminated, so the scope waits for it forever.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> AsyncFnOnce(&'scope Scope<'scope, 'env, AsyncCalls, FutureJob>) -> R,
    ) -> Result<R, WaitError> {
        let members = self.owners();
        let shared = members[0].0.scheduler.as_ref().expect("processes have a scheduler");
        check_caller(shared)?;
        // Only a worker is refused, and no worker gets here.
        run(
            members,
            |scope| try_block_on(shared, body(scope)).map_err(|_| WaitError::OnWorker),
            |latch| wait_in(shared, latch),
        )?
    }
}

/// Waits until the jobs of a scope have ended. Does not unwind.
fn wait_for(latch: &Latch) {
    let ended = block(None, |task| latch.poll_ended(task.waker()));
    assert!(ended.is_some(), "[waited] a wait without a limit ends with what it waits for");
}

/// Waits for the jobs of a scope of processes or coroutines. If callers drive their scheduler, this
/// thread works for it during the wait. Does not unwind.
fn wait_in(shared: &Arc<Shared>, latch: &Latch) {
    let ended = || try_block_on(shared, poll_fn(|task| latch.poll_ended(task.waker())));
    if !matches!(caught(ended), Ok(Ok(()))) {
        wait_for(latch);
    }
}

/// Returns an error unless the caller may wait for processes of this scheduler that borrow from it.
///
/// A coroutine must not: it can be unwound while it waits. A worker must not, since the jobs may
/// need it.
fn check_caller(shared: &Arc<Shared>) -> Result<(), WaitError> {
    let is_worker = current::is_worker() || shared.workforce.seats.has_this_thread();
    if is_worker || crate::coroutine::is_coroutine() { Err(WaitError::OnWorker) } else { Ok(()) }
}

/// Runs the body of a scope, and waits for its jobs by `wait`, which must not unwind.
fn run<'env, M, J: Send + 'static, R>(
    members: &'env [PoolOwner<J>],
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, M, J>) -> R,
    wait: impl FnOnce(&Latch),
) -> Result<R, WaitError> {
    let latch = Arc::new(Latch(Mutex::new((0, None))));
    let scope = Scope {
        members,
        latch: Arc::clone(&latch),
        calls: PhantomData,
        scope: PhantomData,
        env: PhantomData,
    };
    let result: Result<R, Box<dyn Any + Send>> = caught(|| body(&scope));
    // `[waited]`: nothing between the body and the end of this wait can unwind.
    wait(&latch);
    result.map_err(|payload| resume_unwind(payload))
}

impl<'scope, M: Calls, J: Send + 'static> Scope<'scope, '_, M, J> {
    /// Describes a job, like [`Pool::job`]. The methods of the [`JobBuilder`] block, except in the
    /// scope of an [`AsyncPool`].
    pub fn job<C: Send>(&'scope self, content: C) -> JobBuilder<'scope, M, J, C, Scoped<'scope>>
    where
        Scoped<'scope>: JobSource<J, C>,
    {
        let source = Scoped { latch: &self.latch, scope: PhantomData };
        JobBuilder::new(self.members, None, source, content)
    }

    /// Submits a job without a handle, like [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure or the future.
    ///
    /// # Blocking
    /// Like [`Pool::execute`].
    ///
    /// # Cancellation
    /// Like [`Pool::execute`].
    #[track_caller]
    pub fn execute<C: Send>(
        &'scope self,
        content: C,
    ) -> M::Returned<impl Future<Output = Result<(), SubmitError<C>>> + Send>
    where
        Scoped<'scope>: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).execute()
    }

    /// Submits a job, and returns a handle to its result, like [`Pool::submit`]. The scope waits
    /// for the job even if the handle is dropped.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure or the future.
    ///
    /// # Blocking
    /// Like [`Pool::execute`].
    ///
    /// # Cancellation
    /// Like [`Pool::execute`].
    #[track_caller]
    pub fn submit<C: Send, T>(
        &'scope self,
        content: C,
    ) -> M::Returned<impl Future<Output = Result<JobHandle<T>, SubmitError<C>>> + Send>
    where
        Scoped<'scope>: JobSource<J, C, Output = T>,
    {
        self.job(content).submit()
    }
}

impl<M, J: Send + 'static> fmt::Debug for Scope<'_, '_, M, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pending", &self.latch.change(|(pending, _)| *pending))
            .finish_non_exhaustive()
    }
}
