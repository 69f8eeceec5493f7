//! A value with a number of owners that is known when it is allocated.
//!
//! # Shares protocol
//!
//! ## Problem
//! A message is to be read by a number of receivers. With an `Arc`, each receiver adds itself to
//! the count, under the lock of the channel, and subtracts itself: two read-modify-writes of a line
//! that other processors also use.
//!
//! ## States
//! One word, `left`: the number of shares that exist.
//!
//! ## Steps
//! - Allocate, and divide into all shares, which one owner has. An owner passes a share to another
//!   owner without a change of the word.
//! - `Look`: an owner that loads its own number of shares is alone.
//! - `Leave`, once by each owner: `Look`, and if it is not alone, lower the word by its shares. The
//!   owner that finds no other shares frees the value.
//!
//! ## Why it works
//! The word is lowered only by owners that leave, so it is at least the number of shares of the
//! owners that have not left. An owner that finds itself alone by `Look` leaves the word as it is,
//! and nobody reads it afterwards. All other owners lower one word by read-modify-writes. So
//! exactly one owner finds no other shares. It acquires what the other owners have released, so the
//! free follows all that they did. The same holds for what an owner does after a `Look` that finds
//! no other shares.
//!
//! ## Rejected
//! - An `Arc` for each message of a broadcast: `broadcast` took 41 ns per message instead of 25.
//! - A `Leave` without the look: one read-modify-write more for the last owner, and `broadcast`
//!   took 26.1 ns instead of 24.9.
//!
//! ## Invariants
//! - `[share]` an owner has at least one share. The sum of the shares of all owners is at most the
//!   word.
//!
//! ## Checked by
//! `models::the_last_frees`, `models::canary_leave_relaxed`, `models::canary_look_relaxed`,
//! `models::canary_leave_without_rmw`; `models::two_owners_leave`,
//! `models::canary_owner_leaves_relaxed`, `models::canary_owner_leaves_without_rmw`; `tests`.

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Leave` neither acquires nor releases.
    pub const LEAVE_RELAXED: u8 = 1;
    /// `Look` does not acquire.
    pub const LOOK_RELAXED: u8 = 2;
    /// `Leave` loads the word, then stores.
    pub const LEAVE_WITHOUT_RMW: u8 = 3;
}

struct SharedBox<T> {
    left: AtomicUsize,
    value: T,
}

/// An owner of a value, with one share or more.
pub struct Shares<T, const MUTATION: u8 = { mutation::SOUND }> {
    shared: NonNull<SharedBox<T>>,
    count: usize,
    owns: PhantomData<SharedBox<T>>,
}

// SAFETY: [share] all owners lend the value, and any may drop it or move it out.
unsafe impl<T: Send + Sync, const MUTATION: u8> Send for Shares<T, MUTATION> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync, const MUTATION: u8> Sync for Shares<T, MUTATION> {}

// As an `Arc`: owners lend the value.
impl<T: RefUnwindSafe, const MUTATION: u8> UnwindSafe for Shares<T, MUTATION> {}
impl<T: RefUnwindSafe, const MUTATION: u8> RefUnwindSafe for Shares<T, MUTATION> {}

// The value does not move with its owners.
impl<T, const MUTATION: u8> Unpin for Shares<T, MUTATION> {}

impl<T, const MUTATION: u8> Shares<T, MUTATION> {
    /// Allocates a value with one share.
    #[inline]
    pub fn new(value: T) -> Self {
        let shared = Box::new(SharedBox { left: AtomicUsize::new(1), value });
        Self { shared: NonNull::from(Box::leak(shared)), count: 1, owns: PhantomData }
    }

    /// Divides a value without another owner into `count` shares, and at least one.
    #[inline]
    pub fn into_shares(mut self, count: usize) -> Self {
        self.assert_alone();
        self.count = count.max(1);
        // Relaxed: the other owners see this store when they receive their shares.
        self.shared().left.store(self.count, Relaxed);
        self
    }

    /// Returns a value without another owner.
    pub fn into_alone(self) -> T {
        self.assert_alone();
        self.into_inner().unwrap_or_else(|_| unreachable!("it is alone"))
    }

    fn assert_alone(&self) {
        assert!(self.is_alone(), "there is no other owner");
    }

    /// Splits off one share, for another owner. Returns `None` if this owner has only one.
    #[inline]
    pub fn split(&mut self) -> Option<Self> {
        if self.count == 1 {
            return None;
        }
        self.count -= 1;
        Some(Self { shared: self.shared, count: 1, owns: PhantomData })
    }

    /// Returns the value if there is no other owner, and otherwise this owner.
    #[inline]
    pub fn into_inner(self) -> Result<T, Self> {
        if !self.is_alone() {
            return Err(self);
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: [share] all other owners have left, and this one leaves here.
        let shared = unsafe { Box::from_raw(this.shared.as_ptr()) };
        #[cfg(procession_sim)]
        procession_sync::simulated::moves(&*shared);
        Ok(shared.value)
    }

    #[inline]
    fn shared(&self) -> &SharedBox<T> {
        // SAFETY: [share] this owner has not left.
        unsafe { self.shared.as_ref() }
    }

    /// `Look`.
    #[inline]
    fn is_alone(&self) -> bool {
        let order = if MUTATION == mutation::LOOK_RELAXED { Relaxed } else { Acquire };
        // Ordering: Acquire pairs with the Release of `Leave`, so that all that other owners have
        // done is before what this owner does next.
        self.shared().left.load(order) == self.count
    }

    /// `Leave`. Returns `true` if this owner is the last.
    #[inline]
    fn leave(&self) -> bool {
        if self.is_alone() {
            return true;
        }
        let left = &self.shared().left;
        if MUTATION == mutation::LEAVE_WITHOUT_RMW {
            let before = left.load(Acquire);
            left.store(before - self.count, Release);
            return before == self.count;
        }
        let order = if MUTATION == mutation::LEAVE_RELAXED { Relaxed } else { AcqRel };
        // Ordering: Release pairs with the Acquire of the last owner, here or in `is_alone`.
        left.fetch_sub(self.count, order) == self.count
    }
}

impl<T, const MUTATION: u8> Deref for Shares<T, MUTATION> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.shared().value
    }
}

impl<T, const MUTATION: u8> Drop for Shares<T, MUTATION> {
    #[inline]
    fn drop(&mut self) {
        if self.leave() {
            // SAFETY: [share] all owners have left.
            drop(unsafe { Box::from_raw(self.shared.as_ptr()) });
        }
    }
}

impl<T: fmt::Debug, const MUTATION: u8> fmt::Debug for Shares<T, MUTATION> {
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

    use super::{Shares, mutation};

    /// A value that one owner touches before it leaves, and the number of times that it was freed.
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

    /// One owner touches the value and leaves. Another owner tries to take the value, and leaves if
    /// it is not alone.
    fn leave_both<const MUTATION: u8>(shares: usize) {
        explore(move || {
            let freed = Arc::new(AtomicU32::new(0));
            let value = Value { touched: UnsafeCell::new(0), freed: Arc::clone(&freed) };
            let mut second = Shares::<_, MUTATION>::new(value).into_shares(shares);
            let first = second.split().expect("there are several shares");
            // Its drop touches the value, whichever of the two ways is taken. loom tries other
            // orders of the latest access of a word only, so the owner that looks first is the
            // spawned owner: its look is then tried before the leave of the other owner, and after
            // it.
            let other = thread::spawn(move || drop(second.into_inner()));
            // SAFETY: only this owner touches it before another owner is alone.
            first.touched.with_mut(|touched| unsafe { *touched = 7 });
            drop(first);
            other.join().expect("it does not panic");
            assert_eq!(freed.load(Relaxed), 1, "the value is freed once");
        });
    }

    /// Both owners leave.
    fn drop_both<const MUTATION: u8>() {
        explore(|| {
            let freed = Arc::new(AtomicU32::new(0));
            let value = Value { touched: UnsafeCell::new(0), freed: Arc::clone(&freed) };
            let mut second = Shares::<_, MUTATION>::new(value).into_shares(2);
            let first = second.split().expect("there are two shares");
            let other = thread::spawn(move || {
                // SAFETY: only this owner touches it before another owner is alone.
                first.touched.with_mut(|touched| unsafe { *touched = 7 });
                drop(first);
            });
            drop(second);
            other.join().expect("it does not panic");
            assert_eq!(freed.load(Relaxed), 1, "the value is freed once");
        });
    }

    #[test]
    fn two_owners_leave() {
        drop_both::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_owner_leaves_relaxed() {
        drop_both::<{ mutation::LEAVE_RELAXED }>();
    }

    #[test]
    #[should_panic(expected = "the value is freed once")]
    fn canary_owner_leaves_without_rmw() {
        drop_both::<{ mutation::LEAVE_WITHOUT_RMW }>();
    }

    #[test]
    fn the_last_frees() {
        leave_both::<{ mutation::SOUND }>(2);
        leave_both::<{ mutation::SOUND }>(3);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_leave_relaxed() {
        leave_both::<{ mutation::LEAVE_RELAXED }>(2);
    }

    #[test]
    #[should_panic(expected = "Causality violation")]
    fn canary_look_relaxed() {
        leave_both::<{ mutation::LOOK_RELAXED }>(2);
    }

    #[test]
    #[should_panic(expected = "the value is freed once")]
    fn canary_leave_without_rmw() {
        leave_both::<{ mutation::LEAVE_WITHOUT_RMW }>(2);
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::rc::Rc;

    use super::Shares;

    #[test]
    fn the_last_owner_can_take_the_value() {
        let drops = Rc::new(());
        let mut all = Shares::<_>::new(Rc::clone(&drops)).into_shares(3);
        let (first, second) = (all.split(), all.split());
        assert!(all.split().is_none(), "it has one share left");
        drop(first);
        let all = all.into_inner().expect_err("there is another owner");
        drop(second);
        assert_eq!(Rc::strong_count(&all), 2);
        drop(all.into_inner().expect("it is alone"));
        assert_eq!(Rc::strong_count(&drops), 1);
    }

    #[test]
    fn shares_that_nobody_got_leave_together() {
        let drops = Rc::new(());
        let mut all = Shares::<_>::new(Rc::clone(&drops)).into_shares(5);
        let one = all.split();
        drop(all);
        assert_eq!(Rc::strong_count(&drops), 2);
        drop(one);
        assert_eq!(Rc::strong_count(&drops), 1);
        drop(Shares::<_>::new(Rc::clone(&drops)).into_shares(0));
        assert_eq!(Rc::strong_count(&drops), 1, "there is at least one share");
    }
}
