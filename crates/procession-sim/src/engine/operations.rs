//! Operations of atomics, locks and cells as points: *level 2*, under the private cfg
//! `procession_sim`.
//!
//! A thread that gets its turn plans after how many operations it is preempted, if at all. So an
//! operation without a preemption is a count and no decision. The stores of a thread stay in its
//! buffer (`Memory`) while it has its turn, because only other threads could see a difference. When
//! it loses the turn at a point, one decision says how many stay there. From then on, each
//! operation of another thread can make some of these stores visible. A thread that waits or ends
//! keeps no store, and no store outlasts a move of the clock.
//!
//! Plain memory has no buffers. Without a data race, nobody sees the difference: a thread reads
//! what another thread wrote only after a store that was made later, and that store waits in a
//! buffer for all before it. Accesses of cells are watched, so a race in them is found.
//!
//! On a weak processor, a load decides which of the values it finds that the thread may read.

use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use procession::sim::ThreadBody;
use procession_sync::host::atomic::Ordering::{self, Relaxed, SeqCst};
use procession_sync::simulated::{self, Entered, Loaded, Machine, Operation};

use super::{Engine, ME, State, Status};
use crate::chance::fine::Before;
use crate::engine::buffers::{CellAccess, OperationCounts};
use crate::faults::Fault;
use crate::story::{Kind, place};
use crate::time::{MS, NEVER, US, nanoseconds};
use crate::turn::Why;

/// The time in nanoseconds for which a thread is preempted while no other can run. Within it,
/// workers that nap wake.
const PREEMPTED_USUAL: u64 = 200 * US;
/// The longest such time. Within it, the watchdog looks.
const PREEMPTED_MAX: u64 = 5 * MS;

/// What a thread waits for that waits for the end of others. No object has this address.
const JOIN: usize = 0;

/// The index of the calling thread.
fn me() -> usize {
    ME.get() as usize - 1
}

impl Engine {
    /// Makes each operation of the calling thread a point, until the result is dropped.
    pub(super) fn watch_operations(&self) -> Option<Entered> {
        let engine = self.me.upgrade().expect("the caller holds it");
        self.setup.at_atomics.then(|| simulated::enter(engine as Arc<dyn Machine>))
    }

    /// Notes that the turn of a thread ends, or continues after a point.
    pub(super) fn end_turn(&self, state: &mut State, me: usize, why: Why) {
        // Relaxed: the turn orders all that is in `operations`.
        let (gap, done) =
            (self.operations.gap.load(Relaxed), self.operations.done.swap(0, Relaxed));
        state.chance.end_turn(gap, done);
        let mut counts = self.operations.counts.lock();
        counts.operations += u64::from(done);
        counts.preemptions += u64::from(why == Why::Preempt);
        if matches!(why, Why::Wait | Why::End) {
            self.operations.memory.lock().drain(me);
        }
        self.operations.has_passed.store(false, Relaxed);
        self.operations.has_released.store(false, Relaxed);
    }

    /// A new thread gets its first turn.
    pub(super) fn begin_first_turn(&self) {
        self.begin_turn(&mut self.state());
    }

    /// A thread gets its turn, or keeps it after a point.
    pub(super) fn begin_turn(&self, state: &mut State) {
        let thread = state.story.running.map(|thread| thread as u32);
        let gap = if state.is_over { 0 } else { state.chance.plan(thread) };
        self.operations.gap.store(gap, Relaxed);
        self.operations.has_aim.store(!state.is_over && state.chance.has_aim(), Relaxed);
    }

    /// Decides how much of what a thread has stored others do not see when it loses the turn.
    pub(super) fn keep_stores(&self, state: &mut State, me: usize) {
        let mut memory = self.operations.memory.lock();
        let stores = memory.stores(me);
        let kept = if state.is_over || stores == 0 { 0 } else { state.chance.keep(stores) };
        memory.reveal(me, stores - kept);
        self.operations.counts.lock().delayed_stores += u64::from(kept);
        if kept > 0 {
            let (now, name) = (self.time(), state.threads[me].name.clone());
            state.story.tell(now, || format!("the last {kept} stores of {name} are not visible"));
        }
    }

