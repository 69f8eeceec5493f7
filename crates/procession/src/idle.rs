//! Who searches, who is parked, and whom a publisher wakes.
//!
//! # Parking protocol
//!
//! ## Problem
//! A publisher queues a process and sees nobody parked. A worker looked just before, saw nothing, and parks. The process
//! waits for an unrelated event: a lost wake-up. And the opposite: every publisher wakes somebody, and the workers
//! spend their time finding that another was faster.
//!
//! ## States
//! One word, `searching:32 | parked:32`, changed only by read-modify-writes. A worker is *parked* from its announcement until a
//! waker takes it off the stack of sleepers (or it takes itself off); it is *searching* while it looks for work in the queues of others.
//! A seat that no thread has taken yet counts as parked: waking it means to start its thread. A seat that is for callers (`block_on`)
//! is *absent* while none sits there: nobody can wake it, but it does not run either.
//!
//! ## Steps
//! Publisher: `Publish` the entry in a queue · `PublishFence` fence(SeqCst) · `ReadIdle` load the word; if nobody searches and
//! somebody is parked, `Claim` one under the lock (parked - 1, searching + 1) and unpark it.
//! Worker that finds nothing: `Announce` under the lock, one read-modify-write (searching - 1 if it searched, parked + 1) and
//! a push to the sleepers · `ParkFence` fence(SeqCst) · `Recheck` every queue and the next deadline · found: `TakeBack`
//! the announcement and search; else block.
//! Searcher that finds work: searching - 1; the last one wakes the next (`ReadIdle` again).
//! Who wants to know whether all is idle: `Survey` under the lock, whether all are parked and no queue has anything.
//!
//! ## Why it works
//! The two fences are totally ordered. If `PublishFence` is first, `Recheck` sees the entry. If `ParkFence` is first, `ReadIdle` sees
//! the announcement. If `ReadIdle` saw a searcher instead, that searcher has not yet left the count, so it either finds
//! the entry, or leaves by its own `Announce`, and its `Recheck` comes after; or finds other work, and wakes the next.
//!
//! `Survey`: a worker takes entries only while it is not parked, and cannot take its announcement back while the lock is held. So an
//! entry that was queued before is in its queue, or has run. Looking into the queues after the lock is given back, one may find that
//! all were parked, and then that nothing is queued, since a worker has taken its announcement back and the entry out meanwhile.
//!
//! ## Details that look wrong and are not
//! The waker, not the woken, takes the worker off the count: between the two the word would promise a sleeper who is
//! already coming.
//!
//! ## Allowed
//! - A worker may be woken for an entry that another takes first; it searches and parks again.
//! - A process that gave way goes into its worker's FIFO ring, which other workers may halve. If the worker goes on with another out of
//!   the ring, it looks for somebody parked without `PublishFence`, which would cost a yield half as much again (15 to 22 ns). It may so
//!   miss one that parks within the same nanoseconds; it looks again at its next yield, and with the fence at the next dispatch
//!   from elsewhere.
//!
//! ## Rejected
//! A bit map of the parked instead of a locked stack: it limits the number of workers, and the lock is taken only when
//! somebody parks or is woken, which costs a system call anyway. The stack wakes the one that parked last, whose caches are warm.
//!
//! ## Checked by
//! `models::publish_against_park`, `models::canary_without_recheck`, `models::canary_without_fence`, `models::survey_against_recheck`,
//! `models::canary_survey_in_two`.

use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU64, fence};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// No `PublishFence`, no `ParkFence`.
    pub(crate) const WITHOUT_FENCE: u8 = 1;
    /// `Survey` looks into the queues after it has given the lock back.
    pub(crate) const SURVEY_IN_TWO: u8 = 2;
}

/// A worker's place: its number in the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId(pub(crate) u32);

const SEARCHING_ONE: u64 = 1 << 32;
const PARKED_ONE: u64 = 1;

#[derive(Clone, Copy)]
struct Counts(u64);

impl Counts {
    fn searching(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn parked(self) -> u32 {
        self.0 as u32
    }
}

/// The word and the sleepers.
#[derive(Debug)]
pub(crate) struct Idle<const MUTATION: u8 = { mutation::SOUND }> {
    counts: AtomicU64,
    /// Who can be woken, the last to park last. Somebody is parked exactly if on this stack.
    sleepers: Mutex<Sleepers>,
    seats: u32,
}

#[derive(Debug)]
struct Sleepers {
    stack: Vec<SeatId>,
    /// The seat for callers, while it is absent.
    absent: Option<SeatId>,
}

impl Sleepers {
    fn take(&mut self, seat: SeatId) -> bool {
        let place = self.stack.iter().rposition(|&sleeper| sleeper == seat);
        place.map(|place| self.stack.remove(place)).is_some()
    }

