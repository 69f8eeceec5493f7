//! Control blocks: one slot for each process, in a table that grows and never moves.
//!
//! # Slot protocol
//!
//! ## Problem
//! A process is reached from everywhere (addresses, wakers, PIDs, run queues), ends at its own time, and must cost little. Counting
//! references to a heap block would do, but for PIDs, which are numbers.
//!
//! ## States
//! A slot is free, or *occupied*: pinned (see `process/refcount.rs`) by the process itself until it is complete (the *life pin*), by its handle, whose pin
//! becomes the process's if the handle goes first, and by each address, waker and completion. A queue entry needs no pin of its own: a process in a run
//! queue is not complete. A process that ends and that nothing but these two pins, both its own, keeps is *sealed*: nobody reaches it any more, and the end needs
//! no further read-modify-write.
//!
//! ## Invariants
//! - `[type-stable]` slots are created in segments that live as long as their table; the table's scheduler is kept alive while any
//!   slot is out of the free list.
//! - `[free]` a slot with no pins is touched only by the thread that takes it off the free list, or that sealed it; but
//!   for its state word, since who has an unpinned waker wakes whoever is there.
//! - `[pinned]` the fields marked *fixed* are written while the slot is free, and only read while it is pinned.
//! - `[running]` the body is touched only by the worker that took the process's entry, and, once it is `COMPLETE`, by whoever
//!   the state protocol names: the worker if the handle was gone, else the handle. Who has the entry of a process that is ready may read where it is.
//! - `[typed]` the mailbox holds messages of type `M`, where `M` is the message type that `kind` names.
//!
//! ## Checked by
//! `pins::models`, `state::models`, and the stress tests in `tests/it`.

use std::any::{Any, TypeId};
use std::fmt;
use std::mem;
use std::num::NonZeroU32;
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::task::Waker;

use procession_queue::{Closed, Entry, EventQueue, Pushed};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicPtr, AtomicU16, AtomicU32};
use procession_sync::cell::UnsafeCell;

use crate::machine::value::Value;
use crate::mailbox::bounded::{Bounded, MailboxSnapshot, Offered, WhenFull};
use crate::mailbox::dead_letter::{self, DeadCause};
use crate::process::body::{Body, Event, System};
use crate::process::join_waker::Waiter;
use crate::process::refcount::{Pins, Unpinned};
use crate::process::state::{Seen, State};
use crate::process::unwind::{drop_each, drop_guarded, guarded};
use crate::process::waker;
use crate::relations;
use crate::relations::entries::Relations;
use crate::relations::on_exit::Ties;
use crate::scheduler::current;
use crate::scheduler::seat_id::SeatId;
use crate::scheduler::shared::Shared;
use crate::util::prefetch::prefetch;
use crate::{Exit, Pid, Waiting};

/// What the runtime knows of a process's types.
pub(crate) struct Kind {
    /// The kind of process, for people.
    pub(crate) name: &'static str,
    pub(crate) message: fn() -> TypeId,
    pub(crate) message_name: fn() -> &'static str,
    /// Pushes a message of any type; `Err` also if it is of another than the process receives.
    push_any: fn(&Slot, Value) -> Result<(), Refused<Value>>,
    /// Pushes something that is no message; says whether the process was there.
    push_system: fn(&Slot, Entry<System>) -> bool,
    /// Closes the mailbox, and drops what is in it; says how many messages that were.
    close: fn(&Slot) -> u32,
    /// Drops what the closed mailbox still keeps for others, if it is bounded.
    forget: fn(&Slot),
    /// A `BoundedMailbox` of this message type.
    pub(crate) make_bounded: fn(NonZeroU32, WhenFull) -> Box<dyn Any + Send + Sync>,
    /// How a bounded mailbox is doing, if so many messages were received.
    bounded: fn(&Slot, u32) -> Option<BoundedState>,
}

