//! Scopes of coroutines.

use std::marker::PhantomData;
use std::sync::Arc;

use super::{Scope, ScopedHandle, check_caller, coroutine_job, run, wait_in};
use crate::pool::coroutines::CoPool;
use crate::pool::error::{SubmitError, WaitError};
use crate::pool::job::Promise;
use crate::pool::job_handle::Lending;
use crate::pool::operations::Pooling;
use crate::scheduler::block_on::block_on;

impl CoPool {
    /// Runs `body`, which may add jobs that borrow from the caller, and waits until all of them
    /// have ended. It also waits if `body` panics.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::pool::Pool;
    /// use procession::{Scheduler, coroutine};
    ///
    /// // SAFETY: no coroutine holds a thread-local pointer scoped to a frame across a suspension.
    /// let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
    /// let pool = Pool::builder().capacity(10).build_coroutines_on(&scheduler)?;
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
    /// The scope is for plain threads. A coroutine can be unwound while it waits, and jobs would
    /// still borrow from it then. A process calls the scope in
    /// [`spawn_blocking`](crate::spawn_blocking), with what it owns.
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
    /// Blocks the thread until the jobs have ended. When the scheduler ends, they are unwound. If a
    /// job neither suspends nor returns, it cannot be unwound, and the scope waits for it forever.
    pub fn scope<'env, R>(
        &'env self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, Self>) -> R,
    ) -> Result<R, WaitError> {
        let shared = self.inner().engine.scheduler().expect("coroutines have a scheduler");
        check_caller(shared)?;
        run(self, body, |latch| wait_in(shared, latch))
    }
}

impl<'scope> Scope<'scope, '_, CoPool> {
    /// Enters a job, and returns its ticket.
    fn put<F, T>(
        &'scope self,
        closure: F,
        promise: Option<Promise<T>>,
    ) -> Result<u64, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let inner = self.pool.inner();
        let shared = inner.engine.scheduler().expect("coroutines have a scheduler");
        let mut promise = Some(promise);
        let make = |closure| coroutine_job(&self.latch, closure, promise.take().flatten());
        block_on(shared, inner.put_async(self.pool.lane(), closure, self.pool.policy(), make))
    }

    /// Runs a closure without a handle, like [`CoPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// While it waits for a place, blocks the thread, or suspends the calling job of the scope.
    pub fn execute<F: FnOnce() + Send + 'scope>(
        &'scope self,
        closure: F,
    ) -> Result<(), SubmitError<F>> {
        self.put(closure, None).map(drop)
    }

    /// Runs a closure, and returns a handle to its result, like [`CoPool::submit`].
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
        let (promise, cell) = Promise::new(None);
        let ticket = self.put(closure, Some(promise))?;
        let pool = Arc::clone(self.pool.inner()) as _;
        Ok(ScopedHandle { cell, pool, ticket, lending: Lending::default(), scope: PhantomData })
    }
}
