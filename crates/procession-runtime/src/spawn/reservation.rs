//! The place of a new process: its count, and its slot.

use std::future::Future;
use std::mem;
use std::panic::Location;
use std::ptr::NonNull;

use crate::process::async_body::AsyncBody;
use crate::process::life::{Birth, Newborn};
use crate::process::slot::{Ready, Slot};
use crate::process::typed::{Nothing, TypedKind};
use crate::scheduler::current::{self, Hold};
use crate::scheduler::end::Newcomer;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::spawn_error::{SpawnError, SpawnErrorKind};

/// Queues a new process, or ends it if no worker will run it. `inside` is set if a process of the
/// same scheduler starts it.
#[inline]
pub(super) fn queue(shared: &Hold, ready: Ready, inside: bool) {
    match shared.after_publishing(ready.slot(), inside) {
        Newcomer::Runs => current::enqueue_newborn(shared, ready),
        Newcomer::Ends => crate::scheduler::run::end_unqueued(shared, ready),
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
    shared: &'a Hold,
    slot: Result<NonNull<Slot>, Unavailable>,
}

impl<'a> Reservation<'a> {
    /// Counts a process, and takes a slot for it. `inside` is set if a process of the same
    /// scheduler starts it.
    // Inlined like `begin`: as a call it takes 27 instructions more of some 800 for a spawn.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn take(shared: &'a Hold, inside: bool) -> Self {
        let local = shared.local();
        local.map_or_else(crate::scheduler::budget::spend, |local| local.step.spend());
        // Counted before the phase is read. A shutdown that begins afterwards then waits for this
        // process.
        local
            .map_or_else(|| current::counter(shared), LocalWorker::counter)
            .add(|stats| &stats.spawned, 1);
        let slot = if shared.lifetime.takes_processes(inside) {
            current::free_slot(shared).ok_or(Unavailable::Limit)
        } else {
            Err(Unavailable::Closing)
        };
        Self { shared, slot }
    }

    /// Takes a reservation for a pool. The process must start before the clock may go on.
    pub(crate) fn of(shared: &'a Hold) -> Self {
        Self::take(shared, current::parent_in(shared).is_some())
    }

    /// Returns the error, if there is no room.
    pub(crate) fn refusal(&self) -> Option<SpawnError<()>> {
        self.slot.err().map(|unavailable| SpawnError::new((), unavailable.into()))
    }

    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        self.slot == Err(Unavailable::Closing)
    }

    #[inline]
    pub(super) fn occupy(self, birth: Birth, pins: u32) -> Result<Newborn, Unavailable> {
        let newborn = crate::process::life::occupy(self.slot?, birth, pins);
        mem::forget(self);
        Ok(newborn)
    }

    /// Starts an async process without a handle and without a span, if there is room.
    pub(crate) fn start<F>(self, body: Box<AsyncBody<F>>)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let shared = self.shared;
        let kind = TypedKind::<Nothing>::with_context().erased();
        let (location, parent) = (Location::caller(), current::parent_in(shared));
        let Ok(newborn) = self.occupy(Birth { kind, location, parent, extra: None }, 0) else {
            return;
        };
        newborn.set_body_bytes(size_of_val(&*body));
        let (_share, ready) = newborn.install(body);
        queue(shared, ready, parent.is_some());
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
