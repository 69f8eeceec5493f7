//! Several pools that act as one.

use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::async_pool::AsyncPool;
use super::block::block;
use super::builder::{Builder, OnFull};
use super::coroutines::CoPool;
use super::error::{PoolError, SubmitError, WaitError};
use super::function::{AsyncFnPool, FnPool};
use super::job_handle::JobHandle;
use super::lifecycle::{QuiescenceWait, poll_all};
use super::operations::Pooling;
use super::stats::PoolStats;
use super::thread_pool::Pool;
use crate::util::out_of_range::OutOfRange;

/// The most members. Each of them is asked for its load to find the least loaded one.
const MEMBERS_MAX: usize = 1024;

/// The choice of the member that gets the next job.
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
/// A job goes to the member that [`Balance`] chooses. If that one is full, the job is offered to
/// the least loaded member. If that one is full as well, the chosen member does what
/// [`Builder::on_full`] says.
///
/// A job that awaits a job of another member
/// [lends it no place](AsyncPool#jobs-that-use-their-own-pool), because each member has its own
/// capacity.
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

/// A job that no member has room for now, and the member that was chosen for it.
type Unplaced<'a, P, C> = (&'a P, SubmitError<C>);

#[expect(private_bounds, reason = "only pools of this module can be members")]
impl<P: Pooling> MultiPool<P> {
    /// Returns the members, which can be observed, resized and used on their own.
    pub fn members(&self) -> &[P] {
        &self.members
    }

    /// Returns the member that gets the next job.
    pub fn pick(&self) -> &P {
        match self.balance {
            // Relaxed: the numbers only have to differ.
            Balance::RoundRobin => {
                &self.members[self.next.fetch_add(1, Relaxed) % self.members.len()]
            }
            Balance::LeastLoaded => self.least_loaded(),
        }
    }

    fn least_loaded(&self) -> &P {
        // Among equals, the choice rotates. Otherwise all threads that look at the same time would
        // choose the same member.
        let offset = self.next.fetch_add(1, Relaxed) % self.members.len();
        let (after, before) = (&self.members[offset..], &self.members[..offset]);
        let least = after.iter().chain(before).min_by_key(|member| load(&member.inner().stats()));
        least.expect("there is at least one")
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

    /// Waits until all members have ended, at most for `timeout` in total.
    fn wait_for_all(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let mut waits: Vec<_> = self.waits().collect();
        block(timeout, |task| poll_all(&mut waits, task)).unwrap_or(Err(WaitError::TimedOut))
    }

    fn waits(&self) -> impl Iterator<Item = QuiescenceWait<'_, P::Job>> {
        self.members.iter().map(|member| member.inner().drained())
    }

    /// Offers a job to the chosen member, and then to the least loaded one.
    fn offer<C, R>(
        &self,
        content: C,
        mut offer: impl FnMut(&P, C) -> Result<R, SubmitError<C>>,
    ) -> Result<R, Unplaced<'_, P, C>> {
        let chosen = self.pick();
        let second = match offer(chosen, content) {
            Err(error) if error.is_full() => offer(self.least_loaded(), error.into_inner()),
            done => done,
        };
        second.map_err(|error| (chosen, error))
    }

    /// Returns a job that must wait for its chosen member or run here, unless the policy is to
    /// refuse.
    fn insist<'a, C>(
        &self,
        (chosen, error): Unplaced<'a, P, C>,
    ) -> Result<(&'a P, C), SubmitError<C>> {
        if error.is_full() && self.on_full != OnFull::Refuse {
            Ok((chosen, error.into_inner()))
        } else {
            Err(error)
        }
    }
}

impl MultiPool {
    /// Runs a closure in one of the members, without a handle. See [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        self.offer(closure, Pool::try_execute).or_else(|left| {
            let (chosen, closure) = self.insist(left)?;
            chosen.execute(closure)
        })
    }

    /// Runs a closure in one of the members, and returns a handle to the result. See
    /// [`Pool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.offer(closure, Pool::try_submit).or_else(|left| {
            let (chosen, closure) = self.insist(left)?;
            chosen.submit(closure)
        })
    }

    /// Waits until all members have ended, at most for `timeout` in total. See [`Pool::wait`].
    ///
    /// # Errors
    /// The [`WaitError`] of the first member that has not ended.
    ///
    /// # Blocking
    /// Blocks the thread. In async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for_all(timeout)
    }
}

