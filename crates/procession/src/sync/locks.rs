//! Locks: a value behind the permits of a semaphore.
//!
//! ## Invariants
//! - `[exclusive]` A guard that can write holds all permits of its lock. A guard that only reads
//!   holds one of them. While a writing guard exists, no other guard does.

use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use procession_sync::cell::UnsafeCell;

use super::Acquire;
use super::batch_semaphore::BatchSemaphore;
use crate::process::target::LastTarget;
use crate::scheduler::current;
use crate::time;

/// Maximum number of readers at a time, which is more than there can be processes.
const READERS_MAX: usize = usize::MAX >> 3;

/// A value that one process at a time may use.
///
/// The guard may be held across an `.await`. If the value is plain data and every critical section
/// is short, the [`Mutex`](std::sync::Mutex) of std is cheaper. Waiters get the lock in the order
/// in which they came. A panic does not poison the lock.
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
///                 // Other processes run here, and wait for the lock.
///                 procession::yield_now().await;
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
    semaphore: BatchSemaphore,
    /// The last process that came to the lock, for those that come behind it.
    last: LastTarget,
    value: UnsafeCell<T>,
}

// SAFETY: [exclusive] one guard at a time reaches the value, on whichever thread, and `T` is
// `Send`.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub fn new(value: T) -> Self {
        Self {
            semaphore: BatchSemaphore::new(1),
            last: LastTarget::default(),
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, and waits while it is locked.
    ///
    /// A process that locks a mutex twice waits forever.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has not locked the mutex, and the next
    /// waiter gets its turn.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        crate::scheduler::placed::placed(async move {
            let ahead = self.last.replace(current::as_target());
            Acquire::new(&self.semaphore, 1).behind(ahead).await;
            MutexGuard(self)
        })
    }

    /// Locks the mutex without waiting. Returns `None` if it is locked or others wait for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        crate::scheduler::budget::spend();
        self.semaphore.try_acquire(1).then(|| {
            self.last.replace(current::as_target());
            MutexGuard(self)
        })
    }

    /// Like [`lock`](Self::lock), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    #[track_caller]
    pub fn lock_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<MutexGuard<'_, T>, crate::time::Elapsed>> {
        crate::scheduler::placed::placed(async move { time::timeout(timeout, self.lock()).await })
    }

    /// Returns the value without locking, since `&mut` proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] `&mut self` proves that no guard exists.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex(..)")
    }
}

/// Access to the value of a [`Mutex`]. Dropping the guard unlocks the mutex.
#[must_use = "dropping the guard unlocks"]
pub struct MutexGuard<'a, T: ?Sized>(&'a Mutex<T>);

// SAFETY: a shared guard gives only `&T`.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type WaitTarget = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds the only permit.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] this guard holds the only permit.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.0.semaphore.release(1).wake();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A value that many processes may read at the same time, or one process may write.
///
/// Callers get the lock in the order in which they came. A reader therefore waits behind a writer
/// that waits already, and writers do not starve.
///
/// ```
/// use procession::sync::RwLock;
///
/// procession::run(async {
///     let names = RwLock::new(vec!["a"]);
///     let (first, second) = (names.read().await, names.read().await);
///     assert_eq!(first.len() + second.len(), 2);
///     assert!(names.try_write().is_none());
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
    /// A process that already holds a read guard must not wait for another one. If a writer waits
    /// between the two, all of them wait forever.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has not locked, and the next waiter gets
    /// its turn.
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = RwLockReadGuard<'_, T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::new(&self.semaphore, 1).await;
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
            Acquire::new(&self.semaphore, READERS_MAX).await;
            RwLockWriteGuard(self)
        })
    }

    /// Locks for reading without waiting. Returns `None` if a writer holds the lock or others wait
    /// for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        crate::scheduler::budget::spend();
        self.semaphore.try_acquire(1).then(|| RwLockReadGuard(self))
    }

    /// Locks for writing without waiting. Returns `None` if there is any other guard or others wait
    /// for the lock.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        crate::scheduler::budget::spend();
        self.semaphore.try_acquire(READERS_MAX).then(|| RwLockWriteGuard(self))
    }

    /// Returns the value without locking, since `&mut` proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] `&mut self` proves that no guard exists.
        self.value.with_mut(|value| unsafe { &mut *value })
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

// SAFETY: a shared guard gives only `&T`.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type WaitTarget = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds a permit, so no guard writes.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type WaitTarget = T;

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
