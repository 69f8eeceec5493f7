//! Control blocks: one slot for each process, in a table that grows and never moves.
//!
//! # Slot protocol
//!
//! ## Problem
//! A process is reached from everywhere (addresses, wakers, PIDs, run queues), ends at its own
//! time, and must cost little. Counting references to a heap block would do, but for PIDs, which
//! are numbers.
//!
//! ## States
//! A slot is free, or *occupied*: pinned (see `process/refcount.rs`) by the process itself until it
//! is complete (the *life pin*), by its handle, whose pin becomes the process's if the handle goes
//! first, and by each address, waker and completion. A queue entry needs no pin of its own: a
//! process in a run queue is not complete. A process that ends and that nothing but these two pins,
//! both its own, keeps is *sealed*: nobody reaches it any more, and the end needs no further
//! read-modify-write.
//!
//! ## Invariants
//! - `[type-stable]` slots are created in segments that live as long as their table; the table's
//!   scheduler is kept alive while any slot is out of the free list.
//! - `[free]` a slot with no pins is touched only by the thread that takes it off the free list, or
//!   that sealed it; but for its state word, since who has an unpinned waker wakes whoever is
//!   there.
//! - `[pinned]` the fields marked *fixed* are written while the slot is free, and only read while
//!   it is pinned.
//! - `[running]` the body is touched only by the worker that took the process's entry, and, once it
//!   is `COMPLETE`, by whoever the state protocol names: the worker if the handle was gone, else
//!   the handle. Who has the entry of a process that is ready may read where it is.
//! - `[typed]` the mailbox holds messages of type `M`, where `M` is the message type that `kind`
//!   names.
//!
//! ## Checked by
//! `models` (pins, state word and mailbox together), `pins::models`, `state::models`, and the
//! stress tests in `tests/it`.

use std::any::{Any, TypeId};
use std::num::NonZeroU32;
use std::panic::Location;
use std::ptr::NonNull;
use std::task::Waker;
use std::{fmt, mem, ptr};

use procession_queue::{Entry, EventQueue};
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicPtr, AtomicU16, AtomicU32};
use procession_sync::cell::UnsafeCell;

use crate::Pid;
use crate::machine::value::Value;
use crate::mailbox::bounded::{Bounded, MailboxSnapshot, WhenFull};
use crate::process::body::{Body, System};
use crate::process::join_waker::Waiter;
use crate::process::refcount::Pins;
use crate::process::state::State;
use crate::process::table::Free;
use crate::process::wait_reason::Waiting;
use crate::relations::entries::Relations;
use crate::relations::on_exit::Ties;
use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;
use crate::util::prefetch::prefetch;

/// What the runtime knows of a process's types.
pub(crate) struct Kind {
    /// The kind of process, for people.
    pub(crate) name: &'static str,
    pub(crate) message: fn() -> TypeId,
    pub(crate) message_name: fn() -> &'static str,
    /// Pushes a message of any type; `Err` also if it is of another than the process receives.
    pub(crate) push_any: fn(&Slot, Value) -> Result<(), Refused<Value>>,
    /// Pushes something that is no message; says whether the process was there.
    pub(crate) push_system: fn(&Slot, Entry<System>) -> bool,
    /// Closes the mailbox, and drops what is in it; says how many messages that were.
    pub(crate) close: fn(&Slot) -> u32,
    /// Drops what the closed mailbox still keeps for others, if it is bounded.
    pub(crate) forget: fn(&Slot),
    /// A `BoundedMailbox` of this message type.
    pub(crate) make_bounded: fn(NonZeroU32, WhenFull) -> Box<dyn Any + Send + Sync>,
    /// How a bounded mailbox is doing, if so many messages were received.
    pub(crate) bounded: fn(&Slot, u32) -> Option<BoundedState>,
}

/// Length, high-water mark, and the rest.
type BoundedState = (u32, u32, MailboxSnapshot);

/// Stands for the type that `kind` names.
pub(crate) struct Erased;

