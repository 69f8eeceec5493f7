//! The run queues of a worker, and the wake-ups of other workers for queued processes.
//!
//! `worker.rs` describes the classes of processes, and the order in which a worker looks for them.
//! Here are the queues themselves, and what others must be told of: `order.rs` takes processes out,
//! and `refill.rs` brings processes of the shared queues and of other workers in.

mod order;
mod refill;

use std::cell::Cell;
use std::sync::Arc;

use procession_protocols::scheduler::seat_id::SeatId;

use crate::process::slot::{Ready, Slot};
use crate::scheduler::core::WorkerRings;
use crate::scheduler::log::WordKind;
use crate::scheduler::log::record::WorkerLog;
use crate::scheduler::shared::Shared;

/// The maximum number of processes that are woken together while another worker naps without waking
/// it. To run as many short steps takes less time than to wake a thread.
const FEW: usize = 16;

/// The run queues of the worker in a seat, while a thread sits there.
pub(crate) struct RunQueues {
    shared: Arc<Shared>,
    seat: SeatId,
    log: WorkerLog,
    pub(crate) rings: WorkerRings,
    pub(crate) turn: StepTurn,
    bound_turns: BoundTurns,
    /// Set if the worker has a permit for batch processes. Their steps may be long, so what they
    /// wake is not left in the LIFO slot.
    pub(crate) in_batch: Cell<bool>,
    /// Set if a ring has received something for which no worker was woken.
    unannounced: Cell<bool>,
    /// The time at which this worker has last compared its rings with the rings of other workers.
    balanced_at: Cell<u64>,
}

/// The way in which the process that runs, or runs next, was found.
pub(crate) struct StepTurn {
    /// The length of the chain of wake-ups that led to the step: 0 unless a step of this worker
    /// woke the process and it ran next, otherwise one more than the length of the waking step.
    pub(crate) chain: Cell<u32>,
    /// Set if the process came from the LIFO slot and continues with the budget of its waker.
    pub(crate) inherits: Cell<bool>,
    /// The kind of event that the step is: `Step`, or `NextStep` if the process came from the LIFO
    /// slot, into which the step before has put it.
    pub(crate) kind: Cell<WordKind>,
}

/// The turns of the processes bound to this worker, among themselves and relative to others.
#[derive(Default)]
struct BoundTurns {
    /// Set if the last process taken here was a bound one.
    ran_last: Cell<bool>,
    /// Set if bound processes that others have queued are next.
    of_others: Cell<bool>,
    /// Set if a bound process has run since this worker last found nothing.
    had_any: Cell<bool>,
}

impl RunQueues {
    pub(crate) fn new(
        shared: Arc<Shared>,
        seat: SeatId,
        log: WorkerLog,
        rings: WorkerRings,
    ) -> Self {
        rings.sampler.look_at_each(shared.workforce.queues.shuffled);
        Self {
            shared,
            seat,
            log,
            rings,
            turn: StepTurn {
                chain: Cell::new(0),
                inherits: Cell::new(false),
                kind: Cell::new(WordKind::Step),
            },
            bound_turns: BoundTurns::default(),
            in_batch: Cell::new(false),
            unannounced: Cell::new(false),
            balanced_at: Cell::new(0),
        }
    }

    /// Pushes an entry onto the deque, and wakes a worker for it.
    pub(crate) fn push(&self, ready: Ready) {
        self.rings.deque.push_overflowing(ready, &self.shared.workforce.queues.overflow);
        self.shared.workforce.announce();
    }

    /// Pushes a new process onto the deque. If it is alone there, it runs after this step, and no
    /// worker is woken while one naps.
    pub(crate) fn push_newborn(&self, ready: Ready) {
        self.sample(ready.slot());
        let is_alone =
            self.rings.deque.is_empty() && !self.shared.workforce.idle.is_revoked(self.seat);
        self.rings.deque.push_overflowing(ready, &self.shared.workforce.queues.overflow);
        if is_alone {
            self.shared.workforce.announce_own()
        } else {
            self.shared.workforce.announce()
        }
    }

