//! The processes that a guest may end.
//!
//! A guest ends another process by an exit, by a cancel, by its own failure if the two are linked,
//! and by a request to the supervisor of the other one. It may do so only to processes of its own
//! program: to its guests, and to the supervisors that they start. If the guest has
//! [limits](crate::limits), it may do so only to processes that the same limits count. For all
//! others it needs a permission. Other nodes decide for themselves.
//!
//! The owner of a guest is in its [`Account`]. A guest loses its account a little before its
//! process ends. Until then, its owner is in a table, with those of supervisors that have started.
//! An entry is removed some time after the end of the process. A supervisor that starts has the
//! owner of the guest that starts it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use procession::{Pid, look, supervisor::SupervisorRef};
use procession_sync::Mutex;
use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::Relaxed;

use crate::account::Account;
use crate::limits::{Bounds, Subtree};
use crate::program::Program;

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
    program: ProgramId,
    pub(crate) subtree: Option<Arc<Subtree>>,
}

impl Owner {
    pub(crate) fn new(program: &Program, bounds: &Bounds) -> Self {
        Self { program: program.inner().id, subtree: bounds.subtree.clone() }
    }

    /// Returns the owner of a process that is alone in its program.
    #[cfg(test)]
    pub(crate) fn alone() -> Self {
        Self { program: ProgramId::draw(), subtree: None }
    }

    /// Returns `true` if a process of this owner may end one of the other.
    fn includes(&self, other: &Self) -> bool {
        let is_within = |own: &Arc<Subtree>| {
            let other = other.subtree.as_ref();
            other.is_some_and(|other| other.levels().any(|level| std::ptr::eq(level, &**own)))
        };
        self.program == other.program && self.subtree.as_ref().is_none_or(is_within)
    }

    /// Returns `true` if a process of this owner may end another one without a permission. That is
    /// also so if the other one has ended.
    fn may_end(&self, to: Pid) -> bool {
        found(to).is_some_and(|owner| self.includes(&owner)) || has_ended(to)
    }
}

/// Returns the owner of a guest, or of a supervisor that a guest has started.
fn of(pid: Pid) -> Option<Owner> {
    // The account first: when a guest loses it, its owner is in the table.
    let account = Account::of(pid).map(|account| account.owner().clone());
    account.or_else(|| others().lock().owners.get(&pid).cloned())
}

/// Returns the owner of a process of a guest, also while that starts.
fn found(mut pid: Pid) -> Option<Owner> {
    loop {
        if let Some(owner) = of(pid) {
            return Some(owner);
        }
        let detail = look::detail(pid)?;
        match detail.supervisor {
            // Supervisors start guests that have no account yet, and other supervisors.
            Some(supervisor) => pid = supervisor,
            // A guest enters a supervisor only once all its children have started. They run before.
            None if SupervisorRef::of(pid).is_some() => return of(detail.row.parent?),
            None => return None,
        }
    }
}

/// Returns `true` if a process has ended. Nothing depends on its owner then, which is forgotten at
/// some time.
fn has_ended(pid: Pid) -> bool {
    look::mailbox_length(pid).is_none()
}

/// Checks that a guest may end a process. `act` is what it wants to do with that.
///
/// # Errors
/// If the guest may not, returns the refusal.
pub(crate) fn check(program: &Program, bounds: &Bounds, to: Pid, act: &str) -> Result<(), String> {
    let own = Owner::new(program, bounds);
    if to.node() != 0 || bounds.permissions.has_exits() || own.may_end(to) {
        return Ok(());
    }
    let place = match &own.subtree {
        Some(subtree) if of(to).is_some_and(|other| other.program == own.program) => {
            format!("outside of the limits of `{}`", subtree.name())
        }
        _ => "of the host or of another program".to_owned(),
    };
    Err(format!("cannot {act} {to}, a process {place}: it needs --allow-exits"))
}

/// The owners of processes without an account.
#[derive(Default)]
struct Others {
    owners: HashMap<Pid, Owner>,
    /// The number of entries after which those of ended processes are removed.
    many: usize,
}

/// The least number of entries that are looked through for those of ended processes.
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
