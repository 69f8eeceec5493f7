//! Who runs, who searches, who is parked, and whom a publisher wakes.
//!
//! # Parking protocol
//!
//! ## Problem
//! A publisher queues a process and sees nobody parked. A worker looked just before, saw nothing,
//! and parks. The process waits for an unrelated event: a lost wake-up. And the opposite: every
//! publisher wakes somebody, and the workers spend their time finding that another was faster.
//! Third, a worker whose step blocks does not run, though it is not parked: what is queued then
//! waits for a worker that does not come.
//!
//! ## States
//! A scheduler has more seats than it is wide. Under one lock each seat is
//! - *awake*: it has a permit, of which there are as many as the scheduler is wide; a thread runs
//!   there, or is on its way;
//! - *out*: a thread is there, but it has no permit: its step blocks, or its permit was taken away,
//!   and it has not come to park yet;
//! - *parked*: its thread waits to be woken, on a stack, the last to park on top;
//! - *vacant*: no thread is there; waking it means to start one. Nothing else tells it from a
//!   parked one;
//! - *leaving*: its thread retires, and will leave it vacant;
//! - *absent*: it is for callers (`block_on`) and none sits there: nobody can wake it, but it does
//!   not run either.
//!
//! One word, `searching:24 | awake:20 | spare:20`, changed only by read-modify-writes. *Spare* is
//! how many can be woken: parked or vacant seats, as far as there are permits for them; it and
//! *awake* change under the lock. A worker is *searching* while it looks for work in the queues of
//! others. A hint for each seat says that its permit was taken away; its worker looks at it before
//! each dispatch.
//!
//! A seat that was claimed, and whose worker does not run yet, is also, under the lock,
//! - *coming*: its claimer has counted it as searching; or
//! - *late*: it is not counted any more, since it has been on its way for more than 100 us.
//!
//! So the word counts the workers that search, and those that will in a moment. Any number of seats
//! may be coming or late at once.
//!
//! ## Steps
//! Publisher: `Publish` the entry in a queue · `PublishFence` fence(SeqCst) · `ReadIdle` load the
//! word; if nobody searches and somebody is spare, `Claim` one under the lock (parked to awake,
//! searching + 1) and unpark it, or start its thread. `WriteOff`, by the watchdog at each look, and
//! by a publisher that is no worker and finds that somebody searches: under the lock, make every
//! seat late that has been coming for more than 100 us, searching - 1 for each · `WriteOffFence`
//! fence(SeqCst) · if there were any: the watchdog looks into every queue, and wakes a worker for
//! what it finds, by `ReadIdle` and `Claim`; the publisher goes on with `ReadIdle` and `Claim`. The
//! system may let a thread wait that is ready to run, and nobody else would come to what is queued
//! meanwhile. Worker that was claimed: `Come` under the lock: coming no more; or late no more,
//! searching + 1. It does so before anything else. Watchdog: `Revoke` the permit of a seat that has
//! been late for as long as makes a stall, if something waits and no permit is left. Worker that
//! finds nothing: `Announce` under the lock (awake or out to parked, searching - 1 if it searched)
//! · `ParkFence` fence(SeqCst) · `Recheck` every queue and the next deadline · found: `TakeBack`
//! the announcement, if there is a permit, and search; else block. Searcher that finds work:
//! searching - 1; the last one wakes the next (`ReadIdle` again). Worker that was woken in vain:
//! `Nap` napping + 1, then parks as above, but for a short time only; then `EndNap` napping - 1,
//! fence(SeqCst), and it searches, or without a permit `Recheck`s. A publisher whose entry is alone
//! in its own worker's deque reads *napping*, too, after its fence, and then wakes nobody: it will
//! most likely run the entry itself at the end of its step, and the napper comes for it otherwise.
//! Worker whose step blocks: `GiveBack` its permit under the lock (awake to out) · fence(SeqCst) ·
//! `Recheck` as above, and whether anybody is left who keeps the time (`scheduler/driver.rs`);
//! found: `ReadIdle` and `Claim`, as a publisher. When it returns: `Regain` a permit under the
//! lock, if there is one; without one it goes on to the end of its step, puts what only it would
//! find where others do, and parks. Watchdog: `Revoke` the permit of a worker that is stalled:
//! `GiveBack`, by another. Worker that was parked for long, if there are more threads than may run:
//! `Retire` under the lock (parked to leaving), unless all others are out; then its thread leaves
//! (leaving to vacant) · fence(SeqCst) · `Recheck` as after `GiveBack`. For what only one seat can
//! run, `ClaimThis` takes the permit of another, if there is none, which parks after its step. Who
//! wants to know whether all is idle: `Survey` under the lock, whether none is awake or out and no
//! queue has anything.
//!
//! ## Why it works
//! The two fences are totally ordered. If `PublishFence` is first, `Recheck` sees the entry. If
//! `ParkFence` is first, `ReadIdle` sees the announcement. If `ReadIdle` saw a searcher instead,
//! that searcher has not yet left the count, so it either finds the entry, or leaves by its own
//! `Announce`, and its `Recheck` comes after; or finds other work, and wakes the next. A publisher
//! that has read *napping* before `EndNap` changed it had its fence before the one of `EndNap`, so
//! what the napper reads then has the entry. One that is woken for something else meanwhile is a
//! searcher, and as the last one that finds work it wakes the next.
//!
//! `WriteOff` takes a searcher out of the count, as one that finds work does. A publisher that
//! relied on that searcher has read the word before, so its `PublishFence` comes before
//! `WriteOffFence`, and whoever writes off sees the entry. Any other publisher sees the word
//! without it. A publisher that writes off has queued its own entry before; of those that others
//! have queued the watchdog, which looks on while anybody is awake, takes care. `Come` and
//! `WriteOff` are ordered by the lock, so a seat is counted once, whichever comes first. A late
//! worker that comes is a searcher like any other: it finds what is left, or parks and rechecks.
//!
//! `GiveBack` is an announcement, too, and its fence a `ParkFence`: the one who blocks finds the
//! entry and wakes another for it, or the publisher finds the permit.
//!
//! A worker that finds an entry in `Recheck`, and no permit, may sleep: some other is awake, by the
//! lock, at that moment; before that one is not awake any more it takes the lock, and then
//! rechecks, and sees what was seen here. Nothing is lost while one is awake, and the last one to
//! block or to park finds a permit to wake another with.
//!
//! The lock makes `Revoke` and the worker's own steps one after the other: whichever comes second
//! finds the seat out, parked or awake, and a permit is given up once. The hint may be seen late:
//! then a worker more than the width runs for one step.
//!
//! Who finds all parked, and acts on that (the test clock), counts what became awake: another may
//! take its announcement back, fire a timer, and park again, between two of the things that this
//! one reads.
//!
//! `Survey`: a worker takes entries only while it is not parked, and cannot take its announcement
//! back while the lock is held. So an entry that was queued before is in its queue, or has run.
//! Looking into the queues after the lock is given back, one may find that all were parked, and
//! then that nothing is queued, since a worker has taken its announcement back and the entry out
//! meanwhile.
//!
//! What one worker alone can run is queued with it, and that one is claimed under the lock, whoever
//! searches. `Announce` is under the same lock, so either it comes later and `Recheck` sees the
//! entry, or earlier and the claim finds it. A thread that has begun coroutines in the seat for
//! callers leaves it to itself: nobody else sits there, and what is woken meanwhile waits for it.
//!
//! ## Details that look wrong and are not
//! The waker, not the woken, makes the seat awake: between the two the word would promise a sleeper
//! who is already coming.
//!
//! ## Allowed
//! - A worker may be woken for an entry that another takes first; it searches and parks again.
//! - A process that gave way goes into a FIFO ring of its worker, which other workers may halve. If
//!   the worker goes on with another out of a ring, it looks for somebody parked without
//!   `PublishFence`, which would cost a yield half as much again (15 to 22 ns). It may so miss one
//!   that parks within the same nanoseconds. It looks again only when something else was pushed
//!   onto a ring: with the fence if it then goes on with a process from elsewhere, else without.
//!   Until then the entry waits for this worker, or for the watchdog's `Nudge`.
//! - The only entry of a deque waits for the rest of a nap, at most 200 us and the system's
//!   wake-up, if its worker's step lasts so long, also if others are parked for good meanwhile.
//! - A worker may be late for up to 100 us and a look of the watchdog, 2.5 ms, until others are
//!   woken in its place; for a thread that is no worker 100 us. If its claimer was interrupted
//!   before waking it, the time counts from the first look that finds it so. Without a watchdog,
//!   workers rely on it for as long as it takes.
//! - A seat that is claimed, comes, and is claimed again while the first claimer is interrupted may
//!   be written off early: one is woken too many.
//! - A late seat keeps its permit until it is revoked, after the time that makes a stall: so long
//!   it is one of those that run.
//! - More run than the scheduler is wide, from a blocking section's return without a permit to the
//!   end of that step, and while a worker whose permit was revoked goes on with its step.
//!
//! ## Rejected
//! - To look for late seats in every publisher, as those do that are no workers: it reads the clock
//!   for each entry that is queued while somebody searches.
//! - To remember one late seat, and to claim another about every 100 us while there is one: a
//!   second late seat went unnoticed, and workers and the watchdog relied on the first (37 of 200
//!   waited for 0.3 s until a start hook had returned).
//! - A bit map of the parked instead of a locked stack: it limits the number of workers, and the
//!   lock is taken only when somebody parks or is woken, which costs a system call anyway. The
//!   stack wakes the one that parked last, whose caches are warm.
//! - Handing the seat over to another thread when a step blocks, as tokio's `block_in_place` and
//!   Go's `handoffp` do, instead of having more seats than permits. A worker that stalls without
//!   saying so may wake up at any moment and push onto its own deque, so it can hand nothing over,
//!   and extra seats are needed for it in any case; with them a declared section is the same thing
//!   done by the worker itself. Nor do bound processes then change threads, and what the section's
//!   closure wakes or spawns goes the usual ways. The price: a process that is bound to a worker
//!   waits for its section to end.
//! - A parked count that ignores permits, and a check of the permits after the pop: publishers
//!   would take the lock in vain for as long as more threads than permits are there.
//! - An asymmetric `PublishFence` (`util/membarrier.rs`): `spawn` level, `step` 15 % more, since
//!   every nap ends by the other fence then.
//! - A worker that sleeps for a moment while another is late, so that the system may place it
//!   elsewhere when it wakes: `load` level.
//! - Waking for every entry: a process that starts others one by one, and waits for each, woke a
//!   worker again and again which found nothing (`step` 194 ns for each, 133 with naps; on one
//!   processor 132).
//!
//! ## Checked by
//! `models::publish_against_park`, `models::canary_without_recheck`,
//! `models::canary_without_fence`, `models::nap_against_publish`, `models::canary_nap_to_the_end`,
//! `models::canary_nap_without_fence`, `models::survey_against_recheck`,
//! `models::canary_survey_in_two`, `models::advance_against_take_back`,
//! `models::canary_advance_without_looking_again`, `models::publish_against_give_back`,
//! `models::canary_give_back_without_fence`, `models::canary_give_back_without_recheck`,
//! `models::park_against_revoke`, `models::canary_given_up_twice`,
//! `models::park_without_permit_against_the_last_to_block`, `models::bound_wake_against_park`,
//! `models::leaving_against_a_bound_wake` and their canaries,
//! `models::publish_beside_one_that_never_comes`, `models::canary_write_off_without_fence`,
//! `models::canary_write_off_without_recheck`, `models::come_against_write_off`,
//! `models::canary_come_uncounted`.

