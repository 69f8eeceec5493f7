//! Entries that a new process gets in registries and groups before it runs.

use std::fmt;
use std::sync::Arc;

use crate::Pid;
use crate::relations::names::RegisterError;

/// An entry in a table of keys that a new process gets before it runs: in a registry
/// ([`Registry::entry`](crate::group::Registry::entry)) or in a group
/// ([`Groups::entry`](crate::group::Groups::entry)).
///
/// [`SpawnOptions::enter`](crate::SpawnOptions::enter) and the `enter` of supervised children take
/// it. A clone makes the same entry for another process.
#[derive(Clone)]
#[must_use = "an entry is made for the process whose description it is given to"]
pub struct TableEntry {
    key: Arc<str>,
    make: Arc<MakeEntry>,
}

type MakeEntry = dyn Fn(Pid) -> Result<(), RegisterError> + Send + Sync;

impl TableEntry {
    pub(crate) fn new(
        key: Arc<str>,
        make: impl Fn(Pid) -> Result<(), RegisterError> + Send + Sync + 'static,
    ) -> Self {
        Self { key, make: Arc::new(make) }
    }

    /// Returns the key, which is the name of a group.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Makes the entry for a process. Called without locks.
    pub(crate) fn make(&self, pid: Pid) -> Result<(), RegisterError> {
        (self.make)(pid)
    }
}

impl fmt::Debug for TableEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableEntry").field(&self.key).finish()
    }
}
