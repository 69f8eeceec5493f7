//! The description of a pool.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::pool::state::outcome::Limits;
use procession_protocols::scheduler::seat_id::NEVER;

use super::error::PoolError;
use super::hooks::Hooks;
use crate::Scheduler;
use crate::process::priority::Priority;
use crate::scheduler::owner::here;
use crate::scheduler::shared::Shared;
use crate::sys::nanoseconds;
use crate::util::out_of_range::OutOfRange;

/// The default capacity. Other runtimes allow as many blocking threads.
const CAPACITY_DEFAULT: usize = 512;
/// The default keep-alive.
const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(10);

/// A capacity without a limit.
pub const UNLIMITED: usize = usize::MAX;

/// The limit of jobs that wait for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Queue {
    /// No job waits. A job is handed to a worker, or its submitter waits.
    #[default]
    HandOff,
    /// At most this many jobs wait.
    Bounded(usize),
    /// Any number of jobs may wait. Only memory bounds the queue.
    Unbounded,
}

/// The policy of a full pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnFull {
    /// Waits for a place, behind all earlier waiters.
    #[default]
    Wait,
    /// Returns the job in the error.
    Refuse,
    /// Runs the job in the calling thread. If the caller holds a lock that the job needs, they
    /// deadlock. Only a pool of threads can do this.
    CallerRuns,
}

/// The choice of the member that gets the next job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Balance {
    /// The members take turns.
    #[default]
    RoundRobin,
    /// The member with the fewest jobs: running, queued, reserved and waiting for a place. Idle
    /// workers are no load.
    LeastLoaded,
}

/// Describes a pool of any kind, and builds it.
///
/// ```
/// use std::time::Duration;
/// use procession::pool::{OnFull, Pool, Queue};
///
/// let pool = Pool::builder()
///     .name("resize")
///     .capacity(4)
///     .queue(Queue::Bounded(16))
///     .on_full(OnFull::Refuse)
///     .keep_alive(Duration::from_secs(30))
///     .build()?;
/// assert_eq!(pool.submit(|| 6 * 7)?.join()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    pub(super) name: String,
    pub(super) limits: Limits,
    pub(super) prestart: usize,
    pub(super) on_full: OnFull,
    pub(super) members: usize,
    pub(super) balance: Balance,
    pub(super) keep_alive: u64,
    pub(super) stack_size: Option<usize>,
    pub(super) priority: Priority,
    pub(super) hooks: Hooks,
    scheduler: Option<Arc<Shared>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            name: String::from("pool"),
            limits: Limits {
                capacity: CAPACITY_DEFAULT,
                queue: 0,
                waiting: usize::MAX,
                kept: 0,
                rests: false,
                threads: false,
            },
            prestart: 0,
            on_full: OnFull::Wait,
            members: 1,
            balance: Balance::default(),
            keep_alive: nanoseconds(KEEP_ALIVE_DEFAULT),
            stack_size: None,
            priority: Priority::Normal,
            hooks: Hooks::default(),
            scheduler: None,
        }
    }
}

impl Builder {
    /// Sets the name of the pool, with which the names of its threads begin. Default: `pool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the scheduler of workers that are processes. Default: the scheduler that the calling
    /// process or thread belongs to, or else the default one. A pool of threads has no scheduler,
    /// so its build fails with [`PoolError::Unused`].
    pub fn on(mut self, scheduler: &Scheduler) -> Self {
        self.scheduler = Some(Arc::clone(scheduler.shared()));
        self
    }

    /// Returns the scheduler of workers that are processes.
    pub(super) fn shared(&self) -> Arc<Shared> {
        self.scheduler.clone().unwrap_or_else(|| Arc::clone(&here()))
    }

    /// Refuses settings that have no effect on workers of this kind.
    pub(super) fn check_used(&self, are_threads: bool, rest: bool) -> Result<(), PoolError> {
        let unused = if are_threads && self.scheduler.is_some() {
            ("on", "threads belong to no scheduler")
        } else if are_threads && self.priority != Priority::Normal {
            ("worker_priority", "threads belong to no scheduler")
        } else if rest && self.stack_size.is_some() {
            ("stack_size", "async processes have no stacks")
        } else if !are_threads && self.on_full == OnFull::CallerRuns {
            ("on_full(CallerRuns)", "only workers that are threads leave jobs to the caller")
        } else {
            return Ok(());
        };
        Err(PoolError::Unused { setting: unused.0, reason: unused.1 })
    }

    /// Sets the maximum number of workers, at least 1. [`UNLIMITED`](super::UNLIMITED) allows any
    /// number. Default: 512.
    ///
    /// In a pool of processes, a job that awaits another job of the pool
    /// [lends its place](super::AsyncPool#jobs-that-use-their-own-pool). There is one worker more
    /// for each job that does so.
    pub fn capacity(mut self, workers: usize) -> Self {
        self.limits.capacity = workers;
        self
    }

    /// Sets how many jobs may wait for a worker. Default: [`Queue::HandOff`].
    pub fn queue(mut self, queue: Queue) -> Self {
        self.limits.queue = match queue {
            Queue::HandOff => 0,
            Queue::Bounded(jobs) => jobs,
            Queue::Unbounded => usize::MAX,
        };
        self
    }

