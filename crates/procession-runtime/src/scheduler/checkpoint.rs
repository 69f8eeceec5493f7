//! Checkpoints: where a computation yields if somebody waits for its worker.
//! `scheduler/checks.rs` of the protocols says when it looks.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use crate::scheduler::budget;
use crate::scheduler::current::with_local;
use crate::scheduler::local::{CurrentStep, LocalWorker};
use crate::sys::World;

/// Yields if somebody waits for the worker, and is nearly free otherwise: about two nanoseconds.
/// Call it in long computations, in each round of a loop. Without it, a process that awaits nothing
/// keeps its worker until the watchdog puts another worker in its place, after 10 ms.
///
/// It yields if a timer is due, if a process that is ready was found in a queue at two looks in a
/// row, if no worker waits for descriptors, if the process is to be terminated, or if its worker
/// has lost its permit. It looks about every 100 us. If your calls become slower from one to the
/// next, the first look can be late by up to 5 ms, or come with the next call if that is later. On
/// a test clock, a call is an operation of the [budget](crate::scheduler) of 128 instead.
///
/// In a coroutine, call [`coroutine::checkpoint`](crate::coroutine::checkpoint) instead, which is a
/// plain function. Outside of processes, for example on a thread of a pool, this does nothing:
/// there, the system shares the processors.
///
/// ```
/// let sum = procession::run(async {
///     let mut sum = 0_u64;
///     for n in 0..1_000_000 {
///         sum += n;
///         procession::checkpoint().await;
///     }
///     sum
/// });
/// assert_eq!(sum, 499_999_500_000);
/// ```
///
/// # Cancellation
/// If the future is dropped, nothing is lost.
pub async fn checkpoint() {
    let mut has_yielded = false;
    poll_fn(|task| {
        if has_yielded || !is_due() {
            return Poll::Ready(());
        }
        has_yielded = true;
        budget::yield_step(task);
        Poll::Pending
    })
    .await;
}

/// Returns `true` if a checkpoint yields here.
#[inline]
pub(crate) fn is_due() -> bool {
    let spend = |step: &CurrentStep| {
        step.spend();
        step.budget.get() == 0
    };
    with_local(|local| local.is_some_and(|it| it.check_word.tick() && it.is_awaited(spend)))
}

/// Returns `true` if somebody waits for the worker of the running process, as
/// [`checkpoint`](crate::checkpoint()) finds out. This is for a state machine that runs a guest,
/// which it can interrupt. Always `false` on a test clock.
///
/// ```
/// assert!(!procession::machine::is_awaited(), "this is no process");
/// ```
#[inline]
pub fn is_awaited() -> bool {
    with_local(|local| local.is_some_and(|it| it.check_word.tick() && it.is_awaited(|_| false)))
}

/// Returns the processor time that the calling thread has used since its start, or `None` outside
/// of a scheduler, on a test clock, and on a system that does not report the time.
///
/// This is for a state machine that runs a guest: the difference between two calls in one step is
/// the time that the guest has computed, however long the thread has waited for a processor. A call
/// takes two system calls, so call it rarely.
///
/// ```
/// assert_eq!(procession::machine::processor_time(), None, "no scheduler runs here");
/// ```
pub fn processor_time() -> Option<Duration> {
    let nanoseconds = with_local(|local| {
        let world = &local?.shared.world;
        if world.is_test() { None } else { world.processor_time(World::thread_number()) }
    });
    nanoseconds.map(Duration::from_nanos)
}

impl LocalWorker {
    /// `Look` of `scheduler/checks.rs`. Returns `true` if the running process is to yield. While
    /// time stands still in a step, `without_time` decides.
    #[cold]
    fn is_awaited(&self, without_time: impl FnOnce(&CurrentStep) -> bool) -> bool {
        let shared = &*self.shared;
        let is_timeless = shared.world.is_test();
        #[cfg(feature = "sim")]
        let is_timeless = is_timeless || shared.world.simulated().is_some();
        if is_timeless {
            self.checks.look_again(&self.check_word);
            return self.step.is_any() && without_time(&self.step);
        }
        let now = shared.world.now();
        self.checks.look(&self.check_word, now);
        if !self.step.is_any() {
            return false;
        }
        let is_due = shared.next_deadline() <= now;
        let is_unpolled = shared.poller.kernel().is_some() && !shared.clock.driver.is_kept();
        if is_due || is_unpolled {
            // The queues are not all that waits, so the next dispatch serves.
            self.queues.rings.pace.serve_next();
        }
        let is_queued = shared.workforce.has_work();
        self.checks.still_waits(is_queued)
            || is_due
            || is_unpolled
            || self.step.is_ending()
            || shared.workforce.idle.is_revoked(self.seat)
    }
}