    /// Returns the threads that can run, of which `ready` can run now. If only the preempted thread
    /// can run, time passes until another thread can, unless that time exceeds a limit. So several
    /// threads can run one after the other before the preempted thread continues.
    pub(super) fn ready_instead(
        &self,
        state: &mut State,
        me: usize,
        why: Why,
        ready: Vec<u32>,
    ) -> Vec<u32> {
        let (now, until) = (self.time(), state.earliest());
        if why == Why::Preempt {
            state.preempted_at = now;
        }
        let [only] = ready[..] else { return ready };
        let is_preempted = match why {
            Why::Preempt => true,
            Why::Wait | Why::End => state.chance.was_preempted_last(only),
            Why::Point | Why::Pause => false,
        };
        let limit = state.preempted_at + PREEMPTED_MAX;
        if !is_preempted || state.is_over || until <= now || until > limit {
            return ready;
        }
        let length = until - state.preempted_at;
        let is_usual = length <= PREEMPTED_USUAL;
        let passes = match why {
            Why::Preempt => is_usual || state.chance.passes_time(length),
            _ => state.chance.goes_on_without_preempted(is_usual, length),
        };
        if !passes {
            return ready;
        }
        // Relaxed: the turn orders it.
        self.now.store(until, Relaxed);
        state.ready(me, why, until)
    }

    /// All stores become visible, because time passes.
    pub(super) fn settle_memory(&self) {
        self.operations.memory.lock().let_time_pass();
    }

    /// All that the threads have done is before all that they do from now on, because the kernel or
    /// a lock of the simulation orders it.
    pub(crate) fn order_threads(&self) {
        self.operations.memory.lock().order_all();
    }

    /// The calling thread, if it is a virtual one, starts another thread.
    pub(super) fn order_start(&self, other: u32) {
        if let Some(thread) = ME.get().checked_sub(1) {
            self.operations.memory.lock().start(thread as usize, other as usize - 1);
        }
    }

    /// The calling thread, if it is a virtual one, wakes another thread.
    pub(super) fn order_wake(&self, other: usize) {
        if let Some(thread) = ME.get().checked_sub(1) {
            self.operations.memory.lock().wake(thread as usize, other);
        }
    }

    /// Orders all threads when a thread of a scheduler ends, because it has dropped its references
    /// to the scheduler. Their counts, which are not seen, order what the last owner does.
    pub(super) fn ordered_at_end(&self, body: ThreadBody) -> ThreadBody {
        let engine = self.me.upgrade().expect("the caller holds it");
        Box::new(move || {
            body();
            engine.operations.memory.lock().end();
        })
    }

    /// A thread continues after a wait.
    pub(super) fn order_woken(&self, thread: usize) {
        self.operations.memory.lock().woken(thread);
    }

    /// Chooses which of so many values an operation of a weak processor finds, or where it stores.
    /// 0 is the newest value.
    fn choose_value(&self, operation: Operation, count: u32) -> u32 {
        let mut state = self.state();
        if state.is_over || !state.chance.fine.is_open {
            return 0;
        }
        let back = state.chance.older_value(count);
        if back > 0 {
            self.operations.counts.lock().older_values += 1;
            let (now, name) = (self.time(), state.threads[me()].name.clone());
            state.story.tell(now, || {
                format!("{name} sees {back} values less than there are at {}", place(operation.at))
            });
        }
        back
    }

