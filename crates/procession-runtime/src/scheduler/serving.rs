//! Commands that are done in the step of the process that gave them.

use std::ptr::NonNull;

use crate::machine::value::CommandResult;
use crate::process::slot::Slot;
use crate::process::unwind::drop_guarded;
use crate::scheduler::current::with_local;

/// The time during which the commands of a process are served in its step. Results that are there
/// immediately need not go through the mailbox. If a handler runs processes on this thread during
/// that time (`block_on`), these have another seat, or none.
#[must_use]
pub(crate) struct Serving(());

impl Serving {
    pub(crate) fn begin(slot: &Slot) -> Self {
        with_local(|local| {
            if let Some(local) = local {
                debug_assert!(
                    local.step.serving.get().is_none(),
                    "a worker runs one step at a time"
                );
                local.step.serving.set(Some(NonNull::from(slot)));
            }
        });
        Self(())
    }

    /// Returns the tag and result of the command that is done, if one is.
    pub(crate) fn take(&self) -> Option<(u64, CommandResult)> {
        with_local(|local| local?.step.served.take())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let left = with_local(|local| {
            let local = local?;
            local.step.serving.set(None);
            local.step.served.take()
        });
        // A result is left here only if the step has panicked.
        drop_guarded(left);
    }
}

/// Hands the result of a command to the running step, if that step is serving commands of the
/// process in `slot`. Otherwise returns it. Also returns it if the mailbox is bounded or not empty,
/// so that the order of events is kept.
pub(crate) fn serve(slot: &Slot, tag: u64, result: CommandResult) -> Option<CommandResult> {
    with_local(|local| {
        let local = local.filter(|local| local.step.serving.get() == Some(NonNull::from(slot)));
        match local.map(|local| local.step.served.borrow_mut()) {
            Some(mut served) if served.is_none() && slot.has_empty_mailbox() => {
                *served = Some((tag, result));
                None
            }
            _ => Some(result),
        }
    })
}
