//! The tokio runtime of a scheduler on the test clock.
//!
//! # Protocol of the two clocks
//!
//! ## Problem
//! A service uses timers of the scheduler and timers of tokio: a handler sleeps, and a layer around
//! it has a timeout of tokio. On the test clock, both kinds must fire in the order of their
//! deadlines, although neither clock can be asked for the deadlines of the other. In addition, some
//! work is in no queue that the scheduler could look into: bytes between two sockets of the
//! program, and work of threads that a library has started, as `sqlx` does for SQLite. If a clock
//! moved while such work is on its way, a timeout of an hour would end a request that takes a
//! millisecond.
//!
//! ## States
//! The runtime has one thread, which it does not start itself, and its clock is paused. tokio's
//! clock shows whole milliseconds since its start, because its timers have this resolution. It is
//! ahead of the scheduler's clock by less than a millisecond.
//!
//! ## Steps
//! 1. `Drive`: a worker that finds nothing to run runs the tasks of the runtime until none is
//!    ready, before it parks. One worker at a time does so. A parked worker that keeps the time
//!    looks again every [`LOOK_EVERY`], because tokio wakes no worker for its tasks.
//! 2. `Quiet`: if every seat is parked and the runtime is idle, wait until nothing is on its way
//!    (`bridge/quiet.rs`).
//! 3. `Hop`: the last worker lets tokio's clock advance by itself, which it does up to the earliest
//!    timer of the runtime. A timer of tokio's at the deadline of the scheduler, rounded up, is the
//!    limit. The scheduler's clock follows: it is set to the deadline if the limit was reached, and
//!    to tokio's clock otherwise.
//!
//! ## Why it works
//! The runtime advances only in a `Hop`: its root future wakes itself in every poll of a `Drive`,
//! and a runtime with a woken root polls its descriptors without waiting and without advancing.
//! Both clocks stop at each deadline of either, so no timer fires after one with a later deadline,
//! except within the same millisecond.
//!
//! The first hop after something has run is one millisecond long. If a closure of tokio's
//! `spawn_blocking` runs, tokio does not advance, and waits for this millisecond in real time
//! instead. So a hop never blocks the worker for longer, and the clock stands still for closures.
//!
//! ## Allowed
//! - A timer of tokio fires up to a millisecond late, as always with tokio.
//! - If no process has a deadline, tokio's timers do not fire: the limit of a hop would be missing,
//!   and the clock of a scheduler that waits for another thread must not move. The limit of a test
//!   (`testing.rs`) is such a deadline.
//!
//! ## Rejected
//! - A thread for the runtime: the order of its tasks and of the processes would depend on the
//!   system.
//! - `tokio::time::advance` by the time to the next deadline of the scheduler: earlier timers of
//!   tokio would all fire at the same time, and late.
//! - To poll the runtime without a limit, and let it advance when it parks: it advances after one
//!   look at its sockets, so timeouts of tokio overtook requests between two sockets of one
//!   program.
//!
//! ## Checked by
//! `it::paused`, and `examples/tokio/tests/testing.rs` with `axum`, `reqwest` and `sqlx`.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU64};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::time::Instant;

use super::quiet::{self, QuietSince, TokioUse};
use crate::process::unwind::guarded;
use crate::scheduler::error::BuildError;
use crate::scheduler::part::SeenScheduler;
use crate::sys::World;

/// The time after which a parked worker looks again whether tasks of the runtime are ready. A task
/// that only another thread wakes waits for up to this time.
pub(crate) const LOOK_EVERY: Duration = Duration::from_micros(500);

/// The resolution of tokio's timers, in nanoseconds.
const TICK: u64 = 1_000_000;

/// The number of polls of the root future in one `Drive`. Each poll lets one task run. An arbitrary
/// choice: as many steps as a worker runs between two looks at its descriptors would not be enough
/// for a chain of tasks, and with more, processes would wait for long.
const POLLS: u32 = 256;

/// The number of times that the runtime parks in a `Hop` without advancing before the worker stops
/// trying. It does not advance at the first time, because the limit was just set.
const PARKS: u32 = 3;

