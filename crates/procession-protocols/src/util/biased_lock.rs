//! A lock that is released with a plain store.
//!
//! # Lock protocol
//!
//! ## Problem
//! Around a critical section of some ten instructions, a lock's two read-modify-writes are most of
//! the cost. The second one only finds out whether a thread waits, which is rarely the case. If a
//! plain store releases the lock instead, a thread that has just begun to wait may not be notified,
//! and it waits forever.
//!
//! ## States
//! `held`; `waiting`, which is set if a thread waits or is about to; and a *bucket*, a mutex and a
//! condition variable, where threads wait. Few threads ever do, so locks share buckets.
//!
//! ## Steps
//! - `Lock`: CAS `held`. If that fails for some ten microseconds, `Wait`.
//! - `Wait`, under the bucket's mutex: `BeginToWait` stores `waiting` · heavy fence · CAS `held`.
//!   If that fails, wait at the bucket, and start again.
//! - `Free`: clear `held` with a store · light fence · load `waiting`. If it is set, `Notify`.
//! - `Notify`, under the bucket's mutex: clear `waiting` · wake all threads at the bucket.
//!
//! The fences are asymmetric (`util/membarrier.rs`). On a system without such fences, both are
//! fence(SeqCst).
//!
//! ## Why it works
//! Of the holders that pass their light fence before a waiter's heavy fence, take the last one. The
//! waiter's CAS, which follows its heavy fence, sees the store of that holder or of a later one. So
//! the CAS succeeds, or it finds the lock held by a thread that passes its light fence after the
//! heavy fence. That thread sees `waiting` and notifies. The notification cannot fall between the
//! waiter's CAS and its wait, because the waiter holds the bucket's mutex. It cannot miss other
//! waiters either. It clears `waiting` under the mutex under which they stored it, so all waiters
//! that had stored it are woken, and they store it again.
//!
//! ## Allowed
//! A thread that arrives later may get the lock first. A thread that had to wait leaves `waiting`
//! set, so the next `Free` notifies, perhaps no thread. A notification wakes all threads at the
//! bucket, some of which may wait for other locks.
//!
//! ## Rejected
//! A mutex of std: `co_channel_0` took 117 ns instead of 109, `co_channel_1` 94 instead of 86,
//! `timers_cancel` 112 instead of 103.
//!
//! ## Invariants
//! - `[held]` Only the thread that has set `held` touches the value, until `held` is cleared. It
//!   does so through the guard, which is `Sync` only if the value is.
//!
//! ## Checked by
//! `models::hold_against_hold`, `models::free_against_begin_to_wait`,
//! `models::touch_against_touch`, the first two also without asymmetric fences, and their canaries;
//! under load by `tests::threads_exclude_each_other`.
//!
//! In models the light fence is a full fence. The proof needs no order between two light fences,
//! because `held` puts their holders one after the other. The store of `Free` is before the light
//! fence, so models do find a missing Release in it (`canary_free_relaxed`). With the fences that
//! the real machine has, `atomics::fences::lock` of `procession-sim` runs the lock on a weak
//! processor.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use procession_sync::atomic::{AtomicBool, fence};
use procession_sync::cell::UnsafeCell;
use procession_sync::{Condvar, Mutex};

use crate::util::membarrier;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::{is, or_relaxed};

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("lock", SOUND);
    /// No light fence in `Free`.
    pub const FREE_WITHOUT_FENCE: u8 = 1;
    /// No heavy fence in `Wait`.
    pub const WAIT_WITHOUT_FENCE: u8 = 2;
    /// `Free` does not release the value.
    pub const FREE_RELAXED: u8 = 3;
    /// `Notify` without the bucket's mutex.
    pub const NOTIFY_AT_ONCE: u8 = 4;
    /// `Lock` does not acquire the value.
    pub const LOCK_RELAXED: u8 = 5;
}

