//! The memory of a processor as weak as the memory model of Rust allows, except that no load finds
//! a value that is stored later.
//!
//! This is the part without promises of the model of Kang, Hur, Lahav, Vafeiadis and Dreyer (*A
//! promising semantics for relaxed-memory concurrency*, POPL 2017), with the release sequences of
//! C++20. Each atomic has a *history*: the values that were stored, in their order. Each thread has
//! a *view*: for each atomic, the oldest value that it may still read. A load reads any value of
//! the history that is not older. A store goes anywhere behind what its thread has seen, so that
//! two threads may disagree about the order of two stores. A Release attaches the view of the
//! thread to the value, and an Acquire joins it to the view of the thread that reads the value. A
//! read-modify-write stores directly behind the value that it has read, and passes on the view
//! that is attached to that value.
//!
//! Fences follow the same paper. A fence(SeqCst) joins the view of its thread and one view that is
//! common to all such fences, each to the other. An operation with SeqCst has a place in the order
//! of these fences for its own atomic only. The heavy fence is a fence(SeqCst) of each thread where
//! it stands. The light fence is none of the processor's.
//!
//! A view also says what happens before what: it counts the *periods* of each thread that are
//! known. So an access of a cell that no Release and Acquire order after an earlier one is a data
//! race, whenever it happens. A fence(SeqCst) alone orders no accesses of cells.
//!
//! # Bounds
//! A history is short, few atomics have one at a time, and only the newest values remain when time
//! passes. So a run shows fewer outcomes than the model allows, and none that it forbids.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use procession_sync::host::atomic::Ordering::{self, AcqRel, Acquire, Release, SeqCst};
use procession_sync::simulated::{Loaded, Operation};

use super::cells::{CellAccess, Cells};
use super::view::{Choose, SLOTS, View};

/// The number of values in a history.
const VALUES_MAX: usize = 8;

/// The distance of stamps of values that follow one another, so that others fit in between.
const STAMPS: u64 = 1 << 20;

/// A value in the history of an atomic.
struct Value {
    /// Says where it stands among the values of all atomics.
    stamp: u64,
    value: u64,
    /// What a thread that acquires the value knows.
    view: Option<Arc<View>>,
    /// Set if a read-modify-write has stored it. Nothing comes between it and the value before.
    is_update: bool,
}

/// An atomic.
struct Atomic {
    /// The oldest value first. It is never empty.
    history: VecDeque<Value>,
    /// What the atomic contains.
    content: u64,
    /// The place of the atomic in views. Without one, only one value is left.
    slot: Option<usize>,
}

/// A thread.
#[derive(Default)]
struct Thread {
    /// What it knows.
    view: Arc<View>,
    /// What it would know after an Acquire fence.
    acquirable: Arc<View>,
    /// What it knew at its last Release fence.
    released: Option<Arc<View>>,
    /// What others knew that have woken it.
    woken: Option<Arc<View>>,
    /// The number in the history of the value that its read-modify-write has found.
    found: usize,
    /// Set if it has stored since its last fence or read-modify-write.
    has_stored: bool,
}

/// Joins a view to a shared one.
fn join(own: &mut Arc<View>, other: &View) {
    if !own.includes(other) {
        Arc::make_mut(own).join(other);
    }
}

fn is_acquire(order: Ordering) -> bool {
    matches!(order, Acquire | AcqRel | SeqCst)
}

fn is_release(order: Ordering) -> bool {
    matches!(order, Release | AcqRel | SeqCst)
}

impl Thread {
    /// Reads a value with this stamp.
    fn read(&mut self, slot: Option<usize>, value: &Value, order: Ordering) {
        if let Some(slot) = slot
            && self.view.seen(slot) < value.stamp
        {
            Arc::make_mut(&mut self.view).see(slot, value.stamp);
        }
        if let Some(view) = &value.view {
            join(if is_acquire(order) { &mut self.view } else { &mut self.acquirable }, view);
        }
    }

    /// Returns the view that a store attaches to its value.
    fn attached(&self, order: Ordering) -> Option<Arc<View>> {
        if is_release(order) { Some(Arc::clone(&self.view)) } else { self.released.clone() }
    }
}

