//! The names that nodes use for messages between themselves, and that no process has.

use crate::wire::control::Target;

/// The name by which a node is asked for its status. All other names of nodes of this crate begin
/// with it.
pub(crate) const STATUS_NAME: &str = "$procession";

/// The name of a process that no node has. See [`pulse`](crate::pulse).
pub(crate) const PULSE: &str = "$procession_pulse";

/// The sender of the statements of what a node permits. No process has this name.
pub(crate) const GRANTS_NAME: &str = "$procession_grants";

/// Returns `true` for the process that no node has, by which nodes ask for a sign of life.
pub(crate) fn is_pulse(target: &Target) -> bool {
    is(target, PULSE)
}

/// Returns `true` for the sender of the statements of what a node permits.
pub(crate) fn is_grants(from: &Target) -> bool {
    is(from, GRANTS_NAME)
}

/// Returns `true` for a name of no process: the node itself answers, with separate permissions.
pub(crate) fn is_answered_by_node(target: &Target) -> bool {
    is_kernel(target) || is_status(target)
}

/// Returns `true` for the process that each BEAM node has, and that others ping.
pub(crate) fn is_kernel(target: &Target) -> bool {
    is(target, "net_kernel")
}

/// Returns `true` for the process that is asked for the status of this node.
pub(crate) fn is_status(target: &Target) -> bool {
    is(target, STATUS_NAME)
}

fn is(target: &Target, name: &str) -> bool {
    matches!(target, Target::Name(own) if own.as_str() == name)
}
