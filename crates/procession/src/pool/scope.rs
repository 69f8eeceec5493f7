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

use procession_sync::Mutex;

use super::async_pool::FutureJob;
use super::block::block;
use super::coroutines::{CoroutineJob, Runs, caught_in_coroutine};
use super::engine::Inner;
use super::error::{JobError, SubmitError, WaitError};
use super::job::{Caught, Promise, ResultCell, Settled, caught};
use super::job_handle::{AnyPool, Lending};
use super::operations::Pooling;
use super::state::outcome::Ended;
use super::submit::FullPolicy;
use super::thread_pool::{JobWork, PlainJob, Pool, Scoped};
use crate::process::async_body::{Guarded, Settle};
use crate::process::wait_reason::Waiting;
use crate::scheduler::block_on::{block_on, try_block_on};
use crate::scheduler::current;
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::shared::Shared;

mod coroutines;
mod processes;

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

/// A job of a scope. Its fields are dropped in their order, the guard last.
struct Borrowing<F, P> {
    closure: F,
    promise: P,
    guard: CountedJob,
}

fn job<'scope>(run: impl FnOnce(&Inner<PlainJob>) -> Ended + Send + 'scope) -> PlainJob {
    let boxed: Scoped<'scope> = Box::new(run);
    // SAFETY: [waited] what the job borrows lives until the guard is gone that the job itself
    // holds. The types differ in this lifetime only.
    let run = unsafe { std::mem::transmute::<Scoped<'scope>, Scoped<'static>>(boxed) };
    PlainJob { origin: JobOrigin::current(), work: JobWork::Scoped(run) }
}

impl<F, T> Runs for Borrowing<F, Option<Promise<T>>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    fn run(self: Box<Self>) -> Settled {
        // In this order, so that an unwinding of the coroutine drops the guard last.
        let Borrowing { closure, promise, guard } = *self;
        let _guard = guard;
        let promise = promise;
        promise.settle(caught_in_coroutine(closure))
    }
}

/// Returns a job that runs a closure in a coroutine.
fn coroutine_job<'scope, F, T>(
    latch: &Arc<Latch>,
    closure: F,
    promise: Option<Promise<T>>,
) -> CoroutineJob
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    let borrowing = Borrowing { closure, promise, guard: latch.guard() };
    let boxed: Box<dyn Runs + 'scope> = Box::new(borrowing);
    // SAFETY: [waited] what the job borrows lives until the guard is gone that the job itself
    // holds. The types differ in this lifetime only.
    unsafe { std::mem::transmute::<Box<dyn Runs + 'scope>, CoroutineJob>(boxed) }
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

/// Returns a job that runs a future in an async process.
fn future_job<'scope, F>(
    latch: &Arc<Latch>,
    future: F,
    promise: Option<Promise<F::Output>>,
) -> FutureJob
where
    F: Future<Output: Send + 'scope> + Send + 'scope,
{
    let counted = CountedPromise { promise, guard: latch.guard() };
    let boxed: ScopedFuture<'scope> = Box::pin(Guarded::new(future, counted));
    // SAFETY: [waited] what the future borrows lives until the guard is gone, which is dropped
    // after it. The types differ in this lifetime only.
    FutureJob::of(unsafe {
        std::mem::transmute::<ScopedFuture<'scope>, ScopedFuture<'static>>(boxed)
    })
}

/// Adds jobs to the scope of a pool, which may borrow from outside of it. `P` is the pool.
pub struct Scope<'scope, 'env: 'scope, P = Pool> {
    pool: &'env P,
    latch: Arc<Latch>,
    /// Makes the scope invariant, so that no caller can shorten or lengthen either lifetime.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

impl Pool {
    /// Runs `body`, which may add jobs that borrow from the caller, and waits until all of them
    /// have ended. It also waits if `body` panics.
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
    /// # Errors
    /// [`WaitError::Inside`]: the caller is a job of this pool, and the jobs of the scope might
    /// need its place. `body` is not run then. In a job, use [`submit`](Self::submit) and
    /// [`join`](super::JobHandle::join) instead, which runs a queued job on the thread of its
    /// waiter.
    ///
    /// # Panics
    /// If `body` panics, with the same payload. The panic of a job goes to its handle, or to the
    /// handler of the pool.
    ///
    /// # Blocking
    /// Blocks the thread until the jobs have ended. In a process, call it in
    /// [`blocking`](crate::blocking).
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
    ) -> Result<R, WaitError> {
        if self.inner().is_inside() {
            return Err(WaitError::Inside);
        }
        run(self, body, wait_for)
    }
}

