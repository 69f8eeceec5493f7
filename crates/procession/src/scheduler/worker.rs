//! A worker: one thread in one seat of a scheduler, running processes.
//!
//! # The search for work
//!
//! A process that is ready belongs to one of two classes. It is *woken* if a timer, a descriptor, a message
//! or a thread that is no worker made it ready. It is *continued* if it was ready all the time: it yielded,
//! spent its budget, or was stolen. Woken processes wait in the *woken ring* of the worker, continued ones
//! in its *continued ring*, both first in, first out. New processes go to the newest end of the deque.
//!
//! For each dispatch a worker looks, in this order, at
//! 1. its LIFO slot (`next`), at most three times in a row while other local work waits, once in a row if
//!    its steps are slow;
//! 2. the turns that it owes since its last service (`scheduler/pace.rs`): the woken ring, the continued ring, and
//!    the oldest of the deque;
//! 3. processes that are bound to it and were woken, at every other dispatch;
//! 4. its deque, newest first; 5. its woken ring; 6. its continued ring, among which the bound processes
//!    that continue have one turn a round each;
//! 7. the global queue: one to run, and a share of the rest into the woken ring; then the overflow queue, with the
//!    continued ring;
//! 8. due timers, and descriptors that have become ready (`io/reactor.rs`);
//! 9. the other workers: half of a ring or of a deque, in random order; in the last rounds also their LIFO
//!    slots, if they are old, and their due timers.
//!
//! A ring has a queue behind it, which takes what the ring has no room for (`scheduler/lane.rs`): the woken ring the
//! global queue, in which also waits what comes from outside, and the continued ring the overflow queue, in
//! which also waits the oldest half of each deque that was full.
//!
//! Then it parks (`scheduler/idle.rs`); before that, if it has run a process that is bound to it, it looks for some microseconds whether there is another, or the
//! same again: two coroutines of different workers that answer each other need 0.5 us for each message, and 25 without (`co_apart`).
//!
//! A *service* refills both rings, fires due timers and polls descriptors. It comes after 61 dispatches at the latest, and
//! at the first step boundary that is more than 1 ms after the last one.
//! - The woken ring gets as many of the global queue as have turns until the next service, if that takes as long as
//!   the last: one for every two dispatches, less what is in the ring, and at least one for every four.
//! - The continued ring gets one for every dispatch of the overflow queue if it was full itself. Otherwise only deques
//!   have overflowed, and it gets one process, and 17 in every fourth service, or in every one if steps are slow.
//! - A service that knows the time also fires the timers of seats without a permit, and those that their own
//!   workers have not come to for 750 us. If its steps are slow (61 of them take more than 750 us), a worker fires the
//!   due timers of all others, and goes on until nothing is left or 100 us have passed. While some seat has no permit, one of
//!   four services reads the clock for this, also if steps are short.
//!
//! A process that was in the LIFO slot for its turns, and is woken by such a turn again, goes to the tail
//! of the continued ring: two processes that wake each other have four turns in a round. One that another
//! displaces from the slot goes to the tail of the woken ring. Nothing that ran returns to the deque.
//!
//! # Balance
//!
//! Idle workers steal. A busy worker does so as well, once in a millisecond at most, if fewer processes are
//! ready here than with another by two or more, the one in the other's step included. It takes half of the
//! difference, at most 16, from the other's continued ring. So n equal processes on w workers get equal shares if n is a multiple of w;
//! otherwise those of one worker get up to `ceil(n / w) / floor(n / w)` times what those of another get.
//!
//! A seat without a permit may have something in its queues. Its step lasts long and the watchdog took the
//! permit; its thread is in a blocking section, found no permit afterwards and parked, was woken and is late; or
//! no thread is there: it has retired, or was that of a caller of `block_on`. The workers that have permits take
//! all of it, at the first service that is a millisecond after the last time and knows the time.
//!
//! # Bounds
//!
//! Steps last t, w workers have permits, and nothing else runs on their processors.
//! - A woken process waits for at most 2 t + 1 ms, plus 2 t for each woken process before it on the worker that runs it;
//!   those of the global queue are spread over all w workers. Each worker looks at its own timers, those of threads that are no
//!   workers, those of seats without a permit, descriptors, and the global queue. The timers of a worker that is in a step
//!   are noticed by others 750 us later, or at once if their steps are slow, too.
//! - Woken processes have every other turn from then on. A turn that wakes another process may be followed by one
//!   out of the LIFO slot, or by three while steps are short: if each does so, what comes after it waits for
//!   two or four times as long.
//! - A continued process waits for at most k t / w + 2 t + 1 ms, if k others continue. Woken processes that
//!   are always there take every other turn: then it is twice that. If new processes never end either, it
//!   is four times that, since they have every other turn of those that are left.
//! - In dispatches, those out of the LIFO slot not counted: a service comes after at most 61. Then a process with k
//!   others before it in its ring runs within 2 (k + 1) dispatches of this worker if it is woken, and within 4 (k + 1) if it continues.
//!   The oldest of the deque runs within 4 dispatches after a service, so with k older ones within 61 (k + 1) + 4.
//! - What waits in the global queue, with k before it, comes into a ring within 4 (k + 1) dispatches of the w workers together
//!   and one service, if there is room. There is no room while 256 woken processes are in the ring before it.
//! - The rings hold 1024 (continued) and 256 (woken) processes, the deque 256. What a ring has no room for keeps its
//!   place in the order. The oldest half of a full deque continues: it goes to the tail of the overflow queue.
//! - When steps turn from short to long, the first service is late by up to 2.5 ms more, and by what the system
//!   keeps the watchdog waiting (`scheduler/pace.rs`).
//!
//! A dispatch lasts one step. Every operation of the runtime charges the step's budget; those that are
//! awaited end it when the budget is spent. A step that only sends, or never calls the runtime, is not
//! ended by anybody.
//!
//! If a step lasts long, other workers take what is queued behind it, at once if they are awake or were woken for it. The next slot they
//! take when it has not changed for 100 us; one that is about to park and sees it full looks again after 100 us, then at growing
//! intervals up to 10 ms. One that had parked before it was filled does not, since setting it wakes nobody: the watchdog (`watchdog.rs`)
//! wakes one, after 7.5 ms at most, and replaces workers whose steps last for more than 10 ms, if nobody else is there to do so.
//!
//! # Rejected
//! - Dispatch counts alone: with two steps of 9 ms on two workers, a tick of 1 ms came 534 ms late (61
//!   dispatches), where tokio and Go needed 18 ms.
//! - What was displaced from the LIFO slot, or had its turns there, at the newest end of the deque: of 9
//!   equal pairs one got as much as all others together.
//! - A batch of the global queue, or a stolen half, in the deque with its oldest on top: whatever is
//!   spawned later lies above, and the oldest of the batch runs last (966 dispatches of a bound of 61).
//! - A continued ring of 256, which 1000 yielding processes overflow: each of their turns would take the lock of the
//!   overflow queue.
//! - One queue behind all rings and deques: a message from outside waited for 8306 dispatches beside 1100 processes
//!   that yield.
//! - Twelve more rounds of a search, in which the thread yields: they took up to a whole CPU beside a worker that does alone what comes
//!   (`timers_fire`: 10 % more CPU time in all), and with naps nothing is gained by them.
//! - Waking for each timer of a million in a second: a third of the CPU time (`timers_fire_cpu` 2.2 us; 1.58 with 20 us between, 1.29 with 100, 1.17
//!   with 200, which only those that come so often are late by).

