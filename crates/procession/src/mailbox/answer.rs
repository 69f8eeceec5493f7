//! The place where one answer is left for one who waits for it.
//!
//! # Answer protocol
//!
//! ## Problem
//! The time of a call is over just as its reply comes. The reply is taken for used by the one, and
//! never seen by the other: a value is lost without its owner knowing. Or the process dies with the
//! reply in its hands, and the caller waits until its time is over.
//!
//! ## States
//! Under one lock: `Waits`, with the caller's waker once it has looked; `Replied`, with the value;
//! `Dropped`: there will be none; `Gone`: the caller looks no more.
//!
//! ## Steps
//! `Finish` (who replies, or whose death drops the right to): from `Waits`, to `Replied` or
//! `Dropped`; the waker is woken outside the lock. From `Gone`, the value comes back. `Look` (the
//! caller): leaves its waker in `Waits`, takes the end out of the others. `GiveUp` (the caller's
//! time is over, or it is dropped): to `Gone`; a value that was there is dropped with the call.
//!
//! ## Why it works
//! The right to reply is one value, so there is one `Finish`. It, `Look` and `GiveUp` are critical
//! sections of one lock: a value is in the hands of who replies, in the cell, or with the caller,
//! and each section moves it once. A reply never passes through a mailbox, so a late one meets
//! nothing but `Gone`.
//!
//! ## Checked by
//! `models::reply_against_give_up`, `models::death_against_look`, `models::canary_finish_in_two`.

use std::task::Waker;

use procession_sync::Mutex;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// `Finish` looks whether the caller is there, and stores in another critical section.
    pub(crate) const FINISH_IN_TWO: u8 = 1;
}

enum State<T> {
    /// Nothing yet; the caller's waker once it waits.
    Waits(Option<Waker>),
    Replied(T),
    Dropped,
    Gone,
}

/// What became of a `Finish`.
#[must_use]
pub(crate) enum Finished<T> {
    /// The caller will see it; its waker is to be woken.
    Told(Option<Waker>),
    /// The caller has gone.
    Late(Option<T>),
}

/// What a `Look` found.
#[must_use]
pub(crate) enum Looked<T> {
    /// Nothing yet. The waker that was there before is to be dropped outside.
    Waits(Option<Waker>),
    Replied(T),
    /// There is and will be none.
    Dropped,
}

pub(crate) struct Answer<T, const MUTATION: u8 = { mutation::SOUND }>(Mutex<State<T>>);

impl<T, const MUTATION: u8> Answer<T, MUTATION> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(State::Waits(None)))
    }

    fn with<R>(&self, access: impl FnOnce(&mut State<T>) -> R) -> R {
        access(&mut self.0.lock())
    }

    /// `Finish`, with a value or without.
    pub(crate) fn finish(&self, value: Option<T>) -> Finished<T> {
        if MUTATION == mutation::FINISH_IN_TWO
            && self.with(|state| matches!(state, State::Waits(_)))
        {
            self.with(|state| *state = value.map_or(State::Dropped, State::Replied));
            return Finished::Told(None);
        }
        self.with(|state| {
            let State::Waits(waker) = state else { return Finished::Late(value) };
            let waker = waker.take();
            *state = value.map_or(State::Dropped, State::Replied);
            Finished::Told(waker)
        })
    }

    /// `Look`.
    pub(crate) fn look(&self, waker: Waker) -> Looked<T> {
        // Taken only if it is kept: else it is dropped outside the lock.
        let mut waker = Some(waker);
        self.with(|state| {
            if let State::Waits(waits) = state {
                return Looked::Waits(std::mem::replace(waits, waker.take()));
            }
            match std::mem::replace(state, State::Gone) {
                State::Replied(value) => Looked::Replied(value),
                _ => Looked::Dropped,
            }
        })
    }

    /// `GiveUp`; what is left is to be dropped outside.
    pub(crate) fn give_up(&self) -> (Option<T>, Option<Waker>) {
        self.with(|state| match std::mem::replace(state, State::Gone) {
            State::Replied(value) => (Some(value), None),
            State::Waits(waker) => (None, waker),
            State::Dropped | State::Gone => (None, None),
        })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.with(|state| matches!(state, State::Gone))
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, explore, thread};

    use super::{Answer, Finished, Looked, mutation};

    /// A reply comes just as the caller gives up.
    fn give_up<const MUTATION: u8>() {
        explore(|| {
            let answer = Arc::new(Answer::<u32, MUTATION>::new());
            let replier = {
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    u32::from(matches!(answer.finish(Some(7)), Finished::Late(Some(7))))
                })
            };
            let left = u32::from(answer.give_up().0.is_some());
            let back = replier.join().expect("the replier does not panic");
            assert_eq!(left + back, 1, "the value is with the caller, or back");
        });
    }

    #[test]
    fn reply_against_give_up() {
        give_up::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the value is with the caller, or back")]
    fn canary_finish_in_two() {
        give_up::<{ mutation::FINISH_IN_TWO }>();
    }

    /// The right to reply is dropped just as the caller looks.
    #[test]
    fn death_against_look() {
        explore(|| {
            let answer = Arc::new(Answer::<u32, { mutation::SOUND }>::new());
            let dies = {
                let answer = Arc::clone(&answer);
                thread::spawn(move || matches!(answer.finish(None), Finished::Told(Some(_))))
            };
            let sleeps = matches!(answer.look(Waker::noop().clone()), Looked::Waits(_));
            let woken = dies.join().expect("the process does not panic");
            assert_eq!(sleeps, woken, "who sleeps is woken");
        });
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::{Answer, Finished};

    /// Harms whoever drops it: under a lock it would poison that.
    struct PanicsInDrop;

    impl Wake for PanicsInDrop {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for PanicsInDrop {
        fn drop(&mut self) {
            resume_unwind(Box::new("in a waker's drop"));
        }
    }

    #[test]
    fn no_waker_is_dropped_under_the_lock() {
        let answer = Answer::<u32>::new();
        assert!(matches!(answer.finish(Some(7)), Finished::Told(None)));
        let waker = Waker::from(Arc::new(PanicsInDrop));
        drop(catch_unwind(AssertUnwindSafe(|| drop(answer.look(waker)))));
        assert!(answer.is_gone(), "the reply was taken, and the answer can still be looked at");
    }
}
