//! Reserved places, and the submitters that wait for one.

use std::task::Waker;

use crate::sync::wait_list::{Another, Place, WaitList, Waiter};

use super::busy::Busy;
use super::outcome::EnterError;

/// The state of a submitter that waits for a place.
#[derive(Debug)]
pub(super) struct Wish {
    /// Once the waiter was served: the generation of its place, or why it gets none.
    pub(super) verdict: Option<Result<u64, EnterError>>,
    /// The worker of the waiting job, if it waits without a timeout.
    pub(super) own: Option<Busy>,
}

/// The places of a pool that are reserved or waited for.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) open: bool,
    pub(super) generation: u64,
    pub(super) reserved: usize,
    waiters: WaitList<Wish>,
    pub(super) waiting: usize,
}

impl Places {
    pub(super) fn new() -> Self {
        Self { open: true, generation: 0, reserved: 0, waiters: WaitList::new(), waiting: 0 }
    }

    /// Returns `true` if a submitter waits, so that the next place is not for a newcomer.
    #[inline]
    pub(super) fn are_awaited(&self) -> bool {
        !self.waiters.is_empty()
    }

    /// Reserves a place, and returns its generation.
    #[inline]
    pub(super) fn reserve(&mut self) -> u64 {
        self.reserved += 1;
        self.generation
    }

    /// Uses or frees a reserved place. Returns `false` if the reservation was void.
    #[inline]
    pub(super) fn unreserve(&mut self, generation: u64) -> bool {
        let valid = self.open && generation == self.generation;
        self.reserved -= usize::from(valid);
        valid
    }

    #[inline]
    pub(super) fn enlist(&mut self, waker: Waker, own: Option<Busy>) -> Place {
        self.waiting += 1;
        self.waiters.push(Waiter::Alone(waker), Wish { verdict: None, own })
    }

    /// Returns the verdict on a waiter that was served, and frees its place in the list.
    #[inline]
    pub(super) fn served(
        &mut self,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
    ) -> Option<Result<u64, EnterError>> {
        let waiting = place.take()?;
        if self.waiters.is_served(&waiting) {
            return self.waiters.remove(waiting).0.verdict;
        }
        self.waiters.renew(&waiting, another);
        *place = Some(waiting);
        None
    }

    /// Serves the first waiter that is `meant`, judged by the worker of its job. Returns the
    /// waiter, and the worker.
    #[inline]
    pub(super) fn serve(
        &mut self,
        verdict: Result<u64, EnterError>,
        meant: impl Fn(Option<Busy>) -> bool,
    ) -> Option<(Waiter, Option<Busy>)> {
        let served = self.waiters.serve_where(
            |wish| meant(wish.own),
            |wish| {
                wish.verdict = Some(verdict);
                wish.own.take()
            },
        )?;
        self.waiting -= 1;
        Some(served)
    }

    /// Removes a waiter from the list.
    #[inline]
    pub(super) fn remove(&mut self, place: Place) -> (Wish, Option<Waiter>) {
        let (wish, waiter) = self.waiters.remove(place);
        self.waiting -= usize::from(wish.verdict.is_none());
        (wish, waiter)
    }

    /// Closes the pool, and makes reservations void. Returns `true` if the pool was open.
    pub(super) fn close(&mut self) -> bool {
        let was_open = std::mem::replace(&mut self.open, false);
        if was_open {
            self.generation += 1;
            self.reserved = 0;
        }
        was_open
    }
}
