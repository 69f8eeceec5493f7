//! The order in which a worker looks for the next process.

use procession_protocols::scheduler::lifo_slot::mutation;
use procession_protocols::scheduler::pace::NextTurn;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_queue::{Global, Steal};
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::scheduler::lane::Lane;
use crate::scheduler::local::{LocalWorker, NEXT_AGE, ROUNDS, SeenNext};
use crate::scheduler::log::word::WordKind;
use crate::scheduler::worker::queue_share;

/// The maximum number of runs in a row from the LIFO slot while other local work waits. The number
/// is tokio's.
const NEXT_IN_A_ROW: u32 = 3;

/// The same maximum while steps are slow: each run delays the owed turns by a whole step.
const NEXT_IN_A_ROW_SLOW: u32 = 1;

impl LocalWorker {
    /// Returns the maximum length of a chain of wake-ups while other local work waits.
    pub(crate) fn chain_max(&self) -> u32 {
        if mutation::is(mutation::BUILT, mutation::CHAIN_WITHOUT_END) {
            return u32::MAX;
        }
        if self.core.pace.is_slow() { NEXT_IN_A_ROW_SLOW } else { NEXT_IN_A_ROW }
    }

    #[inline]
    pub(crate) fn find_local(&self) -> Option<Ready> {
        if let Some(next) = self.take_next() {
            let is_alone = !self.has_local();
            if self.step.chain.get() < self.chain_max() || is_alone {
                self.step.chain.set(self.step.chain.get().saturating_add(1));
                // A chain that makes no other process wait has a full budget for each step.
                // Otherwise its processes would yield for no other process, and another worker
                // would be woken for them: `pingpong` took twice as long on two workers.
                let is_planted = mutation::is(mutation::BUILT, mutation::CHAIN_WITHOUT_END);
                self.step.inherits.set(!is_alone && !is_planted);
                self.step.kind.set(WordKind::NextStep);
                self.announce_queued();
                return Some(next);
            }
            // Its turns in a row are used up.
            self.record_wake(next.slot());
            self.push_continued(next);
        }
        self.step.chain.set(0);
        self.step.kind.set(WordKind::Step);
        let owed = if self.core.owed.is_any() { self.find_owed() } else { None };
        let found = owed.or_else(|| self.find_woken_bound()).or_else(|| self.pop_deque());
        if found.is_some() {
            self.announce_queued();
            return found;
        }
        let found = self.pop_woken().or_else(|| self.pop_continued()).or_else(|| self.pop_bound());
        if self.unannounced.take() && self.has_queued() {
            self.shared.announce_in_sight();
        }
        found
    }

    /// Takes the process of the next owed turn, if any.
    fn find_owed(&self) -> Option<Ready> {
        let core = &self.core;
        let turn = core.owed.next();
        let found = match turn {
            // Bound and other woken processes alternate in these turns.
            NextTurn::Woken => {
                self.find_woken_bound().or_else(|| self.pop_woken()).or_else(|| self.pop_bound())
            }
            NextTurn::Continued => self.pop_continued(),
            NextTurn::Spawned => core.deque.pop_oldest(),
            NextTurn::Any => return None,
        };
        if found.is_none() {
            core.owed.none_left(turn);
        }
        found
    }

    /// Announces, before other work runs, what was pushed onto a ring since the last announcement:
    /// other workers may take it.
    #[inline]
    fn announce_queued(&self) {
        if self.unannounced.take() && self.has_queued() {
            self.shared.announce();
        }
    }

    /// Takes a woken process that is bound to this worker, at every other call.
    #[inline]
    fn find_woken_bound(&self) -> Option<Ready> {
        let bound_turn = !self.bound.ran_last.replace(false);
        if bound_turn { self.pop_bound() } else { None }
    }

    #[inline]
    fn pop_deque(&self) -> Option<Ready> {
        self.core.deque.pop()
    }

    #[inline]
    fn pop_woken(&self) -> Option<Ready> {
        self.core.woken.pop()
    }

