//! Locks and condition variables.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync as home;
use std::time::Duration;

use super::{Life, has_points, machine, point};
use crate::mutex as plain;

/// A mutex without poison. A thread of a simulation that waits for the mutex lets other threads
/// run.
#[derive(Default)]
#[repr(C)]
pub struct Mutex<T: ?Sized> {
    life: Life,
    inner: plain::Mutex<T>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { life: Life, inner: plain::Mutex::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn address(&self) -> usize {
        self.life.address()
    }

    /// Locks the mutex, and blocks the thread while another holds it.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        point();
        let is_counted = has_points() && machine(|machine| machine.lock(self.address())).is_some();
        // If the mutex was counted, only a thread outside of the simulation can hold it.
        MutexGuard { mutex: self, is_counted, guard: Some(self.inner.lock()) }
    }

    /// Locks the mutex unless it is locked.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        point();
        let counted = match has_points() {
            true => machine(|machine| machine.try_lock(self.address())),
            false => None,
        };
        if counted == Some(false) {
            return None;
        }
        match self.inner.try_lock() {
            Some(guard) => {
                Some(MutexGuard { mutex: self, is_counted: counted.is_some(), guard: Some(guard) })
            }
            None => {
                if counted.is_some() {
                    machine(|machine| machine.unlock(self.address()));
                }
                None
            }
        }
    }

    /// Returns a reference to the value without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Access to the value of a locked [`Mutex`], which is unlocked when this is dropped.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Set if the machine counts this guard.
    is_counted: bool,
    guard: Option<home::MutexGuard<'a, T>>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Unlocks the mutex. The caller reports the unlock to the machine.
    fn open(&mut self) -> &'a Mutex<T> {
        drop(self.guard.take());
        self.is_counted = false;
        self.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_deref().expect("it is there until the drop")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("it is there until the drop")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[track_caller]
    fn drop(&mut self) {
        if self.guard.is_none() {
            return;
        }
        point();
        drop(self.guard.take());
        if self.is_counted {
            machine(|machine| machine.unlock(self.mutex.address()));
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(home::Condvar);

impl Condvar {
    /// Creates a condition variable without waiters.
    pub const fn new() -> Self {
        Self(home::Condvar::new())
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again. It may return
    /// without a notification.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_for(guard, None).0
    }

    /// Like [`wait`](Self::wait), but waits for at most `timeout`. Returns `true` if the timeout is
    /// over.
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        self.wait_for(guard, Some(timeout))
    }

    #[track_caller]
    fn wait_for<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, T>, bool) {
        if guard.is_counted && has_points() {
            point();
            let mutex = guard.open();
            let waited = machine(|machine| machine.wait(self.address(), mutex.address(), timeout));
            return (mutex.lock(), waited.unwrap_or(false));
        }
        let (mutex, is_counted) = (guard.mutex, guard.is_counted);
        let open = guard.guard.take().expect("it is there until the drop");
        let (again, is_over) = match timeout {
            None => (self.0.wait(open).unwrap_or_else(home::PoisonError::into_inner), false),
            Some(timeout) => {
                let waited = self.0.wait_timeout(open, timeout);
                let (again, result) = waited.unwrap_or_else(home::PoisonError::into_inner);
                (again, result.timed_out())
            }
        };
        (MutexGuard { mutex, is_counted, guard: Some(again) }, is_over)
    }

    /// Like [`wait_timeout`](Self::wait_timeout), but continues to wait while `condition` holds.
    #[track_caller]
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let deadline = now().saturating_add(timeout);
        loop {
            if !condition(&mut guard) {
                return (guard, false);
            }
            let left = deadline.saturating_sub(now());
            if left.is_zero() {
                return (guard, true);
            }
            (guard, _) = self.wait_timeout(guard, left);
        }
    }

    /// Wakes one waiter.
    #[track_caller]
    pub fn notify_one(&self) {
        self.notify(false);
        self.0.notify_one();
    }

    /// Wakes all waiters.
    #[track_caller]
    pub fn notify_all(&self) {
        self.notify(true);
        self.0.notify_all();
    }

    #[track_caller]
    fn notify(&self, all: bool) {
        point();
        machine(|machine| machine.notify(self.address(), all));
    }
}

/// Returns the clock of the calling thread.
fn now() -> Duration {
    #[expect(clippy::disallowed_methods, reason = "a wait outside of a simulation is in real time")]
    fn real() -> Duration {
        static BEGAN: home::LazyLock<std::time::Instant> =
            home::LazyLock::new(std::time::Instant::now);
        BEGAN.elapsed()
    }
    machine(|machine| machine.now()).unwrap_or_else(real)
}
