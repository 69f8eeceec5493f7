//! The stacks of a process, on demand.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use procession_sync::atomic::AtomicBool;
use procession_sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::observe::ask::{ANSWER_TIMEOUT, AskError, find, leave};
use crate::observe::symbols::{self, StackFrame};
use crate::process::request::{ProcessRequest, StackRequest};
use crate::process::stack_notes::{self, StackNotes};
use crate::process::typed::MACHINE;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::sync::oneshot;
use crate::time;
use crate::time::Instant;
use crate::{Pid, Scheduler};

/// The maximum time that a request for a stack takes.
pub(crate) const STACK_SECONDS_MAX: u64 = 10;
const STACK_TIMEOUT_MAX: Duration = Duration::from_secs(STACK_SECONDS_MAX);

/// The time between two looks for a step that does not end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The number of looks that find a process in one step before its thread is interrupted. A step
/// that notes its stacks is to end before, also on a busy machine.
const STEP_LOOKS: u32 = 5;

/// Where the stacks of a process come from.
///
/// Available with the crate feature `door`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StackSource {
    /// The process waits. There is one stack for each waker that the process has left.
    Wait,
    /// The process runs one long step. There is one stack: the stack of its thread.
    Step,
}

/// The stacks of a process. See [`Scheduler::stack`].
///
/// It holds addresses. Their symbols are read when they are asked for, from the debug information
/// of the program, which takes up to some seconds for the first time.
///
/// Available with the crate feature `door`.
#[derive(Clone, Debug)]
pub struct ProcessStack {
    pid: Pid,
    source: StackSource,
    stacks: StackNotes,
}

impl crate::Outcome for ProcessStack {}

impl ProcessStack {
    /// Returns the process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns where the stacks come from.
    pub fn source(&self) -> StackSource {
        self.source
    }

    /// Returns the stacks, each with the innermost call first. The calls of the runtime at both
    /// ends are left out, if the program has symbols. An inlined function has a separate frame,
    /// with the address of its caller.
    ///
    /// # Blocking
    /// Reads the debug information of the program.
    pub fn stacks(&self) -> Vec<Vec<StackFrame>> {
        self.stacks.iter().map(|stack| symbols::resolve(stack)).collect()
    }
}

impl fmt::Display for ProcessStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.source {
            StackSource::Wait => "waits",
            StackSource::Step => "runs a step",
        };
        writeln!(f, "{} {state}", self.pid)?;
        for stack in self.stacks() {
            writeln!(f)?;
            stack.iter().try_for_each(|frame| writeln!(f, "{frame}"))?;
        }
        Ok(())
    }
}

/// The permit to take a stack. There is one for the program.
struct StackPermit(());

static IS_TAKEN: AtomicBool = AtomicBool::new(false);

impl StackPermit {
    fn take() -> Result<Self, AskError> {
        // Ordering: Acquire pairs with the Release in the drop: one request sees what the request
        // before it did.
        match IS_TAKEN.compare_exchange(false, true, Acquire, Relaxed) {
            Ok(_) => Ok(Self(())),
            Err(_) => Err(AskError::Busy),
        }
    }
}

impl Drop for StackPermit {
    fn drop(&mut self) {
        // Ordering: Release pairs with the Acquire in `take`.
        IS_TAKEN.store(false, Release);
    }
}

/// Available with the crate feature `door`.
impl Scheduler {
    /// Returns the stacks of a process, within a second. See
    /// [`stack_timeout`](Self::stack_timeout).
    ///
    /// # Errors
    /// The errors of [`stack_timeout`](Self::stack_timeout).
    pub async fn stack(&self, pid: Pid) -> Result<ProcessStack, AskError> {
        self.stack_timeout(pid, ANSWER_TIMEOUT).await
    }

    /// Returns the stacks of a process: of its waits, or of its running step.
    ///
    /// A process that waits is woken once without need, which every future allows. In that step
    /// each future that leaves the waker of the process notes its stack: from the leaf that waits,
    /// through the futures that contain it. This works with any future, and for coroutines. A
    /// future that a combinator does not poll in that step, such as a child of `FuturesUnordered`
    /// that was not woken, is missing. A process that is ready notes its stacks at its next wait,
    /// and a suspended process notes its stacks after its suspension.
    ///
    /// A state machine has a stack only in a step. If a process stays in one step, its thread is
    /// interrupted by a signal, `SIGURG`, and its stack is copied (on Linux, on x86-64 and
    /// AArch64). System calls that the signal interrupts go on, as for each handler with
    /// `SA_RESTART`; some, such as `poll`, return `EINTR`.
    ///
    /// Stacks are read by the unwind tables of the program, so frame pointers are not needed. A
    /// program without symbols has addresses only.
    ///
    /// One stack is taken at a time in a program. `timeout` is at most 10 s, by the clock of the
    /// caller's scheduler.
    ///
    /// ```
    /// use procession::Scheduler;
    /// use std::time::Duration;
    ///
    /// async fn wait_for_tomorrow() {
    ///     procession::sleep(Duration::from_secs(86_400)).await;
    /// }
    ///
    /// let scheduler = Scheduler::builder().build()?;
    /// let waits = scheduler.spawn(wait_for_tomorrow());
    /// let stack = scheduler.block_on(scheduler.stack(waits.pid()))?;
    /// assert!(stack.to_string().contains("wait_for_tomorrow"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`AskError`].
    ///
    /// # Cancellation
    /// If the future is dropped, the process is woken without need.
    pub async fn stack_timeout(
        &self,
        pid: Pid,
        timeout: Duration,
    ) -> Result<ProcessStack, AskError> {
        stack(self.shared(), pid, timeout).await
    }
}

