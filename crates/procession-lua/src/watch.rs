//! Ends long work in Rust once its process is terminated.
//!
//! Lua calls the hook of a process only between its own instructions. Work that takes longer for
//! more data, such as a copy of a value, counts what it has done and checks from time to time
//! whether it still has a purpose.

use std::fmt;

use procession::machine::is_terminated;

/// The work between two checks. It takes about 50 us, and some milliseconds in a build without
/// optimizations.
const INTERVAL: usize = 1 << 16;
/// The work of a value in addition to the bytes of a string. One byte is one unit.
pub(crate) const VALUE_WORK: usize = 64;

/// Counts work on behalf of the current process.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    /// The work that is left until the next check.
    left: usize,
    is_over: fn() -> bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { left: INTERVAL, is_over: is_terminated }
    }

    /// Creates a watch that ends the work at its first check.
    #[cfg(test)]
    pub(crate) fn over() -> Self {
        Self { left: INTERVAL, is_over: || true }
    }

    /// Counts work.
    ///
    /// # Errors
    /// If the process is terminated, returns an error, at most one interval late.
    pub(crate) fn count(&mut self, work: usize) -> Result<(), Terminated> {
        match self.left.checked_sub(work) {
            Some(left) => self.left = left,
            None if (self.is_over)() => return Err(Terminated),
            None => self.left = INTERVAL,
        }
        Ok(())
    }
}

/// The error of work for a process that is terminated. The process ends before its program sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Terminated;

impl fmt::Display for Terminated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process is terminated")
    }
}

impl std::error::Error for Terminated {}

impl From<Terminated> for String {
    fn from(terminated: Terminated) -> Self {
        terminated.to_string()
    }
}
