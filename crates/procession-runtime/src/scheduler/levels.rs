//! The queues of the levels beside the normal one: how processes get there, and when a worker takes
//! one (`scheduler/levels.rs` of the protocols).
//!
//! # Order
//!
//! While such a process is queued, a worker stops before each dispatch and decides on the next turn
//! (`levels/turns.rs` of the protocols): high processes first, at most 8 in a row while it finds
//! another one; and one batch process in at most 64 dispatches. The other turns follow the usual
//! order of the search (`scheduler/worker.rs`). Where that order comes to other workers, high
//! processes are before them, and batch processes behind everything. A worker that runs something
//! else while such processes are queued wakes another worker for them.
//!
//! A high process never waits in a LIFO slot, because other workers would not find it there while
//! the step that woke it lasts. A process that is bound to a worker, because it is a coroutine, is
//! local or has an affinity, has its place in the same queues, where only its worker takes it.

use procession_protocols::process::priority::Priority;
use procession_protocols::scheduler::levels::turns::LevelTurn;
use procession_protocols::scheduler::levels::{
    CHAIN_MAX, Changed, Level, ProcessKey, mutation, priority_in,
};
use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};
use procession_sync::atomic::{AtomicU64, fence};

use crate::process::slot::{Ready, Slot};
use crate::scheduler::current;
use crate::scheduler::current::Origin;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::log::WordKind;
use crate::scheduler::shared::Shared;

/// In nanoseconds, how long a worker keeps its permit for batch processes while another worker
/// waits for it. It is long compared to what it takes to wake a thread.
const KEEP_FOR: u64 = 1_000_000;

/// A worker that runs one batch process after another looks at the queues of other workers before
/// one in this many, or before each if its steps are slow.
const SEARCH_EVERY: u32 = 8;

/// Returns a process, as the protocol names it.
pub(super) fn key_of(slot: &Slot) -> ProcessKey {
    (slot.index(), slot.pins.generation())
}

/// Returns the level word of a process, which has one from then on. Called under the lock of the
/// levels.
pub(super) fn begun<'a>(slot: &Slot, word: &'a AtomicU64) -> &'a AtomicU64 {
    if !slot.bound.is_leveled() {
        // It may be the word of an earlier process of the slot.
        word.store(0, Relaxed);
        slot.bound.set_leveled();
    }
    word
}

impl Shared {
    pub(super) fn level_word(&self, slot: &Slot) -> &AtomicU64 {
        self.processes.level_words.entry(slot.index(), self.table().limit())
    }

    /// Returns the priority of a process.
    pub(crate) fn priority(&self, slot: &Slot) -> Priority {
        if !slot.bound.is_leveled() {
            return Priority::Normal;
        }
        // Relaxed: it stands for itself.
        priority_in(self.processes.level_words.get(slot.index()))
    }

    /// Gives a process, which the caller pins, another priority of its own.
    pub(crate) fn set_priority(&self, slot: &Slot, priority: Priority) {
        if priority != Priority::Normal || slot.bound.is_leveled() {
            self.change_priority(slot, Some(priority));
        }
    }

    /// `Change` of the protocol. If the process is queued at one of the levels, it moves. Then the
    /// same for the process to which it has lent its priority, and so on.
    pub(super) fn change_priority(&self, slot: &Slot, own: Option<Priority>) {
        let mut next = self.change_one(slot, own);
        for _ in 0..CHAIN_MAX {
            let Some((index, generation)) = next else { return };
            let Some(slot) = self.table().pin(index, generation) else { return };
            next = self.change_one(&slot, None);
        }
    }

    fn change_one(&self, slot: &Slot, own: Option<Priority>) -> Option<ProcessKey> {
        // Stopped while an entry is in no queue.
        let _stopped = self.stop_clock();
        let word = self.level_word(slot);
        let begin = || begun(slot, word);
        let (changed, next) = self.workforce.levels.change(key_of(slot), own, begin);
        match changed {
            Changed::Later => {}
            Changed::Released(ready) => current::enqueue(ready, Origin::Woken),
            Changed::Moved => {
                self.workforce.levels.light(&self.clock.beacon);
                self.announce_level(slot.bound.worker(), None);
            }
        }
        next
    }

