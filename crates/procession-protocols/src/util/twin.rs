//! An allocation with two owners, as a channel with two ends has it.
//!
//! # Twin protocol
//!
//! ## Problem
//! Two owners on two threads let an allocation go, and the later one frees it. A count of
//! references, as in an `Arc`, is changed four times for that: when there are two owners, when each
//! owner leaves, and once for a weak reference that nobody has. Each change is a read-modify-write.
//! A channel for one value is made, used and freed in some 40 ns, and the four changes would take
//! half that time.
//!
//! ## States
//! One word, `has_one`: whether an owner has left.
//!
//! ## Steps
//! `Leave`, once by each owner: `Look` load the word; if it is set, the other owner has left.
//! Otherwise swap `true` in, and look at the word that was there. The owner that finds the word set
//! is the last, and frees the allocation.
//!
//! ## Why it works
//! Of two swaps, the second finds the word set. If an owner finds it set by `Look`, the other owner
//! has swapped, and touches the allocation no more. So exactly one owner is the last. It acquires
//! what the first owner has released, so all that the first owner has done is before the free.
//!
//! ## Rejected
//! - An `Arc`: `oneshot` took 49 ns instead of 33.
//! - Two `Shares` (`util/shares.rs`), which have a number of shares in each owner: 40.6 ns instead
//!   of 36.0.
//!
//! ## Invariants
//! - `[two]` an allocation has two owners, which are made together and never cloned. The owner that
//!   leaves last frees it.
//!
//! ## Checked by
//! `models::the_last_frees`, `models::canary_leave_relaxed`, `models::canary_leave_without_swap`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Leave` neither acquires nor releases.
    pub const LEAVE_RELAXED: u8 = 1;
    /// `Leave` loads the word, then stores.
    pub const LEAVE_WITHOUT_SWAP: u8 = 2;
}

struct TwinBox<T> {
    has_one: AtomicBool,
    value: T,
}

/// One of the two owners of a value.
pub struct Twin<T, const MUTATION: u8 = { mutation::SOUND }> {
    shared: NonNull<TwinBox<T>>,
    owns: PhantomData<TwinBox<T>>,
}

// SAFETY: [two] both owners lend the value, and either may drop it or move it out.
unsafe impl<T: Send + Sync, const MUTATION: u8> Send for Twin<T, MUTATION> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, const MUTATION: u8> Sync for Twin<T, MUTATION> {}

// The value does not move with its owners.
impl<T, const MUTATION: u8> Unpin for Twin<T, MUTATION> {}

impl<T, const MUTATION: u8> Twin<T, MUTATION> {
    /// Allocates a value with two owners.
    #[inline]
    pub fn new(value: T) -> (Self, Self) {
        let shared = Box::new(TwinBox { has_one: AtomicBool::new(false), value });
        let shared = NonNull::from(Box::leak(shared));
        (Self { shared, owns: PhantomData }, Self { shared, owns: PhantomData })
    }

    /// Returns the value if the other owner has left, and otherwise this owner.
    #[inline]
    pub fn into_inner(self) -> Result<T, Self> {
        if !self.is_alone() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: [two] the other owner has left, and this one leaves here.
        let shared = unsafe { Box::from_raw(this.shared.as_ptr()) };
        #[cfg(procession_sim)]
        procession_sync::simulated::moves(&*shared);
        Ok(shared.value)
    }

    fn shared(&self) -> &TwinBox<T> {
        // SAFETY: [two] this owner has not left.
        unsafe { self.shared.as_ref() }
    }

    /// `Look`.
    #[inline]
    fn is_alone(&self) -> bool {
        let order = if MUTATION == mutation::LEAVE_RELAXED { Relaxed } else { Acquire };
        // Ordering: Acquire pairs with the Release of `leave`, so that all that the other owner has
        // done is before what this owner does next.
        self.shared().has_one.load(order)
    }

    /// `Leave`. Returns `true` if this owner is the last.
    #[inline]
    fn leave(&self) -> bool {
        if self.is_alone() {
            return true;
        }
        let has_one = &self.shared().has_one;
        if MUTATION == mutation::LEAVE_WITHOUT_SWAP {
            has_one.store(true, Release);
            return false;
        }
        let order = if MUTATION == mutation::LEAVE_RELAXED { Relaxed } else { AcqRel };
        // Ordering: Release pairs with the Acquire of the last owner, here or in `is_alone`.
        has_one.swap(true, order)
    }
}

impl<T, const MUTATION: u8> Deref for Twin<T, MUTATION> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T, const MUTATION: u8> Drop for Twin<T, MUTATION> {
    #[inline]
    fn drop(&mut self) {
        if self.leave() {
            // SAFETY: [two] the other owner has left, and so has this one.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug, const MUTATION: u8> fmt::Debug for Twin<T, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::sync::Arc;

    use procession_sync::atomic::AtomicU32;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::cell::UnsafeCell;
    use procession_sync::{explore, thread};

    use super::{Twin, mutation};

    /// A value that the owners touch one after the other, and the number of times that it was
    /// freed.
    struct Value {
        touched: UnsafeCell<u32>,
        freed: Arc<AtomicU32>,
    }

    impl Drop for Value {
        fn drop(&mut self) {
            // SAFETY: the owner that frees is alone, which the model checks.
            self.touched.with_mut(|touched| unsafe { *touched += 1 });
            self.freed.fetch_add(1, Relaxed);
        }
    }

    fn leave_both<const MUTATION: u8>() {
        explore(|| {
            let freed = Arc::new(AtomicU32::new(0));
            let value = Value { touched: UnsafeCell::new(0), freed: Arc::clone(&freed) };
            let (first, second) = Twin::<_, MUTATION>::new(value);
            let other = thread::spawn(move || {
                // SAFETY: only this owner touches it before it is alone.
                first.touched.with_mut(|touched| unsafe { *touched = 7 });
                drop(first);
            });
            // Either of the two ways to be the last.
            match second.into_inner() {
                Ok(value) => {
                    // SAFETY: as above.
                    let touched = value.touched.with(|touched| unsafe { *touched });
                    assert_eq!(touched, 7, "what the other owner did is seen");
                }
                Err(second) => drop(second),
            }
            other.join().expect("it does not panic");
            assert_eq!(freed.load(Relaxed), 1, "the value is freed once");
        });
    }

    #[test]
    fn the_last_frees() {
        leave_both::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_leave_relaxed() {
        leave_both::<{ mutation::LEAVE_RELAXED }>();
    }

    #[test]
    #[should_panic(expected = "the value is freed once")]
    fn canary_leave_without_swap() {
        leave_both::<{ mutation::LEAVE_WITHOUT_SWAP }>();
    }
}
