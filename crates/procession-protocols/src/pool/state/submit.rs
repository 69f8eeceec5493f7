//! The steps of submitters: `Enter` and `Wait`.

use std::task::Poll;

use crate::sync::wait_list::{Another, Place};

use super::busy::Busy;
use super::core::PoolCore;
use super::lane::JobLane;
use super::mutation;
use super::outcome::{EnterError, Entered};
use super::synced::{Start, Synced};
use super::wakes::Wakes;

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
    /// `Enter`, in a place `reserved` in this generation, or in one that is free. `start` starts a
    /// worker, and may refuse.
    pub fn enter<B: Into<J>>(
        &self,
        reserved: Option<u64>,
        lane: JobLane,
        job: B,
        start: Start<'_, J>,
    ) -> (Entered<B>, Wakes<J>) {
        if mutation::is(MUTATION, mutation::START_IN_TWO)
            && self.look(|state| state.live < state.limits.capacity)
        {
            return self.change(|state, wakes| {
                let worker = state.start(start).expect("the models refuse no worker");
                let ticket = state.next_ticket();
                Synced::set_to_work(worker, ticket, job.into(), wakes);
                Ok(ticket)
            });
        }
        let holds = mutation::is(MUTATION, mutation::HOLD_IN_TWO)
            && self.look(|state| state.queue.holds(lane));
        let in_two =
            mutation::is(MUTATION, mutation::ENTER_IN_TWO) && self.look(|state| state.places.open);
        self.change(|state, wakes| {
            let place = match reserved {
                Some(generation) => state.use_place(generation),
                None => state.find_place(),
            };
            match place {
                Err(EnterError::Closed) if in_two => {}
                Err(error) => return Err((job, error)),
                Ok(()) => {}
            }
            if holds {
                return Ok(state.hold(lane, job));
            }
            let entered = state.dispatch(lane, job, start, wakes);
            if reserved.is_some() {
                // If no worker could be started, the place is free again.
                state.settle(wakes);
            }
            entered
        })
    }

    /// Counts a job that was refused for good.
    pub fn count_refused(&self) {
        self.look(|state| state.totals.refused += 1);
    }

    /// Returns `true` if a submitter would have to wait for a place.
    pub fn must_wait(&self) -> bool {
        self.look(|state| matches!(state.find_place(), Err(EnterError::Full)))
    }

    /// Reserves a place without waiting, and returns its generation.
    pub fn try_reserve(&self) -> Result<u64, EnterError> {
        self.look(|state| state.find_place().map(|()| state.places.reserve()))
    }

    /// `Enter` or `Wait`, in one step. If no place is free, enlists the caller, and stores where in
    /// `place`. The next call with this place looks whether the waiter was served.
    ///
    /// With a place, enters `job` and returns its ticket. Without a job, keeps the place reserved,
    /// and returns its generation. `own` is the worker of the calling job, if the caller is a job
    /// of this pool and waits without a timeout.
    pub fn admit<B: Into<J>>(
        &self,
        place: &mut Option<Place>,
        job: Option<(JobLane, &mut Option<B>)>,
        start: Start<'_, J>,
        another: &mut Another<'_>,
        own: Option<Busy>,
    ) -> (Poll<Result<u64, EnterError>>, Wakes<J>) {
        self.change(|state, wakes| -> Poll<Result<u64, EnterError>> {
            let has_waited = place.is_some();
            let admitted = if has_waited {
                match state.places.served(place, another) {
                    Some(verdict) => verdict,
                    None => return Poll::Pending,
                }
            } else if state.find_place().is_ok() {
                Ok(state.places.reserve())
            } else {
                match state.wait(another, own) {
                    Ok(waits) => {
                        *place = Some(waits);
                        return Poll::Pending;
                    }
                    Err(error) => Err(error),
                }
            };
            let (Ok(generation), Some((lane, content))) = (&admitted, job) else {
                return Poll::Ready(admitted);
            };
            state.use_place(*generation)?;
            let job = content.take().expect("a job enters the pool once");
            let entered = state.dispatch(lane, job, start, wakes);
            if has_waited {
                state.settle(wakes);
            }
            Poll::Ready(entered.map_err(|(refused, error)| {
                *content = Some(refused);
                error
            }))
        })
    }

    /// Removes a waiter that gives up.
    pub fn leave_wait(&self, place: Place) -> Wakes<J> {
        let (own_waker, wakes) = self.change(|state, wakes| {
            let (wish, waiter) = state.places.remove(place);
            match wish.verdict {
                Some(Ok(generation)) => {
                    state.places.unreserve(generation);
                }
                Some(Err(_)) => {}
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
