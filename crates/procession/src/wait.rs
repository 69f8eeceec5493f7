//! Waiting in the way of whoever calls.

use std::future::Future;

use crate::{root, scheduler};

/// Waits for a future, in the way of whoever calls: a plain thread is parked.
///
/// This is how plain threads use what is written for async code: `wait(receiver.receive())`. [`Wait`] is the same as a method.
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
///
/// # Blocking
/// Blocks the thread. In a process this is [`Scheduler::block_on`](crate::Scheduler::block_on), a blocking section; await there instead.
pub fn wait<F: Future>(future: F) -> F::Output {
    root::block_on(&scheduler::here(), future)
}

/// [`wait`] as a method of every future.
pub trait Wait: Future + Sized {
    /// As [`wait`].
    fn wait(self) -> Self::Output {
        wait(self)
    }
}

impl<F: Future> Wait for F {}
