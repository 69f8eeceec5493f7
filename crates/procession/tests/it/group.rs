//! Sets, scopes, process groups and registries.

use std::future::pending;

use procession::{JoinHandle, Pid, spawn};

mod join_set;
mod process_groups;
mod registry;
mod scope;

/// Starts a process that waits until it is cancelled.
fn idle() -> (Pid, JoinHandle<()>) {
    let handle = spawn(pending::<()>());
    (handle.pid(), handle)
}
