//! Locks without poison.

use std::fmt;
use std::sync::{PoisonError, TryLockError};
#[cfg(not(procession_loom))]
use std::time::Duration;

use home::MutexGuard;
#[cfg(procession_loom)]
use loom::sync as home;
#[cfg(not(procession_loom))]
use std::sync as home;

/// A mutex that is not poisoned by a panic of the thread that holds it.
///
/// Nothing that can panic runs under a lock of this project, because code of users runs only after
/// the lock is released. So the state behind a lock is never left half changed, and poison would
/// carry no information.
#[derive(Default)]
pub struct Mutex<T: ?Sized>(home::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[cfg(not(procession_loom))]
    pub const fn new(value: T) -> Self {
        Self(home::Mutex::new(value))
    }

    /// Creates an unlocked mutex.
    #[cfg(procession_loom)]
    pub fn new(value: T) -> Self {
        Self(home::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, and blocks the thread while another holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the mutex unless it is locked.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns a reference to the value without locking.
    #[cfg(not(procession_loom))]
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(home::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    #[cfg(not(procession_loom))]
    pub const fn new() -> Self {
        Self(home::Condvar::new())
    }

    /// Creates a condition variable without waiters.
    #[cfg(procession_loom)]
    pub fn new() -> Self {
        Self(home::Condvar::new())
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. It may return
    /// without a notification.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Like [`wait`](Self::wait), but waits for at most `timeout`. Returns `true` if the timeout is
    /// over.
    #[cfg(not(procession_loom))]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) =
            self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Like [`wait_timeout`](Self::wait_timeout), but continues to wait while `condition` holds.
    #[cfg(not(procession_loom))]
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = self
            .0
            .wait_timeout_while(guard, timeout, condition)
            .unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }

    /// Wakes one waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
