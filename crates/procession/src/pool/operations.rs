//! The operations of all kinds of pool, and places reserved in one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use super::builder::{Builder, OnFull, check_capacity};
use super::engine::{Engine, Inner};
use super::error::{PoolError, SubmitError, SubmitErrorKind};
use super::lifecycle::PoolOwner;
use super::state::lane::JobLane;
use super::state::picture::Limits;
use super::submit::{FullPolicy, PlaceWait};

/// A pool, whatever its workers and its jobs are.
pub(super) trait Pooling {
    type Job: Send + 'static;

    fn inner(&self) -> &Arc<Inner<Self::Job>>;
    /// Returns the lane of the jobs of this handle.
    fn lane(&self) -> JobLane;
}

/// The content of every handle to a pool.
pub(super) struct Entrance<J> {
    owner: Arc<PoolOwner<J>>,
    on_full: OnFull,
    pub(super) lane: JobLane,
}

impl<J> Clone for Entrance<J> {
    fn clone(&self) -> Self {
        self.in_lane(self.lane)
    }
}

impl<J> Entrance<J> {
    pub(super) fn open(
        builder: &Builder,
        engine: impl Engine<J> + 'static,
    ) -> Result<Self, PoolError>
    where
        J: Send + 'static,
    {
        let inner = make(builder, Box::new(engine))?;
        Ok(Self {
            owner: Arc::new(PoolOwner(inner)),
            on_full: builder.on_full,
            lane: JobLane::default(),
        })
    }

    pub(super) fn inner(&self) -> &Arc<Inner<J>> {
        &self.owner.0
    }

    /// Returns a handle for jobs in this lane.
    pub(super) fn in_lane(&self, lane: JobLane) -> Self {
        Self { owner: Arc::clone(&self.owner), on_full: self.on_full, lane }
    }

    /// Returns what a submit call does by default if the pool is full.
    pub(super) fn policy(&self) -> FullPolicy {
        self.on_full.into()
    }
}

fn make<J: Send + 'static>(
    builder: &Builder,
    engine: Box<dyn Engine<J>>,
) -> Result<Arc<Inner<J>>, PoolError> {
    check_capacity(builder.limits.capacity)?;
    if builder.name.contains('\0') {
        return Err(PoolError::Name(builder.name.clone()));
    }
    let limits =
        Limits { rests: engine.rests(), threads: engine.scheduler().is_none(), ..builder.limits };
    let inner =
        Inner::new(builder.name.clone(), limits, builder.keep_alive, builder.hooks.clone(), engine);
    if let Err(error) = inner.prestart(builder.prestart) {
        inner.close();
        return Err(PoolError::Worker(error));
    }
    #[cfg(any(feature = "observe", feature = "metrics"))]
    super::figures::register(&inner);
    Ok(inner)
}

