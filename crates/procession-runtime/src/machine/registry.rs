//! The handlers of a scheduler, and the numbers of their commands.

use std::sync::Arc;
use std::{fmt, mem};

use procession_protocols::util::sorted_map::SortedMap;

use crate::machine::completion::Completion;
use crate::machine::value::{CommandId, Value};
use crate::process::unwind::drop_each;
use crate::scheduler::shared::Shared;
use crate::util::out_of_range::OutOfRange;

/// Serves a kind of command. Closures with two arguments are handlers.
pub trait Handler: Send + Sync + 'static {
    /// Serves one command. The completion may be used immediately, or later from any thread.
    ///
    /// # Blocking
    /// Runs on the worker of the process that issued the command, so it must not block.
    fn handle(&self, input: Value, completion: Completion);
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

impl TryFrom<u16> for CommandId {
    type Error = OutOfRange;

    fn try_from(number: u16) -> Result<Self, OutOfRange> {
        let (first, last) = (Self::FIRST_FREE.0.into(), u16::MAX.into());
        OutOfRange::check("the number of a command", number.into(), first, last)?;
        Ok(Self(number))
    }
}

/// The handlers of a scheduler, fixed when it is built.
#[derive(Debug)]
pub(crate) struct HandlerTable(pub(crate) SortedMap<CommandId, Arc<dyn Handler>>);

impl HandlerTable {
    /// Returns the handlers of a scheduler.
    pub(crate) fn of(shared: &Shared) -> &Self {
        let handlers = shared.extensions.handlers.downcast_ref();
        handlers.expect("the builder makes the table")
    }
}

impl Drop for HandlerTable {
    fn drop(&mut self) {
        drop_each(mem::take(&mut self.0).into_values());
    }
}
