//! The place of a new process: its count, and its slot.

use std::future::Future;
use std::mem;
use std::panic::Location;
use std::ptr::NonNull;

use procession_protocols::process::priority::Priority;

use crate::process::async_body::AsyncBody;
use crate::process::life::Newborn;
use crate::process::slot::{Extra, Kind, Parent, Ready, Slot};
use crate::process::typed::{Nothing, TypedKind};
use crate::scheduler::current::{self, Counter, Hold};
use crate::scheduler::end::Newcomer;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;
use crate::scheduler::spawn_error::{SpawnError, SpawnErrorKind};

/// Queues a new process, or ends it if no worker will run it.
#[inline]
pub(super) fn queue(hold: &Hold, ready: Ready) {
    // Of the slot, because this takes one instruction, and of the hold five.
    match ready.slot().shared().lifetime.after_publishing(ready.slot()) {
        Newcomer::Runs => current::enqueue_newborn(hold, ready),
        Newcomer::Ends => crate::scheduler::run::end_unqueued(hold, ready),
    }
}

/// The reason why a scheduler refuses a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unavailable {
    Limit,
    Closing,
}

impl From<Unavailable> for SpawnErrorKind {
    fn from(unavailable: Unavailable) -> Self {
        match unavailable {
            Unavailable::Limit => Self::Limit,
            Unavailable::Closing => Self::Closing,
        }
    }
}

/// A process that is counted, and that has a slot if there is room. Dropping it refuses the
/// process. This must not happen under a lock, since it can end the scheduler.
pub(crate) struct Reservation<'a> {
    hold: &'a Hold,
    /// The scheduler of `hold`.
    shared: &'a Shared,
    /// The process of the same scheduler that starts it.
    parent: Option<Parent>,
    /// `false` if the process certainly inherits no values.
    may_inherit: bool,
    slot: Result<NonNull<Slot>, Unavailable>,
}

impl<'a> Reservation<'a> {
    /// Counts a process, and takes a slot for it. The test clock must stand still until the process
    /// has started.
    // Inlined like `fill` in `launch.rs`: as a call it takes 27 instructions more of some 800 for a
    // spawn.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn take(hold: &'a Hold) -> Self {
        let shared: &Shared = hold;
        // Counted before the phase is read. A shutdown that begins afterwards then waits for this
        // process.
        let (parent, may_inherit) = match hold.local() {
            Some(local) => {
                local.step.spend();
                Counter::of(local).add(|stats| &stats.spawned, 1);
                local.step.as_spawner()
            }
            None => {
                crate::scheduler::budget::spend();
                current::count(shared, |stats| &stats.spawned, 1);
                let is_of = |local: &&LocalWorker| std::ptr::eq(&*local.shared, shared);
                let parent = |local: &LocalWorker| local.step.as_spawner().0;
                (current::with_local(|local| local.filter(is_of).and_then(parent)), true)
            }
        };
        let slot = if shared.lifetime.takes_processes(parent.is_some()) {
            current::free_slot(hold).ok_or(Unavailable::Limit)
        } else {
            Err(Unavailable::Closing)
        };
        Self { hold, shared, parent, may_inherit, slot }
    }

    /// Returns the scheduler of the process.
    #[inline]
    pub(super) fn hold(&self) -> &'a Hold {
        self.hold
    }

    /// Returns the error, if there is no room.
    pub(crate) fn refusal(&self) -> Option<SpawnError<()>> {
        self.slot.err().map(|unavailable| SpawnError::new((), unavailable.into()))
    }

    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.slot == Err(Unavailable::Closing)
    }

    /// Returns `false` if the process has neither a request nor values of its spawner.
    #[inline]
    pub(super) fn may_have_origin(&self) -> bool {
        self.may_inherit | self.shared.processes.has_request_ids
    }

    /// Puts a process into the slot. `pins` is the number of pins that it needs besides its own.
    #[inline]
    pub(super) fn occupy(
        self,
        kind: &'static Kind,
        location: &'static Location<'static>,
        extra: Option<Box<Extra>>,
        pins: u32,
    ) -> Result<Newborn, Unavailable> {
        let newborn =
            crate::process::life::occupy(self.slot?, kind, location, self.parent, extra, pins);
        mem::forget(self);
        Ok(newborn)
    }

    /// Starts an async process without a handle and without a span, if there is room.
    pub(crate) fn start<F>(self, priority: Priority, body: Box<AsyncBody<F>>)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (hold, shared) = (self.hold, self.shared);
        let kind = TypedKind::<Nothing>::with_context().erased();
        let Ok(newborn) = self.occupy(kind, Location::caller(), None, 0) else { return };
        shared.set_priority(&newborn, priority);
        newborn.set_body_bytes(size_of_val(&*body));
        let (_share, ready) = newborn.install(body);
        queue(hold, ready);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Ok(slot) = self.slot {
            crate::process::slot_ref::return_unused(slot);
        }
        self.shared.count_refused();
    }
}
