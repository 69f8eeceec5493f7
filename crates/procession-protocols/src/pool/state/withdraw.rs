//! The steps of handles, `Withdraw` above all, and of jobs that no worker runs.

use super::busy::Busy;
use super::core::PoolCore;
use super::mutation;
use super::outcome::Ended;
use super::synced::{Start, Synced};
use super::wakes::Wakes;

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
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

    /// `Lend`: notes that the job of this worker waits for another job of the same pool. If the
    /// awaited job is queued, it begins in the place of the worker. Returns `false` if it has
    /// ended.
    pub fn lend(
        &self,
        lender: Busy,
        ticket: u64,
        has_ended: &dyn Fn() -> bool,
        start: Start<'_, J>,
    ) -> (bool, Wakes<J>) {
        if mutation::is(MUTATION, mutation::LEND_IN_TWO)
            && self.look(|state| state.queue.contains(ticket))
        {
            return self.change(|state, wakes| {
                state.loans.ask(lender, ticket);
                state.blocked.join(ticket, lender);
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
            state.blocked.join(ticket, lender);
            if state.queue.contains(ticket) {
                state.loans.ask(lender, ticket);
                state.employ(start, wakes);
            }
            state.refuse_deadlock(wakes);
            true
        })
    }

    /// Notes that the job of this worker no longer waits for the job of `ticket`.
    pub fn take_back(&self, lender: Busy, ticket: u64) {
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
            state.blocked.leave(ticket, lender);
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
