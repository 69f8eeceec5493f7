//! Busy workers, as those are known that wait in their jobs.

use std::collections::BTreeMap;

use procession_sync::Arc;

use super::seat::Seat;

/// A busy worker. Of those that park, a later one may have the same, when this one has left: what its jobs left waiting elsewhere then counts as
/// if that one's waited, as it did for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Busy(u64);

impl Busy {
    /// Of the workers that park, the one in this seat.
    pub(crate) fn in_seat<J>(seat: &Arc<Seat<J>>) -> Self {
        Self(Arc::as_ptr(seat).addr() as u64)
    }

    /// Of those that rest, the one that has this job.
    pub(crate) fn with_job(ticket: u64) -> Self {
        Self(ticket)
    }
}

/// The workers whose jobs wait for their own pool.
#[derive(Debug)]
pub(super) struct Blocked {
    /// Busy workers whose job can go on only when another of this pool has ended, and how often it waits.
    workers: BTreeMap<Busy, u32>,
    /// Jobs that a job of this pool waits for, by ticket, and the worker of that one.
    joins: Vec<(u64, Busy)>,
}

impl Blocked {
    pub(super) fn new() -> Self {
        Self { workers: BTreeMap::new(), joins: Vec::new() }
    }

    pub(super) fn block(&mut self, busy: Busy) {
        *self.workers.entry(busy).or_default() += 1;
    }

    /// A worker that rests is not found if the job has ended.
    pub(super) fn unblock(&mut self, busy: Busy) {
        if let Some(waits) = self.workers.get_mut(&busy) {
            *waits -= 1;
            if *waits == 0 {
                self.workers.remove(&busy);
            }
        }
    }

    /// The job of this worker waits for the job of this ticket.
    pub(super) fn join(&mut self, ticket: u64, busy: Busy) {
        self.block(busy);
        self.joins.push((ticket, busy));
    }

    /// The job of this ticket has ended: those that wait for it go on.
    pub(super) fn end_joins(&mut self, ticket: u64) {
        while let Some(place) = self.joins.iter().position(|join| join.0 == ticket) {
            let (_, busy) = self.joins.swap_remove(place);
            self.unblock(busy);
        }
    }

    /// The worker has left its job: what that made may still wait, elsewhere.
    pub(super) fn forget(&mut self, busy: Busy) {
        self.workers.remove(&busy);
    }

    /// How many workers are blocked, once the job of this one waits, too.
    pub(super) fn count_with(&self, busy: Busy) -> usize {
        self.workers.len() + usize::from(!self.workers.contains_key(&busy))
    }
}
