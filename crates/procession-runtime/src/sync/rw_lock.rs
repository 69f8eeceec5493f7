//! A reader-writer lock: a value behind the permits of a semaphore.
//!
//! ## Invariants
//! - `[exclusive]` A guard that can write holds all permits of its lock, and a guard that only
//!   reads holds one permit. While a writing guard exists, no other guard does.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use procession_protocols::sync::batch_semaphore::BatchSemaphore;
use procession_sync::cell::UnsafeCell;

use crate::process::served::WakeServed;
use crate::scheduler::current;
use crate::sync::error::AcquireError;
use crate::sync::semaphore::{Acquire, try_acquire};
use crate::time::{self, Elapsed};

/// Maximum number of readers at a time, which is more than there can be processes.
const READERS_MAX: usize = usize::MAX >> 3;

/// A value that many processes may read at the same time, or one process may write.
///
/// Callers get the lock in the order in which they asked for it. A reader therefore waits behind a
/// writer that waits already, so writers do not starve.
///
/// ```
/// use procession::sync::RwLock;
///
/// procession::run(async {
///     let names = RwLock::new(vec!["a"]);
///     let (first, second) = (names.read().await, names.read().await);
///     assert_eq!(first.len() + second.len(), 2);
///     assert!(names.try_write().is_err());
///     drop((first, second));
///     names.write().await.push("b");
///     assert_eq!(names.read().await.len(), 2);
/// });
/// ```
pub struct RwLock<T: ?Sized> {
    semaphore: BatchSemaphore,
    value: UnsafeCell<T>,
}

// SAFETY: [exclusive] the value is owned by the lock, and `T` is `Send`.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: [exclusive] one guard writes, or several guards read on their threads; `T` is `Send +
// Sync`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub fn new(value: T) -> Self {
        Self { semaphore: BatchSemaphore::new(READERS_MAX), value: UnsafeCell::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading, and waits while a writer holds the lock or waits for it.
    ///
    /// A process that already holds a read guard must not wait for another read guard. If a writer
    /// waits between the two, the process and the writer wait forever. If nobody else reads, this
    /// is [reported](crate::Builder::on_wait_cycle).
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has not locked, and the next waiter gets
    /// its turn.
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = RwLockReadGuard<'_, T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::for_reading(&self.semaphore, current::as_holder()).await;
            RwLockReadGuard(self)
        })
    }

    /// Locks for writing, and waits while there is any other guard.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has not locked, and the next waiter gets
    /// its turn.
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = RwLockWriteGuard<'_, T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::on_lock(&self.semaphore, READERS_MAX, current::as_holder()).await;
            RwLockWriteGuard(self)
        })
    }

    /// Locks for reading without waiting.
    ///
    /// # Errors
    /// [`AcquireError::WouldBlock`]: a writer holds the lock, or others wait for it.
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.semaphore, 1, current::as_holder()).map(|()| RwLockReadGuard(self))
    }

    /// Locks for writing without waiting.
    ///
    /// # Errors
    /// [`AcquireError::WouldBlock`]: there is any other guard, or others wait for the lock.
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.semaphore, READERS_MAX, current::as_holder())
            .map(|()| RwLockWriteGuard(self))
    }

    /// Like [`read`](Self::read), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    #[track_caller]
    pub fn read_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<RwLockReadGuard<'_, T>, Elapsed>> {
        crate::scheduler::placed::placed(async move { time::timeout(timeout, self.read()).await })
    }

    /// Like [`write`](Self::write), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    #[track_caller]
    pub fn write_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<RwLockWriteGuard<'_, T>, Elapsed>> {
        crate::scheduler::placed::placed(async move { time::timeout(timeout, self.write()).await })
    }

    /// Locks for reading like [`read`](Self::read), and returns a guard that keeps the lock alive.
    ///
    /// # Cancellation
    /// See [`read`](Self::read).
    #[track_caller]
    pub fn read_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockReadGuard<T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::for_reading(&self.semaphore, current::as_mover()).await;
            OwnedRwLockReadGuard(self)
        })
    }

    /// Locks for writing like [`write`](Self::write), and returns a guard that keeps the lock
    /// alive.
    ///
    /// # Cancellation
    /// See [`write`](Self::write).
    #[track_caller]
    pub fn write_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockWriteGuard<T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::on_lock(&self.semaphore, READERS_MAX, current::as_mover()).await;
            OwnedRwLockWriteGuard { lock: self, permits: READERS_MAX }
        })
    }

    /// Like [`read_owned`](Self::read_owned), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    ///
    /// # Cancellation
    /// See [`read`](Self::read).
    #[track_caller]
    pub fn read_owned_timeout(
        self: Arc<Self>,
        timeout: Duration,
    ) -> impl Future<Output = Result<OwnedRwLockReadGuard<T>, Elapsed>> {
        crate::scheduler::placed::placed(
            async move { time::timeout(timeout, self.read_owned()).await },
        )
    }

    /// Like [`write_owned`](Self::write_owned), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    ///
    /// # Cancellation
    /// See [`write`](Self::write).
    #[track_caller]
    pub fn write_owned_timeout(
        self: Arc<Self>,
        timeout: Duration,
    ) -> impl Future<Output = Result<OwnedRwLockWriteGuard<T>, Elapsed>> {
        crate::scheduler::placed::placed(
            async move { time::timeout(timeout, self.write_owned()).await },
        )
    }

    /// Locks for reading like [`try_read`](Self::try_read), and returns a guard that keeps the lock
    /// alive.
    ///
    /// # Errors
    /// Like [`try_read`](Self::try_read).
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.semaphore, 1, current::as_mover()).map(|()| OwnedRwLockReadGuard(self))
    }

    /// Locks for writing like [`try_write`](Self::try_write), and returns a guard that keeps the
    /// lock alive.
    ///
    /// # Errors
    /// Like [`try_write`](Self::try_write).
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.semaphore, READERS_MAX, current::as_mover())
            .map(|()| OwnedRwLockWriteGuard { lock: self, permits: READERS_MAX })
    }

    /// Returns the value without locking, since `&mut` proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] `&mut self` proves that no guard exists.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RwLock(..)")
    }
}

