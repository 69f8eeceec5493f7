//! What a job wants, and its way into a pool: immediately, after a wait for a place, or in its
//! submitter.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use procession_protocols::pool::state::lane::JobLane;
use procession_protocols::pool::state::outcome::{EnterError, Entered};
use procession_protocols::process::priority::Priority;
use procession_protocols::sync::wait_list::Place;

use super::block::block;
use super::builder::OnFull;
use super::engine::Inner;
use super::error::SubmitError;
use super::job::JobEnds;
use super::job_handle::JobHandle;
use super::members::{PoolOwner, least_loaded, of_key, pick};
use super::source::{JobSource, Owning};
use crate::process::served::TaskWaker;
use crate::process::wait_reason::Waiting;
use crate::scheduler::block_on::block_on;
use crate::scheduler::budget;
use crate::scheduler::current;
use crate::scheduler::origin::JobOrigin;
use crate::scheduler::placed::{Placed, placed};
use crate::time;

/// The way in which the methods of a pool wait: [`BlockingCalls`] or [`AsyncCalls`].
pub trait Calls: Sized + 'static {
    /// What a method returns that may wait: the result itself, or a future of the result.
    type Returned<F: Future>;

    /// Submits a job: `here`, on the calling thread, or `later`, by a future.
    #[doc(hidden)]
    #[track_caller]
    fn call<P, F: Future>(
        prepared: P,
        here: impl FnOnce(P) -> F::Output,
        later: impl FnOnce(P) -> F,
    ) -> Self::Returned<F>;
}

/// Marks a pool with methods that block the calling thread and return the result.
#[derive(Debug)]
pub enum BlockingCalls {}

impl Calls for BlockingCalls {
    type Returned<F: Future> = F::Output;

    // A future that is polled once would do as well. But each of its layers would move the content
    // once more, and a blocking call needs none of these layers.
    fn call<P, F: Future>(
        prepared: P,
        here: impl FnOnce(P) -> F::Output,
        _: impl FnOnce(P) -> F,
    ) -> F::Output {
        here(prepared)
    }
}

/// Marks a pool with methods that return a future, which is awaited.
#[derive(Debug)]
pub enum AsyncCalls {}

impl Calls for AsyncCalls {
    type Returned<F: Future> = Placed<F>;

    #[track_caller]
    fn call<P, F: Future>(
        prepared: P,
        _: impl FnOnce(P) -> F::Output,
        later: impl FnOnce(P) -> F,
    ) -> Placed<F> {
        placed(later(prepared))
    }
}

/// Describes a job of a pool, and submits it.
///
/// The methods of a pool of threads block. The methods of other pools return a future.
///
/// | method | returns a handle | if the pool is full |
/// |---|---|---|
/// | [`submit`](JobBuilder::submit) | yes | waits up to the [`timeout`], or follows [`on_full`] |
/// | [`execute`](JobBuilder::execute) | no | like `submit` |
/// | [`try_submit`](JobBuilder::try_submit) | yes | returns the job |
/// | [`try_execute`](JobBuilder::try_execute) | no | returns the job |
///
/// [`timeout`]: JobBuilder::timeout
/// [`on_full`]: super::Builder::on_full
#[must_use = "a job is not submitted until one of the methods says how"]
pub struct JobBuilder<'a, M, J: Send + 'static, C, S = Owning> {
    entry: Entry<'a, J>,
    source: S,
    content: C,
    calls: PhantomData<fn() -> M>,
}

