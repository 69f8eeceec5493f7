//! The claim ring: what the deque and the FIFO ring are made of.
//!
//! # Claim protocol
//!
//! ## Problem
//! Thieves want half of a queue with one compare-and-swap, and the owner wants to work at the newest end. Beside a
//! Chase-Lev owner that is impossible: a thief reads `top` and `bottom`, copies k items and moves `top` by k; its
//! CAS proves only that `top` did not move, while the owner, who pops below `bottom` without a CAS, may have
//! taken some of the k meanwhile. One item runs twice, and `top` overtakes `bottom`, which loses the next push.
//! (`models::chase_lev_half_steal_doubles_an_item` exhibits the interleaving.)
//!
//! ## States
//! | word | who writes | meaning |
//! |---|---|---|
//! | `claims` = `head:32 \| pops:32` | thieves and owner, by CAS only | items before `head` were claimed at the old end; `pops` items were taken back at the new end |
//! | `pushes` | owner | items ever pushed |
//! | `done` | thieves, by addition | items whose copy out is complete |
//! | `taken`, `floor` | owner, unshared | items that the owner itself claimed at the old end; a lower bound of `head` below which no thief copies any more |
//!
//! `tail = pushes - pops`; the queue holds the indices `[head, tail)`; index i lives in slot `i % CAPACITY`. All
//! counters are 32 bits wide and wrap; only differences are compared.
//!
//! ## Steps
//! Owner, push: `Room` tail - floor < CAPACITY, else `Reclaim`: load `done`, **then** `head`; if
//! done + taken = head, every claimed item has left, and floor = head · `Fill` the slot · `Publish` store `pushes`.
//! Owner, pop: `PopClaim` CAS `pops + 1`; the item at tail - 1 is the owner's.
//! Owner, oldest: `OldClaim` CAS `head + 1`, and `taken + 1`; the item at head is the owner's.
//! Thief: `Look` load `claims`, then `pushes`; a length over the capacity is a stale pair of reads: retry ·
//! `Claim` CAS `head + k` · `Copy` the k slots · `Done` add k to `done`.
//!
//! ## Why it works
//! - *Nothing is claimed twice.* Every claim, at either end, is a successful CAS on the one word that holds both
//!   ends, so the claims are totally ordered and each was made against the ends that its predecessor left.
//! - *Nothing unwritten is claimed.* A successful `Claim` proves that no pop came between `Look` and it, so every
//!   push since `Look` only added to the end: an index that was below `pushes - pops` then is in the queue now.
//!   `pushes` is read at least as new as `pops`, which every claim releases. Read after more pushes and pops it may make the length
//!   too great, but then the `Claim` fails; a length over the capacity is not even tried.
//! - *Nothing is read before it is written.* `Publish` releases the slot, `Look` acquires it.
//! - *Nothing is overwritten while it is copied.* `done + taken <= head` always. Reading `done` first, then
//!   finding head equal to the sum, means that at the first of the two reads nobody was copying; and `Done`
//!   releases the copies. Reading `head` first would not do: two thieves of one item each can be half through
//!   when the sums happen to agree.
//!
//! ## Allowed
//! - A thief may see the queue shorter than it is, or empty, while a push is not visible to it yet. Whoever
//!   must not miss a push (a worker about to park) puts a `SeqCst` fence before it looks; see the crate docs.
//! - A thief that loses its CAS returns [`Steal::Retry`]: somebody else made progress.
//! - A thief preempted between `Claim` and `Done` delays only capacity: pushes find the ring full, other thieves
//!   are not hindered.
//! - A thief that sleeps between `Look` and `Claim` through an exact multiple of 2^32 pops, while no other
//!   thief claims, is fooled. At 5 ns a pop that is a sleep of 21 s, times a chance of one in 2^32. Likewise an owner that makes
//!   exactly a multiple of 2^32 pushes without one pop, while thieves take them all.
//!
//! ## Rejected
//! - A private part of the deque that only its owner sees (split deque: 1.3 ns per push and pop instead of 5.6):
//!   what it hides cannot be rescued from an owner that blocks in user code.
//! - Copying before the CAS (Go's `runqgrab`): no `done` word, but the copies race with the owner's writes, which
//!   is undefined behaviour in Rust for any item larger than an atomic.
//! - One thief at a time (tokio, st3), which needs no counting in `done`: a preempted thief then locks out all others.
//!
//! ## Invariants
//! - `[owner]` one [`Owned`] exists for each ring and is not `Sync`: its methods never run concurrently.
//! - `[claimed]` whoever moved `claims` over an index is alone in reading that slot, once.
//! - `[free]` a slot at an index in `[tail, floor + CAPACITY)` holds nothing, and nobody else accesses it.
//!
//! ## Checked by
//! `models::*`: the table of models and canaries in `models.rs`.