mod claim;
mod coming;
#[cfg(all(test, procession_loom))]
mod models;
pub(crate) mod parking;
mod permits;
mod seats;
#[cfg(all(test, not(procession_loom)))]
mod tests;
mod word;

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

pub(crate) use self::seats::Presence;
use self::seats::{SeatState, Seats};
use self::word::{IdleWord, SEARCHING_ONE};
use crate::scheduler::seat_id::SeatId;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// No `PublishFence`, no `ParkFence`.
    pub(crate) const WITHOUT_FENCE: u8 = 1;
    /// `Survey` looks into the queues after it has given the lock back.
    pub(crate) const SURVEY_IN_TWO: u8 = 2;
    /// No fence after `GiveBack`.
    pub(crate) const GIVE_BACK_WITHOUT_FENCE: u8 = 3;
    /// `Announce` gives a permit up, whether the seat has one or not.
    pub(crate) const GIVEN_UP_TWICE: u8 = 4;
    /// No `WriteOffFence`.
    pub(crate) const WRITE_OFF_WITHOUT_FENCE: u8 = 5;
    /// A late worker that comes is not counted again.
    pub(crate) const COME_UNCOUNTED: u8 = 6;
}

/// The word and the seats.
#[derive(Debug)]
pub(crate) struct Idle<const MUTATION: u8 = { mutation::SOUND }> {
    counts: AtomicU64,
    seats: Mutex<Seats>,
    /// Whether a seat's permit was taken away. Written under the lock; a hint without it.
    revoked: Box<[AtomicBool]>,
    /// Above all seats that are not vacant, or in which something was left. Written under the lock.
    reach: AtomicU32,
    /// How many permits there are. Written under the lock.
    width: AtomicU32,
    /// How many seats have a thread. Written under the lock.
    threads: AtomicU32,
    /// How many of the parked will look again soon. Changed without the lock.
    napping: AtomicU32,
    /// For each seat that was claimed, since when it is being woken: `u64::MAX` until it is.
    since: Box<[AtomicU64]>,
    /// How many seats are coming. Written under the lock.
    coming: AtomicU32,
    /// The earliest of their times, or `u64::MAX` if that is not known. A hint.
    coming_since: AtomicU64,
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// All seats are vacant; the first is absent, if it is for callers.
    pub(crate) fn new(seats: u32, width: u32, callers_drive: bool) -> Self {
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

    /// Changes seats and word; `change` says by how much the number of those who search changes,
    /// too.
    fn change<R>(&self, change: impl FnOnce(&mut Seats) -> (R, i64)) -> R {
        let mut seats = self.seats.lock();
        let before = seats.summary();
        let (result, searching) = change(&mut seats);
        let searching = (searching as u64).wrapping_mul(SEARCHING_ONE);
        // Relaxed, as all changes of the word: their order is what matters, and the fences give it.
        self.counts
            .fetch_add(seats.summary().wrapping_sub(before).wrapping_add(searching), Relaxed);
        // Relaxed: read for what may be off by a moment.
        self.threads.store(seats.threads(), Relaxed);
        result
    }

    fn look<R>(&self, look: impl FnOnce(&Seats) -> R) -> R {
        look(&self.seats.lock())
    }

    /// Whether anybody but the caller, who is awake or out, is awake.
    pub(crate) fn is_another_awake(&self) -> bool {
        IdleWord(self.counts.load(Relaxed)).awake() > 1
    }

    /// Takes the late seats out of reach, down to `least`, that are vacant and in which nothing is
    /// left.
    pub(crate) fn lower_reach(&self, least: u32, is_empty: impl Fn(SeatId) -> bool) {
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

    /// How many seats, from the first on, may have anything in them.
    #[inline]
    pub(crate) fn reach(&self) -> u32 {
        self.reach.load(Relaxed)
    }

    /// How many may run at once.
    #[inline]
    pub(crate) fn width(&self) -> u32 {
        self.width.load(Relaxed)
    }

    /// Starts to search, unless half of those awake search already.
    pub(crate) fn start_searching(&self) -> bool {
        let counts = IdleWord(self.counts.load(Relaxed));
        // May let one searcher too many through: the limit saves work, nothing depends on it.
        if counts.searching() * 2 >= counts.awake().max(1) {
            return false;
        }
        self.counts.fetch_add(SEARCHING_ONE, Relaxed);
        true
    }

    /// Stops searching, having found something; says whether nobody searches now, so that the
    /// caller wakes the next.
    pub(crate) fn stop_searching(&self) -> bool {
        let before = IdleWord(self.counts.fetch_sub(SEARCHING_ONE, Relaxed));
        debug_assert!(before.searching() > 0, "[searching] counted once, taken back once");
        before.searching() == 1
    }

    /// Whether no other seat has become awake since all were parked: whatever this thread has read
    /// since then was so all the time.
    pub(crate) fn is_alone_since(&self, awakenings: u64) -> bool {
        self.look(|seats| seats.awakenings == awakenings)
    }

    /// Whether all seats that may have anything in them have a permit, as far as can be seen.
    #[inline]
    pub(crate) fn are_all_awake(&self) -> bool {
        IdleWord(self.counts.load(Relaxed)).awake() >= self.reach()
    }

    /// Returns those of some seats that have no permit, all at one moment.
    pub(crate) fn without_permit(&self, seats: impl Iterator<Item = SeatId>) -> Vec<SeatId> {
        self.look(|all| {
            seats.filter(|seat| all.states[seat.0 as usize] != SeatState::Awake).collect()
        })
    }

    /// Whether there are more threads than may run at once.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.threads.load(Relaxed) > self.width()
    }

    /// Returns who is left, at one moment.
    pub(crate) fn rest(&self) -> Presence {
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

    /// `Survey`: whether nobody runs and nothing is queued, both at one moment.
    pub(crate) fn all_parked_and(&self, nothing_queued: impl Fn() -> bool) -> bool {
        if MUTATION == mutation::SURVEY_IN_TWO {
            return self.look(Seats::are_all_parked) && nothing_queued();
        }
        self.look(|seats| seats.are_all_parked() && nothing_queued())
    }

    /// How many search, are awake, and could be woken now.
    #[inline]
    pub(crate) fn counts(&self) -> (u32, u32, u32) {
        let counts = IdleWord(self.counts.load(Relaxed));
        (counts.searching(), counts.awake(), counts.spare())
    }
}