/// The longest hop in ticks: a year. tokio's timers end after some years.
const HOP_MAX: u64 = 365 * 24 * 60 * 60 * 1000;

/// What the last `Drive` has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driven {
    /// No task is ready.
    Idle,
    /// There may be more to run.
    Busy,
}

/// The clock of a paused runtime, and what decides when it moves.
pub(crate) struct PausedClock {
    /// tokio's time at the start, which is 0 on the scheduler's clock.
    start: Instant,
    /// tokio's time since the start in ticks. Written by the worker that has the runtime.
    tick: AtomicU64,
    /// Set if the runtime has advanced since anything has run.
    has_advanced: AtomicBool,
    /// Number of times that a task or a block-on future has run.
    activity: AtomicU64,
    /// Number of `Drive`s.
    drives: AtomicU64,
    /// Set once a task of tokio's has existed, or another thread has woken a process. From then on,
    /// libraries may have threads and sockets that work for the processes.
    is_used: AtomicBool,
    /// The thread that has built the scheduler, which is the thread of a test.
    builder: u32,
    quiet: Mutex<QuietSince>,
    watch: Arc<HopWatch>,
}

/// Wakes the root future of a `Hop` once the runtime has advanced.
#[derive(Default)]
struct HopWatch(Mutex<Option<WatchedHop>>);

struct WatchedHop {
    from: Instant,
    parks: u32,
    root: Waker,
}

impl HopWatch {
    /// Called by the runtime each time it has parked.
    fn parked(&self) {
        let mut watched = self.0.lock();
        let Some(hop) = &mut *watched else { return };
        hop.parks += 1;
        // Woken at no other time, because tokio does not advance after a wake-up.
        let root = (hop.parks >= PARKS || Instant::now() != hop.from).then(|| hop.root.clone());
        drop(watched);
        if let Some(root) = root {
            root.wake();
        }
    }
}

/// Starts a runtime without threads and with a paused clock. Its threads for closures call `begin`
/// first.
pub(super) fn start(
    name: &str,
    begin: impl Fn() + Send + Sync + 'static,
) -> Result<(Runtime, PausedClock), BuildError> {
    let watch = Arc::<HopWatch>::default();
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).thread_name(format!("{name}-tokio"));
    // One task between two polls of the root, which sees in this way whether any has run.
    builder.event_interval(1).global_queue_interval(1);
    let parked = Arc::clone(&watch);
    builder.on_thread_start(begin).on_thread_unpark(move || parked.parked());
    let runtime = builder.build().map_err(BuildError::Thread)?;
    let entered = runtime.enter();
    let start = Instant::now();
    drop(entered);
    let clock = PausedClock {
        start,
        tick: AtomicU64::new(0),
        has_advanced: AtomicBool::new(false),
        activity: AtomicU64::new(0),
        drives: AtomicU64::new(0),
        is_used: AtomicBool::new(false),
        builder: World::thread_number(),
        quiet: Mutex::default(),
        watch,
    };
    Ok((runtime, clock))
}

