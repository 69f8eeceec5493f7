//! Lists of waiters, served in the order in which they came, and the right of a select to be served
//! only once.
//!
//! # Choice protocol
//!
//! ## Problem
//! A select waits in several lists, and must act on exactly one list. Two threads find it at the
//! same moment, each in another list, and both serve it. A message is then handed to a receiver
//! that takes another one.
//!
//! ## States
//! Each waiting select has one word: open, or the number of the chosen arm.
//!
//! ## Steps
//! A server, under the lock of the list: `Claim` CAS the word from open to the arm. Only if that
//! succeeds, hand over; else pass on to the next waiter in the list.
//!
//! A select:
//! - `Try` every arm, while it waits in no list.
//! - If no arm is ready, `Enlist` in every list, each under its lock, and check there whether the
//!   arm is ready now. If all arms wait, return. If one is ready, `Withdraw` and `Try` again.
//! - `Withdraw`: CAS the word from open to a number that is no arm, then leave all lists. If the
//!   CAS fails, a server has claimed: `Fetch`.
//! - When it is polled again and the word names an arm, `Fetch`: leave the other lists, and return
//!   what was handed over. If the word is open and some arm waits in no list (a timer, the
//!   mailbox), `Withdraw` and `Try` again.
//!
//! ## Why it works
//! An arm is handed something only after a successful `Claim`, and of several claims on one word
//! one succeeds. While a select tries, it is in no list. So no server can claim it, and its own
//! actions need no claim. Between `Enlist` and the end of the wait, an arm that waits in a list
//! becomes ready only with a `Claim`, because the thread that makes it ready serves the list first.
//! If each of two selects waits for the other, both enlist. The later one does so under the lock of
//! the list that they share, and sees the earlier one.
//!
//! ## Allowed
//! A server may claim just before the select withdraws. The select's own CAS then fails, and the
//! select finds the chosen arm in the word.
//!
//! ## Rejected
//! - Serving every list, and letting the select return what it does not take. A sender would then
//!   learn that its message arrived, although it did not.
//! - Claiming the select's own word while it tries, so that it stays enlisted. If it then meets a
//!   partner that is claimed at the same time, it must open its own word again, and a server that
//!   saw the word closed in between has passed on to no other.
//!
//! ## Checked by
//! `models::a_choice_is_served_once`, `models::canary_claim_without_cas`; with channels
//! `channel::core::models::*`.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::util::small_vec::SmallVec;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// `Claim` loads, then stores.
    #[cfg(all(test, procession_loom))]
    pub const CLAIM_WITHOUT_CAS: u8 = 1;
}

const OPEN: u32 = 0;

/// The word of a waiting select, and its waker.
#[derive(Debug)]
pub struct Choice<const MUTATION: u8 = { mutation::SOUND }> {
    /// `OPEN`, or the number of the arm plus one.
    chosen: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl<const MUTATION: u8> Choice<MUTATION> {
    /// Creates the word of a select that waits.
    pub fn new(waker: Waker) -> Self {
        Self { chosen: AtomicU32::new(OPEN), waker: Mutex::new(Some(waker)) }
    }

    /// `Claim`.
    pub fn claim(&self, arm: u32) -> bool {
        if cfg!(procession_loom) && MUTATION == 1 {
            let open = self.chosen.load(Acquire) == OPEN;
            self.chosen.store(arm + 1, Release);
            return open;
        }
        // Ordering: Release pairs with the Acquire of `chosen`. The handed-over value is also
        // published by the lock of the list.
        self.chosen.compare_exchange(OPEN, arm + 1, AcqRel, Relaxed).is_ok()
    }

    /// Returns the arm that was served, if one was.
    pub fn chosen(&self) -> Option<u32> {
        self.chosen.load(Acquire).checked_sub(1)
    }

    /// Replaces the waker. Returns the old one, to be dropped outside of all locks.
    pub fn set_waker(&self, waker: Waker) -> Option<Waker> {
        self.waker.lock().replace(waker)
    }

    fn take_waker(&self) -> Option<Waker> {
        self.waker.lock().take()
    }

    /// Returns `true` if the select's waker wakes the same task.
    pub fn will_wake(&self, waker: &Waker) -> bool {
        let own = self.waker.lock();
        own.as_ref().is_some_and(|own| own.will_wake(waker))
    }
}

/// A waiter in a list.
pub enum Waiter {
    /// Waits for this alone.
    Alone(Waker),
    /// Waits for this as one arm of a select.
    Arm(Arc<Choice>, u32),
}

impl Waiter {
    /// Returns `true` if the waiter may be served; for a select, only once. Called under the lock
    /// of the list.
    #[inline]
    fn claim(&self) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::Arm(choice, arm) => choice.claim(*arm),
        }
    }

    /// Returns the waker of a waiter that was served. It must be woken outside of all locks.
    #[inline]
    pub fn into_waker(self) -> Option<Waker> {
        match self {
            Self::Alone(waker) => Some(waker),
            Self::Arm(choice, _) => choice.take_waker(),
        }
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiter(..)")
    }
}

