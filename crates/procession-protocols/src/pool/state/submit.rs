//! The steps of submitters: `Enter` and `Wait`.

use crate::sync::wait_list::{Another, Place};

use super::busy::Busy;
use super::core::PoolCore;
use super::lane::JobLane;
use super::mutation;
use super::outcome::{Admission, EnterError, Verdict};
use super::synced::{Start, Synced};
use super::wakes::Wakes;

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
    /// `Enter`. Returns the ticket of the job if it is taken. `start` starts a worker, and may
    /// refuse.
    pub fn enter<C>(
        &self,
        lane: JobLane,
        content: C,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
    ) -> (Result<u64, (C, EnterError)>, Wakes<J>) {
        if mutation::is(MUTATION, mutation::START_IN_TWO)
            && self.look(|state| state.live < state.limits.capacity)
        {
            return self.change(|state, wakes| {
                let worker = state.start(start).expect("the models refuse no worker");
                let ticket = state.next_ticket();
                Synced::set_to_work(worker, ticket, make(content), wakes);
                Ok(ticket)
            });
        }
        let holds = mutation::is(MUTATION, mutation::HOLD_IN_TWO)
            && self.look(|state| state.queue.holds(lane));
        let in_two =
            mutation::is(MUTATION, mutation::ENTER_IN_TWO) && self.look(|state| state.places.open);
        self.change(|state, wakes| {
            if !state.places.open && !in_two {
                return Err((content, EnterError::Closed));
            }
            if !state.has_free_place() {
                return Err((content, EnterError::Full));
            }
            if holds {
                let ticket = state.next_ticket();
                state.queue.hold(lane, ticket, make(content));
                return Ok(ticket);
            }
            state.dispatch(lane, content, make, start, wakes)
        })
    }

    /// `Enter`, with a reserved place.
    pub fn enter_reserved<C>(
        &self,
        generation: u64,
        lane: JobLane,
        content: C,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
    ) -> (Result<u64, (C, EnterError)>, Wakes<J>) {
        self.change(|state, wakes| {
            if !state.places.unreserve(generation) {
                return Err((content, EnterError::Closed));
            }
            let entered = state.dispatch(lane, content, make, start, wakes);
            // If no worker could be started, the place is free again.
            state.settle(wakes);
            entered
        })
    }

    /// Counts a job that was refused for good.
    pub fn count_refused(&self) {
        self.look(|state| state.totals.refused += 1);
    }

    /// Returns `true` if a submitter would have to wait for a place.
    pub fn must_wait(&self) -> bool {
        self.look(|state| state.places.open && !state.has_free_place())
    }

    /// Reserves a place without waiting.
    pub fn try_reserve(&self) -> Result<u64, EnterError> {
        self.look(|state| {
            if !state.places.open {
                return Err(EnterError::Closed);
            }
            if !state.has_free_place() {
                return Err(EnterError::Full);
            }
            Ok(state.places.reserve())
        })
    }

    /// `Wait`, with a prepared waker. `own` is the worker of the calling job, if the caller is a
    /// job of this pool and waits without a timeout.
    pub fn wait(&self, another: &mut Another<'_>, own: Option<Busy>) -> Admission {
        self.look(|state| {
            if state.places.open && state.has_free_place() {
                return Admission::Granted(state.places.reserve());
            }
            state.wait(another, own)
        })
    }

    /// `Enter` or `Wait`, in one step. Takes the content only if it takes the job.
    pub fn enter_or_wait<C>(
        &self,
        lane: JobLane,
        content: &mut Option<C>,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
        another: &mut Another<'_>,
        own: Option<Busy>,
    ) -> (Result<Admission, EnterError>, Wakes<J>) {
        self.change(|state, wakes| {
            if state.places.open && state.has_free_place() {
                state.dispatch_out_of(lane, content, make, start, wakes).map(Admission::Taken)
            } else {
                Ok(state.wait(another, own))
            }
        })
    }

    /// If the waiter was served, frees its place in the list and enters the job, in one step. Takes
    /// the content only if it takes the job.
    pub fn enter_served<C>(
        &self,
        place: &mut Option<Place>,
        lane: JobLane,
        content: &mut Option<C>,
        make: impl FnOnce(C) -> J,
        start: Start<'_, J>,
        another: &mut Another<'_>,
    ) -> (Option<Result<u64, EnterError>>, Wakes<J>) {
        self.change(|state, wakes| {
            Some(match state.places.served(place, another)? {
                Verdict::Granted(generation) if state.places.unreserve(generation) => {
                    let entered = state.dispatch_out_of(lane, content, make, start, wakes);
                    state.settle(wakes);
                    entered
                }
                Verdict::WouldDeadlock => Err(EnterError::WouldDeadlock),
                Verdict::Granted(_) | Verdict::Closed => Err(EnterError::Closed),
            })
        })
    }

    /// Returns the verdict on a waiter that was served, and frees its place in the list.
    pub fn poll_wait(
        &self,
        place: &mut Option<Place>,
        another: &mut Another<'_>,
    ) -> Option<Verdict> {
        self.look(|state| state.places.served(place, another))
    }

    /// Removes a waiter that no longer waits.
    pub fn leave_wait(&self, place: Place) -> Wakes<J> {
        let (own_waker, wakes) = self.change(|state, wakes| {
            let (wish, waiter) = state.places.remove(place);
            match wish.verdict {
                Some(Verdict::Granted(generation)) => {
                    state.places.unreserve(generation);
                }
                Some(Verdict::Closed | Verdict::WouldDeadlock) => {}
                None => {
                    if let Some(busy) = wish.own {
                        state.blocked.unblock(busy);
                    }
                }
            }
            state.settle(wakes);
            waiter
        });
        drop(own_waker);
        wakes
    }

    /// Frees a reserved place.
    pub fn release(&self, generation: u64) -> Wakes<J> {
        self.change(|state, wakes| {
            state.places.unreserve(generation);
            state.settle(wakes);
        })
        .1
    }
}
