//! References to slots, and what a slot knows of its scheduler. `process/slot.rs` lists the
//! invariants.

use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, mem, ptr};

use procession_protocols::process::refcount::Unpinned;
use procession_sync::atomic::Ordering::Relaxed;

use crate::Pid;
use crate::process::request::MessageLog;
use crate::process::slot::{Extra, Home, Slot, SlotRef};
use crate::process::wait_edge::Habit;
#[cfg(feature = "look")]
use crate::process::wait_edge::WaitProof;
use crate::process::wait_reason::Waiting;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;

// SAFETY: a pin allows access only to `&Slot`, which is Sync, and is counted atomically.
unsafe impl Send for SlotRef {}
// SAFETY: as above.
unsafe impl Sync for SlotRef {}

// SAFETY: [home] this is the type to which `Slot::shared` casts.
unsafe impl Home for Shared {}

/// What a slot says of its process by means of its scheduler.
impl Slot {
    /// Returns the scheduler of the slot.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: [home] and [type-stable]: a table keeps its scheduler alive while a slot is out
        // of the free list.
        unsafe { self.home.cast::<Shared>().as_ref() }
    }

    /// Returns the PID for code that may send to it, or may give it to such code. This is `Tell` of
    /// `process/wait_edge.rs`.
    pub(crate) fn pid(&self) -> Pid {
        let shared = self.shared();
        let slots = shared.table().limit();
        shared.processes.edges.tell(self.index, slots, self.pins.generation());
        self.seen_pid()
    }

    /// Returns the PID for comparisons, looks, records and texts.
    #[inline]
    pub(crate) fn seen_pid(&self) -> Pid {
        Pid::local(self.shared().id(), self.index, self.pins.generation())
    }

    /// Returns the PID of the parent, as `pid` does.
    pub(crate) fn parent(&self) -> Option<Pid> {
        let (slot, generation) = self.parent_in_table()?;
        // A parent that has ended cannot be sent to.
        if let Some(parent) = self.shared().table().pin(slot, generation.get()) {
            return Some(parent.pid());
        }
        self.seen_parent()
    }

    /// Returns the PID of the parent, as `seen_pid` does.
    pub(crate) fn seen_parent(&self) -> Option<Pid> {
        let (slot, generation) = self.parent_in_table()?;
        Some(Pid::local(self.shared().id(), slot, generation.get()))
    }

    /// Returns `true` if the process handles the requests that headers name. In a simulated system,
    /// messages can have headers for another reason.
    pub(crate) fn handles_requests(&self) -> bool {
        #[cfg(feature = "sim")]
        if self.shared().world.numbering().is_some() && !self.shared().processes.has_request_ids {
            return self.extra().is_some_and(|extra| {
                extra.handling.lock().as_ref().is_some_and(|handling| handling.trace.is_some())
            });
        }
        self.bound.has_headers()
    }

    /// Traces the messages of the running process from now on, or ends the trace.
    pub(crate) fn set_trace(&self, trace: Option<Arc<MessageLog>>) {
        let headed = trace.is_some() || self.shared().processes.has_request_ids;
        #[cfg(feature = "sim")]
        let headed = headed || self.shared().world.numbering().is_some();
        self.bound.set_headed(headed);
        let before =
            self.extra_or_default().handling(|handling| mem::replace(&mut handling.trace, trace));
        drop(before);
    }

    /// Returns the process that this process waits for, if that process is known.
    pub(crate) fn target(&self) -> Option<Pid> {
        if !self.waiting.get().has(Waiting::FOR_ANOTHER) {
            return None;
        }
        let shared = self.shared();
        let edges = &shared.processes.edges;
        let noted = edges.target(self.index).slot().map(|(slot, number)| (slot, number.get()));
        let (slot, generation) = edges.lock_target(edges.proof(self.index)).or(noted)?;
        Some(Pid::local(shared.id(), slot, generation))
    }

    /// Returns `true` if the last step of the process has noted only one wait for a process.
    #[cfg(feature = "look")]
    pub(crate) fn waits_once(&self) -> bool {
        self.shared().processes.edges.proof(self.index) != WaitProof::None
    }

    /// Notes a habit of the process.
    #[cold]
    pub(crate) fn mark(&self, habit: Habit) {
        let shared = self.shared();
        let slots = shared.table().limit();
        shared.processes.edges.mark(self.index, slots, self.pins.generation(), habit);
    }
}

impl SlotRef {
    /// Takes over a pin that was counted elsewhere.
    ///
    /// # Safety
    /// `[pinned]`: the slot is pinned, and this pin belongs to the caller.
    pub(crate) unsafe fn from_raw(slot: NonNull<Slot>) -> Self {
        Self(slot)
    }

    /// Turns the pin into a pointer without dropping the pin. `from_raw` takes the pointer back.
    pub(crate) fn into_raw(self) -> NonNull<Slot> {
        mem::ManuallyDrop::new(self).0
    }

    /// Adds a pin to a pinned slot.
    pub(crate) fn again(slot: &Slot) -> Self {
        slot.pins.again(1);
        Self(NonNull::from(slot))
    }
}

impl std::ops::Deref for SlotRef {
    type Target = Slot;

    #[inline]
    fn deref(&self) -> &Slot {
        // SAFETY: [type-stable], and [pinned] by this pin.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for SlotRef {
    fn clone(&self) -> Self {
        Self::again(self)
    }
}

impl Drop for SlotRef {
    #[inline]
    fn drop(&mut self) {
        unpin(self.0, 1);
    }
}

/// Drops pins that belong to the caller.
#[inline]
pub(crate) fn unpin(slot: NonNull<Slot>, count: u32) {
    // SAFETY: [type-stable], and [pinned] by these pins.
    match unsafe { slot.as_ref() }.pins.unpin(count) {
        Unpinned::Held | Unpinned::Lost => {}
        Unpinned::Free => recycle(slot, true),
        Unpinned::Retired => recycle(slot, false),
    }
}

impl fmt::Debug for SlotRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.seen_pid().fmt(f)
    }
}

/// Returns a free slot that was not occupied.
pub(crate) fn return_unused(slot: NonNull<Slot>) {
    recycle(slot, true);
}

/// Returns a slot that nothing can name any more to the cache of the worker or to its table, or
/// takes it out of use.
pub(crate) fn recycle(slot: NonNull<Slot>, reusable: bool) {
    // SAFETY: [type-stable]
    let fields = unsafe { slot.as_ref() };
    let shared = fields.shared();
    // Relaxed: [free] the caller dropped the last pin, and so sees the writes of all others.
    if let Some(extra) = NonNull::new(fields.extra.load(Relaxed)) {
        // `forget` drops the user's messages one by one, so that the box holds no message when it
        // is dropped.
        (fields.kind().forget)(fields);
        fields.extra().into_iter().for_each(Extra::disinherit);
        fields.extra.store(ptr::null_mut(), Relaxed);
        // SAFETY: [free] made by a box, and nothing else refers to it any more.
        drop(unsafe { Box::from_raw(extra.as_ptr()) });
    }
    if reusable && current::cache_slot(slot) {
        return;
    }
    // [type-stable] the scheduler exists until the slot is in the free list.
    let released = shared.table().return_free(&mut vec![slot], reusable);
    // Dropped last, when nothing refers to the scheduler any more, since this may free it.
    drop(released);
}
