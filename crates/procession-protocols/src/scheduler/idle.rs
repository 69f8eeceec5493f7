//! Permits and parking: which seats run, search or are parked, and which one a publisher wakes.
//!
//! # Parking protocol
//!
//! ## Problem
//! - A publisher queues a process and sees no parked worker. A worker looked just before, saw
//!   nothing, and parks. The process waits for an unrelated event: a lost wake-up.
//! - The opposite: every publisher wakes a worker, and the workers spend their time finding that
//!   another was faster.
//! - A worker that blocks in its step does not run, although it is not parked. An entry that is
//!   queued then waits for a worker that does not look for it.
//!
//! ## States
//! A scheduler has more seats than it is wide. Under one lock each seat is
//! - *awake*: it has a permit, of which there are as many as the scheduler is wide. A thread runs
//!   there, or is on its way;
//! - *out*: a thread is there, but it has no permit: its step blocks, or its permit was revoked,
//!   and it has not parked yet;
//! - *parked*: its thread waits to be woken, on a stack with the last to park on top;
//! - *vacant*: no thread is there, and waking it means to start one. In everything else it is like
//!   a parked seat;
//! - *leaving*: its thread retires, and will leave it vacant;
//! - *absent*: it is the callers' seat (`block_on`) and no caller sits there. No thread can wake
//!   it, but it does not run either.
//!
//! One word, `searching:24 | awake:20 | spare:20`, is changed only by read-modify-writes. *Spare*
//! is the number of seats that can be woken: parked or vacant seats, as far as there are permits
//! for them. It and *awake* change under the lock. A worker is *searching* while it looks for work
//! in the queues of others. A hint for each seat says that its permit was revoked; its worker looks
//! at the hint before each dispatch.
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
//!   awake, searching + 1) and unpark it, or start its thread.
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
//!   `Decline` under the lock (awake to vacant, searching - 1), and claim a parked seat instead.
//! - Worker that was claimed, before anything else: `Come` under the lock: it is not coming any
//!   more; or not late any more, searching + 1.
//! - Worker that finds nothing: `Announce` under the lock (awake or out to parked, searching - 1 if
//!   it searched) · `ParkFence` fence(SeqCst) · `Recheck` every queue and the next deadline. If it
//!   finds something, `TakeBack` the announcement, if there is a permit, and search; otherwise
//!   block.
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
//! - Worker that blocks in its step: `GiveBack` its permit under the lock (awake to out) ·
//!   fence(SeqCst) · `Recheck` as above, and whether there still is a driver
//!   (`scheduler/driver.rs`). If it finds something: `ReadIdle` and `Claim`, as a publisher. When
//!   it returns: `Regain` a permit under the lock, if there is one. Without a permit, it continues
//!   to the end of its step, moves what only it would find to where others find it, and parks.
//! - Watchdog: `Revoke` the permit of a worker that is stalled, which is a `GiveBack` by another
//!   thread; or of a seat that has been late for as long as a stall takes, if something waits and
//!   no permit is left.
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
//! - A late seat keeps its permit until it is revoked, after the duration of a stall. Until then it
//!   counts as a seat that runs.
//! - More workers than the width run from a blocking section's return without a permit to the end
//!   of that step, and while a worker continues its step after its permit was revoked.
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
//! `models::survey_against_recheck`,
//! `models::canary_survey_in_two`, `models::advance_against_take_back`,
//! `models::canary_advance_without_looking_again`, `models::publish_against_give_back`,
//! `models::canary_give_back_without_fence`, `models::canary_give_back_without_recheck`,
//! `models::park_against_revoke`, `models::canary_given_up_twice`,
//! `models::park_without_permit_against_the_last_to_block`, `models::bound_wake_against_park`,
//! `models::leaving_against_a_bound_wake` and their canaries,
//! `models::publish_beside_one_that_never_comes`, `models::canary_write_off_without_fence`,
//! `models::canary_write_off_without_recheck`, `models::come_against_write_off`,
//! `models::canary_come_uncounted`, `models::start_against_leave`,
//! `models::canary_start_blindly`.

mod claim;
mod coming;
#[cfg(all(test, procession_loom))]
mod models;
pub mod parking;
mod permits;
mod seats;
#[cfg(all(test, not(procession_loom)))]
mod tests;
mod word;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

