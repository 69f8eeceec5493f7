//! # Event queue protocol
//!
//! ## Problem
//! Senders push messages for a process that may end at any moment. A message that is pushed just
//! after the process looked for the last time would be lost without its sender knowing.
//!
//! ## States
//! The word `newest` has one of four values:
//!
//! | value | meaning |
//! |---|---|
//! | 0 | open and empty |
//! | `ARMED` | open and empty, and the consumer wants to be woken |
//! | a link | open; the nodes are linked from the newest to the oldest |
//! | `CLOSED` | closed, which is final |
//!
//! A link is the address of a node. Its two lowest bits are the kind of the node: a message, an
//! item of the system, a message with an item of the system as its header, or a message in a block
//! of nodes (`event/block.rs`). Because the kind takes no room in the node, a message of 8 bytes
//! takes a node of 16 bytes. An item of the system is allocated by its sender, as an [`Entry`],
//! which becomes the node.
//!
//! On x86-64, addresses leave the 16 highest bits of the word free. While the queue is open, these
//! bits count the messages that were ever pushed. The second word, `carried`, counts the overflows
//! of these bits. On other targets it counts every message.
//!
//! ## Steps
//! Push: `Load` newest; if it is `CLOSED`, return the item · `Link` the new node to it · `Publish`
//! CAS newest to the new node, with the count raised by one if the node has a message · if that
//! replaced `ARMED`, the pusher must wake the consumer · if the count wrapped to 0, `Carry` add 1
//! to carried.
//!
//! Take: `Detach` CAS newest to 0. Arm: CAS 0 to `ARMED`. Disarm: CAS `ARMED` to 0. All
//! three keep the count.
//!
//! Close: `Close` swap newest for `CLOSED`. Take and close own all nodes that they detached. They
//! reverse the list once, into the order of the pushes.
//!
//! ## Why it works
//! `Publish` succeeds only on the word that was loaded, which was not `CLOSED`. In the order of the
//! word's changes, a push is therefore either before `Close` or after it. If it is before, its node
//! is among the nodes that `Close` or an earlier `Detach` took. If it is after, the push sees
//! `CLOSED`.
//!
//! All nodes leave together. If the word still equals the loaded word, it still heads the same
//! list, even if the first node was freed and allocated again in between. So there is no ABA
//! problem.
//!
//! `Arm` succeeds only on an empty queue, and exactly one of the pushes that follow replaces
//! `ARMED`. So exactly one pusher wakes a consumer that armed the queue before it sleeps, and all
//! other pushers do nothing but their CAS. Because no other word is read, no fence is needed.
//!
//! The count is part of the word, so each push continues from the count of the push before it. Each
//! message is counted exactly once, and each time the count wraps exactly one pusher carries.
//!
//! ## Allowed
//! Take may miss a push that is not visible to this thread yet (crate documentation, *Parking*).
//!
//! Between `Publish` and `Carry`, the count is 65536 below the number of messages. `len` corrects
//! this, with two exceptions: more than 65536 messages are queued, or two pushers that are 65536
//! pushes apart are both delayed there.
//!
//! ## Rejected
//! - A linked queue with one swap per push (Vyukov's). A sender that is preempted between its two
//!   steps hides all later messages, and a swap cannot fail on a closed queue.
//! - Backing off after a failed push, by up to 8, 64 or 512 pauses: no difference in `bench fanin`.
//!   The same holds for a write to the word's cache line before the load, so that the line moves to
//!   this processor once and not twice.
//! - A count in a separate word for all pushes, which is a second read-modify-write: `fanin` took
//!   23 % more time, `pingpong` 6 %.
//! - A `Detach` that leaves `ARMED` after a single node, which spares the next wait its `Arm`. It
//!   saved 6 % of `ring` and `pingpong`, but a push while the consumer works on that item then
//!   wakes it for nothing.
//! - Entries of the system handled inline in `Batch::next`: a receiver of both kinds took 15
//!   instructions more for each message.
//! - A header in each node, even if most are empty: 8 bytes and a store for each message.
//!
//! ## Invariants
//! - `[detached]` nodes that a successful `Detach` or `Close` took can be reached from nowhere
//!   else.
//! - `[unpublished]` a node belongs to its pusher alone before its `Publish`.
//! - `[kind]` the kind of a link determines what its node is: `SYSTEM` for a `Node<S>`, `HEADED`
//!   for a `Node<(S, M)>`, `IN_BLOCK` for a `Node<M>` in a block, and 0 for another `Node<M>`. All
//!   nodes except the nodes in blocks were allocated as boxes.
//! - `[exposed]` a link is a number, and leads to the node that is at that address now. Between
//!   `Load` and `Publish`, a node may be taken and freed, and another node be allocated and pushed
//!   at the same address. `Publish` then succeeds, and the new node leads to the second one. A
//!   loaded pointer would have led to the first. So each node exposes its provenance when it is
//!   pushed, and the thread that follows a link takes the provenance of the node that is there.
//!
//! ## Checked by
//! `models::close_against_push`, `models::item_visible_to_its_taker`, `models::arm_against_push`,
//! `models::count_against_take`, and their canaries; for `[exposed]`,
//! `tests::a_push_leads_to_whatever_is_at_the_address_that_it_saw` under Miri (`.ci/deep`).

