//! The timekeeper: a thread that fires the timers of waits outside of the scheduler, if no other
//! thread is sure to.
//!
//! # Timekeeping protocol
//!
//! ## Problem
//! A process of another scheduler awaits the shutdown of this scheduler, with a deadline. The timer
//! of the deadline belongs to this scheduler, because its clock counts. If all workers are stuck in
//! their steps, no worker fires the timer. The watchdog does, but a scheduler with one thread has
//! none, and neither has a scheduler that has ended. Without callers, a scheduler that callers
//! drive has not even a worker. A sleep that began in a process and is awaited elsewhere now moves
//! its timer out of the set of the worker.
//!
//! ## States
//! Under a lock: the alarm of the thread, if there is one, and the time of its next look.
//!
//! ## Steps
//! - `Keep`, by a thread that has set a timer and is not sure to fire it itself: if there is no
//!   watchdog, then under the lock make the next look come no later than [`OVERDUE`] after the
//!   timer, or at the timer if there are no workers. If there is no thread, start one outside the
//!   lock.
//! - `Look`, by the thread: fire what is due. Then under the lock read the earliest deadline, and
//!   set the next look as `Keep` does. If the scheduler has ended and nothing is pending, leave.
//! - `Dismiss`, at the end of the scheduler, and when its memory is freed: look now.
//!
//! ## Why it works
//! *Keep against Look.* `Keep` follows the setting of its timer. If `Keep` takes the lock first,
//! the timer is set before the read of the earliest deadline. If `Look` does, `Keep` finds the time
//! that `Look` has set, and corrects it.
//!
//! *Keep against the end.* The end is noted before the timers are cleared. A timer that is set
//! before that is cleared, which wakes its waiter. A later timer finds the end noted. The timer of
//! a function, which nothing waits for, is deleted by the thread that has set it (`arm_function`).
//!
//! The thread does not keep the scheduler alive.
//!
//! ## Allowed
//! - If the system refuses the thread, the waits last until a worker comes, or until another timer
//!   is set.
//! - The thread of an ended scheduler stays until the time of a timer that was deleted.
//!
//! ## Rejected
//! - A watchdog for each scheduler with one thread: a user that chooses one thread would get two.
//! - A timer of the waiter's scheduler: the waiter may belong to none, and a test clock is the
//!   clock of one scheduler.
//! - Looks at the deadlines themselves, beside workers: the thread would wake at each of them,
//!   together with the worker that fires it.
//!
//! ## Checked by
//! `it::blocked::elsewhere`.

use std::sync::{Arc, Weak};

use procession_protocols::scheduler::seat_id::NEVER;
use procession_sync::Mutex;

use crate::scheduler::current;
use crate::scheduler::current::{Current, Entered};
use crate::scheduler::part::Part;
use crate::scheduler::shared::Shared;
use crate::sys::World;
use crate::sys::alarm::Alarm;

/// How late the timekeeper of a scheduler with workers fires a timer, in nanoseconds: as late as a
/// stall is noticed by default, so that a worker that is merely busy comes first.
const OVERDUE: u64 = 10_000_000;

/// What a scheduler and its timekeeper share: the alarm of the thread, if there is one, and the
/// time of its next look.
#[derive(Default)]
pub(crate) struct Timekeeper(Mutex<Option<(Arc<Alarm>, u64)>>);

impl Part for Timekeeper {
    fn scheduler_ended(&self) {
        self.dismiss();
    }
}

impl Drop for Timekeeper {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl Timekeeper {
    /// Lets the thread look no later than `when`. If there is no thread, returns its alarm, with
    /// which the caller starts it.
    fn look_by(&self, when: u64) -> Option<Arc<Alarm>> {
        let mut kept = self.0.lock();
        if let Some((alarm, look)) = &mut *kept {
            if when < *look {
                *look = when;
                alarm.set(when);
            }
            return None;
        }
        let alarm = Arc::new(Alarm::new(false));
        alarm.set(when);
        *kept = Some((Arc::clone(&alarm), when));
        Some(alarm)
    }

    /// Sets the next look of the calling thread. Returns `false` if there is none, and the thread
    /// leaves.
    fn look_next(&self, next: impl FnOnce() -> Option<u64>) -> bool {
        let mut kept = self.0.lock();
        let next = next();
        match (&mut *kept, next) {
            (Some((alarm, look)), Some(next)) => {
                *look = next;
                alarm.set(next);
            }
            _ => *kept = None,
        }
        next.is_some()
    }

    /// `Dismiss`
    fn dismiss(&self) {
        if let Some((alarm, look)) = &mut *self.0.lock() {
            *look = 0;
            alarm.set(0);
        }
    }
}

impl Shared {
    /// `Keep`, after a timer of this scheduler was set for `when` by a thread that is not a worker.
    #[inline]
    pub(crate) fn keep_time_outside(&self, when: u64) {
        if self.has_no_watchdog() {
            self.look_after(when);
        }
    }

    /// Returns `true` if no watchdog fires timers while all workers are stuck. On the test clock,
    /// timers wait for the workers anyway.
    #[inline]
    pub(crate) fn has_no_watchdog(&self) -> bool {
        let is_on = self.workforce.watchdog.options.is_on && !self.lifetime.has_ended();
        !is_on && !self.world.is_test()
    }

    #[cold]
    fn look_after(&self, when: u64) {
        if when == NEVER || current::fires_timers_of(self) {
            return;
        }
        let Some(keeper) = self.parts.get::<Timekeeper>() else { return };
        let Some(alarm) = keeper.look_by(self.look_for(when)) else { return };
        let (kept, world) = (self.identity.me.clone(), Arc::clone(&self.world));
        let keep = move || keep_time(&kept, &world, &alarm);
        if self.world.start_thread(format!("time-{}", self.name()), keep).is_err() {
            self.workforce.threads.count_refused();
            *keeper.0.lock() = None;
        }
    }

    /// Returns the time of a look for a timer.
    fn look_for(&self, when: u64) -> u64 {
        let has_workers = !self.callers.drive && !self.lifetime.has_ended();
        if has_workers { when.saturating_add(OVERDUE) } else { when }
    }

    /// `Look`. Returns `false` if there is nothing left to look for.
    fn look_at_time(&self) -> bool {
        self.fire(&self.clock.outside);
        let next = || match self.clock.outside.next() {
            NEVER if self.lifetime.has_ended() => None,
            NEVER => Some(NEVER),
            next if next > self.world.now() => Some(self.look_for(next)),
            // Another thread is firing it.
            _ => Some(self.world.now().saturating_add(OVERDUE)),
        };
        self.parts.get::<Timekeeper>().is_some_and(|keeper| keeper.look_next(next))
    }
}

/// The body of the thread. Its alarm was set by the thread that started it.
fn keep_time(kept: &Weak<Shared>, world: &World, alarm: &Alarm) {
    loop {
        alarm.wait(world);
        let Some(shared) = kept.upgrade() else { return };
        // For functions of timers.
        let _entered = Entered::enter(Current::outside(Arc::clone(&shared)));
        if !shared.look_at_time() {
            return;
        }
    }
}
