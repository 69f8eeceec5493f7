//! # Event queue protocol
//!
//! ## Problem
//! Senders push messages for a process that may end at any moment. A message pushed just after the last look would
//! be lost without its sender knowing.
//!
//! ## States
//! One word, `newest`: null (open and empty), `ARMED` (open, empty, and the consumer wants to be woken), a node (open, the
//! nodes linked from the newest to the oldest), or `CLOSED` (for ever).
//!
//! ## Steps
//! Push: `Load` newest; if `CLOSED`, return the item · `Link` the new node to it · `Publish` CAS newest to the new node; if
//! that replaced `ARMED`, tell the pusher to wake the consumer.
//! Take: `Detach` CAS newest to null. Arm: CAS null to `ARMED`. Disarm: CAS `ARMED` to null. Close: `Close` swap newest for `CLOSED`. Both own all that they detached, and turn it
//! round once, into the order of the pushes.
//!
//! ## Why it works
//! `Publish` succeeds only on the word that was loaded, which was not `CLOSED`. So a push is either before `Close` in the
//! order of the word's changes, and its node is among those that `Close` or an earlier `Detach` took; or it is
//! after, and sees `CLOSED`. Nodes leave only all at once, so a word that still equals the loaded node still heads
//! the same list, even if that node was freed and allocated anew in between: no ABA.
//!
//! `Arm` succeeds only on an empty queue, and of the pushes that follow exactly one replaces `ARMED`. So a consumer that armed
//! the queue before it sleeps is woken by exactly one pusher, the others have nothing to do but their CAS, and no
//! word beside the queue needs to be read, hence no fence.
//!
//! ## Allowed
//! Take may miss a push that is not visible to this thread yet (crate documentation, *Parking*).
//!
//! ## Rejected
//! A linked queue with one swap per push (Vyukov's): a sender preempted between its two steps hides all later messages, and
//! a swap cannot fail on a closed queue.
//!
//! ## Invariants
//! - `[detached]` nodes that a successful `Detach` or `Close` took are reachable from nowhere else.
//! - `[unpublished]` a node before its `Publish` is its pusher's alone.
//!
//! ## Checked by
//! `models::close_against_push`, `models::item_visible_to_its_taker`, `models::arm_against_push`, and their canaries.

use std::error::Error;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ptr;

