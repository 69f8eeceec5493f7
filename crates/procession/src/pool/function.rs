//! Pools of threads that all run one function.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::builder::{Builder, OnFull, check_capacity};
use super::core::Ended;
use super::inner::{Inner, Owner, Patience};
use super::task::{Cell, JobHandle, Outstanding, Promise, caught, run_promised};
use super::threads::Threads;
use super::{PoolError, PoolStats, SubmitError, WaitError};
use crate::body::drop_guarded;

/// An argument, and where the result goes, if anybody wants it.
struct Call<A, T> {
    argument: A,
    promise: Option<Promise<T>>,
    /// Of calls without a promise.
    outstanding: Option<Outstanding>,
}

/// A pool of threads that run one function: a job is an argument of it, and needs no closure and no allocation of its own.
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
/// It is closed with the last of its handles, as a [`Pool`](super::Pool) is.
pub struct FnPool<A: Send + 'static, T: Send + 'static> {
    owner: Arc<Owner<Call<A, T>>>,
    on_full: OnFull,
}

impl<A: Send + 'static, T: Send + 'static> Clone for FnPool<A, T> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner), on_full: self.on_full }
    }
}

impl Builder {
    /// Builds a pool of threads that run `function`.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_function<A, T>(
        self,
        function: impl Fn(A) -> T + Send + Sync + 'static,
    ) -> Result<FnPool<A, T>, PoolError>
    where
        A: Send + 'static,
        T: Send + 'static,
    {
        let run = move |inner: &Inner<Call<A, T>>, call: Call<A, T>| {
            let Call { argument, promise, outstanding } = call;
            let ended = match promise {
                Some(promise) => run_promised(promise, || function(argument)),
                None => match caught(|| function(argument)) {
                    Ok(result) => {
                        drop_guarded(result);
                        Ended::Completed
                    }
                    Err(payload) => {
                        inner.hooks.report(payload);
                        Ended::Panicked
                    }
                },
            };
            drop(outstanding);
            ended
        };
        let engine = Threads { run: Box::new(run), stack_size: self.stack_size };
        let inner = self.make(Box::new(engine))?;
        Ok(FnPool { owner: Arc::new(Owner(inner)), on_full: self.how_full() })
    }
}

impl<A: Send + 'static, T: Send + 'static> FnPool<A, T> {
    fn inner(&self) -> &Arc<Inner<Call<A, T>>> {
        &self.owner.0
    }

    fn put_call(&self, argument: A, patience: Patience) -> Result<(), SubmitError<A>> {
        let make = |argument, _| Call { argument, promise: None, outstanding: Outstanding::here() };
        self.inner().put(argument, patience, make).map(drop)
    }

    fn put_task(&self, argument: A, patience: Patience) -> Result<JobHandle<T>, SubmitError<A>> {
        let mut kept = None;
        let ticket = self.inner().put(argument, patience, |argument, _| {
            let cell = Arc::new(Cell::new(Outstanding::here()));
            kept = Some(Arc::clone(&cell));
            Call { argument, promise: Some(Promise::new(cell)), outstanding: None }
        })?;
        let cell = kept.expect("the job of a ticket was made");
        Ok(JobHandle::new(cell, Arc::clone(self.inner()) as _, ticket))
    }

    /// Calls the function; its result is dropped. See [`Pool::execute`](super::Pool::execute).
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub fn execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        self.put_call(argument, self.on_full.into())
    }

    /// Calls the function. See [`Pool::submit`](super::Pool::submit).
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub fn submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        self.put_task(argument, self.on_full.into())
    }

    /// As [`execute`](Self::execute), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub fn try_execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        self.put_call(argument, Patience::Refuse)
    }

    /// As [`submit`](Self::submit), but refuses if the pool is full.
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub fn try_submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        self.put_task(argument, Patience::Refuse)
    }

    /// As [`submit`](Self::submit), but waits for a place for at most `patience`.
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub fn submit_timeout(&self, argument: A, patience: Duration) -> Result<JobHandle<T>, SubmitError<A>> {
        self.put_task(argument, Patience::For(Some(patience)))
    }

    /// See [`Pool::stats`](super::Pool::stats).
    pub fn stats(&self) -> PoolStats {
        self.inner().stats()
    }

    /// See [`Pool::resize`](super::Pool::resize).
    ///
    /// # Errors
    /// [`PoolError::Invalid`]: the capacity is 0.
    pub fn resize(&self, capacity: usize) -> Result<usize, PoolError> {
        check_capacity(capacity)?;
        Ok(self.inner().resize(capacity))
    }

    /// See [`Pool::close`](super::Pool::close).
    pub fn close(&self) -> bool {
        self.inner().close()
    }

    /// See [`Pool::shutdown_now`](super::Pool::shutdown_now).
    pub fn shutdown_now(&self) -> usize {
        self.inner().shutdown_now()
    }

    /// See [`Pool::wait`](super::Pool::wait).
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        self.inner().wait(patience)
    }

    /// See [`Pool::wait_idle`](super::Pool::wait_idle).
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_idle(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        self.inner().wait_idle(patience)
    }

    /// See [`Pool::reopen`](super::Pool::reopen).
    ///
    /// # Errors
    /// [`PoolError::NotDrained`].
    pub fn reopen(&self) -> Result<(), PoolError> {
        if self.inner().reopen() { Ok(()) } else { Err(PoolError::NotDrained) }
    }
}

impl<A: Send + 'static, T: Send + 'static> fmt::Debug for FnPool<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner().fmt(f)
    }
}
