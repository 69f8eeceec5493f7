//! What a process is made of besides its slot: its future or state machine, and later its result.
//!
//! ## User code
//! User code is whatever a type of the user's decides: `poll`, `Drop`, wakers, closures, the payloads of
//! panics. It may panic, call the runtime again, or never run. The rule for it is:
//!
//! - It never runs under a lock or a borrow of the runtime's. What a lock guards is moved out first.
//! - Whatever it is called for is finished first, or is finished by a `Drop`: a count, a state, a place
//!   in a list.
//! - A call goes through [`guarded`], unless the panic belongs to the caller.
//! - A value is dropped by [`drop_guarded`], and several of them by [`drop_each`]. While one of two
//!   values unwinds, a panic of the other would abort the program.
//! - The `Drop` of what the user holds (a handle, a future) guards as well: it may run in an unwinding.
//!
//! `tests/it/hostile.rs` and `tests/it/panics.rs` go through the places.
//!
//! ## Invariants
//! - `[in place]` a body never moves: it lives in its box from spawn to the end, and its future is dropped there.
//! - `[pinned within]` once a `Guarded`, a `Beside`, an `OwnOr` or an `AsyncBody` is pinned, its future, the only part that cares, is not moved
//!   out, and dropped where it is. What takes one by value or by `&mut`, and touches its future, does so before the first step or poll.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin as StdPin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use crate::Exit;
use crate::machine::command::CommandResult;
use crate::process::exit::Exiting;
use crate::process::slot::Slot;
use crate::process::state::WaitFor;
use crate::relations::Signal;
use crate::time::Armed;

/// What a mailbox holds.
pub(crate) type Event<M> = procession_queue::Event<M, System>;

/// What the runtime tells a process.
pub(crate) enum System {
    /// A command that the process yielded is done.
    Completion { tag: u64, result: CommandResult },
    /// So is its sleep, of which this was the timer.
    Slept { tag: u64, timer: Armed },
    /// Another process ended, or sent an exit signal.
    Signal(Signal),
}

/// How a step left its process.
pub(crate) enum Step {
    /// It waits.
    Waits(WaitFor),
    /// It wants to go on.
    GoesOn,
    /// It ended; its result is in the body. `None` is [`Exit::Normal`]; any other is boxed, so that the answer to a step is in registers.
    Ended(Option<Box<Exit>>),
}

// A tag and a word, whichever it is, so that it is returned in registers: written byte by byte and read whole, it waits for the stores,
// a tenth of `co_yield_1`.
const _: () = assert!(size_of::<Step>() == 2 * size_of::<usize>() && size_of::<WaitFor>() == size_of::<usize>());

impl Step {
    /// It ended in this way.
    pub(crate) fn ended(exit: Exit) -> Self {
        Self::Ended(Some(exit).filter(|exit| !exit.is_normal()).map(Box::new))
    }
}

/// The type-erased content of a process. All calls but the last are by the worker that runs it.
pub(crate) trait Body: Send {
    /// Runs the process until it waits, gives way or ends. May unwind.
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step;

    /// Ends the process from outside, or after a panic. The state is dropped; may unwind.
    fn end(&mut self, slot: &Slot, exit: Exit);

    /// After the end: moves the result into `result`, a `&mut Option<Result<T, Exit>>`.
    fn take_result(&mut self, result: &mut dyn Any);
}

/// An async process.
pub(crate) struct AsyncBody<F: Future>(Stage<F>);

enum Stage<F: Future> {
    Runs(F),
    Ended(Result<F::Output, Exit>),
    Taken,
}

impl<F: Future> AsyncBody<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Stage::Runs(future))
    }

    /// The future of one that was never polled; `None` if it has ended.
    pub(crate) fn into_future(self) -> Option<F> {
        if let Stage::Runs(future) = self.0 { Some(future) } else { None }
    }

    /// The future of one that was never polled; `None` if it has ended.
    pub(crate) fn future(&mut self) -> Option<&mut F> {
        if let Stage::Runs(future) = &mut self.0 { Some(future) } else { None }
    }

    /// The future of one that runs, but is no process.
    pub(crate) fn pinned(self: StdPin<&mut Self>) -> Option<StdPin<&mut F>> {
        // SAFETY: [pinned within]
        let stage = unsafe { &mut self.get_unchecked_mut().0 };
        let Stage::Runs(future) = stage else { return None };
        // SAFETY: [pinned within]
        Some(unsafe { StdPin::new_unchecked(future) })
    }
}

