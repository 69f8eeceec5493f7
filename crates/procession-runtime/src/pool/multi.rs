//! Several pools that act as one.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::block::block;
use super::builder::{Builder, OnFull};
use super::engine::Inner;
use super::error::{PoolError, SubmitError, WaitError};
use super::job_builder::{AsyncCalls, BlockingCalls, EntryWay, JobBuilder, Members};
use super::job_handle::JobHandle;
use super::lifecycle::{QuiescenceWait, poll_all};
use super::operations::Pool;
use super::source::{JobSource, Owning};
use super::stats::PoolStats;
use crate::util::out_of_range::OutOfRange;

/// The most members. Each of them is asked for its load to find the least loaded one.
const MEMBERS_MAX: usize = 1024;

/// The choice of the member that gets the next job.
///
/// Available with the crate feature `pool`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// The members take turns.
    #[default]
    RoundRobin,
    /// The member with the fewest jobs: running, queued, reserved and waiting for a place. Idle
    /// workers are no load.
    LeastLoaded,
}

fn load(stats: &PoolStats) -> usize {
    stats.busy + stats.queued + stats.reserved + stats.waiting
}

/// Several pools that share the work, each with its own lock, capacity and queue.
///
/// A job goes to the member that [`Balance`] chooses. If that member is full, the job is offered to
/// the least loaded member. If both are full, the chosen member does what [`Builder::on_full`]
/// says. A job with a [key](JobBuilder::key) goes to the member of the key instead, and to no
/// other.
///
/// A job that awaits a job of another member
/// [lends it no place](super::AsyncPool#jobs-that-use-their-own-pool), because each member has a
/// capacity of its own.
///
/// ```
/// use procession::pool::{Balance, Pool};
///
/// let pools = Pool::builder().capacity(1).build_multi(4, Balance::LeastLoaded)?;
/// let handles: Vec<_> = (0..4).map(|n| pools.submit(move || n)).collect::<Result<_, _>>()?;
/// let sum: i32 = handles.into_iter().map(|handle| handle.join()).sum::<Result<_, _>>()?;
/// assert_eq!(sum, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Available with the crate feature `pool`.
pub struct MultiPool<P = Pool> {
    members: Arc<[P]>,
    balance: Balance,
    next: Arc<AtomicUsize>,
    on_full: OnFull,
}

impl<P> Clone for MultiPool<P> {
    fn clone(&self) -> Self {
        let Self { members, balance, next, on_full } = self;
        Self {
            members: Arc::clone(members),
            balance: *balance,
            next: Arc::clone(next),
            on_full: *on_full,
        }
    }
}

/// Available with the crate feature `pool`.
impl Builder {
    /// Builds `count` such pools of threads, 1 to 1024, as one.
    ///
    /// # Errors
    /// Like [`build`](Self::build). Also [`PoolError::OutOfRange`], if `count` is out of its range.
    pub fn build_multi(self, count: usize, balance: Balance) -> Result<MultiPool, PoolError> {
        self.build_multi_of(count, balance, Self::build)
    }

    /// Builds `count` pools of any kind, 1 to 1024, as one. `build` is called for each of them,
    /// with a clone of this builder.
    ///
    /// ```
    /// use procession::pool::{Balance, Pool};
    ///
    /// let double = |number: u32| number * 2;
    /// let pools = Pool::builder()
    ///     .capacity(1)
    ///     .build_multi_of(4, Balance::RoundRobin, |one| one.build_function(double))?;
    /// assert_eq!(pools.submit(21)?.join(), Ok(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error of `build`. Also [`PoolError::OutOfRange`], if `count` is out of its range.
    pub fn build_multi_of<P>(
        self,
        count: usize,
        balance: Balance,
        mut build: impl FnMut(Self) -> Result<P, PoolError>,
    ) -> Result<MultiPool<P>, PoolError> {
        OutOfRange::check("count", count, 1, MEMBERS_MAX)?;
        let members = (0..count).map(|_| build(self.clone())).collect::<Result<_, _>>()?;
        Ok(MultiPool {
            members,
            balance,
            next: Arc::new(AtomicUsize::new(0)),
            on_full: self.on_full,
        })
    }
}

