//! # Node block protocol
//!
//! ## Problem
//! One thread sends a message to each of many queues, and another thread takes it. Each message is
//! then allocated by one thread and freed by another thread. To free it, an allocator makes a
//! read-modify-write for each message, of memory that the first thread uses to allocate.
//!
//! ## States
//! A *block* is one allocation with room for the nodes of many messages. Its head counts the nodes
//! that are *live*: the nodes in queues, and the nodes that are not used yet.
//!
//! ## Steps
//! - Fill: the sender writes a node of its block and pushes it (`Publish` in `event.rs`). If the
//!   queue is closed, the next message has that node.
//! - Take: the taker moves the message out of its node, and counts the node among the nodes that
//!   its thread has taken of this block. If the thread has taken nodes of another block before, it
//!   `Leave`s with these. It also does so when it ends.
//! - Give up: the sender `Leave`s with the nodes that it has not used.
//! - `Leave`: lower the count. If it is zero then, `Free` the block.
//!
//! A sender that has used all nodes does not touch the block any more.
//!
//! ## Why it works
//! Each node leaves once: with the thread that took it, or with the sender if it was never in a
//! queue. So the count is zero when the last node leaves, and no other thread touches the block
//! afterwards. Until then the count is not zero, so a block that a thread remembers exists. The
//! leaves are read-modify-writes of one word, so the last leave acquires what was released by all
//! other leaves, and frees the block after them.
//!
//! ## Allowed
//! One message that is not taken keeps the memory of its block. This is why a block is small, and
//! why messages that would share it with few others have separate nodes. A block has no owner: it
//! may outlive its sender and all queues. A thread that has taken messages of a block may keep the
//! block until the thread takes a message of another block.
//!
//! ## Rejected
//! A `Leave` for each message: `bench group_broadcast` took 113 ns for each message instead of 104.
//! Blocks of 256, 1024, 2048 and 4096 bytes: level.
//!
//! ## Invariants
//! - `[block]` a node of a block lies at least [`FIRST`] bytes behind the head and within the
//!   block, and a block is aligned to its size. So the head is at the address of the node, rounded
//!   down.
//! - `[live]` the count of a block is at least the number of nodes that have not left.
//!
//! ## Checked by
//! `models::leave_against_leave`, `models::give_up_against_take`,
//! `models::close_against_push_in_block`, and their canaries; `tests/it/blocks.rs`, also under Miri
//! (`.ci/deep`).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::AcqRel;
#[cfg(procession_loom)]
use procession_sync::atomic::Ordering::Relaxed;
use procession_sync::thread_local;

#[cfg(procession_loom)]
use super::mutation;
use super::{LINK, Node};

/// The size of a block, and its alignment.
const BYTES: usize = 512;

/// The distance of the first node from the head, at least. The count has its own cache line,
/// because takers write it while the sender writes nodes.
const FIRST: usize = 64;

/// The minimum number of messages that share a block. This is a guess: fewer messages save little,
/// and each message may keep the whole block.
pub(crate) const SHARERS: usize = 8;

const LAYOUT: Layout = match Layout::from_size_align(BYTES, BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("a block has a power of two of bytes"),
};
const _: () = assert!(size_of::<BlockHead>() <= FIRST && align_of::<BlockHead>() <= BYTES);

/// The head of a block.
struct BlockHead {
    /// The number of live nodes.
    live: AtomicU32,
    /// Stands for the memory of the block, so that loom sees which thread uses it, which thread
    /// frees it, and that it is freed.
    #[cfg(procession_loom)]
    memory: procession_sync::Arc<procession_sync::cell::UnsafeCell<()>>,
    /// The planted defect.
    #[cfg(procession_loom)]
    mutation: u8,
}

impl BlockHead {
    /// Lowers the count. Returns `true` if no node is live then.
    #[inline]
    fn lower(&self, nodes: u32) -> bool {
        #[cfg(procession_loom)]
        {
            self.memory.with(|_| {});
            if self.mutation == mutation::LEAVE_RELAXED {
                return self.live.fetch_sub(nodes, Relaxed) == nodes;
            }
            if self.mutation == mutation::LEAVE_WITHOUT_RMW {
                let before = self.live.load(Relaxed);
                self.live.store(before - nodes, Relaxed);
                return before == nodes;
            }
        }
        // Ordering: AcqRel pairs with itself: the block is freed after everything that others did
        // with its nodes before they left.
        self.live.fetch_sub(nodes, AcqRel) == nodes
    }
}

/// Returns the head of the block in which a node lies.
#[inline]
fn head_of<M>(node: *mut Node<M>) -> *mut BlockHead {
    // [block]
    node.map_addr(|address| address & !(BYTES - 1)).cast()
}

/// `Leave`, with `nodes` nodes.
///
/// # Safety
/// `[live]`: the block has at least as many nodes that have not left, and the caller uses no such
/// node afterwards. `head` may be used for the whole block.
unsafe fn leave(head: *mut BlockHead, nodes: u32) {
    // SAFETY: [live]
    if !unsafe { &*head }.lower(nodes) {
        return;
    }
    #[cfg(procession_loom)]
    // SAFETY: [live] no node is live, so nothing else refers to the block.
    unsafe { &*head }.memory.with_mut(|_| {});
    // SAFETY: as above.
    unsafe { ptr::drop_in_place(head) };
    // SAFETY: as above. It was allocated with this layout.
    unsafe { dealloc(head.cast(), LAYOUT) };
}

