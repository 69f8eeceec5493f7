//! The steps of workers and of the owner of a pool, and of waiters for a quiescent one: `Finish`,
//! `Expire`, `Die`, `Reap`, `Retry`, `Watch`.

use std::io;
use std::task::Waker;

use procession_sync::Arc;

use super::core::PoolCore;
use super::idle::{IdleWorker, Order, PoolSeat};
use super::mutation;
use super::outcome::{Ended, Expired, Next, PoolStats, Quiescence, Wakes, WatchResult};
use super::synced::Start;
use crate::scheduler::seat_id::NEVER;

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
    /// `Finish`. Calls `idle` only if the worker parks or rests now.
    pub fn finish(
        &self,
        idle: impl FnOnce() -> IdleWorker<J>,
        ticket: u64,
        ended: Ended,
    ) -> (Next<J>, Wakes<J>) {
        if mutation::is(MUTATION, mutation::PARK_IN_TWO) {
            let next = self.look(|state| {
                state.count_end(ticket, ended);
                state.queue.pop()
            });
            return match next {
                Some((ticket, job)) => (Next::Run(ticket, job), Wakes::default()),
                None => self.change(|state, _| {
                    state.idle.push(idle());
                    Next::Park
                }),
            };
        }
        self.change(|state, wakes| {
            state.count_end(ticket, ended);
            let next = if let Some((ticket, job)) = state.next_job() {
                Next::Run(ticket, job)
            } else if state.live > state.allowed() || !state.places.open {
                state.count_leave();
                Next::Leave
            } else {
                let idle = idle();
                let next = match &idle {
                    IdleWorker::Parked(_) => Next::Park,
                    IdleWorker::Rests { until, .. } => Next::Rest(state.reap_before(*until)),
                };
                state.idle.push(idle);
                next
            };
            state.settle(wakes);
            state.want_workers(wakes);
            next
        })
    }

    /// `Reap`: removes the workers that were to rest until `now` at most. Returns the time of the
    /// next reap that the caller must arrange.
    pub fn reap(&self, now: u64) -> (Option<u64>, Wakes<J>) {
        if mutation::is(MUTATION, mutation::REAP_IN_TWO) {
            let due = self
                .look(|state| state.idle.workers.iter().filter(|idle| idle.until() <= now).count());
            return self.change(|state, _| {
                state.idle.workers.truncate(state.idle.workers.len().saturating_sub(due));
                state.live -= due;
                state.totals.workers_retired += due as u64;
                None
            });
        }
        self.change(|state, wakes| {
            state.reap_at = NEVER;
            let mut next = NEVER;
            let mut place = 0;
            while state.live > state.limits.kept
                && let Some(idle) = state.idle.workers.get(place)
            {
                if idle.until() > now {
                    next = next.min(idle.until());
                    place = if state.idle.uneven { place + 1 } else { state.idle.workers.len() };
                } else if let Some(idle) = state.idle.workers.remove(place) {
                    state.dismiss(idle, wakes);
                }
            }
            state.settle(wakes);
            state.reap_before(next)
        })
    }

    /// Notes that the arranged reap will not happen.
    pub fn forget_reaper(&self) {
        self.look(|state| state.reap_at = NEVER);
    }

    /// Notes that the keep-alive was changed.
    pub fn expect_uneven(&self) {
        self.look(|state| state.idle.uneven = true);
    }

    /// Notes that the arranged retry will not happen. The next job without a worker asks for a new
    /// retry.
    pub fn forget_retry(&self) {
        self.look(|state| state.retries = false);
    }

    /// Starts workers for queued jobs, now that it may be possible.
    pub fn retry(&self, start: Start<'_, J>) -> Wakes<J> {
        self.change(|state, wakes| {
            state.retries = false;
            state.employ(start, wakes);
        })
        .1
    }

    /// `Employ`: starts workers for queued jobs, after a step that could start none.
    pub fn employ(&self, start: Start<'_, J>) -> Wakes<J> {
        self.change(|state, wakes| state.employ(start, wakes)).1
    }

    /// `Expire`.
    pub fn expire(&self, seat: &Arc<PoolSeat<J>>) -> (Expired, Wakes<J>) {
        self.change(|state, wakes| {
            // Searches from the bottom, where the workers are that have been idle the longest.
            let place = state.idle.position(seat);
            if mutation::is(MUTATION, mutation::EXPIRE_BLINDLY) {
                state.count_leave();
                if let Some(place) = place {
                    state.idle.workers.remove(place);
                }
                return Expired::Leave;
            }
            let Some(place) = place else {
                return Expired::Claimed;
            };
            if state.live <= state.limits.kept {
                return Expired::Kept;
            }
            state.idle.workers.remove(place);
            state.count_leave();
            state.settle(wakes);
            Expired::Leave
        })
    }

    /// Notes that a worker that left has run its hook.
    pub fn left(&self) -> Wakes<J> {
        self.change(|state, wakes| {
            state.leaving -= 1;
            state.settle(wakes);
        })
        .1
    }

    /// `Die`: notes that a worker was killed. With a `ticket`, it was running that job. Without
    /// one, it was parked, or had an order that it did not take. Its place is free, so queued jobs
    /// get another worker. Returns the jobs that no worker is left to run.
    pub fn died(
        &self,
        seat: Option<&Arc<PoolSeat<J>>>,
        ticket: Option<u64>,
        start: Start<'_, J>,
    ) -> (Vec<J>, Wakes<J>) {
        self.change(|state, wakes| {
            let mut lost = Vec::new();
            if let Some(ticket) = ticket {
                state.count_end(ticket, Ended::Cancelled);
            }
            let order = seat.and_then(|seat| seat.change(|mail| mail.order.take()));
            let mut counted = true;
            match order {
                Some(Order::Run(ticket, job)) => {
                    state.count_end(ticket, Ended::Cancelled);
                    lost.push(job);
                }
                Some(Order::Leave) => {
                    state.leaving -= 1;
                    counted = false;
                }
                None => {}
            }
            if counted {
                if let Some(seat) = seat {
                    state.idle.remove(seat);
                }
                state.live -= 1;
                state.totals.workers_retired += 1;
            }
            if mutation::is(MUTATION, mutation::DIE_SILENTLY) {
                state.settle(wakes);
                return lost;
            }
            if !state.employ(start, wakes) && state.needs_start() {
                while let Some((ticket, job)) = state.queue.pop() {
                    state.count_end(ticket, Ended::Cancelled);
                    lost.push(job);
                }
            }
            state.settle(wakes);
            lost
        })
    }

    /// Starts idle workers while fewer than `wanted` are live and the capacity allows it. Workers
    /// that rest do so until `until`. Returns the time of a reap that the caller must arrange, if
    /// none is arranged before that time.
    pub fn prestart(
        &self,
        wanted: usize,
        until: u64,
        start: Start<'_, J>,
    ) -> io::Result<Option<u64>> {
        self.look(|state| {
            while state.places.open && state.live < wanted.min(state.limits.capacity) {
                let worker = if state.limits.rests {
                    state.count_start();
                    IdleWorker::Rests { until, has_begun: false }
                } else {
                    state.start(start)?
                };
                state.idle.push(worker);
            }
            Ok(state.reap_before(until))
        })
    }

    /// Changes the capacity, and returns the old one.
    pub fn resize(&self, capacity: usize, start: Start<'_, J>) -> (usize, Wakes<J>) {
        self.change(|state, wakes| {
            let before = std::mem::replace(&mut state.limits.capacity, capacity);
            if !mutation::is(MUTATION, mutation::RESIZE_SILENTLY) {
                state.settle(wakes);
            }
            // First the surplus idle workers leave, so that the remaining workers are used.
            state.employ(start, wakes);
            before
        })
    }

    /// Closes the pool. Returns `true` if it was open.
    pub fn close(&self) -> (bool, Wakes<J>) {
        self.change(|state, wakes| {
            let was_open = state.close(wakes);
            state.settle(wakes);
            was_open
        })
    }

    /// Closes the pool, and removes the queued jobs.
    pub fn clear(&self) -> (Vec<J>, Wakes<J>) {
        self.change(|state, wakes| {
            state.close(wakes);
            let mut jobs = Vec::with_capacity(state.queue.jobs);
            for (ticket, job) in state.queue.take_held() {
                state.count_end(ticket, Ended::Cancelled);
                jobs.push(job);
            }
            while let Some((ticket, job)) = state.queue.pop() {
                state.count_end(ticket, Ended::Cancelled);
                jobs.push(job);
            }
            state.settle(wakes);
            jobs
        })
    }

    /// Opens a closed pool that has no worker left. Returns `false` for any other.
    pub fn reopen(&self) -> bool {
        self.look(|state| {
            let drained = state.is(Quiescence::Drained);
            state.places.open |= drained;
            drained
        })
    }

    /// `Watch`: enlists a waiter for a quiescent pool, or renews its waker if it `is_enlisted`.
    /// Also returns a waker to drop outside the lock.
    ///
    /// A waiter that is no longer in the list has been served, even if the pool is not quiescent
    /// any more.
    pub fn watch(
        &self,
        number: u64,
        quiescence: Quiescence,
        is_enlisted: bool,
        waker: Waker,
    ) -> (WatchResult, Option<Waker>) {
        self.look(|state| {
            let is_served = is_enlisted
                && !mutation::is(MUTATION, mutation::WATCH_THE_STATE)
                && !state.watchers.contains_key(&number);
            if is_served || state.is(quiescence) {
                return (WatchResult::Reached, Some(waker));
            }
            if !is_enlisted && quiescence == Quiescence::Drained && state.places.open {
                return (WatchResult::Open, Some(waker));
            }
            let before = state.watchers.insert(number, (quiescence, waker));
            (WatchResult::Waits, before.map(|watcher| watcher.1))
        })
    }

    /// Removes a waiter for a quiescent pool. Returns its waker, to be dropped outside the lock.
    pub fn unwatch(&self, number: u64) -> Option<Waker> {
        self.look(|state| state.watchers.remove(&number).map(|watcher| watcher.1))
    }

    /// Returns the numbers of the pool at this moment.
    pub fn stats(&self) -> PoolStats {
        self.look(|state| {
            let (capacity, busy) = (state.limits.capacity, state.busy());
            let (queued, reserved) = (state.queue.jobs, state.places.reserved);
            let open = state.places.open;
            PoolStats {
                capacity,
                live: state.live,
                busy,
                idle: state.live - busy,
                free: if open { capacity.saturating_sub(busy + queued + reserved) } else { 0 },
                queued,
                reserved,
                waiting: state.places.waiting,
                inline: state.inline,
                closed: !open,
                ..state.totals
            }
        })
    }
}