/// Read access to the value of an [`RwLock`]. Dropping the guard unlocks.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockReadGuard<'a, T: ?Sized>(&'a RwLock<T>);

/// Write access to the value of an [`RwLock`]. Dropping the guard unlocks.
#[must_use = "dropping the guard unlocks"]
pub struct RwLockWriteGuard<'a, T: ?Sized>(&'a RwLock<T>);

// SAFETY: a shared guard provides only `&T`.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds a permit, so no guard writes.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds all permits.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] this guard holds all permits.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns write access into read access, without a moment in which the lock is free, so that no
    /// writer can take it in between. Readers that wait are let in, up to the first writer that
    /// waits.
    pub fn downgrade(self) -> RwLockReadGuard<'a, T> {
        let lock = self.0;
        // The reader takes over one of the permits of this guard.
        std::mem::forget(self);
        let guard = RwLockReadGuard(lock);
        lock.semaphore.release(READERS_MAX - 1).wake();
        guard
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.0.semaphore.release(1).wake();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.0.semaphore.release(READERS_MAX).wake();
    }
}

shown! {
    RwLockReadGuard<'_, T>,
    RwLockWriteGuard<'_, T>,
    OwnedRwLockReadGuard<T>,
    OwnedRwLockWriteGuard<T>,
}

/// Read access to the value of an [`RwLock`], which the guard keeps alive. Made by
/// [`RwLock::read_owned`]. Dropping the guard unlocks.
#[must_use = "dropping the guard unlocks"]
pub struct OwnedRwLockReadGuard<T: ?Sized>(Arc<RwLock<T>>);

/// Write access to the value of an [`RwLock`], which the guard keeps alive. Made by
/// [`RwLock::write_owned`]. Dropping the guard unlocks.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::RwLock;
///
/// procession::run(async {
///     let names = Arc::new(RwLock::new(vec!["a"]));
///     let mut writes = names.clone().write_owned().await;
///     writes.push("b");
///     let reads = writes.downgrade();
///     assert_eq!((reads.len(), names.read().await.len()), (2, 2));
///     assert!(names.try_write().is_err());
/// });
/// ```
#[must_use = "dropping the guard unlocks"]
pub struct OwnedRwLockWriteGuard<T: ?Sized> {
    lock: Arc<RwLock<T>>,
    /// The permits that the drop releases: all permits, or all but one after a downgrade.
    permits: usize,
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    /// Turns write access into read access; see [`RwLockWriteGuard::downgrade`].
    pub fn downgrade(mut self) -> OwnedRwLockReadGuard<T> {
        self.permits = READERS_MAX - 1;
        OwnedRwLockReadGuard(Arc::clone(&self.lock))
    }
}

impl<T: ?Sized> Deref for OwnedRwLockReadGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds a permit, so no guard writes.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> Deref for OwnedRwLockWriteGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds all permits.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for OwnedRwLockWriteGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] this guard holds all permits.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for OwnedRwLockReadGuard<T> {
    fn drop(&mut self) {
        self.0.semaphore.release(1).wake();
    }
}

impl<T: ?Sized> Drop for OwnedRwLockWriteGuard<T> {
    fn drop(&mut self) {
        self.lock.semaphore.release(self.permits).wake();
    }
}
