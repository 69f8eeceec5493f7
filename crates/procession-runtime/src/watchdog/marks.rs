//! What the watchdog records.

use std::sync::Arc;

use procession_protocols::recorder::ring::EventRing;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::scheduler::log::{EventWord, WordKind};
use crate::scheduler::shared::Shared;

/// The part of the watchdog that records.
pub(crate) struct Marks {
    ring: Arc<EventRing>,
    /// The position of the ring of each seat at the last look.
    seen: Vec<u64>,
}

impl Marks {
    /// Creates the marks of the watchdog. Its thread calls this.
    pub(crate) fn new(shared: &Shared) -> Self {
        let recorder = &shared.recorder;
        let ring = recorder.ring(&recorder.watchdog, false, || shared.world.now());
        Self { ring, seen: Vec::new() }
    }

    /// Records the time, what each worker runs, and how far each worker has come that is in a step
    /// or has moved since the last look.
    pub(crate) fn mark(&mut self, shared: &Shared, now: u64) {
        if !shared.recorder.is_on() {
            return;
        }
        self.push(EventWord::of_time(WordKind::Clock, now));
        let reach = shared.workforce.idle.reach();
        self.seen.resize(reach as usize, 0);
        for number in 0..reach {
            let Some(seat) = shared.workforce.seats.made(SeatId(number)) else { continue };
            let Some(ring) = seat.ring.get() else { continue };
            let position = ring.position();
            let before = std::mem::replace(&mut self.seen[number as usize], position);
            // Relaxed, both: a step that begins or ends now is marked at the next look, or its
            // sample counts for the process before.
            let is_in_step = seat.step.load(Relaxed) % 2 == 1;
            if before != position || is_in_step {
                self.push(EventWord::new(WordKind::Position, number, position as u32));
            }
            let running = seat.running.load(Relaxed).checked_sub(1).filter(|_| is_in_step);
            if let Some(slot) = running.and_then(|index| shared.table().slot(index)) {
                let (index, generation) = (slot.index(), slot.pins.generation());
                self.push(EventWord::of_step(WordKind::Sample, index, generation, 0));
            }
        }
        let queued = shared.workforce.queues.len()
            + shared.workforce.all_seats().map(|seat| seat.queues.len()).sum::<usize>();
        self.push(EventWord::new(WordKind::Queued, 0, u32::try_from(queued).unwrap_or(u32::MAX)));
        self.push(EventWord::new(WordKind::Awake, 0, shared.workforce.idle.counts().1));
        self.push(EventWord::new(WordKind::Sent, 0, shared.totals(|stats| &stats.sent) as u32));
    }

    /// Records that a step is stalled.
    pub(crate) fn stall(&self, seat: SeatId, slot: u32) {
        self.push(EventWord::new(WordKind::Stall, seat.0, slot));
    }

    fn push(&self, word: EventWord) {
        self.ring.push(word.0);
    }
}