impl Kind {
    pub(crate) const fn of<M: Send + 'static>(name: &'static str) -> Self {
        Self {
            name,
            message: TypeId::of::<M>,
            message_name: std::any::type_name::<M>,
            push_any: |slot, message| match message.downcast::<M>() {
                // SAFETY: [typed] this kind is of M.
                Ok(message) => match push_message(slot, unsafe { slot.mailbox::<M>() }, *message) {
                    Ok(()) => Ok(()),
                    Err(Refused::Ended(message)) => Err(Refused::Ended(Box::new(message))),
                    Err(Refused::Full(message)) => Err(Refused::Full(Box::new(message))),
                },
                Err(message) => Err(Refused::Ended(message)),
            },
            push_system: |slot, entry| {
                // SAFETY: [typed] this kind is of M.
                let refused = match unsafe { slot.mailbox::<M>() } {
                    Mailbox::Unbounded(queue) => match queue.push_system(entry) {
                        Ok(_) => return true,
                        Err(Closed(entry)) => entry,
                    },
                    Mailbox::Bounded(ring) => match ring.push_exempt(entry) {
                        Ok(_) => return true,
                        Err(entry) => entry,
                    },
                };
                drop_guarded(refused);
                false
            },
            close: |slot| {
                let mut messages = 0;
                let mut dispose = |event: Event<M>| match event {
                    Event::Message(message) => {
                        messages += 1;
                        dead_letter::bury(slot.shared().dead_letters(), slot.pid(), DeadCause::Ended, message);
                    }
                    Event::System(entry) => drop_guarded(entry),
                };
                // SAFETY: [typed] this kind is of M.
                match unsafe { slot.mailbox::<M>() } {
                    Mailbox::Unbounded(queue) => queue.close().for_each(dispose),
                    Mailbox::Bounded(ring) => {
                        let (entries, wakers) = ring.close();
                        entries.into_iter().for_each(&mut dispose);
                        wake_all(wakers);
                    }
                }
                messages
            },
            forget: |slot| {
                // SAFETY: [typed] this kind is of M.
                if let Mailbox::Bounded(ring) = unsafe { slot.mailbox::<M>() } {
                    drop_each(ring.take_returned().into_values());
                }
            },
            make_bounded: |capacity, when_full| Box::new(BoundedMailbox::<M>::new(capacity, when_full)),
            // SAFETY: [typed] this kind is of M.
            bounded: |slot, received| match unsafe { slot.mailbox::<M>() } {
                Mailbox::Unbounded(_) => None,
                Mailbox::Bounded(ring) => Some((ring.length(received), ring.high_water(), ring.snapshot())),
            },
        }
    }
}

/// Length, high-water mark, and the rest.
type BoundedState = (u32, u32, MailboxSnapshot);

/// Stands for the type that `kind` names.
struct Erased;

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

/// Wakes who waits for room. The wakers are the user's.
pub(crate) fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        drop(guarded(|| waker.wake()));
    }
}

/// What few processes have.
#[derive(Default)]
pub(crate) struct Extra {
    /// Fixed while occupied.
    pub(crate) label: Option<Box<str>>,
    /// The worker that the process stays on. Fixed while occupied.
    pub(crate) affinity: Option<u32>,
    /// A `BoundedMailbox` of the process's message type, if its mailbox is bounded. Fixed while occupied.
    pub(crate) bounded: Option<Box<dyn Any + Send + Sync>>,
    /// Links, monitors, a name. Boxed on first use.
    pub(crate) ties: Ties<Option<Box<Relations>>>,
}

/// The parent, which is of the same scheduler: slot and generation.
pub(crate) type Parent = (u32, NonZeroU32);

// Two cache lines: what senders and workers write for each message and step; and what the process alone writes, or is seldom written. Measured in
// `bench idle_mem`.
const _: () = assert!(size_of::<Slot>() <= 128);
// What the process writes for each message is not on the line that senders write for each (`bench fanin`: 49 ns instead of 34).
#[cfg(target_pointer_width = "64")]
const _: () = assert!(mem::offset_of!(Slot, received) / 64 != mem::offset_of!(Slot, mailbox) / 64);

