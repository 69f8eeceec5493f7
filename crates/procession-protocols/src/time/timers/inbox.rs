//! `Push` and `Fetch`: changes without the lock, and how the lock's holder settles them.

use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::fence;

use super::heap::NEVER;
use super::slot::{ResetBegun, SettledSlot, TimerSlot};
use super::{EMPTY, Ledger, PORTION, Rearmed, TimerId, Timers, mutation};

impl<A, const MUTATION: u8> Timers<A, MUTATION> {
    /// Deletes a timer without the lock.
    #[cold]
    pub(super) fn delete_apart(&self, id: TimerId) -> Option<A> {
        let slot = self.table.get(id.slot)?;
        let ended = slot.cancel_apart(id.generation)?;
        // Relaxed: a statistic.
        self.outside.0.cancelled.fetch_add(1, Relaxed);
        if slot.end_taking() {
            self.push(id.slot, slot);
        }
        if !mutation::is(MUTATION, mutation::DELETE_WITHOUT_FENCE) {
            // *Room*
            fence(SeqCst);
        }
        drop(ended.spare);
        Some(ended.action)
    }

    /// Changes the deadline of a timer without the lock.
    #[cold]
    pub(super) fn reset_apart(&self, id: TimerId, when: u64) -> Option<Rearmed> {
        let slot = self.table.get(id.slot)?;
        match slot.begin_reset(id.generation) {
            ResetBegun::Yes => {}
            ResetBegun::Overtaken => return Some(Rearmed { earliest: false }),
            ResetBegun::Stale => return None,
        }
        let must_push = slot.end_reset(when);
        // Ordering: Release pairs with the Acquire of `Raise`; a thread that raises `early` finds
        // the slot in the inbox.
        let lower = || self.outside.0.early.fetch_min(when, Release);
        if mutation::is(MUTATION, mutation::LOWER_BEFORE_PUSH) {
            lower();
        }
        if must_push {
            self.push(id.slot, slot);
        }
        if !mutation::is(MUTATION, mutation::LOWER_BEFORE_PUSH) {
            lower();
        }
        if !mutation::is(MUTATION, mutation::RESET_WITHOUT_FENCE) {
            // *Room*
            fence(SeqCst);
        }
        // `earliest` does not help: a sleeper may have read a later `earliest` than this thread
        // would.
        Some(Rearmed { earliest: true })
    }

    /// Settles the whole inbox, 64 entries under each hold of the lock. Returns the number of
    /// entries.
    ///
    /// # Blocking
    /// Waits for the lock.
    pub fn adjust(&self) -> u32 {
        let mut settled = 0;
        // Bounded, even if other threads fill the inbox as fast: by then every slot was there once.
        for _ in 0..=self.limit / PORTION {
            let portion = self.settle_some(&mut self.lock());
            settled += portion;
            if portion < PORTION {
                break;
            }
        }
        settled
    }

    /// `Push`: puts a slot into the inbox. The caller has set `QUEUED`.
    pub(super) fn push(&self, number: u32, slot: &TimerSlot<A, MUTATION>) {
        let inbox = &self.outside.0.inbox;
        let link = number + 1;
        let mut newest = inbox.load(Relaxed);
        loop {
            // Relaxed: released by the compare-and-swap that follows.
            slot.next.store(newest, Relaxed);
            if mutation::is(MUTATION, mutation::PUSH_WITHOUT_CAS) {
                inbox.store(link, Release);
                return;
            }
            // Ordering: Release pairs with the Acquire of `Fetch`; makes the link visible. Relaxed
            // on failure: the value is only linked to.
            match inbox.compare_exchange_weak(newest, link, Release, Relaxed) {
                Ok(_) => return,
                Err(now) => newest = now,
            }
        }
    }

    /// Settles at most 64 entries that visitors have left. Returns the number.
    #[inline]
    pub(super) fn settle_some(&self, ledger: &mut Ledger) -> u32 {
        let outside = &self.outside.0;
        // Relaxed: an entry that is not visible yet is left for the next call.
        let left = ledger.backlog != EMPTY
            || outside.inbox.load(Relaxed) != EMPTY
            || outside.early.load(Relaxed) != NEVER;
        if left { self.settle_portion(ledger) } else { 0 }
    }

    #[cold]
    pub(super) fn settle_portion(&self, ledger: &mut Ledger) -> u32 {
        let mut settled = 0;
        while settled < PORTION {
            if ledger.backlog == EMPTY {
                self.fetch(ledger);
            }
            let Some(number) = ledger.backlog.checked_sub(1) else { break };
            let slot = self.slot(number);
            // Relaxed: acquired by `Fetch`. This load is before `Unqueue`, after which the slot may
            // be pushed again.
            ledger.backlog = slot.next.load(Relaxed);
            let planted =
                mutation::is(MUTATION, mutation::READ_BEFORE_UNQUEUE).then(|| slot.when());
            match slot.unqueue() {
                SettledSlot::Pending => {
                    self.place(ledger, number, slot, planted.unwrap_or_else(|| slot.when()));
                }
                SettledSlot::Ended { is_free } => {
                    ledger.heap.remove(number);
                    if is_free {
                        ledger.free.push(number);
                    }
                }
            }
            settled += 1;
        }
        if ledger.backlog == EMPTY {
            ledger.floor = NEVER;
        }
        self.publish(ledger);
        settled
    }

    /// `Fetch`: takes over the inbox and the value of `early`. The backlog is empty.
    pub(super) fn fetch(&self, ledger: &mut Ledger) {
        let outside = &self.outside.0;
        ledger.floor = NEVER;
        // Relaxed: acquired by the compare-and-swap that follows.
        let mut early = outside.early.load(Relaxed);
        // The number of rounds is bounded by the number of times that other threads lower it.
        while early != NEVER {
            ledger.floor = early;
            if !mutation::is(MUTATION, mutation::RAISE_WITHOUT_LOWERING) {
                self.publish(ledger);
            }
            // Ordering (`Raise`): Release pairs with the Acquire of `next`, as described there.
            // Acquire pairs with the Release of `Lower`; the slot that it was lowered for is in the
            // inbox.
            match outside.early.compare_exchange(early, NEVER, AcqRel, Relaxed) {
                Ok(_) => break,
                Err(now) => early = now,
            }
        }
        // Ordering: Acquire pairs with the Release of `Push`, of every push in the list: their
        // changes form one release sequence.
        ledger.backlog = outside.inbox.swap(EMPTY, Acquire);
    }
}
