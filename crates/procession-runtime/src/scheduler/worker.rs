//! A worker: one thread in one seat of a scheduler, running processes.
//!
//! # The search for work
//!
//! A ready process belongs to one of two classes. It is *woken* if a timer, a descriptor, a message
//! or a thread that is no worker made it ready. It is *continued* if it was ready all the time: it
//! yielded, spent its budget, or was stolen. Woken processes wait in the *woken ring* of the
//! worker, continued processes in its *continued ring*, both first in, first out. New processes go
//! to the newest end of the deque.
//!
//! For each dispatch a worker looks, in this order, at
//! 1. its LIFO slot (`next`), at most three times in a row while other local work waits, once in a
//!    row if its steps are slow;
//! 2. the turns that it has owed since its last service (`scheduler/pace.rs`): the woken ring, the
//!    continued ring, and the oldest process of the deque;
//! 3. woken processes that are bound to it, at every other dispatch;
//! 4. its deque, newest first;
//! 5. its woken ring;
//! 6. its continued ring; each bound process that continues has one turn in each round of that
//!    ring;
//! 7. the global queue: one process to run, and a share of the rest into the woken ring; then, in
//!    the same way, the overflow queue with the continued ring;
//! 8. due timers, and descriptors that have become ready (`reactor.rs`);
//! 9. the other workers: half of a ring or of a deque, in random order; in the last rounds also
//!    their LIFO slots, if the entries are old, and their due timers.
//!
//! Behind each ring is a queue that takes what the ring has no room for (`scheduler/lane.rs`).
//! Behind the woken ring is the global queue, which also holds processes made ready from outside.
//! Behind the continued ring is the overflow queue, which also holds the oldest half of each deque
//! that was full.
//!
//! Before this order, high and batch processes have their turns (`scheduler/levels.rs`).
//!
//! A worker that finds nothing parks (`scheduler/idle/parking.rs`). If it has run a process that is
//! bound to it, it first looks for some microseconds for another, or for the same again: two
//! coroutines of different workers that exchange messages need 0.5 us for each message this way,
//! and 25 us otherwise (`co_apart`).
//!
//! A *service* refills both rings, fires due timers and polls descriptors. It happens after 61
//! dispatches at the latest, and at the first step boundary that is more than 1 ms after the last
//! service.
//! - The woken ring gets as many processes of the global queue as will have turns before the next
//!   service, if that takes as long as the last: one for every two dispatches, less the processes
//!   in the ring, and at least one for every four.
//! - If the continued ring itself has overflowed, it gets one process of the overflow queue for
//!   every dispatch. Otherwise only deques have overflowed: it gets one process, and 17 in every
//!   fourth service, or in every service if steps are slow.
//! - A service that knows the time also fires the timers of seats without a permit, and timers that
//!   their own workers have not fired for 750 us. If its steps are slow (61 steps take more than
//!   750 us), a worker fires the due timers of all other workers, until nothing is left or 100 us
//!   have passed. While some seat has no permit, one of four services reads the clock for this,
//!   even if steps are short.
//!
//! A process that has used up its turns in the LIFO slot, and is woken by such a turn again, goes
//! to the tail of the continued ring: for example, two processes that wake one another have four
//! turns in a round. A process that another displaces from the slot goes to the tail of the woken
//! ring. No process that ran returns to the deque.
//!
//! # Balance
//!
//! Idle workers steal. A busy worker also steals, once in a millisecond at most, if it has at least
//! two ready processes fewer than another worker, the one in the other's step included. It takes
//! half of the difference, at most 16, from the other's continued ring. So n equal processes on w
//! workers get equal shares if n is a multiple of w. Otherwise the processes of one worker get up
//! to `ceil(n / w) / floor(n / w)` times as much as the processes of another.
//!
//! The queues of a seat without a permit may hold processes. There are several ways to get there: a
//! step lasts long and the watchdog took the permit; the thread is in a blocking section, or found
//! no permit after one and parked, or was woken and is late; or there is no thread, because it has
//! retired or was the thread of a caller of `block_on`. The workers that have permits take over all
//! these processes, at the first service that is a millisecond after the last time and knows the
//! time.
//!
//! # Bounds
//!
//! Assume that steps last t, that w workers have permits, and that nothing else runs on their
//! processors.
//! - A woken process waits for at most 2 t + 1 ms, plus 2 t for each woken process before it on the
//!   worker that runs it. Processes of the global queue are spread over all w workers. Each worker
//!   looks at its own timers, the timers of threads that are no workers, the timers of seats
//!   without a permit, descriptors, and the global queue. Other workers notice the timers of a
//!   worker that is in a step 750 us later, or immediately if their own steps are slow as well.
//! - Woken processes have every other turn from then on. A turn that wakes another process may be
//!   followed by one from the LIFO slot, or by three while steps are short. If each turn does so,
//!   later processes wait for two or four times as long.
//! - A continued process waits for at most k t / w + 2 t + 1 ms, if k others continue. If woken
//!   processes are always there, they take every other turn, which doubles the wait. If new
//!   processes never cease either, the wait is four times as long, because new processes take every
//!   other turn that is left.
//! - In dispatches, not counting dispatches from the LIFO slot: a service happens after at most 61.
//!   Then a process with k others before it in its ring runs within 2 (k + 1) dispatches of this
//!   worker if it is woken, and within 4 (k + 1) if it continues. The oldest process of the deque
//!   runs within 4 dispatches after a service, so a process with k older processes runs within 61
//!   (k + 1) + 4.
//! - A process in the global queue, with k before it, enters a ring within 4 (k + 1) dispatches of
//!   the w workers together and one service, if there is room. There is no room while 256 woken
//!   processes are in the ring before it.
//! - The rings hold 1024 (continued) and 256 (woken) processes, the deque 256. Processes for which
//!   a ring has no room keep their place in the order. The oldest half of a full deque continues:
//!   it goes to the tail of the overflow queue.
//! - When steps turn from short to long, the first service is late by up to 2.5 ms more, plus the
//!   time for which the system delays the watchdog (`scheduler/pace.rs`).
//!
//! A dispatch lasts one step. Every operation of the runtime charges the step's budget, and awaited
//! operations end the step when the budget is spent. Nothing ends a step that only sends, or never
//! calls the runtime.
//!
//! If a step lasts long, other workers take what is queued behind it, immediately if they are awake
//! or were woken for it. They take an entry in the LIFO slot when it has not changed for 100 us. A
//! worker that is about to park and sees the slot full looks again after 100 us, then at growing
//! intervals up to 10 ms. A worker that had parked before the slot was filled does not look, since
//! setting the slot wakes no worker. Then the watchdog (`watchdog.rs`) wakes one, after 7.5 ms at
//! most. It also replaces workers with steps that last for more than 10 ms, if no other worker can
//! do so.
//!
//! # Rejected
//! - Dispatch counts alone: with two steps of 9 ms on two workers, a tick of 1 ms came 534 ms late
//!   (61 dispatches), where tokio and Go needed 18 ms.
//! - To put a process that was displaced from the LIFO slot, or had its turns there, at the newest
//!   end of the deque: of 9 equal pairs one got as much as all others together.
//! - To put a batch of the global queue, or a stolen half, into the deque with its oldest on top:
//!   processes spawned later lie above, and the oldest of the batch runs last (966 dispatches with
//!   a bound of 61).
//! - A continued ring of 256, which 1000 yielding processes overflow: each of their turns would
//!   take the lock of the overflow queue.
//! - One queue behind all rings and deques: a message from outside waited for 8306 dispatches among
//!   1100 processes that yield.
//! - Twelve more rounds of a search, in which the thread yields: they took up to a whole CPU next
//!   to a worker that handles all work alone (`timers_fire`: 10 % more CPU time in all), and with
//!   naps they gain nothing.
//! - To wake the next worker whenever the last searcher finds work: a process that waits for a
//!   descriptor and then answers had a second worker woken each time (round trips between two
//!   nodes, four wake-ups each: 37 us, and 17 without them).
//! - To wake for each timer of a million in a second: a third of the CPU time (`timers_fire_cpu`
//!   2.2 us; 1.58 with 20 us between, 1.29 with 100, 1.17 with 200, a delay that only timers as
//!   dense as these have).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;