impl<'a, M: Calls, J: Send + 'static, C: Send, S: JobSource<J, C>> JobBuilder<'a, M, J, C, S> {
    pub(super) fn new(
        members: &'a [PoolOwner<J>],
        reserved: Option<ReservedPlace<'a, J>>,
        source: S,
        content: C,
    ) -> Self {
        let on_full = members[0].0.on_full;
        let entry = Entry { members, reserved, lane: JobLane::default(), on_full, timeout: None };
        Self { entry, source, content, calls: PhantomData }
    }

    /// Sets the priority, which orders the jobs that are [queued](super::Builder::queue).
    /// Submitters that wait for a place are served first come, first served. A pool without a queue
    /// refuses a job with another priority than the default one
    /// ([`SubmitError::is_no_queue`]). Default: [`Priority::Normal`].
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
    /// for priority in [Priority::Batch, Priority::Normal, Priority::High] {
    ///     let report = report.clone();
    ///     pool.job(move || report.send(priority).unwrap()).priority(priority).execute()?;
    /// }
    /// gate.send(())?;
    /// drop(report);
    /// let order: Vec<_> = reports.iter().collect();
    /// assert_eq!(order, [Priority::High, Priority::Normal, Priority::Batch]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn priority(mut self, priority: Priority) -> Self {
        self.entry.lane.priority = priority;
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
    /// A job must not wait for a later job with the same key. If all busy workers wait like that, a
    /// `join` of a thread pool returns [`JobError::WouldDeadlock`](super::JobError::WouldDeadlock).
    pub fn key<K: Hash + ?Sized>(mut self, key: &K) -> Self {
        self.entry.lane = self.entry.lane.with_key(key);
        self
    }

    /// If the pool is full, waits for a place, at most for this time, whatever
    /// [`Builder::on_full`](super::Builder::on_full) says. The time of the job itself is not
    /// limited. [`try_submit`](Self::try_submit) and [`try_execute`](Self::try_execute) wait for
    /// nothing, whatever the timeout is.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        (self.entry.on_full, self.entry.timeout) = (OnFull::Wait, Some(timeout));
        self
    }

    /// Runs the job without a handle. A panic goes to the handler of the pool
    /// ([`Builder::on_panic`](super::Builder::on_panic)).
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Blocking
    /// In a pool of threads, blocks the thread while it waits for a place.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it leaves the wait list and drops the job,
    /// which the pool has not taken then.
    #[track_caller]
    pub fn execute(self) -> M::Returned<impl Future<Output = Result<(), SubmitError<C>>> + Send>
    where
        S: JobSource<J, C, Discarded = ()>,
    {
        let (prepared, ()) = self.prepare(JobEnds::detached);
        M::call(
            prepared,
            |prepared| prepared.enter_here().map(drop),
            |prepared| async move { prepared.enter_later().await.map(drop) },
        )
    }

    /// Runs the job, and returns a handle to its result.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Blocking
    /// Like [`execute`](Self::execute).
    ///
    /// # Cancellation
    /// Like [`execute`](Self::execute).
    #[track_caller]
    pub fn submit(
        self,
    ) -> M::Returned<impl Future<Output = Result<JobHandle<S::Output>, SubmitError<C>>> + Send>
    {
        let handle = |(inner, ticket): (&Arc<Inner<J>>, _), cell| {
            JobHandle::new(Arc::clone(inner) as _, cell, ticket)
        };
        M::call(
            self.prepare(JobEnds::with_handle),
            |(prepared, cell)| prepared.enter_here().map(|taken| handle(taken, cell)),
            |(prepared, cell)| async move {
                prepared.enter_later().await.map(|taken| handle(taken, cell))
            },
        )
    }

    /// Runs the job without a handle, if the pool is not full. It waits for nothing.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    pub fn try_execute(self) -> Result<(), SubmitError<C>>
    where
        S: JobSource<J, C, Discarded = ()>,
    {
        self.now().execute()
    }

    /// Runs the job, and returns a handle to its result, if the pool is not full. It waits for
    /// nothing.
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    pub fn try_submit(self) -> Result<JobHandle<S::Output>, SubmitError<C>> {
        self.now().submit()
    }

    /// Has the job wait for nothing, so the call blocks in no kind of pool. Charges the process
    /// that runs here, if the workers are processes.
    fn now(mut self) -> JobBuilder<'a, BlockingCalls, J, C, S> {
        if self.entry.members[0].0.scheduler.is_some() {
            budget::spend();
        }
        self.entry.on_full = OnFull::Refuse;
        let Self { entry, source, content, .. } = self;
        JobBuilder { entry, source, content, calls: PhantomData }
    }

    /// Boxes the job, and returns the other end of its result.
    ///
    /// Called outside of the future that enters the job. Otherwise the content would be moved from
    /// future to future.
    fn prepare<R>(
        self,
        ends: impl FnOnce(JobOrigin) -> (JobEnds<S::Output>, R),
    ) -> (PreparedEntry<'a, J, C, S>, R) {
        let Self { mut entry, source, content, .. } = self;
        let first = entry.first();
        // A process knows its scheduler. Only a job on a thread needs its origin.
        let origin = match first.scheduler {
            Some(_) => JobOrigin::default(),
            None => JobOrigin::current(),
        };
        let (ends, rest) = ends(origin);
        (PreparedEntry { entry, first, job: source.boxed(content, ends) }, rest)
    }
}

/// A job, and its way into a pool.
struct PreparedEntry<'a, J: Send + 'static, C: Send, S: JobSource<J, C>> {
    entry: Entry<'a, J>,
    /// The member to which the job goes first.
    first: &'a Arc<Inner<J>>,
    job: S::Boxed,
}

