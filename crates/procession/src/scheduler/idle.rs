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

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, fence};

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

/// Who is left when a thread leaves its seat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Left {
    /// Nobody runs, and nobody's step blocks.
    pub(crate) all_parked: bool,
    pub(crate) nobody_awake: bool,
}

/// Who is left in a scheduler.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// Whether anybody is awake or parked.
    pub(crate) has_thread: bool,
    pub(crate) has_vacant: bool,
    /// Whether a thread is about to leave its seat, which is vacant then.
    pub(crate) is_leaving: bool,
    /// Whether the seat for callers is free.
    pub(crate) has_absent: bool,
    pub(crate) out: Vec<SeatId>,
}

/// How long a worker that was woken may be on its way until it is not relied on any more. Most come
/// within 20 us, one in a hundred within 60.
const LATE: u64 = 100_000;

const SEARCHING_ONE: u64 = 1 << 40;
const AWAKE_ONE: u64 = 1 << 20;
const FIELD: u64 = AWAKE_ONE - 1;

#[derive(Clone, Copy)]
struct Counts(u64);

impl Counts {
    fn searching(self) -> u32 {
        (self.0 >> 40) as u32
    }

    fn awake(self) -> u32 {
        (self.0 >> 20 & FIELD) as u32
    }

    fn spare(self) -> u32 {
        (self.0 & FIELD) as u32
    }

    fn offers_nobody(self) -> bool {
        self.searching() > 0 || self.spare() == 0
    }
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Vacant,
    Parked,
    Awake,
    Out,
    Leaving,
    Absent,
}

#[derive(Debug)]
struct Seats {
    places: Box<[Place]>,
    /// The parked, the last to park last.
    stack: Vec<SeatId>,
    /// The vacant, the one to be taken first last.
    vacant: Vec<SeatId>,
    awake: u32,
    out: u32,
    leaving: u32,
    width: u32,
    /// Where the search for somebody to take a permit from begins.
    turn: u32,
    /// How often a seat became awake.
    awakenings: u64,
    /// The only thread that may sit in the absent seat, since it has begun coroutines there; 0 is
    /// any.
    absent_for: u64,
    /// Claimed and not there yet, counted as searching.
    coming: Vec<SeatId>,
    /// Claimed and not there yet, not counted any more.
    late: Vec<SeatId>,
}

/// Takes a seat out of a list, and returns whether it was there.
fn take_out(list: &mut Vec<SeatId>, seat: SeatId) -> bool {
    let at = list.iter().position(|&other| other == seat);
    at.map(|at| list.swap_remove(at)).is_some()
}

impl Seats {
    fn place(&mut self, seat: SeatId) -> &mut Place {
        &mut self.places[seat.0 as usize]
    }

    fn is_for(&self, thread: u64) -> bool {
        self.absent_for == 0 || self.absent_for == thread
    }

    /// Takes a seat from where it is.
    fn lift(&mut self, seat: SeatId) -> Place {
        let before = *self.place(seat);
        match before {
            Place::Parked => self.stack.retain(|&other| other != seat),
            Place::Vacant => self.vacant.retain(|&other| other != seat),
            Place::Awake => self.awake -= 1,
            Place::Out => self.out -= 1,
            Place::Leaving => self.leaving -= 1,
            Place::Absent => {}
        }
        before
    }

    fn put(&mut self, seat: SeatId, place: Place) {
        *self.place(seat) = place;
        match place {
            Place::Parked => self.stack.push(seat),
            Place::Vacant => {
                let above = self.vacant.partition_point(|other| other.0 > seat.0);
                self.vacant.insert(above, seat);
            }
            Place::Awake => self.awake += 1,
            Place::Out => self.out += 1,
            Place::Leaving => self.leaving += 1,
            Place::Absent => {}
        }
    }

    fn shift(&mut self, seat: SeatId, place: Place) {
        self.lift(seat);
        self.put(seat, place);
    }

    fn has_permit(&self) -> bool {
        self.awake < self.width
    }

    fn are_all_parked(&self) -> bool {
        self.awake == 0 && self.out == 0 && self.leaving == 0
    }

    /// How many have a thread that stays.
    fn threads(&self) -> u32 {
        self.stack.len() as u32 + self.awake + self.out
    }

    /// What the word says, the searching apart.
    fn summary(&self) -> u64 {
        let waiting = (self.stack.len() + self.vacant.len()) as u64;
        u64::from(self.awake) * AWAKE_ONE
            + waiting.min(u64::from(self.width.saturating_sub(self.awake)))
    }

    /// Whose permit is taken for what only one other seat can run: of a late seat rather than of an
    /// early one, to which processes may be bound.
    fn victim(&mut self) -> Option<SeatId> {
        let count = self.places.len() as u32;
        self.turn = self.turn.wrapping_add(1) % count;
        let turn = self.turn;
        let awake = |seat: &u32| self.places[*seat as usize] == Place::Awake;
        let late = (self.width..count).rev().find(awake);
        late.or_else(|| (0..count).map(|i| (turn + i) % count).find(awake)).map(SeatId)
    }
}

/// What became of an announcement that was to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum TakenBack {
    /// It is taken back: the worker searches.
    Yes,
    /// A waker was faster: the worker has come (`Come`), and is counted as searching. A token is on
    /// its way to its parker.
    ByWaker,
    /// There is no permit: others are awake, who will find what there is.
    NoPermit,
}

