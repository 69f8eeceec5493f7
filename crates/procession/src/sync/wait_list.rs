//! Who waits for something that others give: a list, first come first served, and the right to be served once.
//!
//! # Choice protocol
//!
//! ## Problem
//! A select waits in several lists at once, and is to act on one of them. Two threads find it at the same moment, one in each list, and both
//! serve it: a message is handed to somebody who takes another.
//!
//! ## States
//! One word for each select that waits: open, or the number of the arm that was chosen.
//!
//! ## Steps
//! Who serves, under the lock of the list: `Claim` CAS from open to the arm; only then hand over, else pass on to the next in the list.
//! Who selects: `Try` every arm, waiting nowhere. None ready: `Enlist` in every list, each under its lock and with a look whether the arm is
//! ready now; one is: `Withdraw` from all lists, and if nobody has claimed meanwhile, `Try` again. Then wait. A timer or the mailbox is ready:
//! `Claim` for that arm. On the way out `Withdraw` from all.
//!
//! ## Why it works
//! An arm is handed something only after a successful `Claim`, and of several on one word one succeeds. While it tries, a select is in no
//! list, so nobody can claim it, and what it does itself needs no claim. Between `Enlist` and the end of the wait no arm becomes ready without a
//! `Claim`: whoever makes it ready serves the list first.
//! Two selects that face each other both enlist, and the later one, under the lock of the list that they share, sees the earlier.
//!
//! ## Allowed
//! A claim for an arm whose list the select has just left is found by the select, which looks at the word after it has withdrawn.
//!
//! ## Rejected
//! - To serve every list, and let the select give back what it does not take: a sender is then told that its message arrived, and it did not.
//! - To claim one's own word while trying, so as to stay enlisted: who meets a partner that is claimed meanwhile must open his own
//!   word again, and who saw it closed in between has passed on to nobody.
//!
//! ## Checked by
//! `models::a_choice_is_served_once`, `models::canary_claim_without_cas`; with channels `channel::core::models::*`.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::util::small_vec::Few;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Claim` loads, then stores.
    #[cfg(all(test, procession_loom))]
    pub(crate) const CLAIM_WITHOUT_CAS: u8 = 1;
}

const OPEN: u32 = 0;

/// The word of a select that waits, and its waker.
#[derive(Debug)]
pub(crate) struct Choice<const MUTATION: u8 = { mutation::SOUND }> {
    /// `OPEN`, or one more than the arm.
    chosen: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl<const MUTATION: u8> Choice<MUTATION> {
    pub(crate) fn new(waker: Waker) -> Self {
        Self { chosen: AtomicU32::new(OPEN), waker: Mutex::new(Some(waker)) }
    }

    /// `Claim`.
    pub(crate) fn claim(&self, arm: u32) -> bool {
        if cfg!(procession_loom) && MUTATION == 1 {
            let open = self.chosen.load(Acquire) == OPEN;
            self.chosen.store(arm + 1, Release);
            return open;
        }
        // Ordering: Release pairs with the Acquire of `chosen`. What is handed over is published by the lock of the list besides.
        self.chosen.compare_exchange(OPEN, arm + 1, AcqRel, Relaxed).is_ok()
    }

    pub(crate) fn chosen(&self) -> Option<u32> {
        self.chosen.load(Acquire).checked_sub(1)
    }

    pub(crate) fn set_waker(&self, waker: Waker) -> Option<Waker> {
        self.waker.lock().expect("nothing that can panic runs under this lock").replace(waker)
    }

    fn take_waker(&self) -> Option<Waker> {
        self.waker.lock().expect("nothing that can panic runs under this lock").take()
    }

    #[cfg(not(procession_loom))]
    pub(crate) fn will_wake(&self, waker: &Waker) -> bool {
        let own = self.waker.lock().expect("nothing that can panic runs under this lock");
        own.as_ref().is_some_and(|own| own.will_wake(waker))
    }
}

/// Somebody who waits.
pub(crate) enum Who {
    /// For this alone.
    Alone(Waker),
    /// For this as one arm of a select.
    Arm(Arc<Choice>, u32),
}

impl Who {
    /// Whether he may be served: a select only once. Called under the lock of the list.
    fn claim(&self) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::Arm(choice, arm) => choice.claim(*arm),
        }
    }

    /// Wakes somebody who was served.
    #[cfg(not(procession_loom))]
    pub(crate) fn wake(self) {
        if let Some(waker) = self.into_waker() {
            drop(crate::process::unwind::guarded(|| waker.wake()));
        }
    }

    /// The waker of somebody who was served; woken outside all locks.
    pub(crate) fn into_waker(self) -> Option<Waker> {
        match self {
            Self::Alone(waker) => Some(waker),
            Self::Arm(choice, _) => choice.take_waker(),
        }
    }
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Who(..)")
    }
}