use std::cell::{Cell, RefCell};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Context as TaskContext;

use procession_coroutine::{Stack, StackCache, StackError};
use procession_queue::{Global, Steal};
use procession_sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use procession_sync::hint;

use crate::io::poller::Batch;
use crate::process::body::Step;
use crate::process::slot::{Parent, Ready, Slot, prefetch_slot};
use crate::process::state::Wait;
use crate::process::unwind::{drop_guarded, guarded};
use crate::process::waker;
use crate::scheduler::core::{Core, STACKS_CACHED};
use crate::scheduler::current;
use crate::scheduler::current::{Counter, Entered, Here};
use crate::scheduler::idle::TakenBack;
use crate::scheduler::lane::Lane;
use crate::scheduler::local::{BUDGET, Local, Seen};
use crate::scheduler::pace::{Look, SERVE_EVERY, Turn};
use crate::scheduler::root::Root;
use crate::scheduler::seat_id::{NEVER, SeatId};
use crate::scheduler::shared::Shared;
use crate::sys::epoll::Kernel;
use crate::sys::{LentThread, World, nanoseconds};
use crate::time::action::Action;
use crate::time::timers::Timers;
use crate::{Exit, Waiting, relations};

/// Runs in a row out of the next slot while other local work waits; tokio's number.
const NEXT_IN_A_ROW: u32 = 3;
/// The same while steps are slow: each run delays what is owed by a whole step.
const NEXT_IN_A_ROW_SLOW: u32 = 1;

/// Services with short steps of which one takes a share of what has overflowed deques; the others take one process.
/// That is the roots of whole trees of processes, each of which makes a deque overflow again. With a share
/// at every service, `skynet` takes a third longer.
const SHARE_EVERY: u32 = 4;
/// Such a share.
const SHARE: usize = 17;

/// Services in a row that do not read the clock, if seats without permits may depend on it. Each comes 250 us after
/// the one before it at the latest, as far as the worker knows.
const TIMELESS: u32 = 4;

/// Nanoseconds for which a service with slow steps goes on while timers or descriptors bring more.
const SERVE_FOR: u64 = 100_000;

/// Nanoseconds between two comparisons with the rings of other workers.
const BALANCE_EVERY: u64 = SERVE_EVERY;
/// Processes that one comparison moves at most.
const BALANCE_MAX: usize = 16;
/// Workers that are compared with at most, drawn by chance: enough to find one of two that has more.
const BALANCE_WITH: usize = 4;

/// Rounds over the other workers, before a worker parks. After a search that found nothing, the next is half as long.
const ROUNDS: u32 = 4;

/// How long a worker naps whose searches found nothing, at first; then twice as long each time, and then it parks for good.
const NAP: u64 = 50_000;
const NAPS: u32 = 3;

/// How far apart a worker wakes for timers at least: what the system needs to wake it is not much less.
const APART: u64 = 20_000;
/// Likewise, if they come more often than that, so that most of its time would go into waking.
const APART_DENSE: u64 = 200_000;

/// How often a worker that has run a process bound to it looks for another before it parks, with the processor's pause each time: 6 us where this was
/// measured.
const LOOKS: u32 = 200;
/// Likewise, when it has done so in vain for one time less than `LONG_LOOK_EVERY`: longer than the system needs to wake the worker that answers, so that
/// both look again from then on (`co_apart` 0.53 us, and 0.6 to 1.1 without).
const LOOKS_LONG: u32 = 2000;
const LONG_LOOK_EVERY: u32 = 16;

/// After how many nanoseconds a thread tries again to retire that was not allowed to, however short the keep-alive.
const RETIRE_AGAIN: u64 = 100_000_000;

/// How many more coroutines than twice those of another a worker has before it gives new ones away. Picked out of thin air: few enough to matter
/// to nobody, and more than come and go in a moment.
const COROUTINES_APART: u32 = 8;

/// How old an entry in a next slot must be before another worker takes it: Kotlin's number.
const NEXT_AGE: u64 = 100_000;
/// How long a parking worker waits at most to look at the next slots again, once they keep changing.
const NEXT_AGE_MAX: u64 = 10_000_000;

/// What a thread in a seat is there for.
pub(crate) enum Stay<'a> {
    /// To run processes until the scheduler has ended.
    Always,
    /// To run processes until this future is complete.
    Root(&'a Root, &'a mut dyn FnMut() -> bool),
    /// To run processes until none can run.
    Idle,
}

/// What became of a thread that found no work.
enum Parked {
    Woken,
    /// Nothing can run in the whole scheduler, unless time passes or the outside acts.
    AllIdle,
    /// There are more threads than can be used, and this one has not been for long.
    Retired,
}

impl Local {
    pub(crate) fn spend(&self) {
        self.budget.set(self.budget.get().saturating_sub(1));
    }

