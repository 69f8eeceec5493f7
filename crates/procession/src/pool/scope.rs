//! Jobs that borrow from the thread that waits for them.
//!
//! # Invariants
//! - `[waited]`: everything that borrows for `'scope` is in the job of a scope, or in the cell of
//!   its result. The job holds a [`CountedJob`], which is dropped after everything else in it,
//!   whether the job ran, panicked or was dropped. [`Pool::scope`] neither returns nor unwinds
//!   while a [`CountedJob`] exists.
//! - `[inside]`: adding a job needs a `&'scope Scope`. Only the body of the scope and its jobs have
//!   one. The body has not returned, and each job is counted. So once the count is 0, it does not
//!   rise again.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_sync::Mutex;

use super::block::block;
use super::engine::Inner;
use super::error::{JobError, SubmitError, WaitError};
use super::job::{Promise, ResultCell, caught};
use super::job_handle::AnyPool;
use super::operations::Pooling;
use super::state::outcome::Ended;
use super::submit::FullPolicy;
use super::thread_pool::{JobWork, PlainJob, Pool, Scoped};
use crate::process::async_body::Settle;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::scheduler::origin::JobOrigin;

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
        // Only `Pool::scope` waits, on a thread. So its waker is no user code.
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

/// Adds jobs to a [`Pool::scope`], which may borrow from outside of it.
pub struct Scope<'scope, 'env: 'scope> {
    pool: &'env Pool,
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
    /// ```compile_fail,E0597
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
        let latch = Arc::new(Latch(Mutex::new((0, None))));
        let scope =
            Scope { pool: self, latch: Arc::clone(&latch), scope: PhantomData, env: PhantomData };
        let result: Result<R, Box<dyn Any + Send>> = caught(|| body(&scope));
        // `[waited]`: nothing between the body and the end of this wait can unwind.
        let ended = block(None, |task| latch.poll_ended(task.waker()));
        assert!(ended.is_some(), "[waited] a wait without a limit ends with what it waits for");
        result.map_err(|payload| resume_unwind(payload))
    }
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
            scope: PhantomData,
        })
    }

    fn policy(&self) -> FullPolicy {
        self.pool.policy()
    }
}

impl fmt::Debug for Scope<'_, '_> {
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
    /// Blocks the thread.
    pub fn join(self) -> Result<T, JobError> {
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
        let result = self.cell.poll_result(task.waker());
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
