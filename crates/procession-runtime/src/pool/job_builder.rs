//! What a job wants, and how it is submitted.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::pool::state::lane::{JobLane, Priority};

use super::builder::OnFull;
use super::engine::Inner;
use super::error::SubmitError;
use super::job::{JobEnds, ResultCell};
use super::job_handle::JobHandle;
use super::source::{JobSource, Owning};
use super::submit::{FullPolicy, ReservedPlace};
use crate::scheduler::block_on::block_on;
use crate::scheduler::budget;
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::placed::placed;

/// Marks a pool whose methods block the calling thread.
#[derive(Debug)]
pub enum BlockingCalls {}

/// Marks a pool whose methods are awaited.
#[derive(Debug)]
pub enum AsyncCalls {}

/// Several pools that share the work.
pub(super) trait Members<J>: Sync {
    fn least_loaded(&self) -> &Arc<Inner<J>>;
    /// Returns the member that gets all jobs of this key.
    fn of_key(&self, key: u64) -> &Arc<Inner<J>>;
}

/// The way of a job into a pool.
pub(super) enum EntryWay<'a, J> {
    /// As all jobs of the pool.
    OfThePool,
    /// In a reserved place.
    Reserved(ReservedPlace<'a, J>),
    /// In one of these pools.
    OneOf(&'a dyn Members<J>),
}

/// The pool that has taken a job, and its ticket, or the job that was refused.
type EnteredInto<'a, J, B> = Result<(&'a Arc<Inner<J>>, u64), SubmitError<B>>;

/// A job, apart from what it runs.
struct Submission<'a, J, S> {
    inner: &'a Arc<Inner<J>>,
    way: EntryWay<'a, J>,
    source: S,
    lane: JobLane,
    policy: FullPolicy,
}

/// Describes a job of a pool, and submits it.
///
/// The methods of a pool of threads block, and those of the other pools return a future.
///
/// | method | returns a handle | if the pool is full |
/// |---|---|---|
/// | [`submit`](JobBuilder::submit) | yes | waits at most for the [`timeout`](JobBuilder::timeout), or does what [`Builder::on_full`](super::Builder::on_full) says |
/// | [`execute`](JobBuilder::execute) | no | like `submit` |
/// | [`try_submit`](JobBuilder::try_submit) | yes | returns the job |
/// | [`try_execute`](JobBuilder::try_execute) | no | returns the job |
#[must_use = "a job is not submitted until one of the methods says how"]
pub struct JobBuilder<'a, M, J, C, S = Owning> {
    submission: Submission<'a, J, S>,
    content: C,
    calls: PhantomData<fn() -> M>,
}