/// `Slot::bound`: the mailbox is bounded. Fixed while occupied.
const HAS_BOUNDED: u16 = 1 << 15;

/// After so many messages a slot's count begins again.
const ROUND: u64 = 1 << 32;

/// A control block.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pins: Pins,
    pub(crate) state: State,
    /// Steps made. Written by the running worker.
    pub(crate) steps: AtomicU32,
    mailbox: UnsafeCell<EventQueue<Erased, System>>,
    /// Its number in the table. Fixed for the slot's life.
    index: u32,
    waiting: AtomicU16,
    /// The worker that alone may run the process, counted from 1, 0 is any; and `HAS_BOUNDED`. On this cache line, since every wake-up and
    /// every send asks. Written while the slot is free, and by the worker that binds the process to itself in a step.
    bound: AtomicU16,
    body: UnsafeCell<Option<Box<dyn Body>>>,
    /// Fixed for the slot's life.
    shared: NonNull<Shared>,
    /// Messages ever taken out of the mailbox by the process.
    received: AtomicU32,
    /// How long the mailbox has been at most. Written by the process.
    high_water: AtomicU32,
    /// Fixed while occupied, as all below.
    parent: UnsafeCell<Option<Parent>>,
    kind: UnsafeCell<&'static Kind>,
    location: UnsafeCell<&'static Location<'static>>,
    /// Null until it is needed; made once while occupied.
    extra: AtomicPtr<Extra>,
    /// The waker that the handle left.
    waiter: Waiter,
}

// SAFETY: [pinned], [running] and [typed] say which thread may touch which field when; bodies, messages and wakers are Send.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

/// What a new process puts into its slot.
pub(crate) struct Birth {
    pub(crate) kind: &'static Kind,
    pub(crate) location: &'static Location<'static>,
    /// Of the same scheduler.
    pub(crate) parent: Option<Parent>,
    pub(crate) extra: Option<Box<Extra>>,
}

impl Slot {
    fn new(shared: NonNull<Shared>, index: u32) -> Self {
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
        // SAFETY: [type-stable] a table keeps its scheduler alive while a slot is out of the free list.
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
        // SAFETY: [pinned] it is freed with the last pin only; the reference lives no longer than that of the slot.
        Some(unsafe { extra.as_ref() })
    }

    /// What few processes have; this one from now on.
    pub(crate) fn extra_or_default(&self) -> &Extra {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let made = Box::into_raw(Box::<Extra>::default());
        // Ordering: Release pairs with the Acquire of `extra`; Acquire on failure, likewise, with who was faster.
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
        // Relaxed, and no read-modify-write: only the running worker writes it now, and who queues the process next has it from this one.
        self.bound.store(self.bound.load(Relaxed) & HAS_BOUNDED | (seat.0 as u16 + 1), Relaxed);
    }

