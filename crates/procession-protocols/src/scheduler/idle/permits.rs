//! Permits: which workers may run.
//!
//! # Permit protocol
//!
//! ## Problem
//! A scheduler has more threads than may run at the same time, because a thread may block in a
//! step. A worker that blocks does not run, although it is not parked. An entry that is queued then
//! waits for a worker that does not look for it. So another worker must run in its place. When the
//! step continues, more workers run than the width, which must not last for long.
//!
//! ## States
//! There are as many permits as the scheduler is wide. Under the lock, each seat either has a
//! permit or not. A seat with a permit is *awake*: a thread runs there, or is on its way. A seat
//! with a thread that is not parked, but without a permit, is *out*: its step blocks, or its permit
//! was revoked, and it has not parked yet. A seat that is parked or vacant has no permit.
//!
//! A seat with a permit runs *batch* processes or others. At most `max_batch` permits are held for
//! batch processes, by default all but one, and at least one. A seat that loses its permit within
//! such a step no longer counts. Seats that have such a process of their own, and found no permit
//! for it, wait in a queue.
//!
//! A worker reads without the lock whether its seat has a permit, before each dispatch. This is a
//! hint.
//!
//! ## Steps
//! - Worker that blocks in its step: `GiveBack` its permit under the lock (awake to out) ·
//!   fence(SeqCst) · `Recheck` as a worker that parks (`idle/parking.rs`), and whether there still
//!   is a driver (`scheduler/driver.rs`). If it finds something: `ReadIdle` and `Claim`, as a
//!   publisher. When it returns: `Regain` a permit under the lock, if there is one. Without a
//!   permit, it continues to the end of its step, moves what only it would find to where others
//!   find it, and parks.
//! - Worker that found a batch process: `Begin` under the lock, if it has a permit, and a permit
//!   for batch processes is left after those for seats that wait. It keeps that permit for the next
//!   batch process. Before it runs another process, or parks: `End` under the lock, fence(SeqCst),
//!   and `ReadIdle` and `Claim` as a publisher if a batch process waits. `Regain` of a worker in a
//!   step of a batch process is a `Begin` as well.
//! - Watchdog: `Revoke` the permit of a worker that is stalled, which is a `GiveBack` by another
//!   thread; or of a seat that has been late for as long as a stall takes, if something waits and
//!   no permit is left. It takes a stalled worker out of the queue for batch permits, which the
//!   worker enters again, at the end, when it next looks for work.
//! - Thread that wakes a worker (`Claim`): give it a permit, under the lock. Without a free permit,
//!   no worker is claimed, except for what only this worker can do. Then the permit of another
//!   worker is revoked, which parks after its step.
//! - Thread that changes the width: under the lock, revoke permits of seats that run batch
//!   processes while more of these are held than their limit, which may follow the width. Then
//!   revoke permits while more are held than the width.
//!
//! ## Why it works
//! *Blocking.* `GiveBack` is also an announcement, and its fence a `ParkFence`. Either the worker
//! that blocks finds the entry and wakes another for it, or the publisher finds the permit.
//!
//! *No permit.* A worker that finds an entry in `Recheck`, and no permit, may sleep. By the lock,
//! another worker is awake at that moment. Before that one stops being awake, it takes the lock;
//! then it rechecks, and sees what was seen here. So nothing is lost while a worker is awake, and
//! the last one to block or to park finds a permit to wake another with.
//!
//! *Revoke.* By the lock, `Revoke` and the worker's own steps happen one after the other. The
//! second finds the seat out, parked or awake, so a permit is returned once. The hint may be seen
//! late. Then one worker more than the width runs for one step.
//!
//! *Batch.* A worker that parks reads whether it may take what waits: the number of entries, and
//! whether a permit is left. `End` is an announcement of the latter, as a push is of the former, so
//! the same two fences order it with `Recheck`. A worker with a batch process of its own parks only
//! if it may not begin and is in the queue. The lock orders its place in the queue with `End`.
//!
//! ## Allowed
//! - A batch process that computes after its permit was revoked runs beside as many others as
//!   `max_batch`, as any such process runs beside as many as the width. If it counted, a process
//!   that blocks without saying so could wait without end for another batch process.
//! - A late seat keeps its permit until it is revoked, after the duration of a stall. Until then it
//!   counts as a seat that runs.
//! - More workers than the width run from a blocking section's return without a permit to the end
//!   of that step, and while a worker continues its step after its permit was revoked.
//!
//! ## Rejected
//! - Handing the seat over to another thread when a step blocks, as tokio's `block_in_place` and
//!   Go's `handoffp` do, instead of having more seats than permits. A worker that stalls without a
//!   blocking section may wake up at any moment and push onto its own deque, so it can hand nothing
//!   over, and extra seats are needed for it in any case. With them, a worker in a declared section
//!   does the same by itself. Besides, bound processes do not change threads then, and what the
//!   section's closure wakes or spawns is queued as always. The price: a process that is bound to a
//!   worker waits for its section to end.
//! - A parked count that ignores permits, and a check of the permits after the pop: publishers
//!   would take the lock without finding a permit for as long as there are more threads than
//!   permits.
//!
//! ## Checked by
//! `models::publish_against_give_back`, `models::canary_give_back_without_fence`,
//! `models::canary_give_back_without_recheck`, `models::park_against_revoke`,
//! `models::canary_given_up_twice`, `models::park_without_permit_against_the_last_to_block`,
//! `models::push_against_end_of_batch`, `models::canary_end_without_fence`,
//! `models::two_begin_batch`, `models::park_against_end_of_batch`,
//! `models::canary_park_without_waiting`; `tests::*` of `scheduler/idle`.

