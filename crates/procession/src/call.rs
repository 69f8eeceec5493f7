//! Calls: a message that carries the right to one reply.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use procession_sync::Mutex;

use crate::body::guarded;
use crate::context::{Address, SendError};
use crate::time::timeout;
use crate::{Waiting, here};

struct Cell<T> {
    state: Mutex<State<T>>,
}

enum State<T> {
    /// Nothing yet; the caller's waker once it waits.
    Waits(Option<Waker>),
    Replied(T),
    /// The reply was dropped.
    Dropped,
    /// The caller has gone.
    Gone,
}

impl<T> Cell<T> {
    /// Ends the waiting, and wakes the caller; says what the state was if nobody waits any more.
    fn finish(&self, end: State<T>) -> Option<State<T>> {
        let mut state = self.state.lock().expect("nothing that can panic runs under this lock");
        let State::Waits(waker) = &mut *state else {
            return Some(end);
        };
        let waker = waker.take();
        *state = end;
        drop(state);
        // Outside the lock, and guarded: waking is the caller's code, and must not harm who replies.
        if let Some(waker) = waker {
            drop(guarded(|| waker.wake()));
        }
        None
    }
}

/// The right to reply to a call, once. Dropping it tells the caller that there is no reply.
pub struct Reply<T>(Option<Arc<Cell<T>>>);

impl<T> Reply<T> {
    /// Replies. If the caller has gone (its time was over, or it was dropped), the value is dropped: the caller has been told so.
    pub fn send(self, value: T) {
        // Ignored: see above.
        drop(self.try_send(value));
    }

    /// Replies.
    ///
    /// # Errors
    /// The value, if the caller has gone.
    pub fn try_send(mut self, value: T) -> Result<(), T> {
        let cell = self.0.take().expect("a reply is used once");
        match cell.finish(State::Replied(value)) {
            Some(State::Replied(value)) => Err(value),
            _ => Ok(()),
        }
    }

    /// Whether the caller has gone, so that the reply need not be worked out.
    pub fn is_abandoned(&self) -> bool {
        let state = self.0.as_ref().map(|cell| cell.state.lock().expect("nothing that can panic runs under this lock"));
        matches!(state.as_deref(), Some(State::Gone))
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            cell.finish(State::Dropped);
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(..)")
    }
}

/// Why a call gave no reply.
#[non_exhaustive]
pub enum CallError<M> {
    /// The message was refused; it is in the error, and the reply in it will never be used.
    Refused(SendError<M>),
    /// The process dropped the reply, or ended before it replied.
    NoReply,
    /// No reply came in time.
    Elapsed,
}

impl<M> CallError<M> {
    /// Whether the message was refused.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Refused(_))
    }

    /// Whether the process dropped the reply, or ended before it replied.
    pub fn is_no_reply(&self) -> bool {
        matches!(self, Self::NoReply)
    }

    /// Whether no reply came in time.
    pub fn is_elapsed(&self) -> bool {
        matches!(self, Self::Elapsed)
    }
}

impl<M> fmt::Debug for CallError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => f.debug_tuple("Refused").field(error).finish(),
            Self::NoReply => f.write_str("NoReply"),
            Self::Elapsed => f.write_str("Elapsed"),
        }
    }
}

impl<M> fmt::Display for CallError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_) => f.write_str("cannot call: the message was refused"),
            Self::NoReply => f.write_str("the process gave no reply"),
            Self::Elapsed => f.write_str("no reply came in time"),
        }
    }
}

impl<M: 'static> Error for CallError<M> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            _ => None,
        }
    }
}

/// The caller's side; marks the call as given up when it goes.
struct Caller<T>(Arc<Cell<T>>);

impl<T> Drop for Caller<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock().expect("nothing that can panic runs under this lock");
        let left = std::mem::replace(&mut *state, State::Gone);
        drop(state);
        // Outside the lock: a reply that came too late is the user's.
        drop(left);
    }
}

/// Sends a message with a reply in it, and waits for the reply.
pub(crate) async fn call<M: Send + 'static, T>(
    address: &Address<M>,
    message: impl FnOnce(Reply<T>) -> M,
    patience: Duration,
) -> Result<T, CallError<M>> {
    let caller = Caller(Arc::new(Cell { state: Mutex::new(State::Waits(None)) }));
    let message = message(Reply(Some(Arc::clone(&caller.0))));
    let replied = async {
        address.send_wait(message).await.map_err(CallError::Refused)?;
        caller.replied().await.ok_or(CallError::NoReply)
    };
    timeout(patience, replied).await.unwrap_or(Err(CallError::Elapsed))
}

impl<T> Caller<T> {
    /// The reply; `None` if it was dropped.
    async fn replied(&self) -> Option<T> {
        poll_fn(|task| {
            if !here::charge(task) {
                return Poll::Pending;
            }
            let new = task.waker().clone();
            let mut state = self.0.state.lock().expect("nothing that can panic runs under this lock");
            if let State::Waits(waker) = &mut *state {
                let old = waker.replace(new);
                drop(state);
                drop(old);
                here::note_waiting(Waiting::REPLY);
                return Poll::Pending;
            }
            let end = std::mem::replace(&mut *state, State::Gone);
            drop(state);
            Poll::Ready(match end {
                State::Replied(value) => Some(value),
                _ => None,
            })
        })
        .await
    }
}
