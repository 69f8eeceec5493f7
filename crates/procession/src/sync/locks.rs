//! Locks: a value behind the permits of a gate.
//!
//! ## Invariants
//! - `[exclusive]` the permits that a guard holds are all there are, or, for a guard that reads, one of them: while anybody writes nobody
//!   else has any.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use procession_sync::cell::UnsafeCell;

use super::Enter;
use super::batch_semaphore::Gate;
use crate::time::timeout;

/// Readers at once, more than there can be processes.
const READERS_MAX: usize = usize::MAX >> 3;

/// A value that one at a time may use.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::Mutex;
///
/// procession::run(async {
///     let sum = Arc::new(Mutex::new(0));
///     let adders: Vec<_> = (1..=10)
///         .map(|n| {
///             let sum = sum.clone();
///             procession::spawn(async move {
///                 let mut sum = sum.lock().await;
///                 procession::yield_now().await; // Others run, and wait for the lock.
///                 *sum += n;
///             })
///         })
///         .collect();
///     for adder in adders {
///         adder.await?;
///     }
///     assert_eq!(*sum.lock().await, 55);
///     Ok::<(), procession::Exit>(())
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
pub struct Mutex<T: ?Sized> {
    gate: Gate,
    value: UnsafeCell<T>,
}

// SAFETY: [exclusive] one at a time has the value, on whatever thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Unlocked.
    pub fn new(value: T) -> Self {
        Self { gate: Gate::new(1), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks it, and waits while another has it. Locking it twice waits for ever.
    ///
    /// # Cancellation
    /// Dropped before it is complete, it has not locked it; the next who waits comes in.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        Enter::new(&self.gate, 1).await;
        MutexGuard(self)
    }

    /// Locks it, if nobody has it or waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        crate::scheduler::budget::spend();
        self.gate.try_acquire(1).then(|| MutexGuard(self))
    }

    /// As [`lock`](Self::lock), for at most `patience`.
    ///
    /// # Errors
    /// [`Elapsed`](crate::Elapsed) if the time is over first.
    pub async fn lock_timeout(&self, patience: Duration) -> Result<MutexGuard<'_, T>, crate::Elapsed> {
        timeout(patience, self.lock()).await
    }

    /// The value: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] by `&mut`.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(..)")
    }
}

/// The right to a [`Mutex`]; dropping it unlocks.
#[must_use = "dropping the guard unlocks"]
pub struct MutexGuard<'a, T: ?Sized>(&'a Mutex<T>);

// SAFETY: a shared guard gives `&T`.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this holds the permit.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] this holds the permit.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.gate.release(1).wake();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A value that many may read at once, or one may write. First come, first served: who wants to read waits behind who wants to write.
///
/// ```
/// procession::run(async {
///     let names = procession::sync::RwLock::new(vec!["a"]);
///     let (one, other) = (names.read().await, names.read().await);
///     assert!(names.try_write().is_none());
///     drop((one, other));
///     names.write().await.push("b");
///     assert_eq!(names.read().await.len(), 2);
/// });
/// ```
pub struct RwLock<T: ?Sized> {
    gate: Gate,
    value: UnsafeCell<T>,
}

// SAFETY: [exclusive] the value is where who writes it is.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: [exclusive] one writes, or many read on their threads.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Unlocked.
    pub fn new(value: T) -> Self {
        Self { gate: Gate::new(READERS_MAX), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it for reading; waits while somebody writes, or waits to.
    ///
    /// # Cancellation
    /// As for [`Mutex::lock`].
    pub async fn read(&self) -> RwLockReadGuard<'_, T> {
        Enter::new(&self.gate, 1).await;
        RwLockReadGuard(self)
    }

    /// Locks it for writing; waits while anybody else has it.
    ///
    /// # Cancellation
    /// As for [`Mutex::lock`].
    pub async fn write(&self) -> RwLockWriteGuard<'_, T> {
        Enter::new(&self.gate, READERS_MAX).await;
        RwLockWriteGuard(self)
    }

    /// Locks it for reading, if that is possible at once.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        crate::scheduler::budget::spend();
        self.gate.try_acquire(1).then(|| RwLockReadGuard(self))
    }

    /// Locks it for writing, if that is possible at once.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        crate::scheduler::budget::spend();
        self.gate.try_acquire(READERS_MAX).then(|| RwLockWriteGuard(self))
    }

    /// The value: nobody else has it.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] by `&mut`.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock(..)")
    }
}

/// The right to read an [`RwLock`]; dropping it gives it up.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockReadGuard<'a, T: ?Sized>(&'a RwLock<T>);

/// The right to write an [`RwLock`]; dropping it gives it up.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockWriteGuard<'a, T: ?Sized>(&'a RwLock<T>);

// SAFETY: a shared guard gives `&T`.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this holds a permit, so nobody writes.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this holds all permits.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] this holds all permits.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.0.gate.release(1).wake();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.0.gate.release(READERS_MAX).wake();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
