//! Pools that run one function.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::async_pool::{JobWorker, Work, Working};
use super::builder::Builder;
use super::engine::Workers;
use super::error::PoolError;
use super::hooks::Hooks;
use super::job::JobEnds;
use super::operations::Pool;
use super::source::{Call, JobSource, Owning, catch};
use super::submit::{AsyncCalls, BlockingCalls};
use crate::process::async_body::{AsyncBody, Guarded};
use crate::scheduler::inherit::within::Inheriting;
use crate::spawn::reservation::Reservation;

impl<A, T> JobSource<Call<A, T>, A> for Owning
where
    A: Send + 'static,
    T: Send + 'static,
{
    type Output = T;
    type Discarded = ();
    type Boxed = Call<A, T>;

    fn boxed(&self, content: A, ends: JobEnds<T>) -> Call<A, T> {
        Call { content, ends }
    }

    fn content(boxed: Call<A, T>) -> A {
        boxed.content
    }
}

/// A pool of threads that run one function.
///
/// A job is an argument of the function. It needs no closure and no separate allocation.
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
pub type FnPool<A, T> = Pool<BlockingCalls, Call<A, T>>;

/// A pool of processes that run one function.
///
/// A job is an argument of the function. It needs no separate allocation, and runs in its worker.
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
pub type AsyncFnPool<A, T> = Pool<AsyncCalls, Call<A, T>>;

/// Available with the crate feature `pool`.
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
        let run = move |hooks: &Hooks, call: Call<A, T>| {
            call.run(hooks, |argument| catch(|| function(argument)))
        };
        Pool::open(&self, None, Workers::threads(&self, run))
    }

    /// Builds a pool of async processes that run `function`.
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
        let function = Arc::new(function);
        let run = move |call: Call<A, F::Output>| {
            let function = Arc::clone(&function);
            // Called in a poll, because it is user code.
            let job = async move { function(call.content).await };
            Guarded::new(Inheriting::new(call.ends.inherited, job), call.ends.promise)
        };
        let launch = move |reservation: Reservation<'_>, worker: JobWorker<_>, call| {
            let priority = worker.priority();
            let future = run(call);
            let run = run.clone();
            let next = move |mut place: Pin<&mut Guarded<_, _>>, call| place.set(run(call));
            let state = Working { worker: Some(worker), next };
            reservation.start(priority, Box::new(AsyncBody::Runs(Work { future, state })));
        };
        Pool::open(&self, Some(&self.shared()), Workers::resting(launch))
    }

    /// Builds a pool of coroutines that run `function`, which may [wait](crate::coroutine).
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
        self.open_coroutines(move |hooks: &Hooks, call: Call<A, T>| {
            call.run(hooks, |argument| catch(|| function(argument)))
        })
    }
}
