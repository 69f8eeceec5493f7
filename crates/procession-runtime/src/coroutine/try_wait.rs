//! Waits that return where others unwind.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

use procession_coroutine::UNWINDINGS;

use crate::coroutine::wait;
use crate::scheduler::frame::{Frame, Out, Resume, suspendable};

/// The coroutine was asked to end, and may not wait. The error of [`try_wait`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Interrupted {
    /// The coroutine was cancelled.
    Cancelled,
    /// The coroutine was terminated.
    Terminated,
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cancelled => "the coroutine was cancelled and cannot wait",
            Self::Terminated => "the coroutine was terminated and cannot wait",
        })
    }
}

impl std::error::Error for Interrupted {}

/// Waits for a future, as [`wait`] does, but never unwinds: if the coroutine is asked to end, the
/// wait returns an error. Use this below frames that cannot be unwound, for example frames of C.
///
/// ```
/// use procession::{Exit, SpawnOptions, coroutine};
///
/// # // SAFETY: the coroutine keeps the residual rule.
/// let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// let options = SpawnOptions::new().on(&scheduler);
/// let waits = options.try_start_coroutine(|_: coroutine::Context<()>| {
///     coroutine::try_wait(std::future::pending::<()>())
/// })?;
/// waits.cancel();
/// assert_eq!(waits.join(), Ok(Err(coroutine::Interrupted::Cancelled)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// Blocks the thread where a coroutine [cannot be
/// suspended](super#where-a-coroutine-cannot-be-suspended), and outside of coroutines. There, it
/// always returns the output of the future.
///
/// # Cancellation
/// The error drops the future. The caller must then return to the frames that can be unwound, or
/// return from the coroutine: each later wait is refused as well. After a hundred refusals the
/// coroutine counts as stuck. It is never resumed, its stack is leaked, and its process ends with
/// [`Exit::Killed`](crate::Exit::Killed). [`Snapshot::stuck_coroutines`] lists it.
///
/// A coroutine that is terminated while it waits here continues, and keeps its worker, until it
/// returns or waits again. Its process ends with [`Exit::Killed`](crate::Exit::Killed), whatever it
/// returns.
///
/// [`Snapshot::stuck_coroutines`]: crate::snapshot::Snapshot::stuck_coroutines
///
/// # Panics
/// Panics if the future panics, and like [`wait`] where it blocks.
pub fn try_wait<F: Future>(future: F) -> Result<F::Output, Interrupted> {
    match suspendable() {
        Some(frame) => frame.try_wait(pin!(future)),
        None => Ok(wait(future)),
    }
}

impl Frame {
    /// Waits as [`wait`](Self::wait) does, but returns where that unwinds.
    pub(super) fn try_wait<F: Future + ?Sized>(
        &self,
        mut future: Pin<&mut F>,
    ) -> Result<F::Output, Interrupted> {
        let mut is_late = false;
        loop {
            if let Poll::Ready(output) = self.poll(future.as_mut()) {
                return Ok(output);
            }
            if let Some(refusal) = self.wait_refusal() {
                match self.poll_last(future.as_mut(), is_late) {
                    Some(Poll::Ready(output)) => return Ok(output),
                    Some(Poll::Pending) => return Err(self.refuse(refusal)),
                    None => is_late = true,
                }
            }
            if self.suspend(Out::TryWaits) == Resume::End {
                self.ends.set(true);
            }
        }
    }

    /// Waits until the future is ready or the coroutine is terminated. A cancel does not end the
    /// wait. If a terminate ends the wait, this counts as no refusal: the caller waits on in
    /// another way.
    pub(super) fn wait_unless_terminated<F: Future + ?Sized>(&self, mut future: Pin<&mut F>) {
        while self.poll(future.as_mut()).is_pending() && !self.ends.get() {
            if self.suspend(Out::TryWaits) == Resume::End {
                self.ends.set(true);
            }
        }
    }

    fn wait_refusal(&self) -> Option<Interrupted> {
        if self.ends.get() {
            return Some(Interrupted::Terminated);
        }
        let state = &self.slot().state;
        // A terminated coroutine is suspended, and its worker resumes it for its end.
        let is_cancelled = state.is_cancelled() && !state.see().is_terminated();
        (is_cancelled && self.shields.get() == 0).then_some(Interrupted::Cancelled)
    }

    /// Counts a wait that is refused. Does not return after more than `UNWINDINGS` refusals.
    #[cold]
    fn refuse(&self, refusal: Interrupted) -> Interrupted {
        let refused = self.refused.get() + 1;
        self.refused.set(refused);
        if refused > UNWINDINGS {
            self.suspend(Out::Abandoned);
            // Nothing resumes it, and its stack is not valid for anything else.
            std::process::abort();
        }
        refusal
    }
}
