//! Control blocks: one slot for each process, in a table that grows and never moves.
//!
//! # Slot protocol
//!
//! ## Problem
//! Addresses, wakers, PIDs and run queues refer to a process, which ends at its own time and must
//! cost little. A heap block with a reference count would be enough for addresses, wakers and run
//! queues, but not for PIDs, because a PID is a number.
//!
//! ## States
//! A slot is free or *occupied*. An occupied slot is pinned (see `process/refcount.rs`) by the
//! process itself until it is complete (the *life pin*), by its handle, and by each address, waker
//! and completion. If the handle goes first, its pin becomes the process's. A queue entry needs no
//! pin: a process in a run queue is not complete.
//!
//! A process that ends is *sealed* if only the life pin and the handle's pin are left, and both are
//! its own. Nothing reaches it any more, and its end needs no further read-modify-write.
//!
//! ## Invariants
//! - `[type-stable]` slots are created in segments that live as long as their table. The table's
//!   scheduler is kept alive while any slot is out of the free list.
//! - `[free]` a slot with no pins is touched only by the thread that takes it off the free list, or
//!   that sealed it. The state word is an exception, since an unpinned waker wakes the process that
//!   is in the slot at that time.
//! - `[pinned]` the fields marked *fixed* are written while the slot is free, and only read while
//!   it is pinned.
//! - `[running]` the body is touched only by the worker that took the process's entry. Once the
//!   process is `COMPLETE`, it is touched only by the party that the state protocol names: the
//!   worker if the handle was gone, else the handle. The holder of the entry of a ready process may
//!   read where the body is.
//! - `[home]` the field `home` of a slot points to the scheduler of its table, a `Shared`, which is
//!   the only `Home`.
//! - `[place]` a `WaitPlace` is null or was made from a `&'static Location`.
//! - `[typed]` the mailbox holds messages of type `M`, where `M` is the message type that `kind`
//!   names.
//!
//! ## Checked by
//! `models` (pins, state word and mailbox together), `refcount::models`, `state::models`, and the
//! stress tests in `tests/it`.

use std::any::{Any, TypeId};
use std::num::NonZeroU32;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, mem, ptr};

use procession_protocols::mailbox::bounded::{Bounded, BoundedFigures, FullPolicy};
use procession_protocols::process::join_waker::JoinWaker;
use procession_protocols::process::refcount::PinCount;
use procession_protocols::process::state::State;
use procession_protocols::relations::on_exit::OnExitHooks;
use procession_protocols::util::prefetch::prefetch;
use procession_queue::{Entry, EventQueue};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};
use procession_sync::cell::UnsafeCell;

use crate::machine::value::Value;
use crate::mailbox::bounds::Urgent;
use crate::mailbox::dead_letter::KeptMailbox;
use crate::mailbox::header::RequestContext;
use crate::process::binding::{Binding, MailboxForm};
use crate::process::body::{Body, System};
use crate::process::exit::OnCancel;
use crate::process::handling::{Handling, Inherited};
use crate::process::reporting::{HeldReport, Reporting};
use crate::process::wait_reason::WaitWord;
use crate::relations::entries::Relations;
use crate::relations::signal::Signal;

/// The functions of a process that depend on its types.
pub(crate) struct Kind {
    /// The name of the kind, for people.
    pub(crate) name: &'static str,
    /// The size of a message in bytes.
    pub(crate) message_bytes: usize,
    pub(crate) on_cancel: OnCancel,
    /// Returns the same kind with the other effect of a cancel.
    pub(crate) other: fn() -> &'static Kind,
    pub(crate) message: fn() -> TypeId,
    pub(crate) message_name: fn() -> &'static str,
    /// Pushes a message of any type. Returns `Err` if the process receives another type.
    pub(crate) push_any: fn(&Slot, Value) -> Result<(), Refused<Value>>,
    /// Puts a message into the mailbox of a process that does not run yet. Returns the message if
    /// the process receives another type or has ended.
    pub(crate) take_over: fn(&Slot, Value) -> Result<(), Value>,
    /// Pushes an entry that is not a message, perhaps urgently. Returns `true` if the process could
    /// still receive it.
    pub(crate) push_system: fn(&Slot, Entry<System>, bool) -> bool,
    /// Closes the mailbox, and drops its entries. Returns the number of messages that were not kept
    /// for another process.
    pub(crate) close: fn(&Slot) -> u32,
    /// Drops what a closed bounded mailbox still keeps for its senders.
    pub(crate) forget: fn(&Slot),
    /// Creates a `BoundedMailbox` of this message type, which may take urgent entries.
    pub(crate) make_bounded: fn(NonZeroU32, FullPolicy, bool) -> Box<dyn Any + Send + Sync>,
    /// Returns the state of a bounded mailbox, given the number of messages received.
    pub(crate) bounded: fn(&Slot, u32) -> Option<BoundedState>,
}

