//! What a worker tells the meter of a simulated system of its queues (`util/cost.rs`). Without the
//! feature `sim`, all of this is empty.

use procession_queue::Global;

use crate::process::slot::Ready;
use crate::scheduler::core::DEQUE;
use crate::scheduler::lane::Lane;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;
use crate::util::cost::{Access, SharedLine, is_metered, touch};

impl LocalWorker {
    /// A process is about to be pushed onto the deque.
    #[inline]
    pub(crate) fn meter_deque_push(&self) {
        touch(SharedLine::Deque(self.seat.0), Access::Write);
        if is_metered() && self.core.deque.len() == DEQUE {
            touch(SharedLine::Overflow, Access::Lock);
        }
    }

    /// A process is about to be pushed into the woken ring.
    #[inline]
    pub(crate) fn meter_woken_push(&self) {
        if is_metered() {
            meter_push(&self.core.woken, SharedLine::Woken(self.seat.0), SharedLine::Global);
        }
    }

    /// A process is about to be pushed into the continued ring.
    #[inline]
    pub(crate) fn meter_continued_push(&self) {
        if is_metered() {
            meter_push(
                &self.core.continued,
                SharedLine::Continued(self.seat.0),
                SharedLine::Overflow,
            );
        }
    }

    /// A share of one of the queues behind the rings is about to be taken.
    #[inline]
    pub(crate) fn meter_share(&self, behind: &Global<Ready>) {
        if is_metered() {
            let is_global = std::ptr::eq(behind, &raw const self.shared.queues.global);
            let line = if is_global { SharedLine::Global } else { SharedLine::Overflow };
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
        touch(SharedLine::Global, Access::Read);
        touch(SharedLine::Overflow, Access::Read);
        for (number, seat) in (0..).zip(self.all_seats()) {
            for line in [
                SharedLine::Deque(number),
                SharedLine::Woken(number),
                SharedLine::Continued(number),
            ] {
                touch(line, Access::Read);
            }
            if !seat.queues.are_empty() {
                return;
            }
        }
    }

    /// The worker is about to look at one word of each seat.
    #[inline]
    pub(crate) fn meter_look_at_seats(&self, word: fn(u32) -> SharedLine) {
        if is_metered() {
            (0..).zip(self.all_seats()).for_each(|(number, _)| touch(word(number), Access::Read));
        }
    }
}

/// The worker is about to pop from one of its queues.
#[inline]
pub(crate) fn meter_pop(queue: SharedLine, is_empty: bool) {
    touch(queue, if is_empty { Access::Read } else { Access::Exchange });
}

/// A thief is about to look into a queue, and to claim what is there. While the meter is told,
/// others may run, so it is told of the claim only if there is something.
#[inline]
pub(crate) fn meter_steal(queue: SharedLine, is_empty: impl Fn() -> bool) {
    if is_metered() {
        touch(queue, Access::Read);
        if !is_empty() {
            touch(queue, Access::Exchange);
        }
    }
}

fn meter_push<const CAPACITY: usize>(
    lane: &Lane<Ready, CAPACITY>,
    ring: SharedLine,
    behind: SharedLine,
) {
    if lane.overflows() || lane.room() == 0 {
        touch(behind, Access::Lock);
    } else {
        touch(ring, Access::Write);
    }
}
