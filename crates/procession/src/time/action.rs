//! What a timer does when it fires.

use std::sync::Arc;
use std::task::Waker;

use crate::process::unwind::{drop_guarded, guarded};

#[derive(Clone)]
pub(crate) enum Action {
    Wake(Waker),
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl Action {
    /// The timer will not fire: whoever waits must look again, and a function is dropped.
    pub(crate) fn give_up(self) {
        match self {
            Self::Wake(_) => self.fire(),
            Self::Call(function) => drop_guarded(function),
        }
    }

    /// Runs outside all locks; a panic of the user's code ends here.
    pub(crate) fn fire(self) {
        match self {
            Self::Wake(waker) => drop(guarded(|| waker.wake())),
            Self::Call(function) => {
                drop(guarded(|| function()));
                drop_guarded(function);
            }
        }
    }
}