use procession_sync::atomic::AtomicPtr;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Publish` is a swap, which cannot see that the queue was closed after `Load`.
    pub(crate) const PUSH_WITHOUT_CHECK: u8 = 1;
    /// `Publish` does not release the node.
    pub(crate) const PUBLISH_RELAXED: u8 = 2;
    /// `Arm` is a check followed by a store.
    pub(crate) const ARM_WITHOUT_CAS: u8 = 3;
}

struct Node<T> {
    /// The next older one; in a [`Batch`], the next newer one.
    next: *mut Node<T>,
    item: T,
}

/// What `newest` is once the queue is closed. No node has this address: they are aligned to at least a pointer.
fn closed<T>() -> *mut Node<T> {
    ptr::without_provenance_mut(1)
}

/// What `newest` is while the queue is empty and its consumer wants to be woken.
fn armed<T>() -> *mut Node<T> {
    ptr::without_provenance_mut(2)
}

/// The list that a word heads, if it is not `CLOSED`.
fn below<T>(word: *mut Node<T>) -> *mut Node<T> {
    if word == armed() { ptr::null_mut() } else { word }
}

/// What a push that succeeded asks of the pusher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// Nothing: the consumer is not waiting, or another pusher wakes it.
    Queued,
    /// To wake the consumer, which had armed the queue.
    Wake,
}

/// The word and its operations.
#[repr(transparent)]
pub(crate) struct Stack<T, const MUTATION: u8> {
    newest: AtomicPtr<Node<T>>,
    items: PhantomData<T>,
}

// SAFETY: items move in from any thread and out to any thread; no reference to one is ever shared.
unsafe impl<T: Send, const MUTATION: u8> Send for Stack<T, MUTATION> {}
// SAFETY: as above.
unsafe impl<T: Send, const MUTATION: u8> Sync for Stack<T, MUTATION> {}

impl<T, const MUTATION: u8> Stack<T, MUTATION> {
    pub(crate) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), items: PhantomData }
    }

    pub(crate) fn push(&self, item: T) -> Result<Pushed, Closed<T>> {
        let mut seen = self.newest.load(Relaxed);
        if seen == closed() {
            return Err(Closed(item));
        }
        let node = Box::into_raw(Box::new(Node { next: below(seen), item }));
        let order = if MUTATION == mutation::PUBLISH_RELAXED { Relaxed } else { Release };
        if MUTATION == mutation::PUSH_WITHOUT_CHECK {
            let before = self.newest.swap(node, order);
            // SAFETY: the canary's two threads leave the node alone until the push has returned.
            unsafe { (*node).next = if before == closed() { ptr::null_mut() } else { before } };
            return Ok(Pushed::Queued);
        }
        loop {
            // Ordering: Release pairs with the Acquire of `Detach` and `Close`; makes the node visible to its taker.
            // Relaxed on failure: what was seen is only linked to, not read.
            match self.newest.compare_exchange_weak(seen, node, order, Relaxed) {
                Ok(_) if seen == armed() => return Ok(Pushed::Wake),
                Ok(_) => return Ok(Pushed::Queued),
                Err(now) if now == closed() => {
                    // SAFETY: [unpublished]
                    let node = unsafe { Box::from_raw(node) };
                    return Err(Closed(node.item));
                }
                Err(now) => {
                    seen = now;
                    // SAFETY: [unpublished]
                    unsafe { (*node).next = below(seen) };
                }
            }
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Batch<T> {
        let mut seen = self.newest.load(Relaxed);
        loop {
            if below(seen).is_null() || seen == closed() {
                return Batch::new();
            }
            // Ordering: Acquire pairs with the Release of `Publish`, of every push in the list: their CASes form one
            // release sequence.
            match self.newest.compare_exchange_weak(seen, ptr::null_mut(), Acquire, Relaxed) {
                // SAFETY: [detached]
                Ok(_) => return unsafe { Batch::from_newest(seen) },
                Err(now) => seen = now,
            }
        }
    }

    pub(crate) fn close(&self) -> Batch<T> {
        // Ordering: Acquire as in `take`.
        let newest = self.newest.swap(closed(), Acquire);
        if newest == closed() {
            return Batch::new();
        }
        // SAFETY: [detached]
        unsafe { Batch::from_newest(below(newest)) }
    }

    pub(crate) fn arm(&self) -> bool {
        if MUTATION == mutation::ARM_WITHOUT_CAS {
            let empty = self.newest.load(Relaxed).is_null();
            if empty {
                self.newest.store(armed(), Relaxed);
            }
            return empty;
        }
        // Ordering: Relaxed, nothing is published through `ARMED`. The pusher that replaces it wakes the consumer through
        // a word of the consumer's own.
        match self.newest.compare_exchange(ptr::null_mut(), armed(), Relaxed, Relaxed) {
            Ok(_) => true,
            Err(now) => now == armed(),
        }
    }

    fn disarm(&self) {
        // Ordering: Relaxed, as in `arm`. Ignored: if it is not armed, a pusher is about to wake the consumer.
        let _ = self.newest.compare_exchange(armed(), ptr::null_mut(), Relaxed, Relaxed);
    }

    fn is_empty(&self) -> bool {
        // Relaxed: a hint, nothing is read through it.
        let newest = self.newest.load(Relaxed);
        below(newest).is_null() || newest == closed()
    }

    fn is_closed(&self) -> bool {
        // Relaxed: as above.
        self.newest.load(Relaxed) == closed()
    }
}

impl<T, const MUTATION: u8> Drop for Stack<T, MUTATION> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

/// A queue from many producers to one place, where it is taken whole, and which can be closed.
///
/// A consumer that finds nothing [arms](EventQueue::arm) the queue before it sleeps; the one push that ends the emptiness is
/// told to wake it, and all others are told nothing.
///
/// A push costs one allocation and one compare-and-swap. Taking is one compare-and-swap for everything queued, and the
/// items come out in the order of their pushes, so that draining a backlog of n costs O(n).
///
/// Unbounded: whoever needs a bound counts before it pushes. In memory the queue is one pointer, whatever `T` is.
///
/// ```
/// use procession_queue::{Closed, EventQueue, Pushed};
///
/// let queue = EventQueue::new();
/// assert!(queue.arm());
/// assert_eq!(queue.push("a")?, Pushed::Wake);
/// assert_eq!(queue.push("b")?, Pushed::Queued);
/// assert!(queue.take().eq(["a", "b"]));
/// queue.push("c")?;
/// assert!(queue.close().eq(["c"]));
/// assert_eq!(queue.push("d"), Err(Closed("d")));
/// # Ok::<(), Closed<&str>>(())
/// ```
#[repr(transparent)]
pub struct EventQueue<T>(Stack<T, { mutation::SOUND }>);