use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;

use procession_sync::Arc;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicU64};
use procession_sync::cell::UnsafeCell;

use crate::{Full, Global, Steal};

/// The defects that canary models plant, one at a time. What ships is [`SOUND`](mutation::SOUND).
pub(crate) mod mutation {
    /// No defect.
    pub(crate) const SOUND: u8 = 0;
    /// `Publish` does not release the slot.
    pub(crate) const PUBLISH_RELAXED: u8 = 1;
    /// `Done` does not release the copies.
    pub(crate) const DONE_RELAXED: u8 = 2;
    /// `Done` comes before `Copy`.
    pub(crate) const DONE_BEFORE_COPY: u8 = 3;
    /// `Reclaim` reads `head` before `done`.
    pub(crate) const HEAD_BEFORE_DONE: u8 = 4;
    /// `PopClaim` is a plain store, as in a Chase-Lev owner.
    pub(crate) const POP_WITHOUT_CAS: u8 = 5;
    /// `OldClaim` is a plain store.
    pub(crate) const OLDEST_WITHOUT_CAS: u8 = 6;
    /// `Claim` is a plain store.
    pub(crate) const CLAIM_WITHOUT_CAS: u8 = 7;
    /// A wrap of `pops` carries into `head`.
    pub(crate) const POPS_CARRY: u8 = 8;
    /// A claim does not release the pushes before it.
    pub(crate) const CLAIM_RELAXED: u8 = 9;
}

/// `head:32 | pops:32`. Shifting and masking happen here only.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claims(u64);

impl Claims {
    fn new(head: u32, pops: u32) -> Self {
        Self(u64::from(head) << 32 | u64::from(pops))
    }

    fn head(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn pops(self) -> u32 {
        self.0 as u32
    }
}

/// In the second half of the room, every so many pushes look for slots that were given back. At the last moment alone, a thief that
/// happens to copy just then would make a nearly empty ring full: 1.2 pushes of 1000 against one thief, and none like this.
const RECLAIM_EVERY: u32 = 64;

/// Keeps what different threads write apart: two cache lines, because processors prefetch them in pairs.
#[repr(align(128))]
struct Apart<T>(T);

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// What the owner and the thieves share.
pub(crate) struct Ring<T, const CAPACITY: usize, const MUTATION: u8> {
    claims: Apart<AtomicU64>,
    /// Written by the owner only, which therefore never needs a read-modify-write.
    pushes: Apart<AtomicU32>,
    /// Added to by thieves, read by the owner when the ring looks full.
    done: Apart<AtomicU32>,
    slots: Box<[Slot<T>; CAPACITY]>,
}

// SAFETY: [claimed] and [free] let one thread at a time touch a slot, and the items themselves only move.
unsafe impl<T: Send, const CAPACITY: usize, const MUTATION: u8> Send for Ring<T, CAPACITY, MUTATION> {}
// SAFETY: as above; a shared reference gives no shared access to an item.
unsafe impl<T: Send, const CAPACITY: usize, const MUTATION: u8> Sync for Ring<T, CAPACITY, MUTATION> {}

/// What came of an attempt to claim at the old end.
enum Claim {
    Empty,
    Lost,
    Won { head: u32, count: u32 },
}

impl<T, const CAPACITY: usize, const MUTATION: u8> Ring<T, CAPACITY, MUTATION> {
    fn slot(&self, index: u32) -> &Slot<T> {
        &self.slots[index as usize & (CAPACITY - 1)]
    }

