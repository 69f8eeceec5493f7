//! What the thread of a slow step does.

use crate::scheduler::stalls::StallKind;
use crate::scheduler::workforce::LOOK_EVERY;
use crate::sys::RunState;

/// Classifies a stall by the processor time that the thread used while `passed` nanoseconds passed,
/// and by its state, as far as either is known. Returns `None` if the stall is not the thread's own
/// doing.
pub(super) fn judge(used: Option<u64>, state: Option<RunState>, passed: u64) -> Option<StallKind> {
    let Some(used) = used else {
        // Ignoring it would leave the work that waits behind it without help.
        return match state {
            Some(RunState::Stopped) => None,
            Some(RunState::Runs) => Some(StallKind::Computing),
            Some(RunState::Waits) | None => Some(StallKind::Blocked),
        };
    };
    let computes = used * 4 >= passed || used >= LOOK_EVERY;
    match state {
        // It may have begun to wait just now, and have used the time before.
        Some(RunState::Waits) if used * 2 < passed => Some(StallKind::Blocked),
        Some(RunState::Waits | RunState::Runs) | None if computes => Some(StallKind::Computing),
        // Either the thread waits, or the system keeps it from running; the watchdog cannot know
        // which.
        None => Some(StallKind::Blocked),
        // The system lets it wait.
        Some(_) => None,
    }
}
