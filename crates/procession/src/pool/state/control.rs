//! The steps of the pool's owner, and of waiters for a quiescent pool.

use std::io;
use std::task::Waker;

use super::core::PoolCore;
use super::idle::IdleWorker;
use super::mutation;
use super::outcome::{Ended, Quiescence, Verdict};
use super::picture::Picture;
use super::synced::Start;
use super::wakes::Wakes;
use crate::scheduler::seat_id::NEVER;

impl<J, const MUTATION: u8> PoolCore<J, MUTATION> {
    /// Starts idle workers while fewer than `wanted` are live and the capacity allows it. Workers
    /// that rest do so until `until`. Returns the time of a reap that the caller must arrange, if
    /// none is arranged before that time.
    pub(crate) fn prestart(
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
    pub(crate) fn resize(&self, capacity: usize, start: Start<'_, J>) -> (usize, Wakes<J>) {
        self.change(|state, wakes| {
            let before = std::mem::replace(&mut state.limits.capacity, capacity);
            state.employ(start, wakes);
            if !mutation::is(MUTATION, mutation::RESIZE_SILENTLY) {
                state.settle(wakes);
            }
            before
        })
    }

    /// Closes the pool. Returns `true` if it was open.
    pub(crate) fn close(&self) -> (bool, Wakes<J>) {
        self.change(|state, wakes| {
            let was_open = state.places.close();
            if was_open {
                state.reap_at = NEVER;
            }
            while state.serve(Verdict::Closed, wakes) {}
            state.settle(wakes);
            was_open
        })
    }

    /// Closes the pool, and removes the queued jobs.
    pub(crate) fn clear(&self) -> (Vec<J>, Wakes<J>) {
        let (_, mut wakes) = self.close();
        let (jobs, mut more) = self.change(|state, wakes| {
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
        });
        more.wakers.drain().for_each(|waker| wakes.wakers.push(waker));
        debug_assert!(more.launches.is_empty(), "a cancelled job starts no worker");
        wakes.leavers += more.leavers;
        wakes.starved |= more.starved;
        (jobs, wakes)
    }

    /// Opens a closed pool that has no worker left. Returns `false` for any other.
    pub(crate) fn reopen(&self) -> bool {
        self.look(|state| {
            let drained = state.is(Quiescence::Drained);
            state.places.open |= drained;
            drained
        })
    }

    /// Returns `true` if the pool has reached the quiescent state; otherwise stores `waker`, to be
    /// woken when it does. Also returns a waker to drop outside the lock.
    pub(crate) fn watch(
        &self,
        number: u64,
        quiescence: Quiescence,
        waker: Waker,
    ) -> (bool, Option<Waker>) {
        self.look(|state| {
            if state.is(quiescence) {
                return (true, Some(waker));
            }
            (false, state.watchers.insert(number, (quiescence, waker)).map(|watcher| watcher.1))
        })
    }

    pub(crate) fn unwatch(&self, number: u64) -> Option<Waker> {
        self.look(|state| state.watchers.remove(&number).map(|watcher| watcher.1))
    }

    pub(crate) fn picture(&self) -> Picture {
        self.look(|state| Picture {
            capacity: state.limits.capacity,
            live: state.live,
            idle: state.idle.workers.len(),
            inline: state.inline,
            queued: state.queue.jobs,
            reserved: state.places.reserved,
            waiting: state.places.waiting,
            closed: !state.places.open,
            totals: state.totals,
        })
    }
}