/// Length, high-water mark and figures.
type BoundedState = (u32, u32, BoundedFigures);

/// The placeholder for the message type that `kind` names.
pub(crate) struct Erased;

/// The mailbox of a process that receives messages of type `M`.
pub(crate) enum Mailbox<'a, M> {
    Unbounded(&'a EventQueue<M, System>),
    /// An unbounded mailbox, to which messages are sent with a header.
    Headed(&'a EventQueue<M, System>),
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
    /// Returns `true` if the process is ending, so that nothing more arrives.
    #[cold]
    pub(crate) fn is_closed(self) -> bool {
        match self {
            Self::Unbounded(queue) | Self::Headed(queue) => queue.is_closed(),
            Self::Bounded(ring) => ring.is_closed(),
        }
    }

    pub(crate) fn disarm(self) {
        match self {
            Self::Unbounded(queue) | Self::Headed(queue) => queue.disarm(),
            Self::Bounded(ring) => ring.disarm(),
        }
    }
}

/// The fields that few processes need.
#[derive(Default)]
pub(crate) struct Extra {
    /// The label that the process was spawned with. Fixed while occupied.
    pub(crate) label: Option<Box<str>>,
    /// The label that the process has given itself since.
    pub(crate) changed_label: Mutex<Option<Arc<str>>>,
    /// The worker that the process is bound to. Fixed while occupied.
    pub(crate) affinity: Option<u32>,
    /// A `BoundedMailbox` of the process's message type, if its mailbox is bounded. Fixed while
    /// occupied.
    pub(crate) bounded: Option<Box<dyn Any + Send + Sync>>,
    /// What is urgent in the mailbox, which is bounded then. Fixed while occupied.
    pub(crate) urgent: Option<Urgent>,
    /// What keeps the messages that the process leaves. Fixed while occupied.
    pub(crate) kept: Option<Arc<KeptMailbox>>,
    /// Set if messages to the process have headers from the start. Fixed while occupied.
    pub(crate) headed: bool,
    /// Nothing of the process is lost if a shutdown terminates it. Fixed while occupied.
    pub(crate) is_expendable: bool,
    /// Set once others may have inherited values from the process.
    pub(crate) bequeaths: AtomicBool,
    /// The request that the process works for. Boxed on first use.
    pub(crate) handling: Mutex<Option<Box<Handling>>>,
    /// Links, monitors, a name. Boxed on first use.
    pub(crate) on_exit: OnExitHooks<Option<Box<Relations>>>,
    /// What of the process's failures is worth a report, if it is not the scheduler's choice. Fixed
    /// while occupied.
    pub(crate) reporting: Option<Reporting>,
    /// The report of the failed process, until it is known whether the failure reaches somebody.
    pub(crate) held_report: HeldReport<Slot>,
}

impl Extra {
    /// Accesses the state of a process that handles messages with headers. `access` must not run
    /// user code.
    pub(crate) fn handling<R>(&self, access: impl FnOnce(&mut Handling) -> R) -> R {
        access(self.handling.lock().get_or_insert_default())
    }

    /// Returns `true` if a signal to the process is urgent.
    pub(crate) fn has_urgent(&self, signal: &Signal) -> bool {
        self.urgent.is_some_and(|urgent| urgent.has(signal))
    }

    /// Returns `true` if the process has ever had values that others inherit. Only the process
    /// itself asks.
    #[inline]
    pub(crate) fn may_bequeath(&self) -> bool {
        // Relaxed: the thread that runs the process has written it, or has read what was published.
        self.bequeaths.load(Relaxed)
    }

    /// Gives these values to a process that does not run yet.
    pub(crate) fn inherit(&mut self, values: Inherited) {
        self.bequeaths = AtomicBool::new(true);
        self.handling.get_mut().get_or_insert_default().inherited = Some(values);
    }

    /// Replaces the values that are inherited from the process. Only the process itself does so.
    pub(crate) fn replace_inherited(&self, values: Option<Inherited>) -> Option<Inherited> {
        // Relaxed: only the process itself asks.
        self.bequeaths.fetch_or(values.is_some(), Relaxed);
        self.handling(|handling| mem::replace(&mut handling.inherited, values))
    }

    /// Returns the values that are inherited from the process.
    #[cold]
    pub(crate) fn inherited(&self) -> Option<Inherited> {
        self.handling.lock().as_ref()?.inherited.clone()
    }

    /// Drops the values that the process has inherited, because it has ended.
    #[cold]
    pub(crate) fn disinherit(&self) {
        let take = |handling: &mut Option<Box<Handling>>| handling.as_mut()?.inherited.take();
        let inherited = take(&mut self.handling.lock());
        // Not under the lock, because a drop of the user may ask for values.
        drop(inherited);
    }

    /// Returns the request that the process works for.
    pub(crate) fn request(&self) -> Option<RequestContext> {
        self.handling.lock().as_ref()?.request.clone()
    }
}

/// The slot and generation of the parent, which belongs to the same scheduler.
pub(crate) type Parent = (u32, NonZeroU32);

// Two cache lines: the first is written by senders and workers for each message and step; the
// second only by the process, or seldom. Measured in `bench idle_mem`.
// A build with debug assertions adds a flag to the state word, and a third line.
const _: () = assert!(size_of::<Slot>() <= 128 || cfg!(debug_assertions));
// The field that the process writes for each message is not on the line that senders write for each
// message (`bench fanin`: 49 ns instead of 34).
#[cfg(target_pointer_width = "64")]
const _: () = assert!(mem::offset_of!(Slot, received) / 64 != mem::offset_of!(Slot, mailbox) / 64);

/// The scheduler of a slot, as the slot and its table see it. They keep the scheduler alive, and
/// need not know its type.
///
/// # Safety
/// `[home]`: `Slot::shared` casts the pointer of the slot to the implementor. So there is one.
pub(crate) unsafe trait Home: Send + Sync + 'static {}

/// The number of messages after which the count of a slot wraps around.
const ROUND: u64 = 1 << 32;

/// A control block.
// Seventeen fields, not grouped, because their order decides their place on the two cache lines.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) pins: PinCount,
    pub(crate) state: State,
    /// The number of steps. Written by the running worker.
    pub(crate) steps: AtomicU32,
    pub(crate) mailbox: UnsafeCell<EventQueue<Erased, System>>,
    /// The number of the slot in the table. Fixed for the slot's life.
    pub(crate) index: u32,
    pub(crate) waiting: WaitWord,
    /// On this cache line, because every wake-up and every send reads it.
    pub(crate) bound: Binding,
    body: UnsafeCell<Option<Box<dyn Body>>>,
    /// Fixed for the slot's life.
    pub(crate) home: NonNull<()>,
    /// The number of messages that the process has taken out of the mailbox.
    pub(crate) received: AtomicU32,
    /// The greatest length of the mailbox so far. Written by the process.
    pub(crate) high_water: AtomicU32,
    /// Fixed while occupied, like all fields below.
    pub(crate) parent: UnsafeCell<Option<Parent>>,
    pub(crate) kind: UnsafeCell<&'static Kind>,
    pub(crate) location: UnsafeCell<&'static Location<'static>>,
    /// Null until it is needed. Set once while occupied.
    pub(crate) extra: AtomicPtr<Extra>,
    /// The waker of the handle.
    pub(crate) waiter: JoinWaker,
    pub(crate) waited_at: WaitPlace,
}