impl<F> Body for AsyncBody<F>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    #[inline]
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        let Stage::Runs(future) = &mut self.0 else {
            return Step::Ended(None);
        };
        // SAFETY: [in place]
        match unsafe { StdPin::new_unchecked(future) }.poll(task) {
            Poll::Ready(output) => {
                // Drops the future in place.
                self.0 = Stage::Ended(Ok(output));
                Step::Ended(None)
            }
            Poll::Pending => Step::Waits(slot.waiting().wait_for()),
        }
    }

    fn end(&mut self, _: &Slot, exit: Exit) {
        self.0 = Stage::Ended(Err(exit));
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        if let Stage::Ended(ended) = std::mem::replace(&mut self.0, Stage::Taken)
            && let Some(result) = result.downcast_mut::<Option<Result<F::Output, Exit>>>()
        {
            *result = Some(ended);
        }
    }
}

/// What becomes of a result, or of the payload of a panic.
pub(crate) trait Settle<O> {
    type Settled;

    fn settle(self, outcome: Result<O, Box<dyn Any + Send>>) -> Self::Settled;
}

/// A future of the user's inside of another body, and what becomes of its result or of the payload of its panic. It is dropped before that;
/// what its drop panics with was printed. An async function that does the same holds the future three times over, of which a pool felt each.
pub(crate) struct Guarded<F, T> {
    future: Option<F>,
    then: Option<T>,
}

impl<F, T> Guarded<F, T> {
    pub(crate) fn new(future: F, then: T) -> Self {
        Self { future: Some(future), then: Some(then) }
    }

    /// The future, which was not polled yet.
    pub(crate) fn into_future(self) -> F {
        self.future.expect("it has not ended")
    }
}

impl<F, T> Future for Guarded<F, T>
where
    F: Future,
    T: Settle<F::Output>,
{
    type Output = T::Settled;

    /// # Panics
    /// If it is polled again after its end.
    fn poll(self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<T::Settled> {
        // SAFETY: [pinned within]
        let this = unsafe { self.get_unchecked_mut() };
        let future = this.future.as_mut().expect("a future is not polled after its end");
        // SAFETY: [pinned within]
        let polled = catch_unwind(AssertUnwindSafe(|| unsafe { StdPin::new_unchecked(future) }.poll(task)));
        let outcome = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(payload) => Err(payload),
        };
        drop(guarded(|| this.future = None));
        let then = this.then.take().expect("a future ends once");
        Poll::Ready(then.settle(outcome))
    }
}

/// A future, and what it works with, which is not pinned, and dropped after it.
pub(crate) struct Beside<S, F> {
    pub(crate) future: F,
    pub(crate) state: S,
}

impl<S, F> Beside<S, F> {
    pub(crate) fn split(self: StdPin<&mut Self>) -> (&mut S, StdPin<&mut F>) {
        // SAFETY: [pinned within]
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: [pinned within]
        (&mut this.state, unsafe { StdPin::new_unchecked(&mut this.future) })
    }
}

/// A future that lives here, or another in its place.
pub(crate) enum OwnOr<F, O> {
    Own(F),
    Other(O),
}

impl<F, O> Future for OwnOr<F, O>
where
    F: Future,
    O: Future<Output = F::Output> + Unpin,
{
    type Output = F::Output;

    #[inline]
    fn poll(self: StdPin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        // SAFETY: [pinned within]
        match unsafe { self.get_unchecked_mut() } {
            // SAFETY: [pinned within]
            Self::Own(future) => unsafe { StdPin::new_unchecked(future) }.poll(task),
            Self::Other(other) => StdPin::new(other).poll(task),
        }
    }
}

/// Runs user code; a panic becomes the exit that it causes, as does a process's wish to end.
pub(crate) fn guarded<R>(user_code: impl FnOnce() -> R) -> Result<R, Exit> {
    catch_unwind(AssertUnwindSafe(user_code)).map_err(|payload| {
        let payload = match payload.downcast::<Exiting>() {
            Ok(exiting) => return exiting.0,
            Err(payload) => payload,
        };
        let message: Arc<str> = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
            (Some(text), _) => Arc::from(*text),
            (_, Some(text)) => Arc::from(text.as_str()),
            _ => Arc::from("a value that is no text"),
        };
        drop_guarded(payload);
        Exit::Panicked(message)
    })
}

/// Drops several things of the user's, as [`drop_guarded`] does one.
pub(crate) fn drop_each<T>(values: impl IntoIterator<Item = T>) {
    values.into_iter().for_each(drop_guarded);
}

/// Drops something of the user's; a panic of its `Drop` ends here, like one of the payload that this panic has, and so on.
pub(crate) fn drop_guarded<T>(value: T) {
    // Bounded: a payload whose drop panics with another such payload for ever is leaked at the second one.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}
