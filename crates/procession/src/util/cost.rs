//! What the operations of the runtime cost, told to a simulated system that models a machine.
//!
//! A [`Meter`] learns of the operations of its thread, and of the cache lines that they share with
//! other threads, each before it happens. It may let another thread run meanwhile, so the runtime
//! holds none of its locks at these places. Nothing else depends on them.
//!
//! Without the feature `sim` there are no meters, and the compiler removes all of this.

/// An operation of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A process becomes ready, and is queued. With the number of its slot.
    Ready(u32),
    /// A worker begins a step of a process. With the number of its slot.
    Step(u32),
    /// A process is started.
    Spawn,
    /// A process is woken.
    Wake,
    /// A message is sent.
    Send,
    /// So many messages are taken out of a mailbox, the line of which was touched before. Each of
    /// them lies in a line of its own, which its sender wrote.
    Receive(u32),
    /// A handle of a process is polled.
    Join,
    /// A timer is set.
    Arm,
    /// A timer is deleted.
    Disarm,
}

/// Memory that several threads use, of which each part moves as a whole from one processor to
/// another. Numbers are those of seats, or of the slots of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SharedLine {
    /// The idle word, and the seats behind its lock.
    Idle,
    /// The global queue.
    Global,
    /// The overflow queue.
    Overflow,
    /// The free slots of the table.
    Slots,
    /// The deque of a worker.
    Deque(u32),
    /// The woken ring of a worker.
    Woken(u32),
    /// The continued ring of a worker.
    Continued(u32),
    /// The LIFO slot of a worker.
    LifoSlot(u32),
    /// The timers of a worker, behind their lock.
    Timers(u32),
    /// The earliest deadline of a worker's timers.
    Deadline(u32),
    /// The slot of a process: its state, its pins and the end of its mailbox.
    Process(u32),
    /// The other half of the slot: what stays the same, and the waker of the handle.
    Birth(u32),
    /// Something of the program.
    Program(u32),
}

/// The way in which a line is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// A read-modify-write that always succeeds.
    Swap,
    /// A compare-and-swap, which is repeated if another thread was faster.
    Exchange,
    /// A short critical section.
    Lock,
}

/// Learns of operations and accesses on the threads of a simulated system.
pub trait Meter: Send + Sync {
    /// The calling thread does an operation.
    fn work(&self, operation: Operation);

    /// The calling thread is about to use a line.
    fn touch(&self, line: SharedLine, access: Access);
}

#[cfg(feature = "sim")]
pub(crate) use metered::{is_metered, set, touch, work};

#[cfg(feature = "sim")]
mod metered {
    use std::cell::{Cell, RefCell};
    use std::sync::Arc;

    use super::{Access, Meter, Operation, SharedLine};

    thread_local! {
        static IS_METERED: Cell<bool> = const { Cell::new(false) };
        static METER: RefCell<Option<Arc<dyn Meter>>> = const { RefCell::new(None) };
    }

    /// Sets the meter of the calling thread.
    pub(crate) fn set(meter: Option<Arc<dyn Meter>>) {
        IS_METERED.set(meter.is_some());
        drop(METER.replace(meter));
    }

    #[inline(always)]
    pub(crate) fn is_metered() -> bool {
        IS_METERED.get()
    }

    #[inline(always)]
    pub(crate) fn work(operation: Operation) {
        if is_metered() {
            with_meter(|meter| meter.work(operation));
        }
    }

    #[inline(always)]
    pub(crate) fn touch(line: SharedLine, access: Access) {
        if is_metered() {
            with_meter(|meter| meter.touch(line, access));
        }
    }

    #[cold]
    #[inline(never)]
    fn with_meter(with: impl FnOnce(&dyn Meter)) {
        // While the thread ends, its meter is gone first.
        let meter = METER.try_with(|meter| meter.borrow().clone()).ok().flatten();
        if let Some(meter) = meter {
            with(&*meter);
        }
    }
}

/// Returns `true` if the calling thread has a meter.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) fn is_metered() -> bool {
    false
}

/// Tells the meter of the calling thread, if it has one, of an operation.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) fn work(_: Operation) {}

/// Tells the meter of the calling thread, if it has one, of an access that is about to happen.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) fn touch(_: SharedLine, _: Access) {}
