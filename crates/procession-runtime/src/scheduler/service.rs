//! The services of a worker: timers, descriptors, the global queue, and the balance with other
//! workers.

use procession_protocols::scheduler::pace::{Look, SERVE_EVERY};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::time::timers::Timers;
use procession_queue::Global;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::scheduler::lane::Lane;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::log::word::WordKind;
use crate::scheduler::poller::Batch;
use crate::time::action::Action;

/// One in `SHARE_EVERY` services with short steps takes a share of what has overflowed deques. The
/// others take one process. Such processes are the roots of whole trees of processes, each of which
/// makes a deque overflow again. With a share at every service, `skynet` takes a third longer.
const SHARE_EVERY: u32 = 4;

/// The number of processes in such a share.
const SHARE: usize = 17;

/// The maximum number of services in a row that do not read the clock, if seats without permits may
/// depend on it. Each comes at most 250 us after the one before it, as far as the worker knows.
const TIMELESS: u32 = 4;

/// The time in nanoseconds for which a service with slow steps continues while timers or
/// descriptors bring more.
const SERVE_FOR: u64 = 100_000;

/// Nanoseconds between two comparisons with the rings of other workers.
const BALANCE_EVERY: u64 = SERVE_EVERY;

/// The maximum number of processes that one comparison moves.
const BALANCE_MAX: usize = 16;

/// The maximum number of workers compared with, drawn at random: enough to find one of two that has
/// more.
const BALANCE_WITH: usize = 4;

impl LocalWorker {
    /// `Look` of `scheduler/pace.rs`, with a service if one is due.
    #[inline(never)]
    pub(crate) fn look(&self, beacon: u64) {
        #[cfg(feature = "sim")]
        if let Some(os) = self.shared.world.simulated() {
            if let Some(budget) = os.step(self.seat.0, &*self.shared) {
                self.step.budget.set(budget);
                self.step.inherits.set(true);
            }
            if !self.core.pace.is_due(beacon) {
                return;
            }
        }
        let look = self
            .core
            .pace
            .look(beacon, self.shared.watchdog.is_running(), || self.shared.world.now());
        if look.serves {
            self.serve(look);
        }
        #[cfg(feature = "sim")]
        if self.shared.world.simulated().is_some() {
            self.core.pace.stop_at_each();
        }
    }

    /// `Serve` of `scheduler/pace.rs`.
    fn serve(&self, look: Look) {
        let core = &self.core;
        if self.search.owes_next.take() {
            // This worker does not park soon, so another is to wait for descriptors and timers.
            self.shared.announce();
        }
        let now = look.now.or_else(|| self.time_for_others());
        if let Some(now) = now {
            self.record_clock(now);
        }
        // Processes in these queues are older than those that come now.
        self.serve_global(look.dispatches as usize);
        self.serve_overflow(look.dispatches as usize);
        let (mut has_more, until) = (true, now.map_or(0, |now| now.saturating_add(SERVE_FOR)));
        while has_more {
            has_more = self.fire_due();
            if now.is_some() {
                has_more |= self.fire_due_of_others();
            }
            has_more |= self.poll();
            // Only while steps are slow: otherwise the next service comes soon enough.
            has_more &= core.pace.is_slow() && self.shared.world.now() < until;
        }
        let compares =
            now.is_some_and(|now| now.saturating_sub(self.balanced_at.get()) >= BALANCE_EVERY);
        if compares {
            self.balanced_at.set(now.unwrap_or_default());
            // Before the processes that wait here are counted.
            self.take_left_behind();
        }
        let bound = core.bound.borrow().len() + self.shared.seat(self.seat).bound.len();
        let continued = core.continued.len() + core.bound_continued.borrow().len();
        // While steps are slow, the whole deque is owed a turn; otherwise one process of it.
        let spawned = core.deque.len().min(if core.pace.is_slow() { usize::MAX } else { 1 });
        let woken = core.woken.len() + bound;
        if spawned == 0 && (woken == 0 || continued == 0) {
            // Only one class waits, in a ring. The usual order serves it.
            core.owed.note(0, 0, 0);
        } else {
            core.owed.note(woken, continued, spawned);
        }
        if compares && continued > 0 {
            self.balance();
        }
    }