impl<'a, M, J: Send + 'static, C: Send, S: JobSource<J, C>> JobBuilder<'a, M, J, C, S> {
    pub(super) fn new(
        inner: &'a Arc<Inner<J>>,
        way: EntryWay<'a, J>,
        source: S,
        content: C,
        on_full: OnFull,
    ) -> Self {
        let policy = on_full.into();
        let submission = Submission { inner, way, source, lane: JobLane::default(), policy };
        Self { submission, content, calls: PhantomData }
    }

    /// Sets the priority, which orders the jobs that are [queued](super::Builder::queue).
    /// Submitters that wait for a place are served first come, first served. Default:
    /// [`Priority::Normal`].
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
    ///     pool.job(move || report.send(priority).unwrap()).priority(priority).execute()?;
    /// }
    /// gate.send(())?;
    /// drop(report);
    /// let order: Vec<_> = reports.iter().collect();
    /// assert_eq!(order, [Priority::High, Priority::Normal, Priority::Low]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.submission.lane.priority = priority;
        self
    }

    /// Has the job run after all earlier jobs of an equal key, in the order in which the pool takes
    /// them. A job begins when the one before has returned, has panicked or was cancelled. Jobs of
    /// different keys run at the same time.
    ///
    /// A job that is held behind another one counts as queued and uses a place, so the bounds of
    /// the pool hold for it. Nothing is kept for a key without jobs. If the pool is full, such a
    /// job is never run by its submitter ([`OnFull::CallerRuns`]), but waits for a place. Several
    /// pools that act as one give all jobs of a key to the same member.
    ///
    /// The pool knows a key only by a hash of 64 bits. Keys of one hash share an order.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use procession::pool::{Pool, Queue};
    ///
    /// let pool = Pool::builder().capacity(4).queue(Queue::Unbounded).build()?;
    /// let (report, reports) = mpsc::channel();
    /// for n in 0..100 {
    ///     let report = report.clone();
    ///     pool.job(move || report.send(n).unwrap()).key("account 7").execute()?;
    /// }
    /// drop(report);
    /// assert!(reports.iter().eq(0..100));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Deadlocks
    /// A job must not wait for a later job of its own key. If all busy workers wait like that, a
    /// `join` of a thread pool returns [`JobError::WouldDeadlock`](super::JobError::WouldDeadlock).
    pub fn key<K: Hash + ?Sized>(mut self, key: &K) -> Self {
        self.submission.lane = self.submission.lane.with_key(key);
        self
    }

    /// If the pool is full, waits for a place, at most for this time, whatever
    /// [`Builder::on_full`](super::Builder::on_full) says. The time of the job itself is not
    /// limited.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.submission.policy = FullPolicy::Wait(Some(timeout));
        self
    }

    /// Runs the job without a handle, if the pool is not full. It waits for nothing.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    pub fn try_execute(self) -> Result<(), SubmitError<C>>
    where
        S: JobSource<J, C, Discarded = ()>,
    {
        let (mut submission, boxed, ()) = self.boxed(detached);
        submission.spend();
        submission.offer::<C>(boxed).map(drop).map_err(refused::<S, J, C>)
    }

    /// Runs the job, and returns a handle to its result, if the pool is not full. It waits for
    /// nothing.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    pub fn try_submit(self) -> Result<S::Handle, SubmitError<C>> {
        let (mut submission, boxed, cell) = self.boxed(JobEnds::with_handle);
        submission.spend();
        submitted::<S, J, C>(submission.offer::<C>(boxed), cell)
    }

    fn boxed<R>(
        self,
        ends: impl FnOnce(JobOrigin) -> (JobEnds<S::Output>, R),
    ) -> (Submission<'a, J, S>, S::Boxed, R) {
        let Self { submission, content, .. } = self;
        // Processes have a scheduler. Only a job on a thread must be told where it comes from.
        let origin = match submission.inner.engine.scheduler() {
            Some(_) => JobOrigin::default(),
            None => JobOrigin::current(),
        };
        let (ends, rest) = ends(origin);
        (submission, S::boxed(content, ends), rest)
    }
}

fn detached<T>(origin: JobOrigin) -> (JobEnds<T>, ()) {
    (JobEnds::detached(origin), ())
}

fn submitted<S: JobSource<J, C>, J: Send + 'static, C: Send>(
    taken: EnteredInto<'_, J, S::Boxed>,
    cell: Arc<ResultCell<S::Output>>,
) -> Result<S::Handle, SubmitError<C>> {
    taken
        .map(|(inner, ticket)| S::handle(JobHandle::new(Arc::clone(inner) as _, cell, ticket)))
        .map_err(refused::<S, J, C>)
}

fn refused<S: JobSource<J, C>, J, C: Send>(error: SubmitError<S::Boxed>) -> SubmitError<C> {
    SubmitError::of(error, S::content)
}

