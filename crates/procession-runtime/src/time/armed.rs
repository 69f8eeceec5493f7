//! A timer that was set.

use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::time::timers::TimerId;

/// The set of timers that a timer belongs to: the set of a worker, or the set for outside threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerPlace {
    Seat(SeatId),
    Outside,
}

/// A timer that was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    pub(crate) place: TimerPlace,
    pub(crate) id: TimerId,
}
