//! What workers record. Nothing here reads a clock, except while events carry
//! times.

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::process::slot::Slot;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::log::word::{EventWord, WordKind};
use crate::sys::World;

impl LocalWorker {
    /// Records an event of this worker.
    #[inline]
    pub(crate) fn record(&self, word: EventWord) {
        if !self.ring.try_push(word.0) {
            self.record_with_time(word);
        }
    }

    #[cold]
    #[inline(never)]
    fn record_with_time(&self, word: EventWord) {
        if self.ring.is_fine() {
            self.ring.push(EventWord::of_time(WordKind::Stamp, stamp(&self.shared.world)).0);
            self.ring.push(word.0);
        }
    }

    /// Records that a step begins. `step` is its number.
    #[inline]
    pub(crate) fn record_step(&self, slot: &Slot, step: u32) {
        let (kind, generation) = (self.step.kind.get(), slot.pins.generation());
        self.record(EventWord::of_step(kind, slot.index(), generation, step));
    }

    /// Records that the running step starts a process.
    #[inline]
    pub(crate) fn record_spawn(&self, slot: &Slot) {
        let generation = slot.pins.generation();
        self.record(EventWord::of_step(WordKind::Spawn, slot.index(), generation, 1));
    }

    /// Records that a process is made ready.
    #[inline]
    pub(crate) fn record_ready(&self, kind: WordKind, slot: &Slot) {
        // Relaxed: the event that made the process ready is ordered after its last step.
        let step = slot.steps.load(Relaxed).wrapping_add(1);
        self.record(EventWord::of_step(kind, slot.index(), slot.pins.generation(), step));
    }

    /// Records that the running step, or the last one, made a process ready that does not run next.
    #[inline(never)]
    pub(crate) fn record_wake(&self, slot: &Slot) {
        self.record_ready(WordKind::Wake, slot);
    }

    /// Records that the running process calls another one, if that belongs to this scheduler.
    pub(crate) fn record_call(&self, callee: Pid) {
        if (callee.node(), callee.scheduler()) == (0, self.shared.id()) {
            self.record(EventWord::of_step(WordKind::Call, callee.slot(), callee.generation(), 0));
        }
    }

    /// Records the end of the process that ran the last step.
    #[inline]
    pub(crate) fn record_end(&self, slot: &Slot, is_failure: bool) {
        let place = self.core.places.number(&self.shared.recorder.places, slot.location());
        let kind = if is_failure { WordKind::Fail } else { WordKind::End };
        self.record(EventWord::new(kind, place, slot.index()));
    }

    /// Records that processes were taken from another seat, with this one first.
    pub(crate) fn record_steal(&self, from: SeatId, first: &Slot) {
        self.record(EventWord::new(WordKind::Steal, from.0, first.index()));
    }

    /// Records an event that has no process.
    pub(crate) fn record_plain(&self, kind: WordKind, count: u32) {
        self.record(EventWord::new(kind, 0, count));
    }

    /// Records a reading of the clock, which the worker made anyway.
    pub(crate) fn record_clock(&self, now: u64) {
        // Ignored: if the ring is fine, each event has its time.
        let _ = self.ring.try_push(EventWord::of_time(WordKind::Clock, now).0);
    }
}

/// Returns the number that stands for the present time in a `Stamp`.
pub(crate) fn stamp(world: &World) -> u64 {
    world.cycles().unwrap_or_else(|| world.now())
}
