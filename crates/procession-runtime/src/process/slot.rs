//! Control blocks: one slot for each process, in a table that grows and never moves.
//!
//! # Slot protocol
//!
//! ## Problem
//! Addresses, wakers, PIDs and run queues refer to a process, which ends at its own time and must
//! cost little. Reference counts of a heap block would do for all of them except PIDs, which are
//! numbers.
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
//!   process is `COMPLETE`, it is touched by the one that the state protocol names: the worker if
//!   the handle was gone, else the handle. The holder of the entry of a ready process may read
//!   where the body is.
//! - `[place]` `waited_at` is null or was made from a `&'static Location`.
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
use std::task::Waker;
use std::{fmt, mem, ptr};

use procession_protocols::mailbox::bounded::{Bounded, BoundedFigures, FullPolicy};
use procession_protocols::process::join_waker::JoinWaker;
use procession_protocols::process::refcount::PinCount;
use procession_protocols::process::state::{ProcessPhase, State};
use procession_protocols::relations::on_exit::OnExitHooks;
use procession_protocols::scheduler::seat_id::SeatId;
use procession_protocols::util::prefetch::prefetch;
use procession_queue::{Entry, EventQueue};
use procession_sync::Mutex;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicPtr, AtomicU16, AtomicU32};
use procession_sync::cell::UnsafeCell;

use crate::Pid;
use crate::machine::value::Value;
use crate::mailbox::header::RequestId;
use crate::mailbox::kept::KeptMailbox;
use crate::mailbox::message_log::MessageLog;
use crate::process::body::{Body, System};
use crate::process::handling::Handling;
use crate::process::held::HeldReport;
use crate::process::on_cancel::OnCancel;
use crate::process::reporting::Reporting;
use crate::process::table::Free;
use crate::process::target::WaitTarget;
use crate::process::wait_reason::Waiting;
use crate::relations::entries::Relations;
use crate::scheduler::shared::Shared;

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
    /// Pushes an entry that is not a message. Returns `true` if the process could still receive it.
    pub(crate) push_system: fn(&Slot, Entry<System>) -> bool,
    /// Closes the mailbox, and drops its entries. Returns the number of messages that were not kept
    /// for another process.
    pub(crate) close: fn(&Slot) -> u32,
    /// Drops what a closed bounded mailbox still keeps for its senders.
    pub(crate) forget: fn(&Slot),
    /// Creates a `BoundedMailbox` of this message type.
    pub(crate) make_bounded: fn(NonZeroU32, FullPolicy) -> Box<dyn Any + Send + Sync>,
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
    /// Returns `true` if the process is ending, so that nothing comes any more.
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
    /// What keeps the messages that the process leaves. Fixed while occupied.
    pub(crate) kept: Option<Arc<KeptMailbox>>,
    /// Set if messages to the process have headers from the start. Fixed while occupied.
    pub(crate) headed: bool,
    /// Nothing of the process is lost if a shutdown terminates it. Fixed while occupied.
    pub(crate) is_expendable: bool,
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

/// In `Slot::bound`: the mailbox is bounded. Fixed while occupied.
pub(crate) const HAS_BOUNDED: u16 = 1 << 15;

/// In `Slot::bound`: the process is a coroutine or a local process that has begun on the worker, so
/// only the worker's thread may run it.
const HAS_BEGUN: u16 = 1 << 14;

/// In `Slot::bound`: messages to the process are sent with headers. Written while the slot is free,
/// and by the process itself in a step.
pub(crate) const HEADED: u16 = 1 << 13;

/// The bits of `Slot::bound` that are no worker.
const FLAGS: u16 = HAS_BOUNDED | HAS_BEGUN | HEADED;

/// The number of messages after which the count of a slot wraps around.
const ROUND: u64 = 1 << 32;

/// A control block.
// Seventeen fields, flat, so that their order is their place on the two cache lines.
#[repr(C, align(64))]
pub(crate) struct Slot {
    pub(crate) pins: PinCount,
    pub(crate) state: State,
    /// The number of steps. Written by the running worker.
    pub(crate) steps: AtomicU32,
    pub(crate) mailbox: UnsafeCell<EventQueue<Erased, System>>,
    /// The number of the slot in the table. Fixed for the slot's life.
    pub(crate) index: u32,
    pub(crate) waiting: AtomicU16,
    /// The only worker that may run the process, counted from 1, or 0 for any; `FLAGS`. It
    /// is on this cache line, since every wake-up and every send reads it. Written
    /// while the slot is free, and by the worker that binds the process to itself in a step.
    pub(crate) bound: AtomicU16,
    body: UnsafeCell<Option<Box<dyn Body>>>,
    /// Fixed for the slot's life.
    pub(crate) shared: NonNull<Shared>,
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
    /// Where the process waits, if that is known: a `&'static Location`. Written by the process.
    waited_at: AtomicPtr<Location<'static>>,
}