    /// Queues a process that has a level word. Announces nothing.
    ///
    /// # Errors
    /// Returns the entry if its priority is `Normal`.
    pub(crate) fn push_level(&self, ready: Ready) -> Result<(), Ready> {
        let slot = ready.slot();
        self.take_back(slot);
        let (seat, word) = (slot.bound.worker(), self.level_word(slot));
        // From here on the process may run, and end.
        if self.workforce.levels.push(word, seat, ready, || slot.bound.forget_level())? {
            self.workforce.levels.light(&self.clock.beacon);
        }
        Ok(())
    }

    /// Wakes a worker for a process that was queued at a level, for any worker or for the worker in
    /// `seat`. `local` is the worker that this thread is.
    pub(crate) fn announce_level(&self, seat: Option<SeatId>, local: Option<&LocalWorker>) {
        fence(SeqCst);
        match (seat, local) {
            (Some(seat), Some(local)) if seat == local.seat => {}
            (Some(seat), _) => self.workforce.wake_this(seat),
            (None, _) if !self.workforce.has_level() => {}
            // This worker is about to look.
            (None, Some(local)) if !local.step.is_any() => {}
            // A batch step may be long, so a nap is no reason to leave the entry to this worker.
            (None, Some(local))
                if self.workforce.levels.is_alone() && !local.queues.in_batch.get() =>
            {
                self.workforce.announce_own();
            }
            (None, Some(_)) => self.workforce.announce(),
            (None, None) => self.workforce.announce_from_outside(),
        }
    }

    /// Wakes workers for batch processes after a permit for these became free.
    pub(crate) fn announce_batch_permit(&self) {
        let idle = &self.workforce.idle;
        if idle.is_batch_wanted()
            && let Some(seat) = idle.next_for_batch()
        {
            // It may be awake.
            self.workforce.levels.light(&self.clock.beacon);
            self.workforce.wake_this(seat);
        }
        if self.workforce.has_level() {
            self.workforce.announce();
        }
    }
}

impl LocalWorker {
    /// Stops at a dispatch: returns a process if the next turn is one of the levels', or `None` if
    /// the usual search follows.
    pub(crate) fn take_turn(&self) -> Option<Ready> {
        let (levels, state) = (&self.shared.workforce.levels, &self.levels);
        let pace = &self.queues.rings.pace;
        let own = Some(self.seat);
        if state.waits.get() && levels.len(own, Level::Batch) == 0 {
            state.waits.set(false);
            self.shared.workforce.idle.stop_waiting_for_batch(self.seat);
            self.shared.announce_batch_permit();
        }
        if !levels.is_any_lit() && !self.queues.in_batch.get() {
            state.turns.rest();
            if self.shared.world.simulated().is_none() {
                pace.stop_at_none();
            }
            return None;
        }
        pace.stop_at_each();
        let waits = |level| levels.len(None, level) > 0 || levels.len(own, level) > 0;
        let (high, batch) = (waits(Level::High), waits(Level::Batch));
        let may_batch = self.queues.in_batch.get()
            || levels.len(own, Level::Batch) > 0
            || self.shared.workforce.idle.has_batch_permit();
        let found = match state.turns.next(high, batch, may_batch) {
            LevelTurn::High => self.take_high(),
            // Without a permit, the turn goes to the others.
            LevelTurn::Batch => self.take_batch().or_else(|| {
                let next = state.turns.next(high, batch, false);
                if next == LevelTurn::High { self.take_high() } else { None }
            }),
            LevelTurn::Normal => None,
        };
        if found.is_some() {
            return found;
        }
        let found = self.queues.find_local();
        if found.is_some() {
            self.end_batch();
            self.pass_levels();
        }
        found
    }

    /// Wakes another worker for what is queued at the levels, because this one runs something else
    /// next.
    pub(crate) fn pass_levels(&self) {
        let is_told = !mutation::is(mutation::BUILT, mutation::PASS_WITHOUT_WAKE);
        if is_told && self.shared.workforce.has_level() {
            self.shared.workforce.announce_in_sight();
        }
    }

