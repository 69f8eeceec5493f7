//! The waits for the end of processes.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use procession_protocols::scheduler::shutdown::mutation;
use procession_sync::atomic::Ordering::SeqCst;
use procession_sync::atomic::fence;

use crate::Pid;
use crate::process::unwind::drop_guarded;
use crate::process::wait_reason::Waiting;
use crate::process::waker::another;
use crate::scheduler::handle_error::MisplacedCall;
use crate::scheduler::reach::find;
use crate::scheduler::shared::Shared;
use crate::scheduler::{budget, current};
use crate::time::sleep_on;

impl Shared {
    /// Waits until no more than `left` processes are alive, or until `deadline`.
    pub(crate) async fn wait_for_ends(self: &Arc<Self>, left: u64, deadline: u64) {
        let mut sleep = std::pin::pin!(sleep_on(Arc::clone(self), deadline));
        let waiter = EndWaiter { shared: self, number: self.lifetime.number() };
        poll_fn(|task| {
            waiter.leave(left, task.waker());
            // `Leave` of the closing protocol.
            fence(SeqCst);
            if self.alive() <= left {
                Poll::Ready(())
            } else if mutation::is(mutation::BUILT, mutation::WITHOUT_DEADLINE) {
                Poll::Pending
            } else {
                sleep.as_mut().poll(task)
            }
        })
        .await;
    }

    /// Waits until no process is alive. `caller` is the process that calls, or for which the caller
    /// works.
    pub(crate) async fn wait_until_empty(
        self: &Arc<Self>,
        caller: Option<Pid>,
    ) -> Result<(), MisplacedCall> {
        let waiter = EndWaiter { shared: self, number: self.lifetime.number() };
        poll_fn(|task| {
            if !budget::charge(task) {
                return Poll::Pending;
            }
            if is_inside(self, caller) {
                return Poll::Ready(Err(MisplacedCall::InsideScheduler));
            }
            waiter.leave(0, task.waker());
            self.lifetime.closing.watch();
            if self.alive() == 0 {
                return Poll::Ready(Ok(()));
            }
            current::note_waiting_for_some(Waiting::PROCESS);
            Poll::Pending
        })
        .await
    }
}

/// Returns `true` if the calling code runs in a process of `shared`, or in a job for a process of
/// `shared` that has not ended. `caller` is the process or the process of the job, if it has
/// entered a `block_on`.
fn is_inside(shared: &Shared, caller: Option<Pid>) -> bool {
    let is_own = |pid: &Pid| pid.scheduler() == shared.id() && pid.node() == 0;
    let is_alive = |pid: Option<Pid>| pid.filter(is_own).and_then(find).is_some();
    is_alive(caller)
        || is_alive(current::on_behalf_of())
        || current::current().is_some_and(|slot| is_own(&slot.seen_pid()))
}

/// A wait for processes to end. Its drop removes the waker, which may hold the scheduler.
struct EndWaiter<'a> {
    shared: &'a Shared,
    number: u64,
}

impl EndWaiter<'_> {
    fn leave(&self, left: u64, waker: &Waker) {
        // The wakers are cloned and dropped outside of the lock: both are the user's code.
        let new = another(waker);
        drop_guarded(self.shared.lifetime.leave(self.number, left, new));
    }
}

impl Drop for EndWaiter<'_> {
    fn drop(&mut self) {
        drop_guarded(self.shared.lifetime.forget(self.number));
    }
}