impl<'a, J: Send + 'static, C: Send, S: JobSource<J, C>> PreparedEntry<'a, J, C, S> {
    /// Enters the job on the calling thread. Returns the pool that has taken it, and its ticket.
    fn enter_here(self) -> Result<(&'a Arc<Inner<J>>, u64), SubmitError<C>> {
        let Self { entry, first, job } = self;
        let taken = match entry.check(first) {
            Ok(()) => entry.put(first, job),
            Err(error) => Err((job, error)),
        };
        taken.map_err(|refused| Self::refused(first, refused))
    }

    /// Enters the job in a future, as [`enter_here`](Self::enter_here) does.
    async fn enter_later(self) -> Result<(&'a Arc<Inner<J>>, u64), SubmitError<C>> {
        let Self { entry, first, job } = self;
        let taken = match entry.check(first) {
            Ok(()) => entry.put_async(first, job).await,
            Err(error) => Err((job, error)),
        };
        taken.map_err(|refused| Self::refused(first, refused))
    }

    #[cold]
    fn refused(first: &Inner<J>, (job, error): (S::Boxed, EnterError)) -> SubmitError<C> {
        // The protocol has counted the refusal of a worker.
        if !matches!(error, EnterError::Worker(_)) {
            first.core.count_refused();
        }
        SubmitError::new(S::content(job), error)
    }
}

impl<M, J: Send + 'static, C, S> fmt::Debug for JobBuilder<'_, M, J, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { lane, on_full, timeout, .. } = &self.entry;
        f.debug_struct("JobBuilder")
            .field("lane", lane)
            .field("on_full", on_full)
            .field("timeout", timeout)
            .finish_non_exhaustive()
    }
}

/// The pool that has taken a job, and its ticket, or the job that was refused.
type Taken<'a, J, B> = Result<(&'a Arc<Inner<J>>, u64), (B, EnterError)>;

/// The way of a job into a pool.
struct Entry<'a, J: Send + 'static> {
    members: &'a [PoolOwner<J>],
    reserved: Option<ReservedPlace<'a, J>>,
    lane: JobLane,
    on_full: OnFull,
    /// The most time to wait for a place.
    timeout: Option<Duration>,
}

impl<'a, J: Send + 'static> Entry<'a, J> {
    /// Refuses a priority if no queue is there that it could order.
    fn check(&self, first: &Inner<J>) -> Result<(), EnterError> {
        let is_ordered = self.lane.priority == Priority::default() || first.has_queue;
        if is_ordered { Ok(()) } else { Err(EnterError::NoQueue) }
    }

    /// Returns the member to which the job goes first, and for which it waits.
    fn first(&mut self) -> &'a Arc<Inner<J>> {
        let member = match (self.lane.key, &self.reserved) {
            (Some(key), _) => of_key(self.members, key),
            (None, Some(place)) => place.inner,
            (None, None) => pick(self.members),
        };
        // Jobs of one key have an order only within a member. So a place in another member is given
        // back.
        drop(self.reserved.take_if(|place| !Arc::ptr_eq(place.inner, member)));
        member
    }

    /// Enters a job if there is a place in the first member, or else in the least loaded one.
    fn offer<B: Into<J>>(&mut self, first: &'a Arc<Inner<J>>, job: B) -> Taken<'a, J, B> {
        let reserved = self.reserved.take().map(ReservedPlace::into_generation);
        match first.enter(reserved, self.lane, job) {
            // Jobs of one key have an order only within a pool.
            Err((job, EnterError::Full)) if self.members.len() > 1 && self.lane.key.is_none() => {
                let least = least_loaded(self.members);
                least.enter(None, self.lane, job).map(|ticket| (least, ticket))
            }
            entered => entered.map(|ticket| (first, ticket)),
        }
    }

    /// Enters a job. If the pool is full, waits on this thread, refuses, or runs the job here. A
    /// job with a key is not run here, because an earlier one of its key may not have ended.
    fn put<B: Into<J> + Send>(mut self, first: &'a Arc<Inner<J>>, job: B) -> Taken<'a, J, B> {
        let job = match self.offer(first, job) {
            Err((job, EnterError::Full)) if self.on_full != OnFull::Refuse => job,
            entered => return entered,
        };
        if let Some(shared) = &first.scheduler {
            return block_on(shared, self.put_async(first, job));
        }
        if self.on_full == OnFull::CallerRuns && self.lane.key.is_none() {
            let Some(ticket) = first.core.begin_inline() else {
                return Err((job, EnterError::Closed));
            };
            first.run_inline(ticket, job.into());
            return Ok((first, ticket));
        }
        let mut place = PlaceWait::new(first, self.timeout.is_some());
        let mut job = Some(job);
        let entered = block(self.timeout, |task| place.poll(task, Some((self.lane, &mut job))));
        ended(first, entered.unwrap_or(Err(EnterError::TimedOut)), job)
    }

    /// Enters a job. If the pool is full, waits as async code does, or refuses. An async submitter
    /// never runs the job: only a worker of the pool polls it.
    async fn put_async<B: Into<J> + Send>(
        mut self,
        first: &'a Arc<Inner<J>>,
        job: B,
    ) -> Taken<'a, J, B> {
        let mut job = Some(job);
        if self.reserved.is_some() || self.members.len() > 1 || self.on_full == OnFull::Refuse {
            poll_fn(|task| if budget::charge_act(task) { Poll::Ready(()) } else { Poll::Pending })
                .await;
            match self.offer(first, job.take().expect("it is offered first")) {
                Err((refused, EnterError::Full)) if self.on_full != OnFull::Refuse => {
                    job = Some(refused);
                }
                entered => return entered,
            }
        }
        let mut place = PlaceWait::new(first, self.timeout.is_some());
        let entering = poll_fn(|task| {
            let may_act = budget::charge_act(task) || place.is_enlisted();
            if !may_act && !first.core.must_wait() {
                return Poll::Pending;
            }
            let entered = place.poll(task, Some((self.lane, &mut job)));
            if entered.is_pending() {
                current::note_waiting(Waiting::JOB);
            }
            // An answer without a job is the same in the next step.
            if may_act || job.is_none() { entered } else { Poll::Pending }
        });
        let entered = match self.timeout {
            Some(timeout) => time::timeout(timeout, entering).await.ok(),
            None => Some(entering.await),
        };
        drop(place);
        ended(first, entered.unwrap_or(Err(EnterError::TimedOut)), job)
    }
}

