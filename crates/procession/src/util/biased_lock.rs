//! A lock that is freed by a store.
//!
//! # Lock protocol
//!
//! ## Problem
//! Around some ten instructions, a lock's two read-modify-writes are most of the cost, and the second is for nothing but to learn whether
//! anybody waits, which hardly ever somebody does. Freed by a plain store instead, the lock tells nobody who has just begun to wait, and he
//! waits for ever.
//!
//! ## States
//! `held`; `waiting`: somebody waits, or is about to; and a *gate*, a mutex and a condition variable, where they do. Few ever do, so locks
//! share gates.
//!
//! ## Steps
//! `Lock`: CAS held; if that fails for some ten microseconds, `Wait`. `Wait`, under the gate's mutex: `BeginToWait` waiting is stored ·
//! heavy fence · CAS held; if that fails, wait at the gate, and from the beginning.
//! `Free`: held is cleared by a store · light fence · look at waiting; if somebody waits, `Notify`, under the gate's mutex: waiting is
//! cleared · wake all at the gate. The fences are asymmetric (`util/membarrier.rs`); where there are no such fences, both are fence(SeqCst).
//!
//! ## Why it works
//! Take of those whose light fence comes before the heavy one the last to have held the lock. The CAS after the heavy fence sees what he
//! stored, or what later holders did. So it succeeds, or it finds the lock held by somebody whose light fence comes later: he sees who
//! waits, and notifies; not between the CAS and the wait, since the waiter has the gate's mutex, and not for nothing, since he clears under
//! that mutex what was stored under it: all who had stored it are woken, and store it again.
//!
//! ## Allowed
//! Who comes later may be faster. Who had to wait leaves `waiting` as it is, so the next `Free` notifies, perhaps nobody. A notification
//! wakes all at the gate, who may wait for other locks.
//!
//! ## Rejected
//! A mutex of std's: `co_channel_0` 117 ns instead of 109, `co_channel_1` 94 instead of 86, `timers_cancel` 112 instead of 103.
//!
//! ## Invariants
//! - `[held]` the value is touched by who has set `held`, until he clears it: by who has the guard, which is Sync only if the value is.
//!
//! ## Checked by
//! `models::hold_against_hold`, `models::free_against_begin_to_wait`, `models::touch_against_touch`, the first two also without asymmetric
//! fences, and their canaries; under load by `tests::threads_exclude_each_other`. In models the light fence is a full one. The proof
//! needs no order between two light fences: `held` puts their holders one after the other. The store of `Free` comes before the light
//! fence, so models do find it without its Release (`canary_free_relaxed`).

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
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// No light fence in `Free`.
    pub(crate) const FREE_WITHOUT_FENCE: u8 = 1;
    /// No heavy fence in `Wait`.
    pub(crate) const WAIT_WITHOUT_FENCE: u8 = 2;
    /// `Free` does not release the value.
    pub(crate) const FREE_RELAXED: u8 = 3;
    /// `Notify` without the gate's mutex.
    pub(crate) const NOTIFY_AT_ONCE: u8 = 4;
}

/// How long a thread looks away from a lock that is held: so many pauses at first, twice as many each time. Those of `lock_with_backoff`, which were measured.
#[cfg(not(procession_loom))]
const FIRST: u32 = 16;
#[cfg(not(procession_loom))]
const LAST: u32 = 256;

/// Where threads wait.
#[derive(Debug)]
struct Gate {
    mutex: Mutex<()>,
    freed: Condvar,
}

/// Locks share them by their addresses. Picked out of thin air: more than processors of most machines, at each of which one thread may just be waiting.
#[cfg(not(procession_loom))]
static GATES: [Gate; 1 << GATE_BITS] =
    [const { Gate { mutex: Mutex::new(()), freed: Condvar::new() } }; 1 << GATE_BITS];
#[cfg(not(procession_loom))]
const GATE_BITS: u32 = 6;

// What is asked first lies before what is locked, on its cache line.
const _: () = assert!(std::mem::offset_of!(Lock<u64>, held) == 0);

/// A value that one thread at a time may touch.
#[repr(C)]
pub(crate) struct Lock<T, const MUTATION: u8 = { mutation::SOUND }> {
    held: AtomicBool,
    has_fences: bool,
    waiting: AtomicBool,
    value: UnsafeCell<T>,
    #[cfg(procession_loom)]
    gate: Gate,
}

// SAFETY: [held] one thread at a time touches the value, which is Send.
unsafe impl<T: Send, const MUTATION: u8> Sync for Lock<T, MUTATION> {}

// Nothing that is done under it panics, so what is locked is never left half done.
impl<T, const MUTATION: u8> UnwindSafe for Lock<T, MUTATION> {}
impl<T, const MUTATION: u8> RefUnwindSafe for Lock<T, MUTATION> {}

impl<T, const MUTATION: u8> Lock<T, MUTATION> {
    pub(crate) fn new(value: T) -> Self {
        Self::with_fences(value, membarrier::are_there())
    }

    fn with_fences(value: T, has_fences: bool) -> Self {
        Self {
            held: AtomicBool::new(false),
            has_fences,
            waiting: AtomicBool::new(false),
            value: UnsafeCell::new(value),
            #[cfg(procession_loom)]
            gate: Gate { mutex: Mutex::new(()), freed: Condvar::new() },
        }
    }