    /// Decides which stores of other threads become visible before an operation.
    fn reveal_stores(&self, me: usize) {
        let mut memory = self.operations.memory.lock();
        let others = memory.others(me);
        if others.is_empty() {
            return;
        }
        let mut state = self.state();
        for other in others {
            let stores = memory.stores(other);
            let revealed = if state.is_over { stores } else { state.chance.reveal(stores) };
            memory.reveal(other, revealed);
            if revealed > 0 {
                let (now, name) = (self.time(), state.threads[other].name.clone());
                state.story.tell(now, || format!("{revealed} stores of {name} become visible"));
            }
        }
    }

    /// Decides whether the running thread is preempted before an operation, its `done`th, although
    /// that was not planned.
    fn is_aimed_at(&self, at: &'static Location<'static>, done: u32) -> bool {
        let before = Before {
            has_passed: self.operations.has_passed.load(Relaxed),
            has_released: self.operations.has_released.swap(false, Relaxed),
        };
        self.operations.has_aim.load(Relaxed) && self.state().chance.preempts(before, at, done)
    }

    /// Makes the stores of the running thread visible.
    fn drain(&self) {
        self.operations.has_passed.store(false, Relaxed);
        self.operations.memory.lock().drain(me());
    }

    pub(crate) fn operation_counts(&self) -> OperationCounts {
        *self.operations.counts.lock()
    }

    /// Waits until all other threads have ended.
    pub(crate) fn join_all(&self) {
        while self.state().alive() > 1 {
            self.block(JOIN, NEVER);
        }
        self.order_threads();
    }

    /// A thread has ended.
    pub(super) fn unblock_joining(&self) {
        self.unblock(JOIN, true);
    }

    /// Waits until another thread lets this one continue, or until the deadline. Returns `true` if
    /// the deadline has passed.
    fn block(&self, on: usize, until: u64) -> bool {
        let me = me();
        let mut state = self.state();
        let thread = &mut state.threads[me];
        thread.status = Status::Parked { until, is_woken: false };
        thread.blocked_on = Some(on);
        drop(state);
        self.pass(ME.get(), Why::Wait);
        self.state().threads[me].blocked_on.take().is_some()
    }

    /// Lets threads continue that are blocked by an object: all, or one.
    fn unblock(&self, on: usize, all: bool) {
        let mut state = self.state();
        let waiting: Vec<_> = (0..state.threads.len())
            .filter(|&thread| state.threads[thread].blocked_on == Some(on))
            .collect();
        let chosen = match all || waiting.is_empty() || state.is_over {
            true => 0,
            false => state.chance.released(waiting.len() as u32) as usize,
        };
        let count = if all { waiting.len() } else { 1 };
        for &thread in waiting.iter().skip(chosen).take(count) {
            state.threads[thread].status = Status::Ready;
            state.threads[thread].blocked_on = None;
        }
    }
}

impl Machine for Engine {
    fn point(&self, at: &'static Location<'static>) {
        let me = me();
        self.reveal_stores(me);
        let done = self.operations.done.fetch_add(1, Relaxed) + 1;
        let is_planned = done == self.operations.gap.load(Relaxed);
        if !is_planned && !self.is_aimed_at(at, done) {
            return;
        }
        {
            let mut state = self.state();
            if state.story.is_told() {
                state.story.place = Some(format!(" before {}", place(at)));
            }
        }
        self.pass(ME.get(), Why::Preempt);
    }

    fn pause(&self) {
        procession::sim::Os::pause(self);
    }

    fn now(&self) -> Duration {
        Duration::from_nanos(self.time())
    }

    fn load(&self, operation: Operation) -> Loaded {
        let mut memory = self.operations.memory.lock();
        if memory.passes(me()) {
            self.operations.has_passed.store(true, Relaxed);
        }
        memory.load(me(), operation, &mut |count| self.choose_value(operation, count))
    }

    fn peek(&self, operation: Operation) -> Loaded {
        self.operations.memory.lock().peek(operation)
    }

    fn store(&self, operation: Operation, value: u64) {
        if operation.order == SeqCst {
            self.operations.has_passed.store(false, Relaxed);
        }
        let mut memory = self.operations.memory.lock();
        memory.store(me(), operation, value, &mut |count| self.choose_value(operation, count));
    }

