//! The place where the answer to one call is left for its caller.
//!
//! # Answer protocol
//!
//! ## Problem
//! The timeout of a call ends while its reply arrives. The replier takes the reply for delivered,
//! but the caller never sees it: a value is lost and its owner does not learn that. Or the process
//! ends with the reply in its hands, and the caller waits until its timeout.
//!
//! If a message goes to another node, it is dropped here after it was written, together with its
//! right to reply, although the reply can still arrive.
//!
//! ## States
//! The state is under one lock:
//! - `Waits`: no answer yet. It holds the caller's waker once the caller has looked.
//! - `Shared`: the same, and there are two rights to reply.
//! - `Replied`: holds the value.
//! - `Ended`: there will be no answer. The state says whether a connection is the reason.
//! - `Gone`: the caller no longer looks.
//!
//! If a function gets the answer, there is no caller. The state `Waits` or `Shared` then holds the
//! function until the function is taken.
//!
//! ## Steps
//! - `Finish`, by the replier, or by the drop of the right to reply: moves `Waits` to `Replied` or
//!   `Ended`. The waker is woken outside the lock. If the state is `Gone`, the value is returned.
//!   The drop of one of two rights moves `Shared` to `Waits`, and wakes no caller. The end of the
//!   connection moves both states to `Ended`, because the right that is left is for the other node.
//! - `Share`, by the holder of the right: moves `Waits` to `Shared`, and makes a second right.
//! - `Look`, by the caller: leaves its waker in `Waits`, and takes the result out of the other
//!   states.
//! - `GiveUp`, by the caller at its timeout or drop: moves to `Gone`. A value that was there is
//!   dropped with the call.
//!
//! ## Why it works
//! There are at most two rights to reply, and one `Finish` for each. The first `Finish` with a
//! value moves the state on, and the second one is late. Only the second of two drops ends the
//! call. `Finish`, `Share`, `Look` and `GiveUp` are critical sections of one lock. The value is
//! with the replier, in the cell or with the caller, and each section moves it once. A reply never
//! passes through a mailbox, so a late reply can only meet `Gone`.
//!
//! ## Checked by
//! `models::reply_against_give_up`, `models::death_against_look`, `models::drop_against_reply`,
//! `models::canary_finish_in_two`, `models::canary_first_drop_ends`.

use std::fmt;
use std::task::Waker;

use procession_sync::Mutex;

/// The defects that canary models plant, one at a time.
pub mod mutation {
    pub use crate::util::mutant::is;

    /// No defect.
    pub const SOUND: u8 = 0;
    /// The code that is built: sound, unless the build has mutants.
    pub const BUILT: u8 = crate::util::mutant::planted("answer", SOUND);
    /// `Finish` checks the state in one critical section, and stores the value in another.
    pub const FINISH_IN_TWO: u8 = 1;
    /// The drop of one of two rights ends the call.
    pub const FIRST_DROP_ENDS: u8 = 2;
    /// A call has no time limit. No model plants this: the runtime sets the limit.
    pub const WITHOUT_LIMIT: u8 = 3;
}

/// A function that gets the reply, or `None` if there is none.
pub type Forward<T> = Box<dyn FnOnce(Option<T>) + Send>;

enum AnswerState<T> {
    /// No answer yet. Holds the caller's waker once it waits.
    Waits(Option<Waker>),
    Shared(Option<Waker>),
    ForwardWaits(Forward<T>),
    ForwardShared(Forward<T>),
    Replied(T),
    Ended(NoReply),
    Gone,
}

/// The reason why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// The right to reply was dropped.
    Dropped,
    /// The connection to the process has ended.
    NoConnection,
}

/// The result of `Finish`.
#[must_use]
pub enum Finished<T> {
    /// The caller will see the answer. Its waker is to be woken.
    Told(Option<Waker>),
    /// The caller has gone.
    Late(Option<T>),
    /// The function is to be called with the value, outside the lock.
    Forward(Forward<T>, Option<T>),
}

impl<T> fmt::Debug for Finished<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Finished(..)")
    }
}

/// The result of `Look`.
#[must_use]
pub enum CallLooked<T> {
    /// No answer yet. The previous waker is to be dropped outside the lock.
    Waits(Option<Waker>),
    /// The reply.
    Replied(T),
    /// No answer will come.
    Ended(NoReply),
}

impl<T> fmt::Debug for CallLooked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CallLooked(..)")
    }
}

/// The place of the answer to one call.
pub struct Answer<T, const MUTATION: u8 = { mutation::BUILT }>(Mutex<AnswerState<T>>);

impl<T, const MUTATION: u8> fmt::Debug for Answer<T, MUTATION> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Answer(..)")
    }
}

impl<T, const MUTATION: u8> Answer<T, MUTATION> {
    /// Creates the place of an answer that does not exist yet.
    pub fn new() -> Self {
        Self(Mutex::new(AnswerState::Waits(None)))
    }

    fn with<R>(&self, access: impl FnOnce(&mut AnswerState<T>) -> R) -> R {
        access(&mut self.0.lock())
    }

    /// Creates an answer that is handed to a function.
    pub fn forwarded(forward: Forward<T>) -> Self {
        Self(Mutex::new(AnswerState::ForwardWaits(forward)))
    }

