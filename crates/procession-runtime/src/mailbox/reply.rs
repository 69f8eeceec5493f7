//! The right to reply to a call.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use procession_protocols::mailbox::answer::{Answer, Finished, NoReply};

use crate::process::unwind::guarded;

/// The right to reply to a call once, from any process or thread, at any time.
///
/// If a `Reply` is dropped, the caller learns that there is no reply. The call therefore also ends
/// if the process ends.
///
/// ```
/// use std::time::Duration;
/// use procession::{Context, Reply, sleep, spawn, start};
///
/// procession::run(async {
///     // The process hands the right to another process, and is free for the next call.
///     let slow = start(|mut cx: Context<(u32, Reply<u32>)>| async move {
///         while let Some((number, reply)) = cx.recv().await {
///             spawn(async move {
///                 sleep(Duration::from_millis(1)).await;
///                 reply.send(number * number);
///             });
///         }
///     });
///     let square = slow.call(|reply| (7, reply), Duration::from_secs(5));
///     assert_eq!(square.await?, 49);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reply<T>(pub(crate) Option<Arc<Answer<T>>>);

impl<T> Reply<T> {
    /// Creates a right to reply without a caller: a function gets the reply, or `None` if the right
    /// is dropped.
    ///
    /// It is for replies that leave the program, as `procession-cluster` carries them. The function
    /// runs in [`send`](Self::send), on the thread of the replier, and must not block. If the
    /// function panics, the panic is caught there.
    ///
    /// ```
    /// use procession::Reply;
    /// use std::sync::mpsc::channel;
    ///
    /// let (sender, receiver) = channel();
    /// let reply = Reply::from_fn(move |value: Option<u32>| drop(sender.send(value)));
    /// reply.send(7);
    /// assert_eq!(receiver.recv(), Ok(Some(7)));
    /// ```
    pub fn from_fn(function: impl FnOnce(Option<T>) + Send + 'static) -> Self
    where
        T: 'static,
    {
        Self(Some(Arc::new(Answer::forwarded(Box::new(function)))))
    }

    /// Creates a second right to the same reply. The first reply counts. The caller learns that
    /// there is no reply if both rights were dropped, or if one right is
    /// [disconnected](Self::disconnected).
    ///
    /// It is for a message that is written for another node and then dropped here: the second right
    /// waits for the reply of that node. Returns `None` if the caller has gone, if there are two
    /// rights already, or if one right was used.
    pub fn share(&self) -> Option<Self> {
        let answer = self.0.as_ref()?;
        answer.share().then(|| Self(Some(Arc::clone(answer))))
    }

    /// Notifies the caller that the connection to the process has ended, so that there is no reply:
    /// [`CallError::NoConnection`](crate::CallError::NoConnection).
    pub fn disconnected(mut self) {
        if let Some(answer) = self.0.take() {
            drop(settle(&answer, Err(NoReply::NoConnection)));
        }
    }

    /// Replies. The value is dropped if the caller has gone, for example because its timeout is
    /// over.
    pub fn send(self, value: T) {
        drop(self.try_send(value));
    }

    /// Replies. A reply to another node is handed to its connection, so this does not notice that a
    /// caller there has gone.
    ///
    /// # Errors
    /// Returns the value if the caller has gone.
    pub fn try_send(mut self, value: T) -> Result<(), T> {
        let answer = self.0.take().expect("a reply is used once");
        settle(&answer, Ok(value)).map_err(|value| value.expect("it comes back"))
    }

    /// Returns `true` if the caller has gone, so that no reply is needed.
    pub fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(|answer| answer.is_gone())
    }
}

/// Ends the call. Returns the value if the caller has gone.
#[inline]
fn settle<T>(answer: &Answer<T>, value: Result<T, NoReply>) -> Result<(), Option<T>> {
    match answer.finish(value) {
        Finished::Told(waker) => {
            wake(waker);
            Ok(())
        }
        Finished::Late(value) => Err(value),
        Finished::Forward(function, value) => {
            // Its panic must not reach the replier.
            drop(guarded(|| function(value)));
            Ok(())
        }
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
        if let Some(answer) = self.0.take() {
            drop(settle(&answer, Err(NoReply::Dropped)));
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply(..)")
    }
}
