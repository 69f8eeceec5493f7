//! Snapshots: the numbers of all workers and processes, read without stopping them.
//!
//! Each number is true at some moment during the call, but not all at the same moment. A snapshot
//! needs nothing to be enabled. The observed side pays 4 instructions for each step (callgrind,
//! `yield` with and without): each counter is a plain store by the one thread that writes it.

use std::time::Duration;

use procession_protocols::process::state::{ProcessPhase, Seen};
use procession_protocols::scheduler::levels::Level;
use procession_protocols::util::histogram::{Histogram, LatenessHistogram};
use procession_protocols::util::membarrier;
use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::observe::process_info::{ProcessInfo, in_steps, state};
use crate::process::slot::Slot;
use crate::recorder::snapshot::RecorderSnapshot;
use crate::scheduler::seat::Stats;
use crate::scheduler::shared::Shared;
use crate::scheduler::stalls::StallSnapshot;
use crate::scheduler::starved::Starved;
use crate::scheduler::supply::StuckCoroutine;

/// The state of a scheduler.
// More than 15 fields, not grouped, so that a caller reads each number by its name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// All workers, by number.
    pub workers: Vec<WorkerSnapshot>,
    /// All processes that are not forgotten, by slot. An ended process is included while its result
    /// waits.
    pub processes: Vec<ProcessInfo>,
    /// Processes that no worker holds: processes that were made ready outside of the workers, and
    /// processes that did not fit into a worker's queue.
    pub global_queue: usize,
    /// The ready processes of other priorities than the normal one.
    pub levels: LevelSnapshot,
    /// Number of processes started so far.
    pub spawned: u64,
    /// Number of processes that have ended.
    pub ended: u64,
    /// Number of processes that ended by a panic.
    pub panicked: u64,
    /// Number of messages put into mailboxes.
    pub messages_sent: u64,
    /// Number of messages received by processes that have ended, and 2^32 for each time a running
    /// process's own count wrapped. The rest is in [`ProcessInfo::received`].
    pub messages_received: u64,
    /// Number of messages that were left in mailboxes when their processes ended. A message that is
    /// [kept](crate::supervisor::ChildSpec::keep_mailbox) for the next process of a child is not
    /// counted until it is clear that no process takes it over.
    pub messages_discarded: u64,
    /// The timers of all workers together, and the timers set by other threads.
    pub timers: TimerSnapshot,
    /// How late timers fired: the number of firings in each of 21 buckets, with the greatest time
    /// after the deadline that belongs there. The bounds are powers of two from 16 us to 8.6 s; the
    /// last bucket has all later firings, and the bound [`Duration::MAX`].
    pub timer_lateness: Vec<(Duration, u64)>,
    /// How long processes waited from a wake-up until their step began: the number of wake-ups in
    /// each of 27 buckets, with the greatest time that belongs there. The bounds are powers of two
    /// from 256 ns to 8.6 s; the last bucket has all longer times, and the bound
    /// [`Duration::MAX`].
    ///
    /// The numbers are estimates, because only a random part of the wake-ups is measured, at least
    /// one of 256. Each measured wake-up counts as many times as it stands for. If a bucket has `n`
    /// wake-ups of which one of 256 was measured, the standard error of `n` is 16 times its square
    /// root. See the repository's `docs/METRICS.md` for what counts as a wake-up.
    pub wake_to_run: Vec<(Duration, u64)>,
    /// The registered descriptors, and the polls of the kernel.
    pub descriptors: DescriptorSnapshot,
    /// Number of threads started for workers.
    pub threads_started: u32,
    /// Number of threads that the system refused to start.
    pub threads_refused: u32,
    /// The findings of the watchdog.
    pub stalls: StallSnapshot,
    /// Number of [cycles of waits](crate::observe::wait_cycle::WaitCycle) that were reported.
    pub wait_cycles: u64,
    /// Number of blocking sections that workers have entered.
    pub blocking_sections: u64,
    /// The figures of the [flight recorder](crate::recorder::Trace).
    pub recorder: RecorderSnapshot,
    /// Number of slots that are never used again, because 2^31 references to their processes were
    /// made. Most likely the program leaks references ([`std::mem::forget`]).
    pub slots_lost: u32,
    /// Coroutines with leaked stacks, because they [could not be
    /// unwound](crate::coroutine#ends).
    pub stuck_coroutines: Vec<StuckCoroutine>,
    /// `true` if the system has membarrier(2). Without it, some operations take one or two more
    /// atomic read-modify-writes, some nanoseconds each: handing over to a woken process, spawning,
    /// and releasing the lock of a channel, a semaphore or a worker's timers.
    pub membarrier: bool,
}