/// The mailbox of a process that receives messages of type `M`.
pub(crate) enum Mailbox<'a, M> {
    Unbounded(&'a EventQueue<M, System>),
    Bounded(&'a BoundedMailbox<M>),
}

pub(crate) type BoundedMailbox<M> = Bounded<M, System>;

impl<M> Clone for Mailbox<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Mailbox<'_, M> {}

impl<M> Mailbox<'_, M> {
    /// Wants to be woken by the next push, unless there is something to take.
    #[inline]
    pub(crate) fn arm(self) -> bool {
        match self {
            Self::Unbounded(queue) => queue.arm(),
            Self::Bounded(ring) => ring.arm(),
        }
    }

    /// Returns `true` if the process is at its end: nothing comes any more.
    #[cold]
    pub(crate) fn is_closed(self) -> bool {
        match self {
            Self::Unbounded(queue) => queue.is_closed(),
            Self::Bounded(ring) => ring.is_closed(),
        }
    }

    pub(crate) fn disarm(self) {
        match self {
            Self::Unbounded(queue) => queue.disarm(),
            Self::Bounded(ring) => ring.disarm(),
        }
    }
}

/// What few processes have.
#[derive(Default)]
pub(crate) struct Extra {
    /// Fixed while occupied.
    pub(crate) label: Option<Box<str>>,
    /// The worker that the process stays on. Fixed while occupied.
    pub(crate) affinity: Option<u32>,
    /// A `BoundedMailbox` of the process's message type, if its mailbox is bounded. Fixed while
    /// occupied.
    pub(crate) bounded: Option<Box<dyn Any + Send + Sync>>,
    /// Links, monitors, a name. Boxed on first use.
    pub(crate) ties: Ties<Option<Box<Relations>>>,
}

/// The parent, which is of the same scheduler: slot and generation.
pub(crate) type Parent = (u32, NonZeroU32);

// Two cache lines: what senders and workers write for each message and step; and what the process
// alone writes, or is seldom written. Measured in `bench idle_mem`.
const _: () = assert!(size_of::<Slot>() <= 128);
// What the process writes for each message is not on the line that senders write for each
// (`bench fanin`: 49 ns instead of 34).
#[cfg(target_pointer_width = "64")]
const _: () = assert!(mem::offset_of!(Slot, received) / 64 != mem::offset_of!(Slot, mailbox) / 64);

/// `Slot::bound`: the mailbox is bounded. Fixed while occupied.
pub(crate) const HAS_BOUNDED: u16 = 1 << 15;

/// After so many messages a slot's count begins again.
const ROUND: u64 = 1 << 32;

/// A control block.
// Sixteen fields, flat, so that their order is their place on the two cache lines.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) pins: Pins,
    pub(crate) state: State,
    /// Steps made. Written by the running worker.
    pub(crate) steps: AtomicU32,
    pub(crate) mailbox: UnsafeCell<EventQueue<Erased, System>>,
    /// Its number in the table. Fixed for the slot's life.
    pub(crate) index: u32,
    pub(crate) waiting: AtomicU16,
    /// The worker that alone may run the process, counted from 1, 0 is any; and `HAS_BOUNDED`. On
    /// this cache line, since every wake-up and every send asks. Written while the slot is free,
    /// and by the worker that binds the process to itself in a step.
    pub(crate) bound: AtomicU16,
    body: UnsafeCell<Option<Box<dyn Body>>>,
    /// Fixed for the slot's life.
    pub(crate) shared: NonNull<Shared>,
    /// Messages ever taken out of the mailbox by the process.
    pub(crate) received: AtomicU32,
    /// How long the mailbox has been at most. Written by the process.
    pub(crate) high_water: AtomicU32,
    /// Fixed while occupied, as all below.
    pub(crate) parent: UnsafeCell<Option<Parent>>,
    pub(crate) kind: UnsafeCell<&'static Kind>,
    pub(crate) location: UnsafeCell<&'static Location<'static>>,
    /// Null until it is needed; made once while occupied.
    pub(crate) extra: AtomicPtr<Extra>,
    /// The waker that the handle left.
    pub(crate) waiter: Waiter,
}

