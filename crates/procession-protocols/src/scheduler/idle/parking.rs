//! Parking: which workers sleep, and which worker a publisher wakes.
//!
//! # Parking protocol
//!
//! ## Problem
//! - A publisher queues a process and sees no parked worker. A worker looked just before, saw
//!   nothing, and parks. The process waits for an unrelated event: a lost wake-up.
//! - The opposite: every publisher wakes a worker, and the workers spend their time finding that
//!   another was faster.
//!
//! ## States
//! Under the lock each seat is
//! - *present*: a thread is there, or is on its way, and is not parked. The seat is awake or out
//!   (`idle/permits.rs`);
//! - *parked*: its thread waits to be woken, on a stack with the last to park on top;
//! - *vacant*: no thread is there, and waking it means to start one. In everything else it is like
//!   a parked seat;
//! - *leaving*: its thread retires, and will leave it vacant;
//! - *absent*: it is the callers' seat (`block_on`) and no caller sits there. No thread can wake
//!   it, but it does not run either.
//!
//! A worker is *searching* while it looks for work in the queues of others.
//!
//! A claimed seat with a worker that does not run yet is also, under the lock,
//! - *coming*: its claimer has counted it as searching; or
//! - *late*: it is not counted any more, because it has been on its way for more than 100 us.
//!
//! So the word counts the workers that search, and the workers that will search in a moment. Any
//! number of seats may be coming or late at the same time.
//!
//! ## Steps
//! - Publisher: `Publish` the entry in a queue · `PublishFence` fence(SeqCst) · `ReadIdle` load the
//!   word. If no worker is searching and a seat is spare, `Claim` one under the lock (parked to
//!   present, with a permit, searching + 1) and unpark it, or start its thread.
//! - Publisher with an entry that is alone in its own worker's deque, or with a few entries that
//!   its step has woken together: after the fence, also read *napping*, and if there is a nap, wake
//!   no worker. The publisher's worker will most likely run the entries itself at the end of its
//!   step. Otherwise the napping worker finds the entries.
//! - Watchdog at each look, and publisher that is not a worker and finds that a worker is
//!   searching: `WriteOff` under the lock, make every seat late that has been coming for more than
//!   100 us, searching - 1 for each · `WriteOffFence` fence(SeqCst). If there were any, the
//!   watchdog looks into every queue, and wakes a worker for what it finds, by `ReadIdle` and
//!   `Claim`; the publisher continues with `ReadIdle` and `Claim`. This is needed because the
//!   system may let a ready thread wait, and during that time no other worker would look for the
//!   queued entries.
//! - Claimer of a seat without a thread: `Start` under the lock: if the seat is still coming or
//!   late and no other thread starts one for it, start a thread there. If the system refuses,
//!   `Decline` under the lock (present to vacant, searching - 1), and claim a parked seat instead.
//! - Worker that was claimed, before anything else: `Come` under the lock: it is not coming any
//!   more; or not late any more, searching + 1.
//! - Worker that finds nothing: `Announce` under the lock (present to parked, without a permit;
//!   searching - 1 if it searched) · `ParkFence` fence(SeqCst) · `Recheck` every queue and the next
//!   deadline. If it finds something, `TakeBack` the announcement, if there is a permit, and
//!   search; otherwise block.
//! - Searcher that finds work: searching - 1. The last searcher continues: `LeaveFence`
//!   fence(SeqCst) · look into every queue. If anything is queued, it wakes the next worker
//!   (`ReadIdle` again). If nothing is queued, the next worker would only wait for descriptors and
//!   timers in its place. A worker with short steps returns to descriptors and timers soon, so it
//!   wakes the next worker at its first service if it has not parked by then. It wakes the next
//!   worker immediately in three cases: its steps are slow and it has not parked for 10 ms before;
//!   a deadline is due within 10 ms; there is no watchdog, which would notice a long step. It wakes
//!   the next worker in its step if it sets a timer that is due within 10 ms, or begins to block.
//! - Worker that was woken and found nothing: `Nap` napping + 1, then park as above, but only for a
//!   short time; then `EndNap` napping - 1, fence(SeqCst), and search, or `Recheck` if there is no
//!   permit.
//! - Worker that was parked for long, if there are more threads than may run: `Retire` under the
//!   lock (parked to leaving), unless all others are out. Then its thread leaves (leaving to
//!   vacant) · fence(SeqCst) · `Recheck` as after `GiveBack`.
//! - Thread that queues what only one seat can run: `ClaimThis`. If there is no permit, it takes
//!   the permit of another worker, which parks after its step.
//! - Thread that needs to know whether all is idle: `Survey` under the lock, whether no seat is
//!   awake or out and no queue has anything.
//!
//! ## Why it works
//! *Publish and park.* `PublishFence` and `ParkFence` are totally ordered. If `PublishFence` is
//! first, `Recheck` sees the entry. If `ParkFence` is first, `ReadIdle` sees the announcement. If
//! `ReadIdle` saw a searcher instead, that searcher has not left the count yet. It either finds the
//! entry; or leaves the count by its own `Announce`, followed by its `Recheck`; or finds other
//! work. Then `LeaveFence` is after `PublishFence`, so the last searcher sees the entry, and wakes
//! the next worker.
//!
//! *Naps.* If a publisher has read *napping* before `EndNap` changed it, the publisher's fence was
//! before the fence of `EndNap`. So what the napping worker reads then has the entry. If the
//! napping worker is woken for something else before `EndNap`, it is a searcher. If it is the last
//! searcher when it finds work, it looks again, and wakes the next worker.
//!
//! *Late seats.* `WriteOff` takes a searcher out of the count, as a searcher that finds work does.
//! A publisher that relied on that searcher has read the word before, so its `PublishFence` is
//! before `WriteOffFence`, and the thread that writes off sees the entry. Any other publisher sees
//! the word without the searcher. A publisher that writes off has queued its own entry before. The
//! entries of others are left to the watchdog, which looks on while any worker is awake. `Come` and
//! `WriteOff` are ordered by the lock, so a seat is counted once, whichever is first. After `Come`,
//! a late worker is a searcher like any other: it finds what is left, or parks and rechecks.
//!
//! *Start.* A claimer may be interrupted before it wakes the worker. Before it continues, a parked
//! worker may wake by itself, for a deadline, park again, and leave with its thread. Then the seat
//! is vacant, and perhaps claimed by another. By the lock, a seat gets one thread for each claim,
//! whichever claimer starts it, and what a claim has counted as searching is taken back once.
//!
//! *The test clock.* A thread that finds all parked and acts on that counts the seats that became
//! awake. Between two of its reads, another worker may take its announcement back, fire a timer,
//! and park again.
//!
//! *Survey.* A worker takes entries only while it is not parked, and cannot take its announcement
//! back while the lock is held. So an entry that was queued before is in its queue, or has run. If
//! the queues were read after the lock was released, a worker could take its announcement back and
//! take the entry out in between. All would seem parked, and then nothing queued.
//!
//! *Bound entries.* An entry that only one worker can run is queued with that worker, which is
//! claimed under the lock even if others are searching. `Announce` is under the same lock. If it is
//! after the claim, `Recheck` sees the entry; if it is before, the claim finds the seat parked. A
//! thread that has begun coroutines in the callers' seat reserves the seat when it leaves. No other
//! thread sits there, and what is woken in the meantime waits for that thread.
//!
//! ## Details that look wrong and are not
//! The waker makes the seat awake, and not the woken worker. Otherwise the word would promise,
//! between the two, a parked worker that is already coming.
//!
//! ## Allowed
//! - A worker may be woken for an entry that another takes first; it searches and parks again.
//! - A process that yielded goes into a FIFO ring of its worker, which other workers may halve. If
//!   the worker continues with another process out of a ring, it looks for a parked worker without
//!   `PublishFence`, which would make a yield half as expensive again (22 ns instead of 15). So it
//!   may miss a worker that parks, or a last searcher that leaves, within the same nanoseconds. It
//!   looks again only when something else was pushed onto a ring: with the fence if it then
//!   continues with a process from elsewhere, otherwise without. Until then the entry waits for
//!   this worker, or for the watchdog's `Nudge`.
//! - The only entry of a deque, or a few that were woken together, wait for the rest of a nap, if
//!   the step of their worker lasts that long, or the steps of the entries before them: at most 200
//!   us and the system's wake-up. This also holds if others are parked without a timeout during the
//!   nap.
//! - A worker may be late for up to 100 us and one look of the watchdog, 2.5 ms, until others are
//!   woken in its place; for a publisher that is not a worker, 100 us. If its claimer was
//!   interrupted before waking it, the time counts from the first look that finds it so. Without a
//!   watchdog, workers rely on it for as long as it takes.
//! - A seat that is claimed, executes `Come`, and is claimed again while the first claimer is
//!   interrupted may be written off early. One more worker than needed is woken then.
//!
//! ## Rejected
//! - To look for late seats in every publisher, and not only in publishers that are not workers: it
//!   reads the clock for each entry that is queued while a worker searches.
//! - To remember one late seat, and to claim another about every 100 us while there is one: a
//!   second late seat went unnoticed, and workers and the watchdog relied on the first (37 of 200
//!   waited for 0.3 s until a start hook had returned).
//! - A bit map of the parked seats instead of a locked stack: it limits the number of workers, and
//!   the lock is taken only when a worker parks or is woken, which costs a system call anyway. The
//!   stack wakes the worker that parked last, and its caches are warm.
//! - An asymmetric `PublishFence` (`util/membarrier.rs`): `spawn` unchanged, `step` 15 % more,
//!   because every nap then ends by the other fence.
//! - A worker that sleeps for a moment while another is late, so that the system may place it
//!   elsewhere when it wakes: `load` unchanged.
//! - Waking for every entry: a process that starts others one by one, and waits for each, woke a
//!   worker again and again that found nothing (`step` 194 ns for each, 133 with naps; on one
//!   processor 132).
//!
//! ## Checked by
//! `models::publish_against_park`, `models::canary_without_recheck`,
//! `models::canary_without_fence`, `models::nap_against_publish`, `models::canary_nap_to_the_end`,
//! `models::canary_nap_without_fence`, `models::publish_against_leave`,
//! `models::canary_leave_without_fence`, `models::canary_leave_without_a_look`,
//! `models::survey_against_recheck`, `models::canary_survey_in_two`,
//! `models::advance_against_take_back`, `models::canary_advance_without_looking_again`,
//! `models::bound_wake_against_park`, `models::leaving_against_a_bound_wake` and their canaries,
//! `models::publish_beside_one_that_never_comes`, `models::canary_write_off_without_fence`,
//! `models::canary_write_off_without_recheck`, `models::come_against_write_off`,
//! `models::canary_come_uncounted`, `models::start_against_leave`,
//! `models::canary_start_blindly`.

