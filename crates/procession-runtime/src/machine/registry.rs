//! The handlers of a scheduler.

use std::fmt;
use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;

use crate::machine::completion::Completion;
use crate::machine::value::{CommandId, Value};

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

/// The handlers of a scheduler, fixed when it is built.
#[derive(Debug)]
pub(crate) struct HandlerTable(pub(crate) SortedMap<CommandId, Arc<dyn Handler>>);

impl HandlerTable {
    /// Takes all handlers out, to be dropped.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<dyn Handler>> + use<> {
        std::mem::take(&mut self.0).into_values()
    }
}
