//! Pools that run one function.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use super::builder::Builder;
use super::coroutines::{caught_in_coroutine, coroutines};
use super::engine::Inner;
use super::error::{PoolError, SubmitError};
use super::job::{Caught, Outstanding, Promise, ResultCell, Settled, caught};
use super::job_handle::JobHandle;
use super::operations::{Entrance, Permit, Pooling, operations, thread_operations};
use super::processes::{Processes, Work, Working};
use super::state::outcome::Ended;
use super::submit::FullPolicy;
use super::threads::Threads;
use crate::Scheduler;
use crate::process::async_body::{AsyncBody, Guarded, Settle};
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::shared::Shared;
use crate::spawn::reservation::Reservation;

/// An argument, and the promise of the result, if the call has a handle.
pub(super) struct Call<A, T> {
    argument: A,
    promise: Option<Promise<T>>,
    /// Set only for calls without a promise.
    outstanding: Option<Outstanding>,
    /// Set only for calls on threads. Those in processes have a scheduler.
    origin: JobOrigin,
}

impl<A, T> Call<A, T> {
    fn run(self, function: impl FnOnce(A) -> Caught<T>) -> Settled {
        let Self { argument, promise, outstanding, origin: _ } = self;
        let outcome = promise.settle(function(argument));
        drop(outstanding);
        outcome
    }
}

/// Returns a call without a handle, on a thread.
fn detached_call<A, T>(argument: A) -> Call<A, T> {
    let origin = JobOrigin::current();
    Call { argument, promise: None, outstanding: Outstanding::of(&origin), origin }
}

/// Returns a call on a thread, and the cell of its result.
fn call_with_handle<A, T>(argument: A) -> (Call<A, T>, Arc<ResultCell<T>>) {
    let origin = JobOrigin::current();
    let (promise, cell) = Promise::new(Outstanding::of(&origin));
    (Call { argument, promise: Some(promise), outstanding: None, origin }, cell)
}

/// Returns a call without a handle, in a process.
fn async_detached_call<A, T>(argument: A) -> Call<A, T> {
    Call { argument, promise: None, outstanding: None, origin: JobOrigin::default() }
}

/// Returns a call in a process, and the cell of its result.
fn async_call_with_handle<A, T>(argument: A) -> (Call<A, T>, Arc<ResultCell<T>>) {
    let (promise, cell) = Promise::new(None);
    let call =
        Call { argument, promise: Some(promise), outstanding: None, origin: JobOrigin::default() };
    (call, cell)
}

/// Takes a refused call apart, into its argument.
fn refused<A, T>(error: SubmitError<Call<A, T>>) -> SubmitError<A> {
    SubmitError::of(error, |call| call.argument)
}

/// A pool of threads that run one function.
///
/// A job is an argument of the function. It needs no closure, and no allocation of its own.
///
/// ```
/// use procession::pool::Pool;
///
/// let lengths = Pool::builder().capacity(2).build_function(|text: String| text.len())?;
/// assert_eq!(lengths.submit(String::from("four"))?.join(), Ok(4));
/// lengths.close();
/// let refused = lengths.execute(String::from("comes back")).unwrap_err();
/// assert_eq!(refused.into_inner(), "comes back");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Otherwise it behaves like a [`Pool`](super::Pool). When its last handle is dropped, it is
/// closed.
pub struct FnPool<A: Send + 'static, T: Send + 'static>(Entrance<Call<A, T>>);

/// A pool of processes that run one function.
///
/// A job is an argument of the function. It needs no allocation of its own, and runs in its worker.
/// The workers are async processes or coroutines.
///
/// ```
/// use procession::pool::Pool;
///
/// let length = procession::run(async {
///     let length = |text: String| async move { text.len() };
///     let lengths = Pool::builder().capacity(2).build_async_function(length)?;
///     Ok::<usize, Box<dyn std::error::Error>>(lengths.submit(String::from("four")).await?.await?)
/// })?;
/// assert_eq!(length, 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Otherwise it behaves like an [`AsyncPool`](super::AsyncPool), also when the scheduler ends.
pub struct AsyncFnPool<A: Send + 'static, T: Send + 'static>(Entrance<Call<A, T>>);

