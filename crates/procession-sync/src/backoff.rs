use std::sync::{LockResult, TryLockError};

use crate::{Mutex, MutexGuard, hint};

/// How long a thread looks away from a lock that it found held: so many `spin_loop`s at first, twice as many each time it is still held. The longest round is
/// some microseconds. From 16 to 128 at first are level for the global queue; with 64, threads of a pool whose jobs take a microsecond lose 5 %.
const FIRST: u32 = 16;
const LAST: u32 = 256;

/// Locks a mutex whose critical sections are short, and which several threads want again and again.
///
/// A thread that finds it held does not look at it for a while, and the one that holds it can take it some more times from its own cache. With [`Mutex::lock`] alone,
/// which watches a lock that is held, two threads take turns, and each turn moves the lock and what it guards from one processor to another. If looking away five times
/// did not help, it waits as `Mutex::lock` does: who holds it may have been interrupted.
///
/// # Errors
/// As of [`Mutex::lock`]: the lock is poisoned.
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