// SAFETY: [pinned], [running] and [typed] say which thread may touch which field when; bodies,
// messages and wakers are Send.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(crate) fn new(shared: NonNull<Shared>, index: u32) -> Self {
        static NOTHING: Kind = Kind::of::<()>("none");
        Self {
            pins: Pins::free(),
            state: State::vacant(),
            steps: AtomicU32::new(0),
            mailbox: UnsafeCell::new(EventQueue::with_system()),
            index,
            waiting: AtomicU16::new(0),
            bound: AtomicU16::new(0),
            body: UnsafeCell::new(None),
            shared,
            received: AtomicU32::new(0),
            high_water: AtomicU32::new(0),
            parent: UnsafeCell::new(None),
            kind: UnsafeCell::new(&NOTHING),
            location: UnsafeCell::new(Location::caller()),
            extra: AtomicPtr::new(ptr::null_mut()),
            waiter: Waiter::empty(),
        }
    }

    /// Its number in the table.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The scheduler of the slot.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: [type-stable] a table keeps its scheduler alive while a slot is out of the free
        // list.
        unsafe { self.shared.as_ref() }
    }

    /// What a child names this process by.
    pub(crate) fn as_parent(&self) -> Option<Parent> {
        Some((self.index, NonZeroU32::new(self.pins.generation())?))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::local(self.shared().id(), self.index, self.pins.generation())
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        // SAFETY: [pinned]
        self.kind.with(|kind| unsafe { *kind })
    }

    pub(crate) fn location(&self) -> &'static Location<'static> {
        // SAFETY: [pinned]
        self.location.with(|location| unsafe { *location })
    }

    pub(crate) fn parent(&self) -> Option<Pid> {
        // SAFETY: [pinned]
        let (slot, generation) = self.parent.with(|parent| unsafe { *parent })?;
        Some(Pid::local(self.shared().id(), slot, generation.get()))
    }

    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        // Ordering: Acquire pairs with the Release of `extra_or_default`, and of `occupy`'s pin.
        let extra = NonNull::new(self.extra.load(Acquire))?;
        // SAFETY: [pinned] it is freed with the last pin only; the reference lives no longer than
        // that of the slot.
        Some(unsafe { extra.as_ref() })
    }

    /// What few processes have; this one from now on.
    pub(crate) fn extra_or_default(&self) -> &Extra {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let made = Box::into_raw(Box::<Extra>::default());
        // Ordering: Release pairs with the Acquire of `extra`; Acquire on failure, likewise, with
        // who was faster.
        let extra = match self.extra.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => made,
            Err(there) => {
                // SAFETY: made above, and never published.
                drop(unsafe { Box::from_raw(made) });
                there
            }
        };
        // SAFETY: [pinned] as in `extra`.
        unsafe { &*extra }
    }

    /// Binds the running process to a worker from now on.
    pub(crate) fn bind(&self, seat: SeatId) {
        // Relaxed, and no read-modify-write: only the running worker writes it now, and who queues
        // the process next has it from this one.
        self.bound.store(self.bound.load(Relaxed) & HAS_BOUNDED | (seat.0 as u16 + 1), Relaxed);
    }

    /// The worker that alone may run the process, if there is one.
    #[inline]
    pub(crate) fn bound_to(&self) -> Option<SeatId> {
        // Relaxed: who queues the process made it ACTIVE, or has its entry, or is its maker, and so
        // sees what its steps did.
        match self.bound.load(Relaxed) & !HAS_BOUNDED {
            0 => None,
            seat => Some(SeatId(u32::from(seat) - 1)),
        }
    }

    /// The mailbox, with its type.
    ///
    /// # Safety
    /// `[typed]`: the slot is pinned, and its `kind` is of `M`.
    #[inline]
    pub(crate) unsafe fn mailbox<M: Send + 'static>(&self) -> Mailbox<'_, M> {
        // Relaxed: fixed while occupied, like `extra`.
        if self.bound.load(Relaxed) & HAS_BOUNDED != 0 {
            return self.bounded_mailbox();
        }
        // SAFETY: [typed] by the caller; an event queue is a pointer and a count, whatever it
        // holds.
        Mailbox::Unbounded(self.mailbox.with(|mailbox| unsafe { &*mailbox.cast() }))
    }

    #[cold]
    fn bounded_mailbox<M: Send + 'static>(&self) -> Mailbox<'_, M> {
        let ring = self.extra().and_then(|extra| extra.bounded.as_ref()?.downcast_ref());
        Mailbox::Bounded(ring.expect("[typed] it was made with the process, of its message type"))
    }

    /// The mailbox of a process of another kind is refused.
    pub(crate) fn mailbox_checked<M: Send + 'static>(&self) -> Option<Mailbox<'_, M>> {
        if (self.kind().message)() != TypeId::of::<M>() {
            return None;
        }
        // SAFETY: [typed] as just compared.
        Some(unsafe { self.mailbox() })
    }

    /// Counts messages that left the mailbox; only the process itself does.
    #[inline]
    pub(crate) fn count_received(&self, messages: u32) {
        // Only this thread writes it now, so no read-modify-write.
        let (received, full) = self.received.load(Relaxed).overflowing_add(messages);
        // Ordering: Release pairs with the Acquire of `mailbox_length`.
        self.received.store(received, Release);
        if full {
            self.carry_received(ROUND);
        }
    }

    /// A message that was counted was not received after all; only the process itself says so.
    pub(crate) fn uncount_received(&self) {
        let (received, empty) = self.received.load(Relaxed).overflowing_sub(1);
        // Ordering: as in `count_received`.
        self.received.store(received, Release);
        if empty {
            self.carry_received(ROUND.wrapping_neg());
        }
    }

    /// Notes how long the mailbox is; only the process itself does, each time it looks into it.
    pub(crate) fn note_length(&self) {
        let length = self.mailbox_length();
        if length > self.high_water.load(Relaxed) {
            self.high_water.store(length, Relaxed);
        }
    }

    /// How its bounded mailbox is doing, if it has one.
    pub(crate) fn bounded(&self) -> Option<BoundedState> {
        // Ordering: as in `mailbox_length`.
        let received = self.received.load(Acquire);
        (self.kind().bounded)(self, received)
    }

    /// Messages in an unbounded mailbox. The counts are read one after the other, so a busy mailbox
    /// may seem a little shorter or longer.
    #[inline]
    pub(crate) fn mailbox_length(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `count_received`: what was received is found
        // to have been pushed.
        let received = self.received.load(Acquire);
        // SAFETY: [pinned]
        self.mailbox.with(|mailbox| unsafe { &*mailbox }.len(received))
    }

    pub(crate) fn high_water(&self) -> u32 {
        self.high_water.load(Relaxed).max(self.mailbox_length())
    }

    /// Forgets what the last step waited for.
    #[inline]
    pub(crate) fn clear_waiting(&self) {
        self.waiting.store(0, Relaxed);
    }

    /// Adds to what this step waits for; only the process itself does.
    #[inline]
    pub(crate) fn note_waiting(&self, waiting: Waiting) {
        self.waiting.store(self.waiting.load(Relaxed) | waiting.bits(), Relaxed);
    }

    /// Takes from what this step waits for; only the process itself does.
    pub(crate) fn forget_waiting(&self, waiting: Waiting) {
        self.waiting.store(self.waiting.load(Relaxed) & !waiting.bits(), Relaxed);
    }

    pub(crate) fn waiting(&self) -> Waiting {
        Waiting::from_bits(self.waiting.load(Relaxed))
    }

    pub(crate) fn received(&self) -> u32 {
        self.received.load(Relaxed)
    }

    /// Takes what the handle left, to be woken.
    ///
    /// # Safety
    /// `[cell]` of `process/join_waker.rs`: the caller completed the process, and found a waiter.
    pub(crate) unsafe fn take_waiter(&self) -> Option<Waker> {
        // SAFETY: by the caller.
        unsafe { self.waiter.take() }
    }

    /// Whether nothing refers to the process, which ends, but itself, and nothing is left to be
    /// told or dropped: no handle, no address, no relation, no message. Whoever has its PID may
    /// change that at any moment.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.pins.are(OWN) && self.leaves_nothing()
    }

    /// If the process is still alone, it is for ever: nobody reaches it any more.
    #[inline]
    pub(crate) fn seal(&self) -> bool {
        if !self.pins.seal(OWN) {
            return false;
        }
        let alone = self.leaves_nothing();
        if !alone {
            self.pins.occupy(OWN);
        }
        alone
    }

    #[inline]
    fn leaves_nothing(&self) -> bool {
        let seen = self.state.see();
        !seen.has_handle() && !seen.is_related() && self.has_empty_mailbox()
    }

    /// Whether the mailbox is unbounded, and nothing is in it, as far as this thread can see.
    #[inline]
    pub(crate) fn has_empty_mailbox(&self) -> bool {
        // SAFETY: [pinned], or [free] since the caller sealed it.
        self.bound.load(Relaxed) & HAS_BOUNDED == 0
            && self.mailbox.with(|mailbox| unsafe { &*mailbox }.is_empty())
    }

    /// Does something with the body.
    ///
    /// # Safety
    /// `[running]`: the body is the caller's now.
    #[inline]
    pub(crate) unsafe fn with_body<R>(
        &self,
        access: impl FnOnce(&mut Option<Box<dyn Body>>) -> R,
    ) -> R {
        // SAFETY: [running] by the caller.
        self.body.with_mut(|body| access(unsafe { &mut *body }))
    }
}

