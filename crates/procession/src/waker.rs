//! The waker of a process: a pin on its slot.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::shared::wake;
use crate::slot::{Pin, Slot};

/// ## Invariants
/// - `[waker data]` the data of a waker with this table is a slot with a pin that belongs to the waker, or, for a borrowed one, to
///   the step that lends it.
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

/// # Safety
/// `[waker data]`
unsafe fn slot<'a>(data: *const ()) -> &'a Slot {
    // SAFETY: [waker data]
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

/// The waker of a process.
pub(crate) fn of(pin: Pin) -> Waker {
    // SAFETY: [waker data]
    unsafe { Waker::new(pin.into_raw().as_ptr().cast_const().cast(), &VTABLE) }
}

/// Drops a waker and a pin, at once if they are of the same process.
#[inline]
pub(crate) fn drop_with(waker: Waker, kept: Pin) {
    if is_of(&waker, NonNull::from(&*kept)) {
        let waker = ManuallyDrop::new(waker);
        // SAFETY: [waker data], and the waker gives its pin up.
        Pin::drop_both((unsafe { pin(waker.data()) }, kept));
    }
}

/// Whether this is the waker of a process itself, not one that wraps it.
pub(crate) fn is_of_process(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE)
}

/// Whether this is the waker of the process in `slot` itself, not one that wraps it.
pub(crate) fn is_of(waker: &Waker, slot: NonNull<Slot>) -> bool {
    waker.data() == slot.as_ptr().cast_const().cast() && std::ptr::eq(waker.vtable(), &VTABLE)
}
