//! What all workers and processes are doing: always available, read without stopping anything.
//!
//! Each number is true at some moment during the call; they are not of the same moment. The running
//! side pays 4 instructions for each step (callgrind, `yield` with and without): counters are plain
//! stores by the one thread that writes them.

use std::panic::Location;
use std::time::Duration;

use procession_sync::atomic::Ordering::{Acquire, Relaxed};

use crate::Pid;
use crate::mailbox::bounded::MailboxSnapshot;
use crate::process::slot::Slot;
use crate::process::state::{ProcessState, Seen};
use crate::process::wait_reason::Waiting;
use crate::scheduler::shared::Shared;
use crate::scheduler::stats::Stats;
use crate::util::membarrier;
use crate::watchdog::state::StallSnapshot;

/// The state of a scheduler.
// These are more than 15 fields. They are flat, so that a caller reads each number by its name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot {
    /// Each worker, in the order of their numbers.
    pub workers: Vec<WorkerSnapshot>,
    /// Each process that has not been forgotten: the ended ones whose result waits, too. In the
    /// order of their slots.
    pub processes: Vec<ProcessSnapshot>,
    /// Processes that no worker holds: those that came from outside, and those for which a worker
    /// had no room.
    pub global_queue: usize,
    /// Processes ever started.
    pub spawned: u64,
    /// Processes that have ended.
    pub ended: u64,
    /// Processes that ended by a panic.
    pub panicked: u64,
    /// Messages put into mailboxes.
    pub messages_sent: u64,
    /// Messages received by processes that have ended since, and each 2^32 that another has
    /// received. The rest is in [`ProcessSnapshot::received`].
    pub messages_received: u64,
    /// Messages that were in the mailboxes of processes when those ended.
    pub messages_discarded: u64,
    /// Timers of all workers together, and those set by other threads.
    pub timers: TimerSnapshot,
    /// Descriptors, and how often the kernel was asked about them.
    pub descriptors: DescriptorSnapshot,
    /// Threads started for workers.
    pub threads_started: u32,
    /// Threads that the system refused.
    pub threads_refused: u32,
    /// What the watchdog has found.
    pub stalls: StallSnapshot,
    /// Blocking sections that workers have entered.
    pub blocking_sections: u64,
    /// Slots that are never used again, since 2^31 references to their processes were made. The
    /// program has most likely forgotten them ([`std::mem::forget`]).
    pub slots_lost: u32,
    /// Whether the system has membarrier(2). Without it, handing over to a process that was woken,
    /// spawning, and freeing the lock of a channel, a semaphore or a worker's timers take one or
    /// two atomic read-modify-writes more, some nanoseconds each.
    pub membarrier: bool,
}

/// The timers of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerSnapshot {
    /// Ever set: each has fired, was cancelled, or is pending.
    pub armed: u64,
    /// Fired for the last time.
    pub fired: u64,
    /// Cancelled before they fired.
    pub cancelled: u64,
    /// Not fired yet.
    pub pending: u64,
}

/// The descriptors of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorSnapshot {
    /// Registered now: sockets, and what [`Readiness`](crate::net::Readiness) is asked of.
    pub registered: usize,
    /// How often the kernel was asked, with waiting or without.
    pub polls: u64,
    /// What it told: changes of descriptors.
    pub events: u64,
    /// How often a listener could not accept a connection for want of a descriptor, and put it off.
    pub accepts_put_off: u64,
}

/// The state of a worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// Steps that it ran.
    pub dispatches: u64,
    /// Times it took work from another worker.
    pub steals: u64,
    /// Times another worker took work from it.
    pub stolen: u64,
    /// Times it parked.
    pub parks: u64,
    /// Times it looked at all others.
    pub searches: u64,
    /// Processes in its deque.
    pub deque: usize,
    /// Processes in its FIFO rings, woken and continued ones.
    pub fifo: usize,
    /// Processes bound to it that are ready.
    pub bound: usize,
    /// Whether its next slot holds a process.
    pub next_slot: bool,
    /// How long its current step has lasted at least: since the first snapshot that found it in
    /// this step. Workers read no clock for this. `None` if it is in no step.
    pub step_age: Option<Duration>,
}

