//! What a timer does when it fires.

use std::sync::Arc;
use std::task::Waker;

use crate::body::{drop_guarded, guarded};

#[derive(Clone)]
pub(crate) enum Action {
    Wake(Waker),
    Call(Arc<dyn Fn() + Send + Sync>),
}

impl Action {
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
