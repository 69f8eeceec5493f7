//! The main function of a service.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, Write as _};
use std::pin::pin;
use std::process::{ExitCode, Termination};
use std::task::Poll;
use std::time::Duration;

use super::listener::SignalKind;
use super::request::end_request;
use crate::observe::unfinished::Unfinished;
use crate::scheduler::owner::Scheduler;

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
    ///    SIGINT or SIGTERM comes.
    /// 2. Drops `future`, so that a server in it accepts no more connections.
    /// 3. Calls [`shutdown`](Self::shutdown) with `deadline`: processes may clean up, and what was
    ///    written reaches its files.
    ///
    /// The second SIGINT or SIGTERM ends the program at once, with the exit code 128 plus the
    /// number of the signal. No destructor runs then, and output in buffers is lost.
    ///
    /// What comes back is the exit of the program: return it from `main` (see [`Stopped`]).
    ///
    /// # Errors
    /// The system's error, if it has no descriptor or no thread left to listen to signals with.
    /// `future` is dropped then, and the scheduler goes on.
    ///
    /// # Blocking
    /// Like [`block_on`](Self::block_on).
    ///
    /// # Panics
    /// Panics if `future` panics, and where [`block_on`](Self::block_on) panics. The scheduler is
    /// not ended then.
    pub fn run_until_signal<F: Future>(
        &self,
        deadline: Duration,
        future: F,
    ) -> io::Result<Stopped<F::Output>> {
        let request = end_request()?;
        Ok(self.block_on(async {
            let output = {
                let (mut future, mut asked) = (pin!(future), pin!(request.asked()));
                poll_fn(|task| match future.as_mut().poll(task) {
                    Poll::Ready(output) => Poll::Ready(Some(output)),
                    Poll::Pending => asked.as_mut().poll(task).map(|_| None),
                })
                .await
            };
            let unfinished = self.shutdown(deadline).await;
            Stopped { output, signal: request.signal(), unfinished }
        }))
    }
}

/// The end of [`Scheduler::run_until_signal`].
///
/// As the result of `main`, it decides the exit code of the program:
///
/// | the end | exit code |
/// |---|---|
/// | the future completed first | that of its output |
/// | a signal asked for an orderly end | 0 |
/// | something is lost ([`Unfinished::is_empty`] is `false`) | 1, unless the output already fails |
/// | the second signal | 128 plus the number of the signal, at once: 130 for SIGINT, 143 for SIGTERM |
///
/// What is lost, and what a [`Stop`](crate::supervisor::Stop) of a child cut short, is printed on
/// standard error.
#[derive(Debug)]
#[must_use = "return it from `main`, where it decides the exit code"]
pub struct Stopped<T> {
    output: Option<T>,
    signal: Option<SignalKind>,
    unfinished: Unfinished,
}

impl<T> Stopped<T> {
    /// Returns the output of the future, or `None` if a signal came first.
    pub fn output(&self) -> Option<&T> {
        self.output.as_ref()
    }

    /// Returns the output of the future, or `None` if a signal came first.
    pub fn into_output(self) -> Option<T> {
        self.output
    }

    /// Returns the first signal that asked the program to end, if one did. If the future completed
    /// first, the signal came during the shutdown.
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
