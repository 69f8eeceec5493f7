//! Sets timers, changes and removes them.

use std::num::NonZeroU64;

use procession_protocols::time::timers::Timers;

use crate::process::unwind::drop_guarded;
use crate::scheduler::current;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;
use crate::time::action::{Action, Armed, TimerPlace};

impl TimerPlace {
    pub(super) fn timers(self, shared: &Shared) -> &Timers<Action> {
        match self {
            Self::Seat(seat) => &shared.workforce.seat(seat).timers,
            Self::Outside => &shared.clock.outside,
        }
    }

    /// Sees to it that a timer which was set for `when` fires. If its deadline may be the earliest,
    /// wakes the sleeper (`driver.rs`). A worker with a permit looks at its own timers before it
    /// parks, so it wakes no sleeper.
    #[inline]
    pub(super) fn note_set(self, shared: &Shared, earliest: bool, when: u64) {
        if earliest {
            self.rouse_sleeper(shared, when);
        }
        if self == Self::Outside {
            shared.keep_time_outside(when);
        }
    }

    /// Returns `true` if only a worker which may be stuck fires the timers of this place, and the
    /// calling thread, which waits for one of them, is not a worker of the scheduler.
    pub(super) fn may_stand_still(self, shared: &Shared) -> bool {
        self != Self::Outside && shared.has_no_watchdog() && !current::is_worker_of(shared)
    }

    fn rouse_sleeper(self, shared: &Shared, when: u64) {
        let own = match self {
            Self::Seat(seat) => current::with_local(|local| {
                let own = |local: &&LocalWorker| {
                    std::ptr::eq(&*local.shared, shared) && local.seat == seat
                };
                local.filter(own).is_some_and(|local| {
                    local.wake_next_for(when);
                    !shared.clock.driver.must_nudge(&shared.workforce.idle, seat)
                })
            }),
            Self::Outside => false,
        };
        if !own {
            shared.outside_timer_set(when);
        }
    }
}

impl Armed {
    pub(super) fn timers(self, shared: &Shared) -> &Timers<Action> {
        self.place.timers(shared)
    }

    /// Removes the timer. Returns its action if the removal prevented the next firing.
    pub(crate) fn delete(self, shared: &Shared) -> Option<Action> {
        let action = self.timers(shared).delete(self.id);
        shared.clock.note_timer_room();
        action
    }

    /// Sets another deadline. Returns `true` if the timer was pending.
    pub(super) fn reset(self, shared: &Shared, when: u64) -> bool {
        let reset = self.timers(shared).reset(self.id, when);
        // The timer may have been deleted just before, and this thread may be the last to use its
        // slot.
        shared.clock.note_timer_room();
        reset.inspect(|rearmed| self.place.note_set(shared, rearmed.earliest, when)).is_some()
    }
}

/// Sets a timer of `shared` that wakes: in the heap of this worker if it belongs to `shared`,
/// otherwise in the heap for outside threads.
///
/// # Errors
/// Returns the action if the scheduler has reached its limit of timers.
///
/// # Rejected
/// Inlining: no faster (`timers_cancel`).
pub(crate) fn arm(shared: &Shared, when: u64, action: Action) -> Result<Armed, Action> {
    let (armed, earliest) = add(shared, when, None, action)?;
    armed.place.note_set(shared, earliest, when);
    Ok(armed)
}

/// Sets a timer of `shared` that calls a function. If the scheduler ends before the timer fires,
/// the function is dropped.
///
/// # Errors
/// Returns the action if the scheduler has reached its limit of timers, or has ended, because no
/// worker would run the function.
pub(crate) fn arm_function(
    shared: &Shared,
    when: u64,
    period: Option<NonZeroU64>,
    action: Action,
) -> Result<Armed, Action> {
    if shared.lifetime.has_ended() {
        return Err(action);
    }
    let (armed, earliest) = add(shared, when, period, action)?;
    // The end is noted before it clears the timers. If it has passed this timer, the lock of the
    // timers makes the note visible here. Before `note_set`, which may start the timekeeper.
    if shared.lifetime.has_ended() {
        drop_guarded(armed.delete(shared));
    } else {
        armed.place.note_set(shared, earliest, when);
    }
    Ok(armed)
}

/// Adds a timer. Returns `true` if its deadline may be the earliest of its heap.
#[inline(always)]
fn add(
    shared: &Shared,
    when: u64,
    period: Option<NonZeroU64>,
    action: Action,
) -> Result<(Armed, bool), Action> {
    let place = current::with_local(|local| {
        match local.filter(|local| std::ptr::eq(&*local.shared, shared)) {
            Some(local) => TimerPlace::Seat(local.seat),
            None => TimerPlace::Outside,
        }
    });
    let added = place.timers(shared).add(when, period, action).map_err(|refused| refused.0)?;
    Ok((Armed { place, id: added.id }, added.earliest))
}
