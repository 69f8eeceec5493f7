//! The claim ring, on which the deque and the FIFO ring are built.
//!
//! # Claim protocol
//!
//! ## Problem
//! A thief should take half of a queue with one compare-and-swap, while the owner works at the
//! newest end. With a Chase-Lev owner that is impossible. Its thief reads `top` and `bottom`,
//! copies k items, and moves `top` by k. The CAS proves only that `top` did not move. In between,
//! the owner pops below `bottom` without a CAS, and may have taken some of the k items. One item
//! then runs twice, and `top` overtakes `bottom`, so the next push is lost.
//! (`models::chase_lev_half_steal_doubles_an_item` exhibits this interleaving.)
//!
//! ## States
//! | word | written by | meaning |
//! |---|---|---|
//! | `claims`, high half: `head` | owner and thieves, by CAS | items claimed at the old end |
//! | `claims`, low half: `pops` | owner, by CAS | items taken back at the new end |
//! | `pushes` | owner | items ever pushed |
//! | `done` | thieves, by addition | items that thieves have copied out completely |
//! | `taken` | owner, unshared | items that the owner itself claimed at the old end |
//! | `floor` | owner, unshared | a lower bound of `head`; no thief copies below it any more |
//!
//! `tail = pushes - pops`. The queue holds the indices `[head, tail)`, and index i is in slot
//! `i % CAPACITY`. All counters are 32 bits wide and wrap; only their differences are compared.
//!
//! ## Steps
//! Owner, push: `Room` check tail - floor < CAPACITY, else `Reclaim` · `Fill` the slot · `Publish`
//! store `pushes`.
//!
//! Owner, reclaim: `Reclaim` load `done`, **then** `head`; if done + taken = head, every claimed
//! item has left the ring, so set floor = head.
//!
//! Owner, pop: `PopClaim` CAS `pops + 1`; the item at tail - 1 is the owner's.
//!
//! Owner, oldest: `OldClaim` CAS `head + 1`, then `taken + 1`; the item at head is the owner's.
//!
//! Thief: `Look` load `claims`, then `pushes`; a length over the capacity is from a stale pair of
//! reads, so retry · `Claim` CAS `head + k` · `Copy` the k slots · `Done` add k to `done`.
//!
//! ## Why it works
//! - *Nothing is claimed twice.* Every claim, at either end, is a successful CAS on the one word
//!   that holds both ends. Claims are therefore totally ordered, and each was made against the ends
//!   that its predecessor left.
//! - *Nothing unwritten is claimed.* A successful `Claim` proves that no pop happened between
//!   `Look` and `Claim`. Every push since then only added to the end, so an index that was below
//!   `pushes - pops` is still in the queue. The value of `pushes` is at least as new as the value
//!   of `pops`, because every claim releases it. If `pushes` is read after further pushes and pops,
//!   the length may exceed the number of items, but then the `Claim` fails. A length over the
//!   capacity is not tried at all.
//! - *Nothing is read before it is written.* `Publish` releases the slot, and `Look` acquires it.
//! - *Nothing is overwritten while it is copied.* `done + taken <= head` always holds. If `done` is
//!   read first and `head` then equals the sum, no thief was copying at the moment of the first
//!   read, and `Done` has released the finished copies. Reading `head` first would be wrong: two
//!   thieves of one item each can both be halfway through when the sums happen to agree.
//!
//! ## Allowed
//! - A thief may see the queue shorter than it is, or empty, while a push is not visible to it yet.
//!   A worker that must not miss a push, because it is about to park, executes a `SeqCst` fence
//!   before it looks (crate documentation, *Parking*).
//! - A thief that loses its CAS returns [`Steal::Retry`]. Another thread made progress.
//! - A thief preempted between `Claim` and `Done` delays only capacity. Pushes find the ring full,
//!   but other thieves are not hindered.
//! - A thief is fooled if it sleeps between `Look` and `Claim` through an exact multiple of 2^32
//!   pops while no other thief claims. At 5 ns per pop that is a sleep of at least 21 s, and a
//!   chance of one in 2^32 to wake at the wrong pop. The same holds if the owner makes an exact
//!   multiple of 2^32 pushes without one pop while thieves take all the items.
//!
//! ## Rejected
//! - A private part of the deque that only its owner sees (a split deque): 1.3 ns per push and pop
//!   instead of 5.6 ns. The hidden items cannot be rescued from an owner that blocks in user code.
//! - Copying before the CAS (Go's `runqgrab`), which needs no `done` word. The copies race with the
//!   owner's writes, which is undefined behaviour in Rust for any item larger than an atomic.
//! - One thief at a time (tokio, st3), which needs no counting in `done`. A preempted thief then
//!   locks out all others.
//! - Loading `claims` at each pop, instead of starting from the owner's copy `seen`: 3.9 ns per
//!   push and pop instead of 3.4 ns, because thieves write the word.
//! - Reclaiming only when the ring looks full. A thief that copies at that moment makes a nearly
//!   empty ring full: this refused 1.2 of 1000 pushes against one thief, and none with
//!   `RECLAIM_EVERY`.
//!
//! ## Invariants
//! - `[owner]` exactly one [`Owned`] exists for each ring, and it is not `Sync`: its methods never
//!   run concurrently.
//! - `[claimed]` only the thread that moved `claims` over an index reads the slot, and reads it
//!   once.
//! - `[free]` a slot at an index in `[tail, floor + CAPACITY)` holds nothing, and only the owner
//!   accesses it.
//!
//! ## Checked by
//! `models::*`: see the table of models and canaries in `models.rs`.