/// The nodes of one block that a thread has taken and has not left with. They are live.
struct TakenNodes {
    head: Cell<*mut BlockHead>,
    count: Cell<u32>,
}

impl TakenNodes {
    const fn none() -> Self {
        Self { head: Cell::new(ptr::null_mut()), count: Cell::new(0) }
    }

    /// Adds a node of a block.
    ///
    /// # Safety
    /// As for [`leave`] with one node.
    #[inline]
    unsafe fn add(&self, head: *mut BlockHead) {
        if self.head.get() == head {
            self.count.set(self.count.get() + 1);
            return;
        }
        let (before, count) = (self.head.replace(head), self.count.replace(1));
        if count > 0 {
            // SAFETY: [live], as the callers that added these nodes have said.
            unsafe { leave(before, count) };
        }
    }
}

impl Drop for TakenNodes {
    fn drop(&mut self) {
        let (head, count) = (self.head.get(), self.count.get());
        if count == 0 {
            return;
        }
        #[cfg(procession_loom)]
        {
            // A model that has panicked is over.
            // SAFETY: [live]
            let planted = unsafe { &*head }.mutation;
            if procession_sync::thread::panicking() || planted == mutation::KEEP_AT_END {
                return;
            }
        }
        // SAFETY: as in `add`.
        unsafe { leave(head, count) };
    }
}

#[cfg(not(procession_loom))]
thread_local! {
    static TAKEN: TakenNodes = const { TakenNodes::none() };
}
#[cfg(procession_loom)]
thread_local! {
    static TAKEN: TakenNodes = TakenNodes::none();
}

/// Takes the message of a node.
///
/// # Safety
/// `[detached]` and `[kind]`: the node is one of a block, belongs to the caller, and is taken once.
#[inline]
pub(super) unsafe fn take<M>(node: *mut Node<M>) -> M {
    // SAFETY: [detached], and the memory is not read as a node again.
    let Node { item, .. } = unsafe { node.read() };
    let head = head_of(node);
    // SAFETY: [live] this node has not left.
    if TAKEN.try_with(|taken| unsafe { taken.add(head) }).is_err() {
        // The thread ends, and its nodes have left.
        // SAFETY: as above.
        unsafe { leave(head, 1) };
    }
    item
}

/// Memory for the messages of one sender to many queues; see
/// [`EventQueue::push_in`](super::EventQueue::push_in).
///
/// Messages that are pushed in it share allocations of 512 bytes, each of which is freed some time
/// after the last of its messages was taken. So one message that is not taken keeps 512 bytes.
/// Messages of more than 48 bytes share nothing.
#[derive(Debug)]
pub struct SharedNodes<M> {
    /// The next node of the present block, if any of its nodes is unused.
    next: *mut Node<M>,
    unused: u32,
    /// The number of messages that have no node yet.
    expected: usize,
    messages: PhantomData<M>,
}

impl<M> SharedNodes<M> {
    /// The distance of the first node from the head.
    const FIRST: usize = FIRST.next_multiple_of(align_of::<Node<M>>());

    /// The number of nodes of a block.
    const CAPACITY: usize = BYTES.saturating_sub(Self::FIRST) / size_of::<Node<M>>();

    /// Creates memory for about `count` messages. It allocates nothing before the first message.
    pub fn for_messages(count: usize) -> Self {
        Self { next: ptr::null_mut(), unused: 0, expected: count, messages: PhantomData }
    }

    /// Returns memory for the next node. Returns `None` if the next message is to have a separate
    /// node.
    #[inline]
    pub(super) fn next(&mut self, mutation: u8) -> Option<*mut Node<M>> {
        let expected = self.expected;
        self.expected = expected.saturating_sub(1);
        if self.unused == 0 {
            if Self::CAPACITY < SHARERS || expected < SHARERS {
                return None;
            }
            self.allocate(mutation);
        }
        Some(self.next)
    }

    /// Marks the node that was returned last as pushed. The block may be gone.
    #[inline]
    pub(super) fn use_next(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.unused -= 1;
    }

    #[cold]
    fn allocate(&mut self, _mutation: u8) {
        // SAFETY: the layout is not empty.
        let block = unsafe { alloc(LAYOUT) };
        if block.is_null() {
            handle_alloc_error(LAYOUT);
        }
        assert!(
            block.addr() + BYTES <= LINK,
            "the allocator must not use the address space of 5-level paging"
        );
        let head = BlockHead {
            live: AtomicU32::new(Self::CAPACITY as u32),
            #[cfg(procession_loom)]
            memory: procession_sync::Arc::new(procession_sync::cell::UnsafeCell::new(())),
            #[cfg(procession_loom)]
            mutation: _mutation,
        };
        // SAFETY: the head has room before the first node, and is aligned because the block is.
        unsafe { block.cast::<BlockHead>().write(head) };
        // SAFETY: the block has room for nodes from there on. [block]
        self.next = unsafe { block.add(Self::FIRST) }.cast();
        self.unused = Self::CAPACITY as u32;
    }
}

impl<M> Drop for SharedNodes<M> {
    /// `Give up`.
    fn drop(&mut self) {
        if self.unused > 0 {
            // SAFETY: [live] the unused nodes have not left.
            unsafe { leave(head_of(self.next), self.unused) };
        }
    }
}
