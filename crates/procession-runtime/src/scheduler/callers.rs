//! Callers: threads in `block_on` that work for a scheduler.

use std::sync::Arc;

use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_protocols::scheduler::shutdown;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::core::Core;
use crate::scheduler::shared::Shared;
use crate::scheduler::workforce::Workforce;
use crate::scheduler::{block_on, current};
use crate::sys::Parker;

impl Workforce {
    /// Takes the callers' seat, if there is one and no other caller sits there.
    pub(crate) fn take_callers_seat(&self) -> Option<(SeatId, Core)> {
        let seat = self.idle.claim_absent(current::thread_number())?;
        Some((
            seat,
            self.seat(seat).take_core().expect("[seat] an absent seat's core is left where it is"),
        ))
    }
}

impl Shared {
    /// Wakes the threads that wait until all is idle, because the last worker has parked.
    #[cold]
    pub(crate) fn wake_idle_waiters(&self) {
        self.callers.unpark_idle_watchers();
        if self.callers.drive {
            self.workforce.seat(SeatId(0)).parker.unpark();
        }
    }

    pub(crate) fn run_until_idle(self: &Arc<Self>) {
        self.callers.idle_waits.fetch_add(1, Relaxed);
        let watcher = Arc::new(Parker::default());
        self.callers.add_idle_watcher(&watcher);
        // If another caller or threads run the scheduler, this waits until they are idle, or until
        // the callers' seat is free.
        let is_idle = || {
            self.workforce
                .idle
                .all_parked_and(|| self.clock.outstanding() == 0 && !self.workforce.has_work())
        };
        while !(block_on::run_until_idle(self) || is_idle()) {
            self.world.park(&watcher, NEVER);
        }
        self.callers.remove_idle_watcher(&watcher);
        self.callers.idle_waits.fetch_sub(1, Relaxed);
        if self.world.is_test() {
            // The clock may move again if another caller drives the scheduler.
            self.workforce.announce();
        }
    }

    /// Returns `true` if the caller that drives this scheduler must end its processes before it
    /// leaves, because no other caller may come.
    pub(crate) fn must_be_drained(&self) -> bool {
        self.callers.drive && self.lifetime.closing.phase() == shutdown::TERMINATING
    }
}