use procession_protocols::scheduler::seat_id::{NEVER, SeatId};
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::Ready;
use crate::process::unwind::guarded;
use crate::scheduler::core::Core;
use crate::scheduler::current::{Current, Entered};
use crate::scheduler::end::terminate_begun_on;
use crate::scheduler::local::{LocalWorker, Parked, Stay};
use crate::scheduler::log::WordKind;
use crate::scheduler::shared::Shared;
use crate::sys::{LentThread, World, yield_thread};

/// In nanoseconds, the time until a deadline for which a second worker is woken, since this one may
/// be in a long step then. The watchdog sends one to later deadlines.
const SOON: u64 = 10_000_000;

impl LocalWorker {
    /// Runs processes until `stay` is over.
    fn work(&self, mut stay: Stay<'_>) {
        if matches!(stay, Stay::EndCoroutines(_)) {
            terminate_begun_on(self.shared.table(), self.seat);
        }
        loop {
            match &mut stay {
                Stay::Always if self.shared.lifetime.has_ended() => {
                    return self.search.stop(&self.shared);
                }
                Stay::BlockOn(root, poll) if root.is_ready() => {
                    // The root may compute for long. It must not count as a searcher that finds
                    // what others queue.
                    self.search.stop(&self.shared);
                    self.end_batch();
                    if let Some(runtime) = self.shared.parts.paused() {
                        runtime.note_activity();
                    }
                    if root.poll_if_ready(poll) {
                        return;
                    }
                }
                _ => {}
            }
            let has_permit =
                !self.shared.workforce.idle.is_revoked(self.seat) || self.regain_permit(&stay);
            let found = match &mut stay {
                Stay::EndCoroutines(passed_over) => match self.find_begun(passed_over) {
                    None => return,
                    found => found,
                },
                _ if has_permit => self.find_work(),
                _ => None,
            };
            // The only call of `run`, so that the compiler inlines `run` here.
            if let Some(ready) = found {
                self.run(ready);
                continue;
            }
            if has_permit && self.await_bound() {
                continue;
            }
            if has_permit && self.drive_companion(&stay) {
                continue;
            }
            match (self.park(&stay), &stay) {
                (Parked::AllIdle, Stay::Idle) | (Parked::Retired, _) => return,
                _ => {}
            }
        }
    }

