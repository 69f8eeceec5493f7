//! What hyper needs of a runtime: an executor and timers.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use procession_runtime::inner::{instant_from_std, instant_to_std};
use procession_runtime::time::{Instant, Sleep, sleep, sleep_until};
use procession_runtime::{OnCancel, SpawnOptions};

/// Runs the futures of hyper as processes.
///
/// A future is spawned on the scheduler of the calling process or thread. A cancel asks the future
/// to end, and does not drop it ([`OnCancel::Ask`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Spawns `future`. If the scheduler takes no more processes, `future` is dropped. A caller
    /// that waits for the result learns of that, because the channel inside the future is also
    /// dropped.
    fn execute(&self, future: F) {
        // A cancel asks the future to end, and does not drop it, because hyper ends its own tasks
        // when their connections end. A client keeps connections without a request, and a server
        // itself counts the requests that it loses.
        drop(SpawnOptions::new().on_cancel(OnCancel::Ask).expendable().spawn(future));
    }
}

/// Time for hyper, on the clock of the scheduler of the calling process or thread. On the test
/// clock, the timeouts of hyper are also in test time.
///
/// ```
/// use std::time::Duration;
/// use hyper::rt::Timer as _;
/// use procession::http::Timer;
///
/// procession::run(async {
///     let begin = Timer.now();
///     Timer.sleep(Duration::from_millis(5)).await;
///     assert!(Timer.now() - begin >= Duration::from_millis(5));
/// });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

/// The future of [`Timer::sleep`](hyper::rt::Timer::sleep).
struct HyperSleep(Sleep);

impl Future for HyperSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(task)
    }
}

impl hyper::rt::Sleep for HyperSleep {}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(sleep(duration)))
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(sleep_until(instant_from_std(deadline))))
    }

    fn now(&self) -> StdInstant {
        instant_to_std(Instant::now())
    }

    /// Moves the deadline of `sleep`. To a later deadline, as for each request, this is a single
    /// store.
    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(mut sleep) => Pin::new(&mut sleep.0).reset(instant_from_std(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
