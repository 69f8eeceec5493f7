//! # Watch protocol
//!
//! ## Problem
//! A receiver finds no change and is about to wait. The value changes in between, and the receiver
//! must be woken. A receiver reads the value and notes the version that it has seen. If the value
//! changes in between the two, it would hold an old value for the new one, and miss the change.
//!
//! ## States
//! - The value, under a reader-writer lock. User code reads and writes under this lock.
//! - The *version*: twice the number of changes, plus one once no sender is left.
//! - A bell (`sync/bell.rs`) that rings for all receivers.
//!
//! ## Steps
//! - Change, under the write lock: write the value, then `Count` the version. After the lock is
//!   released, `Ring`.
//! - Read, under the read lock: read the value and the version.
//! - Wait: under the lock of the bell, compare the version with the version that was seen, and
//!   enlist if they are the same.
//! - Close: set the lowest bit of the version, then `Ring`.
//!
//! ## Why it works
//! The version changes under the write lock, so value and version that are read under one read lock
//! belong together. The critical section of `Ring` follows `Count`. So a wait is before it and is
//! rung for, or after it and sees the new version.
//!
//! ## Allowed
//! A receiver that is rung for may find a version that it has already seen. It then continues to
//! wait. A receiver that sees the new version between `Count` and `Ring` may stay enlisted, and is
//! woken once more.
//!
//! ## Rejected
//! A value in an `Arc`, which readers clone. A read would never block a change. But a change would
//! need a new value for each call, and `send_modify` a value that can be cloned.
//!
//! ## Checked by
//! `models::change_against_wait`, `models::close_against_wait`, `models::change_against_read`, and
//! their canaries.

use procession_sync::atomic::AtomicU64;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::{RwLock, RwLockReadGuard};

