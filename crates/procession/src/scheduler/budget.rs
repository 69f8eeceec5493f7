//! The budget of a step, and how a step yields.

use std::task::Context as TaskContext;
use std::time::Duration;

use crate::mailbox::message_log::{MessageDirection, TracedMessage};
use crate::process::slot::Slot;
use crate::process::waker;
use crate::scheduler::current::{counter_at, current, with_local};

/// Returns what is left of the budget of this step, if the process in `slot` runs on this thread.
#[inline]
pub(crate) fn budget_of(slot: &Slot) -> Option<u32> {
    with_local(|local| {
        let local = local.filter(|local| local.step.is_of(slot))?;
        Some(local.step.budget.get())
    })
}

/// Charges the running step for one operation. Returns `false` if the budget is spent; the process
/// then yields at the end of the step.
#[inline]
pub(crate) fn charge(task: &TaskContext<'_>) -> bool {
    let goes_on = with_local(|local| {
        let Some(local) = local.filter(|local| local.step.is_any()) else {
            return true;
        };
        local.step.spend();
        local.step.budget.get() > 0
    });
    if !goes_on {
        yield_step(task);
    }
    goes_on
}

/// Charges the running step for an operation that is not awaited.
#[inline]
pub(crate) fn spend() {
    with_local(|local| {
        if let Some(local) = local {
            local.step.spend();
        }
    });
}

/// Returns `true` if the running step has spent its budget.
pub(crate) fn is_spent() -> bool {
    with_local(|local| {
        local.is_some_and(|local| local.step.is_any() && local.step.budget.get() == 0)
    })
}

/// Charges the running step for a message, and counts the message.
#[inline]
pub(crate) fn charge_send(slot: &Slot) {
    let counter = with_local(|local| {
        if let Some(local) = local {
            local.step.spend();
        }
        counter_at(local, slot.shared())
    });
    if !counter.is_own() {
        trace_sent(slot);
    }
    counter.add(|stats| &stats.sent, 1);
}

/// Records a message to the process in `slot`, if the messages of the running process are traced.
#[cold]
pub(crate) fn trace_sent(slot: &Slot) {
    let Some((trace, now)) = with_local(|local| {
        let local = local?;
        let trace = local.step.trace.borrow().clone()?;
        Some((trace, local.shared.world.now()))
    }) else {
        return;
    };
    trace.record(
        now,
        TracedMessage {
            after: Duration::ZERO,
            direction: MessageDirection::Sent,
            other: Some(slot.pid()),
            type_name: (slot.kind().message_name)(),
            bytes: slot.kind().message_bytes,
            request: current().and_then(|process| process.request()),
        },
    );
}

/// Makes the running process ready again, behind all others, once its step ends.
pub(crate) fn yield_step(task: &TaskContext<'_>) {
    let own = with_local(|local| {
        let Some(local) = local else { return false };
        let Some(slot) = local.step.process.get() else { return false };
        if !waker::is_of(task.waker(), slot) {
            return false;
        }
        local.step.yields.set(true);
        true
    });
    if !own {
        task.waker().wake_by_ref();
    }
}
