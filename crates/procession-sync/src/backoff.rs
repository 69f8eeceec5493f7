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
/// twice as long each time the mutex is still locked. During that time, the thread that holds the
/// lock can take it several more times from its own cache. [`Mutex::lock`] watches the lock
/// instead. Two threads then take turns, and each turn moves the lock and its data from one
/// processor to another.
///
/// If the mutex is still locked after five rounds, the thread that holds it may have been
/// interrupted. The caller then waits as in `Mutex::lock`.
#[inline]
pub fn lock_with_backoff<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.try_lock().unwrap_or_else(|| lock_held(mutex))
}

#[cold]
fn lock_held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut pause = FIRST;
    while pause <= LAST {
        for _ in 0..pause {
            hint::spin_loop();
        }
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        pause *= 2;
    }
    mutex.lock()
}