/// Waiters that were served and must be woken outside the lock.
#[derive(Debug, Default)]
#[must_use]
pub struct ServedWaiters(SmallVec<Waiter>);

impl ServedWaiters {
    /// Creates a list with room for `count` waiters.
    #[inline]
    pub fn with_capacity(count: usize) -> Self {
        Self(SmallVec::with_capacity(count))
    }

    /// Adds a waiter.
    #[inline]
    pub fn push(&mut self, waiter: Waiter) {
        self.0.push(waiter);
    }

    #[cfg(all(test, not(procession_loom)))]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the number of the waiters.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes the waiters out, so that the caller can wake them outside of all locks.
    #[inline]
    pub fn drain(&mut self) -> impl Iterator<Item = Waiter> {
        self.0.drain()
    }
}

/// A clone of a task's waker for a list, made at the right time.
///
/// A waker that is cloned quickly, without code of the user, is cloned under the lock, and only if
/// the list needs it. Any other waker is cloned before the lock is taken, and its spare clone is
/// dropped after the lock is released, by the caller.
#[derive(Debug)]
pub struct Another<'a> {
    waker: &'a Waker,
    clone: fn(&Waker) -> Waker,
    /// `clone` may be called under a lock.
    is_quick: bool,
    /// A clone that was not used, or the waker that it has replaced.
    spare: Option<Waker>,
}

impl<'a> Another<'a> {
    /// `clone` clones the waker. `is_quick` is `false` if that may take long, or if that or the
    /// drop of the clone runs code of the user.
    #[inline]
    pub fn new(waker: &'a Waker, clone: fn(&Waker) -> Waker, is_quick: bool) -> Self {
        Self { waker, clone, is_quick, spare: None }
    }

    /// For a waiter that is an arm of a select or has been served, and so needs no waker here.
    #[inline]
    pub fn none() -> Self {
        Self::new(Waker::noop(), Waker::clone, true)
    }

    /// Takes the clone that is left. It may be a waker of the user, so the caller drops it outside
    /// of all locks, and catches its panic.
    #[inline]
    pub fn take_spare(&mut self) -> Option<Waker> {
        self.spare.take()
    }

    /// Clones the waker now if it must not be cloned under a lock.
    #[inline]
    pub fn prepare(&mut self) {
        if !self.is_quick {
            self.spare = Some((self.clone)(self.waker));
        }
    }

    /// Returns a clone, under a lock. Returns `None` if the waker must be prepared first.
    #[inline]
    pub fn take(&mut self) -> Option<Waker> {
        if self.is_quick { Some((self.clone)(self.waker)) } else { self.spare.take() }
    }
}

/// Makes sure that `waker` wakes the present task. Returns `false` if its waker must be prepared
/// first.
#[inline]
pub fn renew(waker: &mut Option<Waker>, another: &mut Another<'_>) -> bool {
    if waker.as_ref().is_some_and(|waker| waker.will_wake(another.waker)) {
        return true;
    }
    let Some(new) = another.take() else { return false };
    another.spare = waker.replace(new);
    true
}

/// Identifies the node of a waiter in a list.
#[derive(Debug)]
pub struct Place(u32);

