//! The waker that a handle leaves with its process, to be woken at the end.
//!
//! # Waiter protocol
//!
//! ## Problem
//! A handle leaves its waker as the process ends: nobody wakes it. Or it replaces its waker while
//! the end takes it.
//!
//! ## States
//! A cell, and two bits of the state word (`process/state.rs`): the phase, and `WAITER`, which says
//! that the cell is the end's.
//!
//! ## Steps
//! The handle: `Reclaim` one read-modify-write that clears `WAITER`, if it is set; if the process
//! is complete, the cell was the end's, and the handle keeps off it · `Write` the cell · `Watch`
//! one read-modify-write that sets `WAITER`; if the process is complete, nobody looks at the cell
//! any more, and the handle takes its waker back. When it goes, it reclaims the cell, and empties
//! it. The end: `Complete`, one read-modify-write of the same word · if it answers `WAITER`: `Take`
//! what is in the cell, and wake it.
//!
//! ## Why it works
//! All of these change one word, so they are ordered. `Complete` after `Watch` and before any
//! `Reclaim` finds `WAITER`: the cell is its own, since a later `Reclaim` answers that the process
//! is complete. Any other `Complete` finds no `WAITER` and keeps off; then the next `Watch` answers
//! that the process is complete, or the handle was about to go.
//!
//! ## Allowed
//! A handle that goes between `Complete` and `Take` has its waker woken all the same.
//!
//! ## Rejected
//! A lock around the cell: three locks for each join (`step`: 60 ns of 250, two read-modify-writes
//! each).
//!
//! ## Invariants
//! - `[handle]` the handle's steps are made by the one handle of the process, one after the other.
//! - `[cell]` the cell is the handle's while `WAITER` is not set; from `Complete` on, if that has
//!   found `WAITER` set, it is the end's.
//!
//! ## Checked by
//! `models::leave_against_end`, `models::leave_again_against_end`, `models::withdraw_against_end`,
//! `models::canary_write_without_reclaim`.

use std::task::Waker;

use procession_sync::cell::UnsafeCell;

use crate::process::state::State;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// The handle writes the cell without `Reclaim`.
    #[cfg(all(test, procession_loom))]
    pub(crate) const WRITE_WITHOUT_RECLAIM: u8 = 1;
}

/// Where the handle leaves its waker. `W` is a waker, but for models.
pub(crate) struct Waiter<W = Waker, const MUTATION: u8 = { mutation::SOUND }>(
    UnsafeCell<Option<W>>,
);

// SAFETY: [cell] at every moment, one thread may touch it.
unsafe impl<W: Send, const MUTATION: u8> Sync for Waiter<W, MUTATION> {}

impl<W, const MUTATION: u8> Waiter<W, MUTATION> {
    pub(crate) fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// # Safety
    /// `[cell]`: it is the caller's.
    unsafe fn replace(&self, waker: Option<W>) -> Option<W> {
        // SAFETY: [cell] by the caller.
        self.0.with_mut(|cell| unsafe { std::mem::replace(&mut *cell, waker) })
    }

    /// `Reclaim`, `Write`, `Watch`: says whether it was too late, so that nobody will be woken. The
    /// rest is to be dropped where the user's code may run.
    ///
    /// # Safety
    /// `[handle]`
    pub(crate) unsafe fn leave(&self, state: &State, waker: W) -> (bool, [Option<W>; 2]) {
        let reclaims = MUTATION == mutation::SOUND && state.see().has_waiter();
        if reclaims && state.unwatch().is_complete() {
            return (true, [Some(waker), None]);
        }
        // SAFETY: [cell] `WAITER` is not set.
        let old = unsafe { self.replace(Some(waker)) };
        if !state.watch().is_complete() {
            return (false, [old, None]);
        }
        // SAFETY: [cell] the process was complete before `WAITER` was set.
        (true, [old, unsafe { self.replace(None) }])
    }

    /// The handle goes, or takes the result: what it left is to be dropped where the user's code
    /// may run.
    ///
    /// # Safety
    /// `[handle]`
    pub(crate) unsafe fn withdraw(&self, state: &State) -> Option<W> {
        let seen = state.see();
        if !seen.has_waiter() || seen.is_complete() || state.unwatch().is_complete() {
            return None;
        }
        // SAFETY: [cell] `WAITER` is not set.
        unsafe { self.replace(None) }
    }

    /// `Take`.
    ///
    /// # Safety
    /// `[cell]`: the caller completed the process, and found `WAITER` set.
    pub(crate) unsafe fn take(&self) -> Option<W> {
        // SAFETY: [cell] by the caller.
        unsafe { self.replace(None) }
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, explore, thread};

    use super::{Waiter, mutation};
    use crate::process::state::State;

    /// A process in its last step ends on another thread, while `handle` does what a handle does;
    /// what the end woke.
    fn end_against<R, const MUTATION: u8>(
        handle: impl FnOnce(&State, &Waiter<u32, MUTATION>) -> R,
    ) -> (R, Option<u32>) {
        let process = Arc::new((State::vacant(), Waiter::<u32, MUTATION>::empty()));
        process.0.renew();
        let _ = process.0.start();
        let end = {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                let (state, waiter) = &*process;
                // SAFETY: [cell] as just found.
                if state.complete().has_waiter() { unsafe { waiter.take() } } else { None }
            })
        };
        let (state, waiter) = &*process;
        let result = handle(state, waiter);
        (result, end.join().expect("the end does not panic"))
    }

    #[test]
    fn leave_against_end() {
        explore(|| {
            let (is_complete, woken) = end_against::<_, { mutation::SOUND }>(|state, waiter| {
                // SAFETY: [handle] this is the only one.
                unsafe { waiter.leave(state, 1) }.0
            });
            assert_eq!(woken.is_some(), !is_complete, "the handle is woken, or finds the end");
        });
    }

    fn leave_again<const MUTATION: u8>() {
        explore(|| {
            let (is_complete, woken) = end_against::<_, MUTATION>(|state, waiter| {
                // SAFETY: [handle] this is the only one.
                let first = unsafe { waiter.leave(state, 1) }.0;
                // SAFETY: [handle] as above.
                first || unsafe { waiter.leave(state, 2) }.0
            });
            assert!(
                is_complete || woken == Some(2),
                "the last waker is woken, or the handle finds the end"
            );
        });
    }

    #[test]
    fn leave_again_against_end() {
        leave_again::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_write_without_reclaim() {
        leave_again::<{ mutation::WRITE_WITHOUT_RECLAIM }>();
    }

    #[test]
    fn withdraw_against_end() {
        explore(|| {
            let (withdrawn, woken) = end_against::<_, { mutation::SOUND }>(|state, waiter| {
                // SAFETY: [handle] this is the only one.
                if unsafe { waiter.leave(state, 1) }.0 {
                    return Some(1);
                }
                // SAFETY: [handle] as above.
                unsafe { waiter.withdraw(state) }
            });
            assert!(withdrawn.is_some() != woken.is_some(), "a waker is dropped or woken, once");
        });
    }
}
