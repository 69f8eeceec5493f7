//! The seats, as they are under the lock.

use super::word::AWAKE_ONE;
use crate::scheduler::seat_id::SeatId;

/// What is left when a thread leaves its seat.
#[derive(Debug, PartialEq, Eq)]
pub struct Remaining {
    /// No worker runs, and no step blocks.
    pub all_parked: bool,
    pub nobody_awake: bool,
}

/// The seats and threads that are left in a scheduler.
#[derive(Debug, PartialEq, Eq)]
pub struct Presence {
    /// `true` if a worker is awake or parked.
    pub has_thread: bool,
    /// `true` if a seat has no thread.
    pub has_vacant: bool,
    /// `true` if a thread is about to leave its seat, which is vacant then.
    pub is_leaving: bool,
    /// `true` if the callers' seat is free.
    pub has_absent: bool,
    /// The seats of threads that have returned their permit.
    pub out: Vec<SeatId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SeatState {
    Vacant,
    Parked,
    Awake,
    Out,
    Leaving,
    Absent,
}

#[derive(Debug)]
pub(super) struct Seats {
    pub(super) states: Box<[SeatState]>,
    /// The parked seats; the last to park is last.
    pub(super) stack: Vec<SeatId>,
    /// The vacant seats; the next to be taken is last.
    pub(super) vacant: Vec<SeatId>,
    pub(super) awake: u32,
    pub(super) out: u32,
    pub(super) leaving: u32,
    pub(super) width: u32,
    /// Where the search for a seat to take a permit from begins.
    pub(super) turn: u32,
    /// How often a seat became awake.
    pub(super) awakenings: u64,
    /// The only thread that may sit in the absent seat, because it has begun coroutines there. 0
    /// means any thread.
    pub(super) absent_for: u64,
    /// Claimed seats with a worker that does not run yet, counted as searching.
    pub(super) coming: Vec<SeatId>,
    /// Claimed seats with a worker that does not run yet, not counted any more.
    pub(super) late: Vec<SeatId>,
    /// Coming and late seats for which a thread is being started.
    pub(super) starting: Vec<SeatId>,
}

impl Seats {
    #[inline]
    pub(super) fn state(&mut self, seat: SeatId) -> &mut SeatState {
        &mut self.states[seat.0 as usize]
    }

    #[inline]
    pub(super) fn is_for(&self, thread: u64) -> bool {
        self.absent_for == 0 || self.absent_for == thread
    }

    /// Takes a seat out of its state and list.
    #[inline]
    pub(super) fn lift(&mut self, seat: SeatId) -> SeatState {
        let before = *self.state(seat);
        match before {
            SeatState::Parked => self.stack.retain(|&other| other != seat),
            SeatState::Vacant => self.vacant.retain(|&other| other != seat),
            SeatState::Awake => self.awake -= 1,
            SeatState::Out => self.out -= 1,
            SeatState::Leaving => self.leaving -= 1,
            SeatState::Absent => {}
        }
        before
    }

    #[inline]
    pub(super) fn put(&mut self, seat: SeatId, state: SeatState) {
        *self.state(seat) = state;
        match state {
            SeatState::Parked => self.stack.push(seat),
            SeatState::Vacant => {
                let above = self.vacant.partition_point(|other| other.0 > seat.0);
                self.vacant.insert(above, seat);
            }
            SeatState::Awake => self.awake += 1,
            SeatState::Out => self.out += 1,
            SeatState::Leaving => self.leaving += 1,
            SeatState::Absent => {}
        }
    }

    #[inline]
    pub(super) fn shift(&mut self, seat: SeatId, state: SeatState) {
        self.lift(seat);
        self.put(seat, state);
    }

    #[inline]
    pub(super) fn has_permit(&self) -> bool {
        self.awake < self.width
    }

    #[inline]
    pub(super) fn are_all_parked(&self) -> bool {
        self.awake == 0 && self.out == 0 && self.leaving == 0
    }

    /// Returns the number of seats with a thread that stays.
    #[inline]
    pub(super) fn threads(&self) -> u32 {
        self.stack.len() as u32 + self.awake + self.out
    }

    /// Returns the word, without the searching workers.
    #[inline]
    pub(super) fn summary(&self) -> u64 {
        let waiting = (self.stack.len() + self.vacant.len()) as u64;
        u64::from(self.awake) * AWAKE_ONE
            + waiting.min(u64::from(self.width.saturating_sub(self.awake)))
    }

    /// Returns a seat to take a permit from. Seats beyond the width come first, because processes
    /// may be bound to the seats below it.
    #[inline]
    pub(super) fn victim(&mut self) -> Option<SeatId> {
        let count = self.states.len() as u32;
        self.turn = self.turn.wrapping_add(1) % count;
        let turn = self.turn;
        let awake = |seat: &u32| self.states[*seat as usize] == SeatState::Awake;
        let late = (self.width..count).rev().find(awake);
        late.or_else(|| (0..count).map(|i| (turn + i) % count).find(awake)).map(SeatId)
    }
}