use std::convert::Infallible;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ptr;

use procession_sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use procession_sync::atomic::{AtomicU32, AtomicUsize};

mod block;
mod item;
mod pushed;

#[cfg(all(test, procession_loom))]
pub(crate) use self::block::SHARERS;
pub use self::block::SharedNodes;
pub use self::item::Event;
pub use self::pushed::{Closed, Pushed};

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Publish` is a swap, which cannot see that the queue was closed after `Load`.
    pub(crate) const PUSH_WITHOUT_CHECK: u8 = 1;
    /// `Publish` does not release the node.
    pub(crate) const PUBLISH_RELAXED: u8 = 2;
    /// `Arm` is a check followed by a store.
    pub(crate) const ARM_WITHOUT_CAS: u8 = 3;
    /// `Carry` is decided by the first load of the word.
    pub(crate) const CARRY_UNCHECKED: u8 = 4;
    /// A message with a header does not count, as an item of the system.
    pub(crate) const HEADED_UNCOUNTED: u8 = 5;
    /// `Leave` of a block orders nothing.
    #[cfg(procession_loom)]
    pub(crate) const LEAVE_RELAXED: u8 = 6;
    /// `Leave` of a block loads the count, then stores it.
    #[cfg(procession_loom)]
    pub(crate) const LEAVE_WITHOUT_RMW: u8 = 7;
    /// A thread that ends keeps the nodes that it has taken.
    #[cfg(procession_loom)]
    pub(crate) const KEEP_AT_END: u8 = 8;
}

/// The first field of every node.
#[repr(C)]
struct Head {
    /// The link to the next older node. In a [`Batch`], it leads to the next newer node.
    next: Link,
}

#[repr(C)]
struct Node<T> {
    head: Head,
    item: T,
}

// A message adds one word to its own size.
const _: () = assert!(size_of::<Node<usize>>() == 2 * size_of::<usize>());

/// The address of a node, with its kind; `[exposed]` says why it is no pointer.
type Link = usize;

/// A value in place of a link: there is no older node.
const NONE: Link = 0;

/// The kind of a node that holds an item of the system.
const SYSTEM: usize = 1;

/// The kind of a node that holds a message and its header, an item of the system.
const HEADED: usize = 2;

/// The kind of a node of a block, which holds a message.
const IN_BLOCK: usize = 3;

/// The bits of a link that hold the kind of its node.
const KIND: usize = 3;
// The two lowest bits of a node's address are free, and the special values below are no addresses
// of nodes.
const _: () = assert!(align_of::<Head>() >= 4);

/// A value in place of a link: the queue is empty, and its consumer wants to be woken.
const ARMED: usize = 2;

/// A value in place of a link: the queue is closed.
const CLOSED: usize = 3;

/// The number of bits of the word that hold the count. On x86-64, addresses leave 16 bits free
/// unless a program asks for larger addresses (5-level paging). On other targets these bits may
/// hold tags, or do not exist.
const COUNT_BITS: u32 =
    if cfg!(all(target_arch = "x86_64", target_pointer_width = "64")) { 16 } else { 0 };

/// The bits of the word that hold a link, or a value in place of one.
const LINK: usize = usize::MAX >> COUNT_BITS;

/// One message in the count. If there is no room for a count, this is 0, and each push carries.
const ONE: usize = LINK.wrapping_add(1);

/// Returns the node that a link leads to.
#[inline]
fn node(link: Link) -> *mut Head {
    // [exposed]
    ptr::with_exposed_provenance_mut(link & !KIND)
}

/// The word `newest`: a link, or a value in place of one, together with the count.
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

    /// Returns the list that the word heads, which is null if the queue is armed. The word must not
    /// be `CLOSED`.
    #[inline]
    fn list(self) -> Link {
        if self.is(ARMED) { NONE } else { self.0 & LINK }
    }

    #[inline]
    fn has_list(self) -> bool {
        // No link is as small.
        self.0 & LINK > CLOSED
    }

    /// Returns a word with the same count, and with `instead` in place of a link.
    #[inline]
    fn with(self, instead: usize) -> Self {
        Self(self.count() | instead)
    }

    /// Returns a word with this link, and with the count raised by `more`.
    #[inline]
    fn head(self, link: Link, more: usize) -> Self {
        Self(link | self.count().wrapping_add(more))
    }
}

/// An item of the system, in an allocation that can become a node of a queue. Pushing an entry
/// allocates nothing: it only moves a pointer.
pub struct Entry<S>(Box<Node<S>>);

impl<S> Entry<S> {
    /// Allocates a node for `item`.
    pub fn new(item: S) -> Self {
        Self(Box::new(Node { head: Head { next: NONE }, item }))
    }

    /// Returns the item.
    pub fn into_inner(self) -> S {
        self.0.item
    }
}

// SAFETY: [unpublished] or [detached]: in either case the node and its item belong to the entry
// alone, and its link is not read.
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

/// The words of a queue and their operations.
#[repr(C)]
pub(crate) struct Stack<M, S, const MUTATION: u8> {
    newest: AtomicUsize,
    carried: AtomicU32,
    /// The alignment of the other words leaves this one over. The queue does not touch it.
    owned: AtomicU32,
    items: PhantomData<InAndOut<Event<M, S>>>,
}

/// A type that moves both in and out through a shared reference. The queue owns its items, and is
/// invariant in their type.
type InAndOut<T> = (T, fn(T));

// SAFETY: items move in from any thread and out to any thread; no reference to one is ever shared.
unsafe impl<M: Send, S: Send, const MUTATION: u8> Send for Stack<M, S, MUTATION> {}
// SAFETY: as above.
unsafe impl<M: Send, S: Send, const MUTATION: u8> Sync for Stack<M, S, MUTATION> {}

impl<M, S, const MUTATION: u8> Stack<M, S, MUTATION> {
    pub(crate) fn new() -> Self {
        Self::counting_from(0)
    }

    /// Creates a queue as if `count` messages had been pushed and taken, so that models and tests
    /// reach the point where the count wraps.
    pub(crate) fn counting_from(count: u16) -> Self {
        let (word, carried) =
            if COUNT_BITS == 0 { (0, count.into()) } else { (ONE.wrapping_mul(count.into()), 0) };
        Self {
            newest: AtomicUsize::new(word),
            carried: AtomicU32::new(carried),
            owned: AtomicU32::new(0),
            items: PhantomData,
        }
    }

    /// Loads the word. Relaxed: a thread that detaches the list acquires it then.
    #[inline]
    fn see(&self) -> Word {
        Word(self.newest.load(Relaxed))
    }

    #[inline]
    fn swap_if(&self, seen: Word, new: Word, success: Ordering) -> Result<(), Word> {
        // Relaxed on failure: the caller either retries with the new value or returns without a
        // push.
        self.newest.compare_exchange_weak(seen.0, new.0, success, Relaxed).map(drop).map_err(Word)
    }

    // `always`, because this has several callers for each kind of message. The compiler otherwise
    // makes it a call, for which a send takes 27 instructions more.
    #[inline(always)]
    pub(crate) fn push(&self, message: M) -> Result<Pushed, Closed<M>> {
        let seen = self.see();
        if seen.is(CLOSED) {
            return Err(Closed(message));
        }
        let node = Box::new(Node { head: Head { next: seen.list() }, item: message });
        self.push_node(node, 0, seen).map_err(|node| Closed(node.item))
    }

    #[inline]
    pub(crate) fn push_in(
        &self,
        nodes: &mut SharedNodes<M>,
        message: M,
    ) -> Result<Pushed, Closed<M>> {
        let Some(node) = nodes.next(MUTATION) else { return self.push(message) };
        let seen = self.see();
        if seen.is(CLOSED) {
            return Err(Closed(message));
        }
        // SAFETY: [unpublished], the memory has room for a node.
        unsafe { node.write(Node { head: Head { next: seen.list() }, item: message }) };
        // SAFETY: [unpublished] and [kind]
        match unsafe { self.publish(node, IN_BLOCK, seen) } {
            Some(pushed) => {
                nodes.use_next();
                Ok(pushed)
            }
            // SAFETY: [unpublished], and the memory is not read as a node again.
            None => Err(Closed(unsafe { node.read() }.item)),
        }
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

    /// Pushes a message with a header. It counts as any message.
    pub(crate) fn push_headed(&self, header: S, message: M) -> Result<Pushed, Closed<M>> {
        let seen = self.see();
        if seen.is(CLOSED) {
            return Err(Closed(message));
        }
        let node = Box::new(Node { head: Head { next: seen.list() }, item: (header, message) });
        self.push_node(node, HEADED, seen).map_err(|node| Closed(node.item.1))
    }

    /// Pushes `node`, as [`publish`](Self::publish) does. Returns it if the queue is closed.
    #[inline]
    fn push_node<T>(
        &self,
        node: Box<Node<T>>,
        kind: usize,
        seen: Word,
    ) -> Result<Pushed, Box<Node<T>>> {
        assert!(
            (&raw const *node).addr() <= LINK,
            "the allocator must not use the address space of 5-level paging"
        );
        let node = Box::into_raw(node);
        // SAFETY: [unpublished] and [kind], it is a box.
        let pushed = unsafe { self.publish(node, kind, seen) };
        // SAFETY: [unpublished]
        pushed.ok_or_else(|| unsafe { Box::from_raw(node) })
    }

    /// `Link` and `Publish`. `seen` is the word as it was loaded before, which must not be
    /// `CLOSED`; the node must already link to its list. Returns `None` if the queue is closed.
    ///
    /// # Safety
    /// `[unpublished]` and `[kind]`: the node belongs to the caller. If this returns `Some`, the
    /// caller has passed it to the queue. Its address is at most `LINK`.
    #[inline]
    unsafe fn publish<T>(&self, node: *mut Node<T>, kind: usize, mut seen: Word) -> Option<Pushed> {
        // [exposed]
        let link = node.expose_provenance() | kind;
        let is_counted =
            kind != SYSTEM && !(MUTATION == mutation::HEADED_UNCOUNTED && kind == HEADED);
        let one = if is_counted { ONE } else { 0 };
        let order = if MUTATION == mutation::PUBLISH_RELAXED { Relaxed } else { Release };
        if MUTATION == mutation::PUSH_WITHOUT_CHECK {
            let before = Word(self.newest.swap(link, order));
            // SAFETY: the canary's two threads leave the node alone until the push has returned.
            unsafe { (*node).head.next = if before.is(CLOSED) { NONE } else { before.list() } };
            return Some(Pushed::Queued);
        }
        let first_seen = seen;
        loop {
            let word = seen.head(link, one);
            // Ordering: Release pairs with the Acquire of `Detach` and `Close`; makes the node
            // visible to the thread that takes it.
            match self.swap_if(seen, word, order) {
                Ok(()) => {
                    let carry_of = if MUTATION == mutation::CARRY_UNCHECKED {
                        first_seen.head(link, one)
                    } else {
                        word
                    };
                    if is_counted && carry_of.count() == 0 {
                        // Ordering: Release pairs with the Acquire of `len`, which then also sees
                        // `Publish`.
                        self.carried.fetch_add(1, Release);
                    }
                    return Some(if seen.is(ARMED) { Pushed::Wake } else { Pushed::Queued });
                }
                Err(now) if now.is(CLOSED) => return None,
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
            // Ordering: Acquire pairs with the Release of `Publish`, of every push in the list:
            // their CASes form one release sequence.
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
            // Ordering: Relaxed, because nothing is published through `ARMED`. The pusher that
            // replaces it wakes the consumer through the consumer's own word.
            match self.swap_if(seen, seen.with(ARMED), Relaxed) {
                Ok(()) => return true,
                Err(now) => seen = now,
            }
        }
        seen.is(ARMED)
    }

    fn disarm(&self) {
        let mut seen = self.see();
        // If a pusher has already replaced `ARMED`, it is about to wake the consumer.
        while seen.is(ARMED) {
            // Ordering: Relaxed, as in `arm`.
            match self.swap_if(seen, seen.with(0), Relaxed) {
                Ok(()) => return,
                Err(now) => seen = now,
            }
        }
    }

    pub(crate) fn len(&self, taken: u32) -> u32 {
        // Ordering: Acquire pairs with the Release of `Carry`. If a carry is seen here, its
        // `Publish` is also seen, so no message is counted twice. If a carry is not seen yet, the
        // length is below the number of messages, as before `Carry`.
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
        // Some taken messages are not carried yet. Most likely a single pusher is about to carry.
        let length = length.wrapping_add(1 << COUNT_BITS);
        if length <= u32::MAX / 2 { length } else { 0 }
    }

    fn is_empty(&self) -> bool {
        // This is a hint: nothing is read through the word.
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

/// A queue from many producers to one consumer. The consumer takes everything queued in one step.
/// The queue can be closed.
///
/// If a consumer finds nothing, it [arms](EventQueue::arm) the queue before it sleeps. The first
/// push after that asks its caller to wake the consumer; all other pushes ask for nothing.
///
/// A push costs one allocation and one compare-and-swap. Taking costs one compare-and-swap for
/// everything that is queued, and yields the items in the order of their pushes, so draining a
/// backlog of n items costs O(n).
///
/// The queue is unbounded. A producer that needs a bound must count before it pushes. The queue
/// itself is a pointer and a count, whatever it carries. Each queued item takes its own size and a
/// pointer.
///
/// A queue can carry messages and items of a second type, in one common order. For example, a
/// runtime uses such items to send its own notices to a process. They make messages no larger and
/// no slower.
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
/// A queue of references does not accept references with a shorter lifetime:
/// ```compile_fail
/// use procession_queue::EventQueue;
///
/// fn shorten<'a>(queue: &'a EventQueue<&'static str>) -> &'a EventQueue<&'a str> {
///     queue
/// }
/// ```
#[repr(transparent)]
pub struct EventQueue<M, S = Infallible>(Stack<M, S, { mutation::SOUND }>);