    /// The worker that alone may run the process, if there is one.
    #[inline]
    pub(crate) fn bound_to(&self) -> Option<SeatId> {
        // Relaxed: who queues the process made it ACTIVE, or has its entry, or is its maker, and so sees what its steps did.
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
        // SAFETY: [typed] by the caller; an event queue is a pointer and a count, whatever it holds.
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

    /// The scheduler counts what this word has no room for.
    #[cold]
    fn carry_received(&self, messages: u64) {
        current::count(self.shared(), |stats| &stats.received, messages);
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

    /// Messages in an unbounded mailbox. The counts are read one after the other, so a busy mailbox may seem a little shorter or longer.
    #[inline]
    pub(crate) fn mailbox_length(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `count_received`: what was received is found to have been pushed.
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

    /// The process polls something that a message or a cancel must wake, with a waker that is not its own: a combinator's. A combinator polls
    /// only what its own wakers name, so the next step wakes this one first.
    pub(crate) fn leave_foreign_waker(&self, waker: &Waker) {
        if !crate::process::waker::is_of(waker, NonNull::from(self)) {
            self.note_waiting(Waiting::FOREIGN);
            self.shared().leave_foreign(self.index, waker.clone());
        }
    }

    /// At the beginning of a step, and at the end of the process: the wakers that were left.
    #[inline]
    pub(crate) fn take_foreign_wakers(&self) -> Vec<Waker> {
        if self.waiting.load(Relaxed) & Waiting::FOREIGN.bits() == 0 {
            return Vec::new();
        }
        self.shared().take_foreign(self.index)
    }

    /// Drops them unwoken. Most processes have none.
    #[inline]
    pub(crate) fn drop_foreign_wakers(&self) {
        let wakers = self.take_foreign_wakers();
        if !wakers.is_empty() {
            drop_each(wakers);
        }
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

    /// Pushes a message of any type, and counts it.
    pub(crate) fn push_any(&self, message: Value) -> Result<(), Refused<Value>> {
        (self.kind().push_any)(self, message)?;
        current::charge_send(self);
        Ok(())
    }

    /// Pushes something that is no message, and wakes the process for it; says whether the process was there to receive it.
    pub(crate) fn push_system(&self, entry: Entry<System>) -> bool {
        let pushed = (self.kind().push_system)(self, entry);
        if pushed {
            crate::process::wake::wake(self);
        }
        pushed
    }

    /// Closes the mailbox, drops what is in it, and says how many messages that were.
    pub(crate) fn close_mailbox(&self) -> u32 {
        (self.kind().close)(self)
    }

    /// Whether nothing refers to the process, which ends, but itself, and nothing is left to be told or dropped: no handle, no address, no relation, no
    /// message. Whoever has its PID may change that at any moment.
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
        self.bound.load(Relaxed) & HAS_BOUNDED == 0 && self.mailbox.with(|mailbox| unsafe { &*mailbox }.is_empty())
    }

    /// Does something with the body.
    ///
    /// # Safety
    /// `[running]`: the body is the caller's now.
    #[inline]
    pub(crate) unsafe fn with_body<R>(&self, access: impl FnOnce(&mut Option<Box<dyn Body>>) -> R) -> R {
        // SAFETY: [running] by the caller.
        self.body.with_mut(|body| access(unsafe { &mut *body }))
    }
}

/// A reference that keeps a slot from being reused.
pub(crate) struct Pin(NonNull<Slot>);

// SAFETY: a pin gives `&Slot`, which is Sync, and is counted atomically.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// Takes a pin that was counted elsewhere.
    ///
    /// # Safety
    /// `[pinned]`: the slot is pinned, and this pin is its caller's to give.
    pub(crate) unsafe fn from_raw(slot: NonNull<Slot>) -> Self {
        Self(slot)
    }

    /// Gives the pin away uncounted: `from_raw` takes it back.
    pub(crate) fn into_raw(self) -> NonNull<Slot> {
        mem::ManuallyDrop::new(self).0
    }

    /// Pins a slot that is pinned already.
    pub(crate) fn again(slot: &Slot) -> Self {
        slot.pins.again(1);
        Self(NonNull::from(slot))
    }
}

impl std::ops::Deref for Pin {
    type Target = Slot;

    #[inline]
    fn deref(&self) -> &Slot {
        // SAFETY: [type-stable], and [pinned] by this pin.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Pin {
    fn clone(&self) -> Self {
        Self::again(self)
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        unpin(self.0, 1);
    }
}

/// Drops pins, which are the caller's.
#[inline]
fn unpin(slot: NonNull<Slot>, count: u32) {
    // SAFETY: [type-stable], and [pinned] by these pins.
    match unsafe { slot.as_ref() }.pins.unpin(count) {
        Unpinned::Held | Unpinned::Lost => {}
        Unpinned::Free => recycle(slot, true),
        Unpinned::Retired => recycle(slot, false),
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pid().fmt(f)
    }
}

/// Gives a slot back that was free, and was not occupied.
pub(crate) fn return_unused(slot: NonNull<Slot>) {
    recycle(slot, true);
}

/// Gives a slot that nobody can name any more back to its table.
fn recycle(slot: NonNull<Slot>, reusable: bool) {
    // SAFETY: [type-stable]
    let shared = unsafe { slot.as_ref() }.shared;
    // SAFETY: [type-stable] the scheduler is there until the slot is in the free list.
    let released = unsafe { shared.as_ref() }.table().give_back(slot, reusable);
    // Only here, where nothing refers into the scheduler any more, since this may free it.
    drop(released);
}

/// A process that is ready: its one queue entry. Whoever takes it out of a run queue runs the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready(NonNull<Slot>);

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
        // SAFETY: [type-stable]; a process in a run queue is not complete, so its life pin is there.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot().pid().fmt(f)
    }
}

/// Slots made at once: not quite 64 KiB. Of 512, with their alignment, an allocator's block takes 80 KiB (`idle_mem`: 325 bytes for each
/// process instead of 281).
const SEGMENT: usize = 511;

/// Slots that a worker keeps for itself at most; it fetches and returns half as many at once.
pub(crate) const CACHE: usize = 64;

/// All slots of a scheduler.
pub(crate) struct Table {
    /// How many free slots a worker may keep to itself.
    cache: usize,
    /// One pointer for each segment there may be; null until it is made. The array is as long as the limit on processes asks.
    segments: Box<[AtomicPtr<Slot>]>,
    limit: u32,
    free: Mutex<Free>,
}

struct Free {
    slots: Vec<NonNull<Slot>>,
    /// Slots made so far.
    made: u32,
    /// Slots that are neither here nor retired: occupied, or in a worker's cache. While there are any, they hold `keep`.
    out: u32,
    /// Of those, slots whose processes have ended, but which have too many references to be used again.
    lost: u32,
    keep: Option<Arc<Shared>>,
}

// SAFETY: [free] slots in the list are touched by whoever holds its lock.
unsafe impl Send for Free {}

impl Table {
    pub(crate) fn new(limit: u32, workers: u32) -> Self {
        let segments = (limit as usize).div_ceil(SEGMENT);
        Self {
            cache: CACHE.min((limit / workers / 16) as usize),
            segments: (0..segments).map(|_| AtomicPtr::new(ptr::null_mut())).collect(),
            limit,
            free: Mutex::new(Free { slots: Vec::new(), made: 0, out: 0, lost: 0, keep: None }),
        }
    }