/// Waits until the jobs of a scope have ended. Does not unwind.
fn wait_for(latch: &Latch) {
    let ended = block(None, |task| latch.poll_ended(task.waker()));
    assert!(ended.is_some(), "[waited] a wait without a limit ends with what it waits for");
}

/// Waits for the jobs of a scope of processes or coroutines. If callers drive their scheduler, this
/// thread works for it meanwhile. Does not unwind.
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
    let is_worker = current::is_worker() || shared.is_worked_for_here();
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

impl<'scope> Scope<'scope, '_> {
    /// Runs a closure without a handle, like [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Like [`Pool::execute`].
    pub fn execute<F: FnOnce() + Send + 'scope>(
        &'scope self,
        closure: F,
    ) -> Result<(), SubmitError<F>> {
        let make = |closure| {
            let borrowing = Borrowing { closure, promise: (), guard: self.latch.guard() };
            job(move |inner: &Inner<PlainJob>| {
                // Moved in one piece, so that a job that never runs drops its fields in their
                // order.
                let Borrowing { closure, promise: (), guard } = { borrowing };
                let ended = inner.hooks.ended(caught(closure).map_err(Some));
                drop(guard);
                ended
            })
        };
        self.pool.inner().put(self.pool.lane(), closure, self.policy(), make).map(drop)
    }

    /// Runs a closure, and returns a handle to its result, like [`Pool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Like [`Pool::submit`].
    pub fn submit<F, T>(&'scope self, closure: F) -> Result<ScopedHandle<'scope, T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let (promise, cell) = Promise::new(None);
        let mut promise = Some(promise);
        let make = |closure| {
            let promise = promise.take();
            let borrowing = Borrowing { closure, promise, guard: self.latch.guard() };
            job(move |inner: &Inner<PlainJob>| {
                let Borrowing { closure, promise, guard } = { borrowing };
                let ended = inner.hooks.ended(promise.settle(caught(closure)));
                drop(guard);
                ended
            })
        };
        let ticket = self.pool.inner().put(self.pool.lane(), closure, self.policy(), make)?;
        Ok(ScopedHandle {
            cell,
            pool: Arc::clone(self.pool.inner()) as _,
            ticket,
            lending: Lending::default(),
            scope: PhantomData,
        })
    }

    fn policy(&self) -> FullPolicy {
        self.pool.policy()
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
#[must_use = "dropping a handle detaches the job; write `drop(handle)` to say so"]
pub struct ScopedHandle<'scope, T> {
    cell: Arc<ResultCell<T>>,
    pool: Arc<dyn AnyPool>,
    ticket: u64,
    lending: Lending,
    scope: PhantomData<&'scope ()>,
}

impl<T> ScopedHandle<'_, T> {
    /// Returns `true` if the result is there.
    pub fn is_finished(&self) -> bool {
        self.cell.has_ended()
    }

    /// Cancels the job, if it does not run yet. Returns `true` if it was cancelled.
    pub fn cancel(&self) -> bool {
        self.pool.cancel(self.ticket)
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
        if let Some(shared) = self.pool.scheduler() {
            return block_on(&shared, self);
        }
        self.pool.help(self.ticket);
        if !self.pool.begin_join(self.ticket, &|| self.cell.has_ended()) {
            return Err(JobError::WouldDeadlock);
        }
        block(None, |task| self.cell.poll_result(task.waker())).unwrap_or(Err(JobError::Cancelled))
    }
}

impl<T> Future for ScopedHandle<'_, T> {
    type Output = Result<T, JobError>;

    /// # Panics
    /// Never. After the result was taken, it returns [`JobError::Taken`].
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if !crate::scheduler::budget::charge(task) {
            return Poll::Pending;
        }
        let Self { cell, pool, ticket, lending, .. } = self.get_mut();
        let result = cell.poll_in(task.waker(), lending, pool, *ticket);
        if result.is_pending() {
            current::note_waiting(Waiting::JOB);
        }
        result
    }
}

impl<T> fmt::Debug for ScopedHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}
