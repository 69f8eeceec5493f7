//! The queue of waiters for pieces of a supply. The free pieces lie in several places, each under a
//! lock of its own.
//!
//! # Supply protocol
//!
//! The runtime has one such supply: the stacks of coroutines. A free stack lies in the cache of a
//! worker or in the slab.
//!
//! ## Problem
//! - A coroutine finds no stack. Before it is in the queue, the last stack comes back, and the
//!   thread that returns it sees no waiter. The coroutine waits although a stack is free.
//! - If each stack that comes back wakes all waiters, n coroutines with k stacks take n² / 2k
//!   steps.
//! - A newcomer takes the stack for which a waiter was woken, again and again, and the waiter
//!   starves.
//! - A waiter ends after it was woken and before it takes its stack. Nobody else is woken for the
//!   stack.
//!
//! ## States
//! A piece is in use, or free in a place, or handed to a waiter. One lock guards the queue.
//! `is_awaited` is set by a waiter that joins the queue, and cleared by a `Serve` that leaves
//! nobody in it, both under that lock. A waiter that was served is not in the queue any more, and
//! its entry keeps the piece until the waiter fetches it.
//!
//! ## Steps
//! - Newcomer: `Look` at `is_awaited`. If it is not set, take a piece from a place. A newcomer
//!   without a piece waits.
//! - Waiter: `Enlist`, then `Serve`. Then, and whenever it runs again, it fetches the piece that
//!   was handed to it, if one was.
//! - Thread with a piece that is no longer in use: `Return` the piece to a place, under the lock of
//!   the place. Then `Look`, and `Serve` if the flag is set. A thread that moves a piece from one
//!   place to another does the same, unless it moves the piece in a `Serve`.
//! - `Serve`, under the lock of the queue: while there is a first waiter, search all places for a
//!   piece for it, and hand it over. Wake the waiters outside the lock.
//! - Waiter that ends: leave. If a piece was handed to it, `Return` the piece. Then `Look`, and
//!   `Serve` if the flag is set, because the next waiter may want something else.
//!
//! ## Why it works
//! The lock of the place orders `Return` and the search in the `Serve` of a waiter. If `Return` is
//! first, the search finds the piece. Otherwise `Look` sees `is_awaited`, which was set before the
//! search. The flag is cleared only after a `Serve` under the same lock has found the queue empty.
//! So the first waiter does not wait while a piece is free that it can use.
//!
//! A piece that is handed over lies in no place, so no newcomer takes it. A newcomer that sees that
//! somebody waits takes none, although one may be free between its `Return` and the `Serve`.
//!
//! ## Allowed
//! - A newcomer that looks before the first waiter is in the queue may take a piece later, before
//!   the `Serve`. The first waiter then waits for the next piece, still as the first.
//! - The waiters behind the first one wait, even if a piece is free that they can use and the first
//!   one cannot.
//! - While a waiter leaves, the flag may be set although nobody waits. A newcomer that sees the
//!   flag serves itself.
//!
//! ## Rejected
//! - Waking the first waiter without a piece, so that it searches itself: newcomers overtake it,
//!   and a waiter that ends must wake the next one, whether or not there is still a piece.
//! - A permit for each piece that may be in use, in a semaphore: each coroutine would change one
//!   word that all workers share, twice, also where stacks are not scarce.
//!
//! ## Checked by
//! `models::return_against_wait`, `models::return_against_newcomer`, `models::return_against_end`,
//! and their canaries.

use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::sync::wait_list::{Place, ServedWaiters, WaitList, Waiter};

/// The defects that canary models plant, one at a time.
pub mod mutation {
    /// No defect.
    pub const SOUND: u8 = 0;
    /// A waiter does not `Serve`.
    #[cfg(all(test, procession_loom))]
    pub const WAIT_WITHOUT_SERVE: u8 = 1;
    /// `Look` comes before `Return`.
    #[cfg(all(test, procession_loom))]
    pub const LOOK_BEFORE_RETURN: u8 = 2;
    /// A waiter that ends drops its piece.
    #[cfg(all(test, procession_loom))]
    pub const END_WITHOUT_RETURN: u8 = 3;
    /// A newcomer does not `Look`.
    #[cfg(all(test, procession_loom))]
    pub const TAKE_WITHOUT_LOOK: u8 = 4;
}

