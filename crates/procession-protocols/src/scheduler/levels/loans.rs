//! Which processes have lent their priority to which others, as it is under the lock.

use crate::process::priority::Priority;
use crate::util::sorted_map::SortedMap;

/// The number of processes that lend to one another in a row.
pub const CHAIN_MAX: usize = 8;

/// A process: its slot and generation.
pub type ProcessKey = (u32, u32);

/// A priority that a process has lent.
#[derive(Clone, Copy, Debug)]
struct Loan {
    borrower: ProcessKey,
    priority: Priority,
    /// The number of processes that lend to one another up to this one.
    depth: usize,
}

/// All loans.
#[derive(Debug, Default)]
pub(super) struct Loans {
    by_lender: SortedMap<ProcessKey, Loan>,
    /// The number of loans to each borrower, by priority, and their greatest depth since it was 0.
    to_borrowers: SortedMap<(ProcessKey, Priority), (usize, usize)>,
}

impl Loans {
    /// Notes a loan of a process that has lent nothing. Returns `false` if the chain is too long.
    pub(super) fn lend(
        &mut self,
        lender: ProcessKey,
        borrower: ProcessKey,
        priority: Priority,
    ) -> bool {
        let to_lender = |priority| self.to_borrowers.get(&(lender, priority));
        let depth = Priority::ALL.into_iter().filter_map(to_lender).map(|&(_, depth)| depth).max();
        let depth = depth.unwrap_or(0) + 1;
        if depth > CHAIN_MAX {
            return false;
        }
        self.insert(lender, Loan { borrower, priority, depth });
        true
    }

    fn insert(&mut self, lender: ProcessKey, loan: Loan) {
        self.by_lender.insert(lender, loan);
        let (count, depth) = self.to_borrowers.get_or_default((loan.borrower, loan.priority));
        (*count, *depth) = (*count + 1, loan.depth.max(*depth));
    }

    fn remove(&mut self, lender: ProcessKey) -> Option<Loan> {
        let loan = self.by_lender.remove(&lender)?;
        let key = (loan.borrower, loan.priority);
        if let Some((count, _)) = self.to_borrowers.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.to_borrowers.remove(&key);
            }
        }
        Some(loan)
    }

    /// Returns the borrower of a process, if it has lent.
    pub(super) fn borrower_of(&self, lender: ProcessKey) -> Option<ProcessKey> {
        self.by_lender.get(&lender).map(|loan| loan.borrower)
    }

    /// Forgets the loan of a process, and returns the borrower.
    pub(super) fn take_back(&mut self, lender: ProcessKey) -> Option<ProcessKey> {
        self.remove(lender).map(|loan| loan.borrower)
    }

    /// Notes that a lender runs at another priority now. Returns the borrower, if it has lent.
    pub(super) fn lend_again(
        &mut self,
        lender: ProcessKey,
        priority: Priority,
    ) -> Option<ProcessKey> {
        let loan = self.remove(lender)?;
        self.insert(lender, Loan { priority, ..loan });
        Some(loan.borrower)
    }

    /// Returns the priority at which a process runs.
    pub(super) fn priority_of(&self, process: ProcessKey, own: Priority) -> Priority {
        let is_lent = |priority: &Priority| self.to_borrowers.contains_key(&(process, *priority));
        Priority::ALL.into_iter().filter(is_lent).max().unwrap_or(own).max(own)
    }
}
