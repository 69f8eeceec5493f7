//! Coroutines that are left behind.

use std::panic::Location;

use crate::Pid;

/// A coroutine with a leaked stack, which could not be unwound. Its process has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StuckCoroutine {
    /// The PID that it had.
    pub pid: Pid,
    /// Its label, if it had one.
    pub label: Option<Box<str>>,
    /// The place where it was spawned.
    pub location: &'static Location<'static>,
}