impl<M> EventQueue<M> {
    /// Creates an open, empty queue that carries only messages.
    pub fn new() -> Self {
        Self(Stack::new())
    }
}

impl<M, S> EventQueue<M, S> {
    /// Creates an open, empty queue that carries messages and items of the system.
    pub fn with_system() -> Self {
        Self(Stack::new())
    }

    /// Pushes a message behind everything that is queued. If this returns [`Pushed::Wake`], the
    /// caller must wake the consumer.
    ///
    /// # Errors
    /// If the queue is closed, returns the message in [`Closed`].
    #[inline]
    pub fn push(&self, message: M) -> Result<Pushed, Closed<M>> {
        self.0.push(message)
    }

    /// Pushes a message in memory that it shares with other messages of this sender. Otherwise like
    /// [`push`](Self::push).
    ///
    /// ```
    /// use procession_queue::{Event, EventQueue, SharedNodes};
    ///
    /// let queues: [EventQueue<u32>; 50] = std::array::from_fn(|_| EventQueue::new());
    /// let mut nodes = SharedNodes::for_messages(queues.len());
    /// for queue in &queues {
    ///     assert!(queue.push_in(&mut nodes, 7).is_ok());
    /// }
    /// assert!(queues.iter().all(|queue| queue.take().eq([Event::Message(7)])));
    /// ```
    ///
    /// # Errors
    /// If the queue is closed, returns the message in [`Closed`].
    #[inline]
    pub fn push_in(&self, nodes: &mut SharedNodes<M>, message: M) -> Result<Pushed, Closed<M>> {
        self.0.push_in(nodes, message)
    }

