//! The next slot: one process that a worker runs before anything queued.
//!
//! # Next-slot protocol
//!
//! ## Problem
//! A process that wakes another and then waits should hand over to it at once, on warm caches. Announcing that to the other
//! workers would tear every such pair apart; hiding it strands the woken one behind a waker that computes on.
//!
//! ## States
//! One word: null, or a process that is ready, whose one queue entry this is.
//!
//! ## Steps
//! Owner: `set` swaps the process in, and queues the one that was there, which is announced; `take` swaps null in.
//! Thief: `look` remembers process and step counter; at least 100 us later, by its own clock, if both are the same, `steal`
//! CAS from that process to null.
//!
//! ## Why it works
//! All three are read-modify-writes of one word, so an entry is taken once. If the process left and came back between `look`
//! and `steal`, what is stolen is still the one entry that is there now. `set` releases and `steal` acquires: a process goes to the thief with all that its
//! steps have done.
//!
//! ## Checked by
//! `models::take_against_steal`, `models::canary_steal_without_cas`, `models::canary_set_relaxed`.

use std::ptr::{self, NonNull};

use procession_sync::atomic::AtomicPtr;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `steal` compares, then stores.
    #[cfg(all(test, procession_loom))]
    pub(crate) const STEAL_WITHOUT_CAS: u8 = 1;
    /// `set` does not release.
    #[cfg(all(test, procession_loom))]
    pub(crate) const SET_RELAXED: u8 = 2;
}

/// The word.
#[derive(Debug)]
pub(crate) struct Next<T, const MUTATION: u8 = { mutation::SOUND }>(AtomicPtr<T>);

impl<T, const MUTATION: u8> Next<T, MUTATION> {
    pub(crate) fn empty() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Owner: puts an entry in, and gives back the one that was there.
    #[inline]
    pub(crate) fn set(&self, process: NonNull<T>) -> Option<NonNull<T>> {
        // Ordering: Release pairs with the Acquire of `steal`; Acquire with the Release of the owner's own earlier `set`, for form.
        let order = if cfg!(procession_loom) && MUTATION == 2 { Relaxed } else { AcqRel };
        NonNull::new(self.0.swap(process.as_ptr(), order))
    }

    /// Owner: takes the entry.
    #[inline]
    pub(crate) fn take(&self) -> Option<NonNull<T>> {
        // Relaxed: the owner looks for what it set itself.
        if self.0.load(Relaxed).is_null() {
            return None;
        }
        NonNull::new(self.0.swap(ptr::null_mut(), Acquire))
    }

    /// Anybody: what is there, to be compared only.
    pub(crate) fn look(&self) -> *mut T {
        self.0.load(Relaxed)
    }

    /// Thief: takes the entry if it is still `seen`.
    pub(crate) fn steal(&self, seen: *mut T) -> Option<NonNull<T>> {
        let seen = NonNull::new(seen)?;
        if cfg!(procession_loom) && MUTATION == 1 {
            let same = self.0.load(Acquire) == seen.as_ptr();
            self.0.store(ptr::null_mut(), Relaxed);
            return same.then_some(seen);
        }
        // Ordering: Acquire pairs with the Release of `set`.
        let stolen = self.0.compare_exchange(seen.as_ptr(), ptr::null_mut(), Acquire, Relaxed);
        stolen.is_ok().then_some(seen)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::cell::UnsafeCell;
    use procession_sync::{Arc, thread};

    use super::{Next, NonNull, mutation};

    type Process = UnsafeCell<u32>;

    fn step(process: &Process) {
        // SAFETY: the entry of a process gives the right to it, which the model is about.
        process.with_mut(|steps| unsafe { *steps += 1 });
    }

    fn race<const MUTATION: u8>() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = builder.preemption_bound.or(Some(2));
        builder.check(|| {
            let shared = Arc::new((Next::<Process, MUTATION>::empty(), [Process::new(0), Process::new(0)]));
            let (next, processes) = &*shared;
            let run = |entry: NonNull<Process>| {
                // SAFETY: it was made of one of them.
                step(unsafe { entry.as_ref() });
            };
            step(&processes[0]);
            assert!(next.set(NonNull::from(&processes[0])).is_none());
            let thief = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (next, _) = &*shared;
                    // SAFETY: it was made of one of them.
                    next.steal(next.look()).map(|entry| step(unsafe { entry.as_ref() })).is_some()
                })
            };
            let taken = u32::from(next.take().map(run).is_some());
            step(&processes[1]);
            let again = next.set(NonNull::from(&processes[1])).is_some();
            assert!(!again, "the owner took it, or the thief did");
            let stolen = u32::from(thief.join().expect("the thief does not panic"));
            let left = u32::from(next.take().map(run).is_some());
            assert_eq!(taken + stolen + left, 2, "each of two entries is taken once");
        });
    }

    #[test]
    fn take_against_steal() {
        race::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_steal_without_cas() {
        race::<{ mutation::STEAL_WITHOUT_CAS }>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_set_relaxed() {
        race::<{ mutation::SET_RELAXED }>();
    }
}
