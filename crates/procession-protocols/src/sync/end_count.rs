//! The number of senders, or of receivers, that a channel has.
//!
//! # End-count protocol
//!
//! ## Problem
//! The last end of a kind closes the channel. A weak sender makes a sender of a channel that is
//! being closed. Or the close happens before what another end has done.
//!
//! ## States
//! One word: the number of ends. Once it is 0, it stays so.
//!
//! ## Steps
//! - `Clone`, by an end: add 1.
//! - `Upgrade`, by a weak sender: one read-modify-write that adds 1, unless the word is 0.
//! - `Remove`, once by each end: subtract 1. The end that finds no other end closes the channel.
//!
//! ## Why it works
//! All of these change one word. An `Upgrade` before the `Remove` that would have been the last
//! adds an end, so that `Remove` is not the last. An `Upgrade` after the last `Remove` finds 0. The
//! last `Remove` acquires what the earlier ends have released.
//!
//! ## Checked by
//! `models::an_upgrade_against_the_last_end`, `models::canary_upgrade_without_rmw`;
//! `models::the_last_end_comes_after_the_others`, `models::canary_remove_relaxed`.

use procession_sync::atomic::AtomicUsize;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Upgrade` loads the word, then adds.
    pub const UPGRADE_WITHOUT_RMW: u8 = 1;
    /// `Remove` neither acquires nor releases.
    pub const REMOVE_RELAXED: u8 = 2;
}

/// The number of ends of one kind. Each end is counted while it lives.
#[derive(Debug)]
pub struct EndCount<const MUTATION: u8 = { mutation::SOUND }>(AtomicUsize);

impl<const MUTATION: u8> EndCount<MUTATION> {
    /// Creates a count of ends.
    pub fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// `Clone`: counts a clone of an end.
    pub fn add(&self) {
        // Relaxed: the end that is cloned keeps the count above 0.
        self.0.fetch_add(1, Relaxed);
    }

    /// `Upgrade`: counts one more end, unless there is none.
    pub fn add_if_any(&self) -> bool {
        if MUTATION == mutation::UPGRADE_WITHOUT_RMW {
            return self.0.load(Relaxed) > 0 && self.0.fetch_add(1, Relaxed) < usize::MAX;
        }
        let more = |ends| (ends > 0).then_some(ends + 1);
        // Relaxed: what an end does is ordered by the lock of its channel.
        self.0.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// `Remove`: counts an end that is dropped. Returns `true` if it was the last one.
    pub fn remove(&self) -> bool {
        let order = if MUTATION == mutation::REMOVE_RELAXED { Relaxed } else { AcqRel };
        // Ordering: AcqRel pairs with itself, so that the last end is after what the earlier ends
        // have done, and with the Acquire of `is_none`.
        self.0.fetch_sub(1, order) == 1
    }

    /// Returns `true` once the last end was dropped. It stays so.
    pub fn is_none(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `remove`.
        self.0.load(Acquire) == 0
    }

    /// Returns the number of ends. It may be outdated when this returns.
    pub fn count(&self) -> usize {
        self.0.load(Relaxed)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::sync::Arc;

    use procession_sync::atomic::AtomicU32;
    use procession_sync::atomic::Ordering::Relaxed;
    use procession_sync::{explore, thread};

    use super::{EndCount, mutation};

    /// The only end is dropped, while another thread makes one.
    fn upgrade<const MUTATION: u8>() {
        explore(|| {
            let channel = Arc::new((EndCount::<MUTATION>::new(1), AtomicU32::new(0)));
            let weak = Arc::clone(&channel);
            let close_if_last = |(ends, closes): &(EndCount<MUTATION>, AtomicU32)| {
                if ends.remove() {
                    closes.fetch_add(1, Relaxed);
                }
            };
            let upgrades = thread::spawn(move || {
                if weak.0.add_if_any() {
                    close_if_last(&weak);
                }
            });
            close_if_last(&channel);
            upgrades.join().expect("it does not panic");
            assert_eq!(channel.1.load(Relaxed), 1, "the channel is closed once");
            assert!(channel.0.is_none() && !channel.0.add_if_any(), "and stays so");
        });
    }

    #[test]
    fn an_upgrade_against_the_last_end() {
        upgrade::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the channel is closed once")]
    fn canary_upgrade_without_rmw() {
        upgrade::<{ mutation::UPGRADE_WITHOUT_RMW }>();
    }

    /// Two ends do something and are dropped. The last one sees what the other has done.
    fn remove_both<const MUTATION: u8>() {
        explore(|| {
            let channel =
                Arc::new((EndCount::<MUTATION>::new(2), [(); 2].map(|()| AtomicU32::new(0))));
            let act_and_drop = |own: usize, (ends, done): &(EndCount<MUTATION>, [AtomicU32; 2])| {
                done[own].store(1, Relaxed);
                if ends.remove() {
                    let all_done = done.iter().all(|done| done.load(Relaxed) == 1);
                    assert!(all_done, "the last end comes after the others");
                }
            };
            let other = Arc::clone(&channel);
            let other = thread::spawn(move || act_and_drop(1, &other));
            act_and_drop(0, &channel);
            other.join().expect("the last end comes after the others");
        });
    }

    #[test]
    fn the_last_end_comes_after_the_others() {
        remove_both::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the last end comes after the others")]
    fn canary_remove_relaxed() {
        remove_both::<{ mutation::REMOVE_RELAXED }>();
    }
}