    fn are_all(&self, seats: u32) -> bool {
        self.stack.len() + usize::from(self.absent.is_some()) == seats as usize
    }
}

impl<const MUTATION: u8> Idle<MUTATION> {
    /// All seats are parked: no thread has taken one. The first is absent, if it is for callers.
    pub(crate) fn new(seats: u32, callers_drive: bool) -> Self {
        let stack: Vec<SeatId> = (u32::from(callers_drive)..seats).rev().map(SeatId).collect();
        Self {
            counts: AtomicU64::new(stack.len() as u64 * PARKED_ONE),
            sleepers: Mutex::new(Sleepers { stack, absent: callers_drive.then_some(SeatId(0)) }),
            seats,
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut Sleepers) -> R) -> R {
        change(&mut self.sleepers.lock().expect("nothing that can panic runs under this lock"))
    }

    /// `PublishFence`, `ReadIdle` and `Claim`: the seat to wake for an entry published before, if any.
    #[inline]
    pub(crate) fn claim_one(&self) -> Option<SeatId> {
        if MUTATION != mutation::WITHOUT_FENCE {
            fence(SeqCst);
        }
        let counts = Counts(self.counts.load(Relaxed));
        if counts.searching() > 0 || counts.parked() == 0 { None } else { self.claim() }
    }

    /// As `claim_one`, for an entry that its worker will come to itself: without the fence it may miss one that parks at this very moment.
    #[inline]
    pub(crate) fn claim_one_in_sight(&self) -> Option<SeatId> {
        let counts = Counts(self.counts.load(Relaxed));
        if counts.searching() > 0 || counts.parked() == 0 { None } else { self.claim() }
    }

    /// `Claim`, whoever searches.
    #[cold]
    pub(crate) fn claim(&self) -> Option<SeatId> {
        self.change(|sleepers| {
            let seat = sleepers.stack.pop()?;
            // Relaxed, as all changes of the word: their order is what matters, and the fences give it.
            self.counts.fetch_add(SEARCHING_ONE.wrapping_sub(PARKED_ONE), Relaxed);
            Some(seat)
        })
    }

    /// `Claim` of a certain seat, for what only that one can run.
    pub(crate) fn claim_this(&self, wanted: SeatId) -> bool {
        self.take_back(wanted)
    }

    /// A claimed seat cannot be brought to work: it is parked as before, and claimed after all others.
    pub(crate) fn decline(&self, seat: SeatId) {
        self.change(|sleepers| {
            sleepers.stack.insert(0, seat);
            self.counts.fetch_add(PARKED_ONE.wrapping_sub(SEARCHING_ONE), Relaxed);
        });
    }

    /// A caller sits down in the absent seat, if it is.
    pub(crate) fn claim_absent(&self) -> Option<SeatId> {
        self.change(|sleepers| sleepers.absent.take())
    }

    pub(crate) fn has_absent(&self) -> bool {
        self.change(|sleepers| sleepers.absent.is_some())
    }

    /// A thread leaves its seat, for callers or for another thread; says whether nobody is left who runs.
    pub(crate) fn leave(&self, seat: SeatId, for_callers: bool) -> bool {
        if !for_callers {
            return self.announce(seat, false);
        }
        let all = self.change(|sleepers| {
            sleepers.absent = Some(seat);
            sleepers.are_all(self.seats)
        });
        fence(SeqCst);
        all
    }

    /// Starts to search, unless half of those awake search already.
    pub(crate) fn start_searching(&self) -> bool {
        let counts = Counts(self.counts.load(Relaxed));
        let awake = self.seats - counts.parked().min(self.seats);
        // May let one searcher too many through: the limit saves work, nothing depends on it.
        if counts.searching() * 2 >= awake.max(1) {
            return false;
        }
        self.counts.fetch_add(SEARCHING_ONE, Relaxed);
        true
    }

    /// Stops searching, having found something; says whether nobody searches now, so that the caller wakes the next.
    pub(crate) fn stop_searching(&self) -> bool {
        let before = Counts(self.counts.fetch_sub(SEARCHING_ONE, Relaxed));
        debug_assert!(before.searching() > 0, "[searching] counted once, taken back once");
        before.searching() == 1
    }

    /// `Announce` and `ParkFence`; the caller goes on with `Recheck`. Says whether every seat is parked now.
    pub(crate) fn announce(&self, seat: SeatId, searched: bool) -> bool {
        let all = self.change(|sleepers| {
            sleepers.stack.push(seat);
            let change = if searched { PARKED_ONE.wrapping_sub(SEARCHING_ONE) } else { PARKED_ONE };
            self.counts.fetch_add(change, Relaxed);
            sleepers.are_all(self.seats)
        });
        if MUTATION != mutation::WITHOUT_FENCE {
            fence(SeqCst);
        }
        all
    }

