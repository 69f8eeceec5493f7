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
use std::task::{Context as TaskContext, Poll, Waker};

use procession_protocols::pool::state::outcome::Ended;
use procession_sync::Mutex;

use super::async_pool::{AsyncPool, FutureJob};
use super::block::block;
use super::error::{JobError, SubmitError, WaitError};
use super::hooks::{Hooks, Settled};
use super::job::{Caught, JobEnds, Promise, caught};
use super::job_builder::{AsyncCalls, BlockingCalls, EntryWay, JobBuilder};
use super::job_handle::JobHandle;
use super::operations::Pool;
use super::source::{Call, ClosureJob, JobSource, JobStack, Runs, opaque};
use crate::process::async_body::{Guarded, Settle};
use crate::scheduler::block_on::try_block_on;
use crate::scheduler::current;
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
pub struct CountedCall<F, T> {
    call: Call<F, T>,
    guard: Option<CountedJob>,
}

impl<F, T> Runs for CountedCall<F, T>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(self: Box<Self>, hooks: &Hooks, stack: JobStack) -> Ended {
        // In this order, so that an unwinding of a coroutine drops the guard last.
        let Self { call, guard } = *self;
        let _guard = guard;
        call.run(hooks, |closure| stack.catch(closure))
    }
}

impl<'scope, F, T> JobSource<ClosureJob, F> for Scoped<'scope>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    type Output = T;
    type Discarded = T;
    type Boxed = Box<CountedCall<F, T>>;
    type Handle = ScopedHandle<'scope, T>;

    fn boxed(content: F, ends: JobEnds<T>) -> Self::Boxed {
        Box::new(CountedCall { call: Call::new(content, ends), guard: None })
    }

    fn content(boxed: Self::Boxed) -> F {
        boxed.call.into_content()
    }

    fn job(&self, mut boxed: Self::Boxed) -> ClosureJob {
        boxed.guard = Some(self.latch.guard());
        let boxed: Box<dyn Runs + 'scope> = boxed;
        // SAFETY: [waited] what the job borrows lives until the guard is gone that the job itself
        // holds. The types differ in this lifetime only.
        ClosureJob(unsafe { std::mem::transmute::<Box<dyn Runs + 'scope>, Box<dyn Runs>>(boxed) })
    }

    fn handle(handle: JobHandle<T>) -> ScopedHandle<'scope, T> {
        ScopedHandle { handle, scope: PhantomData }
    }
}

/// Settles the result of a future, which is dropped before. Its fields are dropped in their order.
struct CountedPromise<T> {
    promise: Option<Promise<T>>,
    guard: CountedJob,
}

impl<T> Settle<T> for CountedPromise<T> {
    type Settled = Settled;

    fn settle(self, outcome: Caught<T>) -> Settled {
        let Self { promise, guard } = self;
        let _guard = guard;
        let promise = promise;
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
    type Boxed = (F, JobEnds<F::Output>);
    type Handle = ScopedHandle<'scope, F::Output>;

    fn boxed(content: F, ends: JobEnds<F::Output>) -> Self::Boxed {
        (content, ends)
    }

    fn content((content, _): Self::Boxed) -> F {
        content
    }

    fn job(&self, (content, ends): Self::Boxed) -> FutureJob {
        let counted = CountedPromise { promise: ends.into_promise(), guard: self.latch.guard() };
        let boxed: ScopedFuture<'scope> = Box::pin(Guarded::new(content, counted));
        // SAFETY: [waited] what the future borrows lives until the guard is gone, which is dropped
        // after it. The types differ in this lifetime only.
        FutureJob::of(unsafe {
            std::mem::transmute::<ScopedFuture<'scope>, ScopedFuture<'static>>(boxed)
        })
    }

    fn handle(handle: JobHandle<F::Output>) -> Self::Handle {
        ScopedHandle { handle, scope: PhantomData }
    }
}

opaque! {
    [F, T] CountedCall<F, T>;
    [] Scoped<'_>;
}

/// Adds jobs to the scope of a pool, which may borrow from outside of it. `P` is the pool.
///
/// Available with the crate feature `pool`.
pub struct Scope<'scope, 'env: 'scope, P = Pool> {
    pool: &'env P,
    latch: Arc<Latch>,
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
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, Self>) -> R,
    ) -> Result<R, WaitError> {
        match self.inner().engine.scheduler() {
            Some(shared) => {
                check_caller(shared)?;
                run(self, body, |latch| wait_in(shared, latch))
            }
            None if self.inner().is_inside() => Err(WaitError::Inside),
            None => run(self, body, wait_for),
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
        body: impl for<'scope> AsyncFnOnce(&'scope Scope<'scope, 'env, Self>) -> R,
    ) -> Result<R, WaitError> {
        let shared = self.inner().engine.scheduler().expect("processes have a scheduler");
        check_caller(shared)?;
        // Only a worker is refused, and no worker gets here.
        run(
            self,
            |scope| try_block_on(shared, body(scope)).map_err(|_| WaitError::OnWorker),
            |latch| wait_in(shared, latch),
        )
        .flatten()
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
fn run<'env, P, R>(
    pool: &'env P,
    body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, P>) -> R,
    wait: impl FnOnce(&Latch),
) -> Result<R, WaitError> {
    let latch = Arc::new(Latch(Mutex::new((0, None))));
    let scope = Scope { pool, latch: Arc::clone(&latch), scope: PhantomData, env: PhantomData };
    let result: Result<R, Box<dyn Any + Send>> = caught(|| body(&scope));
    // `[waited]`: nothing between the body and the end of this wait can unwind.
    wait(&latch);
    result.map_err(|payload| resume_unwind(payload))
}

