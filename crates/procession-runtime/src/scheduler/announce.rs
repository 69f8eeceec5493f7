//! The publisher's side of the parking protocol (`scheduler/idle.rs`): wakes workers for queued
//! processes, and for what a worker without a permit leaves behind.

use procession_protocols::scheduler::idle::mutation;
use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use crate::process::slot::Ready;
use crate::scheduler::current::{Origin, enqueue, with_local};
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;

/// Queues processes of `shared` that were woken, as [`enqueue`] does with each of them in their
/// order, and wakes a worker for all of them.
pub(crate) fn enqueue_all(shared: &Shared, woken: &mut Vec<Ready>) {
    let is_alone = |ready: &Ready| shared.queues.shuffled || ready.slot().bound.worker().is_some();
    let is_of = |local: &&LocalWorker| std::ptr::eq(&*local.shared, shared);
    with_local(|local| match local.filter(is_of) {
        _ if woken.len() < 2 || woken.iter().any(is_alone) => enqueue_each(woken),
        Some(local) if local.step.is_any() => local.queues.push_woken_together(woken),
        Some(_) => enqueue_each(woken),
        None => {
            shared.queues.global.push_all(woken);
            shared.announce_from_outside();
        }
    });
}

fn enqueue_each(woken: &mut Vec<Ready>) {
    woken.drain(..).for_each(|ready| enqueue(ready, Origin::Woken));
}

impl Shared {
    /// Changes how many workers may run at once, and wakes some if anything is queued.
    pub(crate) fn set_worker_threads(&self, width: u32) {
        self.idle.set_worker_threads(width);
        if self.has_queued() {
            self.announce_many(width as usize);
        }
    }

    /// Wakes a worker for an entry that was just queued, unless one is searching.
    #[inline]
    pub(crate) fn announce(&self) {
        if let Some(seat) = self.idle.claim_one() {
            self.wake_seat(seat);
        }
    }

    /// Wakes a worker like `announce`, for a thread that will not run the entry itself. A worker
    /// that was woken before and counts as searching may be late, so late workers are written off
    /// first.
    pub(crate) fn announce_from_outside(&self) {
        let written_off = || match self.idle.write_off_if_late(|| self.world.now()) {
            0 => None,
            late => {
                self.watchdog.count_late(late);
                self.idle.claim_one()
            }
        };
        if let Some(seat) = self.idle.claim_one().or_else(written_off) {
            self.wake_seat(seat);
        }
    }

    /// Wakes a worker like `announce`, for entries that this worker will most likely run itself,
    /// soon after its step. Wakes none while a worker naps.
    #[inline]
    pub(crate) fn announce_own(&self) {
        if let Some(seat) = self.idle.claim_one_unless_napping() {
            self.wake_seat(seat);
        }
    }

    /// Wakes a worker like `announce`, for an entry that this worker will run itself otherwise. May
    /// miss a worker that parks, or leaves the search, at this moment.
    #[inline]
    pub(crate) fn announce_in_sight(&self) {
        if let Some(seat) = self.idle.claim_one_in_sight() {
            self.wake_seat(seat);
        }
    }

    /// Wakes up to `count` workers for that many entries, even if other workers are searching.
    pub(crate) fn announce_many(&self, count: usize) {
        fence(SeqCst);
        for _ in 0..count.min(self.width()) {
            match self.idle.claim() {
                Some(seat) => self.wake_seat(seat),
                None => return,
            }
        }
    }

    /// `Recheck` by a thread that gave up a permit: wakes a worker if its worker leaves anything
    /// behind. Also looks after the next deadline and the descriptors if no worker is awake
    /// (`nobody_awake`).
    pub(crate) fn recheck(&self, nobody_awake: bool) {
        if self.has_queued() {
            if let Some(seat) = self.idle.claim_one() {
                // In a simulated system, others may run until the worker is woken, or its thread is
                // started or refused.
                self.world.point();
                self.wake_seat(seat);
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

    /// Gives the permit of the worker in `seat` back, because its step blocks, and wakes another
    /// worker if there is work. The caller has already queued what only that worker would have
    /// found.
    pub(crate) fn give_permit_back(&self, seat: SeatId) {
        let nobody_awake = self.idle.give_back(seat);
        if !mutation::is(mutation::BUILT, mutation::GIVE_BACK_WITHOUT_RECHECK) {
            self.recheck(nobody_awake);
        }
    }

    /// Queues a process that only the worker in `seat` can run, and wakes that worker.
    pub(crate) fn enqueue_bound(&self, seat: SeatId, ready: Ready) {
        self.seat(seat).bound.push(ready);
        fence(SeqCst);
        if self.idle.claim_this(seat) {
            self.wake_seat(seat);
        }
    }

    /// Returns a vacant seat for which processes wait that are bound to it. The system has refused
    /// a thread for it, so nothing wakes it unless the watchdog tries again.
    pub(crate) fn stranded_seat(&self) -> Option<SeatId> {
        let waits = |seat: &SeatId| {
            let place = self.seat(*seat);
            // Relaxed: the lock of `is_vacant` decides.
            !place.bound.is_empty() && place.thread.load(Relaxed) == 0 && self.idle.is_vacant(*seat)
        };
        (0..self.seats.first()).map(SeatId).find(waits)
    }

    /// Returns `true` if anything is queued that any worker may take, except in LIFO slots.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queues.are_empty() || self.all_seats().any(|seat| !seat.queues.are_empty())
    }

    /// Returns `true` if anything is queued, in bound queues and LIFO slots, too.
    pub(crate) fn has_work(&self) -> bool {
        self.has_queued()
            || self.all_seats().any(|seat| !seat.bound.is_empty() || !seat.next.look().is_null())
    }
}