    /// Where this worker counts.
    #[inline]
    pub(crate) fn counter(&self) -> Counter<'_> {
        Counter::own(&self.shared.seat(self.seat).stats)
    }

    /// The process whose step runs, as the parent of a new one.
    #[inline]
    pub(crate) fn current_as_parent(&self) -> Option<Parent> {
        // SAFETY: [running] a process in its step has its life pin.
        unsafe { self.current.get()?.as_ref() }.as_parent()
    }

    /// A number below `count`.
    pub(crate) fn draw(&self, count: usize) -> usize {
        self.core.generator.borrow_mut().usize(..count)
    }

    /// Another seat to begin a coroutine on: one that has far fewer of them, drawn from those that may be, which is enough to keep all near the
    /// mean. A thread that takes the place of blocked ones will go again, and begins one only if all others block.
    pub(crate) fn seat_for_coroutine(&self) -> Option<SeatId> {
        let shared = &*self.shared;
        let first = shared.first_seats();
        let is_first = self.seat.0 < first;
        let own = shared.seat(self.seat).coroutines.load(Relaxed);
        if is_first && (own < COROUTINES_APART || first == 1) {
            return None;
        }
        let apart = if is_first { 1 + self.draw(first as usize - 1) } else { self.draw(first as usize) } as u32;
        let from = if is_first { self.seat.0 } else { 0 };
        let other = shared.idle.first_unblocked((from + apart) % first, first).filter(|&other| other != self.seat)?;
        let theirs = shared.seat(other).coroutines.load(Relaxed);
        (!is_first || own > theirs.saturating_mul(2).saturating_add(COROUTINES_APART)).then_some(other)
    }

    /// Whether a new coroutine had better begin elsewhere: this worker has some to go on with, which cannot leave it. If it began new ones before those,
    /// newest first, and a thief had the oldest, then who spawns them by their work would give nearly all of it to one of the two.
    pub(crate) fn puts_coroutines_off(&self) -> bool {
        self.shared.first_seats() > 1 && (self.has_bound() || !self.shared.seat(self.seat).bound.is_empty())
    }

    /// A stack: the one that was used here last, if there is one.
    pub(crate) fn take_stack(&self, bytes: usize) -> Result<Stack, StackError> {
        let stacks = self.shared.stacks.as_ref().expect("coroutines are refused unless they are enabled");
        let most = STACKS_CACHED.min(self.shared.stacks_limit / self.shared.width() / 16);
        self.core.stacks.borrow_mut().get_or_insert_with(|| StackCache::new(stacks, most)).take(bytes)
    }

    /// A coroutine has ended, and left its stack.
    pub(crate) fn put_stack(&self, stack: Stack) {
        // Ordering: SeqCst, as in `wait_for_stack`. One that is missed here, since it has just come, is found by `note_stack_room`.
        if self.shared.has_stack_waiters.load(SeqCst) {
            drop(stack);
            if let Some(cache) = &mut *self.core.stacks.borrow_mut() {
                cache.clear();
            }
            self.shared.wake_stack_waiters();
        } else if let Some(cache) = &mut *self.core.stacks.borrow_mut() {
            cache.put(stack);
        }
    }

    /// Puts an entry into the deque, and wakes a worker for it.
    pub(crate) fn push(&self, ready: Ready) {
        self.core.deque.push_overflowing(ready, &self.shared.overflow);
        self.shared.announce();
    }

    /// As `push`, for a new process. One that is alone in the deque runs after this step, and wakes nobody while somebody naps.
    pub(crate) fn push_newborn(&self, ready: Ready) {
        let is_alone = self.core.deque.is_empty() && !self.shared.idle.is_revoked(self.seat);
        self.core.deque.push_overflowing(ready, &self.shared.overflow);
        if is_alone { self.shared.announce_only() } else { self.shared.announce() }
    }

    /// Puts an entry into the next slot. That wakes nobody; the entry that was there goes into the deque.
    pub(crate) fn set_next(&self, ready: Ready) {
        if self.shared.is_shuffled() && self.core.generator.borrow_mut().bool() {
            return self.push(ready);
        }
        if self.shared.idle.is_revoked(self.seat) {
            // This worker will not come to it soon.
            self.push_woken(ready);
            self.unannounced.set(false);
            return self.shared.announce();
        }
        if let Some(before) = self.shared.seat(self.seat).next.set(ready.as_raw()) {
            self.push_woken(Ready::from_raw(before));
            self.unannounced.set(false);
            self.shared.announce();
        }
    }

    /// Queues a process that was woken.
    #[inline]
    pub(crate) fn push_woken(&self, ready: Ready) {
        match ready.slot().bound_to() {
            Some(seat) => self.push_bound(seat, ready),
            None => {
                self.core.woken.push(ready, &self.shared.global);
                self.unannounced.set(true);
            }
        }
    }

    /// Queues a process that continues, behind all that do.
    #[inline]
    pub(crate) fn push_continued(&self, ready: Ready) {
        match ready.slot().bound_to() {
            Some(seat) if seat == self.seat => self.push_bound_continued(ready),
            Some(seat) => self.shared.enqueue_bound(seat, ready),
            None => {
                self.core.continued.push(ready, &self.shared.overflow);
                self.unannounced.set(true);
            }
        }
    }

    fn push_bound_continued(&self, ready: Ready) {
        let due = self.core.rounds_taken.get().wrapping_add(self.core.continued.len() as u32);
        self.core.bound_continued.borrow_mut().push_back((ready, due));
    }

    /// Queues a process that runs on one worker only: without a word to anybody if that is this one.
    #[inline]
    pub(crate) fn push_bound(&self, seat: SeatId, ready: Ready) {
        if seat == self.seat {
            let chain = if self.current.get().is_some() { self.chain.get().saturating_add(1) } else { 0 };
            if chain > self.chain_max() {
                return self.push_bound_continued(ready);
            }
            self.core.bound.borrow_mut().push_back((ready, chain));
        } else {
            self.shared.enqueue_bound(seat, ready);
        }
    }

    /// Runs processes until `stay` is over.
    fn work(&self, mut stay: Stay<'_>) {
        loop {
            match &mut stay {
                Stay::Always if self.shared.has_ended() => return self.stop_searching(),
                Stay::Root(root, poll) if root.is_ready() => {
                    // The root may compute for long: it must not count as somebody who finds what others queue.
                    self.stop_searching();
                    if root.poll_if_ready(poll) {
                        return;
                    }
                }
                _ => {}
            }
            let has_permit = !self.shared.idle.is_revoked(self.seat) || self.regain_permit(&stay);
            if has_permit && let Some(ready) = self.find_work() {
                self.run(ready);
                continue;
            }
            if has_permit && self.await_bound() {
                continue;
            }
            match (self.park(&stay), &stay) {
                (Parked::AllIdle, Stay::Idle) | (Parked::Retired, _) => return,
                _ => {}
            }
        }
    }

    /// After a step during which the permit was taken away, or given back: says whether there is one again. If not, what only this worker
    /// would have found is queued, and it is to park.
    #[cold]
    fn regain_permit(&self, stay: &Stay<'_>) -> bool {
        self.stop_searching();
        let has_bound = self.has_bound() || !self.shared.seat(self.seat).bound.is_empty();
        let must_run = has_bound || self.is_over(stay);
        let regained = self.shared.idle.regain(self.seat, must_run);
        if regained {
            self.shared.rouse_watchdog();
        } else {
            self.hand_out();
            self.shared.announce();
        }
        regained
    }

    /// Puts where others find it what only this worker would have found; announcing it is left to the caller.
    fn hand_out(&self) {
        if let Some(next) = self.shared.seat(self.seat).next.take() {
            self.push_woken(Ready::from_raw(next));
        }
        self.unannounced.set(false);
    }

    /// The thread is about to block: the worker's permit goes to another.
    pub(crate) fn enter_section(&self) {
        if self.sections.replace(self.sections.get() + 1) > 0 {
            return;
        }
        self.stop_searching();
        self.hand_out();
        self.shared.blocking_sections.fetch_add(1, Relaxed);
        self.shared.seat(self.seat).in_section.store(true, Relaxed);
        self.shared.give_permit_back(self.seat);
    }

    /// The thread goes on, with a permit if there is one, else without, until its step ends.
    pub(crate) fn leave_section(&self) {
        self.sections.set(self.sections.get() - 1);
        if self.sections.get() == 0 {
            self.shared.seat(self.seat).in_section.store(false, Relaxed);
            self.shared.idle.regain(self.seat, false);
            self.shared.rouse_watchdog();
        }
    }

    /// Leaves the search, if in it; the last to leave it with something to do wakes the next.
    #[inline]
    fn stop_searching(&self) {
        if self.searching.take() && self.shared.idle.stop_searching() {
            self.shared.announce();
        }
    }

    fn find_work(&self) -> Option<Ready> {
        let beacon = self.shared.beacon.get();
        if self.core.pace.tick(beacon) {
            self.look(beacon);
        }
        let found = self.find_local().or_else(|| self.find_shared());
        if found.is_some() {
            self.useful.set(true);
            self.stop_searching();
        }
        found
    }

    /// `Look` of `scheduler/pace.rs`, and a service if it is time for one.
    #[inline(never)]
    fn look(&self, beacon: u64) {
        let look = self.core.pace.look(beacon, self.shared.is_watched(), || self.shared.world.now());
        if look.serves {
            self.serve(look);
        }
    }

    /// `Serve` of `scheduler/pace.rs`.
    fn serve(&self, look: Look) {
        let core = &self.core;
        let now = look.now.or_else(|| self.time_for_others());
        // What waits in these queues is older than what comes now.
        self.serve_global(look.dispatches as usize);
        self.serve_overflow(look.dispatches as usize);
        let (mut has_more, until) = (true, now.map_or(0, |now| now.saturating_add(SERVE_FOR)));
        while has_more {
            has_more = self.fire_due();
            if now.is_some() {
                has_more |= self.fire_due_of_others();
            }
            has_more |= self.poll();
            // Only while steps are slow: otherwise the next service comes soon enough.
            has_more &= core.pace.is_slow() && self.shared.world.now() < until;
        }
        let compares = now.is_some_and(|now| now.saturating_sub(self.balanced_at.get()) >= BALANCE_EVERY);
        if compares {
            self.balanced_at.set(now.unwrap_or_default());
            // Before it is counted what waits here.
            self.take_left_behind();
        }
        let bound = core.bound.borrow().len() + self.shared.seat(self.seat).bound.len();
        let continued = core.continued.len() + core.bound_continued.borrow().len();
        // All of the deque is owed a turn while steps are slow, and one process of it otherwise.
        let spawned = core.deque.len().min(if core.pace.is_slow() { usize::MAX } else { 1 });
        let woken = core.woken.len() + bound;
        if spawned == 0 && (woken == 0 || continued == 0) {
            // Only one class waits, in a ring: the usual order serves it.
            core.owed.note(0, 0, 0);
        } else {
            core.owed.note(woken, continued, spawned);
        }
        if compares && continued > 0 {
            self.balance();
        }
    }

    /// Takes over what is queued at seats without a permit. Nobody runs it there: the thread blocks, is
    /// parked, or has left. Workers that always have something to do never steal.
    fn take_left_behind(&self) {
        let shared = &*self.shared;
        let is_filled = |seat: &SeatId| !shared.seat(*seat).queues.are_empty();
        let mut filled = self.others(shared.idle.reach()).filter(is_filled).peekable();
        if filled.peek().is_none() {
            return;
        }
        for other in shared.idle.without_permit(filled) {
            let seat = shared.seat(other);
            // As many as there are now: its step may go on, and queue more.
            for _ in 0..seat.queues.len() {
                if let Some(ready) = seat.queues.woken.steal().success() {
                    self.push_woken(ready);
                } else if let Some(ready) = seat.queues.deque.steal().success() {
                    self.push_continued(ready);
                } else if let Some(ready) = seat.queues.continued.steal().success() {
                    self.push_continued(ready);
                } else {
                    break;
                }
                shared.seat(self.seat).stats.steals.add(1);
                seat.stats.stolen.add_shared(1);
            }
        }
    }

    /// Refills the woken ring from the global queue, for as many dispatches as there were since the last service: half of these turns are
    /// those of woken processes. Half of those belong to the global queue, however many are woken here.
    fn serve_global(&self, dispatches: usize) {
        let shared = &*self.shared;
        if shared.global.is_empty() {
            return self.core.woken.note_refilled(&shared.global);
        }
        let wanted = (dispatches / 2 + 1).saturating_sub(self.core.woken.len()).max(dispatches / 4 + 1);
        self.refill(&self.core.woken, &shared.global, wanted);
        // What this worker does not run at once is for others, too.
        shared.announce();
    }

    /// Refills the continued ring from the overflow queue: by as many as have continued since the last service, if the ring has overflowed,
    /// since all of them are there now. Otherwise it is what has overflowed a deque, and has a share now and then.
    fn serve_overflow(&self, dispatches: usize) {
        let (core, shared) = (&self.core, &*self.shared);
        if shared.overflow.is_empty() {
            return core.continued.note_refilled(&shared.overflow);
        }
        core.services.set(core.services.get().wrapping_add(1));
        let has_share = core.pace.is_slow() || core.services.get().is_multiple_of(SHARE_EVERY);
        let wanted = match (core.continued.overflows(), has_share) {
            (true, _) => dispatches + 1,
            (false, true) => SHARE,
            (false, false) => 1,
        };
        self.refill(&core.continued, &shared.overflow, wanted);
        shared.announce();
    }

    /// Takes so many processes of the queue behind a ring into that ring, if there are as many and there is room.
    fn refill<const CAPACITY: usize>(&self, lane: &Lane<Ready, CAPACITY>, behind: &Global<Ready>, wanted: usize) {
        let mut left = wanted;
        loop {
            let taken = self.take_share(lane, behind, left.min(lane.room()), None);
            left -= taken;
            if taken == 0 || left == 0 {
                return lane.note_refilled(behind);
            }
        }
    }

    /// Takes over a part of the continued processes of a worker that has more to do.
    fn balance(&self) {
        let shared = &*self.shared;
        let reach = shared.idle.reach();
        if reach == 1 {
            return;
        }
        let own = self.core.deque.len() + self.core.woken.len() + self.core.continued.len();
        let queued = |seat: &SeatId| shared.seat(*seat).queues.len();
        let Some(other) = self.others(reach).take(BALANCE_WITH).max_by_key(queued) else { return };
        let in_step = shared.seat(other).step.load(Relaxed) % 2 == 1;
        let count = surplus(own, queued(&other), in_step);
        let stats = &shared.seat(self.seat).stats;
        for _ in 0..count {
            let Some(ready) = shared.seat(other).queues.continued.steal().success() else { return };
            stats.steals.add(1);
            shared.seat(other).stats.stolen.add_shared(1);
            self.push_continued(ready);
        }
    }

    /// How long a chain of wake-ups may be while other local work waits.
    fn chain_max(&self) -> u32 {
        if self.core.pace.is_slow() { NEXT_IN_A_ROW_SLOW } else { NEXT_IN_A_ROW }
    }

    #[inline]
    fn find_local(&self) -> Option<Ready> {
        if let Some(next) = self.take_next() {
            if self.chain.get() < self.chain_max() || !self.has_local() {
                self.chain.set(self.chain.get().saturating_add(1));
                self.inherits.set(true);
                self.announce_queued();
                return Some(next);
            }
            // It has had its turns.
            self.push_continued(next);
        }
        self.chain.set(0);
        let owed = if self.core.owed.is_any() { self.find_owed() } else { None };
        let found = owed.or_else(|| self.find_woken_bound()).or_else(|| self.core.deque.pop());
        if found.is_some() {
            self.announce_queued();
            return found;
        }
        let found = self.core.woken.pop().or_else(|| self.pop_continued()).or_else(|| self.pop_bound());
        if self.unannounced.take() && self.has_queued() {
            self.shared.announce_in_sight();
        }
        found
    }

    /// Whose turn is owed since the last service.
    fn find_owed(&self) -> Option<Ready> {
        let core = &self.core;
        let turn = core.owed.next();
        let found = match turn {
            // Bound processes and others have every other of these turns.
            Turn::Woken => self.find_woken_bound().or_else(|| core.woken.pop()).or_else(|| self.pop_bound()),
            Turn::Continued => self.pop_continued(),
            Turn::Spawned => core.deque.pop_oldest(),
            Turn::Any => return None,
        };
        if found.is_none() {
            core.owed.none_left(turn);
        }
        found
    }

    /// Before something else runs: what was pushed onto a ring since the last time is for others, too.
    #[inline]
    fn announce_queued(&self) {
        if self.unannounced.take() && self.has_queued() {
            self.shared.announce();
        }
    }

    /// A woken process that is bound to this worker, at every other call.
    #[inline]
    fn find_woken_bound(&self) -> Option<Ready> {
        let bound_turn = !self.ran_bound.replace(false);
        if bound_turn { self.pop_bound() } else { None }
    }

    /// The oldest continued process; a bound one, if as many others have had their turn as were before it.
    #[inline]
    fn pop_continued(&self) -> Option<Ready> {
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
        self.had_bound.set(true);
        Some(ready)
    }

    #[inline]
    fn pop_bound(&self) -> Option<Ready> {
        let seat = &self.shared.seat(self.seat).bound;
        let has_own = !self.core.bound.borrow().is_empty();
        if seat.is_empty() && !has_own {
            return None;
        }
        // What others have queued has every other turn.
        let others_turn = self.bound_turn.replace(!self.bound_turn.get()) && !seat.is_empty();
        let own = || self.core.bound.borrow_mut().pop_front();
        let of_others = || Some((seat.pop()?, 0));
        let (ready, chain) = if others_turn { of_others().or_else(own) } else { own().or_else(of_others) }?;
        self.chain.set(chain);
        self.ran_bound.set(true);
        self.had_bound.set(true);
        Some(ready)
    }

    fn has_bound(&self) -> bool {
        !self.core.bound.borrow().is_empty() || !self.core.bound_continued.borrow().is_empty()
    }

    /// Whether anything is queued here that others can take, except in the LIFO slot; or behind a ring of this worker.
    fn has_queued(&self) -> bool {
        let core = &self.core;
        let is_any = !core.continued.is_empty() || !core.woken.is_empty() || !core.deque.is_empty();
        is_any || core.continued.overflows() || core.woken.overflows()
    }

    /// Whether anything is queued here, except in the LIFO slot.
    fn has_local(&self) -> bool {
        self.has_queued() || self.has_bound() || !self.shared.seat(self.seat).bound.is_empty()
    }

    #[inline]
    fn take_next(&self) -> Option<Ready> {
        Some(Ready::from_raw(self.shared.seat(self.seat).next.take()?))
    }

    /// Global queue, timers, descriptors, other workers.
    fn find_shared(&self) -> Option<Ready> {
        let come_up = || if self.fire_due() | self.poll() { self.find_local() } else { None };
        self.pop_global().or_else(come_up).or_else(|| self.search())
    }

    /// Queues who waits for what has happened to descriptors; says whether there was anything.
    #[inline]
    fn poll(&self) -> bool {
        self.shared.poller.kernel().is_some() && self.poll_kernel()
    }

    #[cold]
    fn poll_kernel(&self) -> bool {
        let mut batch = self.batch.take();
        let found = self.shared.poll(&mut batch);
        if found {
            // This worker runs one itself.
            self.deliver(&mut batch, 1);
        }
        self.batch.replace(batch);
        found
    }

    /// Queues them, where others can take them; but for `own` of them, each is worth a worker.
    fn deliver(&self, batch: &mut Batch, own: usize) {
        let woken = self.shared.deliver(batch);
        // Some of them this worker has announced already, and threads that are no workers wake themselves: at worst a few look in vain.
        self.shared.announce_many(woken.saturating_sub(own));
    }

    /// The oldest of the global queue, or of the overflow queue, to be run. A share of the rest goes into the ring before it.
    fn pop_global(&self) -> Option<Ready> {
        let (core, shared) = (&self.core, &*self.shared);
        self.pop_behind(&core.woken, &shared.global).or_else(|| self.pop_behind(&core.continued, &shared.overflow))
    }

    #[inline]
    fn pop_behind<const CAPACITY: usize>(&self, lane: &Lane<Ready, CAPACITY>, behind: &Global<Ready>) -> Option<Ready> {
        let mut first = None;
        if !behind.is_empty() {
            self.take_share(lane, behind, 1 + lane.room(), Some(&mut first));
            // What this worker does not run at once is for others, too.
            if !lane.is_empty() {
                self.shared.announce();
            }
        }
        lane.note_refilled(behind);
        first
    }

    /// Takes a share, of `most` at most, of the queue behind a ring into that ring, except the first if that is asked for. Returns how many
    /// there were.
    fn take_share<const CAPACITY: usize>(
        &self,
        lane: &Lane<Ready, CAPACITY>,
        behind: &Global<Ready>,
        most: usize,
        first: Option<&mut Option<Ready>>,
    ) -> usize {
        let share = behind.pop_share(self.shared.width(), most);
        if self.shared.is_shuffled() {
            let mut batch: Vec<Ready> = share.collect();
            self.core.generator.borrow_mut().shuffle(&mut batch);
            return queue_share(lane, batch.into_iter(), first);
        }
        queue_share(lane, share, first)
    }

    /// Fires what is due here and in the timers of threads that are no workers; says whether anything was.
    fn fire_due(&self) -> bool {
        let shared = &*self.shared;
        let own = self.fire(&shared.seat(self.seat).timers);
        self.fire(&shared.outside) || own
    }

    /// Fires due timers of other workers: of all if steps are slow here, since they will be slow there, too; otherwise of those without a
    /// permit, and of those that have not come to it for as long as lies between two services.
    fn fire_due_of_others(&self) -> bool {
        let shared = &*self.shared;
        let now = shared.world.now();
        if shared.next_deadline() > now {
            return false;
        }
        let late = now.saturating_sub(SERVE_EVERY);
        let is_due = |seat: &SeatId| shared.made_seat(*seat).is_some_and(|seat| seat.timers.next() <= now);
        let due: Vec<_> = (0..shared.idle.reach()).map(SeatId).filter(is_due).collect();
        let without_permit = shared.idle.without_permit(due.iter().copied());
        let mut fired = false;
        for seat in due {
            let timers = &shared.seat(seat).timers;
            if self.core.pace.is_slow() || without_permit.contains(&seat) || timers.next() <= late {
                fired |= self.fire(timers);
            }
        }
        fired
    }

    /// The time, at every fourth service that does not know it, if a seat without a permit may depend on this worker: its steps are so short
    /// that this is soon enough.
    fn time_for_others(&self) -> Option<u64> {
        let timeless = &self.core.timeless;
        timeless.set(timeless.get() + 1);
        if timeless.get() < TIMELESS || self.shared.idle.are_all_awake() {
            return None;
        }
        timeless.set(0);
        Some(self.shared.world.now())
    }

    fn fire(&self, timers: &Timers<Action>) -> bool {
        let fired = self.shared.fire(timers);
        if fired > 0 && !self.shared.world.is_test() {
            self.fired_at.set(self.shared.world.now());
            self.fired.set(self.fired.get().saturating_add(fired));
        }
        fired > 0
    }

    /// Until when a worker that parks now does not wake for timers. Asked once each time.
    fn not_before(&self) -> u64 {
        let at = self.fired_at.get();
        let span = at - self.fired_before.replace(at);
        let is_dense = u64::from(self.fired.take()) * APART > span;
        at + if is_dense { APART_DENSE } else { APART }
    }

    /// Looks at the other workers, unless enough others do.
    fn search(&self) -> Option<Ready> {
        let shared = &*self.shared;
        let reach = shared.idle.reach();
        if reach == 1 {
            return None;
        }
        if !self.searching.get() {
            if !shared.idle.start_searching() {
                return None;
            }
            self.searching.set(true);
        }
        let stats = &shared.seat(self.seat).stats;
        stats.searches.add(1);
        let rounds = self.rounds.get();
        for round in 0..rounds {
            let last = round + 1 == rounds || shared.world.is_test();
            let mut lost = false;
            for victim in self.others(reach) {
                let found = match self.steal(victim, &mut lost) {
                    None if last => self.steal_late(victim),
                    found => found,
                };
                if found.is_some() {
                    self.rounds.set(ROUNDS);
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
            hint::spin_loop();
        }
        self.rounds.set((rounds / 2).max(1));
        None
    }

    /// The other seats, in random order. With extra seats in use, in the order of their numbers, from a random one on.
    fn others(&self, seats: u32) -> impl Iterator<Item = SeatId> + use<> {
        let (start, stride) = {
            let mut generator = self.core.generator.borrow_mut();
            let strides = self.shared.strides();
            let stride =
                if seats == self.shared.first_seats() { strides[generator.usize(0..strides.len())] } else { 1 };
            (generator.u32(0..seats), stride)
        };
        let own = self.seat;
        // A stride that is coprime to their number visits each once.
        (0..seats)
            .map(move |i| SeatId(((u64::from(start) + u64::from(i) * u64::from(stride)) % u64::from(seats)) as u32))
            .filter(move |&seat| seat != own)
    }

    fn steal(&self, victim: SeatId, lost: &mut bool) -> Option<Ready> {
        let victim = self.shared.seat(victim);
        // An empty queue is told by two loads, without a read-modify-write.
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

    /// What is taken from another worker only when nothing else is left: its next slot, if that is old, and its due timers.
    fn steal_late(&self, victim: SeatId) -> Option<Ready> {
        let shared = &*self.shared;
        let seat = shared.seat(victim);
        if self.fire(&seat.timers)
            && let Some(ready) = self.find_local()
        {
            return Some(ready);
        }
        let mut seen = self.seen_next.borrow_mut();
        let victim = victim.0 as usize;
        if seen.len() <= victim {
            seen.resize(victim + 1, Seen::default());
        }
        let seen = &mut seen[victim];
        let entry = seat.next.look();
        let step = seat.step.load(Relaxed);
        if entry.is_null() {
            *seen = Seen::default();
            return None;
        }
        let now = shared.world.now();
        if (seen.entry, seen.step) != (entry, step) {
            *seen = Seen { entry, step, since: now };
            return None;
        }
        if now - seen.since < NEXT_AGE {
            return None;
        }
        *seen = Seen::default();
        seat.next.steal(entry).map(Ready::from_raw)
    }

    /// How long to park at most because a running worker's next slot is full, so that it is looked at again.
    fn next_slots_until(&self) -> u64 {
        let full = self.shared.all_seats().any(|seat| !seat.next.look().is_null());
        if !full || self.shared.world.is_test() || self.shared.idle.counts().0 > 0 {
            self.patience.set(NEXT_AGE);
            return NEVER;
        }
        let patience = self.patience.get();
        self.patience.set((patience * 2).min(NEXT_AGE_MAX));
        self.shared.world.now().saturating_add(patience)
    }

    /// How long this worker naps, if it is to: while others run, and if it has found nothing since it was woken.
    fn nap(&self) -> Option<u64> {
        let shared = &*self.shared;
        let naps = self.naps.get();
        let in_vain = !self.useful.replace(false) && self.rounds.get() == 1;
        if !in_vain || naps == NAPS || shared.world.is_test() || !shared.idle.is_another_awake() {
            self.naps.set(0);
            return None;
        }
        self.naps.set(naps + 1);
        Some(NAP << naps)
    }

    /// Looks for a while for a process that only this worker can run, if it has run one: another that runs elsewhere may be about to answer it, and
    /// for each to park and be woken takes fifty times as long. Says whether there is one, or something else to do.
    fn await_bound(&self) -> bool {
        let shared = &*self.shared;
        if !self.had_bound.replace(false) || shared.first_seats() == 1 || shared.world.is_test() {
            return false;
        }
        let bound = &shared.seat(self.seat).bound;
        let in_vain = self.looked_in_vain.get();
        let looks = if in_vain % LONG_LOOK_EVERY == LONG_LOOK_EVERY - 1 { LOOKS_LONG } else { LOOKS };
        for look in 0..looks {
            if !bound.is_empty() {
                self.looked_in_vain.set(0);
                return true;
            }
            // It may still count as searching, so that nobody else is woken for what is queued now.
            if look % 16 == 0 && shared.has_queued() {
                return true;
            }
            hint::spin_loop();
        }
        self.looked_in_vain.set(in_vain.wrapping_add(1));
        false
    }

    /// Parks until there is something to do (`scheduler/idle.rs`).
    fn park(&self, stay: &Stay<'_>) -> Parked {
        let shared = &*self.shared;
        let seat = shared.seat(self.seat);
        seat.stats.parks.add(1);
        let nap = self.nap();
        let mut napping = nap.map(|_| shared.idle.nap());
        // What others left in the heap is put right while there is nothing else to do.
        seat.timers.adjust();
        seat.timers.clean();
        if self.seat.0 >= shared.first_seats() {
            // An extra worker may be gone for long, and a limit on processes counts the slots that it holds.
            self.core.return_slots(shared);
        }
        if shared.idle.announce(self.seat, self.searching.replace(false)) {
            shared.tell_all_idle();
        }
        shared.note_end_at_leisure();
        let nap_until = nap.map_or(NEVER, |nap| shared.world.now().saturating_add(nap));
        let mut look_again = nap_until.min(self.next_slots_until());
        let mut retire_at = self.retire_at(stay);
        let not_before = self.not_before();
        loop {
            let deadline = shared.next_deadline();
            let due = deadline <= shared.world.now();
            let must_run = !seat.bound.is_empty() || self.has_bound() || self.is_over(stay);
            if (due || shared.has_queued() || must_run) && self.take_back(must_run) {
                break;
            }
            if matches!(stay, Stay::Idle) && self.poll_while_parked() {
                break;
            }
            let may_leave = matches!(stay, Stay::Idle) && shared.outstanding() == 0;
            let may_advance = shared.may_advance() && deadline != NEVER;
            if (may_leave || may_advance)
                && let Some(awakenings) = shared.idle.take_back_if_all_parked(self.seat)
            {
                self.searching.set(true);
                // Only now nobody else runs: what was read before may be old.
                let idle = shared.outstanding() == 0 && !shared.has_work();
                let deadline = shared.next_deadline();
                let may_advance = may_advance && shared.may_advance();
                let idle = idle && shared.idle.is_alone_since(awakenings);
                if idle && may_leave && deadline > shared.world.now() {
                    self.stop_searching();
                    // It may have kept the time while another ran; whoever sets a timer must not rely on it any more.
                    shared.leave_keeping(self.seat);
                    return Parked::AllIdle;
                }
                if idle && may_advance && deadline != NEVER {
                    shared.world.advance_to(deadline);
                }
                break;
            }
            // Due, but without a permit: those who are awake come to it, and when one of them parks it keeps the time, since this one does not.
            if due && shared.resign_keeping(self.seat) {
                continue;
            }
            let keeps = if due { None } else { shared.keep_time(self.seat, deadline) };
            // Who relies on this one for the deadline finds it as late as the system might have been.
            let keeps = keeps.map(|until| until.max(not_before));
            let until_then = look_again.min(retire_at);
            match (keeps, shared.poller.kernel()) {
                (Some(until), Some(kernel)) => {
                    if self.wait_in_kernel(kernel, until.min(until_then)) {
                        break;
                    }
                }
                (until, _) => shared.world.park(&seat.parker, until.unwrap_or(NEVER).min(until_then)),
            }
            if shared.idle.come(self.seat) {
                // A waker took it off.
                self.searching.set(true);
                break;
            }
            let now = shared.world.now();
            if now >= retire_at {
                if shared.idle.retire(self.seat) {
                    shared.leave_keeping(self.seat);
                    return Parked::Retired;
                }
                // It is the last beside those that block.
                retire_at = self.retire_at(stay).max(now.saturating_add(RETIRE_AGAIN));
            }
            if now >= look_again {
                if self.take_back(false) {
                    break;
                }
                // Without a permit, this is for those who are awake. Nobody relies on this one from here on, and it looks once more.
                napping = None;
                look_again = NEVER;
            }
        }
        drop(napping);
        self.core.pace.resume();
        shared.leave_keeping(self.seat);
        shared.rouse_watchdog();
        Parked::Woken
    }

    /// Takes the announcement back, unless there is no permit; says whether this worker searches now.
    fn take_back(&self, force: bool) -> bool {
        let searches = match self.shared.idle.take_back(self.seat, force) {
            // The waker's token wakes once too often.
            TakenBack::Yes | TakenBack::ByWaker => true,
            TakenBack::NoPermit => false,
        };
        self.searching.set(searches);
        searches
    }

    /// When this thread leaves, if it is not used until then, and there are more than can be.
    fn retire_at(&self, stay: &Stay<'_>) -> u64 {
        let shared = &*self.shared;
        // Coroutines that have begun here stay on this thread.
        let keeps = shared.seat(self.seat).coroutines.load(Relaxed) > 0;
        if !matches!(stay, Stay::Always) || keeps || !shared.idle.has_surplus() {
            return NEVER;
        }
        shared.world.now().saturating_add(nanoseconds(shared.threads.keep_alive))
    }

    /// Parks as the keeper, until something happens to a descriptor, too; then this worker is parked no longer.
    fn wait_in_kernel(&self, kernel: &Arc<Kernel>, until: u64) -> bool {
        let shared = &*self.shared;
        let mut batch = self.batch.take();
        let asking = shared.begin_waiting();
        shared.world.park_in_kernel(&shared.seat(self.seat).parker, kernel, until, &mut batch.events);
        drop(asking);
        let found = self.found_while_parked(&mut batch);
        self.batch.replace(batch);
        found
    }

    /// Looks once, before this worker is called idle.
    fn poll_while_parked(&self) -> bool {
        let mut batch = self.batch.take();
        self.shared.poll(&mut batch);
        let found = self.found_while_parked(&mut batch);
        self.batch.replace(batch);
        found
    }

    /// Delivers what a parked worker has polled. It is parked no longer, then, and leaves the office, so that who is woken can take it.
    fn found_while_parked(&self, batch: &mut Batch) -> bool {
        if batch.events.is_empty() {
            return false;
        }
        let searches = self.take_back(false);
        self.shared.leave_keeping(self.seat);
        if !searches {
            // Without a permit it stays where it is. What it delivers is for others, who look into the global queue.
            self.core.woken.close();
        }
        self.deliver(batch, 0);
        if !searches {
            self.unannounced.set(false);
            self.shared.announce();
        }
        searches
    }

    /// Whether what this thread is there for has something for it, or is over.
    fn is_over(&self, stay: &Stay<'_>) -> bool {
        match stay {
            Stay::Always => self.shared.has_ended(),
            Stay::Root(root, _) => root.is_ready(),
            Stay::Idle => false,
        }
    }

    /// Runs one step of a process.
    fn run(&self, ready: Ready) {
        let slot = ready.slot();
        let seat = self.shared.seat(self.seat);
        // Before its step begins: these wakers wake it, which must not count as news.
        for waker in slot.take_foreign_wakers() {
            drop(guarded(|| waker.wake()));
        }
        let seen = slot.state.start();
        // Only this worker writes these, so no read-modify-writes.
        seat.running.store(slot.index() + 1, Relaxed);
        // Ordering: Release pairs with the Acquire of `in_steps`: who finds the step finds whose it is.
        seat.step.store(seat.step.load(Relaxed).wrapping_add(1), Release);
        slot.steps.store(slot.steps.load(Relaxed).wrapping_add(1), Relaxed);
        if !self.inherits.take() {
            self.budget.set(BUDGET);
        }
        self.gives_way.set(false);
        self.current.set(Some(ready.as_raw()));
        slot.clear_waiting();
        let step = if seen.is_terminated() {
            Err(relations::doom(slot))
        } else {
            let waker = waker::borrowed(slot);
            let mut task = TaskContext::from_waker(&waker);
            // SAFETY: [running] this worker took the entry.
            guarded(|| unsafe {
                slot.with_body(|body| body.as_mut().map_or(Step::Ended(None), |body| body.step(slot, &mut task)))
            })
        };
        match step {
            Ok(Step::Waits(wait_for)) if !self.gives_way.get() => {
                self.current.set(None);
                if slot.state.wait(wait_for) == Wait::Enqueue {
                    self.push_continued(ready);
                }
            }
            Ok(Step::Waits(_) | Step::GoesOn) => {
                self.current.set(None);
                slot.state.give_way();
                self.push_continued(ready);
            }
            Ok(Step::Ended(exit)) => self.end(ready, exit.as_deref().unwrap_or(&Exit::Normal)),
            Err(exit) => {
                if exit.is_panic() {
                    seat.stats.panics.add(1);
                }
                // SAFETY: [running] as above.
                let ended = guarded(|| unsafe {
                    slot.with_body(|body| body.as_mut().map(|body| body.end(slot, exit.clone())))
                });
                // A second panic, of a `Drop`: the state is gone all the same, and the first exit stands.
                drop(ended);
                self.end(ready, &exit);
            }
        }
        seat.step.store(seat.step.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// The step has ended its process: the slot may be another's before this returns, so the worker names it no longer when users' code runs.
    fn end(&self, ready: Ready, exit: &Exit) {
        complete(&self.shared, ready, exit);
        self.current.set(None);
        self.shared.seat(self.seat).running.store(0, Relaxed);
        self.shared.note_end();
    }
}

/// How many processes a worker takes over that is between two steps and has `own` ready, from one that has so many queued and perhaps another
/// in its step: half of the difference.
fn surplus(own: usize, queued: usize, in_step: bool) -> usize {
    ((queued + usize::from(in_step)).saturating_sub(own) / 2).min(BALANCE_MAX)
}

/// Puts a share into a ring, except the first if that is asked for. Returns how many there were.
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

/// Ends a process whose result is in its body; the caller runs it, and goes on with `note_end`, which may run users' code, when it is nobody's step any more:
/// the slot may be another's by then.
fn complete(shared: &Shared, ready: Ready, exit: &Exit) {
    let slot = ready.slot();
    slot.drop_foreign_wakers();
    let counter = current::counter(shared);
    counter.add(|stats| &stats.received, slot.received().into());
    if slot.is_alone() {
        // A result whose `Drop` does not return is that of a process that still runs.
        // SAFETY: [running] the handle is gone, so the body is the caller's until the end.
        drop_guarded(unsafe { slot.with_body(Option::take) });
        if slot.seal() {
            // SAFETY: just sealed, and nothing is left of it.
            unsafe { crate::process::life::free_sealed(ready) };
            counter.add(|stats| &stats.ended, 1);
            return;
        }
    }
    counter.add(|stats| &stats.discarded, slot.close_mailbox().into());
    // Whoever gets the result finds it counted. What nobody waits for has ended when its result is dropped.
    let counted = slot.state.see().has_handle();
    if counted {
        counter.add(|stats| &stats.ended, 1);
    }
    if slot.state.see().is_related() {
        relations::release_name(slot);
    }
    let seen = slot.state.complete();
    if seen.is_related() {
        relations::settle(slot, exit);
    }
    let detached = !seen.has_handle();
    if detached {
        slot.note_waiting(Waiting::DROP);
        // SAFETY: [running] the handle was gone, so the body is still the caller's.
        drop_guarded(unsafe { slot.with_body(Option::take) });
        slot.forget_waiting(Waiting::DROP);
    } else if seen.has_waiter()
        // SAFETY: [cell] `complete` has found it.
        && let Some(waiter) = unsafe { slot.take_waiter() }
    {
        drop(guarded(|| waiter.wake()));
    }
    // Code of the user's has run since the first look, and may have polled a context: nobody wakes what it left.
    slot.drop_foreign_wakers();
    // SAFETY: completed above, by who ran it.
    unsafe { crate::process::life::let_go(ready, detached) };
    if !counted {
        counter.add(|stats| &stats.ended, 1);
    }
}

/// Ends a process that was never queued: its maker holds its entry.
pub(crate) fn end_unqueued(shared: &Shared, ready: Ready) {
    let slot = ready.slot();
    let _ = slot.state.start();
    // SAFETY: [running] the entry is the caller's.
    drop(guarded(|| unsafe { slot.with_body(|body| body.as_mut().map(|body| body.end(slot, Exit::Killed))) }));
    complete(shared, ready, &Exit::Killed);
    shared.note_end();
}

/// Sits down with a core, which the caller took off its seat, works, and leaves the seat as it was.
pub(crate) fn sit(shared: Arc<Shared>, seat: SeatId, core: Core, searching: bool, stay: Stay<'_>) {
    #[cfg(feature = "tokio")]
    let bridge = shared.bridge.clone();
    let local = Rc::new(Local {
        shared,
        seat,
        core,
        current: Cell::new(None),
        budget: Cell::new(BUDGET),
        gives_way: Cell::new(false),
        serving: Cell::new(None),
        served: RefCell::new(None),
        chain: Cell::new(0),
        balanced_at: Cell::new(0),
        inherits: Cell::new(false),
        ran_bound: Cell::new(false),
        bound_turn: Cell::new(false),
        had_bound: Cell::new(false),
        looked_in_vain: Cell::new(0),
        unannounced: Cell::new(false),
        searching: Cell::new(searching),
        rounds: Cell::new(ROUNDS),
        seen_next: RefCell::default(),
        patience: Cell::new(NEXT_AGE),
        fired_at: Cell::new(0),
        fired: Cell::new(0),
        fired_before: Cell::new(0),
        naps: Cell::new(0),
        useful: Cell::new(false),
        sections: Cell::new(0),
        batch: RefCell::default(),
    });
    local.shared.seat(seat).thread.store(World::thread_number(), Relaxed);
    if searching {
        local.shared.idle.come(seat);
    }
    local.shared.rouse_watchdog();
    let entered = Entered::enter(Here::Seat(Rc::clone(&local)));
    // Once for all that runs here, and below every coroutine's stack.
    #[cfg(feature = "tokio")]
    let context = crate::bridge::runtime::enter(bridge.as_deref());
    // The root future is the user's: its panic goes on once the seat is left in order.
    let worked = catch_unwind(AssertUnwindSafe(|| local.work(stay)));
    #[cfg(feature = "tokio")]
    drop(context);
    drop(entered);
    // The thread may be a caller's.
    drop(LentThread);
    let Some(local) = Rc::into_inner(local) else { unreachable!("nobody else on this thread keeps its seat") };
    local.core.return_slots(&local.shared);
    if seat.0 >= local.shared.first_seats() {
        // Nobody may sit here again at all, and an empty seat need not be looked at.
        let core = &local.core;
        while let Some(ready) = core.woken.pop() {
            local.shared.global.push(ready);
        }
        while let Some(ready) = core.continued.pop().or_else(|| core.deque.pop_oldest()) {
            local.shared.overflow.push(ready);
        }
    }
    // Those who sit elsewhere may need them.
    drop(local.core.stacks.take());
    if let Some(next) = local.shared.seat(seat).next.take() {
        // Nobody may sit here again soon.
        local.shared.global.push(Ready::from_raw(next));
    }
    for (ready, _) in local.core.bound.take().into_iter().chain(local.core.bound_continued.take()) {
        local.shared.seat(seat).bound.push(ready);
    }
    local.shared.vacate(seat, local.core);
    if let Err(panic) = worked {
        resume_unwind(panic);
    }
}

/// The body of a worker's thread, which was started for a seat that a waker claimed.
pub(crate) fn run_thread(shared: Arc<Shared>, seat: SeatId, core: Core) {
    let threads = &shared.threads;
    if let Some(cpus) = &threads.cpus {
        // Those were allowed when the scheduler was built. If that has changed, the thread runs where the system lets it.
        let _ = cpus.bind_this_thread();
    }
    let on_stop = threads.on_stop.clone();
    if let Some(on_start) = &threads.on_start {
        drop(guarded(|| on_start()));
    }
    sit(shared, seat, core, true, Stay::Always);
    if let Some(on_stop) = on_stop {
        drop(guarded(|| on_stop()));
    }
}

impl Core {
    /// Some free slots of the worker's own, taken from the table in batches.
    pub(crate) fn free_slot(&self, shared: &Arc<Shared>) -> Option<NonNull<Slot>> {
        let mut slots = self.slots.borrow_mut();
        if slots.is_empty() {
            let batch = (shared.table().cache() / 2).max(1);
            shared.table().take_free(shared, batch, &mut slots);
        }
        let slot = slots.pop()?;
        if let Some(next) = slots.last() {
            // Of many that were used once, it is in no cache when its turn comes.
            prefetch_slot(next.as_ptr());
        }
        Some(slot)
    }

    pub(crate) fn return_slots(&self, shared: &Shared) {
        let mut slots = mem::take(&mut *self.slots.borrow_mut());
        // The caller keeps the scheduler itself.
        drop(shared.table().return_free(&mut slots, true));
    }
}

#[cfg(test)]
mod tests {
    use super::{BALANCE_MAX, surplus};

    /// Two workers with so many processes each, in all of which they run in turn: each compares at a boundary of its own, while the other is
    /// in a step. Returns how many each has at the end, and how many were moved.
    fn balanced(mut processes: [usize; 2]) -> ([usize; 2], usize) {
        let mut moved = 0;
        for round in 0..200 {
            let (own, other) = (round % 2, 1 - round % 2);
            let count = surplus(processes[own], processes[other].saturating_sub(1), processes[other] > 0);
            processes[own] += count;
            processes[other] -= count;
            moved += count;
        }
        (processes, moved)
    }

    #[test]
    fn a_difference_of_two_is_made_even_and_not_traded() {
        for few in 1..40 {
            for more in few..80 {
                let ([one, other], moved) = balanced([few, more]);
                assert!(one.abs_diff(other) <= 1, "{few} and {more} become {one} and {other}");
                assert_eq!(moved, (more - few) / 2, "{few} and {more}: each is moved once");
            }
        }
        assert_eq!(surplus(1, 1000, true), BALANCE_MAX);
    }
}
