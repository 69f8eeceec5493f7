//! The right to complete a command.

use std::fmt;
use std::sync::Arc;

use crate::machine::value::CommandResult;
use crate::mailbox::reply::Reply;
use crate::process::slot::SlotRef;
use crate::scheduler::shared::Shared;

/// The right to complete one command, once.
///
/// Dropping it completes the command with
/// [`CommandError::Dropped`](crate::machine::value::CommandError::Dropped). If the process has
/// ended, completing the command has no effect.
pub struct Completion {
    /// `None` once the command is complete.
    pub(crate) target: Option<Target>,
}

/// The receiver of a completion.
pub(crate) enum Target {
    /// A state machine, which receives an event.
    Machine { slot: SlotRef, tag: u64 },
    /// A future that awaits the command.
    Caller { shared: Arc<Shared>, reply: Reply<CommandResult> },
}

impl Target {
    pub(crate) fn shared(&self) -> &Shared {
        match self {
            Self::Machine { slot, .. } => slot.shared(),
            Self::Caller { shared, .. } => shared,
        }
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Completion(..)")
    }
}