    /// Pushes an item of the system, otherwise like [`push`](Self::push).
    ///
    /// # Errors
    /// If the queue is closed, returns the entry in [`Closed`].
    pub fn push_system(&self, entry: Entry<S>) -> Result<Pushed, Closed<Entry<S>>> {
        self.0.push_system(entry)
    }

    /// Pushes a message with a header, which the consumer receives together with it. Otherwise like
    /// [`push`](Self::push): the message counts as any other.
    ///
    /// ```
    /// use procession_queue::{Event, EventQueue};
    ///
    /// let queue = EventQueue::with_system();
    /// assert!(queue.push_headed(7, "a").is_ok());
    /// assert_eq!(queue.len(0), 1);
    /// let Some(Event::Headed(entry)) = queue.take().next() else { panic!("it has a header") };
    /// assert_eq!(entry.into_inner(), (7, "a"));
    /// ```
    ///
    /// # Errors
    /// If the queue is closed, returns the message in [`Closed`].
    pub fn push_headed(&self, header: S, message: M) -> Result<Pushed, Closed<M>> {
        self.0.push_headed(header, message)
    }

    /// Returns a number that [`set_owned`](Self::set_owned) has stored, or 0.
    ///
    /// The number has no meaning for the queue. It is in bytes that the alignment of the queue
    /// leaves over, so that an owner with many queues can store it at no cost.
    pub fn owned(&self) -> u32 {
        // Relaxed: the number stands for itself.
        self.0.owned.load(Relaxed)
    }

