//! Futures that know the call that made them.
//!
//! A look shows where a process waits. The operations of the runtime that wait are functions with
//! `#[track_caller]` that return a future with the place of the call. An `async fn` has no such
//! place: its body runs when it is polled. If one operation is made of others, each notes its place
//! when it has to wait, the innermost first, so the place of the outermost call stays.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use crate::process::async_body::Beside;
use crate::scheduler::current;

/// The place of a call.
#[derive(Debug)]
pub struct CallPlace(&'static Location<'static>);

/// A future with the place of a call.
pub(crate) type Placed<F> = Beside<CallPlace, F>;

/// Returns the future with the place of the call.
#[inline]
#[track_caller]
pub(crate) fn placed<F: Future>(future: F) -> Beside<CallPlace, F> {
    Beside { future, state: CallPlace(Location::caller()) }
}

impl<F: Future> Future for Beside<CallPlace, F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let (place, future) = self.split();
        let polled = future.poll(task);
        if polled.is_pending() {
            current::note_place(place.0);
        }
        polled
    }
}
