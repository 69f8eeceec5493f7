//! The places that jobs lend to the queued jobs that they wait for.

use std::collections::VecDeque;

use crate::util::sorted_map::{SortedMap, SortedSet};

use super::busy::{Busy, Lender};
use super::queue::JobQueue;

/// The waits of a lender for jobs of this pool, and the job to which it has lent its place.
#[derive(Debug, Default)]
struct Waits {
    /// The tickets of the jobs that it waits for, and that were queued when the wait began.
    awaited: VecDeque<u64>,
    /// The job that runs in its place, until that job ends.
    borrower: Option<u64>,
}

/// The jobs that wait for queued jobs of this pool. Each lends its place to one job at a time.
#[derive(Debug)]
pub(super) struct Loans {
    lenders: SortedMap<Lender, Waits>,
    /// The lenders that wait and have no borrower. The jobs that they wait for are held, or their
    /// worker was refused.
    wanting: SortedSet<Lender>,
    /// The tickets of the jobs that run in a lent place, each with its lender.
    borrowers: SortedMap<u64, Lender>,
}

impl Loans {
    pub(super) fn new() -> Self {
        Self { lenders: SortedMap::new(), wanting: SortedSet::new(), borrowers: SortedMap::new() }
    }

    /// Returns the number of places that are lent.
    #[inline]
    pub(super) fn lent(&self) -> usize {
        self.borrowers.len()
    }

    /// Notes that this lender waits for a queued job.
    pub(super) fn ask(&mut self, lender: Lender, ticket: u64) {
        self.lenders.get_or_default(lender).awaited.push_back(ticket);
        self.sort(lender);
    }

    /// Returns the next job that is ready and for which a place is lent, and its lender. This is
    /// the awaited job, or the job that has the turn of its key.
    pub(super) fn next<J>(&mut self, queue: &JobQueue<J>) -> Option<(Lender, u64)> {
        for lender in &self.wanting {
            let waits = self.lenders.get_mut(lender).expect("a lender that wants is known");
            while waits.awaited.front().is_some_and(|ticket| !queue.contains(*ticket)) {
                waits.awaited.pop_front();
            }
            let mut awaited = waits.awaited.iter();
            if let Some(ticket) = awaited.find_map(|ticket| queue.ready_for(*ticket)) {
                return Some((*lender, ticket));
            }
        }
        None
    }

    /// Notes that a job begins in a lent place.
    #[inline]
    pub(super) fn begin(&mut self, lender: Lender, ticket: u64) {
        if let Some(waits) = self.lenders.get_mut(&lender) {
            waits.borrower = Some(ticket);
            self.borrowers.insert(ticket, lender);
            self.sort(lender);
        }
    }

    /// Notes that a job has ended.
    #[inline]
    pub(super) fn end(&mut self, ticket: u64) {
        // Most jobs wait for no other.
        if self.lenders.is_empty() {
            return;
        }
        let own = Lender::Own(Busy::with_job(ticket));
        self.wanting.remove(&own);
        let borrower = self.lenders.remove(&own).and_then(|waits| waits.borrower);
        let lender = self.borrowers.remove(&ticket);
        // The job that runs in its place stays there, and the place may be a lent one itself.
        if let Some(borrower) = borrower {
            self.borrowers.remove(&borrower);
            self.borrowers.extend(lender.map(|lender| (borrower, lender)));
        }
        if let Some(lender) = lender
            && let Some(waits) = self.lenders.get_mut(&lender)
        {
            waits.borrower = borrower;
            self.take_back(lender, ticket);
        }
    }

    /// Notes that a job does not wait for the job of `ticket` any more. If that job runs in the
    /// lent place, it does so until it ends.
    pub(super) fn take_back(&mut self, lender: Lender, ticket: u64) {
        if let Some(waits) = self.lenders.get_mut(&lender) {
            if let Some(place) = waits.awaited.iter().position(|awaited| *awaited == ticket) {
                waits.awaited.remove(place);
            }
            self.sort(lender);
        }
    }

    /// Returns `true` if a job waits for this one and for no other.
    #[inline]
    pub(super) fn awaits_only(&self, lender: Lender, ticket: u64) -> bool {
        self.lenders
            .get(&lender)
            .is_some_and(|waits| waits.awaited.iter().all(|awaited| *awaited == ticket))
    }

    /// Notes that a job waits for no other, whatever it has awaited.
    pub(super) fn forget(&mut self, lender: Lender) {
        if let Some(waits) = self.lenders.get_mut(&lender) {
            waits.awaited.clear();
            self.sort(lender);
        }
    }

    /// Notes whether this lender wants a borrower, and forgets the lender if it has no borrower and
    /// waits for no job.
    fn sort(&mut self, lender: Lender) {
        let Some(waits) = self.lenders.get(&lender) else { return };
        if waits.borrower.is_none() && !waits.awaited.is_empty() {
            self.wanting.insert(lender);
            return;
        }
        self.wanting.remove(&lender);
        if waits.borrower.is_none() {
            self.lenders.remove(&lender);
        }
    }
}
