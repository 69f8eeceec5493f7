use std::sync::{LockResult, TryLockError};

use crate::{Mutex, MutexGuard, hint};

/// The number of calls of `spin_loop` in the first round of the back-off.
///
/// Rejected: any other value from 16 to 128 makes no difference for the global queue. With 64, the
/// threads of a pool with jobs of a microsecond are 5 % slower.
const FIRST: u32 = 16;
/// The number of calls of `spin_loop` in the last round. They take some microseconds.
const LAST: u32 = 256;

/// Locks a mutex that several threads want again and again, for short critical sections.
///
/// A thread that finds the mutex locked backs off: it does not look at the lock for a while, and
/// twice as long each time the mutex is still locked. Meanwhile the thread that holds the lock can
/// take it several more times from its own cache. [`Mutex::lock`] watches the lock instead. Two
/// threads then take turns, and each turn moves the lock and its data from one processor to
/// another.
///
/// If the mutex is still locked after five rounds, the thread that holds it may have been
/// interrupted. The caller then waits as in `Mutex::lock`.
///
/// # Errors
/// Returns an error if the lock is poisoned, like [`Mutex::lock`].
#[inline]
pub fn lock_with_backoff<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Err(poisoned),
        Err(TryLockError::WouldBlock) => lock_held(mutex),
    }
}

#[cold]
fn lock_held<T>(mutex: &Mutex<T>) -> LockResult<MutexGuard<'_, T>> {
    let mut pause = FIRST;
    while pause <= LAST {
        for _ in 0..pause {
            hint::spin_loop();
        }
        match mutex.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Err(poisoned),
            Err(TryLockError::WouldBlock) => pause *= 2,
        }
    }
    mutex.lock()
}