/// Number of spin-loop hints in the first and in the last back-off from a held lock. The number
/// doubles each time. `lock_with_backoff` has the same values, and they were measured there.
#[cfg(not(any(procession_loom, procession_sim)))]
const FIRST: u32 = 16;
#[cfg(not(any(procession_loom, procession_sim)))]
const LAST: u32 = 256;
/// In a simulation, each hint lets other threads run.
#[cfg(procession_sim)]
const FIRST: u32 = 1;
#[cfg(procession_sim)]
const LAST: u32 = 1;

/// A place where threads wait for locks.
#[derive(Debug)]
struct Bucket {
    mutex: Mutex<()>,
    freed: Condvar,
}

/// A lock finds its bucket by its address. The number of buckets is a guess: it exceeds the number
/// of processors of most machines, and about one thread per processor can be about to wait.
#[cfg(not(procession_loom))]
static BUCKETS: [Bucket; 1 << BUCKET_BITS] =
    [const { Bucket { mutex: Mutex::new(()), freed: Condvar::new() } }; 1 << BUCKET_BITS];
#[cfg(not(procession_loom))]
const BUCKET_BITS: u32 = 6;

// The fields that are read first lie before the value, on its first cache line.
const _: () = assert!(std::mem::offset_of!(Lock<u64>, held) == 0);

/// A value that one thread at a time may touch.
#[repr(C)]
pub struct Lock<T, const MUTATION: u8 = { mutation::BUILT }> {
    held: AtomicBool,
    has_fences: bool,
    waiting: AtomicBool,
    value: UnsafeCell<T>,
    #[cfg(procession_loom)]
    bucket: Bucket,
}

// SAFETY: [held] one thread at a time touches the value, which is `Send`.
unsafe impl<T: Send, const MUTATION: u8> Sync for Lock<T, MUTATION> {}

// No code that runs under the lock panics, so the value is never left half changed.
impl<T, const MUTATION: u8> UnwindSafe for Lock<T, MUTATION> {}
impl<T, const MUTATION: u8> RefUnwindSafe for Lock<T, MUTATION> {}

impl<T, const MUTATION: u8> Lock<T, MUTATION> {
    /// Creates a lock around a value.
    pub fn new(value: T) -> Self {
        Self::with_fences(value, membarrier::are_there())
    }

    fn with_fences(value: T, has_fences: bool) -> Self {
        Self {
            held: AtomicBool::new(false),
            has_fences,
            waiting: AtomicBool::new(false),
            value: UnsafeCell::new(value),
            #[cfg(procession_loom)]
            bucket: Bucket { mutex: Mutex::new(()), freed: Condvar::new() },
        }
    }