/// Implements the methods that all pools have.
macro_rules! operations {
    ([$($generics:tt)*] $pool:ty, $job:ty) => {
        impl<$($generics)*> $crate::pool::operations::Pooling for $pool {
            type Job = $job;

            fn inner(&self) -> &::std::sync::Arc<$crate::pool::engine::Inner<$job>> {
                self.0.inner()
            }

            fn lane(&self) -> $crate::pool::state::lane::JobLane {
                self.0.lane
            }
        }

        impl<$($generics)*> $pool {
            /// Returns a handle to this pool for jobs of this priority, and otherwise the
            /// properties of this handle. The priority orders the jobs that are
            /// [queued](crate::pool::Builder::queue). Submitters that wait for a place are served
            /// first come, first served.
            ///
            /// ```
            /// use std::sync::mpsc;
            /// use procession::pool::{Pool, Priority, Queue};
            ///
            /// let pool = Pool::builder().capacity(1).queue(Queue::Unbounded).build()?;
            /// let (gate, opened) = mpsc::channel::<()>();
            /// pool.execute(move || opened.recv().unwrap())?;
            ///
            /// let (report, reports) = mpsc::channel();
            /// for priority in [Priority::Low, Priority::Normal, Priority::High] {
            ///     let report = report.clone();
            ///     pool.with_priority(priority).execute(move || report.send(priority).unwrap())?;
            /// }
            /// gate.send(())?;
            /// drop(report);
            /// let order: Vec<_> = reports.iter().collect();
            /// assert_eq!(order, [Priority::High, Priority::Normal, Priority::Low]);
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            #[must_use = "it changes nothing about this handle"]
            pub fn with_priority(&self, priority: $crate::pool::Priority) -> Self {
                let lane = self.0.lane;
                Self(self.0.in_lane($crate::pool::state::lane::JobLane { priority, ..lane }))
            }

            /// Returns a handle to this pool for jobs that run one after another, in the order in
            /// which the pool takes them, with all other jobs of an equal key. A job begins when
            /// the one before has returned, has panicked or was cancelled. Jobs of different keys
            /// run at the same time.
            ///
            /// A job that is held behind another one counts as queued and uses a place, so the
            /// bounds of the pool hold for it. Nothing is kept for a key without jobs. If the pool
            /// is full, such a job is never run by its submitter
            /// ([`OnFull::CallerRuns`](crate::pool::OnFull::CallerRuns)), but waits for a place.
            ///
            /// The pool knows a key only by a hash of 64 bits. Keys of one hash share an order.
            ///
            /// ```
            /// use std::sync::mpsc;
            /// use procession::pool::{Pool, Queue};
            ///
            /// let pool = Pool::builder().capacity(4).queue(Queue::Unbounded).build()?;
            /// let (report, reports) = mpsc::channel();
            /// let account = pool.with_key("account 7");
            /// for n in 0..100 {
            ///     let report = report.clone();
            ///     account.execute(move || report.send(n).unwrap())?;
            /// }
            /// drop(report);
            /// assert!(reports.iter().eq(0..100));
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Deadlocks
            /// A job must not wait for a later job of its own key. If all busy workers wait like
            /// that, a `join` of a thread pool returns
            /// [`JobError::WouldDeadlock`](crate::pool::JobError::WouldDeadlock).
            #[must_use = "it changes nothing about this handle"]
            pub fn with_key<K: ::std::hash::Hash + ?Sized>(&self, key: &K) -> Self {
                Self(self.0.in_lane(self.0.lane.with_key(key)))
            }

            /// Waits for a place in the pool, behind all earlier waiters, and reserves it. Async
            /// code that submits through it is slowed down to the pace of the pool. It waits
            /// whatever [`Builder::on_full`](crate::pool::Builder::on_full) says.
            ///
            /// # Errors
            /// [`SubmitError`](crate::pool::SubmitError): the pool is closed, the limit of waiting
            /// submitters is reached, or the caller is a job of the pool that would wait forever.
            ///
            /// # Cancellation
            /// If it is dropped while it waits, it leaves the wait list. A place that it was
            /// granted meanwhile goes to the next waiter.
            pub fn reserve(&self) -> $crate::pool::operations::Reserve<'_, Self> {
                $crate::pool::operations::Reserve::new(self)
            }

            /// Reserves a place, if there is one.
            ///
            /// # Errors
            /// [`SubmitError`](crate::pool::SubmitError): the pool is full or closed.
            pub fn try_reserve(&self) -> Result<$crate::pool::operations::Permit<'_, Self>, $crate::pool::error::SubmitError<()>> {
                $crate::pool::operations::Permit::try_new(self)
            }

            /// Returns the numbers of the pool, all taken at the same moment.
            pub fn stats(&self) -> $crate::pool::stats::PoolStats {
                self.0.inner().stats()
            }

            /// Returns `true` if the pool is closed.
            pub fn is_closed(&self) -> bool {
                self.0.inner().is_closed()
            }

            /// Changes the capacity, and returns the old one.
            ///
            /// If it grows, waiters go on at once. If it shrinks, surplus idle workers leave at
            /// once, and surplus busy ones after their job.
            ///
            /// # Errors
            /// [`PoolError::OutOfRange`](crate::pool::PoolError::OutOfRange): the capacity is 0.
            pub fn resize(&self, capacity: usize) -> Result<usize, $crate::pool::error::PoolError> {
                self.0.inner().resize(capacity)
            }

            /// Changes how long an idle worker stays. It applies to workers that become idle later.
            pub fn set_keep_alive(&self, idle: ::std::time::Duration) {
                self.0.inner().set_keep_alive(idle);
            }

            /// Closes the pool, and returns `true` if it was open.
            ///
            /// Once this has returned, no job is taken any more. Submitters that wait for a place
            /// get their jobs back, and queued jobs still run. The call waits for nothing, and a
            /// job may make it.
            pub fn close(&self) -> bool {
                self.0.inner().close()
            }

            /// Closes the pool, cancels the queued jobs and returns how many there were. Running
            /// jobs go on. Every handle resolves.
            pub fn shutdown_now(&self) -> usize {
                self.0.inner().shutdown_now()
            }

            /// Waits until a closed pool has run all its jobs, and its workers have run their
            /// hooks. It can be repeated.
            ///
            /// # Errors
            /// [`WaitError`](crate::pool::WaitError): the pool is open, or the caller is one of its
            /// jobs.
            #[track_caller]
            pub fn ended(
                &self,
            ) -> impl Future<Output = Result<(), $crate::pool::error::WaitError>> {
                $crate::scheduler::placed::placed(async move { self.0.inner().drained().await })
            }

            /// Waits until no job is queued and none runs, whether the pool is open or closed.
            ///
            /// # Errors
            /// [`WaitError`](crate::pool::WaitError): the caller is one of its jobs.
            #[track_caller]
            pub fn idle(
                &self,
            ) -> impl Future<Output = Result<(), $crate::pool::error::WaitError>> {
                $crate::scheduler::placed::placed(async move { self.0.inner().idle().await })
            }

            /// Opens a closed pool again, once its last worker has left. Places that were reserved
            /// before stay void.
            ///
            /// # Errors
            /// [`PoolError::NotDrained`](crate::pool::PoolError::NotDrained): the pool is open, or
            /// not all of its jobs and workers have ended.
            pub fn reopen(&self) -> Result<(), $crate::pool::error::PoolError> {
                self.0.inner().reopen()
            }
        }

        impl<$($generics)*> ::std::fmt::Debug for $pool {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(&**self.0.inner(), f)
            }
        }
    };
}

