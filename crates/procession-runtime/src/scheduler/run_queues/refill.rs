//! The processes that a service brings into the queues of a worker, from the shared queues and from
//! other workers.

use procession_protocols::scheduler::pace::SERVE_EVERY;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_queue::Global;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::scheduler::lane::Lane;
use crate::scheduler::run_queues::RunQueues;

/// One in `SHARE_EVERY` services with short steps takes a share of what has overflowed deques. The
/// other services take one process. Such processes are the roots of whole trees of processes, each
/// of which makes a deque overflow again. With a share at every service, `skynet` takes a third
/// longer.
const SHARE_EVERY: u32 = 4;

/// The number of processes in such a share.
const SHARE: usize = 17;

/// Nanoseconds between two comparisons with the rings of other workers.
const BALANCE_EVERY: u64 = SERVE_EVERY;

/// The maximum number of processes that one comparison moves.
const BALANCE_MAX: usize = 16;

/// The maximum number of workers compared with, drawn at random: enough to find one of two that has
/// more.
const BALANCE_WITH: usize = 4;

impl RunQueues {
    /// Compares the rings with the rings of other workers, if it is time to, and decides which
    /// turns are owed until the next service. `now` is the time, if the service knows it.
    pub(crate) fn settle_turns(&self, now: Option<u64>) {
        let rings = &self.rings;
        let compares =
            now.is_some_and(|now| now.saturating_sub(self.balanced_at.get()) >= BALANCE_EVERY);
        if compares {
            self.balanced_at.set(now.unwrap_or_default());
            // Before the processes that wait here are counted.
            self.take_left_behind();
        }
        let bound = rings.bound.borrow().len() + self.shared.workforce.seat(self.seat).bound.len();
        let continued = rings.continued.len() + rings.bound_continued.borrow().len();
        // While steps are slow, the whole deque is owed a turn; otherwise one process of the deque.
        let spawned = rings.deque.len().min(if rings.pace.is_slow() { usize::MAX } else { 1 });
        let woken = rings.woken.len() + bound;
        if spawned == 0 && (woken == 0 || continued == 0) {
            // Only one class waits, in a ring. The usual order serves it.
            rings.owed.note(0, 0, 0);
        } else {
            rings.owed.note(woken, continued, spawned);
        }
        if compares && continued > 0 {
            self.balance();
        }
    }

    /// Refills the woken ring from the global queue, for as many dispatches as there were since the
    /// last service. Woken processes have half of these turns. Half of the woken turns belong to
    /// the global queue, however many processes are woken here.
    pub(crate) fn serve_global(&self, dispatches: usize) {
        let shared = &*self.shared;
        if shared.workforce.queues.global.is_empty() {
            return self.rings.woken.note_refilled(&shared.workforce.queues.global);
        }
        let wanted =
            (dispatches / 2 + 1).saturating_sub(self.rings.woken.len()).max(dispatches / 4 + 1);
        self.refill(&self.rings.woken, &shared.workforce.queues.global, wanted);
        // Other workers may take what this worker does not run immediately.
        shared.workforce.announce();
    }

    /// Refills the continued ring from the overflow queue. If the ring has overflowed, by as many
    /// processes as have continued since the last service, because all these processes are in the
    /// queue now. Otherwise the queue holds what has overflowed deques, and gets a share now and
    /// then.
    pub(crate) fn serve_overflow(&self, dispatches: usize) {
        let (rings, shared) = (&self.rings, &*self.shared);
        if shared.workforce.queues.overflow.is_empty() {
            return rings.continued.note_refilled(&shared.workforce.queues.overflow);
        }
        rings.services.set(rings.services.get().wrapping_add(1));
        let has_share = rings.pace.is_slow() || rings.services.get().is_multiple_of(SHARE_EVERY);
        let wanted = match (rings.continued.overflows(), has_share) {
            (true, _) => dispatches + 1,
            (false, true) => SHARE,
            (false, false) => 1,
        };
        self.refill(&rings.continued, &shared.workforce.queues.overflow, wanted);
        shared.workforce.announce();
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

    /// Takes over processes that are queued at seats without a permit. No worker runs them there:
    /// the thread blocks, is parked, or has left. Workers that always have something to do never
    /// steal.
    fn take_left_behind(&self) {
        let shared = &*self.shared;
        let is_filled = |seat: &SeatId| !shared.workforce.seat(*seat).queues.are_empty();
        let mut filled = self.others(shared.workforce.idle.reach()).filter(is_filled).peekable();
        if filled.peek().is_none() {
            return;
        }
        for other in shared.workforce.idle.without_permit(filled) {
            let seat = shared.workforce.seat(other);
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
                shared.workforce.seat(self.seat).stats.steals.add(1);
                seat.stats.stolen.add_shared(1);
            }
        }
    }

    /// Takes over part of the continued processes of a worker that has more to do.
    fn balance(&self) {
        let shared = &*self.shared;
        let reach = shared.workforce.idle.reach();
        if reach == 1 {
            return;
        }
        let own = self.rings.deque.len() + self.rings.woken.len() + self.rings.continued.len();
        let queued = |seat: &SeatId| shared.workforce.seat(*seat).queues.len();
        let Some(other) = self.others(reach).take(BALANCE_WITH).max_by_key(queued) else { return };
        let in_step = shared.workforce.seat(other).step.load(Relaxed) % 2 == 1;
        let count = surplus(own, queued(&other), in_step);
        let stats = &shared.workforce.seat(self.seat).stats;
        for _ in 0..count {
            let queue = &shared.workforce.seat(other).queues.continued;
            let Some(ready) = queue.steal().success() else { return };
            stats.steals.add(1);
            shared.workforce.seat(other).stats.stolen.add_shared(1);
            self.log.steal(other, ready.slot());
            self.push_continued(ready);
        }
    }
}

/// Returns the number of processes that a worker between two steps with `own` ready processes takes
/// over from a worker with `queued` ready processes, and perhaps another process in its step: half
/// of the difference.
fn surplus(own: usize, queued: usize, in_step: bool) -> usize {
    ((queued + usize::from(in_step)).saturating_sub(own) / 2).min(BALANCE_MAX)
}

#[cfg(test)]
mod tests {
    use super::{BALANCE_MAX, surplus};

    /// Simulates two workers with this many processes, all of which they run in turn. Each worker
    /// compares at its own step boundaries, while the other is in a step. Returns the final number
    /// at each, and the number of moves.
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
