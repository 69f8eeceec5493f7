//! Wakes, cancels and terminates processes.

use crate::process::on_cancel::OnCancel;
use crate::process::request::ProcessRequest;
use crate::process::slot::{Ready, Slot};
use crate::process::state::{Duty, State};
use crate::process::unwind::{drop_each, drop_guarded};
use crate::scheduler::current;
use crate::scheduler::current::Origin;
use crate::util::cost::{self, Access, Operation, SharedLine};

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

/// Ends the suspension of a process that is to end, so that it does.
fn release_to_end(slot: &Slot) {
    if slot.state.see().is_asked() {
        let _ = release(slot, None);
    }
}

/// Ends the suspension of a process, and queues the process. `number` is that of the suspension, or
/// `None` for any. Returns `false` if there is none.
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
/// Returns the request if too many wait.
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
#[inline]
fn bring(slot: &Slot, event: impl FnOnce(&State) -> Duty) {
    // Stopped before the process is seen as ready. Otherwise the test clock could move on while no
    // worker can run it.
    let _stopped = slot.shared().stop_clock();
    cost::work(Operation::Wake);
    cost::touch(SharedLine::Process(slot.index()), Access::Exchange);
    if event(&slot.state) == Duty::Enqueue {
        #[expect(
            unsafe_code,
            reason = "the right to queue a process is what the state protocol hands out"
        )]
        // SAFETY: the event made it ACTIVE.
        let ready = unsafe { Ready::new(slot) };
        current::enqueue(ready, Origin::Woken);
    }
}