    fn settle(&self, operation: Operation, wanted: Option<u64>) -> Option<u64> {
        self.operations.has_passed.store(false, Relaxed);
        let mut memory = self.operations.memory.lock();
        memory.settle(me(), operation, wanted, &mut |count| self.choose_value(operation, count))
    }

    fn written(&self, operation: Operation, is_written: bool) {
        self.operations.memory.lock().written(me(), operation, is_written);
    }

    fn fence(&self, order: Ordering) {
        if order == SeqCst {
            self.operations.has_passed.store(false, Relaxed);
        }
        self.operations.memory.lock().fence(me(), order);
    }

    fn heavy_fence(&self) {
        self.operations.has_passed.store(false, Relaxed);
        self.operations.memory.lock().heavy_fence(me());
    }

    fn enter_kernel(&self) {
        self.drain();
    }

    fn order_all(&self) {
        self.operations.has_passed.store(false, Relaxed);
        self.order_threads();
    }

    fn own(&self, operation: Operation) -> Loaded {
        self.operations.memory.lock().own(operation)
    }

    fn forget(&self, address: usize) {
        self.operations.memory.lock().forget(me(), address);
    }

    fn lock(&self, address: usize) {
        while !self.try_lock(address) {
            self.block(address, NEVER);
        }
    }

    fn try_lock(&self, address: usize) -> bool {
        self.drain();
        let mut holders = self.operations.holders.lock();
        let is_free = !holders.contains_key(&address);
        if is_free {
            holders.insert(address, me());
            self.operations.memory.lock().lock(me(), address);
        }
        is_free
    }

    fn unlock(&self, address: usize) {
        self.drain();
        self.operations.memory.lock().unlock(me(), address);
        self.operations.holders.lock().remove(&address);
        self.unblock(address, true);
        self.operations.has_released.store(true, Relaxed);
    }

    fn wait(&self, condvar: usize, lock: usize, timeout: Option<Duration>) -> bool {
        self.unlock(lock);
        let early = self.state().fault(Fault::EarlyWake, &[0, 1]).is_some();
        let until = match timeout {
            _ if early => self.time(),
            None => NEVER,
            Some(timeout) => self.time().saturating_add(nanoseconds(timeout)),
        };
        self.block(condvar, until) && !early
    }

    fn notify(&self, condvar: usize, all: bool) {
        self.drain();
        self.unblock(condvar, all);
    }

    fn enter(&self, address: usize, is_write: bool, at: &'static Location<'static>) -> u64 {
        let thread = me();
        let mut accesses = self.operations.accesses.lock();
        let number = accesses.last().map_or(0, |last| last.number + 1);
        let other = accesses
            .iter()
            .find(|one| {
                one.address == address && one.thread != thread && (one.is_write || is_write)
            })
            .map(|one| (one.is_write, one.at));
        accesses.push(CellAccess { number, thread, address, is_write, at });
        drop(accesses);
        let unordered = self.operations.memory.lock().access(thread, address, (is_write, at));
        let race = match (other, unordered) {
            (Some(other), _) => Some(("during", other)),
            (None, Some(other)) => Some(("which nothing orders after", other)),
            (None, None) => None,
        };
        if let Some((relation, other)) = race {
            let [one, other] = [(is_write, at), other].map(|(is_write, at)| {
                format!("{} at {}", if is_write { "a write" } else { "a read" }, place(at))
            });
            self.fail(Kind::Law, format!("a data race: {one}, {relation} {other}"));
        }
        number
    }

    fn leave(&self, access: u64) {
        self.operations.accesses.lock().retain(|one| one.number != access);
    }

    fn forget_object(&self, address: usize) {
        self.operations.memory.lock().forget_object(address);
    }

    fn forget_memory(&self, address: usize, size: usize) {
        self.operations.memory.lock().forget_memory(address, size);
    }
}
