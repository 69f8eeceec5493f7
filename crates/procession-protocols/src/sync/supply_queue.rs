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
//! - Waiter, after it has found no piece: `Enlist`, then `Serve`. When it runs again, it fetches
//!   the piece that was handed to it, if one was.
//! - Thread with a piece that is no longer in use: `Return` the piece to a place, under the lock of
//!   the place. Then `Look` at `is_awaited`, and `Serve` if it is set. A thread that moves a piece
//!   from one place to another does the same, unless it moves the piece in a `Serve`.
//! - `Serve`, under the lock of the queue: while there is a first waiter, search all places for a
//!   piece for it, and hand it over. Wake the waiters outside the lock.
//! - Waiter that ends: leave. If a piece was handed to it, `Return` and `Look`.
//!
//! ## Why it works
//! The lock of the place orders `Return` and the search in the `Serve` of a waiter. If `Return` is
//! first, the search finds the piece. Otherwise `Look` sees `is_awaited`, which was set before the
//! search. The flag is cleared only after a `Serve` under the same lock has found the queue empty.
//! So no waiter waits while a piece is free that it can use.
//!
//! A piece that is handed over lies in no place, so no newcomer takes it.
//!
//! ## Allowed
//! - A newcomer may take a piece between its `Return` and the `Serve`. The first waiter then waits
//!   for the next piece, still as the first.
//! - The flag may be set although nobody waits, after a waiter has left. The next `Serve` clears
//!   it.
//!
//! ## Rejected
//! - Waking the first waiter without a piece, so that it searches itself: newcomers overtake it,
//!   and a waiter that ends must wake the next one, whether or not there is still a piece.
//! - A permit for each piece that may be in use, in a semaphore: each coroutine would change one
//!   word that all workers share, twice, also where stacks are not scarce.
//!
//! ## Checked by
//! `models::return_against_wait`, `models::return_against_leave`,
//! `models::canary_enlist_without_serve`, `models::canary_look_before_return`,
//! `models::canary_leave_without_return`.

use std::task::Waker;

use procession_sync::Mutex;
use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::sync::wait_list::{Place, ServedWaiters, WaitList, Waiter};

/// Waiters that each want something (`W`), and are handed a piece (`P`) in their order.
#[derive(Debug)]
pub struct SupplyQueue<W, P> {
    waiters: Mutex<WaitList<Claim<W, P>>>,
    is_awaited: AtomicBool,
}

#[derive(Debug)]
enum Claim<W, P> {
    Wants(W),
    Has(P),
}

impl<W, P> SupplyQueue<W, P> {
    /// Creates an empty queue.
    pub fn new() -> Self {
        Self { waiters: Mutex::new(WaitList::new()), is_awaited: AtomicBool::new(false) }
    }

    /// `Enlist`. The caller must [serve](Self::serve) afterwards.
    pub fn enlist(&self, wants: W, waker: Waker) -> Place {
        let mut waiters = self.waiters.lock();
        // Ordering: Relaxed, because the locks of the places order this and the load.
        self.is_awaited.store(true, Relaxed);
        waiters.push(Waiter::Alone(waker), Claim::Wants(wants))
    }

    /// `Look`: returns `true` if the caller must [serve](Self::serve), after it has returned a
    /// piece to a place.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        // Ordering: SeqCst pairs with the fence of a search that asks whether anybody still has a
        // piece. A thread that gives up its last piece looks here afterwards. The lock of the place
        // orders all other looks.
        self.is_awaited.load(SeqCst)
    }

    /// `Serve`. `search` looks in all places for a piece for the first waiter. The caller wakes the
    /// waiters that were served.
    pub fn serve(&self, mut search: impl FnMut(&W) -> Option<P>) -> ServedWaiters {
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

    /// Removes a waiter that ends. Returns the piece that was handed to it, which the caller must
    /// return to a place, or else its waker, to be dropped outside the lock.
    pub fn leave(&self, place: Place) -> (Option<P>, Option<Waiter>) {
        let (claim, waiter) = self.waiters.lock().remove(place);
        match claim {
            Claim::Has(piece) => (Some(piece), waiter),
            Claim::Wants(_) => (None, waiter),
        }
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, Mutex, explore, thread};

    use super::{Place, SupplyQueue};

    const SOUND: u8 = 0;
    /// The waiter does not search again once it is in the queue.
    const ENLIST_WITHOUT_SERVE: u8 = 1;
    /// `Look` comes before `Return`.
    const LOOK_BEFORE_RETURN: u8 = 2;
    /// A waiter that ends drops its piece.
    const LEAVE_WITHOUT_RETURN: u8 = 3;

    /// A supply with one place, which has room for one piece.
    struct Supply<const MUTATION: u8> {
        place: Mutex<Option<()>>,
        queue: SupplyQueue<(), ()>,
    }

    impl<const MUTATION: u8> Supply<MUTATION> {
        fn new() -> Arc<Self> {
            Arc::new(Self { place: Mutex::new(None), queue: SupplyQueue::new() })
        }

        fn search(&self) -> Option<()> {
            self.place.lock().take()
        }

        fn serve(&self) {
            drop(self.queue.serve(|()| self.search()));
        }

        fn give_back(&self) {
            let looked = MUTATION == LOOK_BEFORE_RETURN && !self.queue.is_awaited();
            *self.place.lock() = Some(());
            if !looked && self.queue.is_awaited() {
                self.serve();
            }
        }

        fn wait(&self) -> Place {
            let place = self.queue.enlist((), Waker::noop().clone());
            if MUTATION != ENLIST_WITHOUT_SERVE {
                self.serve();
            }
            place
        }

        fn leave(&self, place: Place) {
            if self.queue.leave(place).0.is_some() && MUTATION != LEAVE_WITHOUT_RETURN {
                self.give_back();
            }
        }
    }

    fn return_and_wait<const MUTATION: u8>() {
        explore(|| {
            let supply = Supply::<MUTATION>::new();
            let other = {
                let supply = Arc::clone(&supply);
                thread::spawn(move || supply.give_back())
            };
            if supply.search().is_none() {
                let place = supply.wait();
                other.join().expect("it does not panic");
                assert!(supply.queue.fetch(place).is_ok(), "it waits although a piece is free");
            } else {
                other.join().expect("it does not panic");
            }
            assert_eq!(supply.search(), None, "there is one piece");
        });
    }

    #[test]
    fn return_against_wait() {
        return_and_wait::<SOUND>();
    }

    #[test]
    #[should_panic(expected = "it waits although a piece is free")]
    fn canary_enlist_without_serve() {
        return_and_wait::<ENLIST_WITHOUT_SERVE>();
    }

    #[test]
    #[should_panic(expected = "it waits although a piece is free")]
    fn canary_look_before_return() {
        return_and_wait::<LOOK_BEFORE_RETURN>();
    }

    fn return_and_leave<const MUTATION: u8>() {
        explore(|| {
            let supply = Supply::<MUTATION>::new();
            let (first, second) = (supply.wait(), supply.wait());
            let other = {
                let supply = Arc::clone(&supply);
                thread::spawn(move || supply.give_back())
            };
            supply.leave(first);
            other.join().expect("it does not panic");
            assert!(supply.queue.fetch(second).is_ok(), "the next one waits");
            assert_eq!(supply.search(), None, "there is one piece");
        });
    }

    #[test]
    fn return_against_leave() {
        return_and_leave::<SOUND>();
    }

    #[test]
    #[should_panic(expected = "the next one waits")]
    fn canary_leave_without_return() {
        return_and_leave::<LEAVE_WITHOUT_RETURN>();
    }
}
