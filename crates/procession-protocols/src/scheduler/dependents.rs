//! The processes that a shutdown cancels only after their parents have ended.
//!
//! # Dependents protocol
//!
//! ## Problem
//! A shutdown asks a process to end. The process cleans up, and awaits a helper that it has
//! spawned. If the shutdown dropped the helper immediately, the clean-up would fail. So the helper
//! is a *dependent*: it is cancelled when its parent ends. So is a process that is asked to end, if
//! its parent spawns it after the shutdown has begun. The parent may end just while the helper is
//! noted down. Then no end would follow to cancel the helper.
//!
//! ## States
//! One table under a lock, with at most one entry for each slot. An entry names the child and its
//! parent, both with their generations. The table is used between the phases `STOPPING` and
//! `TERMINATING` (`scheduler/shutdown.rs`).
//!
//! ## Steps
//! - Shutdown, after `EnterFence`, for each process that a cancel drops and that has a parent; and
//!   a process that spawns any child while the word is `STOPPING`: `Insert` the entry, under the
//!   lock · `Look` whether the parent has ended · if so, `Withdraw` the entry and cancel the child.
//! - Ending process: complete · `CatchUp` of the closing protocol · if the word is `STOPPING`,
//!   `Take` the entries of its slot, under the lock, and cancel the children of parents that have
//!   ended. An entry of the next process in the slot is inserted again.
//!
//! ## Why it works
//! The lock orders `Insert` and `Take`. If `Insert` is first, `Take` finds the entry. If `Take` is
//! first, the parent was complete before, and `Look` sees that. An ending process that does not see
//! `STOPPING` has completed before `EnterFence`, so `Look` sees that as well.
//!
//! ## Allowed
//! A child may be cancelled twice. A child that has ended leaves its entry until its parent ends or
//! another process in its slot is inserted. The table is therefore never larger than the table of
//! slots.
//!
//! ## Checked by
//! `models::insert_against_end`, with and without asymmetric fences, and
//! `models::canary_look_before_insert`; `tests/it/cancel`.

use std::num::NonZeroU32;

use procession_sync::Mutex;

use crate::util::sorted_map::{SortedMap, SortedSet};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("dependents", SOUND);
    /// `Look`, then `Insert`.
    pub const LOOK_BEFORE_INSERT: u8 = 1;
}

/// A slot and the generation of the process in it.
type SlotIdentity = (u32, NonZeroU32);

/// A process that is cancelled after its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependent {
    /// The process that is cancelled.
    pub child: SlotIdentity,
    /// The process that has to end first.
    pub parent: SlotIdentity,
}

#[derive(Debug, Default)]
struct DependentEntries {
    /// By the slot of the child.
    dependents: SortedMap<u32, Dependent>,
    /// The slots of parent and child.
    by_parent: SortedSet<(u32, u32)>,
}

impl DependentEntries {
    fn remove(&mut self, child: u32) -> Option<Dependent> {
        let dependent = self.dependents.remove(&child)?;
        self.by_parent.remove(&(dependent.parent.0, child));
        Some(dependent)
    }
}

/// The table of dependents.
#[derive(Debug, Default)]
pub struct Dependents<const MUTATION: u8 = { mutation::BUILT }>(Mutex<DependentEntries>);

impl<const MUTATION: u8> Dependents<MUTATION> {
    /// `Insert`, `Look` and `Withdraw`. Returns `true` if the parent has ended, so that the caller
    /// cancels the child.
    #[must_use]
    pub fn insert(&self, dependent: Dependent, has_ended: impl Fn() -> bool) -> bool {
        let is_early = mutation::is(MUTATION, mutation::LOOK_BEFORE_INSERT);
        let too_early = is_early && has_ended();
        {
            let mut entries = self.0.lock();
            let child = dependent.child.0;
            entries.remove(child);
            entries.dependents.insert(child, dependent);
            entries.by_parent.insert((dependent.parent.0, child));
        }
        // Outside the lock: the look may drop the last reference to a process.
        let ended = if is_early { too_early } else { has_ended() };
        if ended {
            let mut entries = self.0.lock();
            if entries.dependents.get(&dependent.child.0) == Some(&dependent) {
                entries.remove(dependent.child.0);
            }
        }
        ended
    }

