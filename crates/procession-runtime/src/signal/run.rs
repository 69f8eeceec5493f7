//! The main function of a service.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, Write as _};
use std::pin::pin;
use std::process::{ExitCode, Termination};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::listener::SignalKind;
use super::request::end_request;
#[cfg(feature = "tracing")]
use crate::observe::trace;
use crate::observe::unfinished::Unfinished;
use crate::scheduler::health::state::HealthState;
use crate::scheduler::owner::Scheduler;
use crate::time::sleep_on;

/// Available with the crate feature `signal`.
impl Scheduler {
    /// Runs `future` on this thread until it is complete or the program is asked to end, and then
    /// ends the scheduler in order. This is the `main` of a service:
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::Scheduler;
    /// use procession::signal::Stopped;
    ///
    /// fn main() -> std::io::Result<Stopped<()>> {
    ///     Scheduler::global().run_until_signal(Duration::from_secs(10), async {
    ///         // Starts a supervisor, and waits for its end. Here, it has nothing to do.
    ///     })
    /// }
    /// ```
    ///
    /// 1. Polls `future` as [`block_on`](Self::block_on) does, until it completes or the first
    ///    SIGINT or SIGTERM arrives. From then on, the program is not
    ///    [ready](crate::scheduler::Health).
    /// 2. If a signal has arrived, continues to run for the [`delay`](ShutdownOptions::delay).
    ///    Default: none.
    /// 3. Drops `future`, so that a server in it accepts no more connections.
    /// 4. Calls [`shutdown`](Self::shutdown) with what is left of the deadline: processes may clean
    ///    up, and what was written reaches its files.
    ///
    /// `shutdown` is a deadline, or [`ShutdownOptions`]. It counts from the signal.
    ///
    /// With the crate feature `tracing`, an event of the level `INFO` says that the end begins, and
    /// another what was left when it was over.
    ///
    /// The second SIGINT or SIGTERM ends the program immediately, with the exit code 128 plus the
    /// number of the signal. No destructor runs then, and output in buffers is lost.
    ///
    /// The returned value is the exit of the program: return it from `main` (see [`Stopped`]). The
    /// attribute [`main`](macro@crate::main) does all this if it has the option `run_until_signal`.
    ///
    /// # After the drain
    /// Nothing of `future` runs after the signal. Code that must run after the last request, such
    /// as a flush or the close of a database, belongs behind what is drained, in the same process.
    /// The process of [`start`](crate::start()) is asked to end, and has until the deadline:
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    /// use procession::{Context, Scheduler, start};
    ///
    /// let is_flushed = Arc::new(AtomicBool::new(false));
    /// let flushes = Arc::clone(&is_flushed);
    /// let scheduler = Scheduler::builder().build().expect("the system has threads");
    /// let stopped = scheduler.run_until_signal(Duration::from_secs(10), async {
    ///     start(async move |mut cx: Context<()>| {
    ///         // Serves. An HTTP server is awaited here, and returns after its last answer.
    ///         while cx.recv().await.is_some() {}
    ///         flushes.store(true, Ordering::Relaxed);
    ///     })
    ///     .detach();
    /// })?;
    /// assert!(stopped.unfinished().is_empty() && is_flushed.load(Ordering::Relaxed));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// In a tree of supervisors, the first child is stopped after all others, so its clean-up is
    /// the place.
    ///
    /// # Errors
    /// - The system's error, if it has no descriptor or no thread left to listen to signals with.
    /// - [`InvalidInput`](io::ErrorKind::InvalidInput), if the delay is not shorter than the
    ///   deadline.
    ///
    /// If it returns an error, `future` is dropped, and the scheduler continues.
    ///
    /// # Blocking
    /// Like [`block_on`](Self::block_on).
    ///
    /// # Panics
    /// Panics if `future` panics, and where [`block_on`](Self::block_on) panics. The scheduler is
    /// not ended then.
    pub fn run_until_signal<F: Future>(
        &self,
        shutdown: impl Into<ShutdownOptions>,
        future: F,
    ) -> io::Result<Stopped<F::Output>> {
        let ShutdownOptions { deadline, delay } = shutdown.into();
        if !delay.is_zero() && delay >= deadline {
            let text = format!(
                "cannot run until a signal: a delay of {delay:?} leaves nothing of the deadline of {deadline:?}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let request = end_request()?;
        Ok(self.block_on(async {
            let mut ends = None;
            #[cfg(feature = "tracing")]
            let mut begun = None;
            let output = {
                let (mut future, mut asked) = (pin!(future), pin!(request.asked()));
                let mut output = poll_fn(|task| match future.as_mut().poll(task) {
                    Poll::Ready(output) => Poll::Ready(Some(output)),
                    Poll::Pending => asked.as_mut().poll(task).map(|_| None),
                })
                .await;
                HealthState::of(self.shared()).end();
                #[cfg(feature = "tracing")]
                if output.is_none()
                    && let Some(signal) = request.signal()
                {
                    begun = Some((signal, self.now()));
                    trace::end_begun(signal, deadline, delay, self.shared().alive());
                }
                if output.is_none() && !delay.is_zero() {
                    let now = self.now();
                    ends = Some(now + deadline);
                    let end = (now + delay).nanoseconds();
                    let mut sleep = pin!(sleep_on(Arc::clone(self.shared()), end));
                    output = poll_fn(|task| match future.as_mut().poll(task) {
                        Poll::Ready(output) => Poll::Ready(Some(output)),
                        Poll::Pending => sleep.as_mut().poll(task).map(|()| None),
                    })
                    .await;
                }
                if output.is_none() {
                    self.shared().interrupt();
                }
                output
            };
            let left = ends.map_or(deadline, |ends| ends.saturating_duration_since(self.now()));
            let unfinished = self.shutdown(left).await;
            #[cfg(feature = "tracing")]
            if let Some((signal, begun)) = begun {
                trace::end_over(signal, self.now() - begun, &unfinished);
            }
            Stopped { output, signal: request.signal(), unfinished }
        }))
    }
}

/// How [`Scheduler::run_until_signal`] ends a program. A [`Duration`] is a deadline without a
/// delay.
///
/// ```
/// use std::time::Duration;
/// use procession::Scheduler;
/// use procession::signal::{ShutdownOptions, Stopped};
///
/// fn main() -> std::io::Result<Stopped<()>> {
///     let shutdown = ShutdownOptions::within(Duration::from_secs(30));
///     let shutdown = shutdown.delay(Duration::from_secs(5));
///     Scheduler::global().run_until_signal(shutdown, async {
///         // Starts a supervisor, and waits for its end. Here, it has nothing to do.
///     })
/// }
/// ```
///
/// # Behind a load balancer
/// A load balancer sends requests until it has noticed that the program ends. If the listener is
/// closed before that, these requests fail. So the end has this order:
///
/// 1. The signal arrives. `GET /readyz` (`http::HealthChecks`) answers 503 from now on. The program
///    still serves all requests.
/// 2. The [`delay`](Self::delay) passes. The load balancer notices.
/// 3. The listener closes, and new connections are refused.
/// 4. The requests that have begun are answered, until the deadline.
///
/// A second signal ends the program immediately, in each of these steps.
///
/// Available with the crate feature `signal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ShutdownOptions {
    deadline: Duration,
    delay: Duration,
}

impl ShutdownOptions {
    /// Sets the time after which the program has ended, counted from the signal or from the end of
    /// the future. A program that something else ends by force, such as Kubernetes after
    /// `terminationGracePeriodSeconds` (30 s by default), needs a deadline a few seconds before
    /// that, because a program that is killed can neither report nor write anything.
    pub fn within(deadline: Duration) -> Self {
        Self { deadline, delay: Duration::ZERO }
    }

