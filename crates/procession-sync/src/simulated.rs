//! The primitives of a build with the private cfg `procession_sim`: std's, seen by a simulation.
//!
//! On a thread that has [entered](enter) a [`Machine`], each operation of an atomic, a lock, a
//! condition variable, a cell or a fence asks that machine first. The machine can let another
//! thread run there, and answers for stores that other threads do not see yet. On all other
//! threads, the operations are std's. The types have the size of std's types, so a scheduler is the
//! same in this build as in any other.
//!
//! # Stores
//! An atomic always contains the value that was stored last, even while the machine hides the store
//! from other threads. The machine remembers what these threads see instead. So no store is written
//! later, into memory that may be free by then, and an atomic that outlives its run is complete.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::atomic::Ordering;

pub(crate) mod atomic;
pub(crate) mod cell;
pub(crate) mod mutex;

/// What a load finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// The value in the atomic.
    Memory,
    /// This value, while the atomic contains a newer one.
    Older(u64),
    /// This value. The atomic does not contain it, and is to contain it from now on.
    Settled(u64),
}

/// An operation of an atomic, as the program has written it.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    /// The address of the atomic.
    pub address: usize,
    /// What the atomic contains.
    pub content: u64,
    /// The ordering.
    pub order: Ordering,
    /// The place in the source.
    pub at: &'static Location<'static>,
    /// Set if the machine itself runs on this thread. Such an operation finds the newest value,
    /// because it is no part of the program.
    pub is_muted: bool,
}

/// A simulated machine. Its threads take turns: one runs at a time.
///
/// Atomics, locks and cells are named by their addresses. Equal addresses are the same object; the
/// machine must not depend on anything else about them.
pub trait Machine: Send + Sync {
    /// Another thread may run here, before the operation at `at`.
    fn point(&self, at: &'static Location<'static>);

    /// Lets other threads run: the calling thread waits for another thread.
    fn pause(&self);

    /// Returns the time since some moment before the run.
    fn now(&self) -> Duration;

    /// Loads an atomic.
    fn load(&self, operation: Operation) -> Loaded;

    /// Returns the newest value of an atomic. Orders nothing.
    fn peek(&self, operation: Operation) -> Loaded;

    /// Notes a store of `value`, which the atomic does not contain yet.
    fn store(&self, operation: Operation, value: u64);

    /// Begins a read-modify-write. If the operation is to find another value than the content,
    /// returns that value, and the caller first stores it. An operation with a `wanted` value
    /// changes the atomic only if it finds that value. The caller then reports the result
    /// ([`written`](Self::written)).
    fn settle(&self, operation: Operation, wanted: Option<u64>) -> Option<u64>;

    /// Ends a read-modify-write. The operation has the ordering of its outcome, and the content of
    /// the atomic is the result. `is_written` is `false` if the operation has only loaded.
    fn written(&self, operation: Operation, is_written: bool);

    /// Passes a fence.
    fn fence(&self, order: Ordering);

    /// Passes the heavy one of two asymmetric fences: each thread passes a full fence where it
    /// stands, after a full fence of the calling thread and before another one.
    fn heavy_fence(&self);

    /// Begins a call of the system that orders what its caller has stored.
    fn enter_kernel(&self);

    /// Orders all threads by means that the machine does not know, such as a lock of std.
    fn order_all(&self);

    /// The caller has an atomic for itself, and may change it without an operation.
    fn own(&self, operation: Operation) -> Loaded;

    /// An atomic is dropped. Stores of other threads to it that are not visible yet no longer
    /// matter. A correct program has waited for these stores, but in ways that this machine may not
    /// see, such as the reference count of an `Arc`.
    fn forget(&self, address: usize);

    /// Waits until no thread of the machine has the lock, and takes it.
    fn lock(&self, address: usize);

    /// Takes the lock unless a thread of the machine has it. Returns `true` if it did.
    fn try_lock(&self, address: usize) -> bool;

    /// Releases a lock.
    fn unlock(&self, address: usize);

    /// Atomically releases a lock and waits for a notification: no other operation runs in between.
    /// Returns `true` if the timeout is over. Does not take the lock again.
    fn wait(&self, condvar: usize, lock: usize, timeout: Option<Duration>) -> bool;

