//! Requests to a process of a running scheduler: to show itself, and to stand still.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::process::request::{Inspection, ProcessRequest};
use crate::process::slot::{Slot, SlotRef};
use crate::process::unwind::drop_each;
use crate::process::wake;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::sync::oneshot;
use crate::sys::nanoseconds;
use crate::time;
use crate::time::action::Action;
use crate::{Pid, Scheduler};

/// The time after which a process that has not answered counts as unable to answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// The default length of a suspension.
pub(crate) const SUSPENSION: Duration = Duration::from_secs(5);
/// The maximum length of a suspension.
const SUSPENSION_MAX: Duration = Duration::from_secs(60);

/// The error of a request to a process.
///
/// Available with the crate feature `look`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AskError {
    /// The process has ended, or does not belong to the scheduler.
    Ended,
    /// The process was cancelled or terminated. It is not suspended, because it must be able to
    /// end.
    Ending,
    /// The process did not answer in time: it runs one long step, or waits for its turn.
    TimedOut,
    /// The process asked about itself, and cannot answer before its step is over.
    Itself,
    /// The process shows nothing: its state machine has no
    /// [`Process::inspect`](crate::machine::Process::inspect), or no closure of
    /// [`Context::inspect_with`](crate::Context::inspect_with) is there.
    ShowsNothing,
    /// The code that shows the process panicked, with this text.
    Panicked(String),
    /// The process is a state machine, which has no stack between its steps.
    NoStack,
    /// The maximum number of requests waits for the process, or another stack is being taken.
    Busy,
    /// The scheduler has no timer left for the end of the suspension.
    NoTimer,
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the process has ended, or is not of this scheduler"),
            Self::Ending => f.write_str("the process was told to end, and is not suspended"),
            Self::TimedOut => f.write_str("the process did not answer in time"),
            Self::Itself => f.write_str("the process cannot answer itself in its own step"),
            Self::ShowsNothing => f.write_str("the process shows nothing of itself"),
            Self::Panicked(text) => write!(f, "the process could not show itself: {text}"),
            Self::NoStack => f.write_str("a state machine has no stack between its steps"),
            Self::Busy => f.write_str("too many other requests are being served"),
            Self::NoTimer => f.write_str("the scheduler has no timer left for the suspension"),
        }
    }
}

impl Error for AskError {}

/// Available with the crate feature `look`.
impl Scheduler {
    /// Asks a process what it shows of itself:
    /// [`Process::inspect`](crate::machine::Process::inspect) of a state machine, or the closures
    /// of [`Context::inspect_with`](crate::Context::inspect_with).
    ///
    /// The process answers between two steps, ahead of its messages. A process that waits is woken
    /// to answer.
    ///
    /// # Errors
    /// [`AskError`]. A process that does not answer within a second, by the clock of the caller's
    /// scheduler, is given up: it may run one long step.
    ///
    /// # Cancellation
    /// If the future is dropped, the process answers into the void.
    pub async fn inspect(&self, pid: Pid) -> Result<Inspection, AskError> {
        inspect(self.shared(), pid).await
    }

    /// Suspends a process for 5 s. See [`suspend_for`](Self::suspend_for).
    ///
    /// # Errors
    /// The errors of [`suspend_for`](Self::suspend_for).
    pub fn suspend(&self, pid: Pid) -> Result<(), AskError> {
        self.suspend_for(pid, SUSPENSION)
    }

    /// Suspends a process for a time, of at most 60 s. A longer time counts as 60 s.
    ///
    /// The process stands still after its present step, until the time is over by the clock of its
    /// scheduler, [`resume`](Self::resume) is called, or the process is cancelled or terminated. A
    /// process that was cancelled before is not suspended, so that it ends. The
    /// mailbox still takes messages, and its timers and wakers still fire; it sees them afterwards.
    /// Looks show it as [`Ready`](crate::snapshot::ProcessState::Ready), and
    /// [`ProcessInfo::suspended`](crate::snapshot::ProcessInfo::suspended) is set. A second call
    /// replaces the time.
    ///
    /// ```
    /// use std::time::Duration;
    /// use procession::{Context, Scheduler};
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let waits = scheduler.start(|mut cx: Context<u32>| async move { cx.recv().await });
    /// scheduler.suspend_for(waits.pid(), Duration::from_secs(60))?;
    /// waits.send(1)?;
    /// assert!(scheduler.resume(waits.pid()));
    /// assert_eq!(waits.join(), Ok(Some(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AskError::Ended`], [`AskError::Ending`] or [`AskError::NoTimer`].
    pub fn suspend_for(&self, pid: Pid, duration: Duration) -> Result<(), AskError> {
        suspend(self.shared(), pid, duration)
    }