impl<'scope, M, J: Send + 'static> Scope<'scope, '_, Pool<M, J>> {
    fn builder<N, C: Send>(&'scope self, content: C) -> JobBuilder<'scope, N, J, C, Scoped<'scope>>
    where
        Scoped<'scope>: JobSource<J, C>,
    {
        let source = Scoped { latch: &self.latch, scope: PhantomData };
        let pool = self.pool;
        JobBuilder::new(pool.inner(), EntryWay::OfThePool, source, content, pool.on_full)
    }
}

impl<'scope, M> Scope<'scope, '_, Pool<M, ClosureJob>> {
    /// Describes a job, like [`Pool::job`]. The methods of the [`JobBuilder`] block.
    pub fn job<C: Send>(
        &'scope self,
        closure: C,
    ) -> JobBuilder<'scope, BlockingCalls, ClosureJob, C, Scoped<'scope>>
    where
        Scoped<'scope>: JobSource<ClosureJob, C>,
    {
        self.builder(closure)
    }

    /// Runs a closure without a handle, like [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// While it waits for a place, blocks the thread, or suspends the coroutine that calls it.
    pub fn execute<F: FnOnce() + Send + 'scope>(
        &'scope self,
        closure: F,
    ) -> Result<(), SubmitError<F>> {
        self.job(closure).execute()
    }

    /// Runs a closure, and returns a handle to its result, like [`Pool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Like [`execute`](Self::execute).
    pub fn submit<F, T>(&'scope self, closure: F) -> Result<ScopedHandle<'scope, T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.job(closure).submit()
    }
}

impl<'scope> Scope<'scope, '_, AsyncPool> {
    /// Describes a job, like [`Pool::job`].
    pub fn job<C: Send>(
        &'scope self,
        future: C,
    ) -> JobBuilder<'scope, AsyncCalls, FutureJob, C, Scoped<'scope>>
    where
        Scoped<'scope>: JobSource<FutureJob, C>,
    {
        self.builder(future)
    }

    /// Runs a future without a handle, like [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the future.
    ///
    /// # Cancellation
    /// If it is dropped before it completes, it leaves the wait list and drops the future, which
    /// the pool has not taken then.
    #[track_caller]
    pub fn execute<F>(
        &'scope self,
        future: F,
    ) -> impl Future<Output = Result<(), SubmitError<F>>> + Send
    where
        F: Future<Output = ()> + Send + 'scope,
    {
        self.job(future).execute()
    }

    /// Runs a future, and returns a handle to its result, like [`Pool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the future.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit<F>(
        &'scope self,
        future: F,
    ) -> impl Future<Output = Result<ScopedHandle<'scope, F::Output>, SubmitError<F>>> + Send
    where
        F: Future<Output: Send + 'scope> + Send + 'scope,
    {
        self.job(future).submit()
    }
}

impl<P> fmt::Debug for Scope<'_, '_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("pending", &self.latch.change(|(pending, _)| *pending))
            .finish_non_exhaustive()
    }
}

/// Awaits the result of a job of a [`Scope`].
///
/// It is a future of the result; plain threads [`join`](Self::join) it. Dropping the handle
/// detaches the job, but the scope still waits for it.
///
/// Available with the crate feature `pool`.
#[must_use = "dropping a handle detaches the job; write `drop(handle)` to say so"]
pub struct ScopedHandle<'scope, T> {
    handle: JobHandle<T>,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedHandle<'_, T> {
    /// Returns `true` if the result is there.
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Cancels the job, if it does not run yet. Returns `true` if it was cancelled.
    pub fn cancel(&self) -> bool {
        self.handle.cancel()
    }

    /// Waits for the result on a thread, like [`JobHandle::join`](super::JobHandle::join).
    ///
    /// # Errors
    /// The [`JobError`] of a job without a result. If the caller is a job of the same pool and all
    /// others wait for jobs of the pool already, [`JobError::WouldDeadlock`].
    ///
    /// # Blocking
    /// Blocks the thread. A coroutine is suspended instead.
    pub fn join(self) -> Result<T, JobError> {
        self.handle.join()
    }
}

impl<T> Future for ScopedHandle<'_, T> {
    type Output = Result<T, JobError>;

    /// # Panics
    /// Never. After the result was taken, it returns [`JobError::Taken`].
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.get_mut().handle).poll(task)
    }
}

impl<T> fmt::Debug for ScopedHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
