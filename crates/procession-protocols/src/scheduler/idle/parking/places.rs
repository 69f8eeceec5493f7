//! Where the threads of the seats are, as it is under the lock.

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

/// Where the thread of a seat is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Place {
    /// There, or on its way.
    Present,
    Parked,
    Vacant,
    Leaving,
    Absent,
}

/// Where the threads of the seats are.
#[derive(Debug)]
pub(in super::super) struct Parking {
    places: Box<[Place]>,
    /// The parked seats; the last to park is last.
    pub(in super::super) stack: Vec<SeatId>,
    /// The vacant seats; the next to be taken is last.
    pub(in super::super) vacant: Vec<SeatId>,
    present: u32,
    pub(in super::super) leaving: u32,
    /// The only thread that may sit in the absent seat, because it has begun coroutines there. 0
    /// means any thread.
    pub(super) absent_for: u64,
    /// Claimed seats with a worker that does not run yet, counted as searching.
    pub(super) coming: Vec<SeatId>,
    /// Claimed seats with a worker that does not run yet, not counted any more.
    pub(in super::super) late: Vec<SeatId>,
    /// Coming and late seats for which a thread is being started.
    pub(super) starting: Vec<SeatId>,
}

impl Parking {
    /// Creates vacant seats. If callers drive, the first seat is absent.
    pub(in super::super) fn new(seats: u32, callers_drive: bool) -> Self {
        let mut places = vec![Place::Vacant; seats as usize];
        if callers_drive {
            places[0] = Place::Absent;
        }
        Self {
            places: places.into(),
            stack: Vec::new(),
            vacant: (u32::from(callers_drive)..seats).rev().map(SeatId).collect(),
            present: 0,
            leaving: 0,
            absent_for: 0,
            coming: Vec::with_capacity(seats as usize),
            late: Vec::with_capacity(seats as usize),
            starting: Vec::new(),
        }
    }

    #[inline]
    pub(in super::super) fn place(&self, seat: SeatId) -> Place {
        self.places[seat.0 as usize]
    }

    #[inline]
    pub(super) fn is_for(&self, thread: u64) -> bool {
        self.absent_for == 0 || self.absent_for == thread
    }

    /// Moves a seat to another place.
    #[inline]
    pub(in super::super) fn shift(&mut self, seat: SeatId, place: Place) {
        match self.place(seat) {
            Place::Present => self.present -= 1,
            Place::Parked => self.stack.retain(|&other| other != seat),
            Place::Vacant => self.vacant.retain(|&other| other != seat),
            Place::Leaving => self.leaving -= 1,
            Place::Absent => {}
        }
        self.places[seat.0 as usize] = place;
        match place {
            Place::Present => self.present += 1,
            Place::Parked => self.stack.push(seat),
            Place::Vacant => {
                let above = self.vacant.partition_point(|other| other.0 > seat.0);
                self.vacant.insert(above, seat);
            }
            Place::Leaving => self.leaving += 1,
            Place::Absent => {}
        }
    }

    #[inline]
    pub(in super::super) fn are_all_parked(&self) -> bool {
        self.present == 0 && self.leaving == 0
    }

    /// Returns the number of seats with a thread that stays.
    #[inline]
    pub(in super::super) fn threads(&self) -> u32 {
        self.stack.len() as u32 + self.present
    }

    /// Returns the number of seats that can be woken, if there are permits for them.
    #[inline]
    pub(in super::super) fn waiting(&self) -> u32 {
        (self.stack.len() + self.vacant.len()) as u32
    }
}