pub use self::seats::Presence;
use self::seats::{SeatState, Seats};
use self::word::{IdleWord, SEARCHING_ONE};
use crate::scheduler::seat_id::SeatId;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("idle", SOUND);
    /// No `PublishFence`, no `ParkFence`, no `LeaveFence`.
    pub const WITHOUT_FENCE: u8 = 1;
    /// `Survey` looks into the queues after it has released the lock.
    pub const SURVEY_IN_TWO: u8 = 2;
    /// No fence after `GiveBack`.
    pub const GIVE_BACK_WITHOUT_FENCE: u8 = 3;
    /// `Announce` returns a permit even if the seat has no permit.
    pub const GIVEN_UP_TWICE: u8 = 4;
    /// No `WriteOffFence`.
    pub const WRITE_OFF_WITHOUT_FENCE: u8 = 5;
    /// A late worker that executes `Come` is not counted again.
    pub const COME_UNCOUNTED: u8 = 6;
    /// `Recheck` of a worker that parks does not look into the queues. The models plant this and
    /// the next three in their own code.
    pub const PARK_WITHOUT_RECHECK: u8 = 7;
    /// No `Recheck` after `GiveBack`.
    pub const GIVE_BACK_WITHOUT_RECHECK: u8 = 8;
    /// The watchdog does not look into the queues after `WriteOff`.
    pub const WRITE_OFF_WITHOUT_RECHECK: u8 = 9;
    /// `Recheck` of a worker that parks does not look for processes that are bound to it.
    pub const BOUND_WITHOUT_RECHECK: u8 = 10;
    /// A seat for which no thread can be started stays counted as searching.
    pub const DECLINE_COUNTED: u8 = 11;
    /// A thread that could not start another wakes no parked worker in its place.
    pub const DECLINE_ALONE: u8 = 12;
    /// A thread that wants to start another does not look whether its claim is over.
    pub const START_BLINDLY: u8 = 13;
}

/// The permits and the seats of a scheduler: the word, and what lies under the lock.
#[derive(Debug)]
pub struct Idle<const MUTATION: u8 = { mutation::BUILT }> {
    counts: AtomicU64,
    seats: Mutex<Seats>,
    /// For each seat, whether its permit was revoked. Written under the lock; a hint without it.
    revoked: Box<[AtomicBool]>,
    /// An upper bound of the seats that are not vacant, or not empty. Written under the lock.
    reach: AtomicU32,
    /// The number of permits. Written under the lock.
    width: AtomicU32,
    /// The number of seats with a thread. Written under the lock.
    threads: AtomicU32,
    /// The number of parked workers that will look again soon. Changed without the lock.
    napping: AtomicU32,
    /// For each claimed seat, the time since which it is being woken, or `u64::MAX` before.
    since: Box<[AtomicU64]>,
    /// The number of seats that are coming. Written under the lock.
    coming: AtomicU32,
    /// The earliest of their times in `since`, or `u64::MAX` if it is not known. A hint.
    coming_since: AtomicU64,
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// Creates vacant seats. If callers drive, the first one is absent.
    pub fn new(seats: u32, width: u32, callers_drive: bool) -> Self {
        let mut states = vec![SeatState::Vacant; seats as usize];
        if callers_drive {
            states[0] = SeatState::Absent;
        }
        let all = Seats {
            states: states.into(),
            stack: Vec::new(),
            vacant: (u32::from(callers_drive)..seats).rev().map(SeatId).collect(),
            awake: 0,
            out: 0,
            leaving: 0,
            width,
            turn: 0,
            awakenings: 0,
            absent_for: 0,
            coming: Vec::with_capacity(seats as usize),
            late: Vec::with_capacity(seats as usize),
            starting: Vec::new(),
        };
        Self {
            counts: AtomicU64::new(all.summary()),
            seats: Mutex::new(all),
            revoked: (0..seats).map(|_| AtomicBool::new(false)).collect(),
            reach: AtomicU32::new(width.min(seats)),
            width: AtomicU32::new(width),
            threads: AtomicU32::new(0),
            napping: AtomicU32::new(0),
            since: (0..seats).map(|_| AtomicU64::new(u64::MAX)).collect(),
            coming: AtomicU32::new(0),
            coming_since: AtomicU64::new(u64::MAX),
        }
    }