    /// How many free slots a worker may keep to itself.
    pub(crate) fn cache(&self) -> usize {
        self.cache
    }

    fn free<R>(&self, change: impl FnOnce(&mut Free) -> R) -> R {
        change(&mut self.free.lock().expect("nothing that can panic runs under this lock"))
    }

    /// Takes at most `count` slots out of the free list, making new ones if there are none and the limit allows.
    pub(crate) fn take_free(&self, shared: &Arc<Shared>, count: usize, taken: &mut Vec<NonNull<Slot>>) {
        self.free(|free| {
            if free.slots.is_empty() {
                self.make_segment(shared, free);
            }
            let from = free.slots.len() - count.min(free.slots.len());
            let before = taken.len();
            taken.extend(free.slots.drain(from..));
            free.out += (taken.len() - before) as u32;
            if free.out > 0 && free.keep.is_none() {
                free.keep = Some(Arc::clone(shared));
            }
        });
    }

    fn make_segment(&self, shared: &Arc<Shared>, free: &mut Free) {
        let count = (self.limit - free.made).min(SEGMENT as u32);
        if count == 0 {
            return;
        }
        let shared = NonNull::from(&**shared);
        let slots: Box<[Slot]> = (free.made..free.made + count).map(|index| Slot::new(shared, index)).collect();
        let segment = Box::leak(slots);
        // The first slot is handed out first.
        free.slots.extend(segment.iter().rev().map(NonNull::from));
        // Ordering: Release pairs with the Acquire of `slot`.
        self.segments[free.made as usize / SEGMENT].store(segment.as_mut_ptr(), Release);
        free.made += count;
    }

