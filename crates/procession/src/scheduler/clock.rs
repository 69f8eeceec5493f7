//! Time: deadlines, timers that are due, and the test clock.

pub(crate) mod state;

use procession_sync::atomic::Ordering::{Relaxed, Release};

use crate::process::slot::prefetch_slot;
use crate::process::waker::slot_of;
use crate::scheduler::current;
use crate::scheduler::driver::{Kept, Owed};
use crate::scheduler::seat_id::{NEVER, SeatId};
use crate::scheduler::shared::Shared;
use crate::time::action::Action;
use crate::time::action::TimerWaker;
use crate::time::timers::Timers;

impl Shared {
    /// The earliest of all deadlines.
    pub(crate) fn next_deadline(&self) -> u64 {
        self.all_seats().map(|seat| seat.timers.next()).fold(self.clock.outside.next(), u64::min)
    }

    /// Fires what is due in `timers`; says how many were.
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
            // What is held back is neither a timer nor ready.
            let _stopped = self.stop_clock();
            let mut ahead = Ahead::default();
            timers.run(now, &mut |action: Action| ahead.fire(action)).fired
        };
        if fired > 0 {
            self.clock.note_timer_room();
        }
        fired
    }

    /// A thread that is no worker set a timer for `when`: whoever keeps the time must know.
    pub(crate) fn outside_timer_set(&self, when: u64) {
        self.settle_debt(self.clock.keeper.timer_set(when));
    }

    pub(crate) fn settle_debt(&self, owed: Owed) {
        match owed {
            Owed::Nothing => {}
            Owed::Nudge(seat) => self.seat(seat).parker.unpark(),
            Owed::Wake => {
                self.announce();
                // If there is nobody to wake, since all block, it is the watchdog that looks after
                // deadlines and descriptors.
                self.rouse_watchdog();
            }
        }
    }

    /// Until when a worker is to park that found `earliest` to be the next deadline, if it is to
    /// keep the time.
    pub(crate) fn keep_time(&self, seat: SeatId, earliest: u64) -> Option<u64> {
        match self.clock.keeper.keep(seat, earliest) {
            Kept::Until(deadline) => Some(deadline),
            Kept::ByAnother => None,
            Kept::ByNudged(keeper) => {
                self.seat(keeper).parker.unpark();
                None
            }
        }
    }

    pub(crate) fn leave_keeping(&self, seat: SeatId) {
        self.clock.keeper.leave(seat);
    }

    /// Something is due, but the worker in `seat` has no permit; says whether it kept the time, and
    /// so must look again.
    pub(crate) fn resign_keeping(&self, seat: SeatId) -> bool {
        self.clock.keeper.resign(seat)
    }

    /// Whether the test clock may move when all is idle.
    pub(crate) fn may_advance(&self) -> bool {
        let nothing_is_out = || self.clock.outstanding() == 0 && !self.poller.is_waited_for();
        self.world.is_test() && self.callers.idle_waits.load(Relaxed) == 0 && nothing_is_out()
    }

    /// A completion is out.
    pub(crate) fn begin_outstanding(&self) {
        if self.world.is_test() {
            // Relaxed: what follows and shows that something is on its way is published by an
            // ordering of its own.
            self.clock.outstanding.fetch_add(1, Relaxed);
        }
    }

    /// A completion has come in, or was dropped.
    pub(crate) fn end_outstanding(&self) {
        if self.world.is_test() && self.clock.outstanding.fetch_sub(1, Release) == 1 {
            // Somebody must look whether the clock may move now.
            self.announce();
        }
    }

    /// On the test clock: time stands still while a thread that is no worker of this scheduler
    /// brings a process, from before others can see that it is to run until it is queued.
    #[inline]
    pub(crate) fn stop_clock(&self) -> Option<ClockStop<'_>> {
        (self.world.is_test() && !current::is_worker_of(self)).then(|| {
            self.begin_outstanding();
            ClockStop(self)
        })
    }
}

/// While it lasts, the test clock stands still.
#[must_use]
pub(crate) struct ClockStop<'a>(&'a Shared);

impl Drop for ClockStop<'_> {
    fn drop(&mut self) {
        self.0.end_outstanding();
    }
}

/// How many wakes wait until the processor has fetched whom they wake. With 16 a million sleepers
/// took as long.
const AHEAD: usize = 8;

/// Actions of timers in their order, of which wakes of processes are held back for a moment: of
/// many processes that slept, none is in a cache, and the processor fetches several as fast as one.
/// With [`Ready::prefetch`], a million sleepers cost 1010 ns each on one processor instead of 1170.
#[derive(Default)]
struct Ahead {
    wakers: [Option<TimerWaker>; AHEAD],
    /// How many were put in.
    turn: usize,
}

impl Ahead {
    fn fire(&mut self, action: Action) {
        match action {
            // What wakes others may be the user's code, and may take long.
            Action::Wake(waker) if let Some(slot) = slot_of(&waker) => {
                prefetch_slot(slot);
                let before = self.wakers[self.turn % AHEAD].replace(waker);
                self.turn += 1;
                if let Some(before) = before {
                    Action::Wake(before).fire();
                }
            }
            action => {
                self.flush();
                action.fire();
            }
        }
    }

    fn flush(&mut self) {
        for _ in 0..AHEAD {
            let next = self.wakers[self.turn % AHEAD].take();
            self.turn += 1;
            if let Some(waker) = next {
                Action::Wake(waker).fire();
            }
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.flush();
    }
}
