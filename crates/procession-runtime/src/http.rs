//! HTTP with [hyper](https://docs.rs/hyper).
//!
//! The feature `hyper` adds what hyper needs from a runtime: [`Executor`], [`Timer`], and hyper's
//! I/O traits for [`TcpStream`](crate::net::TcpStream) and [`UnixStream`](crate::net::UnixStream).
//! The feature `serve` adds [`Server`], which serves tower services such as an axum `Router`.
//! The feature `client` adds [`Connector`], with which the client of hyper-util runs on processes.

#[cfg(feature = "client")]
mod client;
#[cfg(any(feature = "serve", feature = "client"))]
mod error;
#[cfg(feature = "serve")]
mod health;
#[cfg(feature = "serve")]
mod server;
#[cfg(feature = "tls")]
mod tls;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as StdInstant};

use crate::sys::World;
use crate::time::{Instant, Sleep, sleep, sleep_until};
use crate::{OnCancel, SpawnOptions};

#[cfg(feature = "client")]
pub use client::{Connected, Connector};
#[cfg(any(feature = "serve", feature = "client"))]
pub use error::Error;
#[cfg(feature = "serve")]
pub use health::{HealthBody, HealthChecks, HealthFuture, NotFound};
#[cfg(feature = "serve")]
pub use server::{Listener, Peer, RequestBody, Server, serve, serve_connection};

/// Runs the futures of hyper as processes.
///
/// A future is spawned on the scheduler of the calling process or thread. A cancel asks it and does
/// not drop it ([`OnCancel::Ask`]).
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// Spawns `future`. If the scheduler takes no more processes, `future` is dropped. Callers that
    /// wait for its result learn of that from the channel that it drops.
    fn execute(&self, future: F) {
        // Asked, not dropped: hyper ends its own tasks when their connections end. A client keeps
        // connections without a request, and a server counts the requests that it loses itself.
        drop(SpawnOptions::new().on_cancel(OnCancel::Ask).expendable().spawn(future));
    }
}

/// Time for hyper, on the clock of the scheduler of the calling process or thread. On the test
/// clock, the timeouts of hyper are in test time, too.
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
        World::to_std(Instant::now().nanoseconds()).expect("std's type has room for 584 years")
    }

    /// Moves the deadline of `sleep`. To a later deadline, as for each request, this is a single
    /// store.
    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<HyperSleep>() {
            Some(mut sleep) => Pin::new(&mut sleep.0).reset(from_std(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
