//! Time: deadlines, timers that are due, and the test clock.

pub(crate) mod timekeeper;

use procession_protocols::scheduler::driver::{Kept, Owed};
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_protocols::time::timers::Timers;
use procession_sync::atomic::Ordering::{Relaxed, Release};

use crate::process::slot::prefetch_slot;
use crate::process::waker::slot_of;
use crate::scheduler::current;
use crate::scheduler::part::SeenScheduler;
use crate::scheduler::shared::Shared;
use crate::time::action::Action;

impl Shared {
    /// Returns the earliest of all deadlines.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.workforce
            .all_seats()
            .map(|seat| seat.timers.next())
            .fold(self.clock.outside.next(), u64::min)
    }

    /// Makes the earliest of all deadlines right, for a worker that is to wake for `deadline`. The
    /// timer of that deadline may have been put off by a step on a worker that has not set the
    /// timer. The calling worker has cleaned its own heap. Returns `true` if a deadline was made
    /// right.
    pub(crate) fn clean_first(&self, deadline: u64, own: SeatId) -> bool {
        let others = (0..).zip(self.workforce.all_seats()).filter(|(number, _)| *number != own.0);
        let others = others.map(|(_, seat)| &seat.timers).chain([&self.clock.outside]);
        let mut is_changed = false;
        for timers in others.filter(|timers| timers.next() == deadline) {
            timers.clean();
            is_changed |= timers.next() != deadline;
        }
        is_changed
    }

    /// Fires the timers that are due in `timers`, and returns their number.
    pub(crate) fn fire(&self, timers: &Timers<Action>) -> u32 {
        // The clock is read only if there is a deadline.
        let next = timers.next();
        if next == NEVER {
            return 0;
        }
        let now = self.world.now();
        if next > now {
            return 0;
        }
        let fired = {
            // A wake-up that `Ahead` holds back is neither a pending timer nor a ready process.
            let _stopped = self.stop_clock();
            let mut ahead = Ahead::default();
            timers.run(now, &mut |action: Action| ahead.fire(action)).fired
        };
        if fired > 0 {
            self.clock.note_timer_room();
        }
        fired
    }

    /// Notes that a thread that is not a worker set a timer for `when`, so that the driver takes it
    /// into account.
    pub(crate) fn outside_timer_set(&self, when: u64) {
        self.settle_debt(self.clock.driver.timer_set(when));
    }

    pub(crate) fn settle_debt(&self, owed: Owed) {
        match owed {
            Owed::Nothing => {}
            Owed::Nudge(seat) => self.workforce.seat(seat).parker.unpark(),
            Owed::Wake => {
                // Even if other workers search, because a worker that finds work may wake nobody
                // for this.
                self.workforce.announce_many(1);
                // If all workers block, there is none to wake. The watchdog then looks after
                // deadlines and descriptors.
                self.workforce.rouse_watchdog();
            }
        }
    }

    /// `Keep`, by a worker that found `earliest` to be the next deadline.
    pub(crate) fn keep_time(&self, seat: SeatId, earliest: u64) -> Kept {
        let kept = self.clock.driver.keep(seat, earliest);
        if let Kept::ByNudged(driver) = kept {
            self.workforce.seat(driver).parker.unpark();
        }
        kept
    }

    /// Returns `true` if the test clock may move once all is idle.
    pub(crate) fn may_advance(&self) -> bool {
        // If processes wait for descriptors, the clock stands still, whatever the descriptors are.
        // With a paused runtime, it stands still only for some descriptors (`is_quiet`).
        let is_held = || self.poller.is_waited_for() && self.parts.paused().is_none();
        let nothing_is_out = || self.clock.outstanding() == 0 && !is_held();
        self.world.is_test() && self.callers.idle_waits.load(Relaxed) == 0 && nothing_is_out()
    }

    /// Returns `true` if nothing is on its way outside of the scheduler, as far as can be seen.
    pub(crate) fn is_quiet(&self) -> bool {
        self.parts.paused().is_none_or(|runtime| {
            runtime.is_quiet(&SeenScheduler {
                waits_for_descriptors: self.poller.is_waited_for(),
                steps: &|| {
                    let steps = self.workforce.all_seats().map(|seat| seat.step.load(Relaxed));
                    steps.fold(0, u64::wrapping_add)
                },
                #[cfg(feature = "tokio")]
                any_waited_for: &|which| self.poller.sources.any_waited_for(which),
            })
        })
    }

    /// Counts a completion as outstanding.
    pub(crate) fn begin_outstanding(&self) {
        if self.world.is_test() {
            // Relaxed: whatever follows and shows that something is outstanding is published with
            // its own ordering.
            self.clock.outstanding.fetch_add(1, Relaxed);
        }
    }

    /// Counts a completion as delivered or dropped.
    pub(crate) fn end_outstanding(&self) {
        if self.world.is_test() && self.clock.outstanding.fetch_sub(1, Release) == 1 {
            // A worker must check whether the clock may move now.
            self.workforce.announce();
        }
    }

    /// Notes that this thread wakes something of the scheduler.
    pub(crate) fn note_foreign_wake(&self) {
        if let Some(runtime) = self.parts.paused()
            && !current::is_worker_of(self)
        {
            runtime.note_foreign_wake();
        }
    }

    /// Stops the test clock while a thread that is not a worker of this scheduler queues a process.
    /// The stop must begin before other threads can see that the process will run, and end when the
    /// process is queued. Returns `None` on the real clock.
    #[inline]
    pub(crate) fn stop_clock(&self) -> Option<ClockStop<'_>> {
        (self.world.is_test() && !current::is_worker_of(self)).then(|| {
            self.note_foreign_wake();
            self.begin_outstanding();
            ClockStop(self)
        })
    }
}

