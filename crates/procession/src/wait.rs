//! Waiting in the way of whoever calls, as a method.

use std::future::Future;

pub use crate::coroutine::wait;

/// [`wait`](crate::wait) as a method of every future: how plain threads and coroutines use what is written for async code.
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
    /// As [`wait`](crate::wait).
    fn wait(self) -> Self::Output {
        wait(self)
    }
}

impl<F: Future> Wait for F {}