mod batch;
pub(super) mod held;
#[cfg(all(test, procession_loom))]
mod models;

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use super::parking::places::Place;
use super::word::IdleWord;
use super::{Idle, Seats, mutation};
use crate::scheduler::seat_id::SeatId;

impl Seats {
    /// Takes the permit of a seat whose step may last. A parked seat has no permit, and still waits
    /// for one for batch processes. Returns `true` if the seat had a permit.
    fn take_away(&mut self, seat: SeatId) -> bool {
        self.parking.place(seat) == Place::Present && self.permits.take_away(seat)
    }
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// `GiveBack`: returns `true` if no worker is awake now. The caller continues with `Recheck`.
    pub fn give_back(&self, seat: SeatId) -> bool {
        let nobody = self.change(|seats| {
            seats.take_away(seat);
            (seats.permits.taken() == 0, 0)
        });
        if !mutation::is(MUTATION, mutation::GIVE_BACK_WITHOUT_FENCE) {
            fence(SeqCst);
        }
        nobody
    }

    /// `Revoke`: returns `true` if the seat had a permit. The caller then wakes others.
    pub fn revoke(&self, seat: SeatId) -> bool {
        let had = self.change(|seats| (seats.take_away(seat), 0));
        fence(SeqCst);
        had
    }

    /// `Revoke` of all seats that have been late for this long. Returns how many had a permit; the
    /// caller then wakes others.
    pub fn revoke_late(&self, now: u64, after: u64) -> usize {
        let count = self.change(|Seats { permits, parking }| {
            let is_due = |seat: &&SeatId| now >= self.is_woken_since(**seat).saturating_add(after);
            let due = parking.late.iter().filter(is_due);
            (due.filter(|&&seat| permits.take_away(seat)).count(), 0)
        });
        fence(SeqCst);
        count
    }

    /// `Regain`, by the worker of a seat with a thread: returns `true` if the seat has a permit
    /// now. With `force`, takes the permit of another seat if there is none.
    pub fn regain(&self, seat: SeatId, force: bool) -> bool {
        self.change(|Seats { permits, parking }| {
            let is_out = parking.place(seat) == Place::Present && !permits.has(seat);
            let may = permits.free() > 0 && permits.batch.may_resume(seat, permits.width);
            if is_out && (force || may) {
                permits.grant(seat);
                permits.batch.resume(seat);
            }
            (permits.has(seat), 0)
        })
    }

    /// Sets how many permits may be held for batch processes. `None` is all but one.
    pub fn limit_batch(&self, most: Option<u32>) {
        self.change(|Seats { permits, .. }| (permits.batch.limit = most, 0));
    }

    /// `Begin`: returns `true` if the worker in `seat` may run batch processes now. If it may not,
    /// and `waits` is set because nobody else can run what it has found, the seat waits for a
    /// permit.
    pub fn begin_batch(&self, seat: SeatId, waits: bool) -> bool {
        self.change(|Seats { permits, .. }| {
            let begins = permits.has(seat) && permits.batch.may_begin(seat, permits.width);
            if begins {
                permits.batch.begin(seat);
            } else if waits {
                permits.batch.wait(seat);
            }
            (begins, 0)
        })
    }