impl Atomic {
    /// Returns the value with this number in the history.
    fn loaded(&mut self, number: usize) -> Loaded {
        let value = self.history[number].value;
        if value == self.content {
            return Loaded::Memory;
        }
        if number + 1 < self.history.len() {
            return Loaded::Older(value);
        }
        self.content = value;
        Loaded::Settled(value)
    }

    /// Returns the numbers of the values that are not older than a stamp, the newest first.
    fn readable(&self, least: u64) -> impl Iterator<Item = usize> {
        let last = self.history.len() - 1;
        (0..=last).rev().filter(move |&at| at == last || self.history[at].stamp >= least)
    }

    /// Returns `true` if a value fits directly behind the value with this number.
    fn has_room_behind(&self, number: usize) -> bool {
        let next = self.history.get(number + 1);
        next.is_none_or(|next| !next.is_update && next.stamp - self.history[number].stamp > 1)
    }

    /// Only the newest value remains.
    fn forget_old_values(&mut self) {
        self.history.drain(..self.history.len() - 1);
        self.slot = None;
    }
}

/// The memory.
#[derive(Default)]
pub(super) struct Weak {
    threads: Vec<Thread>,
    atomics: BTreeMap<usize, Atomic>,
    /// The addresses of the atomics with slots, by slot.
    slots: BTreeMap<usize, usize>,
    /// The slot that the next atomic gets.
    next_slot: usize,
    /// The stamp of the value that was stored last behind all others of its atomic.
    stamp: u64,
    /// The common view of all fences with SeqCst.
    fenced: View,
    /// What the last holders of locks knew, by the address of the lock.
    locks: BTreeMap<usize, Arc<View>>,
    cells: Cells,
}

impl Weak {
    /// Makes room for a thread that takes part for the first time.
    fn come(&mut self, thread: usize) -> &mut Thread {
        while self.threads.len() <= thread {
            let mut view = View::default();
            view.begin_period(self.threads.len());
            self.threads.push(Thread { view: Arc::new(view), ..Thread::default() });
        }
        &mut self.threads[thread]
    }

    /// A thread has told others what it has done.
    fn begin_period(&mut self, thread: usize) {
        Arc::make_mut(&mut self.threads[thread].view).begin_period(thread);
    }

    pub(super) fn has_stored(&self, thread: usize) -> bool {
        self.threads.get(thread).is_some_and(|thread| thread.has_stored)
    }

    /// Returns the stamp of the oldest value that an operation may find.
    fn least(&self, thread: usize, operation: Operation, atomic: &Atomic) -> u64 {
        let Some(slot) = atomic.slot else { return 0 };
        let own = self.threads[thread].view.seen(slot);
        if operation.order == SeqCst { own.max(self.fenced.seen(slot)) } else { own }
    }

    /// An operation with SeqCst has its place in the order of such fences.
    fn note_total_order(&mut self, operation: Operation, slot: Option<usize>, stamp: u64) {
        if operation.order == SeqCst
            && let Some(slot) = slot
        {
            self.fenced.see(slot, stamp);
        }
    }

    pub(super) fn load(
        &mut self,
        thread: usize,
        operation: Operation,
        choose: Choose<'_>,
    ) -> Loaded {
        if operation.is_muted {
            return self.peek(operation);
        }
        self.come(thread);
        self.forget_other(operation);
        let Some(atomic) = self.atomics.get(&operation.address) else { return Loaded::Memory };
        let least = self.least(thread, operation, atomic);
        let count = atomic.readable(least).count();
        let back = if count > 1 { choose(count as u32) as usize } else { 0 };
        let number = atomic.history.len() - 1 - back;
        let (value, slot) = (&atomic.history[number], atomic.slot);
        let stamp = value.stamp;
        self.threads[thread].read(slot, value, operation.order);
        self.note_total_order(operation, slot, stamp);
        self.atomics.get_mut(&operation.address).expect("it was here").loaded(number)
    }

    pub(super) fn peek(&mut self, operation: Operation) -> Loaded {
        self.forget_other(operation);
        let Some(atomic) = self.atomics.get_mut(&operation.address) else { return Loaded::Memory };
        atomic.loaded(atomic.history.len() - 1)
    }

    /// Forgets an atomic if its memory has become another one without a drop.
    fn forget_other(&mut self, operation: Operation) {
        let known = self.atomics.get(&operation.address);
        if known.is_some_and(|atomic| atomic.content != operation.content) {
            self.forget(operation.address);
        }
    }

