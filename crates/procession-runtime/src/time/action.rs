//! Timers that were set, and the action of a timer that fires.

use std::sync::Arc;
use std::task::Waker;

use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::time::timers::TimerId;

use crate::process::unwind::{drop_guarded, guarded};

/// The waker of a timer. The waker of a process may hold no pin, so it must not be taken out.
#[derive(Clone)]
pub(crate) struct TimerWaker(Waker);

impl TimerWaker {
    pub(crate) fn wake(self) {
        self.0.wake();
    }

    pub(crate) fn as_waker(&self) -> &Waker {
        &self.0
    }
}

impl From<Waker> for TimerWaker {
    fn from(waker: Waker) -> Self {
        Self(waker)
    }
}

#[derive(Clone)]
pub(crate) enum Action {
    Wake(TimerWaker),
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl Action {
    /// Ends the action of a timer that will not fire: wakes the waiter, which must look again, or
    /// drops the function.
    pub(crate) fn give_up(self) {
        match self {
            Self::Wake(_) => self.fire(),
            Self::Call(function) => drop_guarded(function),
        }
    }

    /// Wakes the waiter or runs the function. Catches a panic of user code. Call it outside all
    /// locks.
    pub(crate) fn fire(self) {
        match self {
            Self::Wake(waker) => drop(guarded(|| waker.wake())),
            Self::Call(function) => {
                drop(guarded(|| function()));
                drop_guarded(function);
            }
        }
    }
}

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