    /// Ends the suspension of a process. Returns `false` if it is not suspended.
    pub fn resume(&self, pid: Pid) -> bool {
        resume(self.shared(), pid)
    }
}

/// Returns the process with this PID, if it has not ended.
pub(crate) fn find(shared: &Shared, pid: Pid) -> Result<SlotRef, AskError> {
    if (pid.node(), pid.scheduler()) != (0, shared.id()) {
        return Err(AskError::Ended);
    }
    let slot = shared.table().pin(pid.slot(), pid.generation()).ok_or(AskError::Ended)?;
    if slot.state.see().is_complete() { Err(AskError::Ended) } else { Ok(slot) }
}

/// Leaves a request with a process.
pub(crate) fn leave(slot: &Slot, request: ProcessRequest) -> Result<(), AskError> {
    let is_asked = wake::request(slot, request).map_err(|_| AskError::Busy)?;
    if is_asked { Ok(()) } else { Err(AskError::Ended) }
}

/// Asks a process what it shows of itself.
pub(crate) async fn inspect(shared: &Shared, pid: Pid) -> Result<Inspection, AskError> {
    answer(request_inspection(shared, pid)?).await
}

/// What a process shows of itself, or the text of its panic.
pub(crate) type Shown = Result<Inspection, String>;

/// Asks a process what it shows of itself. The receiver gets it.
pub(crate) fn request_inspection(
    shared: &Shared,
    pid: Pid,
) -> Result<oneshot::Receiver<Shown>, AskError> {
    let slot = find(shared, pid)?;
    if current::is_current(&slot) {
        return Err(AskError::Itself);
    }
    let (sender, receiver) = oneshot::channel();
    // Ignored: a caller that has given up.
    let answer = Box::new(move |shown| drop(sender.send(shown)));
    leave(&slot, ProcessRequest::Inspect(answer))?;
    Ok(receiver)
}

/// Waits for what a process shows of itself.
pub(crate) async fn answer(receiver: oneshot::Receiver<Shown>) -> Result<Inspection, AskError> {
    match time::timeout(ANSWER_TIMEOUT, receiver).await {
        Err(time::Elapsed) => Err(AskError::TimedOut),
        Ok(Err(_)) => Err(AskError::Ended),
        Ok(Ok(Err(text))) => Err(AskError::Panicked(text)),
        Ok(Ok(Ok(shown))) if shown.is_empty() => Err(AskError::ShowsNothing),
        Ok(Ok(Ok(shown))) => Ok(shown),
    }
}

/// Suspends a process.
pub(crate) fn suspend(shared: &Arc<Shared>, pid: Pid, duration: Duration) -> Result<(), AskError> {
    let slot = find(shared, pid)?;
    if slot.state.is_cancelled() {
        return Err(AskError::Ending);
    }
    let (index, generation) = (slot.index(), slot.pins.generation());
    let requests = &shared.processes.requests;
    let (number, before) = requests.suspend(index, generation);
    if let Some(before) = before {
        drop_each(before.delete(shared));
    }
    let when = shared.world.now().saturating_add(nanoseconds(duration.min(SUSPENSION_MAX)));
    let me: Weak<Shared> = shared.identity.me.clone();
    let end = Action::Call(Arc::new(move || {
        if let Some(slot) = me.upgrade().and_then(|shared| find(&shared, pid).ok()) {
            let _ = wake::release(&slot, Some(number));
        }
    }));
    let Ok(armed) = time::arm::arm_function(shared, when, None, end) else {
        let _ = wake::release(&slot, Some(number));
        return Err(AskError::NoTimer);
    };
    // If the suspension is over already, its timer is not needed.
    if !requests.set_timer(index, generation, number, armed) {
        drop_each(armed.delete(shared));
    }
    if wake::ask(&slot) { Ok(()) } else { Err(AskError::Ended) }
}

/// Ends the suspension of a process.
pub(crate) fn resume(shared: &Shared, pid: Pid) -> bool {
    find(shared, pid).is_ok_and(|slot| wake::release(&slot, None))
}
