//! The threads of a scheduler: how they are woken and started, and how they leave their seats.

use std::io;
use std::sync::Arc;

use procession_protocols::scheduler::idle::{Presence, mutation};
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::core::Core;
use crate::scheduler::shared::Shared;
use crate::scheduler::workforce::{Starter, Workforce};
use crate::scheduler::{current, worker};
use crate::sys::yield_thread;

impl Workforce {
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
        if self.start_thread(seat) {
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
            self.wake_seat(seat);
        }
    }

    /// Starts a thread for a claimed, vacant seat. Returns `true` if it was started.
    fn start_thread(&self, seat: SeatId) -> bool {
        // After the end of the scheduler there is nothing left to do, and the last thread to leave
        // would start the next.
        let Some(starter) = self.starter.upgrade().filter(|starter| !starter.has_ended()) else {
            return false;
        };
        if self.threads.is_resting(&self.world) {
            return false;
        }
        let is_started = starter.start_worker(seat).is_ok();
        if !is_started {
            self.threads.rest(&self.world);
        }
        is_started
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

    /// Notes that a worker has become awake or was claimed. Starts the watchdog, or sees to it that
    /// it looks soon.
    #[inline]
    pub(crate) fn rouse_watchdog(&self) {
        let watchdog = &self.watchdog;
        watchdog.park.rouse(|| self.world.now(), |when| watchdog.alarm.set(when));
        // Relaxed: the swap in `start_watchdog` lets only one caller start it.
        if !watchdog.is_started.load(Relaxed) {
            self.start_watchdog();
        }
    }

    #[cold]
    fn start_watchdog(&self) {
        let Some(starter) = self.starter.upgrade() else { return };
        // Relaxed: the thread is handed all that it needs.
        if starter.has_ended() || self.watchdog.is_started.swap(true, Relaxed) {
            return;
        }
        if starter.start_watchdog().is_err() {
            self.threads.count_refused();
            // The next worker that becomes awake tries again.
            self.watchdog.is_started.store(false, Relaxed);
        }
    }
}

impl Starter for Shared {
    fn has_ended(&self) -> bool {
        self.lifetime.has_ended()
    }

    fn start_worker(self: Arc<Self>, seat: SeatId) -> io::Result<()> {
        let name = format!("{}-{}", self.name(), seat.0);
        let shared = Arc::clone(&self);
        self.world.start_thread(name, move || {
            let core = shared
                .workforce
                .seat(seat)
                .take_core()
                .expect("[seat] a claimed seat's core is left where it is");
            worker::run_thread(shared, seat, core);
        })?;
        self.workforce.threads.count_started();
        Ok(())
    }

    fn start_watchdog(self: Arc<Self>) -> io::Result<()> {
        self.start_watch()
    }
}

impl Shared {
    /// Starts the first thread immediately, so that a system that refuses threads does so when the
    /// error can be handled.
    pub(crate) fn start_first_thread(self: &Arc<Self>) -> io::Result<()> {
        let seat = SeatId(0);
        if !self.workforce.idle.claim_this(seat) {
            return Ok(());
        }
        self.workforce.idle.note_waking(seat, self.world.now());
        Arc::clone(self).start_worker(seat)?;
        self.workforce.rouse_watchdog();
        Ok(())
    }

    /// `Recheck` by a thread that gave up a permit: wakes a worker if its worker leaves anything
    /// behind. Also looks after the next deadline and the descriptors if no worker is awake
    /// (`nobody_awake`).
    pub(crate) fn recheck(&self, nobody_awake: bool) {
        if self.workforce.idle.is_batch_wanted() {
            self.announce_batch_permit();
        }
        if self.workforce.has_queued() {
            if let Some(seat) = self.workforce.idle.claim_one() {
                // In a simulated system, others may run until the worker is woken, or its thread is
                // started or refused.
                self.world.point();
                self.workforce.wake_seat(seat);
            }
            return;
        }
        if !nobody_awake {
            return;
        }
        let earliest = self.next_deadline();
        if earliest != NEVER || self.poller.kernel().is_some() {
            self.settle_debt(self.clock.driver.attend(earliest));
        }
    }

    /// Releases the permit of the worker in `seat`, because its step blocks, and wakes another
    /// worker if there is work. The caller has already queued what only that worker would have
    /// found.
    pub(crate) fn give_permit_back(&self, seat: SeatId) {
        let nobody_awake = self.workforce.idle.give_back(seat);
        if !mutation::is(mutation::BUILT, mutation::GIVE_BACK_WITHOUT_RECHECK) {
            self.recheck(nobody_awake);
        }
    }

    /// Leaves a seat. Processes queued there are for the other workers, or for the next thread in
    /// the seat.
    pub(crate) fn vacate(&self, seat: SeatId, core: Core) {
        self.workforce.seat(seat).thread.store(0, Relaxed);
        self.workforce.watchdog.close_file(self.workforce.seat(seat));
        // Coroutines and local processes that have begun here stay on this thread.
        let keeps = core.stores.begun.get() > 0;
        *self.workforce.seat(seat).core.lock() = Some(core);
        let for_callers = self.callers.drive && seat.0 == 0;
        let only = if keeps { current::thread_number() } else { 0 };
        let left = self.workforce.idle.leave(seat, for_callers, only);
        if left.all_parked {
            self.wake_idle_waiters();
        }
        let has_bound =
            !self.workforce.seat(seat).bound.is_empty() || self.workforce.has_bound_level(seat);
        if !for_callers && has_bound && !self.lifetime.has_ended() {
            self.workforce.wake_this(seat);
        }
        let least = self.workforce.seats.first().max(self.workforce.idle.width());
        self.workforce.idle.lower_reach(least, |seat| self.workforce.seat(seat).is_empty());
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
        assert!(
            shared.workforce.idle.claim_this(SeatId(1)) && shared.workforce.idle.come(SeatId(1))
        );
        shared.workforce.idle.announce(SeatId(1), true);
        assert!(shared.workforce.idle.claim_absent(1).is_some());
        assert!(shared.workforce.idle.retire(SeatId(1)));
        shared.workforce.idle.give_back(SeatId(0));
        let (asks, asked) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                asked.recv().expect("the test asks");
                shared.workforce.idle.leave(SeatId(1), false, 0);
            });
            asks.send(()).expect("it listens");
            let rest = shared.workforce.rest();
            assert!(rest.has_thread, "a thread was started: {rest:?}");
        });
    }
}