    /// Returns the value of a lock that no other thread can reach.
    #[cfg(not(procession_loom))]
    #[inline]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Returns a guard, or `None` if the lock is held.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, MUTATION>> {
        // Ordering: Acquire pairs with the Release of `Free`.
        let order = mutation::or_relaxed(MUTATION, mutation::LOCK_RELAXED, Acquire);
        self.held
            .compare_exchange(false, true, order, Relaxed)
            .ok()
            .map(|_| Guard { lock: self, value: PhantomData })
    }

    /// Takes the lock, and waits while it is held.
    ///
    /// The code under the lock must be short and must not panic, because the lock is not poisoned.
    /// It must not take the lock again, which would wait forever.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T, MUTATION> {
        self.try_lock().unwrap_or_else(|| self.lock_held())
    }

    #[cold]
    fn lock_held(&self) -> Guard<'_, T, MUTATION> {
        #[cfg(not(procession_loom))]
        {
            let mut pauses = FIRST;
            while pauses <= LAST {
                for _ in 0..pauses {
                    procession_sync::hint::spin_loop();
                }
                if let Some(guard) = self.try_lock() {
                    return guard;
                }
                pauses *= 2;
            }
        }
        self.wait()
    }

    /// `Wait`. The system may have interrupted the thread that holds the lock.
    fn wait(&self) -> Guard<'_, T, MUTATION> {
        let bucket = self.bucket();
        let mut bucket_guard = bucket.mutex.lock();
        loop {
            self.begin_to_wait();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            bucket_guard = bucket.freed.wait(bucket_guard);
        }
    }

    /// `BeginToWait`, under the bucket's mutex.
    fn begin_to_wait(&self) {
        // Relaxed: ordered by the fence.
        self.waiting.store(true, Relaxed);
        if mutation::is(MUTATION, mutation::WAIT_WITHOUT_FENCE) {
            return;
        }
        if self.has_fences { membarrier::heavy_at_leisure() } else { fence(SeqCst) }
    }

    /// `Free`, without the notification. Returns `true` if a thread waits.
    #[inline]
    fn free(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `try_lock`: the next holder sees the value as
        // this one left it.
        self.held.store(false, mutation::or_relaxed(MUTATION, mutation::FREE_RELAXED, Release));
        if !mutation::is(MUTATION, mutation::FREE_WITHOUT_FENCE) {
            if self.has_fences { membarrier::light() } else { fence(SeqCst) }
        }
        // Relaxed: ordered by the fence.
        self.waiting.load(Relaxed)
    }

    /// `Notify`.
    #[cold]
    fn notify(&self) {
        let bucket = self.bucket();
        let guard =
            (!mutation::is(MUTATION, mutation::NOTIFY_AT_ONCE)).then(|| bucket.mutex.lock());
        // Relaxed: written under the mutex only. A holder that sees the change late notifies once
        // more.
        self.waiting.store(false, Relaxed);
        bucket.freed.notify_all();
        drop(guard);
    }

    /// In a simulation, nothing may depend on an address.
    #[cfg(procession_sim)]
    fn bucket(&self) -> &'static Bucket {
        &BUCKETS[0]
    }

    #[cfg(not(any(procession_loom, procession_sim)))]
    fn bucket(&self) -> &'static Bucket {
        // Multiplied, so that addresses at equal distances get different buckets (Knuth, The Art of
        // Computer Programming, 6.4).
        let address = std::ptr::from_ref(self).addr() as u64;
        &BUCKETS
            [(address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BUCKET_BITS)) as usize]
    }

    #[cfg(procession_loom)]
    fn bucket(&self) -> &Bucket {
        &self.bucket
    }
}

impl<T, const MUTATION: u8> fmt::Debug for Lock<T, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("held", &self.held).finish_non_exhaustive()
    }
}

/// Access to the value. Dropping the guard releases the lock.
#[must_use]
pub struct Guard<'a, T, const MUTATION: u8 = { mutation::BUILT }> {
    lock: &'a Lock<T, MUTATION>,
    value: PhantomData<&'a mut T>,
}

impl<T, const MUTATION: u8> fmt::Debug for Guard<'_, T, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard(..)")
    }
}

impl<T, const MUTATION: u8> Deref for Guard<'_, T, MUTATION> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: [held] by this guard.
        self.lock.value.with(|value| unsafe { &*value })
    }
}

