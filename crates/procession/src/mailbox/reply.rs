//! The right to reply to a call.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use crate::mailbox::answer::{Answer, Finished};
use crate::process::unwind::guarded;

/// The right to reply to a call once, from any process or thread, at any time.
///
/// Dropping it tells the caller that there is no reply. If the process ends, the call therefore
/// ends with it.
pub struct Reply<T>(pub(crate) Option<Arc<Answer<T>>>);

impl<T> Reply<T> {
    /// Replies. If the caller has gone, because of its timeout or because it was dropped, the value
    /// is dropped.
    pub fn send(self, value: T) {
        drop(self.try_send(value));
    }

    /// Replies.
    ///
    /// # Errors
    /// Returns the value if the caller has gone.
    pub fn try_send(mut self, value: T) -> Result<(), T> {
        let answer = self.0.take().expect("a reply is used once");
        match answer.finish(Some(value)) {
            Finished::Told(waker) => {
                wake(waker);
                Ok(())
            }
            Finished::Late(value) => Err(value.expect("it comes back")),
        }
    }

    /// Returns `true` if the caller has gone, so that no reply is needed.
    pub fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(|answer| answer.is_gone())
    }
}

/// Wakes the caller. The waker is user code, and its panic must not reach the replier.
pub(crate) fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        drop(guarded(|| waker.wake()));
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(answer) = self.0.take()
            && let Finished::Told(waker) = answer.finish(None)
        {
            wake(waker);
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(..)")
    }
}
