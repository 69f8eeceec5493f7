//! The search for work in what all workers share, and in the queues of other workers.

use procession_protocols::scheduler::seat_id::SeatId;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::scheduler::local::{LocalWorker, NEXT_AGE, ROUNDS, SeenNext};
use crate::scheduler::log::WordKind;

impl LocalWorker {
    /// Looks at the global queue, timers, descriptors and other workers.
    pub(crate) fn find_shared(&self) -> Option<Ready> {
        self.log.plain(WordKind::Search, 0);
        let come_up =
            || if self.fire_due() | self.poll() { self.queues.find_local() } else { None };
        let found = self.queues.pop_global().or_else(come_up);
        if found.is_none() && !self.shared.workforce.levels.is_empty() {
            return self.find_with_levels();
        }
        let found = found.or_else(|| self.search());
        if found.is_some() {
            self.end_batch();
            self.pass_levels();
        }
        found
    }

    /// Looks at the levels and at other workers, behind everything that is queued here.
    #[cold]
    fn find_with_levels(&self) -> Option<Ready> {
        if let Some(found) = self.take_high() {
            return Some(found);
        }
        if self.searches_before_batch()
            && let Some(found) = self.search()
        {
            self.end_batch();
            return Some(found);
        }
        self.take_batch()
    }

    /// Searches the other workers, unless enough others are searching.
    fn search(&self) -> Option<Ready> {
        let shared = &*self.shared;
        let reach = shared.workforce.idle.reach();
        if reach == 1 {
            return None;
        }
        if !self.search.is_on.get() {
            if !shared.workforce.idle.start_searching() {
                return None;
            }
            self.search.is_on.set(true);
        }
        let stats = &shared.workforce.seat(self.seat).stats;
        stats.searches.add(1);
        let rounds = self.search.rounds.get();
        for round in 0..rounds {
            let last = round + 1 == rounds || shared.world.is_test();
            let mut lost = false;
            for victim in self.queues.others(reach) {
                let found = match self.queues.steal(victim, &mut lost) {
                    None if last => self.steal_late(victim),
                    found => found,
                };
                if let Some(first) = &found {
                    self.log.steal(victim, first.slot());
                    self.search.rounds.set(ROUNDS);
                    stats.steals.add(1);
                    shared.workforce.seat(victim).stats.stolen.add_shared(1);
                    return found;
                }
            }
            if let Some(ready) = self.queues.pop_global() {
                return Some(ready);
            }
            if last && !lost {
                break;
            }
            shared.world.spin_loop();
        }
        self.search.rounds.set((rounds / 2).max(1));
        None
    }

    /// Takes from another worker what is only taken if there is nothing else: its LIFO slot, if the
    /// entry is old, and its due timers.
    fn steal_late(&self, victim: SeatId) -> Option<Ready> {
        let shared = &*self.shared;
        let seat = shared.workforce.seat(victim);
        if self.fire(&seat.timers)
            && let Some(ready) = self.queues.find_local()
        {
            return Some(ready);
        }
        let mut seen = self.search.seen_next.borrow_mut();
        let victim = victim.0 as usize;
        if seen.len() <= victim {
            seen.resize(victim + 1, SeenNext::default());
        }
        let seen = &mut seen[victim];
        let entry = seat.next.look();
        let step = seat.step.load(Relaxed);
        if entry.is_null() {
            *seen = SeenNext::default();
            return None;
        }
        let now = shared.world.now();
        if (seen.entry, seen.step) != (entry, step) {
            *seen = SeenNext { entry, step, since: now };
            return None;
        }
        if now - seen.since < NEXT_AGE {
            return None;
        }
        *seen = SeenNext::default();
        seat.next.steal(entry).map(Ready::from_raw)
    }
}
