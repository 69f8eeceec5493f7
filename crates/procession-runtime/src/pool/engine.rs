//! The part that all kinds of pool have in common, and the interface of their workers.

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use procession_protocols::pool::state::busy::Busy;
use procession_protocols::pool::state::core::PoolCore;
use procession_protocols::pool::state::idle::{IdleWorker, Order, PoolSeat};
use procession_protocols::pool::state::outcome::{Ended, Launch, Limits, Next, PoolStats, Wakes};
use procession_protocols::pool::state::synced::Start;
use procession_protocols::util::small_vec::SmallVec;
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicU64, AtomicUsize};

use super::builder::{Balance, Builder, OnFull};
use super::current::{CoroutineMark, Marked, PoolId, mark, worker_of};
use super::hooks::Hooks;
use crate::process::priority::Priority;
use crate::process::unwind::{drop_guarded, guarded};
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::spawn::reservation::Reservation;
use crate::time::action::Armed;

/// The function by which workers run a job.
pub(super) type RunJob<J> = Box<dyn Fn(&Hooks, J) -> Ended + Send + Sync>;

/// Starts a worker on a thread, which takes its first order from its seat.
pub(super) type StartWorker<J> = Box<dyn Fn(ParkingWorker<J>) -> io::Result<()> + Send + Sync>;