    /// Puts a slot back that nobody can name any more, or takes it out of use.
    fn give_back(&self, slot: NonNull<Slot>, reusable: bool) -> Option<Arc<Shared>> {
        // SAFETY: [type-stable]
        let fields = unsafe { slot.as_ref() };
        // Relaxed: [free] the caller dropped the last pin, and so has seen what all others did.
        if let Some(extra) = NonNull::new(fields.extra.load(Relaxed)) {
            // The messages of the user's go one by one: nothing of them is left for the box to drop.
            (fields.kind().forget)(fields);
            fields.extra.store(ptr::null_mut(), Relaxed);
            // SAFETY: [free] made by a box, and nobody else refers to it any more.
            drop(unsafe { Box::from_raw(extra.as_ptr()) });
        }
        if reusable && crate::scheduler::current::cache_slot(slot) {
            return None;
        }
        self.return_free(&mut vec![slot], reusable)
    }

    /// Returns slots to the free list. With the last one comes what kept the scheduler, to be dropped when nothing refers into it.
    #[must_use]
    pub(crate) fn return_free(&self, slots: &mut Vec<NonNull<Slot>>, reusable: bool) -> Option<Arc<Shared>> {
        self.free(|free| {
            free.out -= slots.len() as u32;
            if reusable {
                free.slots.append(slots);
            }
            if free.out == 0 { free.keep.take() } else { None }
        })
    }

    /// The slot of this index, whatever process is in it, if it was ever made.
    pub(crate) fn slot(&self, index: u32) -> Option<&Slot> {
        // Ordering: Acquire pairs with the Release of `make_segment`.
        let segment = NonNull::new(self.segments.get(index as usize / SEGMENT)?.load(Acquire))?;
        if index >= self.limit {
            return None;
        }
        // SAFETY: [type-stable] a segment has SEGMENT slots, or as many as the limit leaves.
        let slot = unsafe { segment.add(index as usize % SEGMENT) };
        // SAFETY: [type-stable]
        Some(unsafe { slot.as_ref() })
    }

    /// Pins the process of this slot and generation, if it is still there.
    pub(crate) fn pin(&self, index: u32, generation: u32) -> Option<Pin> {
        let slot = self.slot(index)?;
        slot.pins.pin(generation).then(|| Pin(NonNull::from(slot)))
    }

    /// Pins the process that is in this slot now, if there is one.
    pub(crate) fn pin_any(&self, index: u32) -> Option<Pin> {
        let slot = self.slot(index)?;
        slot.pins.pin(slot.pins.generation()).then(|| Pin(NonNull::from(slot)))
    }

    /// A process has ended whose slot stays out of use.
    #[cold]
    fn count_lost(&self) {
        self.free(|free| free.lost += 1);
    }

    /// How many slots are lost.
    pub(crate) fn lost(&self) -> u32 {
        self.free(|free| free.lost)
    }

    /// Slots made so far: the indices that may hold a process.
    pub(crate) fn made(&self) -> u32 {
        self.free(|free| free.made)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        for (number, segment) in self.segments.iter().enumerate() {
            let count = (self.limit as usize - number * SEGMENT).min(SEGMENT);
            if let Some(segment) = NonNull::new(segment.load(Relaxed)) {
                // SAFETY: leaked in `make_segment` with this length; no slot is out, or the scheduler would have been kept.
                drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(segment.as_ptr(), count)) });
            }
        }
    }
}

/// The pins of a process that nobody else knows: its own and its handle's.
const OWN: u32 = 2;

