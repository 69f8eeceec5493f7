//! Several pools as one.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::async_pool::AsyncPool;
use super::block::{deadline_after, world};
use super::builder::{Builder, OnFull};
use super::coroutines::CoPool;
use super::error::{PoolError, SubmitError, WaitError};
use super::function::{AsyncFnPool, FnPool};
use super::job_handle::JobHandle;
use super::operations::Pooling;
use super::stats::PoolStats;
use super::thread_pool::Pool;

/// Pools in one: each is looked at to find the least loaded.
const MEMBERS_MAX: usize = 1024;

/// Which of several pools is given the next job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest jobs, running, queued and waiting to be taken. Idle workers are no load.
    LeastLoaded,
}

fn load(stats: &PoolStats) -> usize {
    stats.busy + stats.queued + stats.reserved + stats.waiting
}

/// Several pools that share the work, each with a lock, a capacity and a queue of its own.
///
/// A job goes to the pool that [`Balance`] chooses. If that one is full, it is offered to the least loaded before it is treated as the
/// builder says ([`Builder::on_full`]) by the chosen one.
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
        Self { members: Arc::clone(members), balance: *balance, next: Arc::clone(next), on_full: *on_full }
    }
}

impl Builder {
    /// Builds `count` such pools of threads, 1 to 1024, as one.
    ///
    /// # Errors
    /// As [`build`](Self::build); or the number is out of its range.
    pub fn build_multi(self, count: usize, balance: Balance) -> Result<MultiPool, PoolError> {
        self.build_multi_of(count, balance, Self::build)
    }

    /// Builds `count` pools of any kind, 1 to 1024, as one. `build` builds each from what this builder describes.
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
    /// That of `build`; or the number is out of its range.
    pub fn build_multi_of<P>(
        self,
        count: usize,
        balance: Balance,
        mut build: impl FnMut(Self) -> Result<P, PoolError>,
    ) -> Result<MultiPool<P>, PoolError> {
        if !(1..=MEMBERS_MAX).contains(&count) {
            let text = format!("the number of pools is {count}, but must be from 1 to {MEMBERS_MAX}");
            return Err(PoolError::Invalid(text));
        }
        let members = (0..count).map(|_| build(self.clone())).collect::<Result<_, _>>()?;
        Ok(MultiPool { members, balance, next: Arc::new(AtomicUsize::new(0)), on_full: self.on_full })
    }
}

/// A job that none of several pools has room for now, and the pool that was chosen for it.
type Unplaced<'a, P, C> = (&'a P, SubmitError<C>);

#[expect(private_bounds, reason = "only pools of this module can be members")]
impl<P: Pooling> MultiPool<P> {
    /// The pools, to be looked at, resized or used by themselves.
    pub fn members(&self) -> &[P] {
        &self.members
    }

    /// The pool that the next job goes to.
    pub fn pick(&self) -> &P {
        match self.balance {
            // Relaxed: only that the numbers differ.
            Balance::RoundRobin => &self.members[self.next.fetch_add(1, Relaxed) % self.members.len()],
            Balance::LeastLoaded => self.least_loaded(),
        }
    }

    fn least_loaded(&self) -> &P {
        // Among equals not always the first: who looks at the same time would find the same.
        let offset = self.next.fetch_add(1, Relaxed) % self.members.len();
        let (after, before) = (&self.members[offset..], &self.members[..offset]);
        let least = after.iter().chain(before).min_by_key(|member| load(&member.inner().stats()));
        least.expect("there is at least one")
    }

    /// The sums over all pools, each at one moment of its own. `closed` if all are; `capacity` is at most [`UNLIMITED`](super::UNLIMITED).
    pub fn stats(&self) -> PoolStats {
        let all = self.members.iter().map(|member| member.inner().stats());
        all.reduce(PoolStats::plus).expect("there is at least one")
    }
    /// Changes the capacity of each pool.
    ///
    /// # Errors
    /// [`PoolError::Invalid`]: the capacity is 0.
    pub fn resize_each(&self, capacity: usize) -> Result<(), PoolError> {
        self.members.iter().try_for_each(|member| member.inner().resize(capacity).map(drop))
    }

    /// Closes all pools.
    pub fn close(&self) {
        for member in &*self.members {
            member.inner().close();
        }
    }

    /// See [`Pool::shutdown_now`]. All are closed before any is cleared.
    pub fn shutdown_now(&self) -> usize {
        self.close();
        self.members.iter().map(|member| member.inner().shutdown_now()).sum()
    }

    /// Waits until all pools have ended. See [`Pool::ended`].
    ///
    /// # Errors
    /// [`WaitError`] of the first that is open, or whose job calls.
    pub async fn ended(&self) -> Result<(), WaitError> {
        for member in &*self.members {
            member.inner().drained().await?;
        }
        Ok(())
    }