/// Returns the result of a wait that has ended, with the job if it was not taken.
fn ended<'a, J: Send + 'static, B>(
    first: &'a Arc<Inner<J>>,
    entered: Result<u64, EnterError>,
    job: Option<B>,
) -> Taken<'a, J, B> {
    match entered {
        Ok(ticket) => Ok((first, ticket)),
        Err(error) => Err((job.expect("a job that was not taken is still here"), error)),
    }
}

impl<J: Send + 'static> Inner<J> {
    pub(super) fn enter<B: Into<J>>(
        self: &Arc<Self>,
        reserved: Option<u64>,
        lane: JobLane,
        job: B,
    ) -> Entered<B> {
        self.step(|core, start| core.enter(reserved, lane, job, start))
    }
}

/// A reserved place in a pool. Dropping this value releases the place.
pub(super) struct ReservedPlace<'a, J: Send + 'static> {
    pub(super) inner: &'a Arc<Inner<J>>,
    pub(super) generation: u64,
}

impl<J: Send + 'static> ReservedPlace<'_, J> {
    /// Returns the generation of the place, which is used now.
    fn into_generation(self) -> u64 {
        let generation = self.generation;
        std::mem::forget(self);
        generation
    }
}

impl<J: Send + 'static> Drop for ReservedPlace<'_, J> {
    fn drop(&mut self) {
        self.inner.woken(((), self.inner.core.release(self.generation)));
    }
}

/// Waits for a place in a pool. Dropping it ends the wait.
pub(super) struct PlaceWait<'a, J: Send + 'static> {
    inner: &'a Arc<Inner<J>>,
    place: Option<Place>,
    /// `true` if the wait has a timeout.
    timed: bool,
}

impl<'a, J: Send + 'static> PlaceWait<'a, J> {
    pub(super) fn new(inner: &'a Arc<Inner<J>>, timed: bool) -> Self {
        Self { inner, place: None, timed }
    }

    /// Enters a job as soon as there is a place, and returns its ticket. Without a job, returns the
    /// generation of a reserved place.
    pub(super) fn poll<B: Into<J>>(
        &mut self,
        task: &TaskContext<'_>,
        job: Option<(JobLane, &mut Option<B>)>,
    ) -> Poll<Result<u64, EnterError>> {
        let Self { inner, place, timed } = self;
        let own = if *timed || place.is_some() { None } else { inner.own_worker() };
        let mut another = TaskWaker::of(task.waker());
        another.prepare();
        inner.step(|core, start| core.admit(place, job, start, &mut another, own))
    }

    fn is_enlisted(&self) -> bool {
        self.place.is_some()
    }
}

impl<J: Send + 'static> Drop for PlaceWait<'_, J> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.inner.woken(((), self.inner.core.leave_wait(place)));
        }
    }
}
