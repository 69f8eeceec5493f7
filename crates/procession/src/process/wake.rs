//! Wakes, cancels and terminates processes.

use crate::process::on_cancel::OnCancel;
use crate::process::slot::{Ready, Slot};
use crate::process::state::{Duty, State};
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
