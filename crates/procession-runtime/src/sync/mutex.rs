//! A mutex: a value behind a semaphore with one permit.
//!
//! ## Invariants
//! - `[exclusive]` A guard holds the only permit of its mutex. While it exists, no other guard
//!   does.

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

/// A value that one process at a time may use.
///
/// The guard may be held across an `.await`. If the value is plain data and every critical section
/// is short, the [`Mutex`](std::sync::Mutex) of std is cheaper. Waiters get the lock in the order
/// in which they began to wait. A panic does not poison the lock.
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
        Self { semaphore: BatchSemaphore::new(1), value: UnsafeCell::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, and waits while it is locked.
    ///
    /// A process that locks a mutex twice waits forever, because it waits for itself.
    ///
    /// # Cancellation
    /// If the future is dropped before it completes, it has not locked the mutex, and the next
    /// waiter gets its turn.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::on_lock(&self.semaphore, 1, current::as_holder()).await;
            MutexGuard(self)
        })
    }

    /// Locks the mutex without waiting.
    ///
    /// # Errors
    /// [`AcquireError::WouldBlock`]: the mutex is locked, or other processes wait for it.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.semaphore, 1, current::as_holder()).map(|()| MutexGuard(self))
    }

    /// Like [`lock`](Self::lock), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    #[track_caller]
    pub fn lock_timeout(
        &self,
        timeout: Duration,
    ) -> impl Future<Output = Result<MutexGuard<'_, T>, Elapsed>> {
        crate::scheduler::placed::placed(async move { time::timeout(timeout, self.lock()).await })
    }

    /// Locks the mutex like [`lock`](Self::lock), and returns a guard that keeps the mutex alive.
    /// It can be moved into another process.
    ///
    /// # Cancellation
    /// See [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> impl Future<Output = OwnedMutexGuard<T>> {
        crate::scheduler::placed::placed(async move {
            Acquire::on_lock(&self.semaphore, 1, current::as_mover()).await;
            OwnedMutexGuard(self)
        })
    }

    /// Locks the mutex like [`try_lock`](Self::try_lock), and returns a guard that keeps the mutex
    /// alive.
    ///
    /// # Errors
    /// Like [`try_lock`](Self::try_lock).
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, AcquireError> {
        crate::scheduler::budget::spend();
        try_acquire(&self.semaphore, 1, current::as_mover()).map(|()| OwnedMutexGuard(self))
    }

    /// Like [`lock_owned`](Self::lock_owned), but waits for at most `timeout`.
    ///
    /// # Errors
    /// Returns [`Elapsed`](crate::time::Elapsed) if the timeout elapses first.
    #[track_caller]
    pub fn lock_owned_timeout(
        self: Arc<Self>,
        timeout: Duration,
    ) -> impl Future<Output = Result<OwnedMutexGuard<T>, Elapsed>> {
        crate::scheduler::placed::placed(
            async move { time::timeout(timeout, self.lock_owned()).await },
        )
    }

    /// Returns the value without locking, since `&mut` proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] `&mut self` proves that no guard exists.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
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

// SAFETY: a shared guard provides only `&T`.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn mutex(&self) -> &'a Mutex<T> {
        self.0
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

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

shown!(MutexGuard<'_, T>, OwnedMutexGuard<T>);

/// Access to the value of a [`Mutex`], which the guard keeps alive. Made by [`Mutex::lock_owned`].
/// Dropping the guard unlocks the mutex.
///
/// ```
/// use std::sync::Arc;
/// use procession::sync::Mutex;
///
/// procession::run(async {
///     let log = Arc::new(Mutex::new(String::new()));
///     let mut held = log.clone().lock_owned().await;
///     // The lock moves into the process.
///     let writes = procession::spawn(async move { held.push_str("written") });
///     assert_eq!(*log.lock().await, "written");
///     writes.await
/// })?;
/// # Ok::<(), procession::Exit>(())
/// ```
#[must_use = "dropping the guard unlocks"]
pub struct OwnedMutexGuard<T: ?Sized>(Arc<Mutex<T>>);

// SAFETY: a shared guard provides only `&T`.
unsafe impl<T: ?Sized + Sync> Sync for OwnedMutexGuard<T> {}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: [exclusive] this guard holds the only permit.
        self.0.value.with(|value| unsafe { &*value })
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [exclusive] this guard holds the only permit.
        self.0.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    fn drop(&mut self) {
        self.0.semaphore.release(1).wake();
    }
}