    /// Takes the announcement back, to search. If that fails, a waker was faster, and has counted the worker as searching already: a
    /// token is on its way to its parker.
    pub(crate) fn take_back(&self, seat: SeatId) -> bool {
        self.change(|sleepers| {
            let there = sleepers.take(seat);
            if there {
                self.counts.fetch_add(SEARCHING_ONE.wrapping_sub(PARKED_ONE), Relaxed);
            }
            there
        })
    }

    /// As `take_back`, if every seat is parked: of several that find that out, one succeeds.
    pub(crate) fn take_back_if_all_parked(&self, seat: SeatId) -> bool {
        self.change(|sleepers| {
            let all = sleepers.are_all(self.seats) && sleepers.take(seat);
            if all {
                self.counts.fetch_add(SEARCHING_ONE.wrapping_sub(PARKED_ONE), Relaxed);
            }
            all
        })
    }

    pub(crate) fn is_parked(&self, seat: SeatId) -> bool {
        self.change(|sleepers| sleepers.stack.contains(&seat))
    }

    /// `Survey`: whether every seat is parked and nothing is queued, both at one moment.
    pub(crate) fn all_parked_and(&self, nothing_queued: impl Fn() -> bool) -> bool {
        if MUTATION == mutation::SURVEY_IN_TWO {
            return self.change(|sleepers| sleepers.are_all(self.seats)) && nothing_queued();
        }
        self.change(|sleepers| sleepers.are_all(self.seats) && nothing_queued())
    }

    /// How many seats search and are parked now.
    pub(crate) fn counts(&self) -> (u32, u32) {
        let counts = Counts(self.counts.load(Relaxed));
        (counts.searching(), counts.parked())
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::atomic::AtomicU32;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, thread};

    use super::{Idle, SeatId, mutation};

    /// One worker parks while another thread publishes. The decisions alone are modelled: if the worker would block, the publisher must
    /// have claimed it.
    fn publish<const MUTATION: u8, const RECHECK: bool>() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(|| {
            let shared = Arc::new((Idle::<MUTATION>::new(1, true), AtomicU32::new(0)));
            assert!(shared.0.claim_absent().is_some(), "the worker has taken its seat");
            let publisher = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences orders queue and word, as for a queue's own operations.
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
                !(late && shared.0.take_back(SeatId(0)))
            };
            let woken = publisher.join().expect("the publisher does not panic");
            assert!(!blocks || woken, "the wake-up was lost");
        });
    }

    /// A worker parks, and finds in its `Recheck` what was queued before; meanwhile somebody asks whether all is idle.
    fn survey<const MUTATION: u8>() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(|| {
            // Whether the entry is queued, and whether it has run.
            let shared = Arc::new((Idle::<MUTATION>::new(1, true), AtomicU32::new(1), AtomicU32::new(0)));
            assert!(shared.0.claim_absent().is_some(), "the worker has taken its seat");
            shared.0.announce(SeatId(0), false);
            let worker = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    assert!(shared.0.take_back(SeatId(0)), "nobody claims it");
                    // Relaxed: the lock orders it.
                    shared.1.fetch_sub(1, Relaxed);
                    shared.2.fetch_add(1, Relaxed);
                })
            };
            if shared.0.all_parked_and(|| shared.1.fetch_add(0, Relaxed) == 0) {
                assert_eq!(shared.2.fetch_add(0, Relaxed), 1, "it was called idle while a process ran");
            }
            worker.join().expect("the worker does not panic");
        });
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
    use super::{Idle, SeatId};

    fn idle_with_all_awake(seats: u32) -> Idle {
        let idle = Idle::new(seats, false);
        while idle.claim().is_some() {
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
        let idle: Idle = Idle::new(1, true);
        assert!(idle.all_parked_and(|| true));
        assert_eq!(idle.claim_one(), None);
        assert_eq!(idle.claim_absent(), Some(SeatId(0)));
        assert_eq!(idle.claim_absent(), None, "one caller sits there");
        assert!(!idle.all_parked_and(|| true));
        assert!(idle.leave(SeatId(0), true));
        assert_eq!(idle.claim_absent(), Some(SeatId(0)));
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
        let idle: Idle = Idle::new(2, false);
        assert_eq!(idle.claim_one(), Some(SeatId(0)));
        assert_eq!(idle.claim(), Some(SeatId(1)));
        assert_eq!(idle.claim(), None);
        assert_eq!(idle.counts(), (2, 0));
        assert!(!idle.announce(SeatId(0), true));
        assert!(idle.announce(SeatId(1), true), "all are parked");
        assert!(idle.take_back(SeatId(0)));
        assert!(!idle.take_back(SeatId(0)));
    }
}
