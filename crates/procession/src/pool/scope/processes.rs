//! Scopes of async processes.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Scope, ScopedHandle, check_caller, future_job, run, wait_in};
use crate::pool::async_pool::AsyncPool;
use crate::pool::error::{SubmitError, WaitError};
use crate::pool::job::Promise;
use crate::pool::job_handle::Lending;
use crate::pool::operations::Pooling;
use crate::scheduler::block_on::try_block_on;
use crate::scheduler::placed::placed;

impl AsyncPool {
    /// Runs `body` on this thread. It may add futures to the pool that borrow from the caller, and
    /// the scope waits until all of them have ended. It also waits if `body` panics.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::pool::Pool;
    /// use procession::{Scheduler, sleep};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let pool = Pool::builder().capacity(10).build_async_on(&scheduler)?;
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
    /// # let pool = procession::pool::Pool::builder().build_async_on(&scheduler).unwrap();
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
        // Only a worker is refused, and none comes here.
        run(
            self,
            |scope| try_block_on(shared, body(scope)).map_err(|_| WaitError::OnWorker),
            |latch| wait_in(shared, latch),
        )
        .flatten()
    }
}

impl<'scope> Scope<'scope, '_, AsyncPool> {
    /// Enters a job, and returns its ticket.
    async fn put<F>(
        &'scope self,
        future: F,
        promise: Option<Promise<F::Output>>,
    ) -> Result<u64, SubmitError<F>>
    where
        F: Future<Output: Send + 'scope> + Send + 'scope,
    {
        let mut promise = Some(promise);
        let make = |future| future_job(&self.latch, future, promise.take().flatten());
        self.pool.inner().put_async(self.pool.lane(), future, self.pool.policy(), make).await
    }

    /// Runs a future without a handle, like [`AsyncPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the future.
    ///
    /// # Cancellation
    /// Like [`AsyncPool::execute`].
    #[track_caller]
    pub fn execute<F>(
        &'scope self,
        future: F,
    ) -> impl Future<Output = Result<(), SubmitError<F>>> + Send
    where
        F: Future<Output = ()> + Send + 'scope,
    {
        placed(async move { self.put(future, None).await.map(drop) })
    }

    /// Runs a future, and returns a handle to its result, like [`AsyncPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the future.
    ///
    /// # Cancellation
    /// Like [`AsyncPool::execute`].
    #[track_caller]
    pub fn submit<F>(
        &'scope self,
        future: F,
    ) -> impl Future<Output = Result<ScopedHandle<'scope, F::Output>, SubmitError<F>>> + Send
    where
        F: Future<Output: Send + 'scope> + Send + 'scope,
    {
        placed(async move {
            let (promise, cell) = Promise::new(None);
            let ticket = self.put(future, Some(promise)).await?;
            let pool = Arc::clone(self.pool.inner()) as _;
            Ok(ScopedHandle { cell, pool, ticket, lending: Lending::default(), scope: PhantomData })
        })
    }
}