/// Stops the test clock until it is dropped.
#[must_use]
pub(crate) struct ClockStop<'a>(&'a Shared);

impl Drop for ClockStop<'_> {
    fn drop(&mut self) {
        self.0.end_outstanding();
    }
}

/// The number of wake-ups that are held back while the processor fetches the slots of their
/// processes. With 16, a million sleepers took as long.
const AHEAD: usize = 8;

/// Runs the actions of timers in their order, and holds wake-ups of processes back for a moment.
///
/// If many processes have slept, no cache contains their slots, and the processor fetches several
/// slots as fast as one. With [`Ready::prefetch`], a million sleepers cost 1010 ns each on one
/// processor instead of 1170.
#[derive(Default)]
struct Ahead {
    held: [Option<Action>; AHEAD],
    /// The number of wake-ups that were put in.
    turn: usize,
}

impl Ahead {
    fn fire(&mut self, action: Action) {
        // Only wake-ups of processes are held back. Any other action may be the user's code, and
        // may take long.
        if let Action::Wake(waker) = &action
            && let Some(slot) = slot_of(waker)
        {
            prefetch_slot(slot);
            let before = self.held[self.turn % AHEAD].replace(action);
            self.turn += 1;
            if let Some(before) = before {
                before.fire();
            }
        } else {
            self.flush();
            action.fire();
        }
    }

    fn flush(&mut self) {
        for _ in 0..AHEAD {
            let next = self.held[self.turn % AHEAD].take();
            self.turn += 1;
            if let Some(action) = next {
                action.fire();
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::{Action, NEVER, SeatId};
    use crate::Scheduler;

    /// A step that runs on another worker than the one before puts off a timer in the heap of that
    /// one. The driver does not wake for the time before.
    #[test]
    fn a_timer_that_was_put_off_elsewhere_is_no_deadline() {
        let builder = Scheduler::builder().worker_threads(2).test_clock();
        let scheduler = builder.build().expect("it starts no thread");
        let shared = scheduler.shared();
        let (first, second) = (SeatId(0), SeatId(1));
        let timers = &shared.workforce.seat(first).timers;
        let action = || Action::Wake(Waker::noop().clone().into());
        let put_off = timers.add(5, None, action()).expect("there is room");
        assert!(timers.reset(put_off.id, 20).is_some(), "it is pending");
        assert_eq!(shared.next_deadline(), 5);
        assert!(!shared.clean_first(6, second), "another time is the first");
        assert!(!shared.clean_first(5, first), "a worker cleans its own heap before");
        assert!(shared.clean_first(5, second));
        assert_eq!(shared.next_deadline(), 20);
        assert!(!shared.clean_first(20, second), "it is right");
        drop(timers.delete(put_off.id));
        assert_eq!(shared.next_deadline(), NEVER);
    }
}