/// Waiters that each want something (`W`), and are handed a piece (`P`) in their order.
///
/// The steps have parameters for the places: `give` returns a piece to a place, and `search` looks
/// in all places for a piece for a waiter. They return the waiters that were served, to be woken.
#[derive(Debug)]
pub struct SupplyQueue<W, P, const MUTATION: u8 = { mutation::SOUND }> {
    waiters: Mutex<WaitList<Claim<W, P>>>,
    is_awaited: AtomicBool,
}

#[derive(Debug)]
enum Claim<W, P> {
    Wants(W),
    Has(P),
}

impl<W, P, const MUTATION: u8> SupplyQueue<W, P, MUTATION> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self { waiters: Mutex::new(WaitList::new()), is_awaited: AtomicBool::new(false) }
    }

    /// Takes a piece for a newcomer with `take`, unless somebody waits. If this returns `None`, the
    /// newcomer must [wait](Self::wait).
    #[inline]
    pub fn take<R>(&self, take: impl FnOnce() -> Option<R>) -> Option<R> {
        let looks = !(cfg!(procession_loom) && MUTATION == 4);
        if looks && self.is_awaited() { None } else { take() }
    }

    /// Waits. Returns the piece, if there was one, or else the place in the queue.
    pub fn wait(
        &self,
        wants: W,
        waker: Waker,
        search: impl FnMut(&W) -> Option<P>,
    ) -> (Result<P, Place>, ServedWaiters) {
        let place = self.enlist(wants, waker);
        let served = if cfg!(procession_loom) && MUTATION == 1 {
            ServedWaiters::default()
        } else {
            self.serve(search)
        };
        (self.fetch(place), served)
    }

    /// Takes the piece that was handed to a waiter. If none was, the waiter keeps its place.
    pub fn fetch(&self, place: Place) -> Result<P, Place> {
        let mut waiters = self.waiters.lock();
        if !waiters.is_served(&place) {
            return Err(place);
        }
        match waiters.remove(place).0 {
            Claim::Has(piece) => Ok(piece),
            Claim::Wants(_) => unreachable!("a waiter is served with a piece"),
        }
    }

    /// `Return`, `Look`, and `Serve` if somebody waits.
    #[inline]
    pub fn give_back(
        &self,
        give: impl FnOnce(),
        search: impl FnMut(&W) -> Option<P>,
    ) -> Option<ServedWaiters> {
        if cfg!(procession_loom) && MUTATION == 2 {
            let is_awaited = self.is_awaited();
            give();
            return is_awaited.then(|| self.serve(search));
        }
        give();
        self.is_awaited().then(|| self.serve(search))
    }

    /// Removes a waiter that ends, and gives back the piece that was handed to it, if one was.
    pub fn end(
        &self,
        place: Place,
        give: impl FnOnce(P),
        search: impl FnMut(&W) -> Option<P>,
    ) -> Option<ServedWaiters> {
        let (claim, waiter) = self.waiters.lock().remove(place);
        drop(waiter);
        match claim {
            Claim::Has(_) if cfg!(procession_loom) && MUTATION == 3 => None,
            Claim::Has(piece) => self.give_back(|| give(piece), search),
            Claim::Wants(_) => self.give_back(|| (), search),
        }
    }

    /// `Enlist`.
    fn enlist(&self, wants: W, waker: Waker) -> Place {
        let mut waiters = self.waiters.lock();
        // Ordering: Relaxed, because the locks of the places order this and the load.
        self.is_awaited.store(true, Relaxed);
        waiters.push(Waiter::Alone(waker), Claim::Wants(wants))
    }

    /// `Look`.
    #[inline]
    fn is_awaited(&self) -> bool {
        // Ordering: SeqCst pairs with the fence of a search that asks whether anybody still has a
        // piece. A thread that gives up its last piece looks here afterwards. The lock of the place
        // orders all other looks.
        self.is_awaited.load(SeqCst)
    }

    /// `Serve`.
    #[cold]
    fn serve(&self, mut search: impl FnMut(&W) -> Option<P>) -> ServedWaiters {
        let mut served = ServedWaiters::default();
        let mut waiters = self.waiters.lock();
        while let Some(Claim::Wants(wants)) = waiters.front()
            && let Some(piece) = search(wants)
        {
            let first = waiters.serve(|claim| *claim = Claim::Has(piece));
            first.into_iter().for_each(|(waiter, ())| served.push(waiter));
        }
        // Ordering: Relaxed, as in `enlist`.
        self.is_awaited.store(!waiters.is_empty(), Relaxed);
        served
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{Place, SupplyQueue, mutation};

    /// A supply with one place, which has room for one piece.
    struct Supply<const MUTATION: u8> {
        place: Mutex<Option<()>>,
        queue: SupplyQueue<(), (), MUTATION>,
    }

    impl<const MUTATION: u8> Supply<MUTATION> {
        fn new() -> Arc<Self> {
            Arc::new(Self { place: Mutex::new(None), queue: SupplyQueue::new() })
        }

        fn search(&self) -> Option<()> {
            self.place.lock().take()
        }

        fn put(&self) {
            *self.place.lock() = Some(());
        }

        fn take(&self) -> Option<()> {
            self.queue.take(|| self.search())
        }

        fn wait(&self) -> Result<(), Place> {
            let (fetched, served) = self.queue.wait((), Waker::noop().clone(), |()| self.search());
            drop(served);
            fetched
        }

        fn give_back(&self) {
            drop(self.queue.give_back(|| self.put(), |()| self.search()));
        }

        fn end(&self, place: Place) {
            drop(self.queue.end(place, |()| self.put(), |()| self.search()));
        }
    }

    /// Returns the only piece in another thread, while this thread calls `run`.
    fn while_it_comes_back<const MUTATION: u8, R>(
        supply: &Arc<Supply<MUTATION>>,
        run: impl FnOnce() -> R,
    ) -> R {
        let other = {
            let supply = Arc::clone(supply);
            thread::spawn(move || supply.give_back())
        };
        let result = run();
        other.join().expect("it does not panic");
        result
    }

    /// A newcomer finds no piece, and waits.
    fn return_and_wait<const MUTATION: u8>() {
        explore(|| {
            let supply = Supply::<MUTATION>::new();
            let found =
                while_it_comes_back(&supply, || supply.take().map_or_else(|| supply.wait(), Ok));
            if let Err(place) = found {
                assert!(supply.queue.fetch(place).is_ok(), "it waits although a piece is free");
            }
            assert_eq!(supply.search(), None, "there is one piece");
        });
    }

    #[test]
    fn return_against_wait() {
        return_and_wait::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "it waits although a piece is free")]
    fn canary_wait_without_serve() {
        return_and_wait::<{ mutation::WAIT_WITHOUT_SERVE }>();
    }

    #[test]
    #[should_panic(expected = "it waits although a piece is free")]
    fn canary_look_before_return() {
        return_and_wait::<{ mutation::LOOK_BEFORE_RETURN }>();
    }

    /// A newcomer comes while another one waits.
    fn return_and_newcomer<const MUTATION: u8>() {
        explore(|| {
            let supply = Supply::<MUTATION>::new();
            let first = supply.wait().expect_err("there is no piece");
            let taken = while_it_comes_back(&supply, || supply.take());
            assert!(taken.is_none() && supply.queue.fetch(first).is_ok(), "a newcomer overtakes");
        });
    }

    #[test]
    fn return_against_newcomer() {
        return_and_newcomer::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "a newcomer overtakes")]
    fn canary_take_without_look() {
        return_and_newcomer::<{ mutation::TAKE_WITHOUT_LOOK }>();
    }

    /// The first of two waiters ends.
    fn return_and_end<const MUTATION: u8>() {
        explore(|| {
            let supply = Supply::<MUTATION>::new();
            let [first, second] = [(); 2].map(|()| supply.wait().expect_err("there is no piece"));
            while_it_comes_back(&supply, || supply.end(first));
            assert!(supply.queue.fetch(second).is_ok(), "the next one waits");
            assert_eq!(supply.search(), None, "there is one piece");
        });
    }

    #[test]
    fn return_against_end() {
        return_and_end::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the next one waits")]
    fn canary_end_without_return() {
        return_and_end::<{ mutation::END_WITHOUT_RETURN }>();
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::task::Waker;

    use super::SupplyQueue;

    #[test]
    fn a_waiter_that_ends_lets_the_next_one_have_what_it_wants() {
        let queue = SupplyQueue::<u32, u32>::new();
        let search = |&wants: &u32| (wants == 2).then_some(2);
        let wait = |wants| queue.wait(wants, Waker::noop().clone(), search).0;
        let [first, second] = [1, 2].map(|wants| wait(wants).expect_err("the first one waits"));
        let served = queue.end(first, |_| unreachable!("it has no piece"), search);
        assert_eq!(served.map(|served| served.len()), Some(1));
        assert_eq!(queue.fetch(second).ok(), Some(2));
        assert!(!queue.is_awaited());
    }
}