    /// `Take`.
    pub fn take(&self, parent: u32) -> Vec<Dependent> {
        let mut entries = self.0.lock();
        let children: Vec<_> = entries
            .by_parent
            .range((parent, 0)..=(parent, u32::MAX))
            .map(|&(_, child)| child)
            .collect();
        children.into_iter().filter_map(|child| entries.remove(child)).collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        *self.0.lock() = DependentEntries::default();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::num::NonZeroU32;

    use super::{Dependent, Dependents};

    fn dependent(child: u32, parent: u32) -> Dependent {
        Dependent { child: (child, NonZeroU32::MIN), parent: (parent, NonZeroU32::MIN) }
    }

    #[test]
    fn a_slot_has_one_entry_however_often_it_is_reused() {
        let dependents: Dependents = Dependents::default();
        for round in 0..10 {
            assert!(!dependents.insert(dependent(7, round), || false));
        }
        for round in 0..9 {
            assert_eq!(dependents.take(round), []);
        }
        assert_eq!(dependents.take(9), [dependent(7, 9)]);
        assert_eq!(dependents.take(9), []);
    }

    #[test]
    fn an_end_takes_its_own_children_only() {
        let dependents: Dependents = Dependents::default();
        for (child, parent) in [(1, 5), (u32::MAX, 5), (0, 5), (2, 6), (3, 4)] {
            assert!(!dependents.insert(dependent(child, parent), || false));
        }
        let taken = dependents.take(5);
        assert_eq!(taken, [dependent(0, 5), dependent(1, 5), dependent(u32::MAX, 5)]);
        dependents.clear();
        assert_eq!(dependents.take(6), []);
    }

    #[test]
    fn a_child_of_an_ended_parent_leaves_no_entry() {
        let dependents: Dependents = Dependents::default();
        assert!(dependents.insert(dependent(1, 5), || true));
        assert_eq!(dependents.take(5), []);
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::num::NonZeroU32;

    use procession_sync::atomic::AtomicBool;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{Arc, explore, thread};

    use super::{Dependent, Dependents, mutation};
    use crate::scheduler::shutdown::{OPEN, STOPPING, ShutdownPhase};

    /// A parent ends while a shutdown begins and notes its child down.
    fn insert<const MUTATION: u8>(has_fences: bool) {
        explore(move || {
            let shared = Arc::new((
                <ShutdownPhase>::with_fences(has_fences),
                Dependents::<MUTATION>::default(),
                AtomicBool::new(false),
            ));
            let parent = {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    // Relaxed: nothing but the fences and the lock orders it.
                    shared.2.store(true, Relaxed);
                    shared.0.phase_after_publishing() != OPEN && !shared.1.take(5).is_empty()
                })
            };
            shared.0.enter(STOPPING);
            let one = NonZeroU32::MIN;
            let dependent = Dependent { child: (7, one), parent: (5, one) };
            let is_late = shared.1.insert(dependent, || shared.2.load(Relaxed));
            let is_taken = parent.join().expect("the parent does not panic");
            assert!(is_late || is_taken, "the child lives on");
        });
    }

    #[test]
    fn insert_against_end() {
        insert::<{ mutation::SOUND }>(true);
    }

    #[test]
    fn insert_against_end_without_asymmetric_fences() {
        insert::<{ mutation::SOUND }>(false);
    }

    #[test]
    #[should_panic(expected = "the child lives on")]
    fn canary_look_before_insert() {
        insert::<{ mutation::LOOK_BEFORE_INSERT }>(true);
    }
}