    /// Returns the next coroutine that has begun on this thread, while there is one. The thread is
    /// about to end, and may have destroyed some of its locals, so it runs no other process.
    #[cold]
    fn find_begun(&self, passed_over: &mut Vec<Ready>) -> Option<Ready> {
        self.queues.turn.kind.set(WordKind::Step);
        while self.stores.begun.get() > 0 {
            match self.queues.pop_bound().or_else(|| self.take_bound_level()) {
                Some(ready) if ready.slot().bound.has_begun_on(self.seat) => return Some(ready),
                Some(ready) => passed_over.push(ready),
                // All these coroutines are ready. If a coroutine is not queued, another thread has
                // just woken it, and is about to queue it.
                None => yield_thread(),
            }
        }
        let seat = self.shared.workforce.seat(self.seat);
        passed_over.drain(..).for_each(|ready| seat.bound.push(ready));
        None
    }

    /// Handles a permit that was taken away, or given back, during the last step. Returns `true` if
    /// there is one again. If not, the processes that only this worker would have found are queued,
    /// and the worker is to park.
    #[cold]
    fn regain_permit(&self, stay: &Stay<'_>) -> bool {
        self.search.stop(&self.shared);
        self.end_batch();
        let has_bound = self.queues.has_bound()
            || !self.shared.workforce.seat(self.seat).bound.is_empty()
            || self.shared.workforce.has_bound_level(self.seat);
        let must_run = has_bound || stay.is_over(&self.shared);
        let regained = self.shared.workforce.idle.regain(self.seat, must_run);
        if regained {
            self.shared.workforce.rouse_watchdog();
        } else {
            self.queues.hand_out();
            self.shared.workforce.announce();
        }
        regained
    }

    /// Hands the worker's permit to another worker, because the thread is about to block.
    pub(crate) fn enter_section(&self) {
        if self.sections.replace(self.sections.get() + 1) > 0 {
            return;
        }
        self.log.plain(WordKind::Block, 0);
        self.search.stop(&self.shared);
        self.queues.hand_out();
        self.shared.stats.blocking_sections.fetch_add(1, Relaxed);
        self.shared.workforce.seat(self.seat).in_section.store(true, Relaxed);
        self.shared.give_permit_back(self.seat);
        self.shared.world.point();
    }

    /// Lets the thread go on after a blocking section: with a permit if one is free, otherwise
    /// without one until its step ends.
    pub(crate) fn leave_section(&self) {
        self.sections.set(self.sections.get() - 1);
        if self.sections.get() == 0 {
            self.shared.world.point();
            self.shared.workforce.seat(self.seat).in_section.store(false, Relaxed);
            self.shared.workforce.idle.regain(self.seat, false);
            self.log.plain(WordKind::Unblock, 0);
            self.shared.workforce.rouse_watchdog();
        }
    }