    /// Puts a value behind another one in the history of an atomic, which is there.
    fn put(&mut self, thread: usize, operation: Operation, behind: usize, new: Value) {
        let mut slot = self.atomics[&operation.address].slot;
        let is_first = slot.is_none();
        if is_first {
            slot = Some(self.next_slot);
            let before = self.slots.insert(self.next_slot, operation.address);
            if let Some(atomic) = before.and_then(|address| self.atomics.get_mut(&address)) {
                atomic.forget_old_values();
            }
            self.next_slot = (self.next_slot + 1) % SLOTS;
        }
        let atomic = self.atomics.get_mut(&operation.address).expect("the caller has it");
        if is_first {
            self.stamp += STAMPS;
            (atomic.slot, atomic.history[0].stamp) = (slot, self.stamp);
        }
        let before = atomic.history[behind].stamp;
        let stamp = match atomic.history.get(behind + 1) {
            Some(next) => before + (next.stamp - before) / 2,
            None => {
                self.stamp += STAMPS;
                self.stamp
            }
        };
        atomic.content = new.value;
        atomic.history.insert(behind + 1, Value { stamp, ..new });
        if atomic.history.len() > VALUES_MAX {
            atomic.history.pop_front();
        }
        let slot = slot.expect("it has one now");
        Arc::make_mut(&mut self.threads[thread].view).see(slot, stamp);
        self.note_total_order(operation, Some(slot), stamp);
    }

    /// Returns the atomic of an operation, with at least its content as a value.
    fn atomic(&mut self, operation: Operation) -> &Atomic {
        self.forget_other(operation);
        let content = operation.content;
        self.atomics.entry(operation.address).or_insert_with(|| {
            let first = Value { stamp: 0, value: content, view: None, is_update: false };
            Atomic { history: VecDeque::from([first]), content, slot: None }
        })
    }

    pub(super) fn store(
        &mut self,
        thread: usize,
        operation: Operation,
        value: u64,
        choose: Choose<'_>,
    ) {
        self.come(thread).has_stored = true;
        self.atomic(operation);
        let atomic = &self.atomics[&operation.address];
        let least = self.least(thread, operation, atomic);
        let places: Vec<_> =
            atomic.readable(least).filter(|&number| atomic.has_room_behind(number)).collect();
        let chosen = match places.len() {
            count if count > 1 && !operation.is_muted => choose(count as u32) as usize,
            _ => 0,
        };
        let new = Value { stamp: 0, value, view: None, is_update: false };
        self.put(thread, operation, places[chosen], new);
        self.attach(thread, operation, None);
    }

    /// Attaches what a thread releases to the value that it has just stored, and `passed`, which a
    /// read-modify-write passes on.
    fn attach(&mut self, thread: usize, operation: Operation, passed: Option<Arc<View>>) {
        let own = self.threads[thread].attached(operation.order);
        let view = match (own, passed) {
            (Some(mut own), Some(passed)) => {
                join(&mut own, &passed);
                Some(own)
            }
            (own, passed) => own.or(passed),
        };
        let atomic = self.atomics.get_mut(&operation.address).expect("it was stored to");
        let stamp = self.threads[thread].view.seen(atomic.slot.expect("it has two values"));
        let value = atomic.history.iter_mut().rfind(|value| value.stamp == stamp);
        if let Some(value) = value {
            value.view = view;
        }
        self.begin_period(thread);
    }

    pub(super) fn settle(
        &mut self,
        thread: usize,
        operation: Operation,
        wanted: Option<u64>,
        choose: Choose<'_>,
    ) -> Option<u64> {
        self.come(thread).has_stored = false;
        self.atomic(operation);
        let atomic = &self.atomics[&operation.address];
        let least = self.least(thread, operation, atomic);
        let found: Vec<_> = atomic
            .readable(least)
            .filter(|&number| {
                let only_loads = wanted.is_some_and(|value| value != atomic.history[number].value);
                only_loads || atomic.has_room_behind(number)
            })
            .collect();
        let chosen = match found.len() {
            count if count > 1 && !operation.is_muted => choose(count as u32) as usize,
            _ => 0,
        };
        self.threads[thread].found = found[chosen];
        let value = atomic.history[found[chosen]].value;
        (value != operation.content).then_some(value)
    }