/// Implements the blocking methods of pools of threads.
macro_rules! thread_operations {
    ([$($generics:tt)*] $pool:ty) => {
        impl<$($generics)*> $pool {
            /// Waits until a closed pool has run all its jobs, and its workers have run their
            /// hooks. It waits at most for `timeout`, if there is one, and can be repeated.
            ///
            /// # Errors
            /// [`WaitError`](crate::pool::WaitError): the timeout was reached, the pool is open, or
            /// the caller is one of its jobs.
            ///
            /// # Blocking
            /// Blocks the thread. In async code, await [`ended`](Self::ended).
            pub fn wait(&self, timeout: Option<::std::time::Duration>) -> Result<(), $crate::pool::error::WaitError> {
                self.0.inner().drained().block(timeout)
            }

            /// Waits until no job is queued and none runs, whether the pool is open or closed. It
            /// waits at most for `timeout`, if there is one.
            ///
            /// # Errors
            /// [`WaitError`](crate::pool::WaitError): the timeout was reached, or the caller is one
            /// of its jobs.
            ///
            /// # Blocking
            /// Blocks the thread. In async code, await [`idle`](Self::idle).
            pub fn wait_idle(&self, timeout: Option<::std::time::Duration>) -> Result<(), $crate::pool::error::WaitError> {
                self.0.inner().idle().block(timeout)
            }
        }
    };
}

pub(super) use {operations, thread_operations};

/// The future of a place in a pool, returned by the `reserve` method of the pool.
#[must_use = "futures do nothing unless awaited"]
#[expect(private_bounds, reason = "only pools of this module have places")]
pub struct Reserve<'a, P: Pooling> {
    pool: &'a P,
    place: PlaceWait<'a, P::Job>,
}

#[expect(private_bounds, reason = "only pools of this module have places")]
impl<'a, P: Pooling> Reserve<'a, P> {
    pub(super) fn new(pool: &'a P) -> Self {
        Self { pool, place: pool.inner().place(false) }
    }
}

impl<'a, P: Pooling> Future for Reserve<'a, P> {
    type Output = Result<Permit<'a, P>, SubmitError<()>>;

    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let pool = self.pool;
        Pin::new(&mut self.place).poll(task).map(|placed| Permit::of(pool, placed))
    }
}

impl<P: Pooling> fmt::Debug for Reserve<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reserve").field("waits", &self.place.is_enlisted()).finish_non_exhaustive()
    }
}

/// A reserved place in a pool, for one job. If it is dropped, the place goes to the next waiter. If
/// the pool is closed meanwhile, the reservation is void.
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
///     Ok::<i32, Box<dyn std::error::Error>>(sum)
/// })?;
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it gives the place back"]
#[expect(private_bounds, reason = "only pools of this module have places")]
pub struct Permit<'a, P: Pooling> {
    pub(super) pool: &'a P,
    generation: Option<u64>,
}

#[expect(private_bounds, reason = "only pools of this module have places")]
impl<'a, P: Pooling> Permit<'a, P> {
    pub(super) fn try_new(pool: &'a P) -> Result<Self, SubmitError<()>> {
        Self::of(pool, pool.inner().try_reserve())
    }

    fn of(pool: &'a P, placed: Result<u64, SubmitErrorKind>) -> Result<Self, SubmitError<()>> {
        match placed {
            Ok(generation) => Ok(Self { pool, generation: Some(generation) }),
            Err(kind) => Err(SubmitError::new((), kind)),
        }
    }

    /// Enters a job into the place.
    pub(super) fn enter<C>(
        mut self,
        content: C,
        make: impl FnOnce(C) -> P::Job,
    ) -> Result<u64, SubmitError<C>> {
        let generation = self.generation.take().expect("a permit is used once");
        let inner = self.pool.inner();
        let entered = inner.enter_reserved(generation, self.pool.lane(), content, make);
        inner.count_if_refused(&entered);
        entered
    }
}

impl<P: Pooling> Drop for Permit<'_, P> {
    fn drop(&mut self) {
        if let Some(generation) = self.generation.take() {
            self.pool.inner().release(generation);
        }
    }
}

impl<P: Pooling> fmt::Debug for Permit<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Permit(..)")
    }
}
