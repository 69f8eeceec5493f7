//! What a pool is to be like.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::error::PoolError;
use super::hooks::Hooks;
use super::state::picture::Limits;
use crate::scheduler::seat_id::NEVER;
use crate::sys::nanoseconds;

/// Workers at once, unless the builder says otherwise: what other runtimes allow their blocking threads.
const CAPACITY_DEFAULT: usize = 512;
/// How long a worker stays idle, unless the builder says otherwise.
const KEEP_ALIVE_DEFAULT: Duration = Duration::from_secs(10);

/// A capacity that is no limit.
pub const UNLIMITED: usize = usize::MAX;

/// How many jobs may wait for a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Queue {
    /// None: a job is handed to a worker, or its submitter waits.
    #[default]
    HandOff,
    /// So many.
    Bounded(usize),
    /// Any number. The queue then has no bound but memory.
    Unbounded,
}

/// What a submitter does when the pool is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFull {
    /// It waits for a place, behind all who came before it.
    #[default]
    Wait,
    /// It gets the job back.
    Refuse,
    /// It runs the job itself. If it holds a lock that the job needs, that is a deadlock. In a pool of processes it waits instead.
    CallerRuns,
}

/// What a pool is to be like: one description for all kinds of pool.
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
    pub(super) keep_alive: u64,
    pub(super) stack_size: Option<usize>,
    pub(super) hooks: Hooks,
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
            keep_alive: nanoseconds(KEEP_ALIVE_DEFAULT),
            stack_size: None,
            hooks: Hooks::default(),
        }
    }
}

impl Builder {
    /// The name of the pool, and the beginning of its threads' names. Default: `pool`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many workers there may be at once, at least 1; [`UNLIMITED`](super::UNLIMITED) for any number. Default: 512.
    pub fn capacity(mut self, workers: usize) -> Self {
        self.limits.capacity = workers;
        self
    }

    /// How many jobs may wait for a worker. Default: [`Queue::HandOff`].
    pub fn queue(mut self, queue: Queue) -> Self {
        self.limits.queue = match queue {
            Queue::HandOff => 0,
            Queue::Bounded(jobs) => jobs,
            Queue::Unbounded => usize::MAX,
        };
        self
    }

    /// What a submitter does when the pool is full. Default: [`OnFull::Wait`].
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.on_full = on_full;
        self
    }

    /// How many submitters may wait at once; the next is refused. Default: any number.
    pub fn waiting(mut self, submitters: usize) -> Self {
        self.limits.waiting = submitters;
        self
    }

    /// How long a worker stays that has nothing to do; [`Duration::MAX`] for ever. Default: 10 s.
    ///
    /// The worker that became idle last is given the next job, so a pool shrinks to what a trickle of jobs needs.
    pub fn keep_alive(mut self, idle: Duration) -> Self {
        self.keep_alive = keep_alive_nanoseconds(idle);
        self
    }

    /// How many workers stay, however long they have nothing to do. Default: 0. Idle async workers have no process, which may be refused to them later.
    pub fn keep(mut self, workers: usize) -> Self {
        self.limits.kept = workers;
        self
    }

    /// How many workers are started at once, at most the capacity. Default: 0. In pools of async processes, whose idle workers have no
    /// process, they count as started, and begin with their first job.
    pub fn prestart(mut self, workers: usize) -> Self {
        self.prestart = workers;
        self
    }

    /// The size of a thread's stack in bytes, default the system's; or of a coroutine's, default the scheduler's. Pools of async processes
    /// ignore it.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Is called by each worker before its first job. A panic of it ends there.
    pub fn on_worker_start(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.start = Some(Arc::new(hook));
        self
    }

    /// Is called by each worker after its last job. A panic of it ends there. Where workers are processes, one that is terminated does not call it; an
    /// idle async worker calls it in a process of its own, or on the thread that has it leave.
    pub fn on_worker_stop(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.hooks.stop = Some(Arc::new(hook));
        self
    }

    /// Is given what a job without a handle panicked with, on the worker, before the job counts as ended. A panic of it ends there. Default: the payload
    /// is dropped, after the panic hook of the program has printed its message, and the panic is counted.
    pub fn on_panic(mut self, handler: impl Fn(Box<dyn Any + Send>) + Send + Sync + 'static) -> Self {
        self.hooks.panic = Some(Arc::new(handler));
        self
    }
}

pub(super) fn keep_alive_nanoseconds(idle: Duration) -> u64 {
    if idle == Duration::MAX { NEVER } else { nanoseconds(idle) }
}

pub(super) fn check_capacity(capacity: usize) -> Result<(), PoolError> {
    if capacity == 0 {
        return Err(PoolError::Invalid(String::from("capacity is 0, but must be at least 1")));
    }
    Ok(())
}
