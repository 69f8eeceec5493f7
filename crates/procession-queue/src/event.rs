//! # Event queue protocol
//!
//! ## Problem
//! Senders push messages for a process that may end at any moment. A message pushed just after the last look would
//! be lost without its sender knowing.
//!
//! ## States
//! One word, `newest`: 0 (open and empty), `ARMED` (open, empty, and the consumer wants to be woken), a link (open, the
//! nodes linked from the newest to the oldest), or `CLOSED` (for ever). A link is the address of a node, and in its lowest bit whether what the node
//! holds is a message or of the system, so that a message of 8 bytes takes a node of 16; what is of the system comes in its node. Where an address leaves the 16 highest bits of the word free (x86-64), the
//! word of an open queue has in them how many messages were ever pushed; a second word, `carried`, has what does not go into them.
//!
//! ## Steps
//! Push: `Load` newest; if `CLOSED`, return the item · `Link` the new node to it · `Publish` CAS newest to the new node and, if it is a message, one more; if
//! that replaced `ARMED`, tell the pusher to wake the consumer · if the count begins again at 0, `Carry` carried + 1.
//! Take: `Detach` CAS newest to 0. Arm: CAS 0 to `ARMED`. Disarm: CAS `ARMED` to 0. All three leave the count. Close: `Close` swap newest for `CLOSED`. Take and
//! close own all that they detached, and turn it round once, into the order of the pushes.
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
//! The count goes from one push to the next with the word, so no message is counted twice or not at all, and each time that it begins again exactly one
//! pusher carries.
//!
//! ## Allowed
//! Take may miss a push that is not visible to this thread yet (crate documentation, *Parking*). Between `Publish` and `Carry` the count is 65536 short; `len` makes up for it
//! unless more than that are queued, or pushers are delayed there that are as many pushes apart.
//!
//! ## Rejected
//! A linked queue with one swap per push (Vyukov's): a sender preempted between its two steps hides all later messages, and
//! a swap cannot fail on a closed queue.
//!
//! Backing off after a push that failed, by up to 8, 64 or 512 pauses: level in `bench fanin`. So is writing to the word's cache line before the load, so that
//! it comes to this processor once and not twice. A count in a word of its own for all pushes, a second read-modify-write: `fanin` 23 % more, `pingpong` 6 %.
//!
//! `Detach` that leaves `ARMED` after a single node, which spares the next wait its `Arm`: 6 % of `ring` and `pingpong`. But a push while the consumer is at that item
//! then wakes it for nothing.
//!
//! ## Invariants
//! - `[detached]` nodes that a successful `Detach` or `Close` took are reachable from nowhere else.
//! - `[unpublished]` a node before its `Publish` is its pusher's alone.
//! - `[kind]` a link has `SYSTEM` if and only if it was made of a `Node<S>`; else it was made of a `Node<M>`.
//! - `[exposed]` a link is a number, and leads to whichever node is at that address now. Between `Load` and `Publish` a node may be taken
//!   and freed, and another be made and pushed at its address. `Publish` succeeds, rightly, and the new node leads to the second one. A
//!   pointer that was loaded would have been one to the first. So each node exposes its provenance when it is pushed, and whoever
//!   follows a link takes the provenance of what is there.
//!
//! ## Checked by
//! `models::close_against_push`, `models::item_visible_to_its_taker`, `models::arm_against_push`, `models::count_against_take`, and their canaries;
//! `tests::a_push_leads_to_whatever_is_at_the_address_that_it_saw`, for `[exposed]`, under Miri (`.ci/deep`).

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ptr;