    /// Moves the content of a slot out, bitwise.
    ///
    /// # Safety
    /// `[claimed]`: the caller moved `claims` over `index`, and reads it for the first time.
    unsafe fn read(&self, index: u32) -> MaybeUninit<T> {
        // SAFETY: [claimed], passed on by the caller.
        self.slot(index).with(|slot| unsafe { slot.read() })
    }

    /// The indices in the queue, as a thief sees them; `None` if the two reads do not fit together.
    fn look(&self) -> Option<(Claims, u32)> {
        // Ordering: Acquire pairs with the Release of the claims; the `pushes` that is read next is at least as new as these `pops`, so
        // a ring that never was empty is not seen so.
        let claims = Claims(self.claims.0.load(Acquire));
        // Ordering: Acquire pairs with the Release of `Publish`; makes the slots below `pushes` visible.
        let pushes = self.pushes.0.load(Acquire);
        let length = pushes.wrapping_sub(claims.pops()).wrapping_sub(claims.head());
        (length as usize <= CAPACITY).then_some((claims, length))
    }

    /// Claims items at the old end: half of what is there, rounded up, and at most `limit`.
    fn claim_half(&self, limit: u32) -> Claim {
        let Some((claims, length)) = self.look() else {
            return Claim::Lost;
        };
        let count = length.div_ceil(2).min(limit);
        if count == 0 {
            return Claim::Empty;
        }
        let head = claims.head();
        let moved = Claims::new(head.wrapping_add(count), claims.pops());
        if self.swap_claims(claims, moved, MUTATION == mutation::CLAIM_WITHOUT_CAS).is_ok() {
            Claim::Won { head, count }
        } else {
            Claim::Lost
        }
    }

    fn swap_claims(&self, old: Claims, new: Claims, planted_store: bool) -> Result<(), Claims> {
        if planted_store {
            self.claims.0.store(new.0, Relaxed);
            return Ok(());
        }
        // Ordering: Release pairs with the Acquire of `Look`. Not Acquire: the slots of a claim were acquired through `pushes`, and
        // are given back through `done`; the word itself only decides whose they are.
        let order = if MUTATION == mutation::CLAIM_RELAXED { Relaxed } else { Release };
        match self.claims.0.compare_exchange(old.0, new.0, order, Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(Claims(now)),
        }
    }

    /// Says that `count` claimed slots have been read for the last time.
    fn finish(&self, count: u32) {
        let order = if MUTATION == mutation::DONE_RELAXED { Relaxed } else { Release };
        // Ordering: Release pairs with the Acquire of `Reclaim`; the owner must not write a slot before this
        // thread has read it. An addition, so that it continues the release sequence of the other thieves.
        self.done.0.fetch_add(count, order);
    }

    /// Steals the oldest item.
    pub(crate) fn steal_one(&self) -> Steal<T> {
        let head = match self.claim_half(1) {
            Claim::Empty => return Steal::Empty,
            Claim::Lost => return Steal::Retry,
            Claim::Won { head, .. } => head,
        };
        // SAFETY: [claimed] by the line above.
        let item = unsafe { self.read(head) };
        self.finish(1);
        // SAFETY: an index below `tail` was filled before `Publish`.
        Steal::Success(unsafe { item.assume_init() })
    }

    /// How many items there are, at some moment during the call.
    pub(crate) fn len(&self) -> usize {
        loop {
            // Unchanged claims mean that the two reads fit together. Another round means that somebody popped or stole.
            if let Some((claims, length)) = self.look()
                && Claims(self.claims.0.load(Relaxed)) == claims
            {
                return length as usize;
            }
            procession_sync::hint::spin_loop();
        }
    }
}

impl<T, const CAPACITY: usize, const MUTATION: u8> Drop for Ring<T, CAPACITY, MUTATION> {
    fn drop(&mut self) {
        // The last reference is gone: no owner, no thief, and every claim has been copied out.
        let claims = Claims(self.claims.0.load(Relaxed));
        let tail = self.pushes.0.load(Relaxed).wrapping_sub(claims.pops());
        let mut rest = Rest { ring: self, next: claims.head(), tail };
        rest.drop_each();
    }
}

/// The items that a dropped ring still holds. If the `Drop` of one panics, those behind it are dropped all the same.
struct Rest<'a, T, const CAPACITY: usize, const MUTATION: u8> {
    ring: &'a Ring<T, CAPACITY, MUTATION>,
    next: u32,
    tail: u32,
}