    /// Wakes one or all threads that wait for a notification.
    fn notify(&self, condvar: usize, all: bool);

    /// The calling thread begins to access a cell. Returns a number for this access.
    fn enter(&self, address: usize, is_write: bool, at: &'static Location<'static>) -> u64;

    /// An access ends.
    fn leave(&self, access: u64);

    /// A cell or a lock is dropped, and its memory may become another object.
    fn forget_object(&self, address: usize);

    /// An object moves, and its memory of so many bytes may become another object.
    fn forget_memory(&self, address: usize, size: usize);
}

thread_local! {
    /// The machine that the calling thread belongs to.
    static MACHINE: RefCell<Option<Arc<dyn Machine>>> = const { RefCell::new(None) };
    /// Set while the machine itself runs on this thread.
    static IS_MUTED: Cell<bool> = const { Cell::new(false) };
}

/// The calling thread belongs to a machine until this is dropped.
#[must_use]
pub struct Entered(());

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entered")
    }
}

/// Makes the calling thread one of a machine's.
pub fn enter(machine: Arc<dyn Machine>) -> Entered {
    MACHINE.set(Some(machine));
    Entered(())
}

impl Drop for Entered {
    fn drop(&mut self) {
        drop(MACHINE.take());
    }
}

/// The calling thread passes no points until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Muted(bool);

/// Ends the points of the calling thread, for the machine's own calls of the code that it runs.
pub fn mute() -> Muted {
    Muted(IS_MUTED.replace(true))
}

impl Drop for Muted {
    fn drop(&mut self) {
        IS_MUTED.set(self.0);
    }
}

/// Begins a call of the system that orders what its caller has stored.
#[track_caller]
pub fn enter_kernel() {
    point();
    machine(|machine| machine.enter_kernel());
}

/// Passes the heavy one of two asymmetric fences. Returns `false` if the calling thread belongs to
/// no machine.
#[track_caller]
pub fn heavy_fence() -> bool {
    point();
    machine(|machine| machine.heavy_fence()).is_some()
}

/// Calls the closure with the machine of the calling thread, if there is a machine. A thread has no
/// machine once its thread-locals are gone.
fn machine<R>(call: impl FnOnce(&dyn Machine) -> R) -> Option<R> {
    MACHINE.try_with(|machine| machine.borrow().as_deref().map(call)).ok().flatten()
}

/// Returns `true` if the calling thread may lose its turn here. It may while it panics, because
/// each thread of a machine is one of the system.
fn has_points() -> bool {
    !IS_MUTED.get()
}

/// Another thread may run here.
#[track_caller]
fn point() {
    if has_points() {
        let at = Location::caller();
        machine(|machine| machine.point(at));
    }
}

/// A field without a size at the address of its cell or lock. Its drop is the end of the object.
#[derive(Debug, Default)]
struct Life;

impl Life {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        machine(|machine| machine.forget_object(self.address()));
    }
}

/// An object is about to move. Threads that have used the object know it by its address.
pub fn moves<T>(object: &T) {
    let address = std::ptr::from_ref(object).addr();
    machine(|machine| machine.forget_memory(address, size_of::<T>()));
}

/// Describes an operation of the caller.
#[track_caller]
fn operation(address: usize, content: u64, order: Ordering) -> Operation {
    Operation { address, content, order, at: Location::caller(), is_muted: !has_points() }
}

/// Waits for a lock of std that the machine does not know: lets others run until it is free. What
/// its last holder has stored is visible then, and so is everything else.
#[track_caller]
pub(crate) fn wait_until(mut is_free: impl FnMut() -> bool) {
    if !has_points() {
        return;
    }
    point();
    while !is_free() {
        if machine(|machine| machine.pause()).is_none() {
            return;
        }
    }
    machine(|machine| machine.order_all());
}

/// The hint of a spinning thread.
pub fn spin_loop() {
    if !has_points() || machine(|machine| machine.pause()).is_none() {
        std::hint::spin_loop();
    }
}

/// Yields to other threads.
pub fn yield_now() {
    if !has_points() || machine(|machine| machine.pause()).is_none() {
        std::thread::yield_now();
    }
}