// SAFETY: [pinned], [running] and [typed] define which thread may touch which field when; bodies,
// messages and wakers are Send.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(crate) fn new<H: Home>(home: NonNull<H>, index: u32) -> Self {
        static NOTHING: Kind = Kind::of::<()>("none", OnCancel::Ask, || &NOTHING);
        Self {
            pins: PinCount::free(),
            state: State::vacant(),
            steps: AtomicU32::new(0),
            mailbox: UnsafeCell::new(EventQueue::with_system()),
            index,
            waiting: WaitWord::default(),
            bound: Binding::default(),
            body: UnsafeCell::new(None),
            home: home.cast(),
            received: AtomicU32::new(0),
            high_water: AtomicU32::new(0),
            parent: UnsafeCell::new(None),
            kind: UnsafeCell::new(&NOTHING),
            location: UnsafeCell::new(Location::caller()),
            extra: AtomicPtr::new(ptr::null_mut()),
            waiter: JoinWaker::empty(),
            waited_at: WaitPlace(AtomicPtr::new(ptr::null_mut())),
        }
    }

    /// Returns the number of the slot in the table.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the identity of this process as a parent.
    pub(crate) fn as_parent(&self) -> Option<Parent> {
        Some((self.index, NonZeroU32::new(self.pins.generation())?))
    }

    pub(crate) fn kind(&self) -> &'static Kind {
        // SAFETY: [pinned]
        self.kind.with(|kind| unsafe { *kind })
    }

    pub(crate) fn location(&self) -> &'static Location<'static> {
        // SAFETY: [pinned]
        self.location.with(|location| unsafe { *location })
    }

    /// Returns the slot and generation of the process that spawned this process, if it belongs to
    /// the same scheduler.
    pub(crate) fn parent_in_table(&self) -> Option<Parent> {
        // SAFETY: [pinned]
        self.parent.with(|parent| unsafe { *parent })
    }

    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        // Ordering: Acquire pairs with the Release of `extra_or_default`, and of `occupy`'s pin.
        let extra = NonNull::new(self.extra.load(Acquire))?;
        // SAFETY: [pinned] it is freed only with the last pin, and the reference does not outlive
        // that to the slot.
        Some(unsafe { extra.as_ref() })
    }

    /// Returns the rare fields, and creates them if there are none.
    pub(crate) fn extra_or_default(&self) -> &Extra {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let made = Box::into_raw(Box::<Extra>::default());
        // Ordering: Release pairs with the Acquire of `extra`. Acquire on failure pairs with the
        // Release of the thread that was faster.
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

    /// Returns the mailbox with its type.
    ///
    /// # Safety
    /// `[typed]`: the slot is pinned, and its `kind` is of `M`.
    #[inline]
    pub(crate) unsafe fn mailbox<M: Send + 'static>(&self) -> Mailbox<'_, M> {
        // SAFETY: [typed] by the caller; an event queue is a pointer and a count, whatever its
        // entries are.
        let queue = self.mailbox.with(|mailbox| unsafe { &*mailbox.cast() });
        match self.bound.mailbox() {
            MailboxForm::Unbounded => Mailbox::Unbounded(queue),
            MailboxForm::Headed => Mailbox::Headed(queue),
            MailboxForm::Bounded => Mailbox::Bounded(self.bounded_mailbox()),
        }
    }

    /// Returns the bounded mailbox. It returns no variant, because callers of `mailbox` know the
    /// variant.
    #[cold]
    fn bounded_mailbox<M: Send + 'static>(&self) -> &BoundedMailbox<M> {
        let ring = self.extra().and_then(|extra| extra.bounded.as_ref()?.downcast_ref());
        ring.expect("[typed] it was made with the process, of its message type")
    }

    /// Returns the mailbox, or `None` if the process receives another type.
    pub(crate) fn mailbox_checked<M: Send + 'static>(&self) -> Option<Mailbox<'_, M>> {
        if (self.kind().message)() != TypeId::of::<M>() {
            return None;
        }
        // SAFETY: [typed] compared just before.
        Some(unsafe { self.mailbox() })
    }

    /// Counts messages that left the mailbox. Only the process itself calls this.
    #[inline]
    pub(crate) fn count_received(&self, messages: u32) {
        // Only this thread writes it now, so this is no read-modify-write.
        let (received, full) = self.received.load(Relaxed).overflowing_add(messages);
        // Ordering: Release pairs with the Acquire of `mailbox_length`.
        self.received.store(received, Release);
        if full {
            self.carry_received(ROUND);
        }
    }

    /// Reverts the count of a message that was not received after all. Only the process itself
    /// calls this.
    pub(crate) fn uncount_received(&self) {
        let (received, empty) = self.received.load(Relaxed).overflowing_sub(1);
        // Ordering: as in `count_received`.
        self.received.store(received, Release);
        if empty {
            self.carry_received(ROUND.wrapping_neg());
        }
    }

    /// Records the length of the mailbox. Only the process itself calls this, each time it checks
    /// the mailbox.
    pub(crate) fn note_length(&self) {
        let length = self.mailbox_length();
        if length > self.high_water.load(Relaxed) {
            self.high_water.store(length, Relaxed);
        }
    }

    /// Returns the state of the bounded mailbox, if the process has one.
    pub(crate) fn bounded(&self) -> Option<BoundedState> {
        // Ordering: as in `mailbox_length`.
        let received = self.received.load(Acquire);
        (self.kind().bounded)(self, received)
    }

    /// Returns the number of messages in an unbounded mailbox. The counts are read one after the
    /// other, so the result may be slightly off for a busy mailbox.
    #[inline]
    pub(crate) fn mailbox_length(&self) -> u32 {
        // Ordering: Acquire pairs with the Release of `count_received`: each message that was
        // received is also counted as pushed.
        let received = self.received.load(Acquire);
        // SAFETY: [pinned]
        self.mailbox.with(|mailbox| unsafe { &*mailbox }.len(received))
    }

    /// Returns the number of messages that the process was sent, modulo 2^32. If the mailbox drops
    /// messages that it had accepted, returns a number that was received already.
    pub(crate) fn sent(&self) -> u32 {
        // Ordering: as in `mailbox_length`.
        let received = self.received.load(Acquire);
        let length = match (self.kind().bounded)(self, received) {
            Some((_, _, figures)) if figures.when_full == FullPolicy::DropOldest => u32::MAX,
            Some((length, ..)) => length,
            // SAFETY: [pinned]
            None => self.mailbox.with(|mailbox| unsafe { &*mailbox }.len(received)),
        };
        received.wrapping_add(length)
    }

    pub(crate) fn high_water(&self) -> u32 {
        self.high_water.load(Relaxed).max(self.mailbox_length())
    }

    /// Sets the number of bytes of the body.
    #[inline]
    pub(crate) fn set_body_bytes(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        // SAFETY: [pinned]
        self.mailbox.with(|mailbox| unsafe { &*mailbox }.set_owned(bytes));
    }

    /// Returns the number of bytes of the body.
    pub(crate) fn body_bytes(&self) -> usize {
        // SAFETY: [pinned]
        self.mailbox.with(|mailbox| unsafe { &*mailbox }.owned() as usize)
    }

    pub(crate) fn received(&self) -> u32 {
        self.received.load(Relaxed)
    }

    pub(crate) fn steps(&self) -> u32 {
        self.steps.load(Relaxed)
    }

    /// Returns `true` if only the ending process itself refers to it, and nothing is left to signal
    /// or drop: no handle, address, relation or message. A holder of its PID may change that at any
    /// moment.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.pins.are(OWN) && self.leaves_nothing()
    }

    /// Seals the slot if the process is still alone. Nothing reaches the process then.
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
        self.state.see().leaves_nothing() && self.has_empty_mailbox()
    }

    /// Returns `true` if the mailbox is unbounded and empty, as far as this thread can see.
    #[inline]
    pub(crate) fn has_empty_mailbox(&self) -> bool {
        // SAFETY: [pinned], or [free] since the caller sealed it.
        !self.bound.has_bounded_mailbox()
            && self.mailbox.with(|mailbox| unsafe { &*mailbox }.is_empty())
    }

    /// Accesses the body.
    ///
    /// # Safety
    /// `[running]`: the body belongs to the caller now.
    #[inline]
    pub(crate) unsafe fn with_body<R>(
        &self,
        access: impl FnOnce(&mut Option<Box<dyn Body>>) -> R,
    ) -> R {
        // SAFETY: [running] by the caller.
        self.body.with_mut(|body| access(unsafe { &mut *body }))
    }
}