impl<T, const CAPACITY: usize, const MUTATION: u8> Rest<'_, T, CAPACITY, MUTATION> {
    fn drop_each(&mut self) {
        while self.next != self.tail {
            let index = self.next;
            self.next = index.wrapping_add(1);
            // SAFETY: [claimed] `next` moved over the index, and the ring is exclusively ours.
            let item = unsafe { self.ring.read(index) };
            // SAFETY: an index in `[head, tail)` was filled.
            drop(unsafe { item.assume_init() });
        }
    }
}

impl<T, const CAPACITY: usize, const MUTATION: u8> Drop for Rest<'_, T, CAPACITY, MUTATION> {
    fn drop(&mut self) {
        self.drop_each();
    }
}

/// The order in which what was taken from elsewhere enters a ring.
#[derive(Clone, Copy)]
pub(crate) enum Arrange {
    /// For an owner that takes the oldest end.
    OldestFirst,
    /// For an owner that takes the newest end: it goes on with the oldest of what it stole.
    OldestLast,
}

/// The owner's side of a ring. Apart from what others read: every push writes it.
#[repr(align(128))]
pub(crate) struct Owned<T, const CAPACITY: usize, const MUTATION: u8> {
    ring: Arc<Ring<T, CAPACITY, MUTATION>>,
    /// The owner's copy of what only it changes.
    pushes: Cell<u32>,
    /// `claims` as the owner last saw it: exact in `pops`, perhaps old in `head`, which the next CAS corrects. Spares a load of
    /// a word that thieves write (a push and a pop take 3.4 instead of 3.9 ns).
    seen: Cell<Claims>,
    /// Items that the owner claimed at the old end: `done + taken` counts all that have left there.
    taken: Cell<u32>,
    /// No thief copies below this index any more.
    floor: Cell<u32>,
}

impl<T, const CAPACITY: usize, const MUTATION: u8> Owned<T, CAPACITY, MUTATION> {
    pub(crate) fn new() -> Self {
        Self::starting_at(0, 0)
    }

    /// A ring that has already seen `head` claims and `pops` pops, so that tests reach the wrap of the counters.
    pub(crate) fn starting_at(head: u32, pops: u32) -> Self {
        const {
            assert!(CAPACITY.is_power_of_two(), "a ring's capacity is a power of two");
            assert!(CAPACITY <= 1 << 30, "lengths are told from stale reads by being at most 2^30");
        }
        let slots: Box<[Slot<T>]> = (0..CAPACITY).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        let Ok(slots) = slots.try_into() else { unreachable!("collected from as many") };
        let pushes = head.wrapping_add(pops);
        let ring = Ring {
            claims: Apart(AtomicU64::new(Claims::new(head, pops).0)),
            pushes: Apart(AtomicU32::new(pushes)),
            done: Apart(AtomicU32::new(head)),
            slots,
        };
        Self {
            ring: Arc::new(ring),
            pushes: Cell::new(pushes),
            seen: Cell::new(Claims::new(head, pops)),
            taken: Cell::new(0),
            floor: Cell::new(head),
        }
    }

    pub(crate) fn ring(&self) -> &Arc<Ring<T, CAPACITY, MUTATION>> {
        &self.ring
    }

    fn tail(&self) -> u32 {
        self.pushes.get().wrapping_sub(self.seen.get().pops())
    }

    /// How many items there are. The owner alone adds, so there are at most as many from here on.
    pub(crate) fn len(&self) -> usize {
        let claims = Claims(self.ring.claims.0.load(Relaxed));
        self.tail().wrapping_sub(claims.head()) as usize
    }

