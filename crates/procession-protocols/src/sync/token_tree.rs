//! # Token protocol
//!
//! ## Problem
//! A token is cancelled while a waiter begins to wait for it, or while a child is made. The waiter
//! or the child must learn of the cancel. A program has long-lived tokens with many short-lived
//! children, which must leave nothing behind.
//!
//! ## States
//! A tree of nodes. A node keeps its parent alive, so a dropped token still passes a cancel on to
//! the children of its node. A parent knows its children by weak references. Each node has a bell
//! (`sync/bell.rs`) with one lock for all of its state: whether it is *cancelled*, whether it is
//! *settled* (all of its descendants are also cancelled), and its children by number.
//!
//! ## Steps
//! - Wait: `Look` whether the node is cancelled, and enlist at the bell in the same critical
//!   section.
//! - Make a child: `Look` whether the parent is cancelled, and `Insert` the child in the same
//!   critical section. The child of a cancelled parent is born cancelled, and has no parent.
//! - Cancel, for the node and each descendant, unless it is settled: `Mark` it, take its waiters
//!   and copy its list of children, in one critical section. Then `Settle` all these nodes, and
//!   last of all wake the waiters, outside the locks.
//! - Drop of a node: remove its number from its parent, and drop the reference to the parent. A
//!   chain of dropped parents is dropped in a loop.
//!
//! ## Why it works
//! A wait and a cancel are ordered by the lock of the node, and so are the birth of a child and a
//! cancel of its parent. Two cancels may meet in one subtree. The second one finds marked nodes
//! that are not settled, and visits their children as well. So when a cancel returns, all
//! descendants are cancelled.
//!
//! ## Checked by
//! `models::wait_against_cancel`, `models::child_against_cancel`,
//! `models::two_cancels_in_one_subtree`, and their canaries; `tests/it/cancel/tokens.rs`.

use std::sync::{Arc, Weak};
#[cfg(all(test, procession_loom))]
use std::task::Waker;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Release};

use crate::sync::bell::{Bell, Ringing};
#[cfg(all(test, procession_loom))]
use crate::sync::wait_list::Place;
use crate::sync::wait_list::ServedWaiters;
use crate::util::sorted_map::SortedMap;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// Take the waiters in a critical section before `Mark`.
    #[cfg(all(test, procession_loom))]
    pub const RING_BEFORE_MARK: u8 = 1;
    /// `Look` whether the parent is cancelled in a critical section before `Insert`.
    #[cfg(all(test, procession_loom))]
    pub const LOOK_BEFORE_INSERT: u8 = 2;
    /// A cancel does not visit the children of a node that is marked.
    #[cfg(all(test, procession_loom))]
    pub const STOP_AT_MARK: u8 = 3;
}

/// The state under the lock of a node.
#[derive(Debug)]
pub struct Branch<const MUTATION: u8> {
    is_cancelled: bool,
    is_settled: bool,
    children: SortedMap<u64, Weak<TokenNode<MUTATION>>>,
    last_child: u64,
}

/// A token, shared by its clones.
#[derive(Debug)]
pub struct TokenNode<const MUTATION: u8 = { mutation::SOUND }> {
    /// The bell that rings when the token is cancelled, with its children.
    pub bell: Bell<Branch<MUTATION>>,
    /// The same as in `Branch`, to be read without the lock.
    is_cancelled: AtomicBool,
    /// The parent, and the number of this node there.
    parent: Option<(Arc<Self>, u64)>,
}

impl<const MUTATION: u8> TokenNode<MUTATION> {
    /// Creates a token. `parent` is the parent with the number of the child there.
    pub fn new(parent: Option<(Arc<Self>, u64)>, is_cancelled: bool) -> Self {
        Self {
            bell: Bell::new(Branch {
                is_cancelled,
                is_settled: is_cancelled,
                children: SortedMap::new(),
                last_child: 0,
            }),
            is_cancelled: AtomicBool::new(is_cancelled),
            parent,
        }
    }

