//! `Claim`: which seat a publisher wakes.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use super::seats::SeatState;
use super::word::IdleWord;
use super::{Idle, mutation};
use crate::scheduler::seat_id::SeatId;

impl<const MUTATION: u8> Idle<MUTATION> {
    /// `PublishFence`, `ReadIdle` and `Claim`: returns the seat to wake for an entry published
    /// before, if any.
    #[inline]
    pub fn claim_one(&self) -> Option<SeatId> {
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            fence(SeqCst);
        }
        self.claim_one_in_sight()
    }

    /// Claims a seat like `claim_one`, for an entry that its worker will run itself otherwise.
    /// Without the fence, it may miss a worker that parks, or leaves the search, at this moment.
    #[inline]
    pub fn claim_one_in_sight(&self) -> Option<SeatId> {
        if IdleWord(self.counts.load(Relaxed)).offers_nobody() { None } else { self.claim() }
    }

    /// Claims a seat like `claim_one`, for the only entry in the deque of the publisher's own
    /// worker. Returns `None` if a worker naps.
    #[inline]
    pub fn claim_one_unless_napping(&self) -> Option<SeatId> {
        if !mutation::is(MUTATION, mutation::WITHOUT_FENCE) {
            fence(SeqCst);
        }
        // Relaxed, as the word: the fences give the order.
        if self.napping.load(Relaxed) > 0 { None } else { self.claim_one_in_sight() }
    }

    /// `Claim`, even if other workers are searching.
    #[cold]
    pub fn claim(&self) -> Option<SeatId> {
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

    /// `Claim` of a seat with a thread, if no worker is searching. Used when the system refuses
    /// threads.
    pub fn claim_parked(&self) -> Option<SeatId> {
        self.change(|seats| {
            let searched = IdleWord(self.counts.load(Relaxed)).searching() > 0;
            let first =
                if seats.has_permit() && !searched { seats.stack.last().copied() } else { None };
            let Some(seat) = first else { return (None, 0) };
            seats.lift(seat);
            self.awaken(seats, seat);
            self.note_claimed(seats, seat);
            (Some(seat), 1)
        })
    }

    /// `ClaimThis`: returns `true` if the seat was parked or vacant, and must now be woken.
    pub fn claim_this(&self, wanted: SeatId) -> bool {
        self.change(|seats| {
            let waits = matches!(seats.state(wanted), SeatState::Parked | SeatState::Vacant);
            if waits {
                seats.lift(wanted);
                self.grant(seats, wanted);
                self.note_claimed(seats, wanted);
            }
            (waits, i64::from(waits))
        })
    }

    /// Returns `true` if no thread is in the seat, and no thread is on its way.
    pub fn is_vacant(&self, seat: SeatId) -> bool {
        self.look(|seats| seats.states[seat.0 as usize] == SeatState::Vacant)
    }

    /// Makes a claimed seat vacant again, because no thread can be started for it. It will be
    /// claimed after all others.
    pub fn decline(&self, seat: SeatId) {
        self.change(|seats| {
            seats.lift(seat);
            *seats.state(seat) = SeatState::Vacant;
            seats.vacant.insert(0, seat);
            // A coming seat is counted as searching, and a late one is not. After `arrive` both are
            // counted.
            let arrived = self.arrive(seats, seat);
            ((), arrived - i64::from(!mutation::is(MUTATION, mutation::DECLINE_COUNTED)))
        });
    }

    /// Takes the callers' seat for this thread, if it is absent and not reserved for another
    /// thread.
    pub fn claim_absent(&self, thread: u64) -> Option<SeatId> {
        let seat = SeatId(0);
        self.change(|seats| {
            let absent = *seats.state(seat) == SeatState::Absent && seats.is_for(thread);
            if absent {
                seats.lift(seat);
                self.grant(seats, seat);
            }
            (absent.then_some(seat), 0)
        })
    }

    /// Returns `true` if the callers' seat is absent, and reserved for this thread.
    pub fn is_absent_for(&self, thread: u64) -> bool {
        self.look(|seats| seats.states[0] == SeatState::Absent && seats.absent_for == thread)
    }

    /// Returns `true` if the callers' seat is absent, and this thread may take it.
    pub fn has_absent(&self, thread: u64) -> bool {
        self.look(|seats| seats.states[0] == SeatState::Absent && seats.is_for(thread))
    }

    /// Returns the first of these seats, from `from` on and around, with a worker that neither
    /// blocks nor is absent. A late worker does not block: it will run, and takes a permit for what
    /// is bound to it.
    pub fn first_unblocked(&self, from: u32, count: u32) -> Option<SeatId> {
        self.look(|seats| {
            let mut round = (from..count).chain(0..from);
            let is_there = |seat: &u32| match seats.states[*seat as usize] {
                SeatState::Out => seats.late.contains(&SeatId(*seat)),
                state => state != SeatState::Absent,
            };
            round.find(is_there).map(SeatId)
        })
    }
}