    /// How many items fit now, found with as little reading of other threads' words as `wanted` allows.
    #[inline]
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let room = CAPACITY - self.tail().wrapping_sub(self.floor.get()) as usize;
        let try_early = room <= CAPACITY / 2 && self.pushes.get().is_multiple_of(RECLAIM_EVERY);
        if room >= wanted && !try_early { room } else { self.reclaim() }
    }

    #[cold]
    fn reclaim(&self) -> usize {
        let (left, head) = if MUTATION == mutation::HEAD_BEFORE_DONE {
            let head = Claims(self.ring.claims.0.load(Relaxed)).head();
            (self.ring.done.0.load(Acquire), head)
        } else {
            // Ordering: Acquire pairs with the Release of `Done`; the copies are complete, and the head that is
            // read next is at least the one that their claims left. `done` first: module docs, `Reclaim`.
            let done = self.ring.done.0.load(Acquire);
            (done, Claims(self.ring.claims.0.load(Relaxed)).head())
        };
        if left.wrapping_add(self.taken.get()) == head {
            self.floor.set(head);
        }
        CAPACITY - self.tail().wrapping_sub(self.floor.get()) as usize
    }

    /// Makes `count` filled slots behind the tail part of the queue.
    #[inline]
    fn publish(&self, count: u32) {
        let pushes = self.pushes.get().wrapping_add(count);
        self.pushes.set(pushes);
        let order = if MUTATION == mutation::PUBLISH_RELAXED { Relaxed } else { Release };
        // Ordering: Release pairs with the Acquire of `Look`; makes the slots visible to the thief that claims them.
        self.ring.pushes.0.store(pushes, order);
    }

    /// Writes the slot that becomes number `offset` behind the tail.
    ///
    /// # Safety
    /// `[free]`: `offset` is less than the room found since the last `publish`.
    #[inline]
    unsafe fn fill(&self, offset: u32, item: MaybeUninit<T>) {
        let slot = self.ring.slot(self.tail().wrapping_add(offset));
        // SAFETY: [free], passed on by the caller; [owner] makes this the only writer.
        slot.with_mut(|slot| unsafe { slot.write(item) });
    }

    #[inline]
    pub(crate) fn push(&self, item: T) -> Result<(), Full<T>> {
        if self.room(1) == 0 {
            return Err(Full(item));
        }
        // SAFETY: [free], there is room for one.
        unsafe { self.fill(0, MaybeUninit::new(item)) };
        self.publish(1);
        Ok(())
    }

    /// Pushes; if there is no room, the oldest half moves to `global` first. Says how many items went there.
    #[inline]
    pub(crate) fn push_overflowing(&self, item: T, global: &Global<T>) -> usize {
        match self.push(item) {
            Ok(()) => 0,
            Err(Full(item)) => self.overflow(item, global),
        }
    }

    #[cold]
    fn overflow(&self, item: T, global: &Global<T>) -> usize {
        global.append(|queue| {
            let moved = self.take_oldest_half(|old| queue.push_back(old));
            match self.push(item) {
                Ok(()) => moved,
                // A thief still copies, and with it the whole floor: the item waits behind the older ones.
                Err(Full(item)) => {
                    queue.push_back(item);
                    moved + 1
                }
            }
        })
    }

    #[inline]
    pub(crate) fn pop_newest(&self) -> Option<T> {
        let tail = self.tail();
        let mut claims = self.seen.get();
        let pops = claims.pops().wrapping_add(1);
        // At most CAPACITY rounds: each failure means that thieves have moved `head` towards `tail`.
        while claims.head() != tail {
            let mut popped = Claims::new(claims.head(), pops);
            if MUTATION == mutation::POPS_CARRY {
                popped = Claims(claims.0.wrapping_add(1));
            }
            match self.ring.swap_claims(claims, popped, MUTATION == mutation::POP_WITHOUT_CAS) {
                Err(now) => {
                    claims = now;
                    self.seen.set(now);
                }
                Ok(()) => {
                    self.seen.set(popped);
                    // SAFETY: [claimed] at the new end.
                    let item = unsafe { self.ring.read(tail.wrapping_sub(1)) };
                    // SAFETY: filled by this owner, as every index below the tail.
                    return Some(unsafe { item.assume_init() });
                }
            }
        }
        None
    }

    #[inline]
    pub(crate) fn pop_oldest(&self) -> Option<T> {
        let (head, _) = self.take_oldest(|_| 1)?;
        // SAFETY: [claimed] by `take_oldest`.
        let item = unsafe { self.ring.read(head) };
        // SAFETY: filled by this owner, as every index below the tail.
        Some(unsafe { item.assume_init() })
    }

    /// Takes the oldest half, rounded up, and hands each item to `receive`, oldest first; says how many.
    fn take_oldest_half(&self, mut receive: impl FnMut(T)) -> usize {
        let Some((head, count)) = self.take_oldest(|length| length.div_ceil(2)) else {
            return 0;
        };
        for i in 0..count {
            // SAFETY: [claimed] by `take_oldest`.
            let item = unsafe { self.ring.read(head.wrapping_add(i)) };
            // SAFETY: filled by this owner, as every index below the tail.
            receive(unsafe { item.assume_init() });
        }
        count as usize
    }

    /// `OldClaim` of `count(length)` items: their first index and number, or nothing if the queue is empty.
    #[inline]
    fn take_oldest(&self, count: impl Fn(u32) -> u32) -> Option<(u32, u32)> {
        let tail = self.tail();
        let mut claims = self.seen.get();
        // At most CAPACITY rounds, as in `pop_newest`.
        while claims.head() != tail {
            let head = claims.head();
            let count = count(tail.wrapping_sub(head));
            let moved = Claims::new(head.wrapping_add(count), claims.pops());
            match self.ring.swap_claims(claims, moved, MUTATION == mutation::OLDEST_WITHOUT_CAS) {
                Err(now) => {
                    claims = now;
                    self.seen.set(now);
                }
                Ok(()) => {
                    self.seen.set(moved);
                    // The owner copies before it can push again, so it needs no word to announce it.
                    self.taken.set(self.taken.get().wrapping_add(count));
                    return Some((head, count));
                }
            }
        }
        None
    }

    /// Takes half of `victim`, rounded up, as far as there is room. Returns the oldest; the others
    /// come here.
    pub(crate) fn steal_half<const VICTIM: usize>(
        &self,
        victim: &Ring<T, VICTIM, MUTATION>,
        arrange: Arrange,
    ) -> Steal<T> {
        let room = self.room(CAPACITY / 2) as u32;
        let (head, count) = match victim.claim_half(room + 1) {
            Claim::Empty => return Steal::Empty,
            Claim::Lost => return Steal::Retry,
            Claim::Won { head, count } => (head, count),
        };
        if MUTATION == mutation::DONE_BEFORE_COPY {
            victim.finish(count);
        }
        // SAFETY: [claimed] by `claim_half`.
        let first = unsafe { victim.read(head) };
        for i in 1..count {
            // SAFETY: [claimed] by `claim_half`.
            let item = unsafe { victim.read(head.wrapping_add(i)) };
            // SAFETY: [free], `count - 1` is at most `room`.
            unsafe { self.fill(arrange.offset(i - 1, count - 1), item) };
        }
        if MUTATION != mutation::DONE_BEFORE_COPY {
            victim.finish(count);
        }
        if count > 1 {
            self.publish(count - 1);
        }
        // SAFETY: an index below the victim's tail was filled before its `Publish`.
        Steal::Success(unsafe { first.assume_init() })
    }
}

impl Arrange {
    /// Where the item that is number `i` of `count`, oldest first, goes.
    fn offset(self, i: u32, count: u32) -> u32 {
        match self {
            Self::OldestFirst => i,
            Self::OldestLast => count - 1 - i,
        }
    }
}

impl<T, const CAPACITY: usize, const MUTATION: u8> fmt::Debug for Owned<T, CAPACITY, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").field("len", &self.len()).field("capacity", &CAPACITY).finish()
    }
}