    /// Sets how long the program continues after the signal, while it is not
    /// [ready](crate::scheduler::Health). The deadline includes this time. Default: 0, for programs
    /// with clients that connect directly, and for development, because Ctrl-C should not take
    /// long.
    ///
    /// Behind a load balancer, use the time in which it surely notices: the period of its checks,
    /// times the number of failures that it waits for, plus a second. In Kubernetes, which takes an
    /// ending program out by itself, 5 s are usual.
    ///
    /// If the future completes during this time, the rest of this time is skipped.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }
}

impl From<Duration> for ShutdownOptions {
    fn from(deadline: Duration) -> Self {
        Self::within(deadline)
    }
}

/// The end of [`Scheduler::run_until_signal`].
///
/// As the result of `main`, it decides the exit code of the program:
///
/// | the end | exit code |
/// |---|---|
/// | the future completed first | the exit code of its output |
/// | a signal asked for an orderly end | 0, even if processes were [dropped](Unfinished::dropped) |
/// | something is lost ([`Unfinished::is_empty`] is `false`) | 1, unless the output already fails |
/// | the second signal | immediately 128 plus its number: 130 for SIGINT, 143 for SIGTERM |
///
/// What is lost, what a [`Stop`](crate::supervisor::Stop) of a child cut short, and where the
/// dropped processes were spawned, is printed on standard error.
///
/// Available with the crate feature `signal`.
#[derive(Debug)]
#[must_use = "return it from `main`, where it decides the exit code"]
pub struct Stopped<T> {
    output: Option<T>,
    signal: Option<SignalKind>,
    unfinished: Unfinished,
}

impl<T> Stopped<T> {
    /// Returns the output of the future, or `None` if it had not completed when a signal ended it.
    pub fn output(&self) -> Option<&T> {
        self.output.as_ref()
    }

    /// Returns the output of the future, or `None` if it had not completed when a signal ended it.
    pub fn into_output(self) -> Option<T> {
        self.output
    }

    /// Returns the first signal that asked the program to end, if one did. If the future completed
    /// before the signal, the signal came during the shutdown.
    pub fn signal(&self) -> Option<SignalKind> {
        self.signal
    }

    /// Returns what the shutdown could not finish by the deadline.
    pub fn unfinished(&self) -> &Unfinished {
        &self.unfinished
    }
}

impl<T> fmt::Display for Stopped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.signal {
            Some(signal) => write!(f, "stopped by {signal}")?,
            None => f.write_str("stopped")?,
        }
        let left = self.unfinished.to_string();
        if left.is_empty() { Ok(()) } else { write!(f, "\n{left}") }
    }
}

impl<T: Termination> Termination for Stopped<T> {
    fn report(self) -> ExitCode {
        let is_complete = self.unfinished.is_empty();
        let left = self.unfinished.to_string();
        if !left.is_empty() {
            // Ignored: if standard error is closed, the exit code must do.
            let _ = writeln!(io::stderr(), "{self}");
        }
        match self.output.map_or(ExitCode::SUCCESS, Termination::report) {
            ExitCode::SUCCESS if !is_complete => ExitCode::FAILURE,
            code => code,
        }
    }
}
