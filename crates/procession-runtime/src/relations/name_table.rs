//! The names of a scheduler.

use std::sync::Arc;

use procession_protocols::util::sorted_map::SortedMap;
use procession_sync::Mutex;

use crate::Pid;

/// The names of a scheduler. Each entry has a counterpart in the relations of its process. The end
/// of the process removes both.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<SortedMap<Arc<str>, Pid>>);

impl Names {
    pub(crate) fn with<R>(&self, access: impl FnOnce(&mut SortedMap<Arc<str>, Pid>) -> R) -> R {
        access(&mut self.0.lock())
    }

    pub(crate) fn whereis(&self, name: &str) -> Option<Pid> {
        self.with(|names| names.get(name).copied())
    }
}