use procession_sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicUsize};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Publish` is a swap, which cannot see that the queue was closed after `Load`.
    pub(crate) const PUSH_WITHOUT_CHECK: u8 = 1;
    /// `Publish` does not release the node.
    pub(crate) const PUBLISH_RELAXED: u8 = 2;
    /// `Arm` is a check followed by a store.
    pub(crate) const ARM_WITHOUT_CAS: u8 = 3;
    /// `Carry` is decided by the first look at the word.
    pub(crate) const CARRY_UNCHECKED: u8 = 4;
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

/// The address of a node, with its kind; `[exposed]` says why it is no pointer.
type Link = usize;

/// Instead of the link to an older node: there is none.
const NONE: Link = 0;

/// In a link: the node holds something of the system.
const SYSTEM: usize = 1;
// The lowest bit of the address of a node is free, and the values below are none.
const _: () = assert!(align_of::<Head>() >= 4);

/// Instead of a link: the queue is empty and its consumer wants to be woken.
const ARMED: usize = 2;

/// Instead of a link: the queue is closed.
const CLOSED: usize = 3;

/// How much of a word is for the count. On x86-64, addresses leave so much free unless a program asks for others (5-level paging); elsewhere there may be tags, or is
/// no room.
const COUNT_BITS: u32 = if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) { 16 } else { 0 };

/// The part of a word that is a link, or instead of one.
const LINK: usize = usize::MAX >> COUNT_BITS;

/// One message in the count: 0 if there is no room for it, and then each push carries.
const ONE: usize = LINK.wrapping_add(1);

/// The node that a link leads to.
#[inline]
fn node(link: Link) -> *mut Head {
    // [exposed]
    ptr::with_exposed_provenance_mut(link & !SYSTEM)
}

/// The word `newest`: a link, or what is instead of one, and the count.
#[derive(Clone, Copy)]
struct Word(Link);

impl Word {
    #[inline]
    fn is(self, instead: usize) -> bool {
        self.0 & LINK == instead
    }

    #[inline]
    fn count(self) -> usize {
        self.0 & !LINK
    }

    /// The list that it heads, if it is not `CLOSED`.
    #[inline]
    fn list(self) -> Link {
        if self.is(ARMED) { NONE } else { self.0 & LINK }
    }

    #[inline]
    fn has_list(self) -> bool {
        // No link is as small.
        self.0 & LINK > CLOSED
    }

    /// The same count, with something else instead of a link.
    #[inline]
    fn with(self, instead: usize) -> Self {
        Self(self.count() | instead)
    }

    /// The same count and `more`, with a link.
    #[inline]
    fn head(self, link: Link, more: usize) -> Self {
        Self(link | self.count().wrapping_add(more))
    }
}

/// What an event queue carries: messages, and what whoever runs the consumer has to say to it.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<M, S = Infallible> {
    /// From a producer, by [`EventQueue::push`].
    Message(M),
    /// Of the system that the consumer is part of, by [`EventQueue::push_system`].
    System(Entry<S>),
}

impl<M> Event<M> {
    /// The message, where there is nothing else.
    pub fn into_message(self) -> M {
        match self {
            Self::Message(message) => message,
            Self::System(Entry(node)) => match node.item {},
        }
    }
}

/// Something of the system, in the allocation that will be its place in a queue: pushing it allocates nothing, and moves a pointer.
pub struct Entry<S>(Box<Node<S>>);

impl<S> Entry<S> {
    /// Allocates `item` with a place in a queue.
    pub fn new(item: S) -> Self {
        Self(Box::new(Node { head: Head { next: NONE }, item }))
    }

    /// The item.
    pub fn into_inner(self) -> S {
        self.0.item
    }
}

// SAFETY: [unpublished] or [detached], whichever it is: the node and its item are the entry's alone; its link is not looked at.
unsafe impl<S: Send> Send for Entry<S> {}
// SAFETY: as above.
unsafe impl<S: Sync> Sync for Entry<S> {}

impl<S: PartialEq> PartialEq for Entry<S> {
    fn eq(&self, other: &Self) -> bool {
        self.0.item == other.0.item
    }
}

impl<S: Eq> Eq for Entry<S> {}

impl<S: fmt::Debug> fmt::Debug for Entry<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.0.item).finish()
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

/// The words and their operations.
#[repr(C)]
pub(crate) struct Stack<M, S, const MUTATION: u8> {
    newest: AtomicUsize,
    carried: AtomicU32,
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
        Self::counting_from(0)
    }

    /// As if so many messages had been pushed and taken, so that models and tests reach the end of the count.
    pub(crate) fn counting_from(count: u16) -> Self {
        let (word, carried) = if COUNT_BITS == 0 { (0, count.into()) } else { (ONE.wrapping_mul(count.into()), 0) };
        Self { newest: AtomicUsize::new(word), carried: AtomicU32::new(carried), items: PhantomData }
    }

    /// The word now. Relaxed: what it leads to is acquired by who detaches it.
    #[inline]
    fn see(&self) -> Word {
        Word(self.newest.load(Relaxed))
    }

    #[inline]
    fn swap_if(&self, seen: Word, new: Word, success: Ordering) -> Result<(), Word> {
        // Relaxed on failure: what was seen is tried next, or given up.
        self.newest.compare_exchange_weak(seen.0, new.0, success, Relaxed).map(drop).map_err(Word)
    }

    #[inline]
    pub(crate) fn push(&self, message: M) -> Result<Pushed, Closed<M>> {
        let seen = self.see();
        if seen.is(CLOSED) {
            return Err(Closed(message));
        }
        let node = Box::new(Node { head: Head { next: seen.list() }, item: message });
        self.push_node(node, 0, seen).map_err(|node| Closed(node.item))
    }

    #[inline]
    pub(crate) fn push_system(&self, mut entry: Entry<S>) -> Result<Pushed, Closed<Entry<S>>> {
        let seen = self.see();
        if seen.is(CLOSED) {
            return Err(Closed(entry));
        }
        entry.0.head.next = seen.list();
        self.push_node(entry.0, SYSTEM, seen).map_err(|node| Closed(Entry(node)))
    }

    /// `kind` is `SYSTEM` for an `S`, and 0 for an `M`; `seen` is the word as it was just now, not `CLOSED`, and the node leads to its list.
    #[inline]
    fn push_node<T>(&self, node: Box<Node<T>>, kind: usize, mut seen: Word) -> Result<Pushed, Box<Node<T>>> {
        assert!(
            (&raw const *node).addr() <= LINK,
            "the allocator does not use the whole address space of 5-level paging"
        );
        let node = Box::into_raw(node);
        // [exposed]
        let link = node.expose_provenance() | kind;
        let one = if kind == SYSTEM { 0 } else { ONE };
        let order = if MUTATION == mutation::PUBLISH_RELAXED { Relaxed } else { Release };
        if MUTATION == mutation::PUSH_WITHOUT_CHECK {
            let before = Word(self.newest.swap(link, order));
            // SAFETY: the canary's two threads leave the node alone until the push has returned.
            unsafe { (*node).head.next = if before.is(CLOSED) { NONE } else { before.list() } };
            return Ok(Pushed::Queued);
        }
        let first_seen = seen;
        loop {
            let word = seen.head(link, one);
            // Ordering: Release pairs with the Acquire of `Detach` and `Close`; makes the node visible to its taker.
            match self.swap_if(seen, word, order) {
                Ok(()) => {
                    let carry_of =
                        if MUTATION == mutation::CARRY_UNCHECKED { first_seen.head(link, one) } else { word };
                    if kind != SYSTEM && carry_of.count() == 0 {
                        // Ordering: Release pairs with the Acquire of `len`, which then sees `Publish`, too.
                        self.carried.fetch_add(1, Release);
                    }
                    return Ok(if seen.is(ARMED) { Pushed::Wake } else { Pushed::Queued });
                }
                Err(now) if now.is(CLOSED) => {
                    // SAFETY: [unpublished]
                    return Err(unsafe { Box::from_raw(node) });
                }
                Err(now) => {
                    seen = now;
                    // SAFETY: [unpublished]
                    unsafe { (*node).head.next = seen.list() };
                }
            }
        }
    }

    #[inline]
    pub(crate) fn take(&self) -> Batch<M, S> {
        let mut seen = self.see();
        while seen.has_list() {
            // Ordering: Acquire pairs with the Release of `Publish`, of every push in the list: their CASes form one
            // release sequence.
            match self.swap_if(seen, seen.with(0), Acquire) {
                // SAFETY: [detached]
                Ok(()) => return unsafe { Batch::from_newest(seen.list()) },
                Err(now) => seen = now,
            }
        }
        Batch::new()
    }

    pub(crate) fn close(&self) -> Batch<M, S> {
        // Ordering: Acquire as in `take`.
        let newest = Word(self.newest.swap(CLOSED, Acquire));
        if newest.is(CLOSED) {
            return Batch::new();
        }
        // SAFETY: [detached]
        unsafe { Batch::from_newest(newest.list()) }
    }

    #[inline]
    pub(crate) fn arm(&self) -> bool {
        let mut seen = self.see();
        if MUTATION == mutation::ARM_WITHOUT_CAS {
            let empty = seen.is(0);
            if empty {
                self.newest.store(seen.with(ARMED).0, Relaxed);
            }
            return empty;
        }
        while seen.is(0) {
            // Ordering: Relaxed, nothing is published through `ARMED`. The pusher that replaces it wakes the consumer through
            // a word of the consumer's own.
            match self.swap_if(seen, seen.with(ARMED), Relaxed) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
        seen.is(ARMED)
    }

    fn disarm(&self) {
        let mut seen = self.see();
        // If it is not armed, a pusher is about to wake the consumer.
        while seen.is(ARMED) {
            // Ordering: Relaxed, as in `arm`.
            match self.swap_if(seen, seen.with(0), Relaxed) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    pub(crate) fn len(&self, taken: u32) -> u32 {
        // Ordering: Acquire pairs with the Release of `Carry`. So what is carried and not seen is missing, as it is before `Carry`, and nothing is counted twice.
        let carried = self.carried.load(Acquire);
        let seen = self.see();
        if seen.is(CLOSED) {
            return 0;
        }
        let low = seen.count().checked_shr(LINK.count_ones()).unwrap_or(0) as u32;
        let length = (carried << COUNT_BITS | low).wrapping_sub(taken);
        if length <= u32::MAX / 2 {
            return length;
        }
        // Some have been taken that are not carried yet: most likely by one pusher.
        let length = length.wrapping_add(1 << COUNT_BITS);
        if length <= u32::MAX / 2 { length } else { 0 }
    }

    fn is_empty(&self) -> bool {
        // A hint, nothing is read through it.
        !self.see().has_list()
    }

    fn is_closed(&self) -> bool {
        self.see().is(CLOSED)
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
/// Unbounded: whoever needs a bound counts before it pushes. In memory the queue is a pointer and a count, whatever it carries; what is queued takes a
/// pointer beside itself.
///
/// Beside messages it can carry items of a second type, in one order with them, which costs a message nothing: what a runtime tells its processes, say.
///
/// ```
/// use procession_queue::{Closed, Entry, Event, EventQueue, Pushed};
///
/// let queue = EventQueue::with_system();
/// assert!(queue.arm());
/// assert_eq!(queue.push("a"), Ok(Pushed::Wake));
/// assert_eq!(queue.push_system(Entry::new(1)), Ok(Pushed::Queued));
/// assert!(queue.take().eq([Event::Message("a"), Event::System(Entry::new(1))]));
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
    /// [`Closed`] returns the entry if the queue is closed.
    pub fn push_system(&self, entry: Entry<S>) -> Result<Pushed, Closed<Entry<S>>> {
        self.0.push_system(entry)
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

    /// How many messages are queued, if `taken` were ever taken, which is for the consumer to count, and goes round after 2^32. Of a closed queue, 0. While others
    /// push, the answer may be a little too small or too large and, if more than 65536 are queued, too small by so many for a moment.
    ///
    /// ```
    /// let queue = procession_queue::EventQueue::new();
    /// assert!(queue.push("a").is_ok() && queue.push("b").is_ok());
    /// assert_eq!(queue.len(0), 2);
    /// drop(queue.take());
    /// assert!(queue.push("c").is_ok());
    /// assert_eq!(queue.len(2), 1);
    /// ```
    #[inline]
    pub fn len(&self, taken: u32) -> u32 {
        self.0.len(taken)
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
        Self { oldest: NONE, newest: NONE, length: 0, items: PhantomData }
    }

    /// Turns a list round.
    ///
    /// # Safety
    /// `[detached]`: `newest` is `NONE` or heads a list of nodes that nobody else can reach.
    #[inline]
    unsafe fn from_newest(newest: Link) -> Self {
        // Nothing of it is in memory before it is complete: a load of two fields that were just stored one by one waits for both stores.
        let (mut oldest, mut link, mut length) = (NONE, newest, 0);
        while link != NONE {
            // SAFETY: [detached]
            let older = unsafe { std::mem::replace(&mut (*node(link)).next, oldest) };
            oldest = link;
            length += 1;
            link = older;
        }
        Self { oldest, newest, length, items: PhantomData }
    }

    /// The oldest node. Apart from the messages: a receiver of both took 15 instructions more for each message.
    ///
    /// # Safety
    /// There is one, and it holds something of the system.
    #[cold]
    unsafe fn next_entry(&mut self) -> Entry<S> {
        // SAFETY: [detached], each node is visited once; [kind] by the caller.
        let node = unsafe { Box::from_raw(node(self.oldest).cast::<Node<S>>()) };
        self.oldest = node.head.next;
        Entry(node)
    }

    /// Puts `newer` behind this batch, in constant time.
    #[inline]
    pub fn append(&mut self, newer: Self) {
        // Its nodes now belong to this batch.
        let newer = std::mem::ManuallyDrop::new(newer);
        if self.oldest == NONE {
            self.oldest = newer.oldest;
            self.newest = newer.newest;
        } else if newer.oldest != NONE {
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
        if oldest == NONE {
            return None;
        }
        self.length -= 1;
        if oldest & SYSTEM != 0 {
            // SAFETY: it is there, and [kind]
            return Some(Event::System(unsafe { self.next_entry() }));
        }
        // SAFETY: [detached], each node is visited once; [kind]
        let node = unsafe { Box::from_raw(node(oldest).cast::<Node<M>>()) };
        self.oldest = node.head.next;
        Some(Event::Message(node.item))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.length, Some(self.length))
    }
}

