//! The LIFO slot: one process that a worker runs before anything queued.
//!
//! # LIFO-slot protocol
//!
//! ## Problem
//! A process that wakes another and then waits should hand over to it immediately, on warm caches.
//! To announce the woken process to the other workers would separate every such pair. To hide it
//! strands the woken process behind a waker that continues to compute. Besides, the owner uses the
//! slot for each message, and a read-modify-write would be a tenth of all its work, while other
//! workers take something only rarely.
//!
//! ## States
//! - `entry`: null, or a process that is ready; the pointer is its one queue entry.
//! - `at_it`: the owner is using the entry.
//! - `raids`: the number of thieves that are using the entry, or may be.
//!
//! The latter two are used only where there are asymmetric fences (`util/membarrier.rs`).
//! Elsewhere, the owner swaps, and a thief only needs its CAS.
//!
//! ## Steps
//! - Owner: `set` (another process; the previous entry is queued and announced) and `take` (null):
//!   `Come` at_it · light fence · `Look` raids; if 0, load and store the entry, else swap it ·
//!   `Leave` at_it.
//! - Thief: `look` remembers process and step counter. At least 100 us later, by its own clock, if
//!   both are the same, `steal`: `Raid` raids + 1 · heavy fence · unless the owner is at the entry,
//!   CAS from that process to null · `Retreat` raids - 1.
//!
//! ## Why it works
//! Either the light fence of the owner or the heavy fence of the thief is first. If the light fence
//! is first, the thief sees that the owner is at the entry, and goes without; or that the owner has
//! left, and then sees what the owner left there. If the heavy fence is first, the owner sees the
//! raid, and swaps. So while a thief looks at the entry, all changes are read-modify-writes of one
//! word, and an entry is taken once. If the process left and came back between `look` and `steal`,
//! the thief still takes the one entry that is there now. The entry is released by the owner and
//! acquired by `steal`: a process goes to the thief with all that its steps have done.
//!
//! ## Allowed
//! A thief that meets the owner takes nothing. If a system refuses the heavy fence although it has
//! promised one, nothing is stolen here for as long as it refuses: the process in the slot waits
//! for the end of the step.
//!
//! ## Rejected
//! Read-modify-writes for the owner even where there are fences: `ring` 67 instead of 58 ns,
//! `pingpong` 131 instead of 115, on one CPU.
//!
//! ## Checked by
//! `models::take_against_steal`, `models::two_thieves_against_owner`,
//! `models::swaps_against_steal`, `models::canary_steal_without_cas`, `models::canary_set_relaxed`,
//! `models::canary_steal_beside_owner`, `models::canary_steal_without_fence`. In models the light
//! fence is a full fence, so they do not notice `Leave` without its Release, for example. A run on
//! a weak processor does (`atomics::fences::slot` of `procession-sim`). The proof needs no order
//! between two light fences, which only the owner passes. `tests::each_entry_is_taken_once` puts
//! the fences themselves under load.

use std::ptr::{self, NonNull};

use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicBool, AtomicPtr, AtomicU32};

use crate::util::membarrier;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::{is, or_relaxed};

    /// No defect.
    pub const SOUND: u8 = 0;
    /// What is built: sound, unless the build has mutants, or measures what thieves cost.
    pub const BUILT: u8 = crate::util::mutant::planted("lifo", UNMEASURED);
    const UNMEASURED: u8 = if cfg!(procession_lifo_unstolen) { NEVER_STOLEN } else { SOUND };
    /// `steal` compares, then stores.
    pub const STEAL_WITHOUT_CAS: u8 = 1;
    /// `set` does not release where it swaps.
    pub const SET_RELAXED: u8 = 2;
    /// `steal` does not check whether the owner is at the entry.
    pub const STEAL_BESIDE_OWNER: u8 = 3;
    /// `steal` passes no fence.
    pub const STEAL_WITHOUT_FENCE: u8 = 4;
    /// No thief takes the entry. No model plants this: it breaks a bound, and not the protocol.
    pub const NEVER_STOLEN: u8 = 5;
    /// A chain of wake-ups has no end, and each of its steps a full budget
    /// (`scheduler/run_queues/order.rs`).
    /// No model plants this, either.
    pub const CHAIN_WITHOUT_END: u8 = 6;
    /// `Leave` does not release the entry. In models the light fence does.
    pub const LEAVE_RELAXED: u8 = 7;
    /// `steal` does not acquire what the owner left. In models its fence does.
    pub const STEAL_RELAXED: u8 = 8;
    /// `Look` does not acquire what a thief has done. In models it is as with `STEAL_RELAXED`.
    pub const LOOK_RELAXED: u8 = 9;
    /// `Retreat` does not release what a thief has done. In models its fence does.
    pub const RETREAT_RELAXED: u8 = 10;
    /// `steal` does not acquire an entry that was swapped in.
    pub const CLAIM_RELAXED: u8 = 11;
}

