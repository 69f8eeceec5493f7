//! The order in which a worker takes processes out of its queues.

use procession_protocols::scheduler::lifo_slot::mutation;
use procession_protocols::scheduler::pace::NextTurn;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_queue::{Global, Steal};

use crate::process::slot::Ready;
use crate::scheduler::lane::Lane;
use crate::scheduler::log::WordKind;
use crate::scheduler::run_queues::RunQueues;

/// The maximum number of runs in a row from the LIFO slot while other local work waits. The number
/// is tokio's.
const NEXT_IN_A_ROW: u32 = 3;

/// The same maximum while steps are slow: each run delays the owed turns by a whole step.
const NEXT_IN_A_ROW_SLOW: u32 = 1;

impl RunQueues {
    /// Returns the maximum length of a chain of wake-ups while other local work waits.
    pub(super) fn chain_max(&self) -> u32 {
        if mutation::is(mutation::BUILT, mutation::CHAIN_WITHOUT_END) {
            return u32::MAX;
        }
        if self.rings.pace.is_slow() { NEXT_IN_A_ROW_SLOW } else { NEXT_IN_A_ROW }
    }

    #[inline]
    pub(crate) fn find_local(&self) -> Option<Ready> {
        if let Some(next) = self.take_next() {
            let is_alone = !self.has_local();
            if self.turn.chain.get() < self.chain_max() || is_alone {
                self.turn.chain.set(self.turn.chain.get().saturating_add(1));
                // A chain that makes no other process wait has a full budget for each step.
                // Otherwise its processes would yield for no other process, and another worker
                // would be woken for them: `pingpong` took twice as long on two workers.
                let is_planted = mutation::is(mutation::BUILT, mutation::CHAIN_WITHOUT_END);
                self.turn.inherits.set(!is_alone && !is_planted);
                self.turn.kind.set(WordKind::NextStep);
                self.announce_queued();
                return Some(next);
            }
            // Its turns in a row are used up.
            self.log.wake(next.slot());
            self.push_continued(next);
        }
        self.turn.chain.set(0);
        self.turn.kind.set(WordKind::Step);
        let owed = if self.rings.owed.is_any() { self.find_owed() } else { None };
        let found = owed.or_else(|| self.find_woken_bound()).or_else(|| self.rings.deque.pop());
        if found.is_some() {
            self.announce_queued();
            return found;
        }
        let found =
            self.rings.woken.pop().or_else(|| self.pop_continued()).or_else(|| self.pop_bound());
        if self.unannounced.take() && self.has_queued() {
            self.shared.workforce.announce_in_sight();
        }
        found
    }

    /// Takes the process of the next owed turn, if any.
    fn find_owed(&self) -> Option<Ready> {
        let rings = &self.rings;
        let turn = rings.owed.next();
        let found = match turn {
            // Bound and other woken processes alternate in these turns.
            NextTurn::Woken => self
                .find_woken_bound()
                .or_else(|| self.rings.woken.pop())
                .or_else(|| self.pop_bound()),
            NextTurn::Continued => self.pop_continued(),
            NextTurn::Spawned => rings.deque.pop_oldest(),
            NextTurn::Any => return None,
        };
        if found.is_none() {
            rings.owed.none_left(turn);
        }
        found
    }

    /// Announces, before other work runs, what was pushed onto a ring since the last announcement:
    /// other workers may take it.
    #[inline]
    pub(super) fn announce_queued(&self) {
        if self.unannounced.take() && self.has_queued() {
            self.shared.workforce.announce();
        }
    }

    /// Takes a woken process that is bound to this worker, at every other call.
    #[inline]
    fn find_woken_bound(&self) -> Option<Ready> {
        let bound_turn = !self.bound_turns.ran_last.replace(false);
        if bound_turn { self.pop_bound() } else { None }
    }

    /// Takes the oldest continued process.
    #[inline]
    fn pop_continued(&self) -> Option<Ready> {
        let rings = &self.rings;
        if !rings.bound_continued.borrow().is_empty() {
            return self.pop_continued_or_bound();
        }
        let ready = rings.continued.pop()?;
        rings.rounds_taken.set(rings.rounds_taken.get().wrapping_add(1));
        Some(ready)
    }

    /// Takes the oldest continued process, or a bound process if all processes that were ahead of
    /// the bound process have had their turns.
    #[inline(never)]
    fn pop_continued_or_bound(&self) -> Option<Ready> {
        let rings = &self.rings;
        let taken = rings.rounds_taken.get();
        let mut bound = rings.bound_continued.borrow_mut();
        let is_due = |(_, due): &(Ready, u32)| taken.wrapping_sub(*due).cast_signed() >= 0;
        if !bound.front().is_some_and(is_due)
            && let Some(ready) = rings.continued.pop()
        {
            rings.rounds_taken.set(taken.wrapping_add(1));
            return Some(ready);
        }
        let (ready, _) = bound.pop_front()?;
        self.bound_turns.had_any.set(true);
        Some(ready)
    }

