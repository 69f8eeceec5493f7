//! The threads of a scheduler: their start, their seats, and their end.

pub(crate) mod state;

use std::io;
use std::sync::Arc;

use procession_protocols::scheduler::idle::{Presence, mutation};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::core::Core;
use crate::scheduler::shared::Shared;
use crate::scheduler::{current, worker};
use crate::sys::yield_thread;

impl Shared {
    /// Makes a claimed seat work: unparks its thread, or starts one.
    #[cold]
    pub(crate) fn wake_seat(&self, seat: SeatId) {
        self.idle.note_waking(seat, self.world.now());
        let place = self.seat(seat);
        let vacant = place.core.lock().is_some();
        if !vacant {
            place.parker.unpark();
            // The thread may wake late.
            return self.rouse_watchdog();
        }
        if !self.idle.begin_start(seat) {
            return;
        }
        // After the end of the scheduler there is nothing left to do, and the last thread to leave
        // would start the next.
        if !self.lifetime.has_ended() && self.start_thread(seat) {
            return self.rouse_watchdog();
        }
        self.idle.decline(seat);
        // If processes are bound to the seat, only the watchdog tries again.
        self.rouse_watchdog();
        // The seat was counted as searching. A publisher that relied on that needs another worker,
        // one with a thread.
        if !mutation::is(mutation::BUILT, mutation::DECLINE_ALONE)
            && let Some(seat) = self.idle.claim_parked()
        {
            self.idle.note_waking(seat, self.world.now());
            self.seat(seat).parker.unpark();
            self.rouse_watchdog();
        }
    }

    /// Starts a thread for a claimed, vacant seat. Returns `true` if it was started.
    fn start_thread(&self, seat: SeatId) -> bool {
        let Some(shared) = self.identity.me.upgrade() else {
            return false;
        };
        if self.threads.is_resting(&self.world) {
            return false;
        }
        match self.try_start_thread(shared, seat) {
            Ok(()) => true,
            Err(_) => {
                self.threads.rest(&self.world);
                false
            }
        }
    }

    fn try_start_thread(&self, shared: Arc<Self>, seat: SeatId) -> io::Result<()> {
        let name = format!("{}-{}", self.name(), seat.0);
        self.world.start_thread(name, move || {
            let core = shared
                .seat(seat)
                .take_core()
                .expect("[seat] a claimed seat's core is left where it is");
            worker::run_thread(shared, seat, core);
        })?;
        self.threads.count_started();
        Ok(())
    }

    /// Returns the threads that are left. If there are only vacant seats, starts a thread for one,
    /// unless the system refuses: only a started thread shows whether such a seat is of any use.
    pub(crate) fn rest(&self) -> Presence {
        let rest = loop {
            let rest = self.idle.rest();
            // A leaving thread runs no user code and waits for nothing.
            if rest.has_thread || rest.has_vacant || !rest.is_leaving {
                break rest;
            }
            yield_thread();
        };
        if rest.has_thread || !rest.has_vacant {
            return rest;
        }
        if let Some(seat) = self.idle.claim() {
            self.wake_seat(seat);
        }
        self.idle.rest()
    }

    /// Starts the first thread immediately, so that a system that refuses threads does so when the
    /// error can be handled.
    pub(crate) fn start_first_thread(self: &Arc<Self>) -> io::Result<()> {
        let seat = SeatId(0);
        if !self.idle.claim_this(seat) {
            return Ok(());
        }
        self.idle.note_waking(seat, self.world.now());
        self.try_start_thread(Arc::clone(self), seat)?;
        self.rouse_watchdog();
        Ok(())
    }

    /// Leaves a seat. Processes queued there are for the other workers, or for the next thread in
    /// the seat.
    pub(crate) fn vacate(&self, seat: SeatId, core: Core) {
        self.seat(seat).thread.store(0, Relaxed);
        self.watchdog.close_file(self.seat(seat));
        // Coroutines and local processes that have begun here stay on this thread.
        let keeps = core.stores.begun.get() > 0;
        *self.seat(seat).core.lock() = Some(core);
        let for_callers = self.callers.drive && seat.0 == 0;
        let only = if keeps { current::thread_number() } else { 0 };
        let left = self.idle.leave(seat, for_callers, only);
        if left.all_parked {
            self.wake_idle_waiters();
        }
        if !for_callers
            && !self.seat(seat).bound.is_empty()
            && !self.lifetime.has_ended()
            && self.idle.claim_this(seat)
        {
            self.wake_seat(seat);
        }
        let least = self.seats.first().max(self.idle.width());
        self.idle.lower_reach(least, |seat| self.seat(seat).is_empty());
        self.recheck(left.nobody_awake);
        if for_callers {
            // One of the callers that wait without a seat takes the seat now.
            self.callers.unpark_idle_watchers();
            for caller in self.callers.take_waiting() {
                drop(crate::process::unwind::guarded(|| caller.wake()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use procession_protocols::scheduler::seat_id::SeatId;

    use crate::Scheduler;

    /// Goal: while a thread is about to leave its seat, the seat counts as one for which a thread
    /// can be started. Method: the test is the only worker, and takes and leaves two seats.
    #[test]
    fn a_request_while_a_thread_leaves_waits_for_its_seat() {
        let builder = Scheduler::builder().worker_threads(1).max_threads(2).test_clock();
        let scheduler = builder.build().expect("it starts no thread");
        let shared = scheduler.shared();
        assert!(shared.idle.claim_this(SeatId(1)) && shared.idle.come(SeatId(1)));
        shared.idle.announce(SeatId(1), true);
        assert!(shared.idle.claim_absent(1).is_some());
        assert!(shared.idle.retire(SeatId(1)));
        shared.idle.give_back(SeatId(0));
        let (asks, asked) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                asked.recv().expect("the test asks");
                shared.idle.leave(SeatId(1), false, 0);
            });
            asks.send(()).expect("it listens");
            let rest = shared.rest();
            assert!(rest.has_thread, "a thread was started: {rest:?}");
        });
    }
}