/// The state of a waiter.
#[derive(Debug)]
pub enum Looked<T> {
    /// The waiter was served with this.
    ServedWaiters(T),
    /// The waiter waits.
    Waits(Place),
    /// The waiter waits, and its waker must be prepared.
    Unprepared(Place),
}

/// Observes the state of a waiter with `look`, which takes a lock. If the waiter was served, it
/// leaves its place.
pub fn look<T>(
    place: &mut Option<Place>,
    another: &mut Another<'_>,
    mut look: impl FnMut(Place, &mut Another<'_>) -> Looked<T>,
) -> Option<T> {
    loop {
        match look(place.take()?, another) {
            Looked::ServedWaiters(content) => return Some(content),
            Looked::Waits(waiting) => {
                *place = Some(waiting);
                return None;
            }
            Looked::Unprepared(waiting) => *place = Some(waiting),
        }
        another.prepare();
    }
}

const NOWHERE: u32 = u32::MAX;

/// Maximum number of nodes that stay allocated once no node is in use.
const PLACES_KEPT: usize = 64;

#[derive(Debug)]
struct Node<T> {
    /// Neighbours in the queue. For a free node, `after` is the next free node.
    before: u32,
    after: u32,
    /// `None` if the waiter was served or the node is free.
    waiter: Option<Waiter>,
    content: Option<T>,
}

/// The waiters, in the order in which they came.
///
/// A served waiter is unlinked immediately. Its node stays allocated until the waiter observes the
/// result.
#[derive(Debug)]
#[repr(C)]
pub struct WaitList<T> {
    /// Also first in memory, because often only this field is read.
    first: u32,
    last: u32,
    free: u32,
    /// Number of nodes in use.
    used: u32,
    nodes: Vec<Node<T>>,
}

impl<T> WaitList<T> {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self { nodes: Vec::new(), free: NOWHERE, first: NOWHERE, last: NOWHERE, used: 0 }
    }

    /// Appends a waiter to the queue.
    #[inline]
    pub fn push(&mut self, waiter: Waiter, content: T) -> Place {
        let place = self.occupy(Some(waiter), content, self.last);
        match self.last {
            NOWHERE => self.first = place,
            last => self.nodes[last as usize].after = place,
        }
        self.last = place;
        Place(place)
    }

    /// Adds a waiter that was served without waiting: it has its content, and never is in the
    /// queue.
    #[cold]
    pub fn push_served(&mut self, content: T) -> Place {
        Place(self.occupy(None, content, NOWHERE))
    }

    /// Takes a node into use, with `before` in front.
    #[inline]
    fn occupy(&mut self, waiter: Option<Waiter>, content: T, before: u32) -> u32 {
        let content = Some(content);
        self.used += 1;
        if self.free == NOWHERE {
            self.nodes.push(Node { before, after: NOWHERE, waiter, content });
            // Fits in 32 bits: 2^32 waiters would need as many wakers in memory.
            return (self.nodes.len() - 1) as u32;
        }
        let place = self.free;
        let node = &mut self.nodes[place as usize];
        self.free = node.after;
        *node = Node { before, after: NOWHERE, waiter, content };
        place
    }

    fn unlink(&mut self, place: u32) {
        let Node { before, after, .. } = self.nodes[place as usize];
        match before {
            NOWHERE => self.first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NOWHERE => self.last = before,
            after => self.nodes[after as usize].before = before,
        }
    }

    /// Returns the content of the first waiter.
    pub fn front(&self) -> Option<&T> {
        self.nodes.get(self.first as usize)?.content.as_ref()
    }

    /// Serves the first waiter that may be served: changes its content, and returns it to be woken.
    /// A waiter that may not be served has been chosen in another list, and is unlinked.
    #[inline]
    pub fn serve<R>(&mut self, serve: impl FnOnce(&mut T) -> R) -> Option<(Waiter, R)> {
        while self.first != NOWHERE {
            if let Some((waiter, content)) = self.claim(self.first) {
                return Some((waiter, serve(content)));
            }
        }
        None
    }

    /// Serves the last waiter, as [`serve`](Self::serve) serves the first one.
    pub fn serve_last<R>(&mut self, serve: impl FnOnce(&mut T) -> R) -> Option<(Waiter, R)> {
        while self.last != NOWHERE {
            if let Some((waiter, content)) = self.claim(self.last) {
                return Some((waiter, serve(content)));
            }
        }
        None
    }

    /// Serves the first waiter with a content that is `wanted`, as [`serve`](Self::serve) serves
    /// the first one.
    pub fn serve_where<R>(
        &mut self,
        wanted: impl Fn(&T) -> bool,
        serve: impl FnOnce(&mut T) -> R,
    ) -> Option<(Waiter, R)> {
        let mut place = self.first;
        while let Some(node) = self.nodes.get(place as usize) {
            let after = node.after;
            if node.content.as_ref().is_some_and(&wanted)
                && let Some((waiter, content)) = self.claim(place)
            {
                return Some((waiter, serve(content)));
            }
            place = after;
        }
        None
    }

    /// Calls waiters that wait alone, without serving them: takes the wakers of the waiters with a
    /// content that is `called`, to be woken outside of all locks. A called waiter keeps its place,
    /// and leaves another waker there when it looks.
    pub fn call_where(
        &mut self,
        mut called: impl FnMut(&mut T) -> bool,
        wakers: &mut ServedWaiters,
    ) {
        let mut place = self.first;
        while let Some(node) = self.nodes.get_mut(place as usize) {
            if let (Some(Waiter::Alone(waker)), Some(content)) =
                (&mut node.waiter, &mut node.content)
                && called(content)
            {
                let waker = std::mem::replace(waker, Waker::noop().clone());
                wakers.push(Waiter::Alone(waker));
            }
            place = node.after;
        }
    }

    /// Returns the content of a waiter, unless it has left the queue.
    pub fn content_mut(&mut self, place: &Place) -> Option<&mut T> {
        let node = &mut self.nodes[place.0 as usize];
        node.waiter.as_ref()?;
        node.content.as_mut()
    }

    /// Takes a waiter out of the queue. Returns it with its content if it may be served.
    #[inline]
    fn claim(&mut self, place: u32) -> Option<(Waiter, &mut T)> {
        self.unlink(place);
        let node = &mut self.nodes[place as usize];
        let waiter = node.waiter.take().expect("a waiter in the queue was not served");
        let content = node.content.as_mut().expect("a place in use has a content");
        waiter.claim().then_some((waiter, content))
    }

    /// Returns the number of nodes in use: the waiters, and the served waiters that have not
    /// observed it.
    pub fn used(&self) -> usize {
        self.used as usize
    }

    /// Returns `true` if no waiter is in the queue. A select that was chosen in another list still
    /// counts.
    pub fn is_empty(&self) -> bool {
        self.first == NOWHERE
    }

    /// Returns `true` if more than one waiter is in the queue.
    pub fn has_several(&self) -> bool {
        self.first != self.last
    }

    /// Returns `true` if there is a waiter that can be served, other than the select `own`, with a
    /// content that is `wanted`.
    pub fn has_other(&self, own: Option<&Arc<Choice>>, wanted: impl Fn(&T) -> bool) -> bool {
        let mut place = self.first;
        while let Some(node) = self.nodes.get(place as usize) {
            let may_be_served = match &node.waiter {
                Some(Waiter::Arm(choice, _)) => {
                    own.is_none_or(|own| !Arc::ptr_eq(own, choice)) && choice.chosen().is_none()
                }
                _ => true,
            };
            if may_be_served && node.content.as_ref().is_some_and(&wanted) {
                return true;
            }
            place = node.after;
        }
        false
    }

    /// Returns `true` if the waiter has left the queue: it was served, or was chosen in another
    /// list.
    pub fn is_served(&self, place: &Place) -> bool {
        self.nodes[place.0 as usize].waiter.is_none()
    }

    /// Observes the state of a waiter, and frees its node if it was served.
    pub fn look(&mut self, place: Place, another: &mut Another<'_>) -> Looked<T> {
        if self.is_served(&place) {
            Looked::ServedWaiters(self.remove(place).0)
        } else if self.renew(&place, another) {
            Looked::Waits(place)
        } else {
            Looked::Unprepared(place)
        }
    }

    /// Makes sure that a waiter that waits alone wakes the present task. Returns `false` if its
    /// waker must be prepared first.
    pub fn renew(&mut self, place: &Place, another: &mut Another<'_>) -> bool {
        let Some(Waiter::Alone(waker)) = &mut self.nodes[place.0 as usize].waiter else {
            return true;
        };
        if waker.will_wake(another.waker) {
            return true;
        }
        let Some(new) = another.take() else { return false };
        another.spare = Some(std::mem::replace(waker, new));
        true
    }

    /// Frees a node. Returns its content, and the waiter if it was not served. The caller drops
    /// both outside the lock.
    pub fn remove(&mut self, place: Place) -> (T, Option<Waiter>) {
        let place = place.0;
        if self.nodes[place as usize].waiter.is_some() {
            self.unlink(place);
        }
        let node = &mut self.nodes[place as usize];
        let waiter = node.waiter.take();
        let content = node.content.take().expect("a place in use has a content");
        node.after = self.free;
        self.free = place;
        self.used -= 1;
        if self.used == 0 && self.nodes.len() > PLACES_KEPT {
            *self = Self::new();
        }
        (content, waiter)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use procession_sync::{Arc, explore, thread};

    use super::{Choice, mutation};

    fn serve_twice<const MUTATION: u8>() {
        explore(|| {
            let choice = Arc::new(Choice::<MUTATION>::new(std::task::Waker::noop().clone()));
            let other = {
                let choice = Arc::clone(&choice);
                thread::spawn(move || choice.claim(0))
            };
            let here = choice.claim(1);
            let there = other.join().expect("it does not panic");
            assert!(here != there, "a select is served once");
            assert_eq!(choice.chosen(), Some(u32::from(here)));
        });
    }

    #[test]
    fn a_choice_is_served_once() {
        serve_twice::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a select is served once")]
    fn canary_claim_without_cas() {
        serve_twice::<{ mutation::CLAIM_WITHOUT_CAS }>();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::{Choice, PLACES_KEPT, WaitList, Waiter};

    fn alone() -> Waiter {
        Waiter::Alone(Waker::noop().clone())
    }

    #[test]
    fn the_first_to_come_is_the_first_to_be_served() {
        let mut waiters = WaitList::new();
        let places: Vec<_> = (0..5).map(|number| waiters.push(alone(), number)).collect();
        let mut places = places.into_iter();
        let (first, second) = (places.next().expect("five"), places.next().expect("five"));
        assert_eq!(waiters.remove(second).0, 1);
        assert_eq!(waiters.serve(|&mut number| number).map(|(_, number)| number), Some(0));
        assert!(waiters.is_served(&first));
        assert_eq!(waiters.serve(|&mut number| number).map(|(_, number)| number), Some(2));
        let third = waiters.push(alone(), 9);
        assert_eq!(waiters.front(), Some(&3));
        assert_eq!(waiters.remove(third).0, 9);
        assert_eq!(waiters.serve(|&mut number| number).map(|(_, number)| number), Some(3));
        assert_eq!(waiters.serve(|&mut number| number).map(|(_, number)| number), Some(4));
        assert!(waiters.is_empty() && waiters.serve(|_| ()).is_none());
    }

    #[test]
    fn a_select_that_chose_elsewhere_is_passed_over() {
        let mut waiters = WaitList::new();
        let choice = Arc::new(Choice::new(Waker::noop().clone()));
        let arm = waiters.push(Waiter::Arm(Arc::clone(&choice), 0), 0);
        let _other = waiters.push(alone(), 1);
        assert!(waiters.has_other(Some(&choice), |_| true));
        assert!(choice.claim(1));
        assert_eq!(waiters.serve(|&mut number| number).map(|(_, number)| number), Some(1));
        assert!(!waiters.has_other(None, |_| true));
        assert_eq!(waiters.remove(arm).0, 0);
    }

    #[test]
    fn places_of_a_crowd_are_given_back() {
        let mut waiters = WaitList::new();
        let places: Vec<_> =
            (0..10 * PLACES_KEPT).map(|number| waiters.push(alone(), number)).collect();
        for (number, place) in places.into_iter().enumerate() {
            assert_eq!(waiters.remove(place).0, number);
        }
        assert_eq!(waiters.nodes.capacity(), 0);
    }
}