    /// Takes the oldest continued process.
    #[inline]
    fn pop_continued(&self) -> Option<Ready> {
        let core = &self.core;
        if !core.bound_continued.borrow().is_empty() {
            return self.pop_continued_or_bound();
        }
        let ready = core.continued.pop()?;
        core.rounds_taken.set(core.rounds_taken.get().wrapping_add(1));
        Some(ready)
    }

    /// Takes the oldest continued process, or a bound one if all processes that were ahead of it
    /// have had their turns.
    #[inline(never)]
    fn pop_continued_or_bound(&self) -> Option<Ready> {
        let core = &self.core;
        let taken = core.rounds_taken.get();
        let mut bound = core.bound_continued.borrow_mut();
        let is_due = |(_, due): &(Ready, u32)| taken.wrapping_sub(*due).cast_signed() >= 0;
        if !bound.front().is_some_and(is_due)
            && let Some(ready) = core.continued.pop()
        {
            core.rounds_taken.set(taken.wrapping_add(1));
            return Some(ready);
        }
        let (ready, _) = bound.pop_front()?;
        self.bound.had_any.set(true);
        Some(ready)
    }

    #[inline]
    pub(crate) fn pop_bound(&self) -> Option<Ready> {
        let seat = &self.shared.seat(self.seat).bound;
        if seat.is_empty() && self.core.bound.borrow().is_empty() {
            return None;
        }
        self.pop_bound_of_both()
    }

    #[inline(never)]
    fn pop_bound_of_both(&self) -> Option<Ready> {
        let seat = &self.shared.seat(self.seat).bound;
        // Processes queued by others have every other turn.
        let others_turn =
            self.bound.of_others.replace(!self.bound.of_others.get()) && !seat.is_empty();
        let own = || self.core.bound.borrow_mut().pop_front();
        let of_others = || Some((seat.pop()?, 0));
        let (ready, chain) =
            if others_turn { of_others().or_else(own) } else { own().or_else(of_others) }?;
        self.step.chain.set(chain);
        self.bound.ran_last.set(true);
        self.bound.had_any.set(true);
        Some(ready)
    }

    pub(crate) fn has_bound(&self) -> bool {
        !self.core.bound.borrow().is_empty() || !self.core.bound_continued.borrow().is_empty()
    }

    /// Returns `true` if anything is queued here that others can take, except in the LIFO slot, or
    /// if anything is queued behind a ring of this worker.
    fn has_queued(&self) -> bool {
        let core = &self.core;
        let is_any = !core.continued.is_empty() || !core.woken.is_empty() || !core.deque.is_empty();
        is_any || core.continued.overflows() || core.woken.overflows()
    }

    /// Returns `true` if anything is queued here, except in the LIFO slot.
    // Always inlined, because each hop asks: as a call, it takes 5 instructions more.
    #[inline(always)]
    pub(crate) fn has_local(&self) -> bool {
        self.has_queued() || self.has_bound() || !self.shared.seat(self.seat).bound.is_empty()
    }

    #[inline]
    fn take_next(&self) -> Option<Ready> {
        Some(Ready::from_raw(self.shared.seat(self.seat).next.take()?))
    }

    /// Looks at the global queue, timers, descriptors and other workers.
    pub(crate) fn find_shared(&self) -> Option<Ready> {
        self.record_plain(WordKind::Search, 0);
        let come_up = || if self.fire_due() | self.poll() { self.find_local() } else { None };
        self.pop_global().or_else(come_up).or_else(|| self.search())
    }

    /// Takes the oldest process of the global queue, or of the overflow queue, to be run. A share
    /// of the rest is moved into the ring.
    fn pop_global(&self) -> Option<Ready> {
        let (core, shared) = (&self.core, &*self.shared);
        self.pop_behind(&core.woken, &shared.queues.global)
            .or_else(|| self.pop_behind(&core.continued, &shared.queues.overflow))
    }