/// The words of the protocol.
#[derive(Debug)]
pub struct LifoSlot<T, const MUTATION: u8 = { mutation::BUILT }> {
    entry: AtomicPtr<T>,
    at_it: AtomicBool,
    raids: AtomicU32,
    has_fences: bool,
}

impl<T, const MUTATION: u8> LifoSlot<T, MUTATION> {
    /// Creates an empty slot.
    pub fn empty() -> Self {
        Self::with_fences(membarrier::are_there())
    }

    fn with_fences(has_fences: bool) -> Self {
        Self {
            entry: AtomicPtr::new(ptr::null_mut()),
            at_it: AtomicBool::new(false),
            raids: AtomicU32::new(0),
            has_fences,
        }
    }

    /// Owner: puts an entry in, and returns the previous entry.
    #[inline]
    pub fn set(&self, process: NonNull<T>) -> Option<NonNull<T>> {
        self.replace(process.as_ptr())
    }

    /// Owner: takes the entry.
    #[inline]
    pub fn take(&self) -> Option<NonNull<T>> {
        // Relaxed: the owner reads what it set itself.
        if self.entry.load(Relaxed).is_null() {
            return None;
        }
        self.replace(ptr::null_mut())
    }

    #[inline]
    fn replace(&self, new: *mut T) -> Option<NonNull<T>> {
        if cfg!(procession_lifo_unstolen) {
            // Relaxed: no thief takes anything, so only the owner uses the entry. `bench/hangs/run`
            // compares this with the protocol.
            let old = self.entry.load(Relaxed);
            self.entry.store(new, Relaxed);
            return NonNull::new(old);
        }
        if !self.has_fences {
            return self.swap(new);
        }
        // Relaxed: ordered by the fence.
        self.at_it.store(true, Relaxed);
        membarrier::light();
        // Ordering: Acquire pairs with the Release of `Retreat`: the entry that that thief took is
        // gone.
        let order = mutation::or_relaxed(MUTATION, mutation::LOOK_RELAXED, Acquire);
        let old = if self.raids.load(order) == 0 {
            let old = self.entry.load(Relaxed);
            // Relaxed: released by `Leave`.
            self.entry.store(new, Relaxed);
            NonNull::new(old)
        } else {
            self.swap(new)
        };
        // Ordering (`Leave`): Release pairs with the Acquire of `steal`, which then sees what the
        // owner left in the entry.
        self.at_it.store(false, mutation::or_relaxed(MUTATION, mutation::LEAVE_RELAXED, Release));
        old
    }

    fn swap(&self, new: *mut T) -> Option<NonNull<T>> {
        // Ordering: Release pairs with the Acquire of `claim`. Acquire pairs with the Release of
        // the owner's own earlier swap, as a formality.
        let order = mutation::or_relaxed(MUTATION, mutation::SET_RELAXED, AcqRel);
        NonNull::new(self.entry.swap(new, order))
    }

    /// Any thread: returns the entry, only to be compared.
    pub fn look(&self) -> *mut T {
        self.entry.load(Relaxed)
    }

    /// Thief: takes the entry if it is still `seen`, unless the owner is at it.
    pub fn steal(&self, seen: *mut T) -> Option<NonNull<T>> {
        let seen = NonNull::new(seen)?;
        if mutation::is(MUTATION, mutation::NEVER_STOLEN) {
            return None;
        }
        if !self.has_fences {
            return self.claim(seen);
        }
        // Relaxed: ordered by the fence.
        self.raids.fetch_add(1, Relaxed);
        let fenced = mutation::is(MUTATION, mutation::STEAL_WITHOUT_FENCE) || membarrier::heavy();
        // Ordering: Acquire pairs with the Release of `Leave`.
        let order = mutation::or_relaxed(MUTATION, mutation::STEAL_RELAXED, Acquire);
        let alone = fenced
            && (mutation::is(MUTATION, mutation::STEAL_BESIDE_OWNER) || !self.at_it.load(order));
        let stolen = if alone { self.claim(seen) } else { None };
        // Ordering (`Retreat`): Release pairs with the Acquire of `Look`.
        self.raids.fetch_sub(1, mutation::or_relaxed(MUTATION, mutation::RETREAT_RELAXED, Release));
        stolen
    }