    /// `End`: notes that the worker in `seat` runs no batch process any more. The caller then wakes
    /// others, if a batch process waits.
    pub fn end_batch(&self, seat: SeatId) {
        self.change(|Seats { permits, .. }| (permits.batch.end(seat), 0));
        if !mutation::is(MUTATION, mutation::END_WITHOUT_FENCE) {
            fence(SeqCst);
        }
    }

    /// Notes that the seat waits for no permit for batch processes any more. The caller continues
    /// as after [`end_batch`](Self::end_batch).
    pub fn stop_waiting_for_batch(&self, seat: SeatId) {
        self.change(|Seats { permits, .. }| (permits.batch.stop_waiting(seat), 0));
        fence(SeqCst);
    }

    /// Returns `true` if a worker may begin with batch processes that any worker can run, as far as
    /// can be seen.
    #[inline]
    pub fn has_batch_permit(&self) -> bool {
        self.batch_spare.load(Relaxed) > 0
    }

    /// Returns `true` if the worker in `seat`, which has a batch process of its own, may begin with
    /// it, or does not wait for a permit yet. A worker that parked then would miss the `End` of
    /// another.
    pub fn must_try_batch(&self, seat: SeatId) -> bool {
        self.look(|Seats { permits, .. }| {
            permits.batch.may_begin(seat, permits.width)
                || !permits.batch.waits(seat)
                    && !mutation::is(MUTATION, mutation::PARK_WITHOUT_WAITING)
        })
    }

    /// Returns `true` if the seat holds its permit for a batch process.
    pub fn is_in_batch(&self, seat: SeatId) -> bool {
        self.look(|seats| seats.permits.batch.counts(seat))
    }

    /// Returns `true` if a seat waits for a permit for a batch process, as far as can be seen.
    #[inline]
    pub fn is_batch_wanted(&self) -> bool {
        self.batch_wanted.load(Relaxed)
    }

    /// Returns the first of these seats, if there is a permit for it. The caller wakes it.
    pub fn next_for_batch(&self) -> Option<SeatId> {
        self.look(|seats| seats.permits.batch.next(seats.permits.width))
    }

    /// Returns how many permits are held for batch processes.
    pub fn batch(&self) -> u32 {
        self.look(|seats| seats.permits.batch.taken())
    }

    /// Returns `true` if the seat has no permit, as far as can be seen. For its worker: the permit
    /// was revoked.
    #[inline]
    pub fn is_revoked(&self, seat: SeatId) -> bool {
        !self.held[seat.0 as usize].load(Relaxed)
    }

    /// Returns the given seats that have no permit, all at one moment.
    pub fn without_permit(&self, seats: impl Iterator<Item = SeatId>) -> Vec<SeatId> {
        self.look(|all| seats.filter(|&seat| !all.permits.has(seat)).collect())
    }

    /// Returns `true` if all seats within reach have a permit, as far as can be seen.
    #[inline]
    pub fn are_all_awake(&self) -> bool {
        IdleWord(self.counts.load(Relaxed)).awake() >= self.reach()
    }

    /// Returns `true` if at least two workers are awake, the caller included if it has a permit.
    pub fn is_another_awake(&self) -> bool {
        IdleWord(self.counts.load(Relaxed)).awake() > 1
    }

    /// Returns `true` if no other seat has become awake since all were parked. Then everything that
    /// this thread has read since was true all the time.
    pub fn is_alone_since(&self, awakenings: u64) -> bool {
        self.look(|seats| seats.permits.awakenings == awakenings)
    }

    /// Returns how many workers may run at the same time.
    #[inline]
    pub fn width(&self) -> u32 {
        self.width.load(Relaxed)
    }

    /// Changes how many workers may run at the same time. Excess workers go out, and park after
    /// their steps. Workers that run batch processes beyond the new limit go out as well, and come
    /// back for other processes.
    pub fn set_worker_threads(&self, width: u32) {
        self.change(|Seats { permits, .. }| {
            permits.width = width;
            self.width.store(width, Relaxed);
            while permits.batch.is_exceeded(width) && permits.release_batch() {}
            while permits.taken() > width && permits.release_any() {}
            ((), 0)
        });
        // As after `Announce`: the caller then looks whether there is work for workers that may run
        // now.
        fence(SeqCst);
    }
}