    /// Changes the seats and the word. `change` also returns the change of the number of searchers.
    fn change<R>(&self, change: impl FnOnce(&mut Seats) -> (R, i64)) -> R {
        let mut seats = self.seats.lock();
        let before = seats.summary();
        let (result, searching) = change(&mut seats);
        let searching = (searching as u64).wrapping_mul(SEARCHING_ONE);
        // Relaxed, as all changes of the word: only their order matters, and the fences give it.
        self.counts
            .fetch_add(seats.summary().wrapping_sub(before).wrapping_add(searching), Relaxed);
        // Relaxed: its readers tolerate an old value.
        self.threads.store(seats.threads(), Relaxed);
        result
    }

    fn look<R>(&self, look: impl FnOnce(&Seats) -> R) -> R {
        look(&self.seats.lock())
    }

    /// Returns `true` if at least two workers are awake, the caller included if it has a permit.
    pub fn is_another_awake(&self) -> bool {
        IdleWord(self.counts.load(Relaxed)).awake() > 1
    }

    /// Lowers the reach, to `least` at the lowest, by the last seats that are vacant and empty.
    pub fn lower_reach(&self, least: u32, is_empty: impl Fn(SeatId) -> bool) {
        self.look(|seats| {
            let mut reach = self.reach.load(Relaxed);
            while reach > least
                && seats.states[reach as usize - 1] == SeatState::Vacant
                && is_empty(SeatId(reach - 1))
            {
                reach -= 1;
            }
            self.reach.store(reach, Relaxed);
        });
    }

    /// Returns how many seats, from the first on, may have anything in them.
    #[inline]
    pub fn reach(&self) -> u32 {
        self.reach.load(Relaxed)
    }

    /// Returns how many workers may run at the same time.
    #[inline]
    pub fn width(&self) -> u32 {
        self.width.load(Relaxed)
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

    /// Returns `true` if no other seat has become awake since all were parked. Then everything that
    /// this thread has read since was true all the time.
    pub fn is_alone_since(&self, awakenings: u64) -> bool {
        self.look(|seats| seats.awakenings == awakenings)
    }

    /// Returns `true` if all seats within reach have a permit, as far as can be seen.
    #[inline]
    pub fn are_all_awake(&self) -> bool {
        IdleWord(self.counts.load(Relaxed)).awake() >= self.reach()
    }

    /// Returns which of the given seats have no permit, all at one moment.
    pub fn without_permit(&self, seats: impl Iterator<Item = SeatId>) -> Vec<SeatId> {
        self.look(|all| {
            seats.filter(|seat| all.states[seat.0 as usize] != SeatState::Awake).collect()
        })
    }

    /// Returns `true` if there are more threads than may run at the same time.
    #[inline]
    pub fn has_surplus(&self) -> bool {
        self.threads.load(Relaxed) > self.width()
    }

    /// Returns which seats and threads are left, at one moment.
    pub fn rest(&self) -> Presence {
        self.look(|seats| Presence {
            has_thread: seats.awake > 0 || !seats.stack.is_empty(),
            has_vacant: !seats.vacant.is_empty(),
            is_leaving: seats.leaving > 0,
            has_absent: seats.states[0] == SeatState::Absent,
            out: (0..)
                .zip(&seats.states)
                .filter(|(_, state)| **state == SeatState::Out)
                .map(|(at, _)| SeatId(at))
                .collect(),
        })
    }

    /// `Survey`: returns `true` if no worker runs and nothing is queued, both at one moment.
    pub fn all_parked_and(&self, nothing_queued: impl Fn() -> bool) -> bool {
        if mutation::is(MUTATION, mutation::SURVEY_IN_TWO) {
            return self.look(Seats::are_all_parked) && nothing_queued();
        }
        self.look(|seats| seats.are_all_parked() && nothing_queued())
    }

    /// Returns how many seats are searching, awake and spare.
    #[inline]
    pub fn counts(&self) -> (u32, u32, u32) {
        let counts = IdleWord(self.counts.load(Relaxed));
        (counts.searching(), counts.awake(), counts.spare())
    }
}