    /// Takes a high process, if there is one.
    pub(crate) fn take_high(&self) -> Option<Ready> {
        let found = self.take_at(Level::High)?;
        self.end_batch();
        self.begin_turn();
        Some(found)
    }

    /// Takes a batch process, if there is one, and a permit for it.
    pub(crate) fn take_batch(&self) -> Option<Ready> {
        let (levels, state) = (&self.shared.workforce.levels, &self.levels);
        let idle = &self.shared.workforce.idle;
        let is_bound = levels.len(Some(self.seat), Level::Batch) > 0;
        if !is_bound && levels.len(None, Level::Batch) == 0 {
            return None;
        }
        if self.queues.in_batch.get()
            && idle.is_batch_wanted()
            && self.shared.world.now().saturating_sub(state.since.get()) >= KEEP_FOR
        {
            self.end_batch();
        }
        if !self.queues.in_batch.get() {
            let begins = idle.begin_batch(self.seat, is_bound);
            state.waits.set(!begins && is_bound);
            if !begins {
                return None;
            }
            self.queues.in_batch.set(true);
            state.since.set(self.shared.world.now());
            if idle.is_batch_wanted() {
                // There may be a permit for one more.
                self.shared.announce_batch_permit();
            }
        }
        // The permit stays until another process is found, or until this worker parks.
        let found = self.take_at(Level::Batch)?;
        state.turns.note_batch();
        state.in_a_row.set(state.in_a_row.get().wrapping_add(1));
        self.queues.rings.pace.stop_at_each();
        self.begin_turn();
        Some(found)
    }

    /// Takes a process of a level. Bound processes and others alternate.
    fn take_at(&self, level: Level) -> Option<Ready> {
        let levels = &self.shared.workforce.levels;
        let (own, any) = (Some(self.seat), None);
        let was_bound = &self.levels.was_bound[level as usize];
        let (first, second) = if was_bound.get() { (any, own) } else { (own, any) };
        let pop = |seat: Option<SeatId>| levels.pop(seat, level).map(|found| (found, seat));
        let (found, seat) = pop(first).or_else(|| pop(second))?;
        was_bound.set(seat.is_some());
        Some(found)
    }

    /// Prepares a step of a process that comes from a level.
    fn begin_turn(&self) {
        self.queues.hand_on();
        self.queues.turn.chain.set(0);
        self.queues.turn.kind.set(WordKind::Step);
        self.pass_levels();
    }

    /// Takes any bound process of a level, while the thread ends its coroutines.
    pub(crate) fn take_bound_level(&self) -> Option<Ready> {
        let levels = &self.shared.workforce.levels;
        levels
            .pop(Some(self.seat), Level::High)
            .or_else(|| levels.pop(Some(self.seat), Level::Batch))
    }

    /// Returns `true` if the worker is to search the queues of other workers before it takes a
    /// batch process.
    pub(crate) fn searches_before_batch(&self) -> bool {
        let state = &self.levels;
        !self.queues.in_batch.get()
            || self.queues.rings.pace.is_slow()
            || state.in_a_row.get().is_multiple_of(SEARCH_EVERY)
    }

    /// Returns the permit for batch processes, if the worker has one, and wakes others for it.
    #[inline]
    pub(crate) fn end_batch(&self) {
        if self.queues.in_batch.get() {
            self.end_batch_now();
        }
    }

    #[cold]
    fn end_batch_now(&self) {
        self.queues.in_batch.set(false);
        self.levels.in_a_row.set(0);
        self.shared.workforce.idle.end_batch(self.seat);
        self.shared.announce_batch_permit();
    }

    /// Before the worker leaves its seat.
    pub(crate) fn leave_levels(&self) {
        self.end_batch();
        if self.levels.waits.take() {
            self.shared.workforce.idle.stop_waiting_for_batch(self.seat);
            self.shared.announce_batch_permit();
        }
    }
}