impl<A: Send + 'static, T: Send + 'static> Clone for FnPool<A, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<A: Send + 'static, T: Send + 'static> Clone for AsyncFnPool<A, T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Builder {
    /// Builds a pool of threads that run `function`.
    ///
    /// # Errors
    /// Like [`build`](Self::build).
    pub fn build_function<A, T>(
        self,
        function: impl Fn(A) -> T + Send + Sync + 'static,
    ) -> Result<FnPool<A, T>, PoolError>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        let run = move |inner: &Inner<Call<A, T>>, call: Call<A, T>| -> Ended {
            let _place = call.origin.enter();
            let outcome = call.run(|argument| caught(|| function(argument)));
            inner.hooks.ended(outcome)
        };
        Entrance::open(&self, Threads { run: Box::new(run), stack_size: self.stack_size })
            .map(FnPool)
    }

    /// Builds a pool of async processes that run `function`, of the scheduler that the calling
    /// process or thread belongs to. Any other caller gets the default scheduler.
    ///
    /// # Errors
    /// Like [`build_async`](Self::build_async).
    pub fn build_async_function<A, F>(
        self,
        function: impl Fn(A) -> F + Send + Sync + 'static,
    ) -> Result<AsyncFnPool<A, F::Output>, PoolError>
    where
        A: Send + 'static,
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.build_async_function_in(Arc::clone(&crate::scheduler::owner::here()), function)
    }

    /// Builds a pool of async processes of this scheduler that run `function`.
    ///
    /// # Errors
    /// Like [`build_async`](Self::build_async).
    pub fn build_async_function_on<A, F>(
        self,
        scheduler: &Scheduler,
        function: impl Fn(A) -> F + Send + Sync + 'static,
    ) -> Result<AsyncFnPool<A, F::Output>, PoolError>
    where
        A: Send + 'static,
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.build_async_function_in(Arc::clone(scheduler.shared()), function)
    }

    fn build_async_function_in<A, F>(
        self,
        shared: Arc<Shared>,
        function: impl Fn(A) -> F + Send + Sync + 'static,
    ) -> Result<AsyncFnPool<A, F::Output>, PoolError>
    where
        A: Send + 'static,
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let function = Arc::new(function);
        let run = move |call: Call<A, F::Output>| {
            let Call { argument, promise, .. } = call;
            let function = Arc::clone(&function);
            // Called in a poll, because it is user code.
            Guarded::new(async move { function(argument).await }, promise)
        };
        let launch = move |reservation: Reservation<'_>, worker, call| {
            let future = run(call);
            let run = run.clone();
            let next = move |mut place: Pin<&mut Guarded<_, _>>, call| place.set(run(call));
            let state = Working { worker: Some(worker), next };
            reservation.start(Box::new(AsyncBody::Runs(Work { future, state })));
        };
        Entrance::open(&self, Processes::resting(shared, launch)).map(AsyncFnPool)
    }

    /// Builds a pool of coroutines that run `function`, which may [wait](crate::coroutine). They
    /// are of the scheduler that the calling process or thread belongs to. Any other caller gets
    /// the default scheduler.
    ///
    /// # Errors
    /// Like [`build_coroutines`](Self::build_coroutines).
    pub fn build_coroutine_function<A, T>(
        self,
        function: impl Fn(A) -> T + Send + Sync + 'static,
    ) -> Result<AsyncFnPool<A, T>, PoolError>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        self.build_coroutine_function_in(Arc::clone(&crate::scheduler::owner::here()), function)
    }

    /// Builds a pool of coroutines of this scheduler that run `function`.
    ///
    /// # Errors
    /// Like [`build_coroutines`](Self::build_coroutines).
    pub fn build_coroutine_function_on<A, T>(
        self,
        scheduler: &Scheduler,
        function: impl Fn(A) -> T + Send + Sync + 'static,
    ) -> Result<AsyncFnPool<A, T>, PoolError>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        self.build_coroutine_function_in(Arc::clone(scheduler.shared()), function)
    }

    fn build_coroutine_function_in<A, T>(
        self,
        shared: Arc<Shared>,
        function: impl Fn(A) -> T + Send + Sync + 'static,
    ) -> Result<AsyncFnPool<A, T>, PoolError>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        let function = Arc::new(function);
        let run =
            move |call: Call<A, T>| call.run(|argument| caught_in_coroutine(|| function(argument)));
        let engine = coroutines(&self, shared, run)?;
        Entrance::open(&self, engine).map(AsyncFnPool)
    }
}

operations!([A: Send + 'static, T: Send + 'static] FnPool<A, T>, Call<A, T>);
thread_operations!([A: Send + 'static, T: Send + 'static] FnPool<A, T>);
operations!([A: Send + 'static, T: Send + 'static] AsyncFnPool<A, T>, Call<A, T>);

impl<A: Send + 'static, T: Send + 'static> FnPool<A, T> {
    fn put_detached(&self, argument: A, policy: FullPolicy) -> Result<(), SubmitError<A>> {
        self.inner()
            .put(self.0.lane, detached_call(argument), policy, |call| call)
            .map(drop)
            .map_err(refused)
    }

    fn put_with_handle(
        &self,
        argument: A,
        policy: FullPolicy,
    ) -> Result<JobHandle<T>, SubmitError<A>> {
        let (call, cell) = call_with_handle(argument);
        let ticket = self.inner().put(self.0.lane, call, policy, |call| call).map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }

