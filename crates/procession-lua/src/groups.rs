//! Groups of guests.
//!
//! The guests of a scheduler share their groups, as they share their names.

use std::sync::LazyLock;

use procession::Pid;
use procession::process::Groups;

use crate::arguments::own_pid;
use crate::value::Value;

/// The number of groups that a process may be in.
const GROUPS_MAX: usize = 1024;
/// The bytes of the name of a group. The host keeps the names of all groups of a process, which are
/// at most 255 KiB.
pub(crate) const NAME_MAX: usize = 255;

fn groups() -> &'static Groups {
    static GROUPS: LazyLock<Groups> = LazyLock::new(Groups::new);
    &GROUPS
}

/// Returns the key of a group of the scheduler of the process that calls.
fn key(name: &str) -> Result<String, String> {
    Ok(format!("{} {name}", own_pid()?.scheduler()))
}

/// Adds a process to a group. Returns `false` if it was a member before.
pub(crate) fn join(name: &str, pid: Pid) -> Result<bool, String> {
    let (key, joined) = (key(name)?, groups().groups_of(pid));
    if joined.iter().any(|known| **known == *key) {
        return Ok(false);
    }
    if joined.len() >= GROUPS_MAX {
        return Err(format!("a process may be in {GROUPS_MAX} groups"));
    }
    match groups().join(key, pid) {
        Ok(()) => Ok(true),
        Err(_) => {
            let name = name.escape_debug();
            Err(format!("cannot add {pid} to the group `{name}`: there is no such process"))
        }
    }
}

/// Removes a process from a group. Returns `true` if it was a member.
pub(crate) fn leave(name: &str, pid: Pid) -> Result<bool, String> {
    Ok(groups().leave(&key(name)?, pid))
}

/// Returns the members of a group, in the order in which they joined.
pub(crate) fn members(name: &str) -> Result<Value, String> {
    Ok(Value::list(groups().members(&key(name)?)))
}