    /// Returns `true` if the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        // Ordering: Acquire pairs with the Release of `mark`: what happened before the cancel is
        // visible.
        self.is_cancelled.load(Acquire)
    }

    /// Makes a child.
    pub fn child(self: &Arc<Self>) -> Arc<Self> {
        if cfg!(procession_loom) && MUTATION == 2 {
            let is_cancelled = self.bell.change(|ringing| ringing.about.is_cancelled);
            return self.child_if(|_| !is_cancelled);
        }
        self.child_if(|branch| !branch.is_cancelled)
    }

    fn child_if(self: &Arc<Self>, lives: impl FnOnce(&Branch<MUTATION>) -> bool) -> Arc<Self> {
        let child = self.bell.change(|ringing| {
            let branch = &mut ringing.about;
            if !lives(branch) {
                return None;
            }
            branch.last_child += 1;
            let child = Arc::new(Self::new(Some((Arc::clone(self), branch.last_child)), false));
            branch.children.insert(branch.last_child, Arc::downgrade(&child));
            Some(child)
        });
        child.unwrap_or_else(|| Arc::new(Self::new(None, true)))
    }

    /// Enlists a waiter. Returns `None` if the token is cancelled.
    #[cfg(all(test, procession_loom))]
    fn enlist(&self, waker: Waker) -> Option<Place> {
        self.bell.change(|ringing| Self::waits(&mut ringing.about).then(|| ringing.enlist(waker)))
    }

    /// Returns `true` if a waiter has to wait.
    pub fn waits(branch: &mut Branch<MUTATION>) -> bool {
        !branch.is_cancelled
    }

    /// Cancels the node and its descendants. Returns the waiters, to be woken.
    pub fn cancel(self: &Arc<Self>) -> Vec<ServedWaiters> {
        let (mut visited, mut woken) = (Vec::new(), Vec::new());
        let mut next = vec![Arc::clone(self)];
        while let Some(node) = next.pop() {
            let (children, rung) = node.mark();
            next.extend(children);
            woken.push(rung);
            visited.push(node);
        }
        for node in &visited {
            let children = node.bell.change(|ringing| {
                ringing.about.is_settled = true;
                std::mem::take(&mut ringing.about.children)
            });
            drop(children);
        }
        woken
    }

    /// `Mark`. Returns the children and the waiters.
    fn mark(&self) -> (Vec<Arc<Self>>, ServedWaiters) {
        let mut early = ServedWaiters::default();
        if cfg!(procession_loom) && MUTATION == 1 {
            early = self.bell.change(Ringing::ring_all);
        }
        self.bell.change(|ringing| {
            let branch = &mut ringing.about;
            let is_known = cfg!(procession_loom) && MUTATION == 3 && branch.is_cancelled;
            if branch.is_settled || is_known {
                return (Vec::new(), ServedWaiters::default());
            }
            branch.is_cancelled = true;
            // Ordering: Release pairs with the Acquire of `is_cancelled`.
            self.is_cancelled.store(true, Release);
            let children = branch.children.values().filter_map(Weak::upgrade).collect();
            let early = std::mem::take(&mut early);
            let is_early = cfg!(procession_loom) && MUTATION == 1;
            (children, if is_early { early } else { ringing.ring_all() })
        })
    }

    #[cfg(all(test, not(procession_loom)))]
    fn children(&self) -> usize {
        self.bell.change(|ringing| ringing.about.children.len())
    }
}

impl<const MUTATION: u8> Drop for TokenNode<MUTATION> {
    fn drop(&mut self) {
        let mut parent = self.parent.take();
        // A loop, because a chain of parents may be longer than the stack has room for.
        while let Some((node, number)) = parent {
            drop(node.bell.change(|ringing| ringing.about.children.remove(&number)));
            parent = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::sync::Arc;

    use super::TokenNode;

    #[test]
    fn a_dropped_child_leaves_nothing_with_its_parent() {
        let parent = Arc::new(<TokenNode>::new(None, false));
        let kept = parent.child();
        for _ in 0..100 {
            let child = parent.child();
            let grandchild = child.child();
            drop(child);
            assert_eq!(parent.children(), 2, "a child with children of its own is kept");
            drop(grandchild);
        }
        assert_eq!(parent.children(), 1);
        drop(parent.cancel());
        assert_eq!(parent.children(), 0);
        assert!(kept.is_cancelled());
        drop(kept);
        assert_eq!(Arc::strong_count(&parent), 1);
    }

    #[test]
    fn a_long_chain_is_cancelled_and_dropped() {
        let root = Arc::new(<TokenNode>::new(None, false));
        let mut last = Arc::clone(&root);
        for _ in 0..200_000 {
            last = last.child();
        }
        drop(root.cancel());
        assert!(last.is_cancelled());
        drop(last);
        assert_eq!(Arc::strong_count(&root), 1);
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{explore, thread};

    use super::{Arc, TokenNode, mutation};
    use crate::sync::wait_list::Another;

    /// A waiter begins to wait for a token while another thread cancels it.
    fn wait<const MUTATION: u8>() {
        explore(|| {
            let token = Arc::new(TokenNode::<MUTATION>::new(None, false));
            let cancels = {
                let token = Arc::clone(&token);
                thread::spawn(move || drop(token.cancel()))
            };
            let mut place = token.enlist(Waker::noop().clone());
            cancels.join().expect("it does not panic");
            let waits = place.is_some();
            let is_rung = token.bell.look(&mut place, &mut Another::none()).is_some();
            assert!(!waits || is_rung, "the waiter waits forever");
        });
    }

    #[test]
    fn wait_against_cancel() {
        wait::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the waiter waits forever")]
    fn canary_ring_before_mark() {
        wait::<{ mutation::RING_BEFORE_MARK }>();
    }

    /// A child is made while another thread cancels the parent.
    fn child<const MUTATION: u8>() {
        explore(|| {
            let token = Arc::new(TokenNode::<MUTATION>::new(None, false));
            let cancels = {
                let token = Arc::clone(&token);
                thread::spawn(move || drop(token.cancel()))
            };
            let child = token.child();
            cancels.join().expect("it does not panic");
            assert!(child.is_cancelled(), "the child is not told");
        });
    }

    #[test]
    fn child_against_cancel() {
        child::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the child is not told")]
    fn canary_look_before_insert() {
        child::<{ mutation::LOOK_BEFORE_INSERT }>();
    }

    /// A parent is cancelled while another thread cancels its child.
    fn two_cancels<const MUTATION: u8>() {
        explore(|| {
            let parent = Arc::new(TokenNode::<MUTATION>::new(None, false));
            let child = parent.child();
            let grandchild = child.child();
            let cancels = thread::spawn(move || drop(child.cancel()));
            drop(parent.cancel());
            assert!(grandchild.is_cancelled(), "a cancel has returned too early");
            cancels.join().expect("it does not panic");
        });
    }

    #[test]
    fn two_cancels_in_one_subtree() {
        two_cancels::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a cancel has returned too early")]
    fn canary_stop_at_mark() {
        two_cancels::<{ mutation::STOP_AT_MARK }>();
    }
}
