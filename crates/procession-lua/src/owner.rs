//! The owners of processes: which program and which limits each belongs to.
//!
//! The owner of a guest is in its account. A guest loses its account a little before its process
//! ends. Until then, its owner is in a table, with the owners of supervisors that have started. An
//! entry is removed some time after the end of the process.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use procession::{Pid, observe};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::limits::{Limits, Subtree};

/// Identifies a program, together with its other versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramId(u64);

impl ProgramId {
    pub(crate) fn draw() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the numbers only have to differ.
        Self(LAST.fetch_add(1, Relaxed) + 1)
    }
}

/// The program and the limits that a process belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) program: ProgramId,
    pub(crate) limits: Limits,
}

impl Owner {
    /// Returns the owner of a process that is alone in its program.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        Self { program: ProgramId::draw(), limits: Limits::default() }
    }

    /// Returns `true` if a process of this owner may end one of the other.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let is_within =
            |own: &Arc<Subtree>| other.limits.levels().any(|level| std::ptr::eq(level, &**own));
        self.program == other.program && self.limits.0.as_ref().is_none_or(is_within)
    }
}

/// Returns `true` if a process has ended. Nothing depends on its owner then, which is forgotten at
/// some time.
pub(crate) fn has_ended(pid: Pid) -> bool {
    observe::mailbox_length(pid).is_none()
}

/// The owners of processes without an account.
#[derive(Default)]
struct Others {
    owners: HashMap<Pid, Owner>,
    /// The number of entries after which the entries of ended processes are removed.
    many: usize,
}

/// The least number of entries that are searched for entries of ended processes.
const MANY_MIN: usize = 64;

fn others() -> &'static Mutex<Others> {
    static OTHERS: LazyLock<Mutex<Others>> = LazyLock::new(Mutex::default);
    &OTHERS
}

/// Enters the owner of a supervisor, or of a guest that is about to lose its account.
pub(crate) fn enter(pid: Pid, owner: Owner) {
    let (before, due) = {
        let mut others = others().lock();
        let before = others.owners.insert(pid, owner);
        let is_due = others.owners.len() > others.many.max(MANY_MIN);
        let due = is_due.then(|| others.owners.keys().copied().collect::<Vec<_>>());
        (before, due)
    };
    // Without the lock, here and below: an owner may be the last one of its limits.
    drop(before);
    let Some(due) = due else { return };
    // Without the lock: to find a process may let go of its scheduler, which drops guests.
    let ended: Vec<Pid> = due.into_iter().filter(|pid| has_ended(*pid)).collect();
    let removed: Vec<Owner> = {
        let mut others = others().lock();
        let removed = ended.iter().filter_map(|pid| others.owners.remove(pid)).collect();
        others.many = 2 * others.owners.len();
        removed
    };
    drop(removed);
}

/// Returns the owner of a process that [`enter`] has entered.
pub(crate) fn entered(pid: Pid) -> Option<Owner> {
    others().lock().owners.get(&pid).cloned()
}
