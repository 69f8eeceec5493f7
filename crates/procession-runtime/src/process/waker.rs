//! The waker of a process, which is a pin on its slot, and an unpinned one for objects that the
//! process's own scheduler keeps.

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::task::{RawWaker, RawWakerVTable, Waker};

use crate::process::slot::{Slot, SlotRef};
use crate::process::unwind::{drop_each, guarded};
use crate::process::wait_edge::Habit;
use crate::process::wait_reason::Waiting;
use crate::process::wake::{WakeBatch, wake};
use crate::scheduler::shared::Shared;
use crate::scheduler::{blocking_step, current};
use crate::time::action::TimerWaker;

/// ## Invariants
/// - `[waker data]` the data of a waker with this table, or with `NOTING`, is a slot with a pin.
///   The pin belongs to the waker or, for a borrowed waker, to the step that lends it.
static VTABLE: RawWakerVTable =
    RawWakerVTable::new(clone_pinned, wake_pinned, wake_by_ref_pinned, drop_pinned);

/// The table of the waker of a step that notes its stacks: as `VTABLE`, and a clone notes where it
/// is made. The clone itself is an ordinary waker of the process. Futures that compare wakers
/// before they clone one find that this is another.
#[cfg(feature = "door")]
static NOTING: RawWakerVTable = RawWakerVTable::new(
    |data| {
        crate::process::stack_notes::note();
        // SAFETY: [waker data]
        unsafe { clone_pinned(data) }
    },
    wake_pinned,
    wake_by_ref_pinned,
    drop_pinned,
);

/// Clones the waker for code that is not the runtime's, which uses [`another`].
///
/// # Safety
/// `[waker data]`
unsafe fn clone_pinned(data: *const ()) -> RawWaker {
    // SAFETY: [waker data]
    let slot = unsafe { slot(data) };
    slot.mark(Habit::Lends);
    raw_clone(slot)
}

fn raw_clone(slot: &Slot) -> RawWaker {
    RawWaker::new(SlotRef::again(slot).into_raw().as_ptr().cast_const().cast(), &VTABLE)
}

/// Clones a waker for a future of the runtime, which notes the wait.
#[inline]
pub(crate) fn another(waker: &Waker) -> Waker {
    #[cfg(feature = "door")]
    let notes = std::ptr::eq(waker.vtable(), &NOTING);
    #[cfg(not(feature = "door"))]
    let notes = false;
    if !notes && !is_of_process(waker) {
        let step = blocking_step::of(waker);
        return step.map_or_else(|| waker.clone(), |step| step.root.clone());
    }
    #[cfg(feature = "door")]
    if notes {
        crate::process::stack_notes::note();
    }
    // SAFETY: [waker data] of either table.
    let raw = raw_clone(unsafe { slot(waker.data()) });
    // SAFETY: [waker data] the pin of the clone is its own.
    unsafe { Waker::from_raw(raw) }
}

/// Returns the process whose step lends this waker, if it is not a waker that wraps it.
pub(crate) fn lender(waker: &Waker) -> Option<*const Slot> {
    #[cfg(feature = "door")]
    let is_own = is_of_process(waker) || std::ptr::eq(waker.vtable(), &NOTING);
    #[cfg(not(feature = "door"))]
    let is_own = is_of_process(waker);
    if is_own {
        return Some(waker.data().cast());
    }
    blocking_step::of(waker).map(|step| std::ptr::from_ref(step.process()))
}

/// # Safety
/// `[waker data]`, and the waker surrenders its pin.
unsafe fn wake_pinned(data: *const ()) {
    // SAFETY: [waker data], by the caller.
    let pin = unsafe { pin(data) };
    wake(&pin);
}

/// # Safety
/// `[waker data]`
unsafe fn wake_by_ref_pinned(data: *const ()) {
    // SAFETY: [waker data]
    wake(unsafe { slot(data) });
}

/// # Safety
/// `[waker data]`, and the waker surrenders its pin.
unsafe fn drop_pinned(data: *const ()) {
    // SAFETY: [waker data], by the caller.
    drop(unsafe { pin(data) });
}

/// ## Invariants
/// - `[unpinned waker]` the data of a waker with this table is a slot, which may be free by now or
///   hold another process. The scheduler of the slot exists until the waker has woken. It wakes the
///   process that is in the slot at that time, if there is one, so a process may be woken for
///   nothing (`process/state.rs`, *Allowed*).
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
/// `[waker data]`, and the pin belongs to the caller.
unsafe fn pin(data: *const ()) -> SlotRef {
    // SAFETY: [waker data]
    let slot = NonNull::from(unsafe { slot(data) });
    // SAFETY: [waker data]
    unsafe { SlotRef::from_raw(slot) }
}

/// Wakes `count` wakers in their order. Processes of this thread's scheduler are queued together.
pub(crate) fn wake_together(count: usize, wakers: impl Iterator<Item = Waker>) {
    let wake_one = |waker: Waker| drop(guarded(|| waker.wake()));
    let Some(shared) = current::here() else { return wakers.for_each(wake_one) };
    // As for a single wake-up.
    let _stopped = shared.stop_clock();
    let mut batch = WakeBatch::new(&shared, count);
    for waker in wakers {
        match into_pin(waker) {
            Ok(pin) if std::ptr::eq(pin.shared(), &**shared) => {
                if !batch.wake(&pin) {
                    // It may have ended, and its last pin may drop what has code of the user.
                    batch.queue();
                }
                drop(pin);
            }
            Ok(pin) => {
                batch.queue();
                wake(&pin);
            }
            Err(waker) => {
                batch.queue();
                wake_one(waker);
            }
        }
    }
}