/// A reference that keeps a slot from being reused.
pub(crate) struct Pin(pub(crate) NonNull<Slot>);

/// A process that is ready: its one queue entry. Whoever takes it out of a run queue runs the
/// process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready(pub(crate) NonNull<Slot>);

// SAFETY: an entry is a right to run, which any worker may have.
unsafe impl Send for Ready {}

/// Has the processor fetch a slot.
#[inline]
pub(crate) fn prefetch_slot(slot: *const Slot) {
    prefetch(slot);
    prefetch(slot.cast::<u8>().wrapping_add(64));
}

/// Cache lines of a body that are fetched ahead. A fourth gained nothing.
const BODY_LINES: usize = 3;

impl Ready {
    /// # Safety
    /// The caller's event made the process `ACTIVE` (state protocol), so this is its one entry.
    pub(crate) unsafe fn new(slot: &Slot) -> Self {
        Self(NonNull::from(slot))
    }

    pub(crate) fn from_raw(slot: NonNull<Slot>) -> Self {
        Self(slot)
    }

    pub(crate) fn as_raw(self) -> NonNull<Slot> {
        self.0
    }

    /// Has the processor fetch the slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self) {
        prefetch_slot(self.0.as_ptr());
    }

    /// Has the processor fetch what the process's next step begins with.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let body = self.slot().body.with(|body| {
            // SAFETY: [running], for who has the entry. The body itself is not borrowed.
            unsafe { &*body }.as_ref().map(|body| (&raw const **body).cast::<u8>())
        });
        if let Some(body) = body {
            for line in 0..BODY_LINES {
                prefetch(body.wrapping_add(64 * line));
            }
        }
    }

    /// The slot, which the process's life pin keeps occupied until its worker completes it.
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: [type-stable]; a process in a run queue is not complete, so its life pin is
        // there.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot().pid().fmt(f)
    }
}

// SAFETY: [free] slots in the list are touched by whoever holds its lock.
unsafe impl Send for Free {}

/// A message that a mailbox did not take.
pub(crate) enum Refused<M> {
    Ended(M),
    Full(M),
}

#[cfg(all(test, not(procession_loom)))]
mod tests;

/// The pins of a process that nobody else knows: its own and its handle's.
pub(crate) const OWN: u32 = 2;
