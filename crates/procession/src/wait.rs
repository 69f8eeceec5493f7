//! Waiting for a future as a method call.

use std::future::Future;

pub use crate::coroutine::wait;

/// Adds the method `wait` to every future, for plain threads and coroutines.
///
/// The method is [`wait`](crate::wait()): it parks a plain thread and suspends a coroutine until
/// the future completes. It lets both use what is written for async code, such as channels and
/// locks.
///
/// ```
/// use procession::Wait;
///
/// let (sender, receiver) = procession::channel::bounded(1);
/// std::thread::scope(|scope| {
///     scope.spawn(|| sender.send("from a thread").wait());
///     assert_eq!(receiver.receive().wait(), Some("from a thread"));
/// });
/// ```
pub trait Wait: Future + Sized {
    /// Waits until the future completes, and returns its output.
    ///
    /// # Blocking
    /// In an async process or a state machine, and where a coroutine cannot be suspended, this
    /// blocks the worker; see [`wait`](crate::wait()).
    ///
    /// # Panics
    /// Panics if the future panics, or if this would block the last thread that the scheduler may
    /// have.
    ///
    /// # Cancellation
    /// A coroutine that is cancelled or terminated while it waits unwinds from here.
    fn wait(self) -> Self::Output {
        wait(self)
    }
}

impl<F: Future> Wait for F {}
