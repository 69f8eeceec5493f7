//! The ages of run queues, by looks of the watchdog.
//!
//! No clock is read when a process is queued. If a queue holds something at two looks, and nothing
//! was taken from it in between, its processes have waited since the first.

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::seat::Seat;
use crate::scheduler::shared::Shared;

/// The number of queues of a seat: deque, woken ring, continued ring, and the bound processes.
const QUEUES: usize = 4;

/// A queue, as a look saw it.
#[derive(Clone, Copy, Debug, Default)]
struct QueueLook {
    /// Changes when something is taken.
    taken: u64,
    /// When the queue was first seen like this, or 0 if it was empty.
    since: u64,
}

impl QueueLook {
    /// Looks again, at a queue of this length.
    fn again(&mut self, length: usize, taken: u64, now: u64) {
        let waits = length > 0;
        let is_same = waits && self.since != 0 && self.taken == taken;
        self.taken = taken;
        if !is_same {
            self.since = if waits { now.max(1) } else { 0 };
        }
    }
}

/// All queues, as the last look saw them.
#[derive(Debug, Default)]
pub(crate) struct QueueAges {
    seats: Vec<[QueueLook; QUEUES]>,
    /// The global queue and the overflow queue.
    shared: [QueueLook; 2],
}

/// Returns the earliest time at which one of the queues was first seen as it is, or 0 if all are
/// empty.
fn earliest(looks: &[QueueLook]) -> u64 {
    looks.iter().map(|look| look.since).filter(|&since| since != 0).min().unwrap_or(0)
}

impl QueueAges {
    /// Looks at all queues, and publishes since when their processes wait.
    pub(crate) fn look(&mut self, shared: &Shared, now: u64) {
        let reach = shared.workforce.idle.reach();
        self.seats.resize(reach as usize, Default::default());
        for (number, looks) in (0..reach).zip(&mut self.seats) {
            let Some(seat) = shared.workforce.seats.made(SeatId(number)) else { continue };
            look_at(looks, seat, now);
            // Relaxed: statistics.
            seat.stats.queued_since.store(earliest(looks), Relaxed);
        }
        let queues = [&shared.workforce.queues.global, &shared.workforce.queues.overflow];
        for (look, queue) in self.shared.iter_mut().zip(queues) {
            look.again(queue.len(), queue.taken(), now);
        }
        shared.stats.outside.queued_since.store(earliest(&self.shared), Relaxed);
    }

    /// Forgets all looks, since time has passed in which nothing was looked at.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

fn look_at(looks: &mut [QueueLook; QUEUES], seat: &Seat, now: u64) {
    let queues = &seat.queues;
    let [deque, woken, continued, bound] = looks;
    deque.again(queues.deque.len(), queues.deque.taken(), now);
    woken.again(queues.woken.len(), queues.woken.taken(), now);
    continued.again(queues.continued.len(), queues.continued.taken(), now);
    bound.again(seat.bound.len(), seat.bound.taken(), now);
}

#[cfg(test)]
mod tests {
    use super::{QueueLook, earliest};

    #[test]
    fn a_queue_is_as_old_as_the_first_look_since_which_nothing_was_taken() {
        let mut look = QueueLook::default();
        let mut since = |length, taken, now| {
            look.again(length, taken, now);
            look.since
        };
        assert_eq!(since(0, 7, 10), 0, "an empty queue has no age");
        assert_eq!(since(2, 7, 20), 20);
        assert_eq!(since(5, 7, 30), 20, "more was added, and nothing taken");
        assert_eq!(since(4, 8, 40), 40);
        assert_eq!(since(0, 9, 50), 0);
        assert_eq!(since(1, 9, 60), 60, "it was empty in between");
    }

    #[test]
    fn the_oldest_of_several_queues_counts() {
        let look = |since| QueueLook { taken: 0, since };
        assert_eq!(earliest(&[look(0), look(9), look(4)]), 4);
        assert_eq!(earliest(&[look(0)]), 0);
    }
}
