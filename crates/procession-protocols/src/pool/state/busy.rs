//! Busy workers, and workers that are blocked on their own pool.

use procession_sync::Arc;

use crate::util::sorted_map::{SortedMap, SortedSet};

use super::idle::PoolSeat;

/// Identifies a busy worker.
///
/// A thread is identified by the address of its seat. Once it has left, a later worker may get the
/// same address. Waits that its jobs have left behind elsewhere then count for the later worker, as
/// they counted for this one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Busy(u64);

impl Busy {
    const FIRST: Self = Self(0);
    const LAST: Self = Self(u64::MAX);

    /// The busy worker of this seat, if workers are threads.
    pub fn in_seat<J>(seat: &Arc<PoolSeat<J>>) -> Self {
        Self(Arc::as_ptr(seat).addr() as u64)
    }

    /// The busy worker that runs the job of this ticket, if workers are processes.
    #[inline]
    pub fn with_job(ticket: u64) -> Self {
        Self(ticket)
    }
}

/// A job in a process that waits for a job of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lender {
    /// A job of the same pool, by its worker.
    Own(Busy),
    /// A job of another pool of the same family, by the id of that pool and its worker there.
    Guest(u64, Busy),
}

/// The workers that are blocked on their own pool.
#[derive(Debug)]
pub(super) struct Blocked {
    /// The busy workers that can go on only once another job of the pool has ended, each with the
    /// number of its waits.
    workers: SortedMap<Busy, u32>,
    /// The tickets of jobs that other jobs of the pool wait for, each with the worker of the
    /// waiting job.
    joins: SortedSet<(u64, Busy)>,
}

impl Blocked {
    pub(super) fn new() -> Self {
        Self { workers: SortedMap::new(), joins: SortedSet::new() }
    }

    #[inline]
    pub(super) fn block(&mut self, busy: Busy) {
        *self.workers.get_or_default(busy) += 1;
    }

    /// Removes one wait of a worker. Does nothing if workers are processes and the job has ended.
    #[inline]
    pub(super) fn unblock(&mut self, busy: Busy) {
        if let Some(waits) = self.workers.get_mut(&busy) {
            *waits -= 1;
            if *waits == 0 {
                self.workers.remove(&busy);
            }
        }
    }

    /// Notes that the job of this worker waits for the job of this ticket.
    pub(super) fn join(&mut self, ticket: u64, busy: Busy) {
        if self.joins.insert((ticket, busy)) {
            self.block(busy);
        }
    }

    /// Notes that the job of this worker does not wait for the job of this ticket any more.
    #[inline]
    pub(super) fn leave(&mut self, ticket: u64, busy: Busy) {
        if self.joins.remove(&(ticket, busy)) {
            self.unblock(busy);
        }
    }

    /// Removes the waits for the job of this ticket, which has ended.
    #[inline]
    pub(super) fn end_joins(&mut self, ticket: u64) {
        // Most pools have no job that waits for another one.
        if self.joins.is_empty() {
            return;
        }
        while let Some(&(_, busy)) =
            self.joins.range((ticket, Busy::FIRST)..=(ticket, Busy::LAST)).next()
        {
            self.leave(ticket, busy);
        }
    }

    /// Removes all waits of a worker that has left its job. What the job made may still wait
    /// elsewhere.
    #[inline]
    pub(super) fn forget(&mut self, busy: Busy) {
        self.workers.remove(&busy);
    }

    #[inline]
    pub(super) fn contains(&self, busy: Busy) -> bool {
        self.workers.contains_key(&busy)
    }

    /// Returns how many workers are blocked.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.workers.len()
    }

    /// Returns how many workers are blocked once the job of this one waits as well.
    #[inline]
    pub(super) fn count_with(&self, busy: Busy) -> usize {
        self.count() + usize::from(!self.contains(busy))
    }
}