/// Puts a process into a free slot. `others` is how many pins it will need besides its own.
pub(crate) fn occupy(slot: NonNull<Slot>, birth: Birth, others: u32) -> Newborn {
    // SAFETY: [type-stable]
    let fields = unsafe { slot.as_ref() };
    fields.state.renew();
    fields.steps.store(0, Relaxed);
    fields.received.store(0, Relaxed);
    fields.high_water.store(0, Relaxed);
    fields.clear_waiting();
    let bound = birth.extra.as_ref().map_or(0, |extra| {
        // WIDTH_MAX is far below HAS_BOUNDED.
        let worker = extra.affinity.map_or(0, |seat| seat as u16 + 1);
        if extra.bounded.is_some() { worker | HAS_BOUNDED } else { worker }
    });
    fields.bound.store(bound, Relaxed);
    // SAFETY: [free], as for all writes here: the caller took the slot off the free list.
    // Not dropped, which is a read-modify-write: it was never used or was closed, and holds nothing either way.
    fields.mailbox.with_mut(|mailbox| unsafe { mailbox.write(EventQueue::with_system()) });
    // SAFETY: [free]
    fields.parent.with_mut(|parent| unsafe { *parent = birth.parent });
    // SAFETY: [free]
    fields.kind.with_mut(|kind| unsafe { *kind = birth.kind });
    // SAFETY: [free]
    fields.location.with_mut(|location| unsafe { *location = birth.location });
    // Relaxed: published with the pin.
    fields.extra.store(birth.extra.map_or(ptr::null_mut(), Box::into_raw), Relaxed);
    let pins = OWN + others;
    fields.pins.occupy(pins);
    Newborn { slot, pins }
}

/// A new process, which is not queued yet, with all of its pins: counted at once, they cost one store.
pub(crate) struct Newborn {
    slot: NonNull<Slot>,
    pins: u32,
}

impl Newborn {
    /// One of its pins, beside its own.
    #[inline]
    pub(crate) fn pin(&mut self) -> Pin {
        if self.pins == OWN {
            return Pin::again(self);
        }
        self.pins -= 1;
        Pin(self.slot)
    }

    /// Completes a process that has no body and will have no handle.
    pub(crate) fn complete_refused(&self) -> Seen {
        let _ = self.state.start();
        let _ = self.state.release_handle();
        self.state.complete()
    }