    /// Calls the function, and drops its result. See [`Pool::execute`](super::Pool::execute).
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        self.put_detached(argument, self.0.policy())
    }

    /// Calls the function, and returns a handle to its result. See
    /// [`Pool::submit`](super::Pool::submit).
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        self.put_with_handle(argument, self.0.policy())
    }

    /// Calls the function, and drops its result, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    pub fn try_execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        self.put_detached(argument, FullPolicy::Refuse)
    }

    /// Calls the function, and returns a handle to its result, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    pub fn try_submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        self.put_with_handle(argument, FullPolicy::Refuse)
    }

    /// Calls the function, and returns a handle to its result. If the pool is full, waits for a
    /// place, at most for `timeout`.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit_timeout(
        &self,
        argument: A,
        timeout: Duration,
    ) -> Result<JobHandle<T>, SubmitError<A>> {
        self.put_with_handle(argument, FullPolicy::Wait(Some(timeout)))
    }
}

impl<A: Send + 'static, T: Send + 'static> AsyncFnPool<A, T> {
    async fn put_with_handle(
        &self,
        argument: A,
        policy: FullPolicy,
    ) -> Result<JobHandle<T>, SubmitError<A>> {
        let (call, cell) = async_call_with_handle(argument);
        let ticket = self
            .inner()
            .put_async(self.0.lane, call, policy, |call| call)
            .await
            .map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }

    /// Calls the function, and drops its result. See
    /// [`AsyncPool::execute`](super::AsyncPool::execute).
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Cancellation
    /// If it is dropped before it completes, it leaves the wait list and drops the argument. The
    /// pool has not taken the job then.
    #[track_caller]
    pub fn execute(&self, argument: A) -> impl Future<Output = Result<(), SubmitError<A>>> {
        crate::scheduler::placed::placed(async move {
            let put = self.inner().put_async(
                self.0.lane,
                async_detached_call(argument),
                self.0.policy(),
                |call| call,
            );
            put.await.map(drop).map_err(refused)
        })
    }

    /// Calls the function, and returns a handle to its result. See
    /// [`AsyncPool::submit`](super::AsyncPool::submit).
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit(
        &self,
        argument: A,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<A>>> {
        crate::scheduler::placed::placed(async move {
            self.put_with_handle(argument, self.0.policy()).await
        })
    }

    /// Calls the function, and returns a handle to its result. If the pool is full, waits for a
    /// place, at most for `timeout`.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit_timeout(
        &self,
        argument: A,
        timeout: Duration,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<A>>> {
        crate::scheduler::placed::placed(async move {
            self.put_with_handle(argument, FullPolicy::Wait(Some(timeout))).await
        })
    }

    /// Calls the function, and drops its result, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    pub fn try_execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        crate::scheduler::budget::spend();
        self.inner()
            .put_now(self.0.lane, async_detached_call(argument), |call| call)
            .map(drop)
            .map_err(refused)
    }

    /// Calls the function, and returns a handle to its result, if the pool is not full.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    pub fn try_submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        crate::scheduler::budget::spend();
        let (call, cell) = async_call_with_handle(argument);
        let ticket = self.inner().put_now(self.0.lane, call, |call| call).map_err(refused)?;
        Ok(JobHandle::new(self.inner(), cell, ticket))
    }
}

impl<A: Send + 'static, T: Send + 'static> Permit<'_, FnPool<A, T>> {
    /// Calls the function in the reserved place, and drops its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument: the pool is closed, or could start no worker.
    pub fn execute(self, argument: A) -> Result<(), SubmitError<A>> {
        self.enter(detached_call(argument), |call| call).map(drop).map_err(refused)
    }

    /// Calls the function in the reserved place, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument: the pool is closed, or could start no worker.
    pub fn submit(self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        let pool = self.pool;
        let (call, cell) = call_with_handle(argument);
        let ticket = self.enter(call, |call| call).map_err(refused)?;
        Ok(JobHandle::new(pool.inner(), cell, ticket))
    }
}

impl<A: Send + 'static, T: Send + 'static> Permit<'_, AsyncFnPool<A, T>> {
    /// Calls the function in the reserved place, and drops its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument: the pool is closed, or could start no worker.
    pub fn execute(self, argument: A) -> Result<(), SubmitError<A>> {
        self.enter(async_detached_call(argument), |call| call).map(drop).map_err(refused)
    }

    /// Calls the function in the reserved place, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument: the pool is closed, or could start no worker.
    pub fn submit(self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        let pool = self.pool;
        let (call, cell) = async_call_with_handle(argument);
        let ticket = self.enter(call, |call| call).map_err(refused)?;
        Ok(JobHandle::new(pool.inner(), cell, ticket))
    }
}