// SAFETY: [pinned], [running] and [typed] define which thread may touch which field when; bodies,
// messages and wakers are Send.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    pub(crate) fn new(shared: NonNull<Shared>, index: u32) -> Self {
        static NOTHING: Kind = Kind::of::<()>("none", OnCancel::Ask, || &NOTHING);
        Self {
            pins: PinCount::free(),
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
            waiter: JoinWaker::empty(),
            waited_at: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Returns the number of the slot in the table.
    #[inline]
    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the scheduler of the slot.
    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: [type-stable] a table keeps its scheduler alive while a slot is out of the free
        // list.
        unsafe { self.shared.as_ref() }
    }

    /// Returns the identity of this process as a parent.
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

    /// Returns the slot and generation of the process that spawned this one, if it belongs to the
    /// same scheduler.
    pub(crate) fn parent_in_table(&self) -> Option<Parent> {
        // SAFETY: [pinned]
        self.parent.with(|parent| unsafe { *parent })
    }

    pub(crate) fn parent(&self) -> Option<Pid> {
        let (slot, generation) = self.parent_in_table()?;
        Some(Pid::local(self.shared().id(), slot, generation.get()))
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

    /// Binds the running process to a worker from now on.
    pub(crate) fn bind(&self, seat: SeatId) {
        // Relaxed, and no read-modify-write: only the running worker writes it now, and the thread
        // that queues the process next is ordered after this worker.
        self.bound.store(
            self.bound.load(Relaxed) & (HAS_BOUNDED | HEADED) | (seat.0 as u16 + 1),
            Relaxed,
        );
    }

    /// Binds the running process, a coroutine or a local process that begins in this step, to its
    /// worker's thread.
    pub(crate) fn bind_begun(&self, seat: SeatId) {
        self.bind(seat);
        // Relaxed, and no read-modify-write: as in `bind`.
        self.bound.store(self.bound.load(Relaxed) | HAS_BEGUN, Relaxed);
    }

    /// Returns `true` if the process is a coroutine or a local process that has begun and stays on
    /// its worker.
    pub(crate) fn has_begun(&self) -> bool {
        // Relaxed: for people only.
        self.bound.load(Relaxed) & HAS_BEGUN != 0
    }

    /// Returns `true` if the process is a coroutine or a local process that has begun on this
    /// worker. Exact only for the thread that sits there.
    pub(crate) fn has_begun_on(&self, seat: SeatId) -> bool {
        // Relaxed: the thread that asks is the one that wrote it, or asks for people only.
        self.bound.load(Relaxed) & !(HAS_BOUNDED | HEADED) == HAS_BEGUN | (seat.0 as u16 + 1)
    }

    /// Returns the worker that the process is bound to, if there is one.
    #[inline]
    pub(crate) fn bound_to(&self) -> Option<SeatId> {
        // Relaxed: the thread that queues the process made it ACTIVE, holds its entry, or created
        // it. It therefore sees the writes of its steps.
        match self.bound.load(Relaxed) & !FLAGS {
            0 => None,
            seat => Some(SeatId(u32::from(seat) - 1)),
        }
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
        // Relaxed: fixed while occupied, like `extra`, except for `HEADED`, which publishes
        // nothing: a sender that does not see it yet sends its message without a header.
        match self.bound.load(Relaxed) & (HAS_BOUNDED | HEADED) {
            0 => Mailbox::Unbounded(queue),
            HEADED => Mailbox::Headed(queue),
            _ => Mailbox::Bounded(self.bounded_mailbox()),
        }
    }

    /// Returns the bounded mailbox. It returns no variant, so that callers of `mailbox` know which
    /// one it is.
    #[cold]
    fn bounded_mailbox<M: Send + 'static>(&self) -> &BoundedMailbox<M> {
        let ring = self.extra().and_then(|extra| extra.bounded.as_ref()?.downcast_ref());
        ring.expect("[typed] it was made with the process, of its message type")
    }

    /// Returns `true` if messages to the process are sent with headers.
    #[inline]
    pub(crate) fn has_headers(&self) -> bool {
        // Relaxed: as in `mailbox`.
        self.bound.load(Relaxed) & HEADED != 0
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
        self.has_headers()
    }

    /// Sets whether messages to the running process are sent with headers from now on.
    fn set_headed(&self, headed: bool) {
        let others = self.bound.load(Relaxed) & !HEADED;
        // Relaxed, and no read-modify-write: as in `bind`.
        self.bound.store(if headed { others | HEADED } else { others }, Relaxed);
    }

    /// Traces the messages of the running process from now on, or ends the trace.
    pub(crate) fn set_trace(&self, trace: Option<Arc<MessageLog>>) {
        let headed = trace.is_some() || self.shared().processes.has_request_ids;
        #[cfg(feature = "sim")]
        let headed = headed || self.shared().world.numbering().is_some();
        self.set_headed(headed);
        let before = self.handling(|handling| mem::replace(&mut handling.trace, trace));
        drop(before);
    }

    /// Accesses the state of a process that handles messages with headers. `access` must not run
    /// user code.
    pub(crate) fn handling<R>(&self, access: impl FnOnce(&mut Handling) -> R) -> R {
        access(self.extra_or_default().handling.lock().get_or_insert_default())
    }

    /// Returns the request that the process works for.
    pub(crate) fn request(&self) -> Option<RequestId> {
        self.extra()?.handling.lock().as_ref()?.request
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

    pub(crate) fn high_water(&self) -> u32 {
        self.high_water.load(Relaxed).max(self.mailbox_length())
    }

    /// Clears the wait reasons of the last step.
    #[inline]
    pub(crate) fn clear_waiting(&self) {
        self.waiting.store(0, Relaxed);
    }

    /// Adds a wait reason of this step. Only the process itself calls this.
    #[inline]
    pub(crate) fn note_waiting(&self, waiting: Waiting) {
        self.waiting.store(self.waiting.load(Relaxed) | waiting.bits(), Relaxed);
    }

    /// Sets the place where the process waits. Only the process itself calls this.
    #[inline]
    pub(crate) fn note_place(&self, place: &'static Location<'static>) {
        // Relaxed: the place is constant data.
        self.waited_at.store(ptr::from_ref(place).cast_mut(), Relaxed);
    }

    /// Forgets the place where the process waited. Only the process itself calls this, and the
    /// thread that occupies the slot.
    #[inline]
    pub(crate) fn forget_place(&self) {
        self.waited_at.store(ptr::null_mut(), Relaxed);
    }

    /// Returns the place where the process waits, if it is known.
    pub(crate) fn waited_at(&self) -> Option<&'static Location<'static>> {
        let place = NonNull::new(self.waited_at.load(Relaxed))?;
        // SAFETY: [place] it is a `&'static Location`.
        Some(unsafe { place.as_ref() })
    }

    /// Returns this process as one that others wait for.
    pub(crate) fn as_target(&self) -> WaitTarget {
        WaitTarget::new(self.index, self.pins.generation())
    }

    /// Sets the process that this one waits for. Only the process itself calls this.
    pub(crate) fn note_target(&self, target: WaitTarget) {
        let shared = self.shared();
        shared.processes.targets.set(self.index, shared.table().limit(), target.bits());
    }

    /// Returns the process that this one waits for, if it waits for one that is known.
    pub(crate) fn target(&self) -> Option<Pid> {
        if !self.waiting().has(Waiting::FOR_ANOTHER) {
            return None;
        }
        let shared = self.shared();
        let (slot, generation) =
            WaitTarget::from_bits(shared.processes.targets.get(self.index)).slot()?;
        Some(Pid::local(shared.id(), slot, generation.get()))
    }

    /// Returns `true` if this process waits for a lock that code outside of processes has, or gets
    /// first.
    #[cfg(feature = "macros")]
    pub(crate) fn is_behind_outside(&self) -> bool {
        let shared = self.shared();
        self.waiting().has(Waiting::LOCK)
            && shared.processes.targets.get(self.index) == WaitTarget::OUTSIDE.bits()
    }

    /// Returns the process that this one waits for, if it waits and only for that, a timeout or a
    /// cancel.
    pub(crate) fn stuck_behind(&self) -> Option<Pid> {
        let is_stuck = self.state.see().phase() == ProcessPhase::Blocked
            && self.waiting().shown().only(Waiting::FOR_ANOTHER.or_end());
        self.target().filter(|_| is_stuck)
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

    /// Removes a wait reason of this step. Only the process itself calls this.
    pub(crate) fn forget_waiting(&self, waiting: Waiting) {
        self.waiting.store(self.waiting.load(Relaxed) & !waiting.bits(), Relaxed);
    }

    pub(crate) fn waiting(&self) -> Waiting {
        Waiting::from_bits(self.waiting.load(Relaxed))
    }

    pub(crate) fn received(&self) -> u32 {
        self.received.load(Relaxed)
    }

    pub(crate) fn steps(&self) -> u32 {
        self.steps.load(Relaxed)
    }

    /// Takes the waker of the handle, to be woken.
    ///
    /// # Safety
    /// `[cell]` of `process/join_waker.rs`: the caller completed the process, and found a waiter.
    pub(crate) unsafe fn take_waiter(&self) -> Option<Waker> {
        // SAFETY: by the caller.
        unsafe { self.waiter.take() }
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
        self.bound.load(Relaxed) & HAS_BOUNDED == 0
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

/// A reference that keeps a slot from being reused.
#[repr(transparent)]
pub(crate) struct SlotRef(pub(crate) NonNull<Slot>);

/// The one queue entry of a ready process. The worker that takes it out of a run queue runs the
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
        self.slot().pid().fmt(f)
    }
}

// SAFETY: [free] slots in the list are touched only by the holder of its lock.
unsafe impl Send for Free {}

/// A message that a mailbox refused.
pub(crate) enum Refused<M> {
    Ended(M),
    Full(M),
}

#[cfg(test)]
mod tests;

/// The number of pins of a process that nothing else refers to: its own and its handle's.
pub(crate) const OWN: u32 = 2;