    /// Gives it its body, and its own pins to itself and its handle.
    #[inline]
    pub(crate) fn install(self, body: Box<dyn Body>) -> HandleShare {
        let newborn = mem::ManuallyDrop::new(self);
        if newborn.pins > OWN {
            unpin(newborn.slot, newborn.pins - OWN);
        }
        // SAFETY: [running] the process was never queued, so nobody runs it.
        unsafe { newborn.with_body(|field| *field = Some(body)) };
        HandleShare(newborn.slot)
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

/// Drops what a complete process owns of its slot.
///
/// # Safety
/// The caller is the worker that completed it, and goes on without it. If `detached`, it has found that the handle was gone.
#[inline]
pub(crate) unsafe fn let_go(ready: Ready, detached: bool) {
    drop_life_pin(ready.0, if detached { OWN } else { 1 });
}

/// As `unpin`, for the pin that each process has of itself: it is dropped once, so a lost slot is
/// counted here.
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

/// Frees a slot that was sealed.
///
/// # Safety
/// The caller sealed it, and its process is over.
#[inline]
pub(crate) unsafe fn free_sealed(ready: Ready) {
    let slot = ready.slot();
    slot.state.complete_alone();
    let reusable = slot.pins.end() == Unpinned::Free;
    recycle(ready.0, reusable);
}

/// What the handle owns of a process: a pin, which becomes the process's if the handle goes first. The later of the two drops the body.
pub(crate) struct HandleShare(NonNull<Slot>);

// SAFETY: as `Pin`.
unsafe impl Send for HandleShare {}
// SAFETY: as `Pin`.
unsafe impl Sync for HandleShare {}

impl HandleShare {
    #[inline]
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: [type-stable], and [pinned] by the handle's pin.
        unsafe { self.0.as_ref() }
    }

    /// Leaves the waker to be woken at the end; says whether that is there already.
    pub(crate) fn leave_waiter(&mut self, waker: &Waker) -> bool {
        let slot = self.slot();
        // SAFETY: [unpinned waker] it is woken by the end of the process, which a worker of the scheduler is at, or who holds it.
        let waker = unsafe { waker::another_for(slot.shared(), waker) };
        // SAFETY: [handle] there is one share for each process, and `&mut self` is unique.
        let (is_there, unused) = unsafe { slot.waiter.leave(&slot.state, waker) };
        drop_each(unused);
        is_there
    }

    /// Moves the result out of the body of a complete process; `&self` is unique, since a handle has one share and is polled by `&mut`.
    pub(crate) fn take_result(&mut self, result: &mut dyn Any) {
        assert!(self.slot().state.see().is_complete(), "[running] the body is the handle's after the end only");
        // SAFETY: [running] complete, and the handle's share is there.
        unsafe { self.slot().with_body(|body| body.as_mut().map(|body| body.take_result(result))) };
    }
}

impl Drop for HandleShare {
    fn drop(&mut self) {
        let slot = self.slot();
        // Before the share is gone, and with it the right to touch the slot.
        // SAFETY: [handle] there is one share for each process.
        drop_guarded(unsafe { slot.waiter.withdraw(&slot.state) });
        if !slot.state.release_handle().is_complete() {
            return;
        }
        // SAFETY: [running] complete, and the process's half is gone.
        let body = unsafe { slot.with_body(Option::take) };
        drop_guarded(body);
        unpin(self.0, 1);
    }
}

/// A message that a mailbox did not take.
pub(crate) enum Refused<M> {
    Ended(M),
    Full(M),
}

/// Pushes a message into a mailbox of its type, and wakes its process if it waits for one.
#[inline]
pub(crate) fn push_message<M: Send + 'static>(
    slot: &Slot,
    mailbox: Mailbox<'_, M>,
    message: M,
) -> Result<(), Refused<M>> {
    match mailbox {
        Mailbox::Unbounded(queue) => match queue.push(message) {
            Ok(Pushed::Wake) => {
                crate::process::wake::wake(slot);
                Ok(())
            }
            Ok(Pushed::Queued) => Ok(()),
            Err(Closed(message)) => Err(Refused::Ended(message)),
        },
        Mailbox::Bounded(ring) => finish_offer(slot, ring.offer(message)),
    }
}

/// What is to be done after a message was offered to a bounded mailbox.
pub(crate) fn finish_offer<M: Send + 'static>(slot: &Slot, offered: Offered<M>) -> Result<(), Refused<M>> {
    let discard = |message| {
        current::count(slot.shared(), |stats| &stats.discarded, 1);
        dead_letter::bury(slot.shared().dead_letters(), slot.pid(), DeadCause::Full, message);
    };
    match offered {
        Offered::Queued { wake } => {
            if wake {
                crate::process::wake::wake(slot);
            }
        }
        Offered::Replaced(oldest) => discard(oldest),
        Offered::Dropped(newest) => discard(newest),
        Offered::Full(message) => return Err(Refused::Full(message)),
        Offered::Kills(message) => {
            relations::end_by(slot, Exit::MailboxFull);
            return Err(Refused::Full(message));
        }
        Offered::Closed(message) => return Err(Refused::Ended(message)),
    }
    Ok(())
}

/// Takes one entry out of a bounded mailbox, and lets who waits for the room in. Only the process itself does.
#[cold]
pub(crate) fn take_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>) -> Option<Event<M>> {
    let (entry, wakers) = ring.take();
    admit(slot, wakers);
    entry
}

/// Frees the room of messages that were taken out of a bounded mailbox and kept, and lets who waits for it in. Only the process itself does.
#[cold]
pub(crate) fn release_bounded<M>(slot: &Slot, ring: &BoundedMailbox<M>, messages: u32) {
    admit(slot, ring.release(messages));
}

/// What waited has been sent, whether its sender notices or not.
fn admit(slot: &Slot, wakers: Vec<Waker>) {
    let admitted = wakers.len() as u32;
    if admitted > 0 {
        current::count(slot.shared(), |stats| &stats.sent, admitted.into());
        wake_all(wakers);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests;
