//! Wakes, cancels and terminates processes.

use procession_protocols::process::state::{Duty, State};

use crate::process::exit::OnCancel;
use crate::process::request::ProcessRequest;
use crate::process::slot::{Ready, Slot};
use crate::process::unwind::{drop_each, drop_guarded};
use crate::scheduler::current;
use crate::scheduler::current::Origin;
use crate::scheduler::local::LocalWorker;
use crate::scheduler::shared::Shared;

/// Wakes a process.
#[inline]
pub(crate) fn wake(slot: &Slot) {
    if !current::yield_if_current(slot) {
        bring(slot, State::wake);
    }
}

/// Asks a process to end, or ends it after its present step, as it was spawned
/// ([`OnCancel`]).
pub(crate) fn cancel(slot: &Slot) {
    bring(slot, cancellation(slot));
    release_to_end(slot);
}

/// Returns the event of the state protocol that a cancel of this process is.
pub(crate) fn cancellation(slot: &Slot) -> fn(&State) -> Duty {
    match slot.kind().on_cancel {
        OnCancel::Ask => State::cancel,
        OnCancel::Drop => State::cancel_by_drop,
    }
}

pub(crate) fn terminate(slot: &Slot) {
    bring(slot, State::terminate);
    release_to_end(slot);
}

/// Ends the suspension of a process that is to end, because a suspended process would not.
fn release_to_end(slot: &Slot) {
    if slot.state.see().is_asked() {
        let _ = release(slot, None);
    }
}

/// Ends the suspension of a process, and queues the process. `number` is the number of the
/// suspension, or `None` for any suspension. Returns `false` if the process has no such suspension.
pub(crate) fn release(slot: &Slot, number: Option<u64>) -> bool {
    let shared = slot.shared();
    let generation = slot.pins.generation();
    // As in `bring`.
    let _stopped = shared.stop_clock();
    let Some(released) = shared.processes.requests.release(slot.index(), generation, number) else {
        return false;
    };
    if let Some(timer) = released.timer {
        drop_each(timer.delete(shared));
    }
    enqueue_held(released.entry);
    true
}

/// Leaves a request with a process, and wakes it. Returns `false` if the process has ended.
///
/// # Errors
/// Returns the request if the maximum number of requests waits already.
pub(crate) fn request(slot: &Slot, request: ProcessRequest) -> Result<bool, ProcessRequest> {
    let shared = slot.shared();
    // As in `bring`.
    let _stopped = shared.stop_clock();
    enqueue_held(shared.processes.requests.leave(slot.index(), slot.pins.generation(), request)?);
    Ok(ask(slot))
}

/// Queues a process if its requests had its entry.
fn enqueue_held(entry: Option<Ready>) {
    if let Some(ready) = entry {
        current::enqueue(ready, Origin::Woken);
    }
}

/// Marks a request that was left, and wakes the process. Returns `false` if the process has ended,
/// and forgets what was left.
pub(crate) fn ask(slot: &Slot) -> bool {
    let mut is_asked = true;
    bring(slot, |state| {
        state.ask().unwrap_or_else(|| {
            is_asked = false;
            Duty::Nothing
        })
    });
    if !is_asked {
        forget_requests(slot);
    }
    is_asked
}

/// Drops what was left for a process that has ended.
#[cold]
pub(crate) fn forget_requests(slot: &Slot) {
    let shared = slot.shared();
    if let Some(left) = shared.processes.requests.forget(slot.index()) {
        if let Some(timer) = left.timer() {
            drop_each(timer.delete(shared));
        }
        drop_guarded(left);
    }
}

/// Applies an event to the state of a process, and queues the process if that makes it ready.
// Always inlined, because each message wakes its receiver here: as a call, it takes 20 instructions
// more.
#[inline(always)]
fn bring(slot: &Slot, event: impl FnOnce(&State) -> Duty) {
    // Stopped before the process is seen as ready. Otherwise the test clock could move on while no
    // worker can run it.
    let _stopped = slot.shared().stop_clock();
    if let Some(ready) = entry_after(slot, event) {
        current::enqueue(ready, Origin::Woken);
    }
}

/// Applies an event to the state of a process. Returns its entry if that makes it ready.
#[inline]
fn entry_after(slot: &Slot, event: impl FnOnce(&State) -> Duty) -> Option<Ready> {
    if event(&slot.state) != Duty::Enqueue {
        return None;
    }
    #[expect(
        unsafe_code,
        reason = "the right to queue a process is what the state protocol hands out"
    )]
    // SAFETY: the event made it ACTIVE.
    let ready = unsafe { Ready::new(slot) };
    Some(ready)
}

/// Wakes processes of one scheduler, and queues the processes that become ready together.
///
/// Queueing the processes one by one would cost more than waking them, because for each process
/// this thread would look for an idle worker, and would take the lock of the global queue if the
/// ring of its worker is full.
///
/// Between its wake-up and the drop of the batch, a process is ready and in no queue. No code of
/// the user may run there, since it could wait for that process.
pub(crate) struct WakeBatch<'a> {
    shared: &'a Shared,
    ready: Vec<Ready>,
}

impl<'a> WakeBatch<'a> {
    /// Creates a batch for about `count` processes. The caller stops the test clock until the batch
    /// is dropped.
    pub(crate) fn new(shared: &'a Shared, count: usize) -> Self {
        Self { shared, ready: Vec::with_capacity(count) }
    }

    /// Wakes a process of the scheduler. Returns `true` if it is to run, in a step that begins
    /// later.
    #[inline]
    pub(crate) fn wake(&mut self, slot: &Slot) -> bool {
        if current::yield_if_current(slot) {
            return true;
        }
        let ready = entry_after(slot, State::wake);
        let is_ready = ready.is_some();
        self.ready.extend(ready);
        is_ready
    }

    /// Queues the processes that are ready.
    pub(crate) fn queue(&mut self) {
        enqueue_all(self.shared, &mut self.ready);
    }
}

impl Drop for WakeBatch<'_> {
    fn drop(&mut self) {
        self.queue();
    }
}

/// Queues processes of `shared` that were woken, in their order, as `current::enqueue` does with a
/// single process, and wakes a worker for all these processes.
fn enqueue_all(shared: &Shared, woken: &mut Vec<Ready>) {
    let is_alone =
        |ready: &Ready| shared.workforce.queues.shuffled || !ready.slot().bound.is_plain();
    let is_of = |local: &&LocalWorker| std::ptr::eq(&*local.shared, shared);
    current::with_local(|local| match local.filter(is_of) {
        _ if woken.len() < 2 || woken.iter().any(is_alone) => enqueue_each(woken),
        Some(local) if local.step.is_any() => local.queues.push_woken_together(woken),
        Some(_) => enqueue_each(woken),
        None => {
            let waits = &shared.processes.waits;
            let now = || shared.world.now();
            woken.iter().for_each(|ready| waits.begin_outside(ready.slot(), now));
            shared.workforce.queues.global.push_all(woken);
            shared.workforce.announce_from_outside();
        }
    });
}

fn enqueue_each(woken: &mut Vec<Ready>) {
    woken.drain(..).for_each(|ready| current::enqueue(ready, Origin::Woken));
}
