//! Tokens that carry a cancel to code that may stop.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use procession_protocols::sync::token_tree::TokenNode;

use crate::process::served::WakeServed;
use crate::scheduler::budget::in_turn;
use crate::scheduler::listener::BellListener;

/// A token that asks its holders to stop.
///
/// Clones are the same token. A [child](Self::child_token) is cancelled with its parent, and can be
/// cancelled alone. Use tokens for parts of a program that are not exactly one process. For
/// example, a request, a connection, or work that several processes or threads do. To stop a
/// process, cancel the process ([`OnCancel`](crate::OnCancel)).
///
/// ```
/// use procession::spawn;
/// use procession::sync::CancellationToken;
///
/// procession::run(async {
///     let server = CancellationToken::new();
///     let request = server.child_token();
///     let work = spawn({
///         let request = request.clone();
///         async move { request.run_until_cancelled(std::future::pending::<()>()).await }
///     });
///     server.cancel();
///     assert!(request.is_cancelled());
///     assert_eq!(work.await, Ok(None));
/// });
/// ```
#[derive(Clone)]
pub struct CancellationToken(Arc<TokenNode>);

impl CancellationToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self(Arc::new(TokenNode::new(None, false)))
    }

    /// Creates a token that is cancelled when this token is cancelled. A cancel of the child does
    /// not reach this token. The child of a cancelled token is cancelled.
    pub fn child_token(&self) -> Self {
        Self(self.0.child())
    }

    /// Cancels the token and its descendants, and wakes all waiters. When it returns, all
    /// descendants are cancelled. To cancel a token again has no effect.
    pub fn cancel(&self) {
        crate::scheduler::budget::spend();
        for woken in self.0.cancel() {
            woken.wake();
        }
    }

    /// Returns `true` if the token is cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the token is cancelled. Completes immediately if it is cancelled already.
    ///
    /// # Cancellation
    /// If the future is dropped, the wait ends without an effect.
    #[track_caller]
    pub fn cancelled(&self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            let mut listener = BellListener::new(&self.0.bell);
            in_turn(|task| {
                if self.0.is_cancelled()
                    || !listener.listens() && !listener.listen(task, TokenNode::waits)
                {
                    return Poll::Ready(());
                }
                listener.poll(task)
            })
            .await;
        })
    }

    /// Waits like [`cancelled`](Self::cancelled), in a future that owns the token.
    #[track_caller]
    pub fn cancelled_owned(self) -> impl Future<Output = ()> {
        crate::scheduler::placed::placed(async move {
            self.cancelled().await;
        })
    }

    /// Runs `future` until the token is cancelled. Returns its output, or `None` if the token is
    /// cancelled first.
    ///
    /// The token is checked before each poll of `future`. If it is cancelled already, `future` is
    /// not polled at all, even if it is ready.
    ///
    /// # Cancellation
    /// `future` is dropped, wherever it waits, if the token is cancelled first or if this future is
    /// dropped. So `future` must allow a cancel wherever it waits. The token stays as it is.
    #[track_caller]
    pub fn run_until_cancelled<F: IntoFuture>(
        &self,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> {
        let future = future.into_future();
        crate::scheduler::placed::placed(async move {
            let mut future = pin!(future);
            let mut cancelled = pin!(self.cancelled());
            poll_fn(|task| match cancelled.as_mut().poll(task) {
                Poll::Ready(()) => Poll::Ready(None),
                // The budget of the step is spent, and the next step polls again.
                Poll::Pending if self.is_cancelled() => Poll::Pending,
                Poll::Pending => future.as_mut().poll(task).map(Some),
            })
            .await
        })
    }

    /// Runs `future` like [`run_until_cancelled`](Self::run_until_cancelled), in a future that owns
    /// the token.
    ///
    /// # Cancellation
    /// See [`run_until_cancelled`](Self::run_until_cancelled).
    #[track_caller]
    pub fn run_until_cancelled_owned<F: IntoFuture>(
        self,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> {
        let future = future.into_future();
        crate::scheduler::placed::placed(async move { self.run_until_cancelled(future).await })
    }

    /// Returns a guard that cancels the token when it is dropped.
    pub fn drop_guard(self) -> DropGuard {
        DropGuard(Some(self))
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        Self::new()
    }
}

impl PartialEq for CancellationToken {
    /// Returns `true` for clones of one token.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CancellationToken {}

impl Hash for CancellationToken {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Cancels a [`CancellationToken`] when it is dropped. See [`CancellationToken::drop_guard`].
#[derive(Debug)]
#[must_use = "a guard that is dropped cancels its token"]
pub struct DropGuard(Option<CancellationToken>);

impl DropGuard {
    /// Returns the token. It is then not cancelled by this guard.
    pub fn disarm(mut self) -> CancellationToken {
        self.0.take().expect("a guard has its token until it is dropped")
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(token) = self.0.take() {
            token.cancel();
        }
    }
}