    fn claim(&self, seen: NonNull<T>) -> Option<NonNull<T>> {
        if mutation::is(MUTATION, mutation::STEAL_WITHOUT_CAS) {
            let same = self.entry.load(Acquire) == seen.as_ptr();
            self.entry.store(ptr::null_mut(), Relaxed);
            return same.then_some(seen);
        }
        // Ordering: Acquire pairs with the Release of `set` where that swaps.
        let order = mutation::or_relaxed(MUTATION, mutation::CLAIM_RELAXED, Acquire);
        let stolen = self.entry.compare_exchange(seen.as_ptr(), ptr::null_mut(), order, Relaxed);
        stolen.is_ok().then_some(seen)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::cell::UnsafeCell;
    use procession_sync::{Arc, explore, thread};

    use super::{LifoSlot, NonNull, mutation};

    type Process = UnsafeCell<u32>;

    fn step(process: &Process) {
        // SAFETY: only the holder of the entry of a process accesses the process, which is what the
        // model checks.
        process.with_mut(|steps| unsafe { *steps += 1 });
    }

    fn race<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            let processes = [Process::new(0), Process::new(0)];
            let shared =
                Arc::new((LifoSlot::<Process, MUTATION>::with_fences(has_fences), processes));
            let (next, processes) = &*shared;
            let run = |entry: NonNull<Process>| {
                // SAFETY: it was made of one of the two processes.
                step(unsafe { entry.as_ref() });
            };
            step(&processes[0]);
            assert!(next.set(NonNull::from(&processes[0])).is_none());
            let thief = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let (next, _) = &*shared;
                    // SAFETY: it was made of one of the two processes.
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
        race::<{ mutation::SOUND }>(true);
    }

    #[test]
    fn two_thieves_against_owner() {
        explore(|| {
            let shared = Arc::new((LifoSlot::<Process>::empty(), Process::new(0)));
            let (next, process) = &*shared;
            assert!(next.set(NonNull::from(process)).is_none());
            let thieves = [(); 2].map(|()| {
                let shared = Arc::clone(&shared);
                // SAFETY: it was made of the process.
                let run = |entry: NonNull<Process>| step(unsafe { entry.as_ref() });
                thread::spawn(move || u32::from(shared.0.steal(shared.0.look()).map(run).is_some()))
            });
            let mut taken = u32::from(next.take().map(|_| step(process)).is_some());
            for thief in thieves {
                taken += thief.join().expect("the thief does not panic");
            }
            taken += u32::from(next.take().is_some());
            assert_eq!(taken, 1, "one takes it");
        });
    }

    #[test]
    fn swaps_against_steal() {
        race::<{ mutation::SOUND }>(false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_steal_without_cas() {
        race::<{ mutation::STEAL_WITHOUT_CAS }>(false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_set_relaxed() {
        race::<{ mutation::SET_RELAXED }>(false);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_steal_beside_owner() {
        race::<{ mutation::STEAL_BESIDE_OWNER }>(true);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_steal_without_fence() {
        race::<{ mutation::STEAL_WITHOUT_FENCE }>(true);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::thread;

    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::atomic::{AtomicBool, AtomicU32};

    use super::{LifoSlot, NonNull};

    /// An owner sets and takes as fast as it can, while two threads steal what they see.
    #[test]
    fn each_entry_is_taken_once() {
        const ENTRIES: usize = 200_000;
        for has_fences in [crate::util::membarrier::are_there(), false] {
            let entries: Vec<AtomicU32> = (0..ENTRIES).map(|_| AtomicU32::new(0)).collect();
            let next = LifoSlot::<AtomicU32>::with_fences(has_fences);
            let over = AtomicBool::new(false);
            let number_of = |entry: NonNull<AtomicU32>| {
                (entry.addr().get() - entries.as_ptr().addr()) / size_of::<AtomicU32>()
            };
            let take = |entry| entries[number_of(entry)].fetch_add(1, Relaxed);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        while !over.load(Relaxed) {
                            next.steal(next.look()).map(take);
                        }
                    });
                }
                for (number, entry) in entries.iter().enumerate() {
                    next.set(NonNull::from(entry)).map(take);
                    if number % 3 == 0 {
                        next.take().map(take);
                    }
                }
                over.store(true, Relaxed);
            });
            next.take().map(take);
            assert!(
                entries.iter().all(|taken| taken.load(Relaxed) == 1),
                "with fences: {has_fences}"
            );
        }
    }
}