    /// The lock, unless it is held.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T, MUTATION>> {
        // Ordering: Acquire pairs with the Release of `Free`.
        self.held.compare_exchange(false, true, Acquire, Relaxed).ok().map(|_| Guard { lock: self, value: PhantomData })
    }

    /// The lock. What is done under it is short, does not panic, since a lock is not poisoned, and does not take it again, which would wait for ever.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, MUTATION> {
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

    /// `Wait`. Who holds the lock may have been interrupted.
    fn wait(&self) -> Guard<'_, T, MUTATION> {
        let gate = self.gate();
        let mut passage = gate.mutex.lock().expect("nothing that can panic runs under this lock");
        loop {
            self.begin_to_wait();
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            passage = gate.freed.wait(passage).expect("as above");
        }
    }

    /// `BeginToWait`, under the gate's mutex.
    fn begin_to_wait(&self) {
        // Relaxed: ordered by the fence.
        self.waiting.store(true, Relaxed);
        if MUTATION == mutation::WAIT_WITHOUT_FENCE {
            return;
        }
        if self.has_fences { membarrier::heavy_at_leisure() } else { fence(SeqCst) }
    }

    /// `Free`, without the notification: says whether somebody waits.
    #[inline]
    fn free(&self) -> bool {
        // Ordering: Release pairs with the Acquire of `try_lock`: the next finds the value as it was left.
        self.held.store(false, if MUTATION == mutation::FREE_RELAXED { Relaxed } else { Release });
        if MUTATION != mutation::FREE_WITHOUT_FENCE {
            if self.has_fences { membarrier::light() } else { fence(SeqCst) }
        }
        // Relaxed: ordered by the fence.
        self.waiting.load(Relaxed)
    }

    /// `Notify`.
    #[cold]
    fn notify(&self) {
        let gate = self.gate();
        let passage = (MUTATION != mutation::NOTIFY_AT_ONCE)
            .then(|| gate.mutex.lock().expect("nothing that can panic runs under this lock"));
        // Relaxed: written under the mutex only; a holder that sees it late notifies once more.
        self.waiting.store(false, Relaxed);
        gate.freed.notify_all();
        drop(passage);
    }

    #[cfg(not(procession_loom))]
    fn gate(&self) -> &'static Gate {
        // Multiplied, so that addresses at equal distances do not meet (Knuth, The Art of Computer Programming, 6.4).
        let address = std::ptr::from_ref(self).addr() as u64;
        &GATES[(address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - GATE_BITS)) as usize]
    }

    #[cfg(procession_loom)]
    fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl<T, const MUTATION: u8> fmt::Debug for Lock<T, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("held", &self.held).finish_non_exhaustive()
    }
}

/// The right to the value, which ends with it.
#[must_use]
pub(crate) struct Guard<'a, T, const MUTATION: u8 = { mutation::SOUND }> {
    lock: &'a Lock<T, MUTATION>,
    value: PhantomData<&'a mut T>,
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

    /// Three threads hold the lock in turns, and wait for it.
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

    /// One holds the lock, and frees it, while another begins to wait.
    fn free_against_wait<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            let lock = Arc::new((Lock::<u32, MUTATION>::with_fences(0, has_fences), AtomicBool::new(false)));
            mem::forget(lock.0.try_lock());
            let waiter = {
                let lock = Arc::clone(&lock);
                thread::spawn(move || {
                    let (lock, waits) = &*lock;
                    let passage = lock.gate.mutex.lock();
                    lock.begin_to_wait();
                    let has_it = lock.try_lock().map(mem::forget).is_some();
                    // Relaxed: the mutex orders it before a notification that reaches who waits.
                    waits.store(!has_it, Relaxed);
                    drop(passage);
                    has_it
                })
            };
            let (lock, waits) = &*lock;
            let is_told = lock.free() && {
                lock.notify();
                waits.load(Relaxed)
            };
            let has_it = waiter.join().expect("the waiter does not panic");
            assert!(has_it || is_told, "nobody tells who waits");
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
    #[should_panic(expected = "nobody tells who waits")]
    fn canary_free_without_fence() {
        free_against_wait::<{ mutation::FREE_WITHOUT_FENCE }>(true);
    }

    #[test]
    #[should_panic(expected = "nobody tells who waits")]
    fn canary_wait_without_fence() {
        free_against_wait::<{ mutation::WAIT_WITHOUT_FENCE }>(true);
    }

    #[test]
    #[should_panic(expected = "nobody tells who waits")]
    fn canary_notify_at_once() {
        free_against_wait::<{ mutation::NOTIFY_AT_ONCE }>(true);
    }

    /// Two touch the value, each if it finds the lock free.
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
    fn who_waits_at_the_gate_is_woken() {
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

    #[test]
    fn what_is_made_of_locks_may_pass_a_panic() {
        fn passes<T: std::panic::UnwindSafe>() {}
        passes::<crate::sync::channel::Sender<std::cell::Cell<u8>>>();
        passes::<&crate::sync::Semaphore>();
    }

    /// Threads hold the lock again and again.
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
            assert!(lock.try_lock().is_some_and(|held| *held == 4 * HOLDS && lock.try_lock().is_none()));
        }
    }
}