/// A nap, which its drop ends (`EndNap`): the worker searches then, or looks into every queue.
#[derive(Debug)]
pub(crate) struct Nap<'a> {
    napping: &'a AtomicU32,
    fenced: bool,
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.napping.fetch_sub(1, Relaxed);
        if self.fenced {
            fence(SeqCst);
        }
    }
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// All seats are vacant; the first is absent, if it is for callers.
    pub(crate) fn new(seats: u32, width: u32, callers_drive: bool) -> Self {
        let mut places = vec![Place::Vacant; seats as usize];
        if callers_drive {
            places[0] = Place::Absent;
        }
        let all = Seats {
            places: places.into(),
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

    /// Makes a seat awake that was lifted.
    fn awaken(&self, seats: &mut Seats, seat: SeatId) {
        seats.put(seat, Place::Awake);
        seats.awakenings += 1;
        // Relaxed, as the word; a seat is in reach before anything is queued in it, and leaves
        // reach when it is empty.
        self.reach.fetch_max(seat.0 + 1, Relaxed);
        self.revoked[seat.0 as usize].store(false, Relaxed);
    }

    /// Takes the permit of a seat that is awake.
    fn send_out(&self, seats: &mut Seats, seat: SeatId) {
        seats.shift(seat, Place::Out);
        // Relaxed: a hint. What it is about is under the lock.
        self.revoked[seat.0 as usize].store(true, Relaxed);
    }

    /// Makes a seat awake that was lifted, at the cost of another if need be.
    fn grant(&self, seats: &mut Seats, seat: SeatId) {
        if !seats.has_permit()
            && let Some(victim) = seats.victim()
        {
            self.send_out(seats, victim);
        }
        self.awaken(seats, seat);
    }

    /// `PublishFence`, `ReadIdle` and `Claim`: the seat to wake for an entry published before, if
    /// any.
    #[inline]
    pub(crate) fn claim_one(&self) -> Option<SeatId> {
        if MUTATION != mutation::WITHOUT_FENCE {
            fence(SeqCst);
        }
        self.claim_one_in_sight()
    }

    /// As `claim_one`, for an entry that its worker will come to itself: without the fence it may
    /// miss one that parks at this very moment.
    #[inline]
    pub(crate) fn claim_one_in_sight(&self) -> Option<SeatId> {
        if Counts(self.counts.load(Relaxed)).offers_nobody() { None } else { self.claim() }
    }

    /// As `claim_one`, for the only entry in the deque of the publisher's own worker: nobody, if
    /// one naps.
    #[inline]
    pub(crate) fn claim_one_unless_napping(&self) -> Option<SeatId> {
        if MUTATION != mutation::WITHOUT_FENCE {
            fence(SeqCst);
        }
        // Relaxed, as the word: the fences give the order.
        if self.napping.load(Relaxed) > 0 { None } else { self.claim_one_in_sight() }
    }

    /// Under the lock: a seat was claimed, and counted as searching.
    fn note_claimed(&self, seats: &mut Seats, seat: SeatId) {
        debug_assert!(
            !seats.coming.contains(&seat) && !seats.late.contains(&seat),
            "[coming] a claimed seat comes first"
        );
        // Relaxed, as all uses: a time that is seen late makes a worker late later, or wakes one
        // too many.
        self.since[seat.0 as usize].store(u64::MAX, Relaxed);
        seats.coming.push(seat);
        self.note_coming(seats);
    }

    /// Under the lock: the list of those that come has changed.
    fn note_coming(&self, seats: &Seats) {
        let earliest =
            seats.coming.iter().map(|seat| self.since[seat.0 as usize].load(Relaxed)).min();
        // Relaxed, as all uses of both: hints.
        self.coming_since.store(earliest.unwrap_or(u64::MAX), Relaxed);
        self.coming.store(seats.coming.len() as u32, Relaxed);
    }

    /// The worker of a claimed seat is being woken.
    pub(crate) fn note_waking(&self, seat: SeatId, now: u64) {
        self.since[seat.0 as usize].store(now, Relaxed);
        if self.coming_since.load(Relaxed) == u64::MAX {
            self.coming_since.store(now, Relaxed);
        }
    }

    /// Under the lock: the worker of a claimed seat is there. Returns by how much the number of
    /// those who search changes.
    fn arrive(&self, seats: &mut Seats, seat: SeatId) -> i64 {
        if take_out(&mut seats.coming, seat) {
            self.note_coming(seats);
            return 0;
        }
        i64::from(take_out(&mut seats.late, seat) && MUTATION != mutation::COME_UNCOUNTED)
    }

    /// `Come`, by the worker of a seat that may have been claimed. Returns whether it was: then it
    /// is counted as searching.
    pub(crate) fn come(&self, seat: SeatId) -> bool {
        let mut seats = self.seats.lock();
        if *seats.place(seat) == Place::Parked {
            return false;
        }
        if self.arrive(&mut seats, seat) > 0 {
            self.counts.fetch_add(SEARCHING_ONE, Relaxed);
        }
        true
    }

    /// `WriteOff`. Returns how many seats have become late; if any have, the caller goes on with
    /// `Recheck` for what others have queued.
    pub(crate) fn write_off(&self, now: u64) -> u32 {
        // Relaxed: who misses one that has just been claimed finds it in time at the next look.
        if self.coming.load(Relaxed) == 0 {
            return 0;
        }
        let mut seats = self.seats.lock();
        let Seats { coming, late, .. } = &mut *seats;
        let before = late.len();
        coming.retain(|&seat| {
            let since = &self.since[seat.0 as usize];
            let is_unknown = since.load(Relaxed) == u64::MAX;
            if is_unknown {
                // Its claimer has not come to wake it.
                since.store(now, Relaxed);
            }
            let is_late = now >= since.load(Relaxed).saturating_add(LATE);
            if is_late {
                late.push(seat);
            }
            !is_late
        });
        let count = (late.len() - before) as u32;
        self.note_coming(&seats);
        self.counts.fetch_sub(u64::from(count) * SEARCHING_ONE, Relaxed);
        drop(seats);
        if MUTATION != mutation::WRITE_OFF_WITHOUT_FENCE {
            fence(SeqCst);
        }
        count
    }

    /// As `write_off`, by a publisher that has found somebody searching: reads the clock only if
    /// that might help.
    pub(crate) fn write_off_if_late(&self, now: impl FnOnce() -> u64) -> u32 {
        if self.coming.load(Relaxed) == 0 || Counts(self.counts.load(Relaxed)).spare() == 0 {
            return 0;
        }
        let now = now();
        if now < self.coming_since.load(Relaxed).saturating_add(LATE) {
            0
        } else {
            self.write_off(now)
        }
    }

    /// `Revoke` of all seats that have been late for so long. Returns how many had a permit; the
    /// caller goes on with waking others.
    pub(crate) fn revoke_late(&self, now: u64, after: u64) -> usize {
        let count = self.change(|seats| {
            let is_due = |seat: &SeatId| {
                now >= self.since[seat.0 as usize].load(Relaxed).saturating_add(after)
            };
            let due: Vec<_> = seats.late.iter().copied().filter(is_due).collect();
            let awake: Vec<_> =
                due.into_iter().filter(|&seat| *seats.place(seat) == Place::Awake).collect();
            awake.iter().for_each(|&seat| self.send_out(seats, seat));
            (awake.len(), 0)
        });
        fence(SeqCst);
        count
    }

    /// `Nap`, until what is returned is dropped: this worker will look again soon, though it parks.
    pub(crate) fn nap(&self) -> Nap<'_> {
        self.napping.fetch_add(1, Relaxed);
        Nap { napping: &self.napping, fenced: MUTATION != mutation::WITHOUT_FENCE }
    }

    /// Whether anybody but the caller, who is awake or out, is awake.
    pub(crate) fn is_another_awake(&self) -> bool {
        Counts(self.counts.load(Relaxed)).awake() > 1
    }

    /// `Claim`, whoever searches.
    #[cold]
    pub(crate) fn claim(&self) -> Option<SeatId> {
        self.change(|seats| {
            let first = if seats.has_permit() {
                seats.stack.last().or(seats.vacant.last()).copied()
            } else {
                None
            };
            let Some(seat) = first else { return (None, 0) };
            seats.lift(seat);
            self.awaken(seats, seat);
            self.note_claimed(seats, seat);
            (Some(seat), 1)
        })
    }

    /// `Claim` of a seat whose thread is there, if nobody searches; for when the system refuses
    /// threads.
    pub(crate) fn claim_parked(&self) -> Option<SeatId> {
        self.change(|seats| {
            let searched = Counts(self.counts.load(Relaxed)).searching() > 0;
            let first =
                if seats.has_permit() && !searched { seats.stack.last().copied() } else { None };
            let Some(seat) = first else { return (None, 0) };
            seats.lift(seat);
            self.awaken(seats, seat);
            self.note_claimed(seats, seat);
            (Some(seat), 1)
        })
    }

    /// `ClaimThis`: says whether the seat was parked or vacant, and now is to be woken.
    pub(crate) fn claim_this(&self, wanted: SeatId) -> bool {
        self.change(|seats| {
            let waits = matches!(seats.place(wanted), Place::Parked | Place::Vacant);
            if waits {
                seats.lift(wanted);
                self.grant(seats, wanted);
                self.note_claimed(seats, wanted);
            }
            (waits, i64::from(waits))
        })
    }

    /// A claimed, vacant seat cannot be brought to work: it is vacant as before, and claimed after
    /// all others.
    pub(crate) fn decline(&self, seat: SeatId) {
        self.change(|seats| {
            seats.lift(seat);
            *seats.place(seat) = Place::Vacant;
            seats.vacant.insert(0, seat);
            // It is counted from here to the end of this, whether it was or not.
            ((), self.arrive(seats, seat) - 1)
        });
    }

    /// A caller sits down in the absent seat, if it is.
    pub(crate) fn claim_absent(&self, thread: u64) -> Option<SeatId> {
        let seat = SeatId(0);
        self.change(|seats| {
            let absent = *seats.place(seat) == Place::Absent && seats.is_for(thread);
            if absent {
                seats.lift(seat);
                self.grant(seats, seat);
            }
            (absent.then_some(seat), 0)
        })
    }

    /// The first seat of these, from one on and round, whose worker neither blocks nor is absent.
    /// One that is late does not block: it comes, and takes a permit for what is bound to it.
    pub(crate) fn first_unblocked(&self, from: u32, count: u32) -> Option<SeatId> {
        self.look(|seats| {
            let mut round = (from..count).chain(0..from);
            let is_there = |seat: &u32| match seats.places[*seat as usize] {
                Place::Out => seats.late.contains(&SeatId(*seat)),
                place => place != Place::Absent,
            };
            round.find(is_there).map(SeatId)
        })
    }

    /// Returns `true` if the seat for callers is absent, and for this thread alone.
    pub(crate) fn is_absent_for(&self, thread: u64) -> bool {
        self.look(|seats| seats.places[0] == Place::Absent && seats.absent_for == thread)
    }

    pub(crate) fn has_absent(&self, thread: u64) -> bool {
        self.look(|seats| seats.places[0] == Place::Absent && seats.is_for(thread))
    }

    /// A thread leaves its seat, for callers (and among those for one thread only, unless that is
    /// 0) or for another thread; says who is left. The caller goes on with `Recheck`.
    pub(crate) fn leave(&self, seat: SeatId, for_callers: bool, only: u64) -> Left {
        let left = self.change(|seats| {
            if for_callers {
                seats.absent_for = only;
            }
            seats.shift(seat, if for_callers { Place::Absent } else { Place::Vacant });
            self.revoked[seat.0 as usize].store(false, Relaxed);
            (Left { all_parked: seats.are_all_parked(), nobody_awake: seats.awake == 0 }, 0)
        });
        fence(SeqCst);
        left
    }

    /// Takes the late seats out of reach, down to `least`, that are vacant and in which nothing is
    /// left.
    pub(crate) fn lower_reach(&self, least: u32, is_empty: impl Fn(SeatId) -> bool) {
        self.look(|seats| {
            let mut reach = self.reach.load(Relaxed);
            while reach > least
                && seats.places[reach as usize - 1] == Place::Vacant
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

    /// Changes how many may run at once. Those who are too many go out, and park after their steps.
    pub(crate) fn set_worker_threads(&self, width: u32) {
        self.change(|seats| {
            seats.width = width;
            self.width.store(width, Relaxed);
            while seats.awake > width
                && let Some(victim) = seats.victim()
            {
                self.send_out(seats, victim);
            }
            ((), 0)
        });
        // As after `Announce`: the caller looks whether there is something for those who may run
        // now.
        fence(SeqCst);
    }

    /// Starts to search, unless half of those awake search already.
    pub(crate) fn start_searching(&self) -> bool {
        let counts = Counts(self.counts.load(Relaxed));
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
        let before = Counts(self.counts.fetch_sub(SEARCHING_ONE, Relaxed));
        debug_assert!(before.searching() > 0, "[searching] counted once, taken back once");
        before.searching() == 1
    }

    /// `Announce` and `ParkFence`; the caller goes on with `Recheck`. Says whether every seat is
    /// parked now.
    pub(crate) fn announce(&self, seat: SeatId, searched: bool) -> bool {
        let all = self.change(|seats| {
            let before = seats.lift(seat);
            if MUTATION == mutation::GIVEN_UP_TWICE && before == Place::Out {
                seats.awake = seats.awake.wrapping_sub(1);
            }
            seats.put(seat, Place::Parked);
            (seats.are_all_parked(), -i64::from(searched))
        });
        if MUTATION != mutation::WITHOUT_FENCE {
            fence(SeqCst);
        }
        all
    }

    /// `TakeBack`; with `force`, for what only this seat can do, at the cost of another.
    pub(crate) fn take_back(&self, seat: SeatId, force: bool) -> TakenBack {
        self.change(|seats| {
            if *seats.place(seat) != Place::Parked {
                return (TakenBack::ByWaker, self.arrive(seats, seat));
            }
            if !seats.has_permit() && !force {
                return (TakenBack::NoPermit, 0);
            }
            seats.lift(seat);
            self.grant(seats, seat);
            (TakenBack::Yes, 1)
        })
    }

    /// As `take_back`, if every seat is parked: of several that find that out, one succeeds, and is
    /// told how often a seat has become awake.
    pub(crate) fn take_back_if_all_parked(&self, seat: SeatId) -> Option<u64> {
        self.change(|seats| {
            let all = seats.are_all_parked() && *seats.place(seat) == Place::Parked;
            if all {
                seats.lift(seat);
                self.awaken(seats, seat);
            }
            (all.then_some(seats.awakenings), i64::from(all))
        })
    }

    /// Whether no other seat has become awake since all were parked: whatever this thread has read
    /// since then was so all the time.
    pub(crate) fn is_alone_since(&self, awakenings: u64) -> bool {
        self.look(|seats| seats.awakenings == awakenings)
    }

    /// Whether all seats that may have anything in them have a permit, as far as can be seen.
    #[inline]
    pub(crate) fn are_all_awake(&self) -> bool {
        Counts(self.counts.load(Relaxed)).awake() >= self.reach()
    }

    /// Returns those of some seats that have no permit, all at one moment.
    pub(crate) fn without_permit(&self, seats: impl Iterator<Item = SeatId>) -> Vec<SeatId> {
        self.look(|all| seats.filter(|seat| all.places[seat.0 as usize] != Place::Awake).collect())
    }

    /// `GiveBack`; says whether nobody is awake now. The caller goes on with `Recheck`.
    pub(crate) fn give_back(&self, seat: SeatId) -> bool {
        let nobody = self.change(|seats| {
            if *seats.place(seat) == Place::Awake {
                self.send_out(seats, seat);
            }
            (seats.awake == 0, 0)
        });
        if MUTATION != mutation::GIVE_BACK_WITHOUT_FENCE {
            fence(SeqCst);
        }
        nobody
    }

    /// `Revoke`: says whether the seat had a permit. The caller goes on with waking others.
    pub(crate) fn revoke(&self, seat: SeatId) -> bool {
        let had = self.change(|seats| {
            let had = *seats.place(seat) == Place::Awake;
            if had {
                self.send_out(seats, seat);
            }
            (had, 0)
        });
        fence(SeqCst);
        had
    }

    /// Whether the permit of a seat was taken away, as far as can be seen.
    #[inline]
    pub(crate) fn is_revoked(&self, seat: SeatId) -> bool {
        self.revoked[seat.0 as usize].load(Relaxed)
    }

    /// `Regain`: says whether the seat has a permit now; with `force`, at the cost of another.
    pub(crate) fn regain(&self, seat: SeatId, force: bool) -> bool {
        self.change(|seats| {
            let back = *seats.place(seat) == Place::Out && (force || seats.has_permit());
            if back {
                seats.lift(seat);
                self.grant(seats, seat);
            }
            (*seats.place(seat) == Place::Awake, 0)
        })
    }

    /// Whether there are more threads than may run at once.
    #[inline]
    pub(crate) fn has_surplus(&self) -> bool {
        self.threads.load(Relaxed) > self.width()
    }

    /// Takes a parked thread off, so that it can leave its seat, if there are more than may run at
    /// once, and another is left that can keep the time: while all others block, the next deadline
    /// and descriptors need a thread.
    pub(crate) fn retire(&self, seat: SeatId) -> bool {
        self.change(|seats| {
            let is_last = seats.awake == 0 && seats.stack.len() == 1;
            let retires =
                *seats.place(seat) == Place::Parked && seats.threads() > seats.width && !is_last;
            if retires {
                seats.shift(seat, Place::Leaving);
            }
            (retires, 0)
        })
    }

    /// Returns who is left, at one moment.
    pub(crate) fn rest(&self) -> Rest {
        self.look(|seats| Rest {
            has_thread: seats.awake > 0 || !seats.stack.is_empty(),
            has_vacant: !seats.vacant.is_empty(),
            is_leaving: seats.leaving > 0,
            has_absent: seats.places[0] == Place::Absent,
            out: (0..)
                .zip(&seats.places)
                .filter(|(_, place)| **place == Place::Out)
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
        let counts = Counts(self.counts.load(Relaxed));
        (counts.searching(), counts.awake(), counts.spare())
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU32;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, explore_to, thread};

    use super::{Idle, LATE, SeatId, TakenBack, mutation};

    /// One worker parks while another thread publishes. The decisions alone are modelled: if the
    /// worker would block, the publisher must have claimed it.
    fn publish<const MUTATION: u8, const RECHECK: bool>() {
        explore(|| {
            let shared = Arc::new((Idle::<MUTATION>::new(1, 1, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
            let publisher = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders queue and word, as for a queue's own
                    // operations.
                    shared.1.store(1, Relaxed);
                    shared.0.claim_one().is_some()
                })
            };
            let found = shared.0.start_searching() && {
                let found = shared.1.load(Relaxed) == 1;
                if found {
                    shared.0.stop_searching();
                }
                found
            };
            let blocks = !found && {
                shared.0.announce(SeatId(0), true);
                let late = RECHECK && shared.1.load(Relaxed) == 1;
                !(late && shared.0.take_back(SeatId(0), false) != TakenBack::ByWaker)
            };
            let woken = publisher.join().expect("the publisher does not panic");
            assert!(!blocks || woken, "the wake-up was lost");
        });
    }

    /// One worker parks while another thread queues what only that worker can run.
    fn bound<const RECHECK: bool>() {
        explore(|| {
            let shared =
                Arc::new((Idle::<{ mutation::SOUND }>::new(1, 1, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
            let waker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(1, Relaxed);
                    shared.0.claim_this(SeatId(0))
                })
            };
            let found = shared.1.load(Relaxed) == 1;
            let blocks = !found && {
                shared.0.announce(SeatId(0), false);
                let late = RECHECK && shared.1.load(Relaxed) == 1;
                !(late && shared.0.take_back(SeatId(0), true) == TakenBack::Yes)
            };
            let woken = waker.join().expect("the waker does not panic");
            assert!(!blocks || woken, "the wake-up was lost");
        });
    }

    /// A worker naps, and without a permit looks once more before it parks for good, while another
    /// publishes the only entry of its own deque. With `LATE`, it says that it naps until it has
    /// looked.
    fn nap<const MUTATION: u8, const LATE: bool>() {
        explore(|| {
            let shared = Arc::new((Idle::<MUTATION>::new(2, 2, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the publisher's worker is awake");
            assert!(shared.0.claim_this(SeatId(1)), "so is the other, which searches");
            let publisher = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(1, Relaxed);
                    shared.0.claim_one_unless_napping().is_some()
                })
            };
            let nap = shared.0.nap();
            shared.0.announce(SeatId(1), true);
            let nap = LATE.then_some(nap);
            // The time is over.
            let found = shared.1.load(Relaxed) == 1;
            drop(nap);
            let woken = publisher.join().expect("the publisher does not panic");
            assert!(found || woken, "the wake-up was lost");
        });
    }

    #[test]
    fn nap_against_publish() {
        nap::<{ mutation::SOUND }, false>();
    }

    #[test]
    #[should_panic(expected = "the wake-up was lost")]
    fn canary_nap_to_the_end() {
        nap::<{ mutation::SOUND }, true>();
    }

    #[test]
    #[should_panic(expected = "the wake-up was lost")]
    fn canary_nap_without_fence() {
        nap::<{ mutation::WITHOUT_FENCE }, false>();
    }

    #[test]
    fn bound_wake_against_park() {
        bound::<true>();
    }

    #[test]
    #[should_panic(expected = "the wake-up was lost")]
    fn canary_bound_without_recheck() {
        bound::<false>();
    }

    /// A thread that has begun coroutines leaves the seat for callers, while one of them is woken
    /// and another thread comes for the seat.
    fn keep_seat<const KEPT: bool>() {
        explore(|| {
            let shared =
                Arc::new((Idle::<{ mutation::SOUND }>::new(1, 1, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the first thread has taken its seat");
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.1.store(1, Relaxed);
                    let claimed = shared.0.claim_this(SeatId(0));
                    (claimed, shared.0.claim_absent(2).is_some())
                })
            };
            shared.0.leave(SeatId(0), true, u64::from(KEPT));
            let (claimed, sits) = other.join().expect("the other does not panic");
            assert!(!claimed, "a seat that is absent is not parked");
            assert!(!sits, "a coroutine would run on another thread");
            assert!(
                shared.0.claim_absent(1).is_some() && shared.1.load(Relaxed) == 1,
                "the first finds it"
            );
        });
    }

    #[test]
    fn leaving_against_a_bound_wake() {
        keep_seat::<true>();
    }

    #[test]
    #[should_panic(expected = "a coroutine would run on another thread")]
    fn canary_seat_for_anybody() {
        keep_seat::<false>();
    }

    /// A worker parks, and finds in its `Recheck` what was queued before; meanwhile somebody asks
    /// whether all is idle.
    fn survey<const MUTATION: u8>() {
        explore(|| {
            // Whether the entry is queued, and whether it has run.
            let shared =
                Arc::new((Idle::<MUTATION>::new(1, 1, true), AtomicU32::new(1), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
            shared.0.announce(SeatId(0), false);
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    assert_eq!(
                        shared.0.take_back(SeatId(0), false),
                        TakenBack::Yes,
                        "nobody claims it"
                    );
                    // Relaxed: the lock orders it.
                    shared.1.fetch_sub(1, Relaxed);
                    shared.2.fetch_add(1, Relaxed);
                })
            };
            if shared.0.all_parked_and(|| shared.1.fetch_add(0, Relaxed) == 0) {
                assert_eq!(
                    shared.2.fetch_add(0, Relaxed),
                    1,
                    "it was called idle while a process ran"
                );
            }
            worker.join().expect("the worker does not panic");
        });
    }

    /// Two parked workers. One finds all parked, and looks whether the test clock may move to a far
    /// deadline; the other finds the near timer due, fires it, leaves something to be waited for,
    /// and parks again.
    fn advance<const LOOKS_AGAIN: bool>() {
        explore_to(3, || {
            // Whether the near timer is there, and what is on its way.
            let shared = Arc::new((
                Idle::<{ mutation::SOUND }>::new(2, 2, true),
                AtomicU32::new(1),
                AtomicU32::new(0),
            ));
            assert!(shared.0.claim_absent(1).is_some(), "the first has taken its seat");
            assert!(shared.0.claim_this(SeatId(1)), "the second is awake");
            shared.0.announce(SeatId(0), false);
            shared.0.announce(SeatId(1), true);
            let other = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    if shared.0.take_back(SeatId(1), false) == TakenBack::Yes {
                        // Relaxed: the lock orders it.
                        shared.1.store(0, Relaxed);
                        shared.2.store(1, Relaxed);
                        shared.0.announce(SeatId(1), true);
                    }
                })
            };
            if let Some(awakenings) = shared.0.take_back_if_all_parked(SeatId(0)) {
                let nothing_comes = shared.2.load(Relaxed) == 0;
                let is_far = shared.1.load(Relaxed) == 0;
                let is_alone = !LOOKS_AGAIN || shared.0.is_alone_since(awakenings);
                assert!(
                    !(nothing_comes && is_far && is_alone),
                    "the clock went on while something was on its way"
                );
            }
            other.join().expect("the other does not panic");
        });
    }

    #[test]
    fn advance_against_take_back() {
        advance::<true>();
    }

    #[test]
    #[should_panic(expected = "the clock went on while something was on its way")]
    fn canary_advance_without_looking_again() {
        advance::<false>();
    }

    /// Two seats and one permit: a worker's step blocks, while another thread publishes.
    fn give_back<const MUTATION: u8, const RECHECK: bool>() {
        explore(|| {
            let shared = Arc::new((Idle::<MUTATION>::new(2, 1, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the worker has taken its seat");
            let publisher = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders queue and word, as for a queue's own
                    // operations.
                    shared.1.store(1, Relaxed);
                    shared.0.claim_one().is_some()
                })
            };
            assert!(shared.0.give_back(SeatId(0)), "nobody else is awake");
            let substituted =
                RECHECK && shared.1.load(Relaxed) == 1 && shared.0.claim_one().is_some();
            let woken = publisher.join().expect("the publisher does not panic");
            assert!(substituted || woken, "the entry waits for the one who blocks");
        });
    }

    /// A worker comes out of its step and parks, while the watchdog takes its permit.
    fn revoke<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new(Idle::<MUTATION>::new(3, 2, true));
            assert!(shared.claim_absent(1).is_some(), "the worker has taken its seat");
            assert!(shared.claim_this(SeatId(1)), "another is awake");
            let watchdog = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    shared.give_back(SeatId(0));
                })
            };
            if !shared.is_revoked(SeatId(0)) || !shared.regain(SeatId(0), false) {
                shared.announce(SeatId(0), false);
            }
            watchdog.join().expect("the watchdog does not panic");
            let (_, awake, spare) = shared.counts();
            let parked = u32::from(!shared.come(SeatId(0)));
            assert_eq!((awake + parked, spare), (2, parked), "a permit was given up twice");
        });
    }

    /// Two seats, one permit. One worker has none, finds an entry, and sleeps; the other, who has
    /// it, blocks.
    #[test]
    fn park_without_permit_against_the_last_to_block() {
        explore(|| {
            let shared =
                Arc::new((Idle::<{ mutation::SOUND }>::new(2, 1, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the first has the permit");
            shared.0.give_back(SeatId(0));
            assert_eq!(shared.0.claim_one(), Some(SeatId(1)), "now the second has");
            shared.0.stop_searching();
            let first = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // What it had in its next slot.
                    shared.1.store(1, Relaxed);
                    if shared.0.regain(SeatId(0), false) || shared.0.claim_one().is_some() {
                        return true;
                    }
                    shared.0.announce(SeatId(0), false);
                    shared.0.take_back(SeatId(0), false) == TakenBack::Yes
                })
            };
            shared.0.give_back(SeatId(1));
            let woken = shared.1.load(Relaxed) == 1 && shared.0.claim_one().is_some();
            let runs = first.join().expect("the first does not panic");
            assert!(woken || runs, "both have left the entry to the other");
        });
    }

    #[test]
    fn publish_against_give_back() {
        give_back::<{ mutation::SOUND }, true>();
    }

    #[test]
    #[should_panic(expected = "the entry waits for the one who blocks")]
    fn canary_give_back_without_fence() {
        give_back::<{ mutation::GIVE_BACK_WITHOUT_FENCE }, true>();
    }

    #[test]
    #[should_panic(expected = "the entry waits for the one who blocks")]
    fn canary_give_back_without_recheck() {
        give_back::<{ mutation::SOUND }, false>();
    }

    #[test]
    fn park_against_revoke() {
        revoke::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a permit was given up twice")]
    fn canary_given_up_twice() {
        revoke::<{ mutation::GIVEN_UP_TWICE }>();
    }

    /// Two seats are claimed. One never comes; the other searches, finds nothing, and parks.
    /// Meanwhile a worker publishes, and the watchdog looks.
    fn never_comes<const MUTATION: u8, const RECHECK: bool>() {
        explore(|| {
            let shared = Arc::new((Idle::<MUTATION>::new(4, 4, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent(1).is_some(), "the publisher's worker is awake");
            for seat in [1, 2] {
                assert_eq!(shared.0.claim(), Some(SeatId(seat)));
                shared.0.note_waking(SeatId(seat), 0);
            }
            let publisher = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders queue and word, as for a queue's own
                    // operations.
                    shared.1.store(1, Relaxed);
                    shared.0.claim_one().is_some()
                })
            };
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    assert!(shared.0.come(SeatId(2)), "it was claimed");
                    shared.0.announce(SeatId(2), true);
                    shared.1.load(Relaxed) == 1
                })
            };
            let is_late = shared.0.write_off(LATE) > 0;
            let rescued =
                RECHECK && is_late && shared.1.load(Relaxed) == 1 && shared.0.claim_one().is_some();
            let woken = publisher.join().expect("the publisher does not panic");
            let found = worker.join().expect("the worker does not panic");
            assert!(rescued || woken || found, "the entry waits for one that never comes");
        });
    }

    /// A seat is claimed, and comes while the watchdog writes it off. Another searches all the
    /// time.
    fn come_late<const MUTATION: u8>() {
        explore(|| {
            let shared = Arc::new(Idle::<MUTATION>::new(3, 3, true));
            assert!(shared.claim_absent(1).is_some() && shared.start_searching(), "one searches");
            assert_eq!(shared.claim(), Some(SeatId(1)));
            shared.note_waking(SeatId(1), 0);
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || assert!(shared.come(SeatId(1)), "it was claimed"))
            };
            shared.write_off(LATE);
            worker.join().expect("the worker does not panic");
            assert_eq!(shared.counts().0, 2, "the word does not count those who search");
        });
    }

    #[test]
    fn publish_beside_one_that_never_comes() {
        never_comes::<{ mutation::SOUND }, true>();
    }

    #[test]
    #[should_panic(expected = "the entry waits for one that never comes")]
    fn canary_write_off_without_fence() {
        never_comes::<{ mutation::WRITE_OFF_WITHOUT_FENCE }, true>();
    }

    #[test]
    #[should_panic(expected = "the entry waits for one that never comes")]
    fn canary_write_off_without_recheck() {
        never_comes::<{ mutation::SOUND }, false>();
    }

    #[test]
    fn come_against_write_off() {
        come_late::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the word does not count those who search")]
    fn canary_come_uncounted() {
        come_late::<{ mutation::COME_UNCOUNTED }>();
    }

    #[test]
    fn survey_against_recheck() {
        survey::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "it was called idle while a process ran")]
    fn canary_survey_in_two() {
        survey::<{ mutation::SURVEY_IN_TWO }>();
    }

    #[test]
    fn publish_against_park() {
        publish::<{ mutation::SOUND }, true>();
    }

    #[test]
    #[should_panic(expected = "the wake-up was lost")]
    fn canary_without_recheck() {
        publish::<{ mutation::SOUND }, false>();
    }

    #[test]
    #[should_panic(expected = "the wake-up was lost")]
    fn canary_without_fence() {
        publish::<{ mutation::WITHOUT_FENCE }, true>();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use super::{Idle, LATE, Left, SeatId, TakenBack};

    fn idle_with_all_awake(seats: u32) -> Idle {
        let idle = Idle::new(seats, seats, false);
        while let Some(seat) = idle.claim() {
            assert!(idle.come(seat), "it was claimed");
            idle.stop_searching();
        }
        idle
    }

    #[test]
    fn the_last_to_park_is_woken_first() {
        let idle = idle_with_all_awake(3);
        assert!(!idle.announce(SeatId(2), false));
        assert!(!idle.announce(SeatId(0), false));
        assert_eq!(idle.claim_one(), Some(SeatId(0)));
        assert_eq!(idle.claim_one(), None, "the one that was woken searches for all");
        assert!(idle.stop_searching());
        assert_eq!(idle.claim_one(), Some(SeatId(2)));
    }

    #[test]
    fn an_absent_seat_is_not_woken_and_does_not_run() {
        let idle: Idle = Idle::new(1, 1, true);
        assert!(idle.all_parked_and(|| true));
        assert_eq!(idle.claim_one(), None);
        assert_eq!(idle.claim_absent(1), Some(SeatId(0)));
        assert_eq!(idle.claim_absent(1), None, "one caller sits there");
        assert!(!idle.all_parked_and(|| true));
        assert!(idle.leave(SeatId(0), true, 0).all_parked);
        assert_eq!(idle.claim_absent(1), Some(SeatId(0)));
    }

    #[test]
    fn only_seats_that_are_awake_have_a_permit() {
        let idle: Idle = Idle::new(5, 5, true);
        let claimed = [1, 2, 3].map(SeatId);
        for seat in claimed {
            assert!(idle.claim_this(seat));
        }
        idle.give_back(SeatId(2));
        idle.announce(SeatId(3), false);
        let absent_out_parked_and_vacant = [0, 2, 3, 4].map(SeatId);
        assert_eq!(idle.without_permit((0..5).map(SeatId)), absent_out_parked_and_vacant);
    }

    #[test]
    fn half_of_those_awake_search() {
        let idle = idle_with_all_awake(4);
        assert!(idle.start_searching());
        assert!(idle.start_searching());
        assert!(!idle.start_searching());
        assert!(!idle.stop_searching());
        assert!(idle.stop_searching());
    }

    #[test]
    fn a_seat_that_nobody_took_is_woken_first_to_last() {
        let idle: Idle = Idle::new(2, 2, false);
        assert_eq!(idle.claim_one(), Some(SeatId(0)));
        assert_eq!(idle.claim(), Some(SeatId(1)));
        assert_eq!(idle.claim(), None);
        assert_eq!(idle.counts(), (2, 2, 0));
        assert!(!idle.announce(SeatId(0), true));
        assert!(idle.announce(SeatId(1), true), "all are parked");
        assert_eq!(idle.take_back(SeatId(0), false), TakenBack::Yes);
        assert_eq!(idle.take_back(SeatId(0), false), TakenBack::ByWaker);
    }

    #[test]
    fn no_more_are_woken_than_there_are_permits() {
        let idle: Idle = Idle::new(4, 2, false);
        assert_eq!(idle.reach(), 2);
        assert_eq!(
            (idle.claim(), idle.claim(), idle.claim()),
            (Some(SeatId(0)), Some(SeatId(1)), None)
        );
        assert!(!idle.give_back(SeatId(0)), "another is awake");
        assert_eq!(
            (idle.claim(), idle.claim()),
            (Some(SeatId(2)), None),
            "one for the one that blocks"
        );
        assert_eq!(idle.reach(), 3);
        assert!(!idle.regain(SeatId(0), false), "there is no permit to come back to");
        assert!(idle.is_revoked(SeatId(0)));
        assert!(!idle.announce(SeatId(0), false));
        assert_eq!(idle.take_back(SeatId(0), false), TakenBack::NoPermit);
        assert_eq!(idle.counts().2, 0, "it is parked, but none may wake it");
        assert!(!idle.announce(SeatId(2), true));
        assert_eq!(idle.counts().2, 1);
        assert!(!idle.retire(SeatId(1)), "it is awake");
        assert!(idle.retire(SeatId(2)));
        assert_eq!(
            idle.leave(SeatId(2), false, 0),
            Left { all_parked: false, nobody_awake: false }
        );
        idle.lower_reach(2, |_| true);
        assert_eq!(idle.reach(), 2);
        assert!(!idle.retire(SeatId(0)), "no more threads are left than may run");
    }

    #[test]
    fn one_thread_stays_beside_those_that_block() {
        let idle: Idle = Idle::new(3, 1, false);
        for seat in [SeatId(0), SeatId(1), SeatId(2)] {
            assert_eq!(idle.claim(), Some(seat));
            assert!(idle.give_back(seat));
        }
        assert!(!idle.announce(SeatId(2), true));
        assert!(!idle.retire(SeatId(2)), "nobody else could keep the time");
        assert!(!idle.announce(SeatId(1), false));
        assert!(idle.retire(SeatId(2)));
        assert!(!idle.retire(SeatId(1)), "the other is on its way out");
        assert_eq!(idle.leave(SeatId(2), false, 0), Left { all_parked: false, nobody_awake: true });
    }

    #[test]
    fn what_only_one_seat_can_do_costs_another_its_permit() {
        let idle: Idle = Idle::new(3, 1, false);
        assert_eq!(idle.claim(), Some(SeatId(0)));
        assert!(idle.claim_this(SeatId(2)));
        assert!(idle.is_revoked(SeatId(0)));
        assert!(!idle.is_revoked(SeatId(2)));
        assert_eq!(idle.counts().1, 1);
        assert!(!idle.claim_this(SeatId(0)), "it is out, and looks itself when it comes back");
        assert!(idle.regain(SeatId(0), true));
        assert!(idle.is_revoked(SeatId(2)));
        assert_eq!(idle.counts().1, 1);
    }

    #[test]
    fn the_width_can_be_changed_while_all_run() {
        let idle: Idle = Idle::new(4, 4, false);
        while idle.claim().is_some() {}
        idle.set_worker_threads(1);
        assert_eq!(idle.counts(), (4, 1, 0));
        assert_eq!((0..4).filter(|&seat| idle.is_revoked(SeatId(seat))).count(), 3);
        idle.set_worker_threads(3);
        let back = (0..4).filter(|&seat| idle.regain(SeatId(seat), false)).count();
        assert_eq!(back, 3);
    }

    #[test]
    fn those_that_are_late_are_not_counted_until_they_come() {
        let idle = Idle::<0>::new(4, 4, false);
        let first = idle.claim_one().expect("all are vacant");
        assert_eq!(idle.claim_one(), None, "it searches");
        assert_eq!(idle.write_off_if_late(|| u64::MAX - 1), 0, "it is not being woken yet");
        idle.note_waking(first, 1000);
        assert_eq!((idle.write_off_if_late(|| 999 + LATE), idle.write_off(999 + LATE)), (0, 0));
        assert_eq!(idle.write_off_if_late(|| 1000 + LATE), 1);
        let second = idle.claim_one().expect("nobody searches");
        idle.note_waking(second, 1000 + LATE);
        assert_eq!(idle.write_off(999 + 2 * LATE), 0, "the first is not late twice");
        assert_eq!(idle.write_off(1000 + 2 * LATE), 1, "both are late at once");
        let third = idle.claim_one().expect("nobody searches");
        idle.note_waking(third, 1000 + 2 * LATE);
        assert_eq!(idle.counts(), (1, 3, 1));
        for seat in [first, second, third] {
            assert!(idle.come(seat), "it was claimed");
        }
        assert_eq!(idle.counts(), (3, 3, 1), "each is counted once");
        assert_eq!(idle.write_off_if_late(|| unreachable!("none is on the way")), 0);
        idle.announce(third, true);
        assert!(!idle.come(third), "it is parked");
    }

    #[test]
    fn one_whose_claimer_does_not_come_to_wake_it_is_late_all_the_same() {
        let idle = Idle::<0>::new(2, 2, false);
        assert!(idle.claim_one().is_some());
        assert_eq!(idle.write_off(5), 0, "the time begins");
        assert_eq!(idle.write_off(4 + LATE), 0);
        assert_eq!(idle.write_off(5 + LATE), 1);
    }

    #[test]
    fn one_that_is_late_for_long_loses_its_permit_and_may_be_declined() {
        let idle = Idle::<0>::new(3, 1, false);
        let first = idle.claim_one().expect("all are vacant");
        idle.note_waking(first, 0);
        assert_eq!(idle.revoke_late(1000 * LATE, 0), 0, "it is not late");
        assert_eq!(idle.write_off(LATE), 1);
        assert_eq!(idle.revoke_late(2 * LATE, 3 * LATE), 0, "not for so long");
        assert_eq!(idle.revoke_late(3 * LATE, 3 * LATE), 1);
        assert_eq!(idle.revoke_late(3 * LATE, 3 * LATE), 0, "it has none any more");
        assert_eq!(idle.first_unblocked(first.0, 3), Some(first), "it does not block");
        let second = idle.claim_one().expect("there is a permit");
        idle.decline(first);
        assert_eq!(idle.counts(), (1, 1, 0), "the second searches");
        idle.decline(second);
        assert_eq!(idle.counts(), (0, 0, 1));
    }

    #[test]
    fn an_announcement_that_a_waker_took_is_counted_though_it_was_late() {
        let idle = idle_with_all_awake(2);
        idle.announce(SeatId(1), false);
        assert_eq!(idle.claim_one(), Some(SeatId(1)));
        idle.note_waking(SeatId(1), 0);
        assert_eq!(idle.write_off(LATE), 1);
        assert_eq!(idle.counts().0, 0);
        assert_eq!(idle.take_back(SeatId(1), false), TakenBack::ByWaker);
        assert_eq!(idle.counts().0, 1);
    }
}