/// Returns the stacks of a process.
pub(crate) async fn stack(
    shared: &Shared,
    pid: Pid,
    timeout: Duration,
) -> Result<ProcessStack, AskError> {
    let _permit = StackPermit::take()?;
    // While it lives, the caller waits for the answer.
    let caller = Arc::new(());
    // The sender that nothing uses, if the process is a state machine.
    let mut machine = None;
    let mut receiver = {
        let slot = find(shared, pid)?;
        if current::is_current(&slot) {
            let stacks = vec![stack_notes::addresses(stack_notes::FRAMES_MAX)];
            return Ok(ProcessStack { pid, source: StackSource::Step, stacks });
        }
        let (sender, receiver) = oneshot::channel();
        if slot.kind().name == MACHINE {
            // It has a stack only in a step, and nothing to ask for.
            machine = Some(sender);
        } else {
            // Ignored: a caller that has given up.
            let answer = Box::new(move |stacks: StackNotes| drop(sender.send(stacks)));
            let request = StackRequest { answer, caller: Arc::downgrade(&caller) };
            leave(&slot, ProcessRequest::Stack(request))?;
        }
        receiver
    };
    let deadline = Instant::now() + timeout.min(STACK_TIMEOUT_MAX);
    let mut watch = StepWatch::default();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match time::timeout(LOOK_EVERY.min(left), &mut receiver).await {
            Ok(Ok(stacks)) => return Ok(ProcessStack { pid, source: StackSource::Wait, stacks }),
            Ok(Err(_)) => return Err(AskError::Ended),
            Err(time::Elapsed) => {}
        }
        let step = step_of(shared, pid.slot());
        let is_another = watch.note(step);
        if let Some(step) = step.filter(|_| watch.looks >= STEP_LOOKS)
            && let Some(stack) = stack_of_step(step).await
            // Otherwise the step has ended, and the stack belongs to another step.
            && step_of(shared, pid.slot()) == Some(step)
        {
            return Ok(ProcessStack { pid, source: StackSource::Step, stacks: vec![stack] });
        }
        // It does not stay in one step.
        if machine.is_some() && (step.is_none() || is_another) {
            return Err(AskError::NoStack);
        }
        if left.is_zero() {
            return Err(AskError::TimedOut);
        }
    }
}

/// A step that runs.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RunningStep {
    thread: u32,
    number: u64,
}

/// A watch on the step of a process.
#[derive(Default)]
struct StepWatch {
    step: Option<RunningStep>,
    /// The number of looks that have found this step.
    looks: u32,
}

impl StepWatch {
    /// Notes what a look has found. Returns `true` if it is not what an earlier look has found.
    fn note(&mut self, step: Option<RunningStep>) -> bool {
        let is_another = self.looks > 0 && self.step != step;
        self.looks = if self.step == step { self.looks + 1 } else { 1 };
        self.step = step;
        is_another
    }
}

/// Returns the step that the process in a slot is in.
fn step_of(shared: &Shared, slot: u32) -> Option<RunningStep> {
    shared.workforce.all_seats().find_map(|seat| {
        // Ordering: Acquire pairs with the Release of `LocalWorker::run`.
        let number = seat.step.load(Acquire);
        // Relaxed: compared again after the sample.
        let is_its = number % 2 == 1 && seat.running.load(Relaxed) == slot + 1;
        is_its.then(|| RunningStep { thread: seat.thread.load(Relaxed), number })
    })
}

/// Returns the return addresses of the stack of the thread that runs a step.
#[cfg(all(
    target_os = "linux",
    not(procession_portable),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
async fn stack_of_step(step: RunningStep) -> Option<Vec<usize>> {
    use crate::sys::thread_stack::Sample;

    /// The time between two looks for the copy of a stack, and the number of these looks.
    const SAMPLE_LOOK_EVERY: Duration = Duration::from_millis(1);
    const SAMPLE_LOOKS: u32 = 200;

    let sample = Sample::ask(step.thread)?;
    for _ in 0..SAMPLE_LOOKS {
        if let Some(copy) = sample.take() {
            return Some(crate::observe::unwind::addresses(&copy));
        }
        time::sleep(SAMPLE_LOOK_EVERY).await;
    }
    None
}

#[cfg(not(all(
    target_os = "linux",
    not(procession_portable),
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
async fn stack_of_step(_: RunningStep) -> Option<Vec<usize>> {
    None
}
