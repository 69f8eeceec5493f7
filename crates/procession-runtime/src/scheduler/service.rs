//! The services of a worker: timers, descriptors, and the queues (`run_queues/refill.rs`).

use procession_protocols::scheduler::pace::{Look, SERVE_EVERY};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::time::timers::Timers;

use crate::process::slot::Ready;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::log::WordKind;
use crate::scheduler::shared::Batch;
use crate::time::action::Action;

/// The maximum number of services in a row that do not read the clock, if seats without permits may
/// depend on it. Each service follows the previous service after at most 250 us, as far as the
/// worker knows.
const TIMELESS: u32 = 4;

/// The time in nanoseconds for which a service with slow steps continues while timers or
/// descriptors bring more.
const SERVE_FOR: u64 = 100_000;

impl LocalWorker {
    /// `Look` of `scheduler/pace.rs`, with a service if one is due, or only a stop. Returns a
    /// process if a level beside the normal one has the next turn.
    #[inline(never)]
    pub(crate) fn look(&self, beacon: u64) -> Option<Ready> {
        #[cfg(feature = "sim")]
        if let Some(os) = self.shared.world.simulated()
            && let Some(budget) = os.step(self.seat.0, &*self.shared)
        {
            self.step.budget.set(budget);
            self.queues.turn.inherits.set(true);
        }
        if !self.queues.rings.pace.is_due(beacon) {
            return self.take_turn();
        }
        let look = self.queues.rings.pace.look(
            beacon,
            self.shared.workforce.watchdog.is_running(),
            || self.shared.world.now(),
        );
        if look.serves {
            self.serve(look);
        }
        #[cfg(feature = "sim")]
        if self.shared.world.simulated().is_some() {
            self.queues.rings.pace.stop_at_each();
        }
        self.take_turn()
    }

    /// `Serve` of `scheduler/pace.rs`.
    fn serve(&self, look: Look) {
        if self.search.owes_next.take() {
            // This worker does not park soon, so another is to wait for descriptors and timers.
            self.shared.workforce.announce();
        }
        let now = look.now.or_else(|| self.time_for_others());
        if let Some(now) = now {
            self.log.clock(now);
        }
        // Processes in these queues are older than processes that are queued now.
        self.queues.serve_global(look.dispatches as usize);
        self.queues.serve_overflow(look.dispatches as usize);
        let (mut has_more, until) = (true, now.map_or(0, |now| now.saturating_add(SERVE_FOR)));
        while has_more {
            has_more = self.fire_due();
            if now.is_some() {
                has_more |= self.fire_due_of_others();
            }
            has_more |= self.poll();
            // Only while steps are slow, because otherwise the next service follows soon enough.
            has_more &= self.queues.rings.pace.is_slow() && self.shared.world.now() < until;
        }
        self.queues.settle_turns(now);
    }

    /// Queues the processes that wait for events of descriptors. Returns `true` if there were any
    /// events.
    #[inline]
    pub(crate) fn poll(&self) -> bool {
        self.shared.poller.kernel().is_some() && self.poll_kernel()
    }

    #[cold]
    fn poll_kernel(&self) -> bool {
        let mut batch = self.batch.take();
        let found = self.shared.poller.poll(&mut batch);
        if found {
            // This worker runs one of the processes itself.
            self.deliver(&mut batch, 1);
        }
        self.batch.replace(batch);
        found
    }

    /// Queues these processes where other workers can take them. A worker is worth waking for each
    /// process, except for `own` processes.
    pub(crate) fn deliver(&self, batch: &mut Batch, own: usize) {
        self.log.plain(WordKind::Descriptors, batch.events.len() as u32);
        let woken = self.shared.deliver(batch);
        // This worker has announced some processes already, and threads that are no workers wake
        // themselves. At worst a few workers look and find nothing.
        self.shared.workforce.announce_many(woken.saturating_sub(own));
    }

    /// Fires due timers of this worker and of threads that are no workers. Returns `true` if any
    /// were due.
    pub(crate) fn fire_due(&self) -> bool {
        let shared = &*self.shared;
        let own = self.fire(&shared.workforce.seat(self.seat).timers);
        self.fire(&shared.clock.outside) || own
    }

    /// Fires due timers of other workers. If steps are slow here, fires the timers of all workers,
    /// because their steps are probably slow as well. Otherwise fires the timers of workers without
    /// a permit, and timers that have been due for longer than the interval between two services.
    fn fire_due_of_others(&self) -> bool {
        let shared = &*self.shared;
        let now = shared.world.now();
        if shared.next_deadline() > now {
            return false;
        }
        let late = now.saturating_sub(SERVE_EVERY);
        let is_due = |seat: &SeatId| {
            shared.workforce.seats.made(*seat).is_some_and(|seat| seat.timers.next() <= now)
        };
        let due: Vec<_> = (0..shared.workforce.idle.reach()).map(SeatId).filter(is_due).collect();
        let without_permit = shared.workforce.idle.without_permit(due.iter().copied());
        let mut fired = false;
        for seat in due {
            let timers = &shared.workforce.seat(seat).timers;
            if self.queues.rings.pace.is_slow()
                || without_permit.contains(&seat)
                || timers.next() <= late
            {
                fired |= self.fire(timers);
            }
        }
        fired
    }

    /// Returns the time at every fourth service that does not know it, if a seat without a permit
    /// may depend on this worker. The steps are so short that this is soon enough.
    fn time_for_others(&self) -> Option<u64> {
        let timeless = &self.stores.timeless;
        timeless.set(timeless.get() + 1);
        if timeless.get() < TIMELESS || self.shared.workforce.idle.are_all_awake() {
            return None;
        }
        timeless.set(0);
        Some(self.shared.world.now())
    }

    pub(crate) fn fire(&self, timers: &Timers<Action>) -> bool {
        let fired = self.shared.fire(timers);
        if fired > 0 {
            let now = self.shared.world.now();
            self.log.plain(WordKind::Timers, fired);
            self.log.clock(now);
            if !self.shared.world.is_test() {
                self.firing.note(now, fired);
            }
        }
        fired > 0
    }
}
