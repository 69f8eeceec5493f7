//! A timer that was set.

use crate::scheduler::seat_id::SeatId;
use crate::time::timers::TimerId;

/// Which timers of a scheduler.
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
