//! The steps of submitters and handles, and of jobs that no worker runs: `Enter`, `Wait`,
//! `Withdraw`, `Lend`.

use std::task::Poll;

use super::busy::{Busy, Lender};
use super::core::PoolCore;
use super::lane::JobLane;
use super::mutation;
use super::outcome::{Ended, EnterError, Entered, Wakes};
use super::synced::{Start, Synced};
use crate::sync::wait_list::{Another, Place};

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

    /// Removes a waiter that no longer waits.
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

    /// `Withdraw`. Returns the job if it was still queued.
    pub fn withdraw(&self, ticket: u64) -> (Option<J>, Wakes<J>) {
        if mutation::is(MUTATION, mutation::WITHDRAW_IN_TWO) {
            self.look(|state| {
                if state.queue.has_ready(ticket) {
                    state.count_end(ticket, Ended::Cancelled);
                }
            });
            return (self.look(|state| state.queue.withdraw(ticket)), Wakes::default());
        }
        self.change(|state, wakes| {
            let job = state.queue.withdraw(ticket)?;
            state.count_end(ticket, Ended::Cancelled);
            state.settle(wakes);
            state.want_workers(wakes);
            Some(job)
        })
    }

    /// `Withdraw`, to run the job on the calling thread. A job that is held behind an earlier one
    /// of its key stays.
    pub fn take_inline(&self, ticket: u64) -> (Option<J>, Wakes<J>) {
        self.change(|state, wakes| {
            let job = state.queue.withdraw_ready(ticket)?;
            state.inline += 1;
            state.settle(wakes);
            Some(job)
        })
    }

    /// Begins a job that its submitter runs. Returns its ticket, or `None` if the pool is closed.
    pub fn begin_inline(&self) -> Option<u64> {
        self.look(|state| {
            if !state.places.open {
                return None;
            }
            state.inline += 1;
            Some(state.next_ticket())
        })
    }

    /// Counts the end of a job that no worker ran. The next job of its key may be ready then.
    pub fn finish_inline(&self, ticket: u64, ended: Ended, start: Start<'_, J>) -> ((), Wakes<J>) {
        self.change(|state, wakes| {
            state.inline -= 1;
            state.count_end(ticket, ended);
            state.employ(start, wakes);
            state.settle(wakes);
        })
    }

    /// `Lend`: notes that a job waits for another job, of this pool. If the awaited job is queued,
    /// it begins in the place of the lender. Returns `false` if it has ended.
    pub fn lend(
        &self,
        lender: Lender,
        ticket: u64,
        has_ended: &dyn Fn() -> bool,
        start: Start<'_, J>,
    ) -> (bool, Wakes<J>) {
        if mutation::is(MUTATION, mutation::LEND_IN_TWO)
            && self.look(|state| state.queue.contains(ticket))
        {
            return self.change(|state, wakes| {
                state.loans.ask(lender, ticket);
                if let Lender::Own(busy) = lender {
                    state.blocked.join(ticket, busy);
                }
                if let Ok(worker) = state.start(start)
                    && let Some(job) = state.queue.withdraw_ready(ticket)
                {
                    state.loans.begin(lender, ticket);
                    Synced::set_to_work(worker, ticket, job, wakes);
                }
                true
            });
        }
        self.change(|state, wakes| {
            // As in `join`.
            if has_ended() {
                return false;
            }
            if let Lender::Own(busy) = lender {
                state.blocked.join(ticket, busy);
            }
            let lends = !mutation::is(MUTATION, mutation::LEND_NOTHING);
            if lends && state.queue.contains(ticket) {
                state.loans.ask(lender, ticket);
                state.employ(start, wakes);
            }
            state.refuse_deadlock(wakes);
            true
        })
    }

    /// Notes that a job no longer waits for the job of `ticket`.
    pub fn take_back(&self, lender: Lender, ticket: u64) {
        if mutation::is(MUTATION, mutation::TAKE_BACK_IN_TWO) {
            let is_last = self.look(|state| state.loans.awaits_only(lender, ticket));
            self.look(|state| {
                if is_last {
                    state.loans.forget(lender);
                }
            });
            return;
        }
        self.look(|state| {
            if let Lender::Own(busy) = lender {
                state.blocked.leave(ticket, busy);
            }
            state.loans.take_back(lender, ticket);
        });
    }

    /// Notes that the job of this worker waits for another job of the same pool, without a timeout.
    /// Returns `false` if it could only wait forever.
    pub fn join(&self, busy: Busy, ticket: u64, has_ended: &dyn Fn() -> bool) -> bool {
        self.look(|state| {
            // A job publishes its result before its end is counted. So a job without a result has
            // not been counted yet.
            if has_ended() {
                return true;
            }
            if state.would_deadlock(busy) {
                return false;
            }
            state.blocked.join(ticket, busy);
            true
        })
    }
}