mod claim;
mod coming;
#[cfg(all(test, procession_loom))]
mod models;
pub(super) mod places;

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU32, fence};

#[cfg(all(test, not(procession_loom)))]
pub(super) use self::coming::LATE;
use self::places::{Place, Remaining};
use super::word::{IdleWord, SEARCHING_ONE};
use super::{Idle, Seats, mutation};
use crate::scheduler::seat_id::SeatId;

/// The result of taking an announcement back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TakenBack {
    /// The announcement is taken back, and the worker searches.
    Yes,
    /// A waker was faster. The worker has executed `Come`, and is counted as searching. A token is
    /// on its way to its parker.
    ByWaker,
    /// There is no permit. Others are awake, and will find what there is.
    NoPermit,
}

/// A nap. Its drop ends it (`EndNap`); the worker then searches, or looks into every queue.
#[derive(Debug)]
pub struct Nap<'a> {
    napping: &'a AtomicU32,
    fenced: bool,
}

impl Drop for Nap<'_> {
    #[inline]
    fn drop(&mut self) {
        self.napping.fetch_sub(1, Relaxed);
        if self.fenced {
            fence(SeqCst);
        }
    }
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// `Announce` and `ParkFence`: returns `true` if every seat is parked now. The caller continues
    /// with `Recheck`.
    pub fn announce(&self, seat: SeatId, searched: bool) -> bool {
        let all = self.change(|seats| {
            let had_permit = seats.settle(seat, Place::Parked);
            if mutation::is(MUTATION, mutation::GIVEN_UP_TWICE) && !had_permit {
                seats.permits.miscount();
            }
            (seats.parking.are_all_parked(), -i64::from(searched))
        });
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            fence(SeqCst);
        }
        all
    }

    /// `TakeBack`. With `force`, for work that only this seat can do, takes the permit of another
    /// seat if there is none.
    pub fn take_back(&self, seat: SeatId, force: bool) -> TakenBack {
        self.change(|seats| {
            if seats.parking.place(seat) != Place::Parked {
                return (TakenBack::ByWaker, self.arrive(&mut seats.parking, seat));
            }
            if seats.permits.free() == 0 && !force {
                return (TakenBack::NoPermit, 0);
            }
            self.awaken(seats, seat);
            (TakenBack::Yes, 1)
        })
    }

    /// `TakeBack`, only if every seat is parked. Of several workers that find this out, one
    /// succeeds, and gets the number of times that a seat became awake.
    pub fn take_back_if_all_parked(&self, seat: SeatId) -> Option<u64> {
        self.change(|seats| {
            let parking = &seats.parking;
            let all = parking.are_all_parked() && parking.place(seat) == Place::Parked;
            if all {
                self.awaken(seats, seat);
            }
            (all.then_some(seats.permits.awakenings), i64::from(all))
        })
    }

    /// `Nap`, until the returned value is dropped: this worker parks, but will look again soon.
    pub fn nap(&self) -> Nap<'_> {
        self.napping.fetch_add(1, Relaxed);
        Nap { napping: &self.napping, fenced: !mutation::is(MUTATION, mutation::WITHOUT_FENCE) }
    }

    /// Returns `true` if a worker naps.
    #[cfg(feature = "sim")]
    pub fn is_any_napping(&self) -> bool {
        self.napping.load(Relaxed) > 0
    }

    /// Returns `true` if a worker is parked, and there is a permit for it.
    #[cfg(feature = "sim")]
    pub fn is_any_parked_spare(&self) -> bool {
        self.look(|seats| seats.permits.free() > 0 && !seats.parking.stack.is_empty())
    }

    /// `Retire`: takes a parked thread off its seat, so that it can leave. Returns `false` if there
    /// are no more threads than may run at the same time, or if this is the only thread that is not
    /// blocked: the next deadline and descriptors need a driver.
    pub fn retire(&self, seat: SeatId) -> bool {
        self.change(|Seats { permits, parking }| {
            let is_last = permits.taken() == 0 && parking.stack.len() == 1;
            let retires = parking.place(seat) == Place::Parked
                && parking.threads() > permits.width
                && !is_last;
            if retires {
                parking.shift(seat, Place::Leaving);
            }
            (retires, 0)
        })
    }

    /// Makes a seat vacant or, with `for_callers`, absent, because its thread leaves. If `only` is
    /// not 0, the absent seat is reserved for that thread. Returns what is left. The caller
    /// continues with `Recheck`.
    pub fn leave(&self, seat: SeatId, for_callers: bool, only: u64) -> Remaining {
        let left = self.change(|seats| {
            if for_callers {
                seats.parking.absent_for = only;
            }
            seats.settle(seat, if for_callers { Place::Absent } else { Place::Vacant });
            let all_parked = seats.parking.are_all_parked();
            (Remaining { all_parked, nobody_awake: seats.permits.taken() == 0 }, 0)
        });
        fence(SeqCst);
        left
    }

    /// Starts to search, unless half of the workers that are awake search already.
    pub fn start_searching(&self) -> bool {
        let counts = IdleWord(self.counts.load(Relaxed));
        // May let one more searcher through. The limit only saves work.
        if counts.searching() * 2 >= counts.awake().max(1) {
            return false;
        }
        self.counts.fetch_add(SEARCHING_ONE, Relaxed);
        true
    }

    /// Stops searching after the worker has found something. Returns `true` if no worker searches
    /// now, so that the caller must wake the next, or look whether it must.
    pub fn stop_searching(&self) -> bool {
        let before = IdleWord(self.counts.fetch_sub(SEARCHING_ONE, Relaxed));
        debug_assert!(before.searching() > 0, "[searching] counted once, taken back once");
        before.searching() == 1
    }

    /// Stops searching after the worker has found something. Returns `None` if others search.
    /// Otherwise returns whether anything is queued, for which the caller must wake the next.
    pub fn leave_search(&self, has_queued: impl FnOnce() -> bool) -> Option<bool> {
        if !self.stop_searching() {
            return None;
        }
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            // `LeaveFence`.
            fence(SeqCst);
        }
        Some(has_queued())
    }
}