impl<M, J: Send + 'static> MultiPool<Pool<M, J>> {
    /// Returns the members, which can be observed, resized and used on their own.
    pub fn members(&self) -> &[Pool<M, J>] {
        &self.members
    }

    /// Returns the member that gets the next job.
    pub fn pick(&self) -> &Pool<M, J> {
        match self.balance {
            // Relaxed: the numbers only have to differ.
            Balance::RoundRobin => {
                &self.members[self.next.fetch_add(1, Relaxed) % self.members.len()]
            }
            Balance::LeastLoaded => self.least_loaded(),
        }
    }

    fn least_loaded(&self) -> &Pool<M, J> {
        // Among equals, the choice rotates. Otherwise all threads that look at the same time would
        // choose the same member.
        let offset = self.next.fetch_add(1, Relaxed) % self.members.len();
        let (after, before) = (&self.members[offset..], &self.members[..offset]);
        let least = after.iter().chain(before).min_by_key(|member| load(&member.inner().stats()));
        least.expect("there is at least one")
    }

    /// Describes a job for one of the members. See [`Pool::job`].
    pub fn job<C: Send>(&self, content: C) -> JobBuilder<'_, M, J, C>
    where
        Owning: JobSource<J, C>,
    {
        JobBuilder::new(self.pick().inner(), EntryWay::OneOf(self), Owning, content, self.on_full)
    }

    /// Returns the sums over all members, each taken at a moment of its own. `closed` is true if
    /// all members are closed. `capacity` is at most [`UNLIMITED`](super::UNLIMITED).
    pub fn stats(&self) -> PoolStats {
        let all = self.members.iter().map(|member| member.inner().stats());
        all.reduce(PoolStats::plus).expect("there is at least one")
    }

    /// Changes the capacity of each member.
    ///
    /// # Errors
    /// [`PoolError::OutOfRange`]: the capacity is 0.
    pub fn resize_each(&self, capacity: usize) -> Result<(), PoolError> {
        self.members.iter().try_for_each(|member| member.inner().resize(capacity).map(drop))
    }

    /// Closes all members.
    pub fn close(&self) {
        for member in &*self.members {
            member.inner().close();
        }
    }

    /// Closes all members, and cancels their queued jobs. See [`Pool::shutdown_now`]. All members
    /// are closed before the first queue is emptied.
    pub fn shutdown_now(&self) -> usize {
        self.close();
        self.members.iter().map(|member| member.inner().shutdown_now()).sum()
    }

    /// Waits until all members have ended. See [`Pool::ended`].
    ///
    /// # Errors
    /// The [`WaitError`] of the first member that is open, or has the caller as a job.
    #[track_caller]
    pub fn ended(&self) -> impl Future<Output = Result<(), WaitError>> {
        crate::scheduler::placed::placed(async move {
            let mut waits: Vec<_> = self.waits().collect();
            poll_fn(|task| poll_all(&mut waits, task)).await
        })
    }

    /// Opens all members again. If one has not ended, the members before it stay open.
    ///
    /// # Errors
    /// [`PoolError::NotDrained`].
    pub fn reopen(&self) -> Result<(), PoolError> {
        self.members.iter().try_for_each(|member| member.inner().reopen())
    }

    fn waits(&self) -> impl Iterator<Item = QuiescenceWait<'_, J>> {
        self.members.iter().map(|member| member.inner().drained())
    }
}

impl<J: Send + 'static> MultiPool<Pool<BlockingCalls, J>> {
    /// Runs a job in one of the members, without a handle. See [`JobBuilder::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute<C: Send>(&self, content: C) -> Result<(), SubmitError<C>>
    where
        Owning: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).execute()
    }

    /// Runs a job in one of the members, and returns a handle to the result. See
    /// [`JobBuilder::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit<C: Send, T>(&self, content: C) -> Result<JobHandle<T>, SubmitError<C>>
    where
        Owning: JobSource<J, C, Handle = JobHandle<T>>,
    {
        self.job(content).submit()
    }

    /// Waits until all members have ended, at most for `timeout` in total. See [`Pool::wait`].
    ///
    /// # Errors
    /// The [`WaitError`] of the first member that has not ended.
    ///
    /// # Blocking
    /// Blocks the thread. In async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut waits: Vec<_> = self.waits().collect();
        block(timeout, |task| poll_all(&mut waits, task)).unwrap_or(Err(WaitError::TimedOut))
    }
}

impl<J: Send + 'static> MultiPool<Pool<AsyncCalls, J>> {
    /// Runs a job in one of the members, without a handle. See [`JobBuilder::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    #[track_caller]
    pub fn execute<C: Send>(
        &self,
        content: C,
    ) -> impl Future<Output = Result<(), SubmitError<C>>> + Send
    where
        Owning: JobSource<J, C, Discarded = ()>,
    {
        self.job(content).execute()
    }

    /// Runs a job in one of the members, and returns a handle to the result. See
    /// [`JobBuilder::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds what was to run.
    #[track_caller]
    pub fn submit<C: Send, T>(
        &self,
        content: C,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<C>>> + Send
    where
        Owning: JobSource<J, C, Handle = JobHandle<T>>,
    {
        self.job(content).submit()
    }
}

impl<M, J: Send + 'static> Members<J> for MultiPool<Pool<M, J>> {
    fn least_loaded(&self) -> &Arc<Inner<J>> {
        Self::least_loaded(self).inner()
    }

    fn of_key(&self, key: u64) -> &Arc<Inner<J>> {
        let place = key % self.members.len() as u64;
        self.members[usize::try_from(place).expect("there are at most 1024")].inner()
    }
}

impl<P> fmt::Debug for MultiPool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiPool")
            .field("members", &self.members.len())
            .field("balance", &self.balance)
            .finish_non_exhaustive()
    }
}
