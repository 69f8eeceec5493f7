//! # Event queue protocol
//!
//! ## Problem
//! Senders push messages for a process that may end at any moment. A message pushed just after the last look would
//! be lost without its sender knowing.
//!
//! ## States
//! One word, `newest`: null (open and empty), `ARMED` (open, empty, and the consumer wants to be woken), a link (open, the
//! nodes linked from the newest to the oldest), or `CLOSED` (for ever). A link is the address of a node, and in its lowest bit whether what the node
//! holds is a message or of the system, so that a message of 8 bytes takes a node of 16.
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
//! Backing off after a push that failed, by up to 8, 64 or 512 pauses: level in `bench fanin`. So is writing to the word's cache line before the load, so that
//! it comes to this processor once and not twice.
//!
//! ## Invariants
//! - `[detached]` nodes that a successful `Detach` or `Close` took are reachable from nowhere else.
//! - `[unpublished]` a node before its `Publish` is its pusher's alone.
//! - `[kind]` a link has `SYSTEM` if and only if it was made of a `Node<S>`; else it was made of a `Node<M>`.
//!
//! ## Checked by
//! `models::close_against_push`, `models::item_visible_to_its_taker`, `models::arm_against_push`, and their canaries.

use std::convert::Infallible;
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

/// What all nodes begin with.
#[repr(C)]
struct Head {
    /// To the next older one; in a [`Batch`], to the next newer one.
    next: Link,
}

#[repr(C)]
struct Node<T> {
    head: Head,
    item: T,
}

// What a message takes beside itself.
const _: () = assert!(size_of::<Node<usize>>() == 2 * size_of::<usize>());

/// The address of a node, with its kind.
type Link = *mut Head;

/// In a link: the node holds something of the system.
const SYSTEM: usize = 1;
// The lowest bit of the address of a node is free, and the values below are none.
const _: () = assert!(align_of::<Head>() >= 4);

/// What `newest` is while the queue is empty and its consumer wants to be woken.
const ARMED: Link = ptr::without_provenance_mut(2);

/// What `newest` is once the queue is closed.
const CLOSED: Link = ptr::without_provenance_mut(3);

/// The node that a link leads to.
#[inline]
fn node(link: Link) -> *mut Head {
    link.map_addr(|address| address & !SYSTEM)
}

/// The list that a word heads, if it is not `CLOSED`.
#[inline]
fn below(word: Link) -> Link {
    if word == ARMED { ptr::null_mut() } else { word }
}

/// What an event queue carries: messages, and what whoever runs the consumer has to say to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<M, S = Infallible> {
    /// From a producer, by [`EventQueue::push`].
    Message(M),
    /// Of the system that the consumer is part of, by [`EventQueue::push_system`].
    System(S),
}

