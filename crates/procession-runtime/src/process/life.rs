//! The start and the end of a process in its slot. `process/slot.rs` lists the invariants.

use std::any::Any;
use std::panic::Location;
use std::ptr::NonNull;
use std::task::Waker;
use std::{mem, ptr};

use procession_protocols::process::refcount::Unpinned;
use procession_queue::EventQueue;
use procession_sync::atomic::Ordering::Relaxed;

use crate::process::body::Body;
use crate::process::slot::{Extra, Kind, OWN, Parent, Ready, Slot, SlotRef};
use crate::process::slot_ref::{recycle, unpin};
use crate::process::unwind::{drop_each, drop_guarded};
use crate::process::waker;

/// Puts a process into a free slot. `parent` is a process of the same scheduler. `others` is the
/// number of pins that the process needs besides its own.
pub(crate) fn occupy(
    slot: NonNull<Slot>,
    kind: &'static Kind,
    location: &'static Location<'static>,
    parent: Option<Parent>,
    extra: Option<Box<Extra>>,
    others: u32,
) -> Newborn {
    // SAFETY: [type-stable]
    let fields = unsafe { slot.as_ref() };
    fields.state.renew();
    fields.steps.store(0, Relaxed);
    fields.received.store(0, Relaxed);
    fields.high_water.store(0, Relaxed);
    fields.waiting.clear();
    fields.waited_at.forget();
    match &extra {
        Some(extra) => {
            fields.bound.occupy(extra.affinity, extra.bounded.is_some(), extra.headed);
        }
        None => fields.bound.occupy(None, false, false),
    }
    // SAFETY: [free], as for all writes here: the caller took the slot off the free list. The old
    // queue is not dropped, which would be a read-modify-write: it was never used or was closed,
    // and is empty in either case.
    fields.mailbox.with_mut(|mailbox| unsafe { mailbox.write(EventQueue::with_system()) });
    // SAFETY: [free]
    fields.parent.with_mut(|place| unsafe { *place = parent });
    // SAFETY: [free]
    fields.kind.with_mut(|place| unsafe { *place = kind });
    // SAFETY: [free]
    fields.location.with_mut(|place| unsafe { *place = location });
    // Relaxed: published with the pin.
    fields.extra.store(extra.map_or(ptr::null_mut(), Box::into_raw), Relaxed);
    let pins = OWN + others;
    fields.pins.occupy(pins);
    Newborn { slot, pins }
}

/// A new process that is not queued yet, with all of its pins. Counting them together costs one
/// store.
pub(crate) struct Newborn {
    slot: NonNull<Slot>,
    pins: u32,
}

impl Newborn {
    /// Takes one of its pins, besides its own.
    #[inline]
    pub(super) fn pin(&mut self) -> SlotRef {
        if self.pins == OWN {
            return SlotRef::again(self);
        }
        self.pins -= 1;
        SlotRef(self.slot)
    }

    /// Prepares the end of a process that has no body and will have no handle.
    pub(crate) fn refuse(&self) {
        let _ = self.state.start();
        let _ = self.state.release_handle();
    }

    /// Stores the body, and drops the pins that were not taken. Returns the share of the handle and
    /// the only queue entry.
    // Inlined like `SpawnOptions::start_body`.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn install(self, body: Box<dyn Body>) -> (HandleShare, Ready) {
        let newborn = mem::ManuallyDrop::new(self);
        if newborn.pins > OWN {
            unpin(newborn.slot, newborn.pins - OWN);
        }
        // SAFETY: [running] the process was never queued, so no worker runs it.
        unsafe { newborn.with_body(|field| *field = Some(body)) };
        (HandleShare(newborn.slot), Ready(newborn.slot))
    }
}

impl std::ops::Deref for Newborn {
    type Target = Slot;

    #[inline]
    fn deref(&self) -> &Slot {
        // SAFETY: [type-stable], and [pinned] by its pins.
        unsafe { self.slot.as_ref() }
    }
}

impl Drop for Newborn {
    fn drop(&mut self) {
        drop_life_pin(self.slot, self.pins);
    }
}

/// Drops the pins of a complete process.
///
/// # Safety
/// The caller is the worker that completed the process, and does not use it afterwards. If
/// `detached`, it has found the handle gone.
#[inline]
pub(crate) unsafe fn let_go(ready: Ready, detached: bool) {
    drop_life_pin(ready.0, if detached { OWN } else { 1 });
}

/// Like `unpin`, for the life pin. That pin is dropped once, so lost slots are counted here.
#[inline]
fn drop_life_pin(slot: NonNull<Slot>, count: u32) {
    // SAFETY: [type-stable], and [pinned] by these pins.
    let fields = unsafe { slot.as_ref() };
    match fields.pins.unpin(count) {
        Unpinned::Held => {}
        Unpinned::Free => recycle(slot, true),
        Unpinned::Retired => recycle(slot, false),
        Unpinned::Lost => fields.shared().table().count_lost(),
    }
}

/// Frees a sealed slot.
///
/// # Safety
/// The caller sealed the slot, and its process has ended.
#[inline]
pub(crate) unsafe fn free_sealed(ready: Ready) {
    let slot = ready.slot();
    slot.state.complete_alone();
    let reusable = slot.pins.end() == Unpinned::Free;
    recycle(ready.0, reusable);
}

/// The share of the handle: a pin, which becomes the process's if the handle goes first. The later
/// of the two drops the body.
pub(crate) struct HandleShare(NonNull<Slot>);

// SAFETY: as `SlotRef`.
unsafe impl Send for HandleShare {}
// SAFETY: as `SlotRef`.
unsafe impl Sync for HandleShare {}

impl HandleShare {
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: [type-stable], and [pinned] by the handle's pin.
        unsafe { self.0.as_ref() }
    }

    /// Leaves a waker to be woken at the end. Returns `true` if the process has ended.
    pub(crate) fn leave_waiter(&mut self, waker: &Waker) -> bool {
        let slot = self.slot();
        // SAFETY: [unpinned waker] the end of the process wakes it. That runs on a worker of the
        // scheduler, or on a thread that holds the scheduler.
        let waker = unsafe { waker::another_for(slot.shared(), waker) };
        // SAFETY: [handle] there is one share for each process, and `&mut self` is unique.
        let (is_there, unused) = unsafe { slot.waiter.leave(&slot.state, waker) };
        drop_each(unused);
        is_there
    }

    /// Moves the result out of the body of a complete process. Access is exclusive, since a handle
    /// has one share.
    pub(crate) fn take_result(&mut self, result: &mut dyn Any) {
        assert!(
            self.slot().state.see().is_complete(),
            "[running] the body is the handle's after the end only"
        );
        // SAFETY: [running] complete, and the handle's share exists.
        unsafe { self.slot().with_body(|body| body.as_mut().map(|body| body.take_result(result))) };
        if let Some(extra) = self.slot().extra() {
            extra.held_report.forget();
        }
    }
}

impl Drop for HandleShare {
    fn drop(&mut self) {
        let slot = self.slot();
        // Done before the share goes, and with it the right to touch the slot.
        // SAFETY: [handle] there is one share for each process.
        drop_guarded(unsafe { slot.waiter.withdraw(&slot.state) });
        if !slot.state.release_handle().is_complete() {
            return;
        }
        if let Some(tell) = slot.extra().and_then(|extra| extra.held_report.leave()) {
            tell(slot);
        }
        // SAFETY: [running] complete, and the process's half is gone.
        let body = unsafe { slot.with_body(Option::take) };
        drop_guarded(body);
        unpin(self.0, 1);
    }
}
