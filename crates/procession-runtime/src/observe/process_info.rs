//! What is known of one process, at the level of detail that was asked for.

use std::borrow::Cow;
use std::fmt;
use std::panic::Location;
#[cfg(feature = "look")]
use std::sync::Arc;
#[cfg(feature = "look")]
use std::time::Duration;

use procession_protocols::process::priority::Priority;
use procession_protocols::process::state::{ProcessPhase, Seen};
use procession_sync::atomic::Ordering::{Acquire, Relaxed};

use crate::Pid;
use crate::mailbox::bounds::MailboxSnapshot;
use crate::observe::process_state::ProcessState;
use crate::process::slot::Slot;
use crate::process::wait_reason::Waiting;
#[cfg(feature = "look")]
use crate::relations::entries::PidList;
use crate::scheduler::shared::Shared;

/// A process, at one of three levels of detail.
///
/// | level | returned by | what it has |
/// |---|---|---|
/// | state | [`Scheduler::process`], [`run_until_idle`] | all fields but the following |
/// | | [`Snapshot::processes`], [`Unfinished`] | the same |
/// | figures | [`View::rows`] | also `suspended`, `wait`, `samples`, `memory` and differences |
/// | relations | [`Scheduler::detail`], [`detail`] | also `relations` |
///
/// The differences are the fields that compare a view with an earlier view.
///
/// [`Scheduler::process`]: crate::Scheduler::process
/// [`run_until_idle`]: crate::Scheduler::run_until_idle
/// [`Snapshot::processes`]: crate::snapshot::Snapshot::processes
/// [`Unfinished`]: crate::snapshot::Unfinished
/// [`View::rows`]: crate::look::View::rows
/// [`Scheduler::detail`]: crate::Scheduler::detail
/// [`detail`]: crate::look::detail()
///
/// Each figure is true at some moment during the call, but not all at the same moment. The fields
/// of the levels figures and relations need the feature `look`. They are `None`, 0 or `false` at a
/// lower level, because they take locks or searches for each process.
// These are more than 15 fields. They are flat, so that a caller reads each number by its name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Its PID.
    pub pid: Pid,
    /// The process that spawned it, if it belongs to the same scheduler.
    pub parent: Option<Pid>,
    /// Its label, if it has one. In a view and in a detail, it is cut after 120 characters.
    pub label: Option<String>,
    /// Where it was spawned.
    pub location: &'static Location<'static>,
    /// `async`, `local`, `machine`, `coroutine` or `thread`.
    pub kind: &'static str,
    /// Its priority.
    pub priority: Priority,
    /// Its state. In [`Unfinished`](crate::snapshot::Unfinished), `Running` is a step or a `Drop`
    /// that has not returned, `Complete` is the `Drop` of its result, if other code had a reference
    /// to the process, and `Ready` may be the `Drop` of a process that never had a step.
    pub state: ProcessState,
    /// `true` if it was cancelled, and so asked to end or about to be dropped.
    pub cancelled: bool,
    /// `true` if it is [suspended](crate::Scheduler::suspend).
    #[cfg(feature = "look")]
    pub suspended: bool,
    /// What it waits for, if it waits.
    pub waiting: Waiting,
    /// Number of messages sent to it and not received yet. If a process receives and another sends
    /// during the call, messages under way may be missed or counted twice. If an unbounded mailbox
    /// holds more than 65536 messages, the number may be up to 65536 less than the true length for
    /// a moment.
    pub mailbox: u32,
    /// The greatest known length of the mailbox: its length now, and the lengths that the process
    /// found when it looked.
    pub mailbox_high_water: u32,
    /// Number of messages that it has received, modulo 2^32. The full rounds are in
    /// [`Snapshot::messages_received`](crate::snapshot::Snapshot::messages_received).
    pub received: u32,
    /// The state of its mailbox, if that is bounded.
    pub bounded: Option<MailboxSnapshot>,
    /// Number of dispatches, modulo 2^32: its steps, and dispatches in which a state machine found
    /// no event that it waits for.
    pub steps: u32,
    /// What it waits for, where and for how long, if it waits.
    #[cfg(feature = "look")]
    pub wait: Option<ProcessWait>,
    /// Number of messages by which the mailbox has grown in the window. 0 without a window.
    #[cfg(feature = "look")]
    pub growth: i64,
    /// Number of messages received in the window. `None` without a window, or if the earlier view
    /// has no row of the process.
    #[cfg(feature = "look")]
    pub received_in_window: Option<u32>,
    /// Number of dispatches in the window. `None` without a window, or if the earlier view has no
    /// row of the process.
    #[cfg(feature = "look")]
    pub steps_in_window: Option<u32>,
    /// The processor time, since the start of the process or in the window.
    #[cfg(feature = "look")]
    pub samples: Option<Samples>,
    /// The memory that it takes, as far as it is known.
    #[cfg(feature = "look")]
    pub memory: Option<MemoryUse>,
    /// Its relations to other processes.
    #[cfg(feature = "look")]
    pub relations: Option<Box<ProcessRelations>>,
}