impl<M> Event<M> {
    /// The message, where there is nothing else.
    pub fn into_message(self) -> M {
        let Self::Message(message) = self;
        message
    }
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
pub(crate) struct Stack<M, S, const MUTATION: u8> {
    newest: AtomicPtr<Head>,
    items: PhantomData<InAndOut<Event<M, S>>>,
}

/// What a shared reference lets in as well as out: owned, and invariant.
type InAndOut<T> = (T, fn(T));

// SAFETY: items move in from any thread and out to any thread; no reference to one is ever shared.
unsafe impl<M: Send, S: Send, const MUTATION: u8> Send for Stack<M, S, MUTATION> {}
// SAFETY: as above.
unsafe impl<M: Send, S: Send, const MUTATION: u8> Sync for Stack<M, S, MUTATION> {}

impl<M, S, const MUTATION: u8> Stack<M, S, MUTATION> {
    pub(crate) fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()), items: PhantomData }
    }

    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<Pushed, Closed<M>> {
        self.push_node(message, 0)
    }

    #[inline]
    pub(crate) fn push_system(&self, item: S) -> Result<Pushed, Closed<S>> {
        self.push_node(item, SYSTEM)
    }

    /// `kind` is `SYSTEM` for an `S`, and 0 for an `M`.
    #[inline]
    fn push_node<T>(&self, item: T, kind: usize) -> Result<Pushed, Closed<T>> {
        let mut seen = self.newest.load(Relaxed);
        if seen == CLOSED {
            return Err(Closed(item));
        }
        let node = Box::into_raw(Box::new(Node { head: Head { next: below(seen) }, item }));
        let link = node.cast::<Head>().map_addr(|address| address | kind);
        let order = if MUTATION == mutation::PUBLISH_RELAXED { Relaxed } else { Release };
        if MUTATION == mutation::PUSH_WITHOUT_CHECK {
            let before = self.newest.swap(link, order);
            // SAFETY: the canary's two threads leave the node alone until the push has returned.
            unsafe { (*node).head.next = if before == CLOSED { ptr::null_mut() } else { before } };
            return Ok(Pushed::Queued);
        }
        loop {
            // Ordering: Release pairs with the Acquire of `Detach` and `Close`; makes the node visible to its taker.
            // Relaxed on failure: what was seen is only linked to, not read.
            match self.newest.compare_exchange_weak(seen, link, order, Relaxed) {
                Ok(_) if seen == ARMED => return Ok(Pushed::Wake),
                Ok(_) => return Ok(Pushed::Queued),
                Err(now) if now == CLOSED => {
                    // SAFETY: [unpublished]
                    let node = unsafe { Box::from_raw(node) };
                    return Err(Closed(node.item));
                }
                Err(now) => {
                    seen = now;
                    // SAFETY: [unpublished]
                    unsafe { (*node).head.next = below(seen) };
                }
            }
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Batch<M, S> {
        let mut seen = self.newest.load(Relaxed);
        loop {
            if below(seen).is_null() || seen == CLOSED {
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

    pub(crate) fn close(&self) -> Batch<M, S> {
        // Ordering: Acquire as in `take`.
        let newest = self.newest.swap(CLOSED, Acquire);
        if newest == CLOSED {
            return Batch::new();
        }
        // SAFETY: [detached]
        unsafe { Batch::from_newest(below(newest)) }
    }

    pub(crate) fn arm(&self) -> bool {
        if MUTATION == mutation::ARM_WITHOUT_CAS {
            let empty = self.newest.load(Relaxed).is_null();
            if empty {
                self.newest.store(ARMED, Relaxed);
            }
            return empty;
        }
        // Ordering: Relaxed, nothing is published through `ARMED`. The pusher that replaces it wakes the consumer through
        // a word of the consumer's own.
        match self.newest.compare_exchange(ptr::null_mut(), ARMED, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(now) => now == ARMED,
        }
    }

    fn disarm(&self) {
        // Ordering: Relaxed, as in `arm`. Ignored: if it is not armed, a pusher is about to wake the consumer.
        let _ = self.newest.compare_exchange(ARMED, ptr::null_mut(), Relaxed, Relaxed);
    }

    fn is_empty(&self) -> bool {
        // Relaxed: a hint, nothing is read through it.
        let newest = self.newest.load(Relaxed);
        below(newest).is_null() || newest == CLOSED
    }

    fn is_closed(&self) -> bool {
        // Relaxed: as above.
        self.newest.load(Relaxed) == CLOSED
    }
}

impl<M, S, const MUTATION: u8> Drop for Stack<M, S, MUTATION> {
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
/// Unbounded: whoever needs a bound counts before it pushes. In memory the queue is one pointer, whatever it carries; what is queued takes a pointer
/// beside itself.
///
/// Beside messages it can carry items of a second type, in one order with them, which costs a message nothing: what a runtime tells its processes, say.
///
/// ```
/// use procession_queue::{Closed, Event, EventQueue, Pushed};
///
/// let queue = EventQueue::with_system();
/// assert!(queue.arm());
/// assert_eq!(queue.push("a"), Ok(Pushed::Wake));
/// assert_eq!(queue.push_system(1), Ok(Pushed::Queued));
/// assert!(queue.take().eq([Event::Message("a"), Event::System(1)]));
/// assert_eq!(queue.push("b"), Ok(Pushed::Queued));
/// assert!(queue.close().eq([Event::Message("b")]));
/// assert_eq!(queue.push("c"), Err(Closed("c")));
/// ```
///
/// A queue of references takes none that live shorter:
/// ```compile_fail
/// fn shorten<'a>(queue: &'a procession_queue::EventQueue<&'static str>) -> &'a procession_queue::EventQueue<&'a str> {
///     queue
/// }
/// ```
#[repr(transparent)]
pub struct EventQueue<M, S = Infallible>(Stack<M, S, { mutation::SOUND }>);

impl<M> EventQueue<M> {
    /// Makes an open, empty queue of messages alone.
    pub fn new() -> Self {
        Self(Stack::new())
    }
}

impl<M, S> EventQueue<M, S> {
    /// Makes an open, empty queue of messages and of what the system says.
    pub fn with_system() -> Self {
        Self(Stack::new())
    }

    /// Pushes behind everything queued. If the answer is [`Pushed::Wake`], the caller must wake the consumer.
    ///
    /// # Errors
    /// [`Closed`] returns the message if the queue is closed.
    #[inline]
    pub fn push(&self, message: M) -> Result<Pushed, Closed<M>> {
        self.0.push(message)
    }

    /// As [`push`](Self::push), for something of the system.
    ///
    /// # Errors
    /// [`Closed`] returns the item if the queue is closed.
    pub fn push_system(&self, item: S) -> Result<Pushed, Closed<S>> {
        self.0.push_system(item)
    }

    /// Takes everything queued, oldest first.
    #[inline]
    pub fn take(&self) -> Batch<M, S> {
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
    pub fn close(&self) -> Batch<M, S> {
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

impl<M, S> Default for EventQueue<M, S> {
    fn default() -> Self {
        Self::with_system()
    }
}

impl<M, S> fmt::Debug for EventQueue<M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventQueue").field("is_empty", &self.is_empty()).field("is_closed", &self.is_closed()).finish()
    }
}

/// What was taken from an [`EventQueue`], oldest first. Dropping it drops what was not iterated over.
pub struct Batch<M, S = Infallible> {
    oldest: Link,
    newest: Link,
    length: usize,
    items: PhantomData<Event<M, S>>,
}

// SAFETY: [detached], the batch owns its nodes and their items.
unsafe impl<M: Send, S: Send> Send for Batch<M, S> {}
// SAFETY: a shared reference gives no access to an item.
unsafe impl<M: Send, S: Send> Sync for Batch<M, S> {}

impl<M, S> Batch<M, S> {
    /// An empty batch.
    pub const fn new() -> Self {
        Self { oldest: ptr::null_mut(), newest: ptr::null_mut(), length: 0, items: PhantomData }
    }

    /// Turns a list round.
    ///
    /// # Safety
    /// `[detached]`: `newest` is null or heads a list of nodes that nobody else can reach.
    #[inline]
    unsafe fn from_newest(newest: Link) -> Self {
        // Nothing of it is in memory before it is complete: a load of two fields that were just stored one by one waits for both stores.
        let (mut oldest, mut link, mut length) = (ptr::null_mut(), newest, 0);
        while !link.is_null() {
            // SAFETY: [detached]
            let older = unsafe { std::mem::replace(&mut (*node(link)).next, oldest) };
            oldest = link;
            length += 1;
            link = older;
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
            unsafe { (*node(self.newest)).next = newer.oldest };
            self.newest = newer.newest;
        }
        self.length += newer.length;
    }
}

impl<M, S> Iterator for Batch<M, S> {
    type Item = Event<M, S>;

    #[inline]
    fn next(&mut self) -> Option<Event<M, S>> {
        let oldest = self.oldest;
        if oldest.is_null() {
            return None;
        }
        self.length -= 1;
        Some(if oldest.addr() & SYSTEM == 0 {
            // SAFETY: [detached], each node is visited once; [kind]
            let node = unsafe { Box::from_raw(node(oldest).cast::<Node<M>>()) };
            self.oldest = node.head.next;
            Event::Message(node.item)
        } else {
            // SAFETY: as above.
            let node = unsafe { Box::from_raw(node(oldest).cast::<Node<S>>()) };
            self.oldest = node.head.next;
            Event::System(node.item)
        })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.length, Some(self.length))
    }
}

impl<M, S> ExactSizeIterator for Batch<M, S> {}
impl<M, S> FusedIterator for Batch<M, S> {}

impl<M, S> Drop for Batch<M, S> {
    fn drop(&mut self) {
        // If the `Drop` of one item panics, those behind it are dropped all the same.
        struct Rest<'a, M, S>(&'a mut Batch<M, S>);
        impl<M, S> Drop for Rest<'_, M, S> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(drop);
            }
        }
        let rest = Rest(self);
        rest.0.by_ref().for_each(drop);
    }
}

impl<M, S> Default for Batch<M, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M, S> fmt::Debug for Batch<M, S> {
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