/// Wakes who was served, if anybody was.
#[cfg(not(procession_loom))]
#[inline]
pub(crate) fn wake(who: Option<Who>) {
    if let Some(who) = who {
        who.wake();
    }
}

/// Those who were served, to be woken outside the lock.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Woken(Few<Who>);

impl Woken {
    pub(crate) fn push(&mut self, who: Who) {
        self.0.push(who);
    }

    /// Wakes them.
    #[cfg(not(procession_loom))]
    #[inline]
    pub(crate) fn wake(mut self) {
        self.0.drain().for_each(Who::wake);
    }
}

/// Another of a task's waker, for a place in a list. A process's own is cloned under the lock, if it is wanted there. Any other is the user's: cloned beforehand, and
/// dropped, outside of all locks.
pub(crate) struct Another<'a> {
    waker: &'a Waker,
    /// A clone that was not used, or what it has replaced.
    spare: Option<Waker>,
}

impl<'a> Another<'a> {
    pub(crate) fn of(waker: &'a Waker) -> Self {
        Self { waker, spare: None }
    }

    /// For who does not wait alone, or has been served.
    pub(crate) fn none() -> Self {
        Self::of(Waker::noop())
    }

    /// Clones the user's waker now.
    pub(crate) fn prepare(&mut self) {
        if !is_own(self.waker) {
            self.spare = Some(self.waker.clone());
        }
    }

    /// Under a lock: there is none if it has to be prepared first.
    pub(crate) fn take(&mut self) -> Option<Waker> {
        if is_own(self.waker) { Some(self.waker.clone()) } else { self.spare.take() }
    }
}

impl Drop for Another<'_> {
    fn drop(&mut self) {
        #[cfg(not(procession_loom))]
        crate::process::unwind::drop_guarded(self.spare.take());
    }
}

/// Whether it is a process's own waker, not the user's.
#[cfg(not(procession_loom))]
fn is_own(waker: &Waker) -> bool {
    crate::process::waker::is_of_process(waker)
}

/// Models have no processes.
#[cfg(procession_loom)]
fn is_own(_: &Waker) -> bool {
    true
}

/// A place in a list.
#[derive(Debug)]
pub(crate) struct Place(u32);

/// What became of somebody who waits.
pub(crate) enum Looked<T> {
    Served(T),
    Waits(Place),
    /// Likewise, and his waker is to be prepared.
    Unprepared(Place),
}