    /// Opens all pools again. If one has not ended, those before it are open.
    ///
    /// # Errors
    /// [`PoolError::NotDrained`].
    pub fn reopen(&self) -> Result<(), PoolError> {
        self.members.iter().try_for_each(|member| member.inner().reopen())
    }

    /// Waits until all pools have ended, for at most `patience` altogether.
    fn wait_for_all(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let deadline = deadline_after(timeout);
        self.members.iter().try_for_each(|member| {
            let left = timeout.map(|_| Duration::from_nanos(deadline.saturating_sub(world().now())));
            member.inner().wait(left)
        })
    }

    /// Offers a job to the chosen pool, and then to the least loaded.
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

    /// What was left, and is to wait for the chosen pool, or to be run here.
    fn insist<'a, C>(&self, (chosen, error): Unplaced<'a, P, C>) -> Result<(&'a P, C), SubmitError<C>> {
        if error.is_full() && self.on_full != OnFull::Refuse { Ok((chosen, error.into_inner())) } else { Err(error) }
    }
}

impl MultiPool {
    /// See [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        self.offer(closure, Pool::try_execute).or_else(|left| {
            let (chosen, closure) = self.insist(left)?;
            chosen.execute(closure)
        })
    }

    /// See [`Pool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
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

    /// See [`Pool::wait`]. The time is that of all pools together.
    ///
    /// # Errors
    /// [`WaitError`] of the first that has not ended.
    ///
    /// # Blocking
    /// Blocks the thread; in async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for_all(timeout)
    }
}

impl<A: Send + 'static, T: Send + 'static> MultiPool<FnPool<A, T>> {
    /// See [`FnPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        self.offer(argument, FnPool::try_execute).or_else(|left| {
            let (chosen, argument) = self.insist(left)?;
            chosen.execute(argument)
        })
    }

    /// See [`FnPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    ///
    /// # Blocking
    /// Blocks the thread while it waits for a place.
    pub fn submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        self.offer(argument, FnPool::try_submit).or_else(|left| {
            let (chosen, argument) = self.insist(left)?;
            chosen.submit(argument)
        })
    }

    /// See [`FnPool::wait`]. The time is that of all pools together.
    ///
    /// # Errors
    /// [`WaitError`] of the first that has not ended.
    ///
    /// # Blocking
    /// Blocks the thread; in async code, await [`ended`](Self::ended).
    pub fn wait(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        self.wait_for_all(timeout)
    }
}

impl MultiPool<AsyncPool> {
    /// See [`AsyncPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub async fn execute<F: Future<Output = ()> + Send + 'static>(&self, future: F) -> Result<(), SubmitError<F>> {
        match self.offer(future, AsyncPool::try_execute) {
            Ok(()) => Ok(()),
            Err(left) => {
                let (chosen, future) = self.insist(left)?;
                chosen.execute(future).await
            }
        }
    }

    /// See [`AsyncPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub async fn submit<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self.offer(future, AsyncPool::try_submit) {
            Ok(handle) => Ok(handle),
            Err(left) => {
                let (chosen, future) = self.insist(left)?;
                chosen.submit(future).await
            }
        }
    }
}

impl MultiPool<CoPool> {
    /// See [`CoPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    pub async fn execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        match self.offer(closure, CoPool::try_execute) {
            Ok(()) => Ok(()),
            Err(left) => {
                let (chosen, closure) = self.insist(left)?;
                chosen.execute(closure).await
            }
        }
    }

    /// See [`CoPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    pub async fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.offer(closure, CoPool::try_submit) {
            Ok(handle) => Ok(handle),
            Err(left) => {
                let (chosen, closure) = self.insist(left)?;
                chosen.submit(closure).await
            }
        }
    }
}

impl<A: Send + 'static, T: Send + 'static> MultiPool<AsyncFnPool<A, T>> {
    /// See [`AsyncFnPool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub async fn execute(&self, argument: A) -> Result<(), SubmitError<A>> {
        match self.offer(argument, AsyncFnPool::try_execute) {
            Ok(()) => Ok(()),
            Err(left) => {
                let (chosen, argument) = self.insist(left)?;
                chosen.execute(argument).await
            }
        }
    }

    /// See [`AsyncFnPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the argument in it.
    pub async fn submit(&self, argument: A) -> Result<JobHandle<T>, SubmitError<A>> {
        match self.offer(argument, AsyncFnPool::try_submit) {
            Ok(handle) => Ok(handle),
            Err(left) => {
                let (chosen, argument) = self.insist(left)?;
                chosen.submit(argument).await
            }
        }
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