impl<'a, J: Send + 'static, S> Submission<'a, J, S> {
    /// Charges the process that runs here, if the workers are processes.
    fn spend(&self) {
        if self.inner.engine.scheduler().is_some() {
            budget::spend();
        }
    }

    /// Enters a job if there is a place.
    fn offer<C: Send>(&mut self, boxed: S::Boxed) -> EnteredInto<'a, J, S::Boxed>
    where
        S: JobSource<J, C>,
    {
        let (inner, lane, source) = (self.inner, self.lane, &self.source);
        let make = |boxed| source.job(boxed);
        let here = |ticket| (inner, ticket);
        match std::mem::replace(&mut self.way, EntryWay::OfThePool) {
            EntryWay::OfThePool => inner.put_now(lane, boxed, make).map(here),
            EntryWay::Reserved(place) => place.enter(lane, boxed, make).map(here),
            EntryWay::OneOf(pools) => {
                // Jobs of one key have an order only within a pool.
                let first = lane.key.map_or(inner, |key| pools.of_key(key));
                self.inner = first;
                match first.put_now(lane, boxed, make) {
                    Err(error) if error.is_full() && lane.key.is_none() => {
                        let least = pools.least_loaded();
                        least.put_now(lane, error.into_inner(), make).map(|ticket| (least, ticket))
                    }
                    entered => entered.map(|ticket| (first, ticket)),
                }
            }
        }
    }

    /// Offers a job, unless the pool does so itself. Returns a job that must wait for a place, or
    /// run here.
    fn begin<C: Send>(
        &mut self,
        boxed: S::Boxed,
    ) -> ControlFlow<EnteredInto<'a, J, S::Boxed>, S::Boxed>
    where
        S: JobSource<J, C>,
    {
        if matches!(self.way, EntryWay::OfThePool) {
            return ControlFlow::Continue(boxed);
        }
        match self.offer::<C>(boxed) {
            Err(error) if error.is_full() && !matches!(self.policy, FullPolicy::Refuse) => {
                ControlFlow::Continue(error.into_inner())
            }
            done => ControlFlow::Break(done),
        }
    }

    fn put<C: Send>(mut self, boxed: S::Boxed) -> EnteredInto<'a, J, S::Boxed>
    where
        S: JobSource<J, C>,
    {
        match self.begin::<C>(boxed) {
            ControlFlow::Break(done) => done,
            ControlFlow::Continue(boxed) => {
                let Self { inner, lane, policy, source, .. } = self;
                let make = |boxed| source.job(boxed);
                let ticket = match inner.engine.scheduler() {
                    Some(shared) => block_on(shared, inner.put_async(lane, boxed, policy, make)),
                    None => inner.put(lane, boxed, policy, make),
                };
                Ok((inner, ticket?))
            }
        }
    }

    async fn put_async<C: Send>(mut self, boxed: S::Boxed) -> EnteredInto<'a, J, S::Boxed>
    where
        S: JobSource<J, C>,
    {
        match self.begin::<C>(boxed) {
            ControlFlow::Break(done) => done,
            ControlFlow::Continue(boxed) => {
                let Self { inner, lane, policy, source, .. } = self;
                let make = |boxed| source.job(boxed);
                Ok((inner, inner.put_async(lane, boxed, policy, make).await?))
            }
        }
    }
}

impl<J: Send + 'static, C: Send, S: JobSource<J, C>> JobBuilder<'_, BlockingCalls, J, C, S> {
    /// Runs the job without a handle. A panic goes to the handler of the pool
    /// ([`Builder::on_panic`](super::Builder::on_panic)).
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute(self) -> Result<(), SubmitError<C>>
    where
        S: JobSource<J, C, Discarded = ()>,
    {
        let (submission, boxed, ()) = self.boxed(detached);
        submission.put::<C>(boxed).map(drop).map_err(refused::<S, J, C>)
    }

    /// Runs the job, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Blocking
    /// Like [`execute`](Self::execute).
    pub fn submit(self) -> Result<S::Handle, SubmitError<C>> {
        let (submission, boxed, cell) = self.boxed(JobEnds::with_handle);
        submitted::<S, J, C>(submission.put::<C>(boxed), cell)
    }
}

impl<J: Send + 'static, C: Send, S: JobSource<J, C>> JobBuilder<'_, AsyncCalls, J, C, S> {
    /// Runs the job without a handle. A panic goes to the handler of the pool
    /// ([`Builder::on_panic`](super::Builder::on_panic)).
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Cancellation
    /// If it is dropped before it completes, it leaves the wait list and drops the job, which the
    /// pool has not taken then.
    #[track_caller]
    pub fn execute(self) -> impl Future<Output = Result<(), SubmitError<C>>> + Send
    where
        S: JobSource<J, C, Discarded = ()>,
    {
        placed(async move {
            let (submission, boxed, ()) = self.boxed(detached);
            submission.put_async::<C>(boxed).await.map(drop).map_err(refused::<S, J, C>)
        })
    }

    /// Runs the job, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit(self) -> impl Future<Output = Result<S::Handle, SubmitError<C>>> + Send {
        placed(async move {
            let (submission, boxed, cell) = self.boxed(JobEnds::with_handle);
            submitted::<S, J, C>(submission.put_async::<C>(boxed).await, cell)
        })
    }
}

impl<M, J, C, S> fmt::Debug for JobBuilder<'_, M, J, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Submission { lane, policy, .. } = &self.submission;
        f.debug_struct("JobBuilder")
            .field("lane", lane)
            .field("policy", policy)
            .finish_non_exhaustive()
    }
}