    /// `Finish`, with a value or without.
    pub fn finish(&self, value: Result<T, NoReply>) -> Finished<T> {
        if mutation::is(MUTATION, mutation::FINISH_IN_TWO)
            && self.with(|state| matches!(state, AnswerState::Waits(_)))
        {
            self.with(|state| *state = AnswerState::of(value));
            return Finished::Told(None);
        }
        self.with(|state| {
            let AnswerState::Waits(waker) = state else {
                return Self::finish_other(state, value);
            };
            let waker = waker.take();
            *state = AnswerState::of(value);
            Finished::Told(waker)
        })
    }

    /// `Finish` in the states that are rare.
    #[cold]
    fn finish_other(state: &mut AnswerState<T>, value: Result<T, NoReply>) -> Finished<T> {
        let is_first_drop = !mutation::is(MUTATION, mutation::FIRST_DROP_ENDS)
            && matches!(value, Err(NoReply::Dropped));
        match (std::mem::replace(state, AnswerState::Gone), value) {
            (AnswerState::Shared(waker), Err(_)) if is_first_drop => {
                *state = AnswerState::Waits(waker);
                Finished::Told(None)
            }
            (AnswerState::Shared(waker), value) => {
                *state = AnswerState::of(value);
                Finished::Told(waker)
            }
            (AnswerState::ForwardShared(forward), Err(_)) if is_first_drop => {
                *state = AnswerState::ForwardWaits(forward);
                Finished::Told(None)
            }
            (AnswerState::ForwardWaits(forward) | AnswerState::ForwardShared(forward), value) => {
                Finished::Forward(forward, value.ok())
            }
            (other, value) => {
                *state = other;
                Finished::Late(value.ok())
            }
        }
    }

    /// `Share`. Returns `false` if the call has ended, or is shared already.
    pub fn share(&self) -> bool {
        self.with(|state| match std::mem::replace(state, AnswerState::Gone) {
            AnswerState::Waits(waker) => {
                *state = AnswerState::Shared(waker);
                true
            }
            AnswerState::ForwardWaits(forward) => {
                *state = AnswerState::ForwardShared(forward);
                true
            }
            other => {
                *state = other;
                false
            }
        })
    }

    /// `Look`.
    pub fn look(&self, waker: Waker) -> CallLooked<T> {
        // Taken only if the cell keeps it. Otherwise it is dropped outside the lock.
        let mut waker = Some(waker);
        self.with(|state| {
            if let AnswerState::Waits(waits) | AnswerState::Shared(waits) = state {
                return CallLooked::Waits(std::mem::replace(waits, waker.take()));
            }
            match std::mem::replace(state, AnswerState::Gone) {
                AnswerState::Replied(value) => CallLooked::Replied(value),
                AnswerState::Ended(why) => CallLooked::Ended(why),
                _ => CallLooked::Ended(NoReply::Dropped),
            }
        })
    }

    /// `GiveUp`. What it returns is to be dropped outside the lock.
    pub fn give_up(&self) -> (Option<T>, Option<Waker>) {
        self.with(|state| match std::mem::replace(state, AnswerState::Gone) {
            AnswerState::Replied(value) => (Some(value), None),
            AnswerState::Waits(waker) | AnswerState::Shared(waker) => (None, waker),
            _ => (None, None),
        })
    }

    /// Returns `true` if the caller no longer waits.
    pub fn is_gone(&self) -> bool {
        self.with(|state| matches!(state, AnswerState::Gone))
    }
}

impl<T> AnswerState<T> {
    /// The state after the answer.
    fn of(value: Result<T, NoReply>) -> Self {
        value.map_or_else(Self::Ended, Self::Replied)
    }
}

#[cfg(all(test, procession_loom))]
mod models {
    use std::task::Waker;

    use procession_sync::{Arc, explore, thread};

    use super::{Answer, CallLooked, Finished, NoReply, mutation};

    /// A reply arrives while the caller executes `GiveUp`.
    fn give_up<const MUTATION: u8>() {
        explore(|| {
            let answer = Arc::new(Answer::<u32, MUTATION>::new());
            let replier = {
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    u32::from(matches!(answer.finish(Ok(7)), Finished::Late(Some(7))))
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

    /// One of two rights to reply is dropped while the holder of the other right replies.
    fn shared<const MUTATION: u8>() {
        explore(|| {
            let answer = Arc::new(Answer::<u32, MUTATION>::new());
            assert!(answer.share());
            let replier = {
                let answer = Arc::clone(&answer);
                thread::spawn(move || drop(answer.finish(Ok(7))))
            };
            drop(answer.finish(Err(NoReply::Dropped)));
            replier.join().expect("the replier does not panic");
            let looked = answer.look(Waker::noop().clone());
            assert!(matches!(looked, CallLooked::Replied(7)), "the reply has come");
        });
    }

    #[test]
    fn drop_against_reply() {
        shared::<{ mutation::SOUND }>();
    }

    #[test]
    #[should_panic(expected = "the reply has come")]
    fn canary_first_drop_ends() {
        shared::<{ mutation::FIRST_DROP_ENDS }>();
    }

    /// The right to reply is dropped while the caller looks.
    #[test]
    fn death_against_look() {
        explore(|| {
            let answer = Arc::new(Answer::<u32, { mutation::SOUND }>::new());
            let dies = {
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    matches!(answer.finish(Err(NoReply::Dropped)), Finished::Told(Some(_)))
                })
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
        assert!(matches!(answer.finish(Ok(7)), Finished::Told(None)));
        let waker = Waker::from(Arc::new(PanicsInDrop));
        drop(catch_unwind(AssertUnwindSafe(|| drop(answer.look(waker)))));
        assert!(answer.is_gone(), "the reply was taken, and the answer can still be looked at");
    }
}