    /// Stores a number for the owner of the queue.
    #[inline]
    pub fn set_owned(&self, number: u32) {
        // Relaxed: as in `owned`.
        self.0.owned.store(number, Relaxed);
    }

    /// Takes everything that is queued, oldest first.
    #[inline]
    pub fn take(&self) -> Batch<M, S> {
        self.0.take()
    }

    /// Arms the queue if it is empty: exactly one of the pushes that follow returns
    /// [`Pushed::Wake`].
    ///
    /// Returns `true` if the queue is armed now. Returns `false` if there is something to take, or
    /// if the queue is closed.
    #[inline]
    pub fn arm(&self) -> bool {
        self.0.arm()
    }

    /// Withdraws the request of [`arm`](Self::arm), unless a pusher has already seen it.
    pub fn disarm(&self) {
        self.0.disarm();
    }

    /// Closes the queue and takes everything that is queued. Every later push fails; a closed queue
    /// cannot be opened again.
    pub fn close(&self) -> Batch<M, S> {
        self.0.close()
    }

    /// Returns the number of queued messages, given that `taken` messages were ever taken. Returns
    /// 0 if the queue is closed.
    ///
    /// The consumer must count the messages that it takes. Its count wraps after 2^32. While others
    /// push, the answer may be slightly below or above the number of messages. If more than 65536
    /// messages are queued, the answer may be 65536 below the number for a moment.
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

