//! The waker of a process: a pin on its slot; and one without, for what the process's own scheduler
//! keeps.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use procession_sync::atomic::Ordering::Relaxed;

use crate::process::slot::{Pin, Slot};
use crate::process::unwind::drop_each;
use crate::process::wait_reason::Waiting;
use crate::process::wake::wake;
use crate::scheduler::shared::Shared;
use crate::time::action::TimerWaker;

/// ## Invariants
/// - `[waker data]` the data of a waker with this table is a slot with a pin that belongs to the
///   waker, or, for a borrowed one, to the step that lends it.
static VTABLE: RawWakerVTable = RawWakerVTable::new(
    |data| {
        // SAFETY: [waker data]
        let pin = Pin::again(unsafe { slot(data) });
        RawWaker::new(pin.into_raw().as_ptr().cast_const().cast(), &VTABLE)
    },
    |data| {
        // SAFETY: [waker data], and the waker gives its pin up.
        let pin = unsafe { pin(data) };
        wake(&pin);
    },
    |data| {
        // SAFETY: [waker data]
        wake(unsafe { slot(data) });
    },
    |data| {
        // SAFETY: [waker data], and the waker gives its pin up.
        drop(unsafe { pin(data) });
    },
);

/// ## Invariants
/// - `[unpinned waker]` the data of a waker with this table is a slot, which may be free by now or
///   hold another process; until it has woken, the scheduler of the slot is there. What it wakes is
///   then whoever is in the slot, if anybody: a process may be woken for nothing
///   (`process/state.rs`, *Allowed*).
static UNPINNED: RawWakerVTable = RawWakerVTable::new(
    |data| RawWaker::new(data, &UNPINNED),
    |data| {
        // SAFETY: [unpinned waker], [type-stable]
        wake(unsafe { slot(data) });
    },
    |data| {
        // SAFETY: [unpinned waker], [type-stable]
        wake(unsafe { slot(data) });
    },
    |_| {},
);

/// # Safety
/// `[waker data]` or `[unpinned waker]`
unsafe fn slot<'a>(data: *const ()) -> &'a Slot {
    // SAFETY: by the caller.
    unsafe { &*data.cast() }
}

/// # Safety
/// `[waker data]`, and the pin is its caller's to take.
unsafe fn pin(data: *const ()) -> Pin {
    // SAFETY: [waker data]
    let slot = NonNull::from(unsafe { slot(data) });
    // SAFETY: [waker data]
    unsafe { Pin::from_raw(slot) }
}

/// A waker that lives no longer than the step that lends its pin.
pub(crate) fn borrowed(slot: &Slot) -> ManuallyDrop<Waker> {
    // SAFETY: [waker data]; the pin is not given up, since the waker is never dropped.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::from_ref(slot).cast(), &VTABLE) })
}

/// Another of this waker, without a pin if it is that of a process of `shared`: that saves two
/// read-modify-writes.
///
/// # Safety
/// `[unpinned waker]`: what is returned is only woken while that scheduler is there.
#[inline]
pub(crate) unsafe fn another_for(shared: &Shared, waker: &Waker) -> Waker {
    // SAFETY: [waker data]
    if is_of_process(waker) && std::ptr::eq(unsafe { slot(waker.data()) }.shared(), shared) {
        // SAFETY: [unpinned waker], by the caller.
        return unsafe { Waker::new(waker.data(), &UNPINNED) };
    }
    waker.clone()
}

/// Another of this waker, for a timer of `shared`. It saves two read-modify-writes if the waker is
/// that of a process of `shared`.
#[inline]
pub(crate) fn for_timer(shared: &Shared, waker: &Waker) -> TimerWaker {
    // SAFETY: [unpinned waker] only a timer wakes it, and the timers of a scheduler fire while the
    // scheduler is there.
    TimerWaker::from(unsafe { another_for(shared, waker) })
}

/// The slot that this waker wakes whoever is in, if it does nothing else.
pub(crate) fn slot_of(waker: &TimerWaker) -> Option<*const Slot> {
    let waker = waker.as_waker();
    let is_slot = is_of_process(waker) || std::ptr::eq(waker.vtable(), &UNPINNED);
    is_slot.then(|| waker.data().cast())
}

/// Whether this is the waker of a process itself, not one that wraps it.
pub(crate) fn is_of_process(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE)
}

/// Whether this is the waker of the process in `slot` itself, not one that wraps it.
pub(crate) fn is_of(waker: &Waker, slot: NonNull<Slot>) -> bool {
    waker.data() == slot.as_ptr().cast_const().cast() && std::ptr::eq(waker.vtable(), &VTABLE)
}

impl Slot {
    /// The process polls something that a message or a cancel must wake, with a waker that is not
    /// its own: a combinator's. A combinator polls only what its own wakers name, so the next step
    /// wakes this one first.
    pub(crate) fn leave_foreign_waker(&self, waker: &Waker) {
        if !crate::process::waker::is_of(waker, NonNull::from(self)) {
            self.note_waiting(Waiting::FOREIGN);
            self.shared().processes.leave_foreign(self.index, waker.clone());
        }
    }

    /// At the beginning of a step, and at the end of the process: the wakers that were left.
    #[inline]
    pub(crate) fn take_foreign_wakers(&self) -> Vec<Waker> {
        if self.waiting.load(Relaxed) & Waiting::FOREIGN.bits() == 0 {
            return Vec::new();
        }
        self.shared().processes.take_foreign(self.index)
    }

    /// Drops them unwoken. Most processes have none.
    #[inline]
    pub(crate) fn drop_foreign_wakers(&self) {
        let wakers = self.take_foreign_wakers();
        if !wakers.is_empty() {
            drop_each(wakers);
        }
    }
}
