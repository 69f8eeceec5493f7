//! Tells workers of what was queued, and gives up what they leave behind.

use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::process::slot::Ready;
use crate::scheduler::seat_id::{NEVER, SeatId};
use crate::scheduler::shared::Shared;

impl Shared {
    /// Changes how many workers may run at once.
    pub(crate) fn set_worker_threads(&self, width: u32) {
        self.idle.set_worker_threads(width);
        if self.has_queued() {
            self.announce_many(width as usize);
        }
    }

    /// Wakes a worker for something just queued, if none searches.
    #[inline]
    pub(crate) fn announce(&self) {
        if let Some(seat) = self.idle.claim_one() {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, by a thread that will not come to it itself: a worker that was woken before,
    /// and counts as searching, may be late.
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

    /// As `announce`, for the only entry in the deque of this worker.
    #[inline]
    pub(crate) fn announce_only(&self) {
        if let Some(seat) = self.idle.claim_one_unless_napping() {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, for what this worker will come to itself.
    #[inline]
    pub(crate) fn announce_in_sight(&self) {
        if let Some(seat) = self.idle.claim_one_in_sight() {
            self.wake_seat(seat);
        }
    }

    /// As `announce`, for as many entries as `count`, which others may take: each is worth a worker
    /// of its own, whoever searches.
    pub(crate) fn announce_many(&self, count: usize) {
        fence(SeqCst);
        for _ in 0..count.min(self.width()) {
            match self.idle.claim() {
                Some(seat) => self.wake_seat(seat),
                None => return,
            }
        }
    }

    /// `Recheck` for others, after a permit was given up: is there anything that its worker leaves
    /// behind? `nobody_awake` if it was the last.
    pub(crate) fn recheck(&self, nobody_awake: bool) {
        if self.has_queued() {
            return self.announce();
        }
        if !nobody_awake {
            return;
        }
        let earliest = self.next_deadline();
        if earliest != NEVER || self.poller.kernel().is_some() {
            self.settle_debt(self.clock.keeper.attend(earliest));
        }
    }

    /// The step of the worker in `seat` blocks: another may run in its place. What only that worker
    /// would have come to is queued already.
    pub(crate) fn give_permit_back(&self, seat: SeatId) {
        let nobody_awake = self.idle.give_back(seat);
        self.recheck(nobody_awake);
    }

    /// Queues a process that runs on one worker only, and wakes that one.
    pub(crate) fn enqueue_bound(&self, seat: SeatId, ready: Ready) {
        self.seat(seat).bound.push(ready);
        fence(SeqCst);
        if self.idle.claim_this(seat) {
            self.wake_seat(seat);
        }
    }

    /// Whether anything is queued that any worker may take, next slots apart.
    pub(crate) fn has_queued(&self) -> bool {
        !self.queues.are_empty() || self.all_seats().any(|seat| !seat.queues.are_empty())
    }

    /// Whether anything is queued at all.
    pub(crate) fn has_work(&self) -> bool {
        self.has_queued()
            || self.all_seats().any(|seat| !seat.bound.is_empty() || !seat.next.look().is_null())
    }
}