impl<T, const MUTATION: u8> DerefMut for Guard<'_, T, MUTATION> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: [held] by this guard.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T, const MUTATION: u8> Drop for Guard<'_, T, MUTATION> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.free() {
            self.lock.notify();
        }
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::mem;

    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, thread};

    use super::{Lock, mutation};

    /// Three threads take the lock in turns, and wait for it.
    fn hold(has_fences: bool) {
        explore(move || {
            let lock = Arc::new(Lock::<u32, { mutation::SOUND }>::with_fences(0, has_fences));
            let others = [(); 2].map(|()| {
                let lock = Arc::clone(&lock);
                thread::spawn(move || *lock.lock() += 1)
            });
            *lock.lock() += 1;
            for other in others {
                other.join().expect("it does not panic");
            }
            assert_eq!(*lock.lock(), 3, "each held it once");
        });
    }

    #[test]
    fn hold_against_hold() {
        hold(true);
    }

    #[test]
    fn hold_against_hold_without_asymmetric_fences() {
        hold(false);
    }

    /// One thread holds the lock and releases it, while another begins to wait.
    fn free_against_wait<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            let lock = Arc::new((
                Lock::<u32, MUTATION>::with_fences(0, has_fences),
                AtomicBool::new(false),
            ));
            mem::forget(lock.0.try_lock());
            let waiter = {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    let (lock, waits) = &*lock;
                    let guard = lock.bucket.mutex.lock();
                    lock.begin_to_wait();
                    let has_it = lock.try_lock().map(mem::forget).is_some();
                    // Relaxed: the mutex orders it before a notification that reaches the waiter.
                    waits.store(!has_it, Relaxed);
                    drop(guard);
                    has_it
                })
            };
            let (lock, waits) = &*lock;
            let is_notified = lock.free() && {
                lock.notify();
                waits.load(Relaxed)
            };
            let has_it = waiter.join().expect("the waiter does not panic");
            assert!(has_it || is_notified, "the waiter is not notified");
        });
    }

    #[test]
    fn free_against_begin_to_wait() {
        free_against_wait::<{ mutation::SOUND }>(true);
    }

    #[test]
    fn free_against_begin_to_wait_without_asymmetric_fences() {
        free_against_wait::<{ mutation::SOUND }>(false);
    }

    #[test]
    #[should_panic(expected = "the waiter is not notified")]
    fn canary_free_without_fence() {
        free_against_wait::<{ mutation::FREE_WITHOUT_FENCE }>(true);
    }

    #[test]
    #[should_panic(expected = "the waiter is not notified")]
    fn canary_wait_without_fence() {
        free_against_wait::<{ mutation::WAIT_WITHOUT_FENCE }>(true);
    }

    #[test]
    #[should_panic(expected = "the waiter is not notified")]
    fn canary_notify_at_once() {
        free_against_wait::<{ mutation::NOTIFY_AT_ONCE }>(true);
    }

    /// Two threads touch the value if they find the lock free.
    fn touch<const MUTATION: u8>() {
        explore(|| {
            let lock = Arc::new(Lock::<u32, MUTATION>::with_fences(0, true));
            let touch = |lock: &Lock<u32, MUTATION>| {
                if lock.try_lock().map(mem::forget).is_some() {
                    // SAFETY: [held], which the model is about.
                    lock.value.with_mut(|value| unsafe { *value += 1 });
                    lock.free();
                }
            };
            let other = {
                let lock = Arc::clone(&lock);
                thread::spawn(move || touch(&lock))
            };
            touch(&lock);
            other.join().expect("it does not panic");
        });
    }

    #[test]
    fn touch_against_touch() {
        touch::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_free_relaxed() {
        touch::<{ mutation::FREE_RELAXED }>();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::thread;

    use procession_sync::atomic::Ordering::Relaxed;

    use super::Lock;

    #[test]
    fn a_waiter_is_woken_when_the_lock_is_released() {
        for has_fences in [crate::util::membarrier::are_there(), false] {
            let lock = Lock::<_, 0>::with_fences(1, has_fences);
            thread::scope(|scope| {
                let held = lock.lock();
                let waiters = [(); 3].map(|()| scope.spawn(|| *lock.lock() += 1));
                while !lock.waiting.load(Relaxed) {
                    thread::yield_now();
                }
                drop(held);
                for waiter in waiters {
                    waiter.join().expect("it does not panic");
                }
            });
            assert_eq!(*lock.lock(), 4);
        }
    }

    /// Several threads take the lock again and again.
    #[test]
    fn threads_exclude_each_other() {
        const HOLDS: u64 = 20_000;
        for has_fences in [crate::util::membarrier::are_there(), false] {
            let lock = Lock::<_, 0>::with_fences(0_u64, has_fences);
            thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for hold in 0..HOLDS {
                            let mut value = lock.lock();
                            let before = *value;
                            if hold % 1000 == 0 {
                                thread::yield_now();
                            }
                            *value = before + 1;
                        }
                    });
                }
            });
            assert_eq!(*lock.lock(), 4 * HOLDS);
            assert!(
                lock.try_lock().is_some_and(|held| *held == 4 * HOLDS && lock.try_lock().is_none())
            );
        }
    }
}