impl<M, S> ExactSizeIterator for Batch<M, S> {}
impl<M, S> FusedIterator for Batch<M, S> {}

impl<M, S> Drop for Batch<M, S> {
    #[inline]
    fn drop(&mut self) {
        // Most are dropped when everything was taken out.
        if self.len() > 0 {
            self.drop_rest();
        }
    }
}

impl<M, S> Batch<M, S> {
    #[cold]
    fn drop_rest(&mut self) {
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

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::convert::Infallible;

    use super::{Entry, Event, Head, Node, Stack, mutation};

    /// Goal: a push whose predecessor was replaced by another at the same address leads to that one,
    /// which Miri checks. Method: the push stands still between its look at the queue and its
    /// compare-and-swap. What is replaced is of the system, since a message would change the count.
    #[test]
    fn a_push_leads_to_whatever_is_at_the_address_that_it_saw() {
        let queue = Stack::<u8, u64, { mutation::SOUND }>::new();
        for _ in 0..1000 {
            assert!(queue.push_system(Entry::new(1)).is_ok());
            let seen = queue.see();
            let node = Box::new(Node { head: Head { next: seen.list() }, item: 7 });
            drop(queue.take());
            assert!(queue.push_system(Entry::new(2)).is_ok());
            if queue.see().0 != seen.0 {
                // The allocator has given it another address.
                drop(queue.take());
                continue;
            }
            assert!(queue.push_node(node, 0, seen).is_ok());
            assert!(queue.take().eq([Event::System(Entry::new(2)), Event::Message(7)]));
            return;
        }
        panic!("no address was used again in 1000 times");
    }

    #[test]
    fn the_count_begins_again() {
        let queue = Stack::<u8, Infallible, { mutation::SOUND }>::counting_from(u16::MAX - 1);
        let taken = u32::from(u16::MAX) - 1;
        for pushed in 1..=4 {
            assert!(queue.push(7).is_ok());
            assert_eq!(queue.len(taken), pushed);
        }
        assert_eq!(queue.take().len(), 4);
        assert_eq!(queue.len(taken + 4), 0);
        assert_eq!(queue.len(taken), 4, "as if they had not been taken");
    }
}
