//! The places that jobs lend to the queued jobs that they wait for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::busy::Busy;
use super::queue::JobQueue;

/// A job that waits for other jobs of its pool.
#[derive(Debug, Default)]
struct Lender {
    /// The tickets of the jobs that it waits for, and that were queued when the wait began.
    awaited: VecDeque<u64>,
    /// The job that runs in its place.
    borrower: Option<u64>,
}

/// The jobs that wait for queued jobs of their pool. Each lends its place to one of them at a time.
#[derive(Debug)]
pub(super) struct Loans {
    lenders: BTreeMap<Busy, Lender>,
    /// The lenders without a borrower. The jobs that they wait for are held, or their worker was
    /// refused.
    wanting: BTreeSet<Busy>,
    /// The tickets of the jobs that run in a lent place, each with its lender.
    borrowers: BTreeMap<u64, Busy>,
}

impl Loans {
    pub(super) fn new() -> Self {
        Self { lenders: BTreeMap::new(), wanting: BTreeSet::new(), borrowers: BTreeMap::new() }
    }

    /// Returns the number of places that are lent.
    pub(super) fn lent(&self) -> usize {
        self.borrowers.len()
    }

    /// Notes that the job of this worker waits for a queued job. Returns `true` if the worker waits
    /// for no other.
    pub(super) fn ask(&mut self, lender: Busy, ticket: u64) -> bool {
        let is_new = !self.lenders.contains_key(&lender);
        let waits = self.lenders.entry(lender).or_default();
        waits.awaited.push_back(ticket);
        if waits.borrower.is_none() {
            self.wanting.insert(lender);
        }
        is_new
    }

    /// Returns the next job that is ready and for which a place is lent, and its lender.
    pub(super) fn next<J>(&mut self, queue: &JobQueue<J>) -> Option<(Busy, u64)> {
        for lender in &self.wanting {
            let waits = self.lenders.get_mut(lender).expect("a lender that wants is known");
            while waits.awaited.front().is_some_and(|ticket| !queue.contains(*ticket)) {
                waits.awaited.pop_front();
            }
            let mut awaited = waits.awaited.iter().copied();
            if let Some(ticket) = awaited.find(|ticket| queue.has_ready(*ticket)) {
                return Some((*lender, ticket));
            }
        }
        None
    }

    /// Notes that a job begins in a lent place.
    pub(super) fn begin(&mut self, lender: Busy, ticket: u64) {
        if let Some(waits) = self.lenders.get_mut(&lender) {
            waits.borrower = Some(ticket);
            self.wanting.remove(&lender);
            self.borrowers.insert(ticket, lender);
        }
    }

    /// Ends the loan of a job, whatever the job waits for.
    pub(super) fn forget(&mut self, lender: Busy) {
        if let Some(waits) = self.lenders.remove(&lender) {
            self.wanting.remove(&lender);
            if let Some(borrower) = waits.borrower {
                self.borrowers.remove(&borrower);
            }
        }
    }

    /// Returns `true` if a job waits for this one and for no other.
    pub(super) fn awaits_only(&self, lender: Busy, ticket: u64) -> bool {
        self.lenders
            .get(&lender)
            .is_some_and(|waits| waits.awaited.iter().all(|awaited| *awaited == ticket))
    }

    /// Notes that a job has ended. Returns its lender, if the lender waits for nothing any more.
    #[must_use]
    pub(super) fn end(&mut self, ticket: u64) -> Option<Busy> {
        // Most jobs wait for no other.
        if self.lenders.is_empty() {
            return None;
        }
        // A lender that ends leaves its place to the job that runs there.
        self.forget(Busy::with_job(ticket));
        let lender = *self.borrowers.get(&ticket)?;
        self.take_back(lender, ticket)
    }

    /// Notes that a job does not wait for another one any more. Returns the lender, if it waits for
    /// nothing any more.
    #[must_use]
    pub(super) fn take_back(&mut self, lender: Busy, ticket: u64) -> Option<Busy> {
        let waits = self.lenders.get_mut(&lender)?;
        if let Some(place) = waits.awaited.iter().position(|awaited| *awaited == ticket) {
            waits.awaited.remove(place);
        }
        if waits.borrower == Some(ticket) {
            waits.borrower = None;
            self.borrowers.remove(&ticket);
            self.wanting.insert(lender);
        }
        if waits.awaited.is_empty() && waits.borrower.is_none() {
            self.lenders.remove(&lender);
            self.wanting.remove(&lender);
            return Some(lender);
        }
        None
    }
}