/// Starts a worker as the coroutine of the reservation. It takes its first order from its seat.
pub(super) type LaunchCoroutine<J> = Box<dyn Fn(ParkingWorker<J>, Reservation<'_>) + Send + Sync>;

/// Starts a resting worker with a job, as the process of the reservation.
pub(super) type LaunchWorker<J> =
    Box<dyn Fn(&Arc<Inner<J>>, Launch<J>, Reservation<'_>) + Send + Sync>;

/// A step that may start workers.
type EngineStep<'a, J> = &'a mut dyn FnMut(&PoolCore<J>, Start<'_, J>) -> Wakes<J>;

/// What the workers of a pool are.
pub(super) enum Workers<J: Send + 'static> {
    /// Threads, which park while they are idle.
    Threads { start: StartWorker<J>, run: RunJob<J> },
    /// Coroutines, which park while they are idle.
    Coroutines { launch: LaunchCoroutine<J>, run: RunJob<J> },
    /// Async processes, which rest while they are idle, and have no process then.
    Resting(LaunchWorker<J>),
}

/// A pool, apart from its handles.
pub(super) struct Inner<J: Send + 'static> {
    pub(super) me: Weak<Self>,
    id: PoolId,
    pub(super) core: PoolCore<J>,
    workers: Arc<Workers<J>>,
    /// The scheduler of the workers, if they are processes.
    pub(super) scheduler: Option<Arc<Shared>>,
    pub(super) name: String,
    pub(super) on_full: OnFull,
    /// `true` if jobs may wait in a queue, in the order of their priorities.
    pub(super) has_queue: bool,
    pub(super) balance: Balance,
    /// The priority of the workers, if they are processes.
    pub(super) priority: Priority,
    /// Counts the choices among the members of which this is the first one.
    pub(super) turns: AtomicUsize,
    /// The nanoseconds that a worker stays idle, or `NEVER`.
    pub(super) keep_alive: AtomicU64,
    pub(super) hooks: Hooks,
    pub(super) last_watch: AtomicU64,
    pub(super) last_worker: AtomicU64,
    /// The timer of the next reap, and its time.
    pub(super) reaper: Mutex<Option<(u64, Armed)>>,
    /// The number of the pool in its registry, once it is there.
    #[cfg(any(feature = "door", feature = "metrics"))]
    pub(super) registered: std::sync::OnceLock<crate::observe::pool_figures::PoolNumber>,
}

impl<J: Send + 'static> fmt::Debug for Inner<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("name", &self.name)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl<J: Send + 'static> Inner<J> {
    /// `family` is the family of the first member, if this is another one.
    pub(super) fn new(
        builder: &Builder,
        scheduler: Option<&Arc<Shared>>,
        workers: &Arc<Workers<J>>,
        family: Option<u64>,
    ) -> Arc<Self> {
        static LAST_ID: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the ids only have to differ.
        let pool = LAST_ID.fetch_add(1, Relaxed);
        let rests = matches!(**workers, Workers::Resting(_));
        let limits = Limits { rests, threads: scheduler.is_none(), ..builder.limits };
        Arc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            id: PoolId { family: family.unwrap_or(pool), pool },
            core: PoolCore::new(limits),
            workers: Arc::clone(workers),
            scheduler: scheduler.cloned(),
            name: builder.name.clone(),
            on_full: builder.on_full,
            has_queue: builder.limits.queue > 0,
            balance: builder.balance,
            priority: builder.priority,
            turns: AtomicUsize::new(0),
            keep_alive: AtomicU64::new(builder.keep_alive),
            hooks: builder.hooks.clone(),
            last_watch: AtomicU64::new(0),
            last_worker: AtomicU64::new(0),
            reaper: Mutex::new(None),
            #[cfg(any(feature = "door", feature = "metrics"))]
            registered: std::sync::OnceLock::new(),
        })
    }

    pub(super) fn stats(&self) -> PoolStats {
        self.core.stats()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.stats().closed
    }

    pub(super) fn close(&self) -> bool {
        // Before the close, because afterwards the timer may belong to a pool that was reopened.
        self.stop_reaper();
        self.woken(self.core.close())
    }

    /// Runs a step that may start workers, and does what the step leaves to be done outside the
    /// lock.
    pub(super) fn step<R>(
        self: &Arc<Self>,
        step: impl FnOnce(&PoolCore<J>, Start<'_, J>) -> (R, Wakes<J>),
    ) -> R {
        let (mut step, mut result) = (Some(step), None);
        self.run_step(&mut |core, start| {
            let (returned, wakes) = step.take().expect("it is run once")(core, start);
            result = Some(returned);
            wakes
        });
        result.expect("the step was run")
    }

    // Apart from `step`, which is compiled once for each closure.
    fn run_step(self: &Arc<Self>, step: EngineStep<'_, J>) {
        let Some(shared) = &self.scheduler else {
            return self.wake(step(&self.core, &mut || self.start_thread()));
        };
        let held = current::hold(shared);
        // The test clock stands still until the reserved processes have started. Otherwise it could
        // move on while a caller waits for such a process.
        let stopped = shared.stop_clock();
        // Reservations for which there was no room are dropped outside the lock as well.
        let mut reservations = SmallVec::default();
        let mut parking = SmallVec::default();
        let mut wakes = step(&self.core, &mut || {
            let reservation = Reservation::take(&held);
            let refusal = reservation.refusal().map(|refusal| refusal.to_string());
            reservations.push(reservation);
            match refusal {
                Some(why) => Err(io::Error::other(why)),
                None if self.rests() => Ok(IdleWorker::new_resting()),
                None => {
                    let worker = ParkingWorker::new(self);
                    let seat = Arc::clone(&worker.seat);
                    parking.push(worker);
                    Ok(IdleWorker::Parked(seat))
                }
            }
        });
        let granted = reservations.drain().filter(|reserved| reserved.refusal().is_none());
        match &*self.workers {
            Workers::Resting(launch) => {
                let launches = wakes.launches.drain().zip(granted);
                launches.for_each(|(worker, reservation)| launch(self, worker, reservation));
            }
            Workers::Coroutines { launch, .. } => {
                let launches = parking.drain().zip(granted);
                launches.for_each(|(worker, reservation)| launch(worker, reservation));
            }
            Workers::Threads { .. } => unreachable!("threads have no scheduler"),
        }
        // Before the wake-ups, which run user code: that may wait, or leave this thread.
        drop(reservations);
        drop(stopped);
        drop(held);
        self.wake(wakes);
    }

    /// Returns `true` if idle workers rest, and have no process then.
    pub(super) fn rests(&self) -> bool {
        matches!(*self.workers, Workers::Resting(_))
    }

    fn start_thread(self: &Arc<Self>) -> io::Result<IdleWorker<J>> {
        let Workers::Threads { start, .. } = &*self.workers else {
            unreachable!("a process is launched")
        };
        let worker = ParkingWorker::new(self);
        let seat = Arc::clone(&worker.seat);
        start(worker).map(|()| IdleWorker::Parked(seat))
    }

    pub(super) fn woken<R>(&self, (result, wakes): (R, Wakes<J>)) -> R {
        self.wake(wakes);
        result
    }

    fn wake(&self, mut wakes: Wakes<J>) {
        let (leavers, starved) = (wakes.leavers, wakes.starved);
        if wakes.understaffed {
            // Before the wake-ups, as in `run_step`.
            self.arc().step(|core, start| ((), core.employ(start)));
        }
        wakes.wakers().for_each(|waker| drop(guarded(|| waker.wake())));
        if leavers > 0 {
            self.dismiss(leavers);
        }
        if starved {
            self.retry_later();
        }
    }

    pub(super) fn arc(&self) -> Arc<Self> {
        self.me.upgrade().expect("the caller of a method holds the pool")
    }

    pub(super) fn left(&self) {
        self.woken(((), self.core.left()));
    }

    /// Notes that a worker is gone without having left, because its process was killed.
    pub(super) fn died(self: &Arc<Self>, seat: Option<&Arc<PoolSeat<J>>>, ticket: Option<u64>) {
        let lost = self.step(|core, start| core.died(seat, ticket, start));
        lost.into_iter().for_each(drop_guarded);
    }

    /// Returns the keep-alive in nanoseconds, or `NEVER`.
    pub(super) fn keep_alive(&self) -> u64 {
        self.keep_alive.load(Relaxed)
    }

    /// Marks this thread as a worker of this pool.
    pub(super) fn mark(&self, worker: Busy) -> Marked {
        mark(self.id, worker)
    }

    /// Returns the mark of the calling coroutine, which is a worker of this pool.
    pub(super) fn coroutine_mark(&self) -> CoroutineMark {
        CoroutineMark::of(self.id)
    }

    /// Returns the family of the pool: the pools that are members of one pool.
    pub(super) fn family(&self) -> u64 {
        self.id.family
    }

    /// Returns the worker of this pool that runs a job on this thread.
    pub(super) fn own_worker(&self) -> Option<Busy> {
        self.own(worker_of(self.id.family)?)
    }

    /// Returns the worker, if it is a worker of this pool and not of another one of its family.
    pub(super) fn own(&self, (pool, worker): (u64, Busy)) -> Option<Busy> {
        (pool == self.id.pool).then_some(worker)
    }

    /// Returns `true` if a job of this pool runs on this thread.
    pub(super) fn is_inside(&self) -> bool {
        self.own_worker().is_some()
    }

    /// Runs a job on the calling thread or coroutine. Not called if workers rest.
    pub(super) fn run(&self, job: J) -> Ended {
        match &*self.workers {
            Workers::Threads { run, .. } | Workers::Coroutines { run, .. } => run(&self.hooks, job),
            Workers::Resting(_) => unreachable!("a process polls its own job"),
        }
    }

    /// Runs a job on the calling thread, and counts its end.
    pub(super) fn run_inline(self: &Arc<Self>, ticket: u64, job: J) {
        // If the caller is a coroutine that is ended in the job, the unwinding goes on.
        let mut inline = InlineJob { inner: self, ticket, ended: Ended::Cancelled };
        inline.ended = self.run(job);
    }
}