impl ProcessInfo {
    /// Returns the state of a process, without figures and relations.
    pub(crate) fn of(slot: &Slot, state: ProcessState) -> Self {
        let waits = matches!(state, ProcessState::Blocked | ProcessState::Idle);
        let (mailbox, mailbox_high_water, bounded) = match slot.bounded() {
            None => (slot.mailbox_length(), slot.high_water(), None),
            Some((length, high_water, bounded)) => {
                let is_bounded = bounded.capacity < u32::MAX;
                (length, high_water, is_bounded.then(|| bounded.into()))
            }
        };
        Self {
            pid: slot.seen_pid(),
            parent: slot.seen_parent(),
            label: label(slot),
            location: slot.location(),
            kind: slot.kind().name,
            priority: slot.shared().priority(slot),
            state,
            cancelled: slot.state.is_cancelled(),
            #[cfg(feature = "look")]
            suspended: false,
            waiting: if waits { slot.waiting.get() } else { Waiting::default() },
            mailbox,
            mailbox_high_water,
            bounded,
            received: slot.received(),
            steps: slot.steps(),
            #[cfg(feature = "look")]
            wait: None,
            #[cfg(feature = "look")]
            growth: 0,
            #[cfg(feature = "look")]
            received_in_window: None,
            #[cfg(feature = "look")]
            steps_in_window: None,
            #[cfg(feature = "look")]
            samples: None,
            #[cfg(feature = "look")]
            memory: None,
            #[cfg(feature = "look")]
            relations: None,
        }
    }
}

/// Writes the label, the PID and the location of the spawn.
impl fmt::Display for ProcessInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = self.label.as_deref().unwrap_or("a process");
        write!(f, "{label} ({}, spawned at {})", self.pid, self.location)
    }
}

/// The relations of a process to others.
///
/// Available with the crate feature `look`.
#[cfg(feature = "look")]
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessRelations {
    /// The name under which it is registered, if it is.
    pub name: Option<Arc<str>>,
    /// The type of its messages.
    pub message: &'static str,
    /// The processes that it is linked with.
    pub links: PidList,
    /// The processes that monitor it.
    pub monitors: PidList,
    /// The processes that it monitors.
    pub monitored: PidList,
    /// The processes in its scope.
    pub scope: PidList,
    /// The process that supervises it, if there is one.
    pub supervisor: Option<Pid>,
}

/// The processor time of a process, by samples. If the watchdog finds a worker in a step of the
/// process, the sample counts for the time since the watchdog's previous look.
///
/// Blocking sections do not count. Without a watchdog, there are no samples: on a test clock, and
/// if [`Builder::watchdog`](crate::Builder::watchdog) is off.
///
/// Available with the crate feature `look`.
#[cfg(feature = "look")]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Samples {
    /// Number of looks that found it running.
    pub count: u64,
    /// The processor time that these looks stand for.
    pub time: Duration,
    /// The share of one processor that it used: a fraction of the window, or of the time since the
    /// first look.
    pub share: f64,
    /// The standard error of the share.
    pub error: f64,
}

/// A wait of a process.
///
/// Available with the crate feature `look`.
#[cfg(feature = "look")]
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProcessWait {
    /// The reasons, perhaps several.
    pub reasons: Waiting,
    /// Where the program waits: the call that made the future. If it waits for several things, this
    /// is the last call. A handle that is awaited itself shows the location of the spawn, and a
    /// oneshot channel the call that made it. `None` if the future does not belong to the runtime,
    /// and for the handle of a job of a pool.
    pub location: Option<&'static Location<'static>>,
    /// The process that it waits for, if that is known: the callee of a call, the process that is
    /// to end, the holder of a lock, the owner of a full mailbox.
    pub target: Option<Pid>,
    /// The time for which it has waited at least: since the first look of the watchdog, or of the
    /// program, that found it in this wait.
    pub at_least: Duration,
    /// `true` if the process waits, directly or through others, for itself.
    pub in_cycle: bool,
}

/// The memory of a process, in bytes. The heap that its future or its messages own is not known.
///
/// Available with the crate feature `look`.
#[cfg(feature = "look")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The body: the future, the state machine, or the closure of a coroutine.
    pub body: usize,
    /// The messages in the mailbox, without what they own.
    pub mailbox: usize,
    /// The stack, if the process is a coroutine that has begun.
    pub stack: usize,
}

#[cfg(feature = "look")]
impl MemoryUse {
    /// Returns the sum.
    pub fn total(self) -> usize {
        self.body + self.mailbox + self.stack
    }
}

/// Returns `true` if a process is suspended. It takes the lock of all requests.
#[cfg(feature = "look")]
pub(crate) fn is_suspended(slot: &Slot) -> bool {
    slot.shared().processes.requests.is_suspended(slot.index(), slot.pins.generation())
}

/// Returns the current label of a process.
pub(crate) fn current_label(slot: &Slot) -> Option<Cow<'_, str>> {
    let extra = slot.extra()?;
    let changed = extra.changed_label.lock().clone();
    match changed {
        Some(changed) => Some(Cow::Owned(changed.to_string())),
        None => extra.label.as_deref().map(Cow::Borrowed),
    }
}

pub(crate) fn label(slot: &Slot) -> Option<String> {
    current_label(slot).map(Cow::into_owned)
}

/// Returns the slots of the processes that are in a step, as far as the slots still hold them when
/// they are read.
pub(crate) fn in_steps(shared: &Shared) -> Vec<u32> {
    // Ordering: Acquire pairs with the Release of `LocalWorker::run`.
    let seats = shared.workforce.all_seats().filter(|seat| seat.step.load(Acquire) % 2 == 1);
    seats.filter_map(|seat| seat.running.load(Relaxed).checked_sub(1)).collect()
}

pub(crate) fn state(slot: &Slot, seen: Seen, in_steps: &[u32]) -> ProcessState {
    match seen.phase() {
        ProcessPhase::Active if in_steps.contains(&slot.index()) => ProcessState::Running,
        phase => phase.into(),
    }
}
