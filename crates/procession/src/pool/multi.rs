//! Several pools as one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::Relaxed;

use super::builder::{Builder, OnFull};
use super::{AsyncPool, JobHandle, Pool, PoolError, PoolStats, SubmitError, WaitError};
use crate::Scheduler;

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

/// A pool that may be one of several.
trait Member {
    fn stats(&self) -> PoolStats;
}

impl Member for Pool {
    fn stats(&self) -> PoolStats {
        self.stats()
    }
}

impl Member for AsyncPool {
    fn stats(&self) -> PoolStats {
        self.stats()
    }
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
#[derive(Clone)]
pub struct MultiPool<P = Pool> {
    members: Arc<[P]>,
    balance: Balance,
    next: Arc<AtomicUsize>,
    on_full: OnFull,
}

fn make<P>(
    builder: &Builder,
    count: usize,
    balance: Balance,
    make: impl Fn(Builder) -> Result<P, PoolError>,
) -> Result<MultiPool<P>, PoolError> {
    if !(1..=MEMBERS_MAX).contains(&count) {
        let text = format!("the number of pools is {count}, but must be from 1 to {MEMBERS_MAX}");
        return Err(PoolError::Invalid(text));
    }
    let members = (0..count).map(|_| make(builder.clone())).collect::<Result<_, _>>()?;
    Ok(MultiPool { members, balance, next: Arc::new(AtomicUsize::new(0)), on_full: builder.how_full() })
}

impl Builder {
    /// Builds `count` such pools of threads, 1 to 1024, as one.
    ///
    /// # Errors
    /// As [`build`](Self::build); or the number is out of its range.
    pub fn build_multi(self, count: usize, balance: Balance) -> Result<MultiPool, PoolError> {
        make(&self, count, balance, Self::build)
    }

    /// Builds `count` such pools of processes of a scheduler, 1 to 1024, as one.
    ///
    /// # Errors
    /// As [`build_async`](Self::build_async); or the number is out of its range.
    pub fn build_multi_async_on(
        self,
        scheduler: &Scheduler,
        count: usize,
        balance: Balance,
    ) -> Result<MultiPool<AsyncPool>, PoolError> {
        make(&self, count, balance, |builder| builder.build_async_on(scheduler))
    }
}

#[expect(private_bounds, reason = "only pools of this module can be members")]
impl<P: Member> MultiPool<P> {
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
        let least = after.iter().chain(before).min_by_key(|member| load(&member.stats()));
        least.expect("there is at least one")
    }

    /// The sums over all pools, each at one moment of its own. `closed` if all are; `capacity` is at most [`UNLIMITED`](super::UNLIMITED).
    pub fn stats(&self) -> PoolStats {
        let all = self.members.iter().map(Member::stats);
        all.reduce(PoolStats::plus).expect("there is at least one")
    }
}

impl MultiPool {
    /// See [`Pool::execute`].
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    pub fn execute<F: FnOnce() + Send + 'static>(&self, closure: F) -> Result<(), SubmitError<F>> {
        let chosen = self.pick();
        let second = match chosen.try_execute(closure) {
            Err(error) if error.is_full() => self.least_loaded().try_execute(error.into_inner()),
            done => return done,
        };
        match second {
            Err(error) if error.is_full() && self.on_full != OnFull::Refuse => chosen.execute(error.into_inner()),
            done => done,
        }
    }

    /// See [`Pool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the closure in it.
    pub fn submit<F, T>(&self, closure: F) -> Result<JobHandle<T>, SubmitError<F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let chosen = self.pick();
        let second = match chosen.try_submit(closure) {
            Err(error) if error.is_full() => self.least_loaded().try_submit(error.into_inner()),
            done => return done,
        };
        match second {
            Err(error) if error.is_full() && self.on_full != OnFull::Refuse => chosen.submit(error.into_inner()),
            done => done,
        }
    }

    /// Changes the capacity of each pool.
    ///
    /// # Errors
    /// [`PoolError::Invalid`]: the capacity is 0.
    pub fn resize_each(&self, capacity: usize) -> Result<(), PoolError> {
        self.members.iter().try_for_each(|member| member.resize(capacity).map(drop))
    }

    /// Closes all pools.
    pub fn close(&self) {
        for member in &*self.members {
            member.close();
        }
    }

    /// See [`Pool::shutdown_now`]. All are closed before any is cleared.
    pub fn shutdown_now(&self) -> usize {
        self.close();
        self.members.iter().map(Pool::shutdown_now).sum()
    }

    /// Waits until all pools have ended, for at most `patience` altogether. See [`Pool::wait`].
    ///
    /// # Errors
    /// [`WaitError`] of the first that has not ended.
    pub fn wait(&self, patience: Option<Duration>) -> Result<(), WaitError> {
        let deadline = super::inner::deadline_after(patience);
        self.members.iter().try_for_each(|member| {
            let left = patience.map(|_| Duration::from_nanos(deadline.saturating_sub(super::inner::world().now())));
            member.wait(left)
        })
    }

    /// Opens all pools again. If one has not ended, those before it are open.
    ///
    /// # Errors
    /// [`PoolError::NotDrained`].
    pub fn reopen(&self) -> Result<(), PoolError> {
        self.members.iter().try_for_each(Pool::reopen)
    }
}

impl MultiPool<AsyncPool> {
    /// See [`AsyncPool::submit`].
    ///
    /// # Errors
    /// [`SubmitError`], with the future in it.
    pub async fn submit<F>(&self, future: F) -> Result<JobHandle<F::Output>, SubmitError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let chosen = self.pick();
        let second = match chosen.try_submit(future) {
            Err(error) if error.is_full() => self.least_loaded().try_submit(error.into_inner()),
            done => return done,
        };
        match second {
            Err(error) if error.is_full() => chosen.submit(error.into_inner()).await,
            done => done,
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
