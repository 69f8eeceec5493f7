//! HTTP by way of [hyper](https://docs.rs/hyper): its runtime traits (feature `hyper`), and a server for tower services (feature `serve`).
//!
//! [`TcpStream`](crate::net::TcpStream) and [`UnixStream`](crate::net::UnixStream) have hyper's I/O traits; [`Executor`] and [`Timer`] are the other
//! two things that hyper asks of a runtime.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use crate::sys::World;
use crate::time::{Instant, Sleep, sleep, sleep_until};

#[cfg(feature = "serve")]
mod server;
#[cfg(feature = "serve")]
pub use server::{Listener, serve};

/// Runs hyper's futures as processes of the scheduler of the thread that hands them over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// If the scheduler takes no more processes, the future is dropped, and whoever waits for it is told so by its channel.
    fn execute(&self, future: F) {
        drop(crate::spawn(future));
    }
}

/// Time for hyper, on the clock of the scheduler that asks: on the test clock hyper's timeouts are in test time, too.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

/// A sleep of hyper's.
struct HyperSleep(Sleep);

impl Future for HyperSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(task)
    }
}

impl hyper::rt::Sleep for HyperSleep {}

fn from_std(deadline: StdInstant) -> Instant {
    Instant::from_nanoseconds(World::from_std(deadline))
}

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(sleep(duration)))
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(HyperSleep(sleep_until(from_std(deadline))))
    }

    fn now(&self) -> StdInstant {
        World::to_std(Instant::now().nanoseconds())
    }

    /// To later, as for each request, this is one store.
    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(mut sleep) => Pin::new(&mut sleep.0).reset(from_std(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
