//! Whether anything waits for the watchdog.

use procession_protocols::scheduler::seat_id::NEVER;

use crate::scheduler::shared::Shared;

/// Returns `true` if no worker runs, and nothing is queued or due.
pub(super) fn is_quiet(shared: &Shared) -> bool {
    let (_, awake, _) = shared.workforce.idle.counts();
    awake == 0
        && !shared.workforce.has_queued()
        && shared.workforce.stranded_seat().is_none()
        && (is_attended(shared) || shared.next_deadline() > shared.world.now())
}

/// Returns `true` if a worker looks after deadlines and descriptors, or can be woken to. If all
/// threads block, the watchdog does it.
pub(super) fn is_attended(shared: &Shared) -> bool {
    shared.workforce.idle.counts().2 > 0
}

/// Returns `true` if a driver waits for all timers and descriptors, or there are none.
pub(super) fn has_driver(shared: &Shared) -> bool {
    shared.clock.driver.is_kept()
        || shared.poller.kernel().is_none() && shared.next_deadline() == NEVER
}