/// The ready processes of high and of batch [priority](crate::process::Priority).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelSnapshot {
    /// Number of ready high processes.
    pub high: usize,
    /// Number of ready batch processes.
    pub batch: usize,
    /// Number of workers that run batch processes.
    pub batch_workers: u32,
}

/// The timers of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerSnapshot {
    /// Number of timers set so far. Each has fired, was cancelled, or is pending.
    pub armed: u64,
    /// Number of timers that have fired for the last time.
    pub fired: u64,
    /// Number of timers cancelled before they fired.
    pub cancelled: u64,
    /// Number of timers that have not fired yet.
    pub pending: u64,
}

/// The descriptors of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorSnapshot {
    /// Number of descriptors registered now: sockets, and descriptors wrapped in
    /// [`Readiness`](crate::net::Readiness).
    pub registered: usize,
    /// Number of polls of the kernel, with and without waiting.
    pub polls: u64,
    /// Number of events that the kernel reported.
    pub events: u64,
    /// Number of times a listener put the accept of a connection off, because the system had no
    /// free descriptor, or watched no further one.
    pub accepts_put_off: u64,
}

/// The state of a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// Number of steps that it ran.
    pub dispatches: u64,
    /// Number of times it took work from another worker.
    pub steals: u64,
    /// Number of times another worker took work from it.
    pub stolen: u64,
    /// Number of times it parked.
    pub parks: u64,
    /// Number of times it looked at the queues of all other workers.
    pub searches: u64,
    /// Number of processes in its deque.
    pub deque: usize,
    /// Number of processes in its two FIFO rings, woken and continued.
    pub fifo: usize,
    /// Number of ready processes that are bound to it.
    pub bound: usize,
    /// `true` if its LIFO slot holds a process.
    pub lifo_slot: bool,
    /// The least time that the current step has lasted: the time since the first snapshot that
    /// found the worker in this step, because workers read no clock for this. `None` if the worker
    /// is in no step.
    pub step_age: Option<Duration>,
}

pub(crate) fn each<R>(shared: &Shared, mut of: impl FnMut(&Slot, Seen) -> Option<R>) -> Vec<R> {
    let pinned = (0..shared.table().used()).filter_map(|index| shared.table().pin_any(index));
    pinned.filter_map(|slot| of(&slot, slot.state.see())).collect()
}

pub(crate) fn waiting(shared: &Shared) -> Vec<ProcessInfo> {
    each(shared, |slot, seen| {
        matches!(seen.phase(), ProcessPhase::Blocked | ProcessPhase::Idle)
            .then(|| ProcessInfo::of(slot, seen.phase().into()))
    })
}

pub(crate) fn take(shared: &Shared) -> Snapshot {
    take_with(shared, || {
        let in_steps = in_steps(shared);
        each(shared, |slot, seen| {
            // A complete process without a handle is forgotten, even if it still has addresses.
            (!seen.is_complete() || seen.has_handle())
                .then(|| ProcessInfo::of(slot, state(slot, seen, &in_steps)))
        })
    })
}

/// Returns the row of one process, if it belongs to the scheduler and exists.
pub(crate) fn one(shared: &Shared, pid: Pid) -> Option<ProcessInfo> {
    if (pid.node(), pid.scheduler()) != (0, shared.id()) {
        return None;
    }
    let slot = shared.table().pin(pid.slot(), pid.generation())?;
    let seen = slot.state.see();
    let exists = !seen.is_complete() || seen.has_handle();
    exists.then(|| ProcessInfo::of(&slot, state(&slot, seen, &in_steps(shared))))
}

/// Takes a snapshot in which the list of processes is empty. Its cost does not grow with their
/// number.
#[cfg(any(feature = "door", feature = "metrics"))]
pub(crate) fn take_without_processes(shared: &Shared) -> Snapshot {
    take_with(shared, Vec::new)
}

