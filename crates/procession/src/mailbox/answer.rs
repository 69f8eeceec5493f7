//! The place where the answer to one call is left for its caller.
//!
//! # Answer protocol
//!
//! ## Problem
//! The timeout of a call ends while its reply comes. The replier takes the reply for delivered, but
//! the caller never sees it: a value is lost and its owner does not learn of it. Or the process
//! ends with the reply in its hands, and the caller waits until its timeout.
//!
//! ## States
//! The state is under one lock:
//! - `Waits`: no answer yet. It holds the caller's waker once the caller has looked.
//! - `Replied`: holds the value.
//! - `Dropped`: no answer will come.
//! - `Gone`: the caller does not look any more.
//!
//! ## Steps
//! - `Finish`, by the replier, or by the drop of the right to reply: moves `Waits` to `Replied` or
//!   `Dropped`. The waker is woken outside the lock. If the state is `Gone`, the value is returned.
//! - `Look`, by the caller: leaves its waker in `Waits`, and takes the result out of the other
//!   states.
//! - `GiveUp`, by the caller at its timeout or drop: moves to `Gone`. A value that was there is
//!   dropped with the call.
//!
//! ## Why it works
//! The right to reply is one value, so there is one `Finish`. `Finish`, `Look` and `GiveUp` are
//! critical sections of one lock. The value is with the replier, in the cell or with the caller,
//! and each section moves it once. A reply never passes through a mailbox, so a late one can only
//! meet `Gone`.
//!
//! ## Checked by
//! `models::reply_against_give_up`, `models::death_against_look`, `models::canary_finish_in_two`.

use std::task::Waker;

use procession_sync::Mutex;

/// The defects that canary models plant, one at a time.
pub(crate) mod mutation {
    pub(crate) const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build is a mutant.
    pub(crate) const BUILT: u8 = crate::util::mutant::planted("answer", SOUND);
    /// `Finish` checks the state in one critical section, and stores the value in another.
    pub(crate) const FINISH_IN_TWO: u8 = 1;
}

enum AnswerState<T> {
    /// No answer yet. Holds the caller's waker once it waits.
    Waits(Option<Waker>),
    Replied(T),
    Dropped,
    Gone,
}

/// The result of `Finish`.
#[must_use]
pub(crate) enum Finished<T> {
    /// The caller will see the answer. Its waker is to be woken.
    Told(Option<Waker>),
    /// The caller has gone.
    Late(Option<T>),
}

/// The result of `Look`.
#[must_use]
pub(crate) enum CallLooked<T> {
    /// No answer yet. The previous waker is to be dropped outside the lock.
    Waits(Option<Waker>),
    Replied(T),
    /// No answer will come.
    Dropped,
}

pub(crate) struct Answer<T, const MUTATION: u8 = { mutation::BUILT }>(Mutex<AnswerState<T>>);

impl<T, const MUTATION: u8> Answer<T, MUTATION> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(AnswerState::Waits(None)))
    }

    fn with<R>(&self, access: impl FnOnce(&mut AnswerState<T>) -> R) -> R {
        access(&mut self.0.lock())
    }

    /// `Finish`, with a value or without.
    pub(crate) fn finish(&self, value: Option<T>) -> Finished<T> {
        if MUTATION == mutation::FINISH_IN_TWO
            && self.with(|state| matches!(state, AnswerState::Waits(_)))
        {
            self.with(|state| *state = value.map_or(AnswerState::Dropped, AnswerState::Replied));
            return Finished::Told(None);
        }
        self.with(|state| {
            let AnswerState::Waits(waker) = state else { return Finished::Late(value) };
            let waker = waker.take();
            *state = value.map_or(AnswerState::Dropped, AnswerState::Replied);
            Finished::Told(waker)
        })
    }

    /// `Look`.
    pub(crate) fn look(&self, waker: Waker) -> CallLooked<T> {
        // Taken only if the cell keeps it. Otherwise it is dropped outside the lock.
        let mut waker = Some(waker);
        self.with(|state| {
            if let AnswerState::Waits(waits) = state {
                return CallLooked::Waits(std::mem::replace(waits, waker.take()));
            }
            match std::mem::replace(state, AnswerState::Gone) {
                AnswerState::Replied(value) => CallLooked::Replied(value),
                _ => CallLooked::Dropped,
            }
        })
    }

    /// `GiveUp`. What it returns is to be dropped outside the lock.
    pub(crate) fn give_up(&self) -> (Option<T>, Option<Waker>) {
        self.with(|state| match std::mem::replace(state, AnswerState::Gone) {
            AnswerState::Replied(value) => (Some(value), None),
            AnswerState::Waits(waker) => (None, waker),
            AnswerState::Dropped | AnswerState::Gone => (None, None),
        })
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.with(|state| matches!(state, AnswerState::Gone))
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, explore, thread};

    use super::{Answer, CallLooked, Finished, mutation};

    /// A reply comes while the caller gives up.
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

    /// The right to reply is dropped while the caller looks.
    #[test]
    fn death_against_look() {
        explore(|| {
            let answer = Arc::new(Answer::<u32, { mutation::SOUND }>::new());
            let dies = {
                let answer = Arc::clone(&answer);
                thread::spawn(move || matches!(answer.finish(None), Finished::Told(Some(_))))
            };
            let sleeps = matches!(answer.look(Waker::noop().clone()), CallLooked::Waits(_));
            let woken = dies.join().expect("the process does not panic");
            assert_eq!(sleeps, woken, "the caller is woken if and only if it sleeps");
        });
    }
}

#[cfg(all(test, not(procession_loom)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::{Answer, Finished};

    /// Panics in its drop. Under the lock, that would poison it.
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
