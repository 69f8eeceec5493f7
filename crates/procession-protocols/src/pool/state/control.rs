//! The steps of the pool's owner, and of waiters for a quiescent pool.

use std::io;
use std::task::Waker;

use super::core::PoolCore;
use super::idle::IdleWorker;
use super::mutation;
use super::outcome::{Ended, Quiescence, WatchResult};
use super::picture::PoolStats;
use super::synced::Start;
use super::wakes::Wakes;

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
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