fn take_with(shared: &Shared, processes: impl FnOnce() -> Vec<ProcessInfo>) -> Snapshot {
    let total = |count: fn(&Stats) -> &crate::scheduler::seat::Count| shared.totals(count);
    // In this order, so that no difference is smaller than the true one.
    let refused = total(|stats| &stats.refused);
    let ended = total(|stats| &stats.ended).saturating_sub(refused);
    Snapshot {
        workers: workers(shared),
        processes: processes(),
        global_queue: shared.workforce.queues.len(),
        levels: LevelSnapshot {
            high: shared.workforce.levels.len_everywhere(Level::High),
            batch: shared.workforce.levels.len_everywhere(Level::Batch),
            batch_workers: shared.workforce.idle.batch(),
        },
        ended,
        spawned: total(|stats| &stats.spawned).saturating_sub(refused),
        panicked: total(|stats| &stats.panics),
        messages_sent: total(|stats| &stats.sent),
        messages_received: total(|stats| &stats.received),
        messages_discarded: total(|stats| &stats.discarded),
        timers: timers(shared),
        timer_lateness: buckets(&lateness(shared)),
        wake_to_run: buckets(&shared.processes.waits.all()),
        descriptors: descriptors(shared),
        threads_started: shared.workforce.threads.started(),
        threads_refused: shared.workforce.threads.refused(),
        stalls: shared.workforce.watchdog.counts(),
        wait_cycles: shared.processes.edges.cycles(),
        blocking_sections: shared.stats.blocking_sections.load(Relaxed),
        recorder: RecorderSnapshot::of(shared),
        slots_lost: shared.table().lost(),
        stuck_coroutines: shared.coroutines.stuck(),
        membarrier: membarrier::are_there(),
    }
}

fn timers(shared: &Shared) -> TimerSnapshot {
    let all = shared.workforce.seats.used().map(|seat| &seat.timers).chain([&shared.clock.outside]);
    all.map(|timers| timers.counts()).fold(TimerSnapshot::default(), |sum, counts| TimerSnapshot {
        armed: sum.armed + counts.armed,
        fired: sum.fired + counts.fired,
        cancelled: sum.cancelled + counts.cancelled,
        pending: sum.pending + counts.pending,
    })
}

fn buckets<const FIRST: u32, const LEN: usize>(
    histogram: &Histogram<FIRST, LEN>,
) -> Vec<(Duration, u64)> {
    let bound = |bound: Option<u64>| bound.map_or(Duration::MAX, Duration::from_nanos);
    histogram.buckets().map(|(to, count)| (bound(to), count)).collect()
}

/// Returns the times between the deadlines of timers and their firings.
pub(crate) fn lateness(shared: &Shared) -> LatenessHistogram {
    let mut sum = shared.clock.outside.lateness();
    for seat in shared.workforce.seats.used() {
        sum.merge(&seat.timers.lateness());
    }
    sum
}

fn descriptors(shared: &Shared) -> DescriptorSnapshot {
    let (registered, polls, events) = shared.poller.counts();
    DescriptorSnapshot { registered, polls, events, accepts_put_off: Starved::of(shared).refused() }
}

fn workers(shared: &Shared) -> Vec<WorkerSnapshot> {
    let now = shared.world.now();
    let mut ages = shared.stats.ages.lock();
    ages.resize(shared.workforce.seats.len(), (0, 0));
    let seats = shared.workforce.all_seats().zip(ages.iter_mut());
    seats
        .map(|(seat, age)| {
            let step = seat.step.load(Relaxed);
            if age.0 != step {
                *age = (step, now);
            }
            let in_step = step % 2 == 1;
            WorkerSnapshot {
                dispatches: step.div_ceil(2),
                steals: seat.stats.steals.get(),
                stolen: seat.stats.stolen.get(),
                parks: seat.stats.parks.get(),
                searches: seat.stats.searches.get(),
                deque: seat.queues.deque.len(),
                fifo: seat.queues.woken.len() + seat.queues.continued.len(),
                bound: seat.bound.len(),
                lifo_slot: !seat.next.look().is_null(),
                step_age: in_step.then(|| Duration::from_nanos(now.saturating_sub(age.1))),
            }
        })
        .collect()
}