/// Lets the runtime run one task, or look at its descriptors if none is ready.
async fn let_one_run() {
    let mut is_first = true;
    poll_fn(|task| {
        if std::mem::take(&mut is_first) {
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

impl PausedClock {
    /// Returns `true` if libraries may have threads and sockets that work for the processes.
    fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// `Quiet`
    pub(super) fn is_quiet(&self, seen: &SeenScheduler<'_>) -> bool {
        let tokio = TokioUse {
            activity: self.activity.load(Relaxed),
            drives: self.drives.load(Relaxed),
            is_used: self.is_used(),
        };
        quiet::is_quiet(&mut self.quiet.lock(), tokio, seen)
    }

    /// Notes that this thread, which is not one of the scheduler's workers, wakes a process of the
    /// scheduler.
    pub(crate) fn note_foreign_wake(&self) {
        if !self.is_used() && World::thread_number() != self.builder {
            self.is_used.store(true, Relaxed);
        }
    }

    /// Notes that code has run. This code may have begun work that is now on its way.
    pub(crate) fn note_activity(&self) {
        // Relaxed: only the last worker that parks acts on these, and the lock of the seats orders
        // it after all others.
        self.activity.fetch_add(1, Relaxed);
        self.has_advanced.store(false, Relaxed);
    }

    /// Notes that a `Drive` begins.
    pub(super) fn note_drive(&self) {
        // Relaxed: read by the same worker, or after the lock of the seats.
        self.drives.fetch_add(1, Relaxed);
    }

    /// `Drive`, with the scheduler's clock at `now`.
    pub(super) fn drive(&self, runtime: &Runtime, now: u64) -> Driven {
        let handle = runtime.handle();
        let Ok((driven, has_run)) = guarded(|| runtime.block_on(self.run_tasks(handle, now)))
        else {
            // The thread is inside another runtime, and tokio has refused this one there.
            return Driven::Idle;
        };
        if has_run {
            self.note_activity();
        }
        if handle.metrics().num_alive_tasks() > 0 {
            self.is_used.store(true, Relaxed);
        }
        driven
    }

    /// Lets the tasks run until none is ready, or for [`POLLS`] polls. Also returns whether any
    /// task has run.
    async fn run_tasks(&self, handle: &Handle, now: u64) -> (Driven, bool) {
        // Somebody has moved the scheduler's clock.
        let behind = now.div_ceil(TICK).saturating_sub(self.tick.load(Relaxed));
        if behind > 0 {
            tokio::time::advance(Duration::from_millis(behind)).await;
            self.tick.fetch_add(behind, Relaxed);
        }
        let (mut calm, mut polls, mut has_run) = (0, 0, behind > 0);
        while polls < POLLS {
            // Tasks run in the order in which they became ready. If this task is the first to run,
            // no other task was ready.
            let marker = handle.spawn(async {});
            let before = polls;
            while !marker.is_finished() && polls < POLLS {
                let_one_run().await;
                polls += 1;
            }
            if polls - before > 1 || handle.metrics().global_queue_depth() > 0 {
                (calm, has_run) = (0, true);
                continue;
            }
            calm += 1;
            // The runtime has looked at its descriptors after the first marker.
            if calm == 2 {
                return (Driven::Idle, has_run);
            }
        }
        (Driven::Busy, true)
    }

    /// `Hop`, with the scheduler's clock at `now` and its next deadline. Returns what the
    /// scheduler's clock is to show.
    pub(super) fn advance(&self, runtime: &Runtime, now: u64, deadline: u64) -> u64 {
        let tick = self.tick.load(Relaxed);
        let limit = deadline.div_ceil(TICK);
        if limit <= tick {
            return deadline;
        }
        let until =
            if self.has_advanced.load(Relaxed) { limit.min(tick + HOP_MAX) } else { tick + 1 };
        let Ok(reached) = guarded(|| runtime.block_on(self.hop(until))) else {
            // As in `drive`: the scheduler continues without tokio.
            return deadline;
        };
        self.has_advanced.store(reached > tick, Relaxed);
        self.tick.store(reached, Relaxed);
        if reached >= limit { deadline } else { now.max(reached.saturating_mul(TICK)) }
    }

    /// Lets tokio's clock advance once, to `until` at most. Returns what it shows.
    async fn hop(&self, until: u64) -> u64 {
        let from = Instant::now();
        let mut limit = pin!(tokio::time::sleep_until(self.start + Duration::from_millis(until)));
        let mut is_first = true;
        poll_fn(|task| {
            if limit.as_mut().poll(task).is_ready() || !std::mem::take(&mut is_first) {
                return Poll::Ready(());
            }
            let root = task.waker().clone();
            *self.watch.0.lock() = Some(WatchedHop { from, parks: 0, root });
            Poll::Pending
        })
        .await;
        drop(self.watch.0.lock().take());
        let shown = Instant::now().saturating_duration_since(self.start);
        u64::try_from(shown.as_millis()).unwrap_or(u64::MAX)
    }
}
