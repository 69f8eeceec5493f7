//! The jobs that wait for a worker.

use std::collections::VecDeque;

/// The number of holes, beyond the number of jobs, at which the queue is compacted.
pub(super) const HOLES_MAX: usize = 64;

/// Jobs in the order of their tickets.
#[derive(Debug)]
pub(super) struct JobQueue<J> {
    /// A withdrawn job leaves a hole, so that the others keep their order.
    pub(super) entries: VecDeque<(u64, Option<J>)>,
    pub(super) jobs: usize,
}

impl<J> JobQueue<J> {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), jobs: 0 }
    }

    pub(super) fn push(&mut self, ticket: u64, job: J) {
        self.entries.push_back((ticket, Some(job)));
        self.jobs += 1;
    }

    pub(super) fn pop(&mut self) -> Option<(u64, J)> {
        while let Some((ticket, job)) = self.entries.pop_front() {
            if let Some(job) = job {
                self.jobs -= 1;
                return Some((ticket, job));
            }
        }
        None
    }

    pub(super) fn withdraw(&mut self, ticket: u64) -> Option<J> {
        let place = self.entries.binary_search_by_key(&ticket, |entry| entry.0).ok()?;
        let job = self.entries[place].1.take()?;
        self.jobs -= 1;
        if self.entries.len() > 2 * self.jobs + HOLES_MAX {
            self.entries.retain(|entry| entry.1.is_some());
        }
        Some(job)
    }
}
