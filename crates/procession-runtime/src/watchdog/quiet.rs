//! Whether anything waits for the watchdog.

use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::shared::Shared;

/// Returns `true` if no worker runs, and nothing is queued or due.
pub(super) fn is_quiet(shared: &Shared) -> bool {
    let (_, awake, _) = shared.workforce.idle.counts();
    awake == 0
        && !shared.workforce.has_queued()
        && shared.workforce.stranded_seat().is_none()
        && (is_attended(shared) || shared.next_deadline() > shared.world.now())
}

/// Returns twice the number of steps that have ended, modulo 2^64, if no worker is awake. All that
/// these steps did is visible then.
pub(super) fn steps_at_rest(shared: &Shared) -> Option<u64> {
    // Relaxed: a worker has had the lock of the seats since its last step.
    let steps = || shared.workforce.all_seats().map(|seat| seat.step.load(Relaxed));
    shared.workforce.idle.is_none_awake().then(|| steps().fold(0, u64::wrapping_add))
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
