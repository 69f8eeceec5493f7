//! The handlers of a scheduler.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::machine::completion::Completion;
use crate::machine::value::{CommandId, Value};

/// What serves a command. Closures of two arguments are handlers.
pub trait Handler: Send + Sync + 'static {
    /// Serves one command. This runs on the worker of the process that yielded it, so it must not
    /// block; the completion may be used at once, or kept and used from any thread.
    fn handle(&self, input: Value, completion: Completion);
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// The handlers of a scheduler, fixed when it is built.
#[derive(Debug)]
pub(crate) struct Registry(pub(crate) BTreeMap<CommandId, Arc<dyn Handler>>);

impl Registry {
    /// The handlers, to be dropped.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Arc<dyn Handler>> + use<> {
        std::mem::take(&mut self.0).into_values()
    }
}
