//! Waits for the cancel of the running process, without its context.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::Pid;
use crate::mailbox::context::poll_cancelled;
use crate::scheduler::{budget, current};

/// Returns `true` if the running process was asked to end.
fn is_cancelled() -> bool {
    current::current().is_some_and(|slot| slot.state.see().may_end_itself())
}

/// Waits until the running process is asked to end. Several waits of one process all complete.
///
/// It never completes
/// - in a process that a cancel [drops](crate::OnCancel::Drop), which is the default for
///   [`spawn`](crate::spawn()), because the future is gone then,
/// - in a process that is terminated,
/// - outside of processes, as in [`Scheduler::block_on`](crate::Scheduler::block_on).
///
/// In a coroutine, call `cancelled().wait()`.
///
/// ```
/// use procession::process::cancelled;
/// use procession::{Context, start};
///
/// async fn serve() -> &'static str {
///     cancelled().await;
///     "stopped in order"
/// }
///
/// procession::run(async {
///     let server = start(|_: Context<()>| serve());
///     server.cancel();
///     assert_eq!(server.await, Ok("stopped in order"));
/// });
/// ```
///
/// # Panics
/// Panics if it has to wait in another process than the process in which it was first polled.
#[track_caller]
pub fn cancelled() -> impl Future<Output = ()> {
    crate::scheduler::placed::placed(async move {
        let mut own: Option<Pid> = None;
        budget::in_turn(|task| {
            let Some(slot) = current::current() else { return Poll::Pending };
            let pid = slot.seen_pid();
            assert_eq!(*own.get_or_insert(pid), pid, "a process waits for its own cancel only");
            poll_cancelled(&slot, task)
        })
        .await;
    })
}

/// Runs `future` until the running process is asked to end. Returns its output, or `None` if the
/// process is cancelled first.
///
/// The cancel is checked before each poll of `future`. If the process was asked to end already,
/// `future` is not polled at all, even if it is ready.
///
/// In a process that a cancel [drops](crate::OnCancel::Drop) and outside of processes, it never
/// returns `None`.
///
/// ```
/// use std::time::Duration;
/// use procession::process::until_cancelled;
/// use procession::{Context, sleep, start};
///
/// procession::run(async {
///     let ticker = start(|_: Context<()>| async {
///         let mut ticks = 0;
///         while until_cancelled(sleep(Duration::from_micros(50))).await.is_some() {
///             ticks += 1;
///         }
///         ticks
///     });
///     sleep(Duration::from_millis(1)).await;
///     ticker.cancel();
///     assert!(ticker.await.is_ok());
/// });
/// ```
///
/// # Cancellation
/// If it returns `None`, `future` is dropped before.
///
/// # Panics
/// Panics as [`cancelled`] and `future` do.
#[track_caller]
pub fn until_cancelled<F: IntoFuture>(future: F) -> impl Future<Output = Option<F::Output>> {
    let future = future.into_future();
    crate::scheduler::placed::placed(async move {
        let mut future = pin!(future);
        let mut cancelled = pin!(cancelled());
        poll_fn(|task| match cancelled.as_mut().poll(task) {
            Poll::Ready(()) => Poll::Ready(None),
            // The budget of the step is spent, and the next step polls again.
            Poll::Pending if is_cancelled() => Poll::Pending,
            Poll::Pending => future.as_mut().poll(task).map(Some),
        })
        .await
    })
}