    /// Takes over processes that are queued at seats without a permit. No worker runs them there:
    /// the thread blocks, is parked, or has left. Workers that always have something to do never
    /// steal.
    fn take_left_behind(&self) {
        let shared = &*self.shared;
        let is_filled = |seat: &SeatId| !shared.seat(*seat).queues.are_empty();
        let mut filled = self.others(shared.idle.reach()).filter(is_filled).peekable();
        if filled.peek().is_none() {
            return;
        }
        for other in shared.idle.without_permit(filled) {
            let seat = shared.seat(other);
            // At most as many as there are now: the step of that seat may go on, and queue more.
            for _ in 0..seat.queues.len() {
                if let Some(ready) = seat.queues.woken.steal().success() {
                    self.push_woken(ready);
                } else if let Some(ready) = seat.queues.deque.steal().success() {
                    self.push_continued(ready);
                } else if let Some(ready) = seat.queues.continued.steal().success() {
                    self.push_continued(ready);
                } else {
                    break;
                }
                shared.seat(self.seat).stats.steals.add(1);
                seat.stats.stolen.add_shared(1);
            }
        }
    }

    /// Refills the woken ring from the global queue, for as many dispatches as there were since the
    /// last service. Woken processes have half of these turns. Half of those belong to the global
    /// queue, however many processes are woken here.
    fn serve_global(&self, dispatches: usize) {
        let shared = &*self.shared;
        if shared.queues.global.is_empty() {
            return self.core.woken.note_refilled(&shared.queues.global);
        }
        let wanted =
            (dispatches / 2 + 1).saturating_sub(self.core.woken.len()).max(dispatches / 4 + 1);
        self.refill(&self.core.woken, &shared.queues.global, wanted);
        // Other workers may take what this worker does not run immediately.
        shared.announce();
    }

    /// Refills the continued ring from the overflow queue. If the ring has overflowed, by as many
    /// processes as have continued since the last service, since all of them are in the queue now.
    /// Otherwise the queue holds what has overflowed deques, and gets a share now and then.
    fn serve_overflow(&self, dispatches: usize) {
        let (core, shared) = (&self.core, &*self.shared);
        if shared.queues.overflow.is_empty() {
            return core.continued.note_refilled(&shared.queues.overflow);
        }
        core.services.set(core.services.get().wrapping_add(1));
        let has_share = core.pace.is_slow() || core.services.get().is_multiple_of(SHARE_EVERY);
        let wanted = match (core.continued.overflows(), has_share) {
            (true, _) => dispatches + 1,
            (false, true) => SHARE,
            (false, false) => 1,
        };
        self.refill(&core.continued, &shared.queues.overflow, wanted);
        shared.announce();
    }

    /// Moves `wanted` processes of the queue behind a ring into that ring, as far as there are so
    /// many and there is room.
    fn refill<const CAPACITY: usize>(
        &self,
        lane: &Lane<Ready, CAPACITY>,
        behind: &Global<Ready>,
        wanted: usize,
    ) {
        let mut left = wanted;
        loop {
            let taken = self.take_share(lane, behind, left.min(lane.room()), None);
            left -= taken;
            if taken == 0 || left == 0 {
                return lane.note_refilled(behind);
            }
        }
    }

    /// Takes over part of the continued processes of a worker that has more to do.
    fn balance(&self) {
        let shared = &*self.shared;
        let reach = shared.idle.reach();
        if reach == 1 {
            return;
        }
        let own = self.core.deque.len() + self.core.woken.len() + self.core.continued.len();
        let queued = |seat: &SeatId| shared.seat(*seat).queues.len();
        let Some(other) = self.others(reach).take(BALANCE_WITH).max_by_key(queued) else { return };
        let in_step = shared.seat(other).step.load(Relaxed) % 2 == 1;
        let count = surplus(own, queued(&other), in_step);
        let stats = &shared.seat(self.seat).stats;
        for _ in 0..count {
            let queue = &shared.seat(other).queues.continued;
            let Some(ready) = queue.steal().success() else { return };
            stats.steals.add(1);
            shared.seat(other).stats.stolen.add_shared(1);
            self.record_steal(other, ready.slot());
            self.push_continued(ready);
        }
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
        let found = self.shared.poll(&mut batch);
        if found {
            // This worker runs one of the processes itself.
            self.deliver(&mut batch, 1);
        }
        self.batch.replace(batch);
        found
    }

