//! Monitors: one process learns of the end of another.

use procession_protocols::relations::on_exit::Left;

use crate::process::slot::Slot;
use crate::process::wait_reason::WaitTarget;
use crate::relations::links::{forget_watcher, leave, leave_own, signal, tell, with, with_any};
use crate::relations::signal::{Down, MonitorRef, RemoteSignal, Signal};
use crate::scheduler::reach::find;
use crate::{Exit, Pid};

/// Makes `watcher` receive one down when the other process ends. The caller may be any thread, and
/// `watcher` may be ending.
pub(crate) fn monitor(watcher: &Slot, other: Pid) -> MonitorRef {
    let monitor = MonitorRef::draw();
    if watcher.pid() == other {
        // As on the BEAM, a process receives no down for its own end.
        return monitor;
    }
    let left = leave(
        watcher,
        |relations| {
            relations.watched.insert(monitor, other);
        },
        |relations| relations.watched.remove(&monitor).is_some(),
    );
    if left != Left::There {
        // An ended process receives nothing.
        return monitor;
    }
    watch(watcher, other, monitor);
    // `LookAgain` of the on-exit protocol. The word is enough here: the end needs no signal, and
    // removing an entry twice does nothing.
    if watcher.state.see().is_complete() {
        forget_watcher(watcher.pid(), other, monitor);
    }
    monitor
}

/// Enters a monitor at the process that is monitored, or answers the monitor immediately.
fn watch(watcher: &Slot, other: Pid, monitor: MonitorRef) {
    let pid = watcher.pid();
    if other.node() != 0 {
        return signal(RemoteSignal::Monitor { from: pid, to: other, monitor });
    }
    let left = find(other).map(|target| {
        leave(
            &target,
            |relations| {
                relations.watchers.insert(monitor, pid);
            },
            |relations| relations.watchers.remove(&monitor).is_some(),
        )
    });
    if left != Some(Left::There) {
        tell(watcher, Signal::Down(Down { monitor, pid: other, exit: Exit::NoProcess }));
    }
}

/// Like `monitor`, for a process that is not queued yet.
pub(crate) fn monitor_newborn(own: &Slot, newborn: &Slot) -> MonitorRef {
    let monitor = MonitorRef::draw();
    let has_ended = leave_own(own, |relations| {
        relations.watched.insert(monitor, newborn.seen_pid());
    });
    if has_ended {
        with(own, |relations| relations.watched.remove(&monitor));
        return monitor;
    }
    let ended = leave_own(newborn, |relations| {
        relations.watchers.insert(monitor, own.pid());
    });
    debug_assert!(!ended, "it was never queued");
    monitor
}

/// Ends a monitor. Returns `true` if its down was not received. The process does not receive it
/// afterwards, even if it is in the mailbox already.
pub(crate) fn demonitor(own: &Slot, monitor: MonitorRef) -> bool {
    let Some(target) = with_any(own, |relations| relations.watched.remove(&monitor)).flatten()
    else {
        return false;
    };
    forget_watcher(own.pid(), target, monitor);
    true
}

/// Returns the process that a process monitors, if it has not received the down, and both belong to
/// the same scheduler.
pub(crate) fn target(own: &Slot, monitor: MonitorRef) -> Option<WaitTarget> {
    let pid = with_any(own, |relations| relations.watched.get(&monitor).copied()).flatten()?;
    let is_near = pid.node() == 0 && pid.scheduler() == own.shared().id();
    is_near.then(|| WaitTarget::new(pid.slot(), pid.generation()))
}
