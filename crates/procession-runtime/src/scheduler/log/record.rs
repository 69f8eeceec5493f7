//! What workers record. Nothing here reads a clock, except while events carry
//! times.

use std::sync::Arc;

use procession_protocols::recorder::ring::EventRing;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::process::slot::Slot;
use crate::scheduler::log::{EventWord, PlaceCache, WordKind};
use crate::scheduler::shared::Shared;
use crate::sys::World;

/// What a worker writes its events with. A copy is for another part of the same worker, since only
/// its thread may write.
#[derive(Clone)]
pub(crate) struct WorkerLog {
    shared: Arc<Shared>,
    /// The ring of the seat.
    ring: Arc<EventRing>,
}

impl WorkerLog {
    /// Returns the log of the worker that takes the seat.
    pub(crate) fn new(shared: &Arc<Shared>, seat: SeatId) -> Self {
        let is_extra = seat.0 >= shared.workforce.seats.first();
        let place = &shared.workforce.seat(seat).ring;
        let ring = shared.recorder.ring(place, is_extra, || shared.world.now());
        Self { shared: Arc::clone(shared), ring }
    }

    /// Records an event of this worker.
    #[inline]
    fn record(&self, word: EventWord) {
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

    /// Records that a step begins: `Step` or `NextStep`. `step` is its number.
    #[inline]
    pub(crate) fn step(&self, kind: WordKind, slot: &Slot, step: u32) {
        self.record(EventWord::of_step(kind, slot.index(), slot.pins.generation(), step));
    }

    /// Records that the running step starts a process.
    #[inline]
    pub(crate) fn spawn(&self, slot: &Slot) {
        let generation = slot.pins.generation();
        self.record(EventWord::of_step(WordKind::Spawn, slot.index(), generation, 1));
    }

    /// Records that a process is made ready.
    #[inline]
    pub(crate) fn ready(&self, kind: WordKind, slot: &Slot) {
        // Relaxed: the event that made the process ready is ordered after its last step.
        let step = slot.steps.load(Relaxed).wrapping_add(1);
        self.record(EventWord::of_step(kind, slot.index(), slot.pins.generation(), step));
    }

    /// Records that the running step, or the last one, made a process ready that does not run next.
    #[inline(never)]
    pub(crate) fn wake(&self, slot: &Slot) {
        self.ready(WordKind::Wake, slot);
    }

    /// Records that the running process calls another process, if that process belongs to this
    /// scheduler.
    pub(crate) fn call(&self, callee: Pid) {
        if (callee.node(), callee.scheduler()) == (0, self.shared.id()) {
            self.record(EventWord::of_step(WordKind::Call, callee.slot(), callee.generation(), 0));
        }
    }

    /// Records the end of the process that ran the last step.
    #[inline]
    pub(crate) fn end(&self, places: &PlaceCache, slot: &Slot, is_failure: bool) {
        let place = places.number(&self.shared.recorder.places, slot.location());
        let kind = if is_failure { WordKind::Fail } else { WordKind::End };
        self.record(EventWord::new(kind, place, slot.index()));
    }

    /// Records that processes were taken from another seat, with this one first.
    pub(crate) fn steal(&self, from: SeatId, first: &Slot) {
        self.record(EventWord::new(WordKind::Steal, from.0, first.index()));
    }

    /// Records an event that has no process.
    pub(crate) fn plain(&self, kind: WordKind, count: u32) {
        self.record(EventWord::new(kind, 0, count));
    }

    /// Records a reading of the clock, which the worker made anyway.
    pub(crate) fn clock(&self, now: u64) {
        // Ignored: if the ring is fine, each event has its time.
        let _ = self.ring.try_push(EventWord::of_time(WordKind::Clock, now).0);
    }
}

/// Returns the number that stands for the present time in a `Stamp`.
pub(crate) fn stamp(world: &World) -> u64 {
    world.cycles().unwrap_or_else(|| world.now())
}