/// The state of a process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessSnapshot {
    /// Its PID.
    pub pid: Pid,
    /// Who spawned it, if a process of the same scheduler did.
    pub parent: Option<Pid>,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Where it was spawned.
    pub location: &'static Location<'static>,
    /// `async`, `machine` or `thread`.
    pub kind: &'static str,
    /// Where it is.
    pub state: ProcessState,
    /// What it waits for, if it waits.
    pub waiting: Waiting,
    /// Messages sent to it and not received. With a reader, a writer and this one at once, it may
    /// be off by those under way and, if more than 65536 are in an unbounded one, be so many too
    /// small for a moment.
    pub mailbox: u32,
    /// The longest that the mailbox was when the process looked into it, or now.
    pub mailbox_high_water: u32,
    /// Messages that it has received; counted from 0 again after 2^32, which
    /// [`Snapshot::messages_received`] then has.
    pub received: u32,
    /// How its mailbox is doing, if that is bounded.
    pub bounded: Option<MailboxSnapshot>,
    /// How often it was dispatched: its steps, and those in which a state machine found nothing
    /// that it waits for.
    pub steps: u32,
}

/// A process that waits, as [`Scheduler::run_until_idle`](crate::Scheduler::run_until_idle) finds
/// it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitingProcess {
    /// Its PID.
    pub pid: Pid,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Where it was spawned.
    pub location: &'static Location<'static>,
    /// What it waits for.
    pub waiting: Waiting,
}

/// A process that had not ended when the time was over, as
/// [`Scheduler::shutdown`](crate::Scheduler::shutdown) finds it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnfinishedProcess {
    /// Its PID.
    pub pid: Pid,
    /// Its label, if it has one.
    pub label: Option<String>,
    /// Where it was spawned.
    pub location: &'static Location<'static>,
    /// Where it is. `Running` is a step, or a `Drop`, that has not returned; `Complete` is the
    /// `Drop` of its result, if anybody else knew the process; `Ready` may be the `Drop` of one
    /// that never had a step.
    pub state: ProcessState,
}

pub(crate) fn label(slot: &Slot) -> Option<String> {
    slot.extra().and_then(|extra| extra.label.as_deref()).map(str::to_owned)
}

fn each<R>(shared: &Shared, mut of: impl FnMut(&Slot, Seen) -> Option<R>) -> Vec<R> {
    let pinned = (0..shared.table().made()).filter_map(|index| shared.table().pin_any(index));
    pinned.filter_map(|slot| of(&slot, slot.state.see())).collect()
}

pub(crate) fn waiting(shared: &Shared) -> Vec<WaitingProcess> {
    each(shared, |slot, seen| {
        matches!(seen.phase(), ProcessState::Blocked | ProcessState::Idle).then(|| WaitingProcess {
            pid: slot.pid(),
            label: label(slot),
            location: slot.location(),
            waiting: slot.waiting(),
        })
    })
}

pub(crate) fn unfinished(shared: &Shared, except: Option<Pid>) -> Vec<UnfinishedProcess> {
    let in_steps = in_steps(shared);
    each(shared, |slot, seen| {
        let has_ended = seen.is_complete() && !slot.waiting().has(Waiting::DROP);
        (!has_ended && Some(slot.pid()) != except).then(|| UnfinishedProcess {
            pid: slot.pid(),
            label: label(slot),
            location: slot.location(),
            state: state(slot, seen, &in_steps),
        })
    })
}

