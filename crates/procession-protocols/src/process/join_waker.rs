//! The waker that a handle leaves with its process, to be woken at the end.
//!
//! # Join-waker protocol
//!
//! ## Problem
//! A handle leaves its waker while the process ends, and no thread wakes it. Or the handle replaces
//! its waker while the end takes it.
//!
//! ## States
//! A cell, and two parts of the state word (`process/state.rs`): the phase, and the flag `WAITER`,
//! which is set while the cell belongs to the end.
//!
//! ## Steps
//! The handle:
//! - `Reclaim`, if `WAITER` is set: one read-modify-write that clears it. If the process is
//!   complete, the cell belongs to the end, and the handle does not touch it.
//! - `Write` the cell.
//! - `Watch`: one read-modify-write that sets `WAITER`. If the process is complete, the end does
//!   not read the cell any more, and the handle takes its waker back.
//! - When the handle is dropped, it reclaims the cell and empties it.
//!
//! The end:
//! - `Complete`: one read-modify-write of the same word.
//! - `Take`, if `Complete` found `WAITER`: take the waker out of the cell, and wake it.
//!
//! ## Why it works
//! All of these change one word, so they are ordered. A `Complete` after `Watch` and before any
//! `Reclaim` finds `WAITER`. The cell then belongs to the end, because a later `Reclaim` finds the
//! process complete. Any other `Complete` finds `WAITER` clear and does not touch the cell. Then
//! the next `Watch` finds the process complete, or the handle was being dropped.
//!
//! ## Allowed
//! If the handle is dropped between `Complete` and `Take`, its waker is woken nevertheless.
//!
//! ## Rejected
//! A lock around the cell: three locks for each join (`step`: 60 ns of 250, two read-modify-writes
//! each).
//!
//! ## Invariants
//! - `[handle]` the one handle of the process makes the handle's steps, one after the other.
//! - `[cell]` the cell belongs to the handle while `WAITER` is clear. From `Complete` on, if that
//!   has found `WAITER` set, it belongs to the end.
//!
//! ## Checked by
//! `models::leave_against_end`, `models::leave_again_against_end`, `models::withdraw_against_end`,
//! `models::canary_write_without_reclaim`.

use std::fmt;
use std::task::Waker;

use procession_sync::cell::UnsafeCell;

use crate::process::state::State;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("join_waker", SOUND);
    /// The handle writes the cell without `Reclaim`.
    pub const WRITE_WITHOUT_RECLAIM: u8 = 1;
}

/// The cell for the waker of the handle. `W` is a `Waker`, except in models.
pub struct JoinWaker<W = Waker, const MUTATION: u8 = { mutation::BUILT }>(UnsafeCell<Option<W>>);

impl<W, const MUTATION: u8> fmt::Debug for JoinWaker<W, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinWaker(..)")
    }
}

// SAFETY: [cell] at every moment, only one thread may touch the cell.
unsafe impl<W: Send, const MUTATION: u8> Sync for JoinWaker<W, MUTATION> {}

impl<W, const MUTATION: u8> JoinWaker<W, MUTATION> {
    /// Creates a cell without a waker.
    pub fn empty() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// # Safety
    /// `[cell]`: the cell belongs to the caller.
    unsafe fn replace(&self, waker: Option<W>) -> Option<W> {
        // SAFETY: [cell] by the caller.
        self.0.with_mut(|cell| unsafe { std::mem::replace(&mut *cell, waker) })
    }

    /// `Reclaim`, `Write`, `Watch`. Returns `true` if the process was complete, so that the waker
    /// will not be woken. The wakers that it returns are to be dropped where user code may run.
    ///
    /// # Safety
    /// `[handle]`
    pub unsafe fn leave(&self, state: &State, waker: W) -> (bool, [Option<W>; 2]) {
        let reclaims =
            !mutation::is(MUTATION, mutation::WRITE_WITHOUT_RECLAIM) && state.see().has_waiter();
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

    /// Empties the cell when the handle is dropped or takes the result. The waker that it returns
    /// is to be dropped where user code may run.
    ///
    /// # Safety
    /// `[handle]`
    pub unsafe fn withdraw(&self, state: &State) -> Option<W> {
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
    pub unsafe fn take(&self) -> Option<W> {
        // SAFETY: [cell] by the caller.
        unsafe { self.replace(None) }
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, explore, thread};

    use super::{JoinWaker, mutation};
    use crate::process::state::State;

    /// Ends a process in its last step on another thread, while `handle` acts as a handle. Returns
    /// the waker that the end woke.
    fn end_against<R, const MUTATION: u8>(
        handle: impl FnOnce(&State, &JoinWaker<u32, MUTATION>) -> R,
    ) -> (R, Option<u32>) {
        let process = Arc::new((State::vacant(), JoinWaker::<u32, MUTATION>::empty()));
        process.0.renew();
        let _ = process.0.start();
        let end = {
            let process = Arc::clone(&process);
            thread::spawn(move || {
                let (state, waiter) = &*process;
                if state.complete(true).expect("its names are released").has_waiter() {
                    // SAFETY: [cell] as just found.
                    unsafe { waiter.take() }
                } else {
                    None
                }
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