/// Looks what became of somebody who waits, by what looks under a lock; if he was served, he has no place any more.
pub(crate) fn look<T>(
    place: &mut Option<Place>,
    another: &mut Another<'_>,
    mut look: impl FnMut(Place, &mut Another<'_>) -> Looked<T>,
) -> Option<T> {
    loop {
        match look(place.take()?, another) {
            Looked::Served(content) => return Some(content),
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

/// Places kept for the next who wait, when nobody does.
const PLACES_KEPT: usize = 64;

#[derive(Debug)]
struct Node<T> {
    /// Neighbours in the queue; of a free place, `after` is the next free one.
    before: u32,
    after: u32,
    /// `None`: served, or free.
    who: Option<Who>,
    content: Option<T>,
}

/// Those who wait, in the order in which they came. Who is served leaves the queue at once, and keeps his place until he has seen it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waiters<T> {
    /// First in memory, too: often all that is looked at.
    first: u32,
    last: u32,
    free: u32,
    /// Places in use.
    used: u32,
    nodes: Vec<Node<T>>,
}

impl<T> Waiters<T> {
    pub(crate) fn new() -> Self {
        Self { nodes: Vec::new(), free: NOWHERE, first: NOWHERE, last: NOWHERE, used: 0 }
    }

    /// Puts somebody at the end of the queue.
    pub(crate) fn push(&mut self, who: Who, content: T) -> Place {
        let place = if self.free == NOWHERE {
            self.nodes.push(Node { before: self.last, after: NOWHERE, who: Some(who), content: Some(content) });
            // 2^32 who wait would need as many wakers in memory.
            (self.nodes.len() - 1) as u32
        } else {
            let place = self.free;
            let node = &mut self.nodes[place as usize];
            self.free = node.after;
            node.before = self.last;
            node.after = NOWHERE;
            node.who = Some(who);
            node.content = Some(content);
            place
        };
        match self.last {
            NOWHERE => self.first = place,
            last => self.nodes[last as usize].after = place,
        }
        self.last = place;
        self.used += 1;
        Place(place)
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

    /// What the first in the queue brought.
    pub(crate) fn front(&self) -> Option<&T> {
        self.nodes.get(self.first as usize)?.content.as_ref()
    }

    /// Serves the first in the queue who may be: changes what he brought, and gives him back to be woken. Those who may not have chosen another list, and
    /// go out of this one.
    #[inline]
    pub(crate) fn serve<R>(&mut self, serve: impl FnOnce(&mut T) -> R) -> Option<(Who, R)> {
        while self.first != NOWHERE {
            let place = self.first;
            self.unlink(place);
            let node = &mut self.nodes[place as usize];
            let who = node.who.take().expect("who is in the queue was not served");
            let content = node.content.as_mut().expect("a place in use has a content");
            if who.claim() {
                return Some((who, serve(content)));
            }
        }
        None
    }

    /// Whether somebody waits; a select that has chosen elsewhere may still be counted.
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NOWHERE
    }

    /// Whether somebody else than the select `own` waits who can still be served.
    pub(crate) fn has_other(&self, own: Option<&Arc<Choice>>) -> bool {
        let mut place = self.first;
        while let Some(node) = self.nodes.get(place as usize) {
            match &node.who {
                Some(Who::Arm(choice, _)) => {
                    if own.is_none_or(|own| !Arc::ptr_eq(own, choice)) && choice.chosen().is_none() {
                        return true;
                    }
                }
                _ => return true,
            }
            place = node.after;
        }
        false
    }

    /// Whether the one at this place has left the queue: he was served, or has chosen elsewhere.
    pub(crate) fn is_served(&self, place: &Place) -> bool {
        self.nodes[place.0 as usize].who.is_none()
    }

    /// What became of somebody who waits: his place is free if he was served.
    pub(crate) fn look(&mut self, place: Place, another: &mut Another<'_>) -> Looked<T> {
        if self.is_served(&place) {
            Looked::Served(self.remove(place).0)
        } else if self.renew(&place, another) {
            Looked::Waits(place)
        } else {
            Looked::Unprepared(place)
        }
    }

    /// Sees to it that this task is woken for somebody who waits alone. Not if another of its waker has to be prepared first.
    pub(crate) fn renew(&mut self, place: &Place, another: &mut Another<'_>) -> bool {
        let Some(Who::Alone(waker)) = &mut self.nodes[place.0 as usize].who else { return true };
        if waker.will_wake(another.waker) {
            return true;
        }
        let Some(new) = another.take() else { return false };
        another.spare = Some(std::mem::replace(waker, new));
        true
    }

    /// Frees a place: what was brought or handed over, and who waited, if he was not served. Both are dropped outside the lock.
    pub(crate) fn remove(&mut self, place: Place) -> (T, Option<Who>) {
        let place = place.0;
        if self.nodes[place as usize].who.is_some() {
            self.unlink(place);
        }
        let node = &mut self.nodes[place as usize];
        let who = node.who.take();
        let content = node.content.take().expect("a place in use has a content");
        node.after = self.free;
        self.free = place;
        self.used -= 1;
        if self.used == 0 && self.nodes.len() > PLACES_KEPT {
            *self = Self::new();
        }
        (content, who)
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

    use super::{Choice, PLACES_KEPT, Waiters, Who};

    fn alone() -> Who {
        Who::Alone(Waker::noop().clone())
    }

    #[test]
    fn the_first_to_come_is_the_first_to_be_served() {
        let mut waiters = Waiters::new();
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
        let mut waiters = Waiters::new();
        let choice = Arc::new(Choice::new(Waker::noop().clone()));
        let arm = waiters.push(Who::Arm(Arc::clone(&choice), 0), 0);
        let _other = waiters.push(alone(), 1);
        assert!(waiters.has_other(Some(&choice)));
        assert!(choice.claim(1));
        assert_eq!(waiters.serve(|&mut number| number).map(|(_, number)| number), Some(1));
        assert!(!waiters.has_other(None));
        assert_eq!(waiters.remove(arm).0, 0);
    }

    #[test]
    fn places_of_a_crowd_are_given_back() {
        let mut waiters = Waiters::new();
        let places: Vec<_> = (0..10 * PLACES_KEPT).map(|number| waiters.push(alone(), number)).collect();
        for (number, place) in places.into_iter().enumerate() {
            assert_eq!(waiters.remove(place).0, number);
        }
        assert_eq!(waiters.nodes.capacity(), 0);
    }
}
