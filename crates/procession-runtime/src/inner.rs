//! Access to internals for the crates that are built around this crate. No promise.

use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

pub use crate::net::io::{PeerEnd, peer_end};

use crate::Pid;
use crate::process::priority::Priority;
use crate::process::slot::SlotRef;
use crate::process::wait_reason::Waiting;
use crate::process::wake;
use crate::scheduler::{current, reach};
use crate::sys::World;
use crate::time::Instant;

/// The process that was running when this value was made.
#[derive(Clone)]
pub struct OwnProcess(SlotRef);

impl std::fmt::Debug for OwnProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OwnProcess").field(&self.0.pid()).finish()
    }
}

impl OwnProcess {
    /// Returns the running process, if the caller is in a step.
    pub fn get() -> Option<Self> {
        current::current().map(Self)
    }

    /// Returns `true` if the process is asked to end.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.state.is_cancelled()
    }

    /// Returns `true` if the process is asked to end. Otherwise, the task is woken when that
    /// happens.
    pub fn is_told(&self, task: &Context<'_>) -> bool {
        if self.is_cancelled() {
            return true;
        }
        self.0.leave_foreign_waker(task.waker());
        self.0.waiting.note(Waiting::CANCEL);
        false
    }

    /// Changes the priority of the process.
    pub fn set_priority(&self, priority: Priority) {
        self.0.shared().set_priority(&self.0, priority);
    }

    /// Returns `true` while a shutdown lets the processes of the scheduler end in order.
    pub fn is_in_shutdown(&self) -> bool {
        self.0.shared().lifetime.is_stopping()
    }

    /// Returns the time until a shutdown terminates the processes of the scheduler.
    pub fn time_left(&self) -> Duration {
        let shared = self.0.shared();
        Duration::from_nanos(shared.lifetime.deadline().saturating_sub(shared.world.now()))
    }

    /// Notes requests that are lost with the process, for the result of a shutdown.
    pub fn note_cut_off(&self, requests: u64) {
        self.0.shared().lifetime.note_cut_off(requests);
    }
}

/// Returns `true` if the calling thread is a worker of a scheduler on which ids of requests travel
/// with messages.
pub fn carries_requests() -> bool {
    current::with_local(|local| local.is_some_and(|local| local.shared.processes.has_request_ids))
}

/// Asks a process to end.
pub fn cancel(pid: Pid) {
    if let Some(slot) = reach::find(pid) {
        wake::cancel(&slot);
    }
}

/// Ends a process.
pub fn terminate(pid: Pid) {
    if let Some(slot) = reach::find(pid) {
        wake::terminate(&slot);
    }
}

/// Polls a future that shall not wait any longer. Returns `None` if it would have to.
pub fn poll_last<R>(
    task: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<R>,
) -> Poll<Option<R>> {
    crate::time::poll_last(task, poll)
}

/// Returns the reading of the scheduler's clock at a moment of std's clock.
pub fn instant_from_std(moment: StdInstant) -> Instant {
    Instant::from_nanoseconds(World::from_std(moment))
}

/// Returns the moment of std's clock at which the scheduler's clock shows `now`. On the test clock,
/// that is the moment at which the real clock shows the same.
///
/// # Panics
/// Panics if std's type cannot represent it, which is so after 584 years.
pub fn instant_to_std(now: Instant) -> StdInstant {
    World::to_std(now.nanoseconds()).expect("std's type has room for 584 years")
}