use std::cell::Cell;
use std::fmt;
use std::mem::MaybeUninit;

use procession_sync::Arc;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicU64};
use procession_sync::cell::UnsafeCell;

use crate::{Full, Global, Steal};

/// The defects that canary models plant, one at a time. The shipped code uses
/// [`SOUND`](mutation::SOUND).
pub(crate) mod mutation {
    /// No defect.
    pub(crate) const SOUND: u8 = 0;
    /// `Publish` does not release the slot.
    pub(crate) const PUBLISH_RELAXED: u8 = 1;
    /// `Done` does not release the copies.
    pub(crate) const DONE_RELAXED: u8 = 2;
    /// `Done` is before `Copy`.
    pub(crate) const DONE_BEFORE_COPY: u8 = 3;
    /// `Reclaim` reads `head` before `done`.
    pub(crate) const HEAD_BEFORE_DONE: u8 = 4;
    /// `PopClaim` is a plain store, as in a Chase-Lev owner.
    pub(crate) const POP_WITHOUT_CAS: u8 = 5;
    /// `OldClaim` is a plain store.
    pub(crate) const OLDEST_WITHOUT_CAS: u8 = 6;
    /// `Claim` is a plain store.
    pub(crate) const CLAIM_WITHOUT_CAS: u8 = 7;
    /// An overflow of `pops` carries into `head`.
    pub(crate) const POPS_CARRY: u8 = 8;
    /// A claim does not release the pushes before it.
    pub(crate) const CLAIM_RELAXED: u8 = 9;
}

/// The word `head:32 | pops:32`. All shifting and masking is done here.
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

/// The number of pushes between two attempts to reclaim slots, once half of the room is used up.
/// Reclaiming early keeps a thief that happens to copy at the last moment from making a nearly
/// empty ring full.
const RECLAIM_EVERY: u32 = 64;

/// Keeps words that different threads write on separate cache lines. The alignment is two lines,
/// because processors prefetch lines in pairs.
#[repr(align(128))]
struct CachePadded<T>(T);

type Slot<T> = UnsafeCell<MaybeUninit<T>>;

/// The part that the owner and the thieves share.
pub(crate) struct Ring<T, const CAPACITY: usize, const MUTATION: u8> {
    claims: CachePadded<AtomicU64>,
    /// Written by the owner only, so that a push needs no read-modify-write.
    pushes: CachePadded<AtomicU32>,
    /// Thieves add to it. The owner reads it to reclaim slots.
    done: CachePadded<AtomicU32>,
    slots: Box<[Slot<T>; CAPACITY]>,
}

// SAFETY: [claimed] and [free] let only one thread at a time touch a slot, and items only move.
unsafe impl<T: Send, const CAPACITY: usize, const MUTATION: u8> Send
    for Ring<T, CAPACITY, MUTATION>
{
}
// SAFETY: as above; a shared reference provides no shared access to an item.
unsafe impl<T: Send, const CAPACITY: usize, const MUTATION: u8> Sync
    for Ring<T, CAPACITY, MUTATION>
{
}

