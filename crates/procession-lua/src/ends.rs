//! The processes that a guest may end.
//!
//! A guest ends another process by an exit, by a cancel, by its own failure if the two are linked,
//! and by a request to the supervisor of the other process. It may do so only to processes of its
//! own program: to its guests, and to the supervisors that they start. If the guest has
//! [limits](crate::limits), it may do so only to processes that the same limits count. For all
//! others it needs a permission. Other nodes decide for themselves.
//!
//! A supervisor that starts has the owner of the guest that starts it.

use procession::supervisor::SupervisorRef;
use procession::{Pid, observe};

use crate::account::Account;
use crate::owner::{Owner, entered, has_ended};
use crate::permissions::Bounds;
use crate::program::Program;

/// Returns the owner of a guest, or of a supervisor that a guest has started.
fn of(pid: Pid) -> Option<Owner> {
    // The account first: when a guest loses it, its owner is in the table.
    let account = Account::of(pid).map(|account| account.owner().clone());
    account.or_else(|| entered(pid))
}

/// Returns the owner of a process of a guest, also while that starts.
fn found(mut pid: Pid) -> Option<Owner> {
    loop {
        if let Some(owner) = of(pid) {
            return Some(owner);
        }
        let detail = observe::detail(pid)?;
        match detail.relations.as_ref()?.supervisor {
            // Supervisors start guests that have no account yet, and other supervisors.
            Some(supervisor) => pid = supervisor,
            // A guest enters a supervisor only once all its children have started. They run before.
            None if SupervisorRef::of(pid).is_some() => return of(detail.parent?),
            None => return None,
        }
    }
}

/// Returns `true` if a process of the owner `own` may end another process without a permission, or
/// if the other process has already ended.
fn may_end(own: &Owner, to: Pid) -> bool {
    found(to).is_some_and(|owner| own.includes(&owner)) || has_ended(to)
}

/// Checks that a guest may end a process. `act` is what it wants to do with that.
///
/// # Errors
/// If the guest may not, returns the refusal.
pub(crate) fn check(program: &Program, bounds: &Bounds, to: Pid, act: &str) -> Result<(), String> {
    let own = program.owner(bounds);
    if to.node() != 0 || bounds.permissions.has_exits() || may_end(&own, to) {
        return Ok(());
    }
    let place = match &own.limits.0 {
        Some(subtree) if of(to).is_some_and(|other| other.program == own.program) => {
            format!("outside of the limits of `{}`", subtree.name())
        }
        _ => "of the host or of another program".to_owned(),
    };
    Err(format!("cannot {act} {to}, a process {place}: it needs --allow-exits"))
}
