//! Lending: a process that waits for another one lends it its priority.
//!
//! # Rule
//!
//! While a process waits for the reply to a call, or for a lock, the process that it calls or that
//! holds the lock runs at least at the priority of the waiting process. If that process waits as
//! well, it lends what it has borrowed, and so on, for at most eight processes. Other waits lend
//! nothing, because the runtime does not know what ends them, or because no hurry is needed: for
//! the end of a process, room in a mailbox, a channel, a permit of a semaphore, or the readers of a
//! lock.
//!
//! The loan ends when the waiting process is queued, whatever the reason: a reply, the lock, a
//! timeout, a cancel, the end of the other process. It also ends when the future that waits is
//! dropped, at the latest with its process. A process that is woken and must wait again lends
//! again. So nobody lends for another process: a borrower that waits itself is woken once. So are,
//! when a lock is released, the processes that have lent through it, and the processes in its line
//! above the priority of the next holder.
//!
//! The words and the counts are those of `scheduler/levels.rs` of the protocols. A program in which
//! all processes are `Normal` does not come here.
//!
//! # Allowed
//!
//! - A process that waits for several others at once lends to the first. If two of its waits are
//!   for the same process, the loan ends with the first of the two that is given up.
//! - A future that chooses what it polls, such as a `join!`, may be woken for another of its parts.
//!   Then nothing is lent for the parts that it does not poll.
//! - A process that waits already when its priority, or the priority of the process that it waits
//!   for, is set lends nothing more.
//! - The depth of a chain is the greatest since its borrower last had no lender, so processes that
//!   always have lenders may lend to fewer than eight.
//! - Processes that wait for one another in a cycle keep what was lent to one of them until one is
//!   woken.
//!
//! # Rejected
//! - To note every wait of a program with priorities: two critical sections for each call.
//! - A guard in each future that waits: eight bytes more for each call and each lock.
//! - To lend for a borrower that waits: its wait may end at the same moment, and only its own step
//!   knows whether it has.

use procession_protocols::process::priority::Priority;
use procession_protocols::scheduler::levels::{ProcessKey, lends_in, own_in};
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::fence;

use crate::process::slot::{Slot, SlotRef};
use crate::process::wait_reason::{WaitTarget, Waiting};
use crate::process::wake::wake;
use crate::scheduler::current;
use crate::scheduler::levels::{begun, key_of};
use crate::scheduler::shared::Shared;

/// Ends what the running process has lent to the process that it gives up to wait for.
pub(crate) fn take_back_loan(from: WaitTarget) {
    current::with_current(|slot| {
        if slot.bound.is_leveled() {
            slot.shared().take_back_from(slot, from);
        }
    });
}

/// Returns the priority that the running process lends while it waits, or `None` if it lends
/// nothing: all processes are `Normal`, or its step blocks.
pub(crate) fn lending_priority() -> Option<Priority> {
    let mut priority = None;
    if current::is_worker() {
        current::with_current(|slot| priority = slot.shared().lending_priority(slot));
    }
    priority
}

impl Shared {
    /// `Lend`, by the running process, which has noted that it waits for `target`. Returns `true`
    /// if it has lent something.
    pub(super) fn lend(&self, slot: &Slot, waiting: Waiting, target: WaitTarget) -> bool {
        if !waiting.has(Waiting::LENDING) || !self.processes.level_words.is_set() {
            return false;
        }
        // Pairs with the fence below: this process sees what it has borrowed, or its lender sees
        // that it waits.
        fence(SeqCst);
        let Some(borrower) = self.lend_to(slot, target) else { return false };
        let before = self.priority(&borrower);
        self.change_priority(&borrower, None);
        fence(SeqCst);
        // Relaxed: the fences order it.
        let lends = lends_in(self.level_word(&borrower).load(Relaxed));
        if self.priority(&borrower) > before
            && borrower.waiting.get().has(Waiting::LENDING)
            && !lends
        {
            // It may have had nothing to lend when its wait began.
            wake(&borrower);
        }
        true
    }

    /// Lends the priority of one process to another one, if that is higher than its own. Returns
    /// the borrower.
    fn lend_to(&self, slot: &Slot, target: WaitTarget) -> Option<SlotRef> {
        let (index, generation) = target.slot()?;
        let borrower = self.table().pin(index, generation.get())?;
        let is_higher = self.priority(slot) > self.own_priority(&borrower);
        if !is_higher || key_of(&borrower) == key_of(slot) {
            return None;
        }
        let word = self.level_word(slot);
        let lends =
            self.workforce.levels.lend(key_of(slot), key_of(&borrower), || begun(slot, word));
        lends.then_some(borrower)
    }

    /// Returns the priority of the running process, if there may be a process of another priority.
    pub(super) fn lending_priority(&self, slot: &Slot) -> Option<Priority> {
        self.processes.level_words.is_set().then(|| self.priority(slot))
    }

    /// `TakeBack`: the process is queued, so none of its waits lasts.
    #[inline]
    pub(crate) fn take_back(&self, slot: &Slot) {
        if slot.bound.is_leveled() {
            self.take_back_leveled(slot, None);
        }
    }

    /// `TakeBack`: the process no longer waits for this one. It may still wait for others, and have
    /// lent to one of them.
    pub(super) fn take_back_from(&self, slot: &Slot, borrower: WaitTarget) {
        if let Some((index, generation)) = borrower.slot() {
            self.take_back_leveled(slot, Some((index, generation.get())));
        }
    }

    fn take_back_leveled(&self, slot: &Slot, from: Option<ProcessKey>) {
        let word = self.level_word(slot);
        // Relaxed: the process itself has set it, before whatever ends its wait.
        if !lends_in(word.load(Relaxed)) {
            return;
        }
        if let Some((index, generation)) = self.workforce.levels.take_back(key_of(slot), word, from)
            && let Some(borrower) = self.table().pin(index, generation)
        {
            self.change_priority(&borrower, None);
        }
    }

    /// Returns `true` if a process has lent its priority.
    #[cfg(feature = "sim")]
    pub(crate) fn lends(&self, slot: &Slot) -> bool {
        slot.bound.is_leveled() && lends_in(self.processes.level_words.get(slot.index()))
    }

    /// Returns `true` if a process runs at the highest of its own priority and the priorities that
    /// are lent to it.
    #[cfg(feature = "sim")]
    pub(crate) fn has_due_priority(&self, slot: &Slot) -> bool {
        let own = self.own_priority(slot);
        self.priority(slot) == self.workforce.levels.priority_of(key_of(slot), own)
    }

    /// Returns the priority by which a ready process has its turn. A process in a ring has its turn
    /// there, whatever its priority is now.
    #[cfg(feature = "sim")]
    pub(crate) fn queued_priority(&self, slot: &Slot) -> Priority {
        let word = || self.processes.level_words.get(slot.index());
        match self.priority(slot) {
            Priority::High if !self.workforce.levels.has_entry(word()) => Priority::Normal,
            priority => priority,
        }
    }

    /// Returns the priority of a process itself.
    fn own_priority(&self, slot: &Slot) -> Priority {
        if !slot.bound.is_leveled() {
            return Priority::Normal;
        }
        // Relaxed: it stands for itself.
        own_in(self.processes.level_words.get(slot.index()))
    }
}