impl<T> EventQueue<T> {
    /// Makes an open, empty queue.
    pub fn new() -> Self {
        Self(Stack::new())
    }

    /// Pushes behind everything queued. If the answer is [`Pushed::Wake`], the caller must wake the consumer.
    ///
    /// # Errors
    /// [`Closed`] returns the item if the queue is closed.
    #[inline]
    pub fn push(&self, item: T) -> Result<Pushed, Closed<T>> {
        self.0.push(item)
    }

    /// Takes everything queued, oldest first.
    #[inline]
    pub fn take(&self) -> Batch<T> {
        self.0.take()
    }

    /// Arms the queue if nothing is queued: exactly one of the pushes that follow is told to wake the consumer. Says whether
    /// it is armed now; it is not if there is something to take, or if it is closed.
    #[inline]
    pub fn arm(&self) -> bool {
        self.0.arm()
    }

    /// Takes the request of [`arm`](Self::arm) back, unless a pusher has already seen it.
    pub fn disarm(&self) {
        self.0.disarm();
    }

    /// Closes the queue for ever, and takes what is queued. Every later push fails.
    pub fn close(&self) -> Batch<T> {
        self.0.close()
    }

    /// Whether nothing is queued, as far as this thread can see (crate documentation, *Parking*).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the queue has been closed, as far as this thread can see.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Default for EventQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for EventQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("is_empty", &self.is_empty()).field("is_closed", &self.is_closed()).finish()
    }
}

/// What was taken from an [`EventQueue`], oldest first. Dropping it drops what was not iterated over.
pub struct Batch<T> {
    oldest: *mut Node<T>,
    newest: *mut Node<T>,
    length: usize,
    items: PhantomData<T>,
}

// SAFETY: [detached], the batch owns its nodes and their items.
unsafe impl<T: Send> Send for Batch<T> {}
// SAFETY: a shared reference gives no access to an item.
unsafe impl<T: Send> Sync for Batch<T> {}

impl<T> Batch<T> {
    /// An empty batch.
    pub const fn new() -> Self {
        Self { oldest: ptr::null_mut(), newest: ptr::null_mut(), length: 0, items: PhantomData }
    }

    /// Turns a list round.
    ///
    /// # Safety
    /// `[detached]`: `newest` is null or heads a list of nodes that nobody else can reach.
    #[inline]
    unsafe fn from_newest(newest: *mut Node<T>) -> Self {
        // Nothing of it is in memory before it is complete: a load of two fields that were just stored one by one waits for both stores.
        let (mut oldest, mut node, mut length) = (ptr::null_mut(), newest, 0);
        while !node.is_null() {
            // SAFETY: [detached]
            let older = unsafe { std::mem::replace(&mut (*node).next, oldest) };
            oldest = node;
            length += 1;
            node = older;
        }
        Self { oldest, newest, length, items: PhantomData }
    }

    /// Puts `newer` behind this batch, in constant time.
    #[inline]
    pub fn append(&mut self, newer: Self) {
        // Its nodes now belong to this batch.
        let newer = std::mem::ManuallyDrop::new(newer);
        if self.oldest.is_null() {
            self.oldest = newer.oldest;
            self.newest = newer.newest;
        } else if !newer.oldest.is_null() {
            // SAFETY: [detached], `newest` is the last node of this batch if it has any.
            unsafe { (*self.newest).next = newer.oldest };
            self.newest = newer.newest;
        }
        self.length += newer.length;
    }
}

impl<T> Iterator for Batch<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        if self.oldest.is_null() {
            return None;
        }
        // SAFETY: [detached], and each node is visited once.
        let node = unsafe { Box::from_raw(self.oldest) };
        self.oldest = node.next;
        self.length -= 1;
        Some(node.item)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.length, Some(self.length))
    }
}

impl<T> ExactSizeIterator for Batch<T> {}
impl<T> FusedIterator for Batch<T> {}

impl<T> Drop for Batch<T> {
    fn drop(&mut self) {
        // If the `Drop` of one item panics, those behind it are dropped all the same.
        struct Rest<'a, T>(&'a mut Batch<T>);
        impl<T> Drop for Rest<'_, T> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(drop);
            }
        }
        let rest = Rest(self);
        rest.0.by_ref().for_each(drop);
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("len", &self.length).finish()
    }
}

/// The error of a push to a closed queue; it holds the refused item.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Closed<T>(pub T);

impl<T> fmt::Debug for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Closed(..)")
    }
}

impl<T> fmt::Display for Closed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue is closed")
    }
}

impl<T> Error for Closed<T> {}
