//! What a worker tells the meter of a simulated system of its queues (`util/cost.rs`). Without the
//! feature `sim`, all of this is empty.

use procession_queue::Global;

use crate::process::slot::Ready;
use crate::scheduler::core::DEQUE;
use crate::scheduler::lane::Lane;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;
use crate::util::cost::{Access, Line, is_metered, touch};

impl LocalWorker {
    /// A process is about to be pushed onto the deque.
    #[inline]
    pub(crate) fn meter_deque_push(&self) {
        touch(Line::Deque(self.seat.0), Access::Write);
        if is_metered() && self.core.deque.len() == DEQUE {
            touch(Line::Overflow, Access::Lock);
        }
    }

    /// A process is about to be pushed into the woken ring.
    #[inline]
    pub(crate) fn meter_woken_push(&self) {
        if is_metered() {
            meter_push(&self.core.woken, Line::Woken(self.seat.0), Line::Global);
        }
    }

    /// A process is about to be pushed into the continued ring.
    #[inline]
    pub(crate) fn meter_continued_push(&self) {
        if is_metered() {
            meter_push(&self.core.continued, Line::Continued(self.seat.0), Line::Overflow);
        }
    }

    /// A share of one of the queues behind the rings is about to be taken.
    #[inline]
    pub(crate) fn meter_share(&self, behind: &Global<Ready>) {
        if is_metered() {
            let is_global = std::ptr::eq(behind, &raw const self.shared.queues.global);
            let line = if is_global { Line::Global } else { Line::Overflow };
            touch(line, if behind.is_empty() { Access::Read } else { Access::Lock });
        }
    }
}

impl Shared {
    /// The worker is about to look whether anything is queued anywhere.
    #[inline]
    pub(crate) fn meter_look_at_queues(&self) {
        if !is_metered() {
            return;
        }
        touch(Line::Global, Access::Read);
        touch(Line::Overflow, Access::Read);
        for (number, seat) in (0..).zip(self.all_seats()) {
            for line in [Line::Deque(number), Line::Woken(number), Line::Continued(number)] {
                touch(line, Access::Read);
            }
            if !seat.queues.are_empty() {
                return;
            }
        }
    }

    /// The worker is about to look at one word of each seat.
    #[inline]
    pub(crate) fn meter_look_at_seats(&self, word: fn(u32) -> Line) {
        if is_metered() {
            (0..).zip(self.all_seats()).for_each(|(number, _)| touch(word(number), Access::Read));
        }
    }
}

/// The worker is about to pop from one of its queues.
#[inline]
pub(crate) fn meter_pop(queue: Line, is_empty: bool) {
    touch(queue, if is_empty { Access::Read } else { Access::Exchange });
}

/// A thief is about to look into a queue, and to claim what is there. While the meter is told,
/// others may run, so it is told of the claim only if there is something.
#[inline]
pub(crate) fn meter_steal(queue: Line, is_empty: impl Fn() -> bool) {
    if is_metered() {
        touch(queue, Access::Read);
        if !is_empty() {
            touch(queue, Access::Exchange);
        }
    }
}

fn meter_push<const CAPACITY: usize>(lane: &Lane<Ready, CAPACITY>, ring: Line, behind: Line) {
    if lane.overflows() || lane.room() == 0 {
        touch(behind, Access::Lock);
    } else {
        touch(ring, Access::Write);
    }
}