    /// Puts an entry into the LIFO slot, which wakes no worker. The previous entry is queued as
    /// woken, and announced.
    pub(crate) fn set_next(&self, ready: Ready) {
        // If the order is shuffled, each wake-up is looked at, so that there is one test for both.
        if self.rings.sampler.is_due() {
            self.begin_sample(ready.slot());
            if self.shared.workforce.queues.shuffled && self.rings.generator.borrow_mut().bool() {
                self.log.wake(ready.slot());
                return self.push(ready);
            }
        }
        if self.shared.workforce.idle.is_revoked(self.seat) || self.in_batch.get() {
            // This worker will not take it soon.
            self.log.wake(ready.slot());
            self.push_woken(ready);
            self.unannounced.set(false);
            return self.shared.workforce.announce();
        }
        if let Some(before) = self.shared.workforce.seat(self.seat).next.set(ready.as_raw()) {
            let before = Ready::from_raw(before);
            self.log.wake(before.slot());
            self.push_woken(before);
            self.unannounced.set(false);
            self.shared.workforce.announce();
        }
    }

    /// Counts a wake-up, and begins to measure the wait of the process if its turn has come. The
    /// caller has the entry of the process.
    #[inline]
    pub(crate) fn sample(&self, slot: &Slot) {
        if self.rings.sampler.is_due() {
            self.begin_sample(slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_sample(&self, slot: &Slot) {
        if let Some(gap) = self.rings.sampler.pick() {
            self.shared.processes.waits.begin(slot, self.shared.world.now(), gap);
        }
    }

    /// Queues a woken process that is bound to no worker.
    #[inline]
    pub(crate) fn push_woken(&self, ready: Ready) {
        debug_assert!(
            ready.slot().bound.worker().is_none(),
            "a process binds itself in its step only"
        );
        self.rings.woken.push(ready, &self.shared.workforce.queues.global);
        self.unannounced.set(true);
    }

    /// Queues processes that the running step has woken and that are bound to no worker. They have
    /// the same order as if [`set_next`](Self::set_next) were called for each process, but a worker
    /// is woken once.
    pub(crate) fn push_woken_together(&self, woken: &mut Vec<Ready>) {
        woken.iter().for_each(|ready| self.sample(ready.slot()));
        let is_revoked = self.shared.workforce.idle.is_revoked(self.seat) || self.in_batch.get();
        if !is_revoked
            && let Some(last) = woken.pop()
            && let Some(before) = self.shared.workforce.seat(self.seat).next.set(last.as_raw())
        {
            woken.insert(0, Ready::from_raw(before));
        }
        woken.iter().for_each(|ready| self.log.wake(ready.slot()));
        // A worker without a permit will not take them soon.
        let is_own = woken.len() <= FEW && !is_revoked;
        self.rings.woken.push_all(woken, &self.shared.workforce.queues.global);
        self.unannounced.set(false);
        if is_own { self.shared.workforce.announce_own() } else { self.shared.workforce.announce() }
    }

    /// Queues a continued process, behind all others of that class.
    #[inline]
    pub(crate) fn push_continued(&self, ready: Ready) {
        if !ready.slot().bound.is_plain() {
            return self.push_placed_continued(ready);
        }
        self.rings.continued.push(ready, &self.shared.workforce.queues.overflow);
        self.unannounced.set(true);
    }

    /// Queues a continued process that has a level word or is bound to a worker.
    // Never inlined, because `push_continued`, through which each yield passes, would have to save
    // six registers for it.
    #[inline(never)]
    fn push_placed_continued(&self, ready: Ready) {
        let worker = ready.slot().bound.worker();
        let ready = if ready.slot().bound.is_leveled() {
            match self.shared.push_level(ready) {
                // Another worker that may run it is woken when this worker takes a turn, since it
                // most likely takes this one.
                Ok(()) => match worker {
                    Some(seat) if seat != self.seat => {
                        return self.shared.workforce.wake_this(seat);
                    }
                    _ => return,
                },
                Err(ready) => ready,
            }
        } else {
            ready
        };
        match worker {
            Some(seat) if seat == self.seat => self.push_bound_continued(ready),
            Some(seat) => self.shared.workforce.enqueue_bound(seat, ready),
            None => {
                self.rings.continued.push(ready, &self.shared.workforce.queues.overflow);
                self.unannounced.set(true);
            }
        }
    }

    fn push_bound_continued(&self, ready: Ready) {
        let due = self.rings.rounds_taken.get().wrapping_add(self.rings.continued.len() as u32);
        self.rings.bound_continued.borrow_mut().push_back((ready, due));
    }

    /// Queues a process that runs on one worker only. Announces nothing if that is this worker.
    /// `in_step` is set if a step of this worker wakes it.
    #[inline]
    pub(crate) fn push_bound(&self, seat: SeatId, ready: Ready, in_step: bool) {
        if seat == self.seat {
            let chain = if in_step { self.turn.chain.get().saturating_add(1) } else { 0 };
            if chain > self.chain_max() {
                return self.push_bound_continued(ready);
            }
            self.rings.bound.borrow_mut().push_back((ready, chain));
        } else {
            self.shared.workforce.enqueue_bound(seat, ready);
        }
    }

    /// Moves the processes that only this worker would have found to queues where other workers
    /// find them. The caller announces these processes.
    pub(crate) fn hand_out(&self) {
        if let Some(next) = self.shared.workforce.seat(self.seat).next.take() {
            let next = Ready::from_raw(next);
            self.log.wake(next.slot());
            self.push_woken(next);
        }
        self.unannounced.set(false);
    }

    /// Before a step of another level: moves the process in the LIFO slot to where others find it,
    /// and announces what is queued here.
    pub(crate) fn hand_on(&self) {
        if let Some(next) = self.take_next() {
            self.log.wake(next.slot());
            self.push_woken(next);
        }
        self.announce_queued();
    }

    /// Returns `true` if a new coroutine should rather begin elsewhere, because this worker has
    /// coroutines to continue, which cannot leave it. Suppose it began new coroutines first, newest
    /// first, and a thief had the oldest. Then a program that splits its work by spawning
    /// coroutines would leave nearly all the work to one of the two workers.
    pub(crate) fn puts_coroutines_off(&self) -> bool {
        self.shared.workforce.seats.first() > 1
            && (self.has_bound() || !self.shared.workforce.seat(self.seat).bound.is_empty())
    }

    /// Draws a number below `count`.
    pub(crate) fn draw(&self, count: usize) -> usize {
        self.rings.generator.borrow_mut().below(count)
    }

    /// Returns `true` if a bound process has run since the last call.
    pub(crate) fn had_bound(&self) -> bool {
        self.bound_turns.had_any.replace(false)
    }

    /// Sends all woken processes to the global queue, until the worker has found that empty. For a
    /// parked worker without a permit: what it delivers is for other workers.
    pub(crate) fn close_woken(&self) {
        self.rings.woken.close();
    }

    /// Wakes a worker for all that was queued here.
    pub(crate) fn announce_all(&self) {
        self.unannounced.set(false);
        self.shared.workforce.announce();
    }

    /// Before the worker leaves, moves the processes that only this worker would have found to
    /// queues where other workers find them.
    pub(crate) fn empty(&self) {
        let rings = &self.rings;
        if self.seat.0 >= self.shared.workforce.seats.first() {
            // No thread may ever sit here again, and an empty seat need not be looked at.
            while let Some(ready) = rings.woken.pop() {
                self.shared.workforce.queues.global.push(ready);
            }
            while let Some(ready) = rings.continued.pop().or_else(|| rings.deque.pop_oldest()) {
                self.shared.workforce.queues.overflow.push(ready);
            }
        }
        if let Some(next) = self.take_next() {
            // No thread may sit here again soon.
            self.log.wake(next.slot());
            self.shared.workforce.queues.global.push(next);
        }
        for (ready, _) in rings.bound.take().into_iter().chain(rings.bound_continued.take()) {
            self.shared.workforce.seat(self.seat).bound.push(ready);
        }
    }
}
