//! A reader-writer lock without poison.

use std::fmt;
use std::sync::PoisonError;

#[cfg(procession_loom)]
use loom::sync as home;
#[cfg(not(procession_loom))]
use std::sync as home;

use home::{RwLockReadGuard, RwLockWriteGuard};

/// A reader-writer lock that is not poisoned by a panic of the thread that holds it.
///
/// Unlike a [`Mutex`](crate::Mutex) of this crate, it guards a value of the user, in which user
/// code may panic. The value is then left as that code left it.
#[derive(Default)]
pub struct RwLock<T>(home::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> Self {
        Self(home::RwLock::new(value))
    }

    /// Locks for reading, and blocks the thread while another thread writes.
    #[inline]
    #[cfg_attr(procession_sim, track_caller)]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        #[cfg(procession_sim)]
        crate::simulated::wait_until(|| !is_blocked(self.0.try_read()));
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks for writing, and blocks the thread while there is any other guard.
    #[inline]
    #[cfg_attr(procession_sim, track_caller)]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        #[cfg(procession_sim)]
        crate::simulated::wait_until(|| !is_blocked(self.0.try_write()));
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `true` if another guard is in the way.
#[cfg(procession_sim)]
fn is_blocked<G>(attempt: std::sync::TryLockResult<G>) -> bool {
    matches!(attempt, Err(std::sync::TryLockError::WouldBlock))
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