    #[inline]
    fn pop_behind<const CAPACITY: usize>(
        &self,
        lane: &Lane<Ready, CAPACITY>,
        behind: &Global<Ready>,
    ) -> Option<Ready> {
        let mut first = None;
        if !behind.is_empty() {
            self.take_share(lane, behind, 1 + lane.room(), Some(&mut first));
            // Other workers may take what this worker does not run immediately.
            if !lane.is_empty() {
                self.shared.announce();
            }
        }
        lane.note_refilled(behind);
        first
    }

    /// Moves a share of the queue behind a ring into that ring, at most `most` processes. If
    /// `first` is given, stores the first one there instead. Returns the number of processes taken.
    pub(crate) fn take_share<const CAPACITY: usize>(
        &self,
        lane: &Lane<Ready, CAPACITY>,
        behind: &Global<Ready>,
        most: usize,
        first: Option<&mut Option<Ready>>,
    ) -> usize {
        let share = behind.pop_share(self.shared.width(), most);
        if self.shared.queues.shuffled {
            let mut batch: Vec<Ready> = share.collect();
            self.core.generator.borrow_mut().shuffle(&mut batch);
            return queue_share(lane, batch.into_iter(), first);
        }
        queue_share(lane, share, first)
    }

    /// Searches the other workers, unless enough others are searching.
    fn search(&self) -> Option<Ready> {
        let shared = &*self.shared;
        let reach = shared.idle.reach();
        if reach == 1 {
            return None;
        }
        if !self.search.is_on.get() {
            if !shared.idle.start_searching() {
                return None;
            }
            self.search.is_on.set(true);
        }
        let stats = &shared.seat(self.seat).stats;
        stats.searches.add(1);
        let rounds = self.search.rounds.get();
        for round in 0..rounds {
            let last = round + 1 == rounds || shared.world.is_test();
            let mut lost = false;
            for victim in self.others(reach) {
                let found = match self.steal(victim, &mut lost) {
                    None if last => self.steal_late(victim),
                    found => found,
                };
                if let Some(first) = &found {
                    self.record_steal(victim, first.slot());
                    self.search.rounds.set(ROUNDS);
                    stats.steals.add(1);
                    shared.seat(victim).stats.stolen.add_shared(1);
                    return found;
                }
            }
            if let Some(ready) = self.pop_global() {
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

    /// Returns the other seats in random order or, with extra seats in use, in the order of their
    /// numbers from a random one on.
    pub(crate) fn others(&self, seats: u32) -> impl Iterator<Item = SeatId> + use<> {
        let (start, stride) = {
            let mut generator = self.core.generator.borrow_mut();
            let strides = self.shared.seats.strides();
            let stride = if seats == self.shared.seats.first() {
                strides[generator.below(strides.len())]
            } else {
                1
            };
            (generator.below_u32(seats), stride)
        };
        let own = self.seat;
        // A stride coprime to the number of seats visits each once.
        (0..seats)
            .map(move |i| {
                SeatId(
                    ((u64::from(start) + u64::from(i) * u64::from(stride)) % u64::from(seats))
                        as u32,
                )
            })
            .filter(move |&seat| seat != own)
    }

    fn steal(&self, victim: SeatId, lost: &mut bool) -> Option<Ready> {
        let victim = self.shared.seat(victim);
        // Two loads show that a queue is empty, without a read-modify-write.
        let (core, queues) = (&self.core, &victim.queues);
        let mut taken = |stolen: Steal<Ready>| {
            *lost |= stolen.is_retry();
            stolen.success()
        };
        let ready = taken(core.woken.steal_half(&queues.woken))
            .or_else(|| taken(core.continued.steal_half(&queues.deque)))
            .or_else(|| taken(core.continued.steal_half(&queues.continued)))?;
        if self.has_queued() {
            self.shared.announce();
        }
        Some(ready)
    }

    /// Takes from another worker what is only taken if there is nothing else: its LIFO slot, if the
    /// entry is old, and its due timers.
    fn steal_late(&self, victim: SeatId) -> Option<Ready> {
        let shared = &*self.shared;
        let seat = shared.seat(victim);
        if self.fire(&seat.timers)
            && let Some(ready) = self.find_local()
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