use crate::sync::bell::{Bell, Ringing};
use crate::sync::wait_list::ServedWaiters;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Ring` before `Count`.
    #[cfg(all(test, procession_loom))]
    pub const RING_FIRST: u8 = 1;
    /// Read the version without the read lock.
    #[cfg(all(test, procession_loom))]
    pub const VERSION_APART: u8 = 2;
}

const CLOSED: u64 = 1;
const CHANGE: u64 = 2;

/// The version of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(u64);

impl Version {
    /// The version of the first value.
    pub const FIRST: Self = Self(0);

    /// Returns `true` if no sender is left.
    #[inline]
    pub fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    /// Returns `true` for two versions of the same value, one of which may be closed.
    #[inline]
    pub fn is_same_value(self, other: Self) -> bool {
        self.0 | CLOSED == other.0 | CLOSED
    }

    /// Returns a version that differs from every present one.
    #[inline]
    pub fn before(self) -> Self {
        Self(self.0.wrapping_sub(CHANGE))
    }
}

/// The state of a watch, without its public types.
#[derive(Debug)]
pub struct WatchCore<T, const MUTATION: u8 = { mutation::SOUND }> {
    value: RwLock<T>,
    version: AtomicU64,
    /// The bell that rings for each change.
    pub bell: Bell,
}

impl<T, const MUTATION: u8> WatchCore<T, MUTATION> {
    /// Creates a channel with a first value.
    pub fn new(value: T) -> Self {
        Self { value: RwLock::new(value), version: AtomicU64::new(0), bell: Bell::new(()) }
    }

    /// Returns the version of the value.
    pub fn version(&self) -> Version {
        // Ordering: Acquire pairs with the Release of `Count`, for a caller that acts on the
        // version without reading the value.
        Version(self.version.load(Acquire))
    }

    /// Reads the value. The version belongs to the value, except that the watch may be closed.
    pub fn read(&self) -> (RwLockReadGuard<'_, T>, Version) {
        if cfg!(procession_loom) && MUTATION == 2 {
            let version = self.version();
            return (self.value.read(), version);
        }
        let value = self.value.read();
        (value, self.version())
    }

    /// Changes the value if `change` returns `true`. If so, returns the receivers, to be woken.
    pub fn change(&self, change: impl FnOnce(&mut T) -> bool) -> Option<ServedWaiters> {
        let is_early = cfg!(procession_loom) && MUTATION == 1;
        let mut early = is_early.then(|| self.bell.change(Ringing::ring_all));
        let mut value = self.value.write();
        if !change(&mut value) {
            return None;
        }
        // `Count`.
        // Ordering: Release pairs with the Acquire of `version`.
        self.version.fetch_add(CHANGE, Release);
        drop(value);
        early.take().or_else(|| Some(self.bell.change(Ringing::ring_all)))
    }

    /// Closes the watch. Returns the receivers, to be woken.
    pub fn close(&self) -> ServedWaiters {
        let is_early = cfg!(procession_loom) && MUTATION == 1;
        let mut early = is_early.then(|| self.bell.change(Ringing::ring_all));
        // Ordering: Release pairs with the Acquire of `version`.
        self.version.fetch_or(CLOSED, Release);
        early.take().unwrap_or_else(|| self.bell.change(Ringing::ring_all))
    }

    /// Returns the version if it differs from `seen` or is closed. Called under the lock of the
    /// bell.
    pub fn news(&self, seen: Version) -> Option<Version> {
        // Relaxed: the lock of the bell orders it after `Count`.
        let version = Version(self.version.load(Relaxed));
        (version.is_closed() || !version.is_same_value(seen)).then_some(version)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, explore, thread};

    use super::{Version, WatchCore, mutation};
    use crate::sync::wait_list::{Another, Place};

    /// Waits for a version other than `seen`. Returns `true` if there is one.
    fn look<const MUTATION: u8>(
        watch: &WatchCore<u32, MUTATION>,
        place: &mut Option<Place>,
        seen: Version,
    ) -> bool {
        watch.bell.change(|ringing| {
            ringing
                .look_or_enlist(place, &mut Another::none(), |()| watch.news(seen))
                .is_some_and(|looked| looked.is_ready())
        })
    }

    fn wait<const MUTATION: u8>(end: fn(&WatchCore<u32, MUTATION>)) {
        explore(move || {
            let watch = Arc::new(WatchCore::<u32, MUTATION>::new(0));
            let changes = {
                let watch = Arc::clone(&watch);
                thread::spawn(move || end(&watch))
            };
            let mut place = None;
            let first = look(&watch, &mut place, Version::FIRST);
            changes.join().expect("it does not panic");
            let is_rung = watch.bell.look(&mut place, &mut Another::none()).is_some();
            assert!(first || is_rung, "the receiver waits forever");
        });
    }

    fn set<const MUTATION: u8>(watch: &WatchCore<u32, MUTATION>) {
        drop(watch.change(|value| {
            *value += 1;
            true
        }));
    }

    fn close<const MUTATION: u8>(watch: &WatchCore<u32, MUTATION>) {
        drop(watch.close());
    }

    /// The value changes while a receiver begins to wait.
    #[test]
    fn change_against_wait() {
        wait::<{ mutation::SOUND }>(set);
    }

    #[test]
    #[should_panic(expected = "the receiver waits forever")]
    fn canary_ring_first() {
        wait::<{ mutation::RING_FIRST }>(set);
    }

    /// The last sender is dropped while a receiver begins to wait.
    #[test]
    fn close_against_wait() {
        wait::<{ mutation::SOUND }>(close);
    }

    #[test]
    #[should_panic(expected = "the receiver waits forever")]
    fn canary_close_rings_first() {
        wait::<{ mutation::RING_FIRST }>(close);
    }

    /// A receiver reads the value while it changes twice.
    fn read<const MUTATION: u8>() {
        explore(|| {
            let watch = Arc::new(WatchCore::<u32, MUTATION>::new(0));
            let changes = {
                let watch = Arc::clone(&watch);
                thread::spawn(move || {
                    set(&watch);
                    set(&watch);
                })
            };
            let (guard, seen) = watch.read();
            let value = *guard;
            drop(guard);
            changes.join().expect("it does not panic");
            let is_latest = watch.news(seen).is_none();
            assert_eq!(is_latest, value == 2, "a change is missed, or told twice");
        });
    }

    #[test]
    fn change_against_read() {
        read::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a change is missed, or told twice")]
    fn canary_version_apart() {
        read::<{ mutation::VERSION_APART }>();
    }
}