    pub(super) fn written(&mut self, thread: usize, operation: Operation, is_written: bool) {
        let number = self.threads[thread].found;
        let atomic = self.atomics.get_mut(&operation.address).expect("the operation has begun");
        let (found, slot) = (&atomic.history[number], atomic.slot);
        let (passed, stamp) = (found.view.clone(), found.stamp);
        self.threads[thread].read(slot, found, operation.order);
        if is_written {
            let value = operation.content;
            let new = Value { stamp: 0, value, view: None, is_update: true };
            self.put(thread, operation, number, new);
            self.attach(thread, operation, passed);
        } else {
            atomic.content = operation.content;
            self.note_total_order(operation, slot, stamp);
        }
    }

    pub(super) fn fence(&mut self, thread: usize, order: Ordering) {
        self.come(thread);
        let own = &mut self.threads[thread];
        if is_acquire(order) {
            let acquirable = Arc::clone(&own.acquirable);
            join(&mut own.view, &acquirable);
        }
        if order == SeqCst {
            own.has_stored = false;
            Arc::make_mut(&mut own.view).join_seen(&self.fenced);
            self.fenced.join_seen(&own.view);
        }
        if is_release(order) {
            own.released = Some(Arc::clone(&own.view));
            self.begin_period(thread);
        }
    }

    pub(super) fn heavy_fence(&mut self, thread: usize) {
        self.fence(thread, SeqCst);
        for other in 0..self.threads.len() {
            if other != thread {
                self.fence(other, SeqCst);
            }
        }
        self.fence(thread, SeqCst);
    }

    /// Only the newest values remain. That orders nothing.
    pub(super) fn let_time_pass(&mut self) {
        for address in std::mem::take(&mut self.slots).into_values() {
            if let Some(atomic) = self.atomics.get_mut(&address) {
                atomic.forget_old_values();
            }
        }
    }

    pub(super) fn order_all(&mut self) {
        self.let_time_pass();
        let mut all = View::default();
        for thread in &self.threads {
            all.join(&thread.view);
        }
        for thread in 0..self.threads.len() {
            join(&mut self.threads[thread].view, &all);
            self.begin_period(thread);
        }
    }

    pub(super) fn own(&mut self, operation: Operation) -> Loaded {
        let newest = self.peek(operation);
        // The thread may change the atomic without an operation.
        self.forget(operation.address);
        newest
    }

    pub(super) fn forget(&mut self, address: usize) {
        if let Some(Atomic { slot: Some(slot), .. }) = self.atomics.remove(&address) {
            self.slots.remove(&slot);
        }
    }

    pub(super) fn lock(&mut self, thread: usize, address: usize) {
        self.come(thread).has_stored = false;
        if let Some(view) = self.locks.get(&address) {
            join(&mut self.threads[thread].view, view);
        }
    }

    pub(super) fn unlock(&mut self, thread: usize, address: usize) {
        let own = self.come(thread);
        own.has_stored = false;
        let view = Arc::clone(&own.view);
        self.locks.insert(address, view);
        self.begin_period(thread);
    }

    pub(super) fn wake(&mut self, thread: usize, other: usize) {
        self.come(thread.max(other));
        let view = Arc::clone(&self.threads[thread].view);
        join(self.threads[other].woken.get_or_insert_default(), &view);
        self.begin_period(thread);
    }

    pub(super) fn woken(&mut self, thread: usize) {
        let own = self.come(thread);
        if let Some(view) = own.woken.take() {
            join(&mut own.view, &view);
        }
    }

    pub(super) fn access(
        &mut self,
        thread: usize,
        address: usize,
        access: CellAccess,
    ) -> Option<CellAccess> {
        self.come(thread);
        self.cells.access((thread, &*self.threads[thread].view), address, access)
    }

    pub(super) fn forget_object(&mut self, address: usize) {
        self.cells.forget(address);
        self.locks.remove(&address);
    }

    pub(super) fn forget_memory(&mut self, memory: Range<usize>) {
        while let Some((&address, _)) = self.atomics.range(memory.clone()).next() {
            self.forget(address);
        }
        self.locks.retain(|address, _| !memory.contains(address));
        self.cells.forget_all(&memory);
    }
}

#[cfg(test)]
mod tests;