    /// Returns `true` if no queued item is visible to this thread. See *Parking* in the [crate
    /// documentation](crate).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if this thread sees that the queue was closed.
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
        f.debug_struct("EventQueue")
            .field("is_empty", &self.is_empty())
            .field("is_closed", &self.is_closed())
            .finish()
    }
}

/// The items taken from an [`EventQueue`], oldest first. Dropping a batch drops the items that were
/// not iterated over.
pub struct Batch<M, S = Infallible> {
    oldest: Link,
    newest: Link,
    length: usize,
    items: PhantomData<Event<M, S>>,
}

// SAFETY: [detached], the batch owns its nodes and their items.
unsafe impl<M: Send, S: Send> Send for Batch<M, S> {}
// SAFETY: a shared reference provides no access to an item.
unsafe impl<M: Send, S: Send> Sync for Batch<M, S> {}

impl<M, S> Batch<M, S> {
    /// Creates an empty batch.
    pub const fn new() -> Self {
        Self { oldest: NONE, newest: NONE, length: 0, items: PhantomData }
    }

    /// Reverses a list.
    ///
    /// # Safety
    /// `[detached]`: `newest` is `NONE`, or heads a list of nodes that no other thread can reach.
    #[inline]
    unsafe fn from_newest(newest: Link) -> Self {
        // The batch is written to memory only when it is complete. A wide load of two fields that
        // were just stored one by one would wait for both stores.
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

    /// Takes the oldest node, if it has a kind. These are kept out of the path of messages (see
    /// *Rejected*).
    ///
    /// # Safety
    /// The batch is not empty, and the kind of its oldest node is not 0.
    #[inline(never)]
    unsafe fn next_of_kind(&mut self) -> Event<M, S> {
        let oldest = node(self.oldest);
        if self.oldest & KIND == IN_BLOCK {
            // SAFETY: [detached]
            self.oldest = unsafe { (*oldest).next };
            // SAFETY: [detached], each node is visited once; [kind]
            return Event::Message(unsafe { block::take(oldest.cast::<Node<M>>()) });
        }
        if self.oldest & KIND == SYSTEM {
            // SAFETY: [detached], each node is visited once; [kind]
            let node = unsafe { Box::from_raw(oldest.cast::<Node<S>>()) };
            self.oldest = node.head.next;
            return Event::System(Entry(node));
        }
        // SAFETY: [detached], each node is visited once; [kind] by the caller.
        let node = unsafe { Box::from_raw(oldest.cast::<Node<(S, M)>>()) };
        self.oldest = node.head.next;
        Event::Headed(Entry(node))
    }

    /// Appends `newer` to this batch, in constant time.
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

    /// Returns the oldest item, if it is an item of the system.
    pub fn peek_system(&mut self) -> Option<&mut S> {
        if self.oldest & KIND != SYSTEM {
            return None;
        }
        // SAFETY: [detached], the node belongs to this batch alone; [kind]
        Some(unsafe { &mut (*node(self.oldest).cast::<Node<S>>()).item })
    }

    /// Moves the oldest item behind another batch. Returns `false` if there is none.
    ///
    /// ```
    /// use procession_queue::{Entry, Event, EventQueue};
    ///
    /// let queue = EventQueue::with_system();
    /// assert!(queue.push("a").is_ok());
    /// assert!(queue.push_system(Entry::new(1)).is_ok());
    /// assert!(queue.push("b").is_ok());
    /// let (mut seen, mut rest) = (Default::default(), queue.take());
    /// assert_eq!(rest.peek_system(), None);
    /// assert!(rest.move_oldest_to(&mut seen));
    /// assert_eq!(rest.peek_system(), Some(&mut 1));
    /// assert!(rest.next().is_some_and(|event| matches!(event, Event::System(_))));
    /// seen.append(rest);
    /// assert!(seen.eq([Event::Message("a"), Event::Message("b")]));
    /// ```
    pub fn move_oldest_to(&mut self, other: &mut Self) -> bool {
        let oldest = self.oldest;
        if oldest == NONE {
            return false;
        }
        // SAFETY: [detached], the node belongs to this batch alone, and then to `other`.
        self.oldest = unsafe { std::mem::replace(&mut (*node(oldest)).next, NONE) };
        self.length -= 1;
        other.append(Self { oldest, newest: oldest, length: 1, items: PhantomData });
        true
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
        if oldest & KIND != 0 {
            // SAFETY: the batch is not empty, and its oldest node has a kind.
            return Some(unsafe { self.next_of_kind() });
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
        // Most batches are empty by the time they are dropped.
        if self.len() > 0 {
            self.drop_rest();
        }
    }
}

impl<M, S> Batch<M, S> {
    #[cold]
    fn drop_rest(&mut self) {
        // If the `Drop` of one item panics, the items behind it are still dropped.
        struct RestOfBatch<'a, M, S>(&'a mut Batch<M, S>);
        impl<M, S> Drop for RestOfBatch<'_, M, S> {
            fn drop(&mut self) {
                self.0.by_ref().for_each(drop);
            }
        }
        let rest = RestOfBatch(self);
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

#[cfg(all(test, not(procession_loom)))]
mod tests;