    /// Sets what a submit call does if the pool is full. Default: [`OnFull::Wait`].
    ///
    /// If the workers are processes, the build with [`OnFull::CallerRuns`] fails with
    /// [`PoolError::Unused`].
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// Has the pool consist of this number of members, 1 to 1024, that share the work. Each has its
    /// own lock, and the capacity, the queue and the other settings of this builder. Default: 1.
    ///
    /// A job goes to the member that [`Balance`] chooses. If that member is full, the job is
    /// offered to the least loaded member. If both are full, the chosen member does what
    /// [`on_full`](Self::on_full) says. A job with a [key](super::JobBuilder::key) goes to the
    /// member of the key instead, and to no other.
    ///
    /// A job may await a queued job of another member: it [lends that job a
    /// place](super::AsyncPool#jobs-that-use-their-own-pool), or runs it on its thread. It lends to
    /// one job of each member at a time. The other member does not learn when the job that waits
    /// has ended, so the awaited job keeps the lent place until its own end. A submit that waits
    /// for a place of another member is never refused as a deadlock.
    ///
    /// ```
    /// use procession::pool::{Balance, Pool};
    ///
    /// let pool = Pool::builder().capacity(1).members(4, Balance::LeastLoaded).build()?;
    /// let handles: Vec<_> = (0..4).map(|n| pool.submit(move || n)).collect::<Result<_, _>>()?;
    /// let sum: i32 = handles.into_iter().map(|handle| handle.join()).sum::<Result<_, _>>()?;
    /// assert_eq!(sum, 6);
    /// assert_eq!(pool.members().len(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn members(mut self, count: usize, balance: Balance) -> Self {
        (self.members, self.balance) = (count, balance);
        self
    }

    /// Sets how many submitters may wait at the same time. The next submitter is refused. Default:
    /// any number.
    pub fn waiting(mut self, submitters: usize) -> Self {
        self.limits.waiting = submitters;
        self
    }

    /// Sets how long an idle worker stays. [`Duration::MAX`] keeps it forever. Default: 10 s.
    ///
    /// The worker that became idle last takes the next job. So if jobs become few, the other
    /// workers stay idle for this time, and end.
    pub fn keep_alive(mut self, idle: Duration) -> Self {
        self.keep_alive = keep_alive_nanoseconds(idle);
        self
    }

    /// Sets how many workers stay, however long they are idle. Default: 0. An idle async worker has
    /// no process, so its scheduler may later refuse it one.
    pub fn keep(mut self, workers: usize) -> Self {
        self.limits.kept = workers;
        self
    }

    /// Sets how many workers are started with the pool, at most its capacity. Default: 0. An idle
    /// async worker has no process. It counts as started, and begins with its first job.
    pub fn prestart(mut self, workers: usize) -> Self {
        self.prestart = workers;
        self
    }

    /// Sets the size of each worker's stack in bytes. Default: for threads, the size that the
    /// system chooses; for coroutines, the size that the scheduler has. Async processes have no
    /// stacks, so the build of such a pool fails with [`PoolError::Unused`].
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the [priority](crate::process::set_priority()) of the processes that work for the pool,
    /// whatever the priorities of its jobs, which order the queue of the pool only. Default:
    /// [`Priority::Normal`]. Threads have no priority, so the build of such a pool with another one
    /// fails with [`PoolError::Unused`].
    ///
    /// ```
    /// use procession::pool::{Pool, Priority};
    ///
    /// procession::run(async {
    ///     let reports = Pool::builder().worker_priority(Priority::Batch).build_async()?;
    ///     let sum = reports.submit(async { (1..=1000_u64).sum::<u64>() }).await?.await?;
    ///     assert_eq!(sum, 500_500);
    ///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn worker_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets a function that each worker calls before its first job. A panic of the function ends
    /// there.
    pub fn on_worker_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Arc::new(hook));
        self
    }

    /// Sets a function that each worker calls after its last job. A panic of the function ends
    /// there.
    ///
    /// If the workers are processes, a terminated worker does not call it. For an idle async
    /// worker, it is called in a separate process, or on the thread that makes the worker leave.
    pub fn on_worker_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Arc::new(hook));
        self
    }

    /// Sets a function that receives the panic payload of each job without a handle. If the job
    /// ended itself by [`exit`](crate::exit()), the payload is its [`Exit`](crate::Exit). The
    /// function is called on the worker, before the job counts as ended. A panic of the function
    /// ends there.
    ///
    /// Default: the payload is dropped. The panic hook of the program has printed its message
    /// before, and the pool counts the panic.
    pub fn on_panic(
        mut self,
        handler: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    ) -> Self {
        self.hooks.panic = Some(Arc::new(handler));
        self
    }
}

pub(super) fn keep_alive_nanoseconds(idle: Duration) -> u64 {
    if idle == Duration::MAX { NEVER } else { nanoseconds(idle) }
}

pub(super) fn check_capacity(capacity: usize) -> Result<(), PoolError> {
    Ok(OutOfRange::check("capacity", capacity, 1, usize::MAX)?)
}