    /// Queues these processes where others can take them. Each, except for `own` of them, is worth
    /// waking a worker.
    pub(crate) fn deliver(&self, batch: &mut Batch, own: usize) {
        self.record_plain(WordKind::Descriptors, batch.events.len() as u32);
        let woken = self.shared.deliver(batch);
        // This worker has announced some of them already, and threads that are no workers wake
        // themselves. At worst a few workers look and find nothing.
        self.shared.announce_many(woken.saturating_sub(own));
    }

    /// Fires timers that are due here and among those of threads that are no workers. Returns
    /// `true` if any were due.
    pub(crate) fn fire_due(&self) -> bool {
        let shared = &*self.shared;
        let own = self.fire(&shared.seat(self.seat).timers);
        self.fire(&shared.clock.outside) || own
    }

    /// Fires due timers of other workers. If steps are slow here, fires those of all workers, since
    /// their steps will be slow, too. Otherwise fires those of workers without a permit, and timers
    /// that have been due for longer than the interval between two services.
    fn fire_due_of_others(&self) -> bool {
        let shared = &*self.shared;
        let now = shared.world.now();
        if shared.next_deadline() > now {
            return false;
        }
        let late = now.saturating_sub(SERVE_EVERY);
        let is_due =
            |seat: &SeatId| shared.seats.made(*seat).is_some_and(|seat| seat.timers.next() <= now);
        let due: Vec<_> = (0..shared.idle.reach()).map(SeatId).filter(is_due).collect();
        let without_permit = shared.idle.without_permit(due.iter().copied());
        let mut fired = false;
        for seat in due {
            let timers = &shared.seat(seat).timers;
            if self.core.pace.is_slow() || without_permit.contains(&seat) || timers.next() <= late {
                fired |= self.fire(timers);
            }
        }
        fired
    }

    /// Returns the time at every fourth service that does not know it, if a seat without a permit
    /// may depend on this worker. The steps are so short that this is soon enough.
    fn time_for_others(&self) -> Option<u64> {
        let timeless = &self.core.timeless;
        timeless.set(timeless.get() + 1);
        if timeless.get() < TIMELESS || self.shared.idle.are_all_awake() {
            return None;
        }
        timeless.set(0);
        Some(self.shared.world.now())
    }

    pub(crate) fn fire(&self, timers: &Timers<Action>) -> bool {
        let fired = self.shared.fire(timers);
        if fired > 0 {
            let now = self.shared.world.now();
            self.record_plain(WordKind::Timers, fired);
            self.record_clock(now);
            if !self.shared.world.is_test() {
                self.firing.note(now, fired);
            }
        }
        fired > 0
    }
}

/// Returns the number of processes that a worker between two steps with `own` ready processes takes
/// over from a worker with `queued` ones and perhaps another in its step: half of the difference.
fn surplus(own: usize, queued: usize, in_step: bool) -> usize {
    ((queued + usize::from(in_step)).saturating_sub(own) / 2).min(BALANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::{BALANCE_MAX, surplus};

    /// Simulates two workers with this many processes, all of which they run in turn. Each compares
    /// at a boundary of its own, while the other is in a step. Returns the final number at each,
    /// and the number of moves.
    fn balanced(mut processes: [usize; 2]) -> ([usize; 2], usize) {
        let mut moved = 0;
        for round in 0..200 {
            let (own, other) = (round % 2, 1 - round % 2);
            let count =
                surplus(processes[own], processes[other].saturating_sub(1), processes[other] > 0);
            processes[own] += count;
            processes[other] -= count;
            moved += count;
        }
        (processes, moved)
    }

    #[test]
    fn a_difference_of_two_is_made_even_and_not_traded() {
        for few in 1..40 {
            for more in few..80 {
                let ([one, other], moved) = balanced([few, more]);
                assert!(one.abs_diff(other) <= 1, "{few} and {more} become {one} and {other}");
                assert_eq!(moved, (more - few) / 2, "{few} and {more}: each is moved once");
            }
        }
        assert_eq!(surplus(1, 1000, true), BALANCE_MAX);
    }
}
