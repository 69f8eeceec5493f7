//! `Claim`: which seat a publisher wakes.

use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use super::places::Place;
use crate::scheduler::idle::word::IdleWord;
use crate::scheduler::idle::{Idle, Seats, mutation};
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
        self.claim_if(|Seats { permits, parking }| {
            let next = parking.stack.last().or(parking.vacant.last());
            next.filter(|_| permits.free() > 0).copied()
        })
    }

    /// `Claim` of a seat with a thread, if no worker is searching. Used when the system refuses
    /// threads.
    pub fn claim_parked(&self) -> Option<SeatId> {
        self.claim_if(|Seats { permits, parking }| {
            let searched = IdleWord(self.counts.load(Relaxed)).searching() > 0;
            parking.stack.last().filter(|_| permits.free() > 0 && !searched).copied()
        })
    }

    /// `ClaimThis`: returns `true` if the seat was parked or vacant, and must now be woken.
    pub fn claim_this(&self, wanted: SeatId) -> bool {
        let waits = |place| matches!(place, Place::Parked | Place::Vacant);
        self.claim_if(|seats| waits(seats.parking.place(wanted)).then_some(wanted)).is_some()
    }

    /// Claims the seat that is found, and counts its worker as searching.
    fn claim_if(&self, find: impl FnOnce(&Seats) -> Option<SeatId>) -> Option<SeatId> {
        self.change(|seats| {
            let found = find(seats);
            if let Some(seat) = found {
                self.awaken(seats, seat);
                self.note_claimed(&mut seats.parking, seat);
            }
            (found, i64::from(found.is_some()))
        })
    }

    /// Returns `true` if no thread is in the seat, and no thread is on its way.
    pub fn is_vacant(&self, seat: SeatId) -> bool {
        self.look(|seats| seats.parking.place(seat) == Place::Vacant)
    }

    /// Makes a claimed seat vacant again, because no thread can be started for it. It will be
    /// claimed after all others.
    pub fn decline(&self, seat: SeatId) {
        self.change(|seats| {
            seats.settle(seat, Place::Vacant);
            let vacant = &mut seats.parking.vacant;
            vacant.retain(|&other| other != seat);
            vacant.insert(0, seat);
            // A coming seat is counted as searching, and a late one is not. After `arrive` both are
            // counted.
            let arrived = self.arrive(&mut seats.parking, seat);
            ((), arrived - i64::from(!mutation::is(MUTATION, mutation::DECLINE_COUNTED)))
        });
    }

    /// Takes the callers' seat for this thread, if it is absent and not reserved for another
    /// thread.
    pub fn claim_absent(&self, thread: u64) -> Option<SeatId> {
        let seat = SeatId(0);
        self.change(|seats| {
            let parking = &seats.parking;
            let absent = parking.place(seat) == Place::Absent && parking.is_for(thread);
            if absent {
                self.awaken(seats, seat);
            }
            (absent.then_some(seat), 0)
        })
    }

    /// Returns `true` if the callers' seat is absent, and reserved for this thread.
    pub fn is_absent_for(&self, thread: u64) -> bool {
        self.look(|Seats { parking, .. }| {
            parking.place(SeatId(0)) == Place::Absent && parking.absent_for == thread
        })
    }

    /// Returns `true` if the callers' seat is absent, and this thread may take it.
    pub fn has_absent(&self, thread: u64) -> bool {
        self.look(|Seats { parking, .. }| {
            parking.place(SeatId(0)) == Place::Absent && parking.is_for(thread)
        })
    }

    /// Returns the first of these seats, from `from` on and around, with a worker that neither
    /// blocks nor is absent. A late worker does not block: it will run, and takes a permit for what
    /// is bound to it.
    pub fn first_unblocked(&self, from: u32, count: u32) -> Option<SeatId> {
        self.look(|seats| {
            let mut round = (from..count).chain(0..from).map(SeatId);
            let is_there = |seat: &SeatId| match seats.parking.place(*seat) {
                Place::Present => seats.permits.has(*seat) || seats.parking.late.contains(seat),
                place => place != Place::Absent,
            };
            round.find(is_there)
        })
    }
}