    /// Leaves the search with work to do (`scheduler/idle/parking.rs`).
    #[inline]
    fn leave_search(&self) {
        if !self.search.is_on.take() {
            return;
        }
        let shared = &*self.shared;
        let has_queued = || {
            // A worker that has seen a full LIFO slot, and this searcher, parks without a timeout.
            shared.workforce.has_queued()
                || shared.workforce.all_seats().any(|seat| !seat.next.look().is_null())
        };
        let rested = self.parking.rested.get();
        self.parking.rested.set(rested.saturating_sub(1));
        let Some(is_queued) = shared.workforce.idle.leave_search(has_queued) else { return };
        // After a long rest, little happens: the next worker would most likely find nothing.
        let is_short = rested > 0 || !self.queues.rings.pace.is_slow();
        let is_watched = shared.workforce.watchdog.is_running() && is_short;
        if is_queued || !is_watched || is_soon(shared, shared.next_deadline()) {
            shared.workforce.announce();
        } else {
            self.search.owes_next.set(true);
        }
    }

    /// Wakes the next worker for a timer of this worker, if this worker has woken none when it left
    /// the search and the timer is due soon, because the step may last longer.
    pub(crate) fn wake_next_for(&self, deadline: u64) {
        if self.search.owes_next.get() && is_soon(&self.shared, deadline) {
            self.search.owes_next.set(false);
            self.shared.workforce.announce();
        }
    }

    fn find_work(&self) -> Option<Ready> {
        let beacon = self.shared.clock.beacon.get();
        let turn = if self.queues.rings.pace.tick(beacon) { self.look(beacon) } else { None };
        let local = || self.queues.find_local().inspect(|_| self.end_batch());
        let found = turn.or_else(local).or_else(|| self.find_shared());
        if found.is_some() {
            self.parking.useful.set(true);
            self.leave_search();
        }
        found
    }
}

/// Returns `true` if the deadline may come while this worker is in a step.
fn is_soon(shared: &Shared, deadline: u64) -> bool {
    deadline != NEVER && deadline < shared.world.now().saturating_add(SOON)
}

/// Takes a seat with its core, which the caller has taken off the seat. Works until `stay` is over,
/// and leaves the seat with the core in it.
pub(crate) fn sit(shared: Arc<Shared>, seat: SeatId, core: Core, searching: bool, stay: Stay<'_>) {
    let local = Rc::new(LocalWorker::new(shared, seat, core, searching));
    local.shared.workforce.seat(seat).thread.store(World::thread_number(), Relaxed);
    if searching {
        local.shared.workforce.idle.come(seat);
    }
    local.shared.workforce.rouse_watchdog();
    let entered = Entered::enter(Current::Seat(Rc::clone(&local)));
    // Entered once for all that runs here, and below every coroutine's stack. The root future is
    // the user's. Its panic is resumed once the seat is left in order.
    let work = || catch_unwind(AssertUnwindSafe(|| local.work(stay)));
    let worked = local.shared.parts.enter(true, work);
    if local.shared.workforce.seat(seat).stacks.empty() {
        // In the seat, because a timer outside of it could take a thread of its own.
        local.shared.let_stacks_expire();
    }
    drop(entered);
    // The thread may be a caller's.
    drop(LentThread);
    let Some(local) = Rc::into_inner(local) else {
        unreachable!("nobody else on this thread keeps its seat")
    };
    local.leave_levels();
    local.stores.return_slots(local.shared.table());
    local.shared.return_stacks(|| ());
    local.queues.empty();
    local.shared.vacate(seat, Core { rings: local.queues.rings, stores: local.stores });
    if let Err(panic) = worked {
        resume_unwind(panic);
    }
}

/// The body of a worker's thread, which was started for a seat that a waker claimed.
pub(crate) fn run_thread(shared: Arc<Shared>, seat: SeatId, core: Core) {
    let threads = &shared.workforce.threads.options;
    if let Some(cpus) = &threads.cpus {
        // These processors were allowed when the scheduler was built. If that has changed, the
        // thread runs where the system lets it.
        let _ = cpus.bind_this_thread();
    }
    let on_stop = threads.on_stop.clone();
    // For the hooks. `sit` enters the seat itself.
    let _entered = Entered::enter(Current::outside(Arc::clone(&shared)));
    if let Some(on_start) = &threads.on_start {
        drop(guarded(|| on_start()));
    }
    sit(shared, seat, core, true, Stay::Always);
    if let Some(on_stop) = on_stop {
        drop(guarded(|| on_stop()));
    }
}
