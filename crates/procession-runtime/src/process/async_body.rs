//! The body of async processes, and futures that embed user futures.

use std::any::Any;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use pin_project_lite::pin_project;

use crate::Exit;
use crate::process::body::{Body, Step};
use crate::process::exit::{AnyOutput, Judge};
use crate::process::slot::Slot;
use crate::process::unwind::guarded;

/// The body of an async process. `J` decides how the process ends once it has an output.
///
/// A build without optimisation keeps each value that is moved on the stack at both ends of the
/// move. So a future is moved as rarely as possible on its way into the body, and a value of the
/// size of a future exists in functions of their own. A function builds the body before all values
/// with a `Drop`, or the build keeps another copy for the case that one of these unwinds.
pub(crate) enum AsyncBody<F: Future, J = AnyOutput> {
    Runs(F),
    Ended(Result<F::Output, Exit>, PhantomData<fn() -> J>),
}

impl<F: Future, J> AsyncBody<F, J> {
    fn settle(&mut self, ended: Result<F::Output, Exit>) {
        // The assignment drops the future in place.
        *self = Self::Ended(ended, PhantomData);
    }

    /// Returns a future that was never polled, or `None` if the body has ended.
    pub(crate) fn into_future(self) -> Option<F> {
        if let Self::Runs(future) = self { Some(future) } else { None }
    }

    /// Returns a future that was never polled, or `None` if the body has ended.
    pub(crate) fn future(&mut self) -> Option<&mut F> {
        if let Self::Runs(future) = self { Some(future) } else { None }
    }

    /// Returns the future of a body that runs outside a process, or `None` if the body has ended.
    pub(crate) fn pinned(self: Pin<&mut Self>) -> Option<Pin<&mut F>> {
        // SAFETY: [pinned within]
        let Self::Runs(future) = (unsafe { self.get_unchecked_mut() }) else { return None };
        // SAFETY: [pinned within]
        Some(unsafe { Pin::new_unchecked(future) })
    }
}

impl<F, J> Body for AsyncBody<F, J>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    J: Judge<F::Output> + 'static,
{
    #[inline]
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        let Self::Runs(future) = self else {
            return Step::Ended(None);
        };
        // SAFETY: [in place]
        match unsafe { Pin::new_unchecked(future) }.poll(task) {
            Poll::Ready(output) => {
                self.settle(Ok(output));
                match self {
                    // If this panics, `end` replaces the output.
                    Self::Ended(Ok(output), _) => Step::judged(J::judge(output)),
                    _ => Step::Ended(None),
                }
            }
            Poll::Pending => Step::Waits(slot.waiting.get().wait_phase()),
        }
    }

    fn end(&mut self, _: &Slot, exit: Exit) {
        self.settle(Err(exit));
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        if let Self::Ended(ended, _) = self
            && let Some(result) = result.downcast_mut::<Option<Result<F::Output, Exit>>>()
        {
            // A result is taken once.
            *result = Some(std::mem::replace(ended, Err(Exit::Normal)));
        }
    }
}

pin_project! {
    /// A future that a closure makes in the first poll.
    ///
    /// The future takes the place of the closure. An async block that calls the closure keeps the
    /// place of what the closure has captured, which was a third of the body of a process that
    /// waits for its first message.
    #[project = DeferredProjection]
    pub(crate) enum Deferred<C, F> {
        Fresh { make: Option<C> },
        Runs { #[pin] future: F },
    }
}

impl<C: FnOnce() -> F, F> Deferred<C, F> {
    pub(crate) fn new(make: C) -> Self {
        Self::Fresh { make: Some(make) }
    }

    /// Makes the future. It is a function of its own so that a build without optimisation keeps no
    /// copy of the future on the stack while it polls the future.
    #[cold]
    fn begin(mut self: Pin<&mut Self>) -> Pin<&mut F> {
        if let DeferredProjection::Fresh { make } = self.as_mut().project() {
            let make = make.take().expect("a future that panicked is not polled again");
            self.set(Self::Runs { future: make() });
        }
        match self.project() {
            DeferredProjection::Runs { future } => future,
            DeferredProjection::Fresh { .. } => unreachable!("the future was just set"),
        }
    }
}

impl<C: FnOnce() -> F, F: Future> Future for Deferred<C, F> {
    type Output = F::Output;

    // Within the step, a loop that receives would have fewer registers, and take five instructions
    // more for each message.
    #[inline(never)]
    fn poll(mut self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        let future = match self.as_mut().project() {
            DeferredProjection::Runs { future } => future,
            DeferredProjection::Fresh { .. } => self.begin(),
        };
        future.poll(task)
    }
}

/// Handles the result of a future, or the payload of its panic.
pub(crate) trait Settle<O> {
    type Settled;

    fn settle(self, outcome: Result<O, Box<dyn Any + Send>>) -> Self::Settled;
}

/// A user future inside another body, and the handler of its result or of the payload of its panic.
///
/// The future is dropped before the handler runs, and a panic of that drop is printed. An async
/// function that does the same holds the future three times, which slows pools measurably.
pub(crate) struct Guarded<F, T> {
    future: Option<F>,
    then: Option<T>,
}

impl<F, T> Guarded<F, T> {
    pub(crate) fn new(future: F, then: T) -> Self {
        Self { future: Some(future), then: Some(then) }
    }

    /// Returns the future, which was not polled yet.
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
    /// Panics if it is polled again after its end.
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<T::Settled> {
        // SAFETY: [pinned within]
        let this = unsafe { self.get_unchecked_mut() };
        let future = this.future.as_mut().expect("a future is not polled after its end");
        // SAFETY: [pinned within]
        let polled =
            catch_unwind(AssertUnwindSafe(|| unsafe { Pin::new_unchecked(future) }.poll(task)));
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

/// A future and its state. The state is not pinned, and is dropped after the future.
#[derive(Debug)]
pub struct Beside<S, F> {
    pub(crate) future: F,
    pub(crate) state: S,
}

impl<S, F> Beside<S, F> {
    pub(crate) fn split(self: Pin<&mut Self>) -> (&mut S, Pin<&mut F>) {
        // SAFETY: [pinned within]
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: [pinned within]
        (&mut this.state, unsafe { Pin::new_unchecked(&mut this.future) })
    }
}

/// A future that is stored here, or another future that takes its place.
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
    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<F::Output> {
        // SAFETY: [pinned within]
        match unsafe { self.get_unchecked_mut() } {
            // SAFETY: [pinned within]
            Self::Own(future) => unsafe { Pin::new_unchecked(future) }.poll(task),
            Self::Other(other) => Pin::new(other).poll(task),
        }
    }
}