/// Returns the pin of a process's own waker.
///
/// # Errors
/// Returns any other waker.
#[inline]
fn into_pin(waker: Waker) -> Result<SlotRef, Waker> {
    if !is_of_process(&waker) {
        return Err(waker);
    }
    let waker = ManuallyDrop::new(waker);
    // SAFETY: [waker data]; the waker surrenders its pin, since it is not dropped.
    Ok(unsafe { pin(waker.data()) })
}

/// Creates a waker that lives no longer than the step that lends its pin.
pub(crate) fn borrowed(slot: &Slot) -> ManuallyDrop<Waker> {
    // SAFETY: [waker data]; the pin is not given up, since the waker is never dropped.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::from_ref(slot).cast(), &VTABLE) })
}

/// Creates a waker like [`borrowed`], which notes the stacks on which it is cloned.
#[cfg(feature = "door")]
pub(crate) fn noting(slot: &Slot) -> ManuallyDrop<Waker> {
    // SAFETY: [waker data]; as in `borrowed`.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::from_ref(slot).cast(), &NOTING) })
}

/// Clones a waker. If it is the waker of a process of `shared`, the clone has no pin, which saves
/// two read-modify-writes.
///
/// # Safety
/// `[unpinned waker]`: the clone is only woken while that scheduler exists.
#[inline]
pub(crate) unsafe fn another_for(shared: &Shared, waker: &Waker) -> Waker {
    // SAFETY: [waker data]
    if is_of_process(waker) && std::ptr::eq(unsafe { slot(waker.data()) }.shared(), shared) {
        // SAFETY: [unpinned waker], by the caller.
        return unsafe { Waker::new(waker.data(), &UNPINNED) };
    }
    another(waker)
}

/// Clones a waker for a timer of `shared`. If it is the waker of a process of `shared`, that saves
/// two read-modify-writes.
#[inline]
pub(crate) fn for_timer(shared: &Shared, waker: &Waker) -> TimerWaker {
    // SAFETY: [unpinned waker] only a timer wakes it, and the timers of a scheduler fire while the
    // scheduler exists.
    TimerWaker::from(unsafe { another_for(shared, waker) })
}

/// Returns the slot of this waker, if the waker does nothing but wake the process in that slot.
pub(crate) fn slot_of(waker: &TimerWaker) -> Option<*const Slot> {
    let waker = waker.as_waker();
    let is_slot = is_of_process(waker) || std::ptr::eq(waker.vtable(), &UNPINNED);
    is_slot.then(|| waker.data().cast())
}

/// Identifies a waker. The result is valid while the waker or one of its clones lives.
pub(crate) fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

/// Returns the [`identity`] that the clones of a waker have. It differs from the identity of the
/// waker itself if the step notes its stacks, so that each such step makes a clone.
pub(crate) fn identity_of_clones(waker: &Waker) -> (usize, usize) {
    let (data, vtable) = identity(waker);
    #[cfg(feature = "door")]
    if std::ptr::eq(waker.vtable(), &NOTING) {
        return (data, std::ptr::from_ref(&VTABLE).addr());
    }
    (data, vtable)
}

/// Returns `true` if [`another`] is quick and runs no code of the user for this waker. Noting a
/// stack is not quick.
pub(crate) fn is_lent(waker: &Waker) -> bool {
    is_of_process(waker) || blocking_step::of(waker).is_some()
}

/// Returns `true` if this is the waker of a process itself, and not a waker that wraps it.
pub(crate) fn is_of_process(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &VTABLE)
}

/// Returns `true` if this is the waker of the process in `slot` itself, and not a waker that wraps
/// it.
#[inline]
pub(crate) fn is_of(waker: &Waker, slot: NonNull<Slot>) -> bool {
    waker.data() == slot.as_ptr().cast_const().cast() && std::ptr::eq(waker.vtable(), &VTABLE)
}

impl Slot {
    /// Leaves a waker that is not the process's own to be woken by a message or a cancel. It
    /// belongs to a combinator, which only polls what its own wakers name. The next step therefore
    /// wakes this waker first.
    #[inline]
    pub(crate) fn leave_foreign_waker(&self, waker: &Waker) {
        if !is_of(waker, NonNull::from(self)) {
            self.leave_foreign(waker);
        }
    }

    #[cold]
    fn leave_foreign(&self, waker: &Waker) {
        #[cfg(feature = "door")]
        if std::ptr::eq(waker.vtable(), &NOTING) && lender(waker) == Some(std::ptr::from_ref(self))
        {
            // The process's own waker after all.
            return crate::process::stack_notes::note();
        }
        self.waiting.note(Waiting::FOREIGN);
        self.shared().processes.leave_foreign(self.index, waker.clone());
    }

    /// Wakes the foreign wakers, at the start of a step. Most processes have none.
    #[inline]
    pub(crate) fn wake_foreign_wakers(&self) {
        if self.waiting.get().has(Waiting::FOREIGN) {
            take_foreign(self).into_iter().for_each(|waker| drop(guarded(|| waker.wake())));
        }
    }

    /// Drops the foreign wakers without waking them, at the end of the process.
    #[inline]
    pub(crate) fn drop_foreign_wakers(&self) {
        if self.waiting.get().has(Waiting::FOREIGN) {
            drop_each(take_foreign(self));
        }
    }
}

#[cold]
fn take_foreign(slot: &Slot) -> Vec<Waker> {
    slot.shared().processes.take_foreign(slot.index)
}