    #[inline]
    pub(crate) fn pop_bound(&self) -> Option<Ready> {
        let seat = &self.shared.workforce.seat(self.seat).bound;
        if seat.is_empty() && self.rings.bound.borrow().is_empty() {
            return None;
        }
        self.pop_bound_of_both()
    }

    #[inline(never)]
    fn pop_bound_of_both(&self) -> Option<Ready> {
        let seat = &self.shared.workforce.seat(self.seat).bound;
        // Processes queued by others have every other turn.
        let others_turn = self.bound_turns.of_others.replace(!self.bound_turns.of_others.get())
            && !seat.is_empty();
        let own = || self.rings.bound.borrow_mut().pop_front();
        let of_others = || Some((seat.pop()?, 0));
        let (ready, chain) =
            if others_turn { of_others().or_else(own) } else { own().or_else(of_others) }?;
        self.turn.chain.set(chain);
        self.bound_turns.ran_last.set(true);
        self.bound_turns.had_any.set(true);
        Some(ready)
    }

    pub(crate) fn has_bound(&self) -> bool {
        !self.rings.bound.borrow().is_empty() || !self.rings.bound_continued.borrow().is_empty()
    }

    /// Returns `true` if anything is queued here that others can take, except in the LIFO slot, or
    /// if anything is queued behind a ring of this worker.
    fn has_queued(&self) -> bool {
        let rings = &self.rings;
        let is_any =
            !rings.continued.is_empty() || !rings.woken.is_empty() || !rings.deque.is_empty();
        is_any || rings.continued.overflows() || rings.woken.overflows()
    }

    /// Returns `true` if anything is queued here, except in the LIFO slot.
    // Always inlined, because each hop asks: as a call, it takes 5 instructions more.
    #[inline(always)]
    pub(crate) fn has_local(&self) -> bool {
        self.has_queued()
            || self.has_bound()
            || !self.shared.workforce.seat(self.seat).bound.is_empty()
    }

    #[inline]
    pub(super) fn take_next(&self) -> Option<Ready> {
        Some(Ready::from_raw(self.shared.workforce.seat(self.seat).next.take()?))
    }

    /// Takes the oldest process of the global queue, or of the overflow queue, to be run. A share
    /// of the rest is moved into the ring.
    pub(crate) fn pop_global(&self) -> Option<Ready> {
        let (rings, shared) = (&self.rings, &*self.shared);
        self.pop_behind(&rings.woken, &shared.workforce.queues.global)
            .or_else(|| self.pop_behind(&rings.continued, &shared.workforce.queues.overflow))
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
                self.shared.workforce.announce();
            }
        }
        lane.note_refilled(behind);
        first
    }

    /// Moves a share of the queue behind a ring into that ring, at most `most` processes. If
    /// `first` is given, stores the first one there instead. Returns the number of processes taken.
    pub(super) fn take_share<const CAPACITY: usize>(
        &self,
        lane: &Lane<Ready, CAPACITY>,
        behind: &Global<Ready>,
        most: usize,
        first: Option<&mut Option<Ready>>,
    ) -> usize {
        let share = behind.pop_share(self.shared.workforce.width(), most);
        if self.shared.workforce.queues.shuffled {
            let mut batch: Vec<Ready> = share.collect();
            self.rings.generator.borrow_mut().shuffle(&mut batch);
            return queue_share(lane, batch.into_iter(), first);
        }
        queue_share(lane, share, first)
    }

    /// Returns the other seats in random order or, with extra seats in use, in the order of their
    /// numbers from a random one on.
    pub(crate) fn others(&self, seats: u32) -> impl Iterator<Item = SeatId> + use<> {
        let (start, stride) = {
            let mut generator = self.rings.generator.borrow_mut();
            let strides = self.shared.workforce.seats.strides();
            let stride = if seats == self.shared.workforce.seats.first() {
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

    pub(crate) fn steal(&self, victim: SeatId, lost: &mut bool) -> Option<Ready> {
        let victim = self.shared.workforce.seat(victim);
        // Two loads show that a queue is empty, without a read-modify-write.
        let (rings, queues) = (&self.rings, &victim.queues);
        let mut taken = |stolen: Steal<Ready>| {
            *lost |= stolen.is_retry();
            stolen.success()
        };
        let ready = taken(rings.woken.steal_half(&queues.woken))
            .or_else(|| taken(rings.continued.steal_half(&queues.deque)))
            .or_else(|| taken(rings.continued.steal_half(&queues.continued)))?;
        if self.has_queued() {
            self.shared.workforce.announce();
        }
        Some(ready)
    }
}

/// Moves a share into a ring. If `first` is given, stores the first process there instead. Returns
/// the number of processes taken.
fn queue_share<const CAPACITY: usize>(
    lane: &Lane<Ready, CAPACITY>,
    mut share: impl Iterator<Item = Ready>,
    first: Option<&mut Option<Ready>>,
) -> usize {
    let mut count = 0;
    if let Some(first) = first {
        *first = share.next();
        count += usize::from(first.is_some());
    }
    for ready in share {
        ready.prefetch_slot();
        lane.refill(ready);
        count += 1;
    }
    count
}