/// Where a process waits, if that is known: a `&'static Location`. Written by the process, and by
/// the thread that occupies the slot.
pub(crate) struct WaitPlace(AtomicPtr<Location<'static>>);

impl WaitPlace {
    #[inline]
    pub(crate) fn set(&self, place: &'static Location<'static>) {
        // Relaxed: the place is constant data.
        self.0.store(ptr::from_ref(place).cast_mut(), Relaxed);
    }

    #[inline]
    pub(crate) fn forget(&self) {
        self.0.store(ptr::null_mut(), Relaxed);
    }

    pub(crate) fn get(&self) -> Option<&'static Location<'static>> {
        let place = NonNull::new(self.0.load(Relaxed))?;
        // SAFETY: [place] it is a `&'static Location`.
        Some(unsafe { place.as_ref() })
    }
}

/// A reference that keeps a slot from being reused.
#[repr(transparent)]
pub(crate) struct SlotRef(pub(crate) NonNull<Slot>);

/// The only queue entry of a ready process. The worker that takes it out of a run queue runs the
/// process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ready(pub(crate) NonNull<Slot>);

// SAFETY: an entry is a right to run, which any worker may have.
unsafe impl Send for Ready {}

/// Prefetches a slot into the cache.
#[inline]
pub(crate) fn prefetch_slot(slot: *const Slot) {
    prefetch(slot);
    prefetch(slot.cast::<u8>().wrapping_add(64));
}

/// The number of cache lines of a body that are prefetched. A fourth gained nothing.
const BODY_LINES: usize = 3;

impl Ready {
    /// # Safety
    /// The caller's event made the process `ACTIVE` (state protocol), so this is the only entry of
    /// the process.
    pub(crate) unsafe fn new(slot: &Slot) -> Self {
        Self(NonNull::from(slot))
    }

    pub(crate) fn from_raw(slot: NonNull<Slot>) -> Self {
        Self(slot)
    }

    pub(crate) fn as_raw(self) -> NonNull<Slot> {
        self.0
    }

    /// Prefetches the slot.
    #[inline]
    pub(crate) fn prefetch_slot(&self) {
        prefetch_slot(self.0.as_ptr());
    }

    /// Prefetches the start of the body, which the next step reads first.
    #[inline]
    pub(crate) fn prefetch(&self) {
        let body = self.slot().body.with(|body| {
            // SAFETY: [running], for the holder of the entry. The body itself is not borrowed.
            unsafe { &*body }.as_ref().map(|body| (&raw const **body).cast::<u8>())
        });
        if let Some(body) = body {
            for line in 0..BODY_LINES {
                prefetch(body.wrapping_add(64 * line));
            }
        }
    }

    /// Returns the slot. The life pin of the process keeps it occupied until the worker completes
    /// it.
    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: [type-stable]; a process in a run queue is not complete, so its life pin exists.
        unsafe { self.0.as_ref() }
    }
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slot().seen_pid().fmt(f)
    }
}

/// A message that a mailbox refused.
pub(crate) enum Refused<M> {
    Ended(M),
    Full(M),
}

#[cfg(test)]
mod tests;

/// The number of pins of a process that nothing else refers to: its own and its handle's.
pub(crate) const OWN: u32 = 2;