/// A job that no worker runs. Its drop counts its end.
struct InlineJob<'a, J: Send + 'static> {
    inner: &'a Arc<Inner<J>>,
    ticket: u64,
    ended: Ended,
}

impl<J: Send + 'static> Drop for InlineJob<'_, J> {
    fn drop(&mut self) {
        self.inner.step(|core, start| core.finish_inline(self.ticket, self.ended, start));
    }
}

/// A worker that parks while it is idle: a thread or a coroutine. It exists from its start until it
/// has left. If a coroutine is dropped earlier, its process was killed. If a thread is, the system
/// refused it, under the lock of the pool, which does not count it yet.
pub(super) struct ParkingWorker<J: Send + 'static> {
    pub(super) inner: Arc<Inner<J>>,
    pub(super) seat: Arc<PoolSeat<J>>,
    /// The ticket of the job that runs.
    runs: Option<u64>,
    /// `true` if the worker has left the pool.
    is_done: bool,
}

impl<J: Send + 'static> Drop for ParkingWorker<J> {
    fn drop(&mut self) {
        if !self.is_done && self.inner.scheduler.is_some() {
            self.inner.died(Some(&self.seat), self.runs);
        }
    }
}

impl<J: Send + 'static> ParkingWorker<J> {
    fn new(inner: &Arc<Inner<J>>) -> Self {
        Self { inner: Arc::clone(inner), seat: PoolSeat::new(), runs: None, is_done: false }
    }

    /// Runs jobs until the worker leaves. `wait` waits for an order, and `begin` is called before
    /// each job. `guard` is dropped once the last user code of the worker has returned.
    pub(super) fn work<G>(
        mut self,
        guard: G,
        begin: impl Fn(u64),
        mut wait: impl FnMut(&Self) -> Order<J>,
    ) {
        let inner = Arc::clone(&self.inner);
        Hooks::run(inner.hooks.start.as_ref());
        let mut order = wait(&self);
        while let Order::Run(ticket, job) = order {
            self.runs = Some(ticket);
            begin(ticket);
            let ended = inner.run(job);
            self.runs = None;
            let idle = || IdleWorker::Parked(Arc::clone(&self.seat));
            order = match inner.woken(inner.core.finish(idle, ticket, ended)) {
                Next::Run(ticket, job) => Order::Run(ticket, job),
                Next::Park => wait(&self),
                Next::Leave => Order::Leave,
                Next::Rest(_) => unreachable!("the worker parks"),
            };
        }
        Hooks::run(inner.hooks.stop.as_ref());
        drop(guard);
        inner.left();
        self.is_done = true;
    }
}
