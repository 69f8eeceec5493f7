//! The publisher's side of the parking protocol (`scheduler/idle/parking.rs`): wakes workers for
//! queued processes.

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::process::slot::Ready;
use crate::scheduler::current::{Origin, enqueue, with_local};
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;
use crate::scheduler::workforce::Workforce;

/// Queues processes of `shared` that were woken, in their order, as [`enqueue`] does with a single
/// process, and wakes a worker for all these processes.
pub(crate) fn enqueue_all(shared: &Shared, woken: &mut Vec<Ready>) {
    let is_alone =
        |ready: &Ready| shared.workforce.queues.shuffled || !ready.slot().bound.is_plain();
    let is_of = |local: &&LocalWorker| std::ptr::eq(&*local.shared, shared);
    with_local(|local| match local.filter(is_of) {
        _ if woken.len() < 2 || woken.iter().any(is_alone) => enqueue_each(woken),
        Some(local) if local.step.is_any() => local.queues.push_woken_together(woken),
        Some(_) => enqueue_each(woken),
        None => {
            let waits = &shared.processes.waits;
            let now = || shared.world.now();
            woken.iter().for_each(|ready| waits.begin_outside(ready.slot(), now));
            shared.workforce.queues.global.push_all(woken);
            shared.workforce.announce_from_outside();
        }
    });
}

fn enqueue_each(woken: &mut Vec<Ready>) {
    woken.drain(..).for_each(|ready| enqueue(ready, Origin::Woken));
}

impl Workforce {
    /// Changes how many workers may run concurrently, and wakes some if anything is queued.
    pub(crate) fn set_worker_threads(&self, width: u32) {
        self.idle.set_worker_threads(width);
        if self.has_queued() {
            self.announce_many(width as usize);
        }
    }

    /// Wakes a worker for an entry that was just queued, unless one is searching.
    #[inline]
    pub(crate) fn announce(&self) {
        self.wake(self.idle.claim_one());
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
        self.wake(self.idle.claim_one().or_else(written_off));
    }

    /// Wakes a worker like `announce`, for entries that this worker will most likely run itself,
    /// soon after its step. Wakes none while a worker naps.
    #[inline]
    pub(crate) fn announce_own(&self) {
        self.wake(self.idle.claim_one_unless_napping());
    }

    /// Wakes a worker like `announce`, for an entry that this worker will run itself otherwise. May
    /// miss a worker that parks, or leaves the search, at this moment.
    #[inline]
    pub(crate) fn announce_in_sight(&self) {
        self.wake(self.idle.claim_one_in_sight());
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

    /// Queues a process that only the worker in `seat` can run, and wakes that worker.
    // Never inlined, because it would make the push of a process that is bound to no worker dearer.
    #[inline(never)]
    pub(crate) fn enqueue_bound(&self, seat: SeatId, ready: Ready) {
        self.seat(seat).bound.push(ready);
        fence(SeqCst);
        self.wake_this(seat);
    }

    /// Wakes the worker in `seat`, unless it is awake: only this worker can do what waits for it.
    pub(crate) fn wake_this(&self, seat: SeatId) {
        self.wake(self.idle.claim_this(seat).then_some(seat));
    }

    #[inline]
    fn wake(&self, claimed: Option<SeatId>) {
        if let Some(seat) = claimed {
            self.wake_seat(seat);
        }
    }
}
