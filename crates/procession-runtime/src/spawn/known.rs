//! The name and the entries that a new process gets before it runs.

use std::sync::Arc;

use crate::process::slot::Slot;
use crate::relations::names::{self, RegisterError, TableEntry};
use crate::scheduler::shared::Shared;

/// Where others find the process from its first moment on.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) name: Option<Arc<str>>,
    pub(super) entries: Vec<TableEntry>,
}

impl Known {
    /// Makes the process known, before it runs and before anybody else knows its PID.
    pub(super) fn announce(
        &mut self,
        shared: &Shared,
        newborn: &Slot,
    ) -> Result<(), RegisterError> {
        if let Some(name) = self.name.take() {
            names::register_in(shared, name, newborn.pid())?;
        }
        self.entries.iter().try_for_each(|entry| entry.make(newborn.pid()))
    }
}