impl<A: Send + 'static, T: Send + 'static> MultiPool<FnPool<A, T>> {
    /// Calls the function in one of the members, without a handle. See [`FnPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        self.offer(argument, FnPool::try_execute).or_else(|left| {
            let (chosen, argument) = self.insist(left)?;
            chosen.execute(argument)
        })
    }

    /// Calls the function in one of the members, and returns a handle to the result. See
    /// [`FnPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        self.offer(argument, FnPool::try_submit).or_else(|left| {
            let (chosen, argument) = self.insist(left)?;
            chosen.submit(argument)
        })
    }

    /// Waits until all members have ended, at most for `timeout` in total. See [`FnPool::wait`].
    ///
    /// # Errors
    /// The [`WaitError`] of the first member that has not ended.
    ///
    /// # Blocking
    /// Blocks the thread. In async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for_all(timeout)
    }
}

impl MultiPool<AsyncPool> {
    /// Runs a future in one of the members, without a handle. See [`AsyncPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the future.
    #[track_caller]
    pub fn execute<F: Future<Output = ()> + Send + 'static>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<(), SubmitError<F>>> {
        crate::scheduler::placed::placed(async move {
            match self.offer(future, AsyncPool::try_execute) {
                Ok(()) => Ok(()),
                Err(left) => {
                    let (chosen, future) = self.insist(left)?;
                    chosen.execute(future).await
                }
            }
        })
    }

    /// Runs a future in one of the members, and returns a handle to the result. See
    /// [`AsyncPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the future.
    #[track_caller]
    pub fn submit<F>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<JobHandle<F::Output>, SubmitError<F>>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        crate::scheduler::placed::placed(async move {
            match self.offer(future, AsyncPool::try_submit) {
                Ok(handle) => Ok(handle),
                Err(left) => {
                    let (chosen, future) = self.insist(left)?;
                    chosen.submit(future).await
                }
            }
        })
    }
}

impl MultiPool<CoPool> {
    /// Runs a closure in one of the members, without a handle. See [`CoPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    #[track_caller]
    pub fn execute<F: FnOnce() + Send + 'static>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<(), SubmitError<F>>> {
        crate::scheduler::placed::placed(async move {
            match self.offer(closure, CoPool::try_execute) {
                Ok(()) => Ok(()),
                Err(left) => {
                    let (chosen, closure) = self.insist(left)?;
                    chosen.execute(closure).await
                }
            }
        })
    }

    /// Runs a closure in one of the members, and returns a handle to the result. See
    /// [`CoPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the closure.
    #[track_caller]
    pub fn submit<F, T>(
        &self,
        closure: F,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<F>>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        crate::scheduler::placed::placed(async move {
            match self.offer(closure, CoPool::try_submit) {
                Ok(handle) => Ok(handle),
                Err(left) => {
                    let (chosen, closure) = self.insist(left)?;
                    chosen.submit(closure).await
                }
            }
        })
    }
}

impl<A: Send + 'static, T: Send + 'static> MultiPool<AsyncFnPool<A, T>> {
    /// Calls the function in one of the members, without a handle. See [`AsyncFnPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    #[track_caller]
    pub fn execute(&self, argument: A) -> impl Future<Output = Result<(), SubmitError<A>>> {
        crate::scheduler::placed::placed(async move {
            match self.offer(argument, AsyncFnPool::try_execute) {
                Ok(()) => Ok(()),
                Err(left) => {
                    let (chosen, argument) = self.insist(left)?;
                    chosen.execute(argument).await
                }
            }
        })
    }

    /// Calls the function in one of the members, and returns a handle to the result. See
    /// [`AsyncFnPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], which holds the argument.
    #[track_caller]
    pub fn submit(
        &self,
        argument: A,
    ) -> impl Future<Output = Result<JobHandle<T>, SubmitError<A>>> {
        crate::scheduler::placed::placed(async move {
            match self.offer(argument, AsyncFnPool::try_submit) {
                Ok(handle) => Ok(handle),
                Err(left) => {
                    let (chosen, argument) = self.insist(left)?;
                    chosen.submit(argument).await
                }
            }
        })
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