/// The processes whose steps run, by their slots, as far as the slots still have them when they are
/// looked at.
fn in_steps(shared: &Shared) -> Vec<u32> {
    // Ordering: Acquire pairs with the Release of `LocalWorker::run`.
    let seats = shared.all_seats().filter(|seat| seat.step.load(Acquire) % 2 == 1);
    seats.filter_map(|seat| seat.running.load(Relaxed).checked_sub(1)).collect()
}

fn state(slot: &Slot, seen: Seen, in_steps: &[u32]) -> ProcessState {
    match seen.phase() {
        ProcessState::Ready if in_steps.contains(&slot.index()) => ProcessState::Running,
        phase => phase,
    }
}

pub(crate) fn take(shared: &Shared) -> Snapshot {
    let total = |count: fn(&Stats) -> &crate::scheduler::stats::Count| shared.totals(count);
    // In this order, so that none of the differences is too small.
    let refused = total(|stats| &stats.refused);
    let ended = total(|stats| &stats.ended).saturating_sub(refused);
    let in_steps = in_steps(shared);
    Snapshot {
        workers: workers(shared),
        processes: each(shared, |slot, seen| {
            // Complete without a handle, it has been forgotten, even if somebody keeps an address.
            (!seen.is_complete() || seen.has_handle())
                .then(|| process(slot, state(slot, seen, &in_steps)))
        }),
        global_queue: shared.queues.len(),
        ended,
        spawned: total(|stats| &stats.spawned).saturating_sub(refused),
        panicked: total(|stats| &stats.panics),
        messages_sent: total(|stats| &stats.sent),
        messages_received: total(|stats| &stats.received),
        messages_discarded: total(|stats| &stats.discarded),
        timers: timers(shared),
        descriptors: descriptors(shared),
        threads_started: shared.threads.started(),
        threads_refused: shared.threads.refused(),
        stalls: shared.watchdog.counts(),
        blocking_sections: shared.stats.blocking_sections.load(Relaxed),
        slots_lost: shared.table().lost(),
        membarrier: membarrier::are_there(),
    }
}

fn timers(shared: &Shared) -> TimerSnapshot {
    let all = shared.seats.used().map(|seat| &seat.timers).chain([&shared.clock.outside]);
    all.map(|timers| timers.counts()).fold(TimerSnapshot::default(), |sum, counts| TimerSnapshot {
        armed: sum.armed + counts.armed,
        fired: sum.fired + counts.fired,
        cancelled: sum.cancelled + counts.cancelled,
        pending: sum.pending + counts.pending,
    })
}

fn descriptors(shared: &Shared) -> DescriptorSnapshot {
    let (registered, polls, events) = shared.poller.counts();
    DescriptorSnapshot {
        registered,
        polls,
        events,
        accepts_put_off: shared.poller.starved.refused(),
    }
}

fn workers(shared: &Shared) -> Vec<WorkerSnapshot> {
    let now = shared.world.now();
    let mut ages = shared.stats.ages.lock();
    ages.resize(shared.seats.len(), (0, 0));
    let seats = shared.all_seats().zip(ages.iter_mut());
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
                next_slot: !seat.next.look().is_null(),
                step_age: in_step.then(|| Duration::from_nanos(now.saturating_sub(age.1))),
            }
        })
        .collect()
}

pub(crate) fn process(slot: &Slot, state: ProcessState) -> ProcessSnapshot {
    let waits = matches!(state, ProcessState::Blocked | ProcessState::Idle);
    let (mailbox, mailbox_high_water, bounded) = match slot.bounded() {
        None => (slot.mailbox_length(), slot.high_water(), None),
        Some((length, high_water, bounded)) => (length, high_water, Some(bounded)),
    };
    ProcessSnapshot {
        pid: slot.pid(),
        parent: slot.parent(),
        label: label(slot),
        location: slot.location(),
        kind: slot.kind().name,
        state,
        waiting: if waits { slot.waiting() } else { Waiting::default() },
        mailbox,
        mailbox_high_water,
        bounded,
        received: slot.received(),
        steps: slot.steps.load(Relaxed),
    }
}