/// The result of an attempt to claim items at the old end.
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

    /// Returns the claims and the length of the queue, as a thief sees them. Returns `None` if the
    /// two reads do not fit together.
    fn look(&self) -> Option<(Claims, u32)> {
        // Ordering: Acquire pairs with the Release of the claims. The `pushes` that is read next is
        // at least as new as these `pops`, so a ring that was never empty is not seen empty.
        let claims = Claims(self.claims.0.load(Acquire));
        // Ordering: Acquire pairs with the Release of `Publish`; makes the slots below `pushes`
        // visible.
        let pushes = self.pushes.0.load(Acquire);
        let length = pushes.wrapping_sub(claims.pops()).wrapping_sub(claims.head());
        (length as usize <= CAPACITY).then_some((claims, length))
    }

    /// Claims items at the old end: half of the queue, rounded up, and at most `limit` items.
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
        // Ordering: Release pairs with the Acquire of `Look`. It is not Acquire, because the slots
        // of a claim were acquired through `pushes` and are given back through `done`. The word
        // itself decides only which thread owns them.
        let order = if MUTATION == mutation::CLAIM_RELAXED { Relaxed } else { Release };
        match self.claims.0.compare_exchange(old.0, new.0, order, Relaxed) {
            Ok(_) => Ok(()),
            Err(now) => Err(Claims(now)),
        }
    }

    /// Records that the caller has read `count` claimed slots for the last time.
    fn finish(&self, count: u32) {
        let order = if MUTATION == mutation::DONE_RELAXED { Relaxed } else { Release };
        // Ordering: Release pairs with the Acquire of `Reclaim`; the owner must not write a slot
        // before this thread has read it. The addition continues the release sequence of the other
        // thieves.
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

    /// Returns a number that changes whenever an item is taken.
    pub(crate) fn taken(&self) -> u64 {
        // Relaxed: statistics.
        self.claims.0.load(Relaxed)
    }

    /// Returns the number of items at some moment during the call.
    pub(crate) fn len(&self) -> usize {
        loop {
            // If the claims are unchanged, the two reads fit together. Otherwise another thread
            // popped or stole, and the loop tries again.
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
        // The last reference is gone: there is no owner and no thief, and every claim was copied
        // out.
        let claims = Claims(self.claims.0.load(Relaxed));
        let tail = self.pushes.0.load(Relaxed).wrapping_sub(claims.pops());
        let mut rest = Rest { ring: self, next: claims.head(), tail };
        rest.drop_each();
    }
}

/// The items that a dropped ring still holds. If the `Drop` of one item panics, the items behind it
/// are still dropped.
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
            // SAFETY: [claimed] `next` moved over the index, and this thread has exclusive access
            // to the ring.
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

/// The order in which stolen items enter a ring.
#[derive(Clone, Copy)]
pub(crate) enum Arrange {
    /// For an owner that takes from the oldest end.
    OldestFirst,
    /// For an owner that takes from the newest end. It continues with the oldest stolen item.
    OldestLast,
}

/// The owner's side of a ring. It has separate cache lines, because every push writes to it.
#[repr(align(128))]
pub(crate) struct Owned<T, const CAPACITY: usize, const MUTATION: u8> {
    ring: Arc<Ring<T, CAPACITY, MUTATION>>,
    /// The owner's copy of `pushes`, which no other thread changes.
    pushes: Cell<u32>,
    /// The value of `claims` that the owner saw last. Its `pops` is exact. Its `head` may be out of
    /// date; the next CAS corrects it.
    seen: Cell<Claims>,
    /// The number of items that the owner claimed at the old end. `done + taken` counts all items
    /// that have left there.
    taken: Cell<u32>,
    /// No thief copies below this index any more.
    floor: Cell<u32>,
}

impl<T, const CAPACITY: usize, const MUTATION: u8> Owned<T, CAPACITY, MUTATION> {
    pub(crate) fn new() -> Self {
        Self::starting_at(0, 0)
    }

    /// Creates a ring that has already seen `head` claims and `pops` pops, so that tests reach the
    /// point where the counters wrap.
    pub(crate) fn starting_at(head: u32, pops: u32) -> Self {
        const {
            assert!(CAPACITY.is_power_of_two(), "the capacity of a ring must be a power of two");
            assert!(
                CAPACITY <= 1 << 30,
                "the capacity must be at most 2^30, to recognize stale lengths"
            );
        }
        let slots: Box<[Slot<T>]> =
            (0..CAPACITY).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
        let Ok(slots) = slots.try_into() else { unreachable!("collected from as many") };
        let pushes = head.wrapping_add(pops);
        let ring = Ring {
            claims: CachePadded(AtomicU64::new(Claims::new(head, pops).0)),
            pushes: CachePadded(AtomicU32::new(pushes)),
            done: CachePadded(AtomicU32::new(head)),
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

    /// Returns the number of items. Only the owner adds items, so this number can only fall until
    /// it does.
    pub(crate) fn len(&self) -> usize {
        let claims = Claims(self.ring.claims.0.load(Relaxed));
        self.tail().wrapping_sub(claims.head()) as usize
    }

    /// Returns a number of items that fit now. Reads other threads' words only if fewer than
    /// `wanted` items are known to fit, or if an early attempt to reclaim is due.
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
            // Ordering: Acquire pairs with the Release of `Done`. The copies are complete, and the
            // `head` that is read next is at least the `head` that their claims left. For why
            // `done` is read first, see `Reclaim` in the module documentation.
            let done = self.ring.done.0.load(Acquire);
            (done, Claims(self.ring.claims.0.load(Relaxed)).head())
        };
        if left.wrapping_add(self.taken.get()) == head {
            self.floor.set(head);
        }
        CAPACITY - self.tail().wrapping_sub(self.floor.get()) as usize
    }

    /// Makes the `count` filled slots behind the tail part of the queue.
    #[inline]
    fn publish(&self, count: u32) {
        let pushes = self.pushes.get().wrapping_add(count);
        self.pushes.set(pushes);
        let order = if MUTATION == mutation::PUBLISH_RELAXED { Relaxed } else { Release };
        // Ordering: Release pairs with the Acquire of `Look`; makes the slots visible to the thief
        // that claims them.
        self.ring.pushes.0.store(pushes, order);
    }

    /// Writes the slot at `offset` behind the tail.
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
        // SAFETY: [free], there is room for one item.
        unsafe { self.fill(0, MaybeUninit::new(item)) };
        self.publish(1);
        Ok(())
    }

    /// Pushes an item. If there is no room, moves the oldest half to `global` first. Returns the
    /// number of items that went to `global`.
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
                // A thief is still copying, so the floor cannot move. The item goes to `global`,
                // behind the older items.
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
        // At most CAPACITY rounds: each failure means that thieves have moved `head` towards
        // `tail`.
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
                    // SAFETY: this owner filled every index below the tail.
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
        // SAFETY: this owner filled every index below the tail.
        Some(unsafe { item.assume_init() })
    }

    /// Takes the oldest half, rounded up, and passes each item to `receive`, oldest first. Returns
    /// the number of items.
    fn take_oldest_half(&self, mut receive: impl FnMut(T)) -> usize {
        let Some((head, count)) = self.take_oldest(|length| length.div_ceil(2)) else {
            return 0;
        };
        for i in 0..count {
            // SAFETY: [claimed] by `take_oldest`.
            let item = unsafe { self.ring.read(head.wrapping_add(i)) };
            // SAFETY: this owner filled every index below the tail.
            receive(unsafe { item.assume_init() });
        }
        count as usize
    }

    /// Makes an `OldClaim` of `count(length)` items. Returns their first index and their number, or
    /// `None` if the queue is empty.
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
                    // The owner copies the items before it can push again, so no shared word needs
                    // to announce the end of its copy.
                    self.taken.set(self.taken.get().wrapping_add(count));
                    return Some((head, count));
                }
            }
        }
        None
    }

    /// Takes half of `victim`, rounded up, or as much as there is room for. Returns the oldest item
    /// and adds the rest to this ring.
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
    /// Returns the offset behind the tail for item number `i` of `count`, counted from the oldest.
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
