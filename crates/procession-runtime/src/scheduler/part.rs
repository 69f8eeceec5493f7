//! The parts of a scheduler that the kernel does not know.
//!
//! # Parts
//!
//! A part is built around the kernel, for example the reports of failures, the door, or the tokio
//! runtime. A part imports the kernel. The kernel imports no part, because a reader of the kernel
//! would then have to read the part as well. Instead each scheduler has a list of [`Part`]s, which
//! `assembly.rs` makes. The kernel calls their methods at the few moments that a part must not
//! miss. The code of a part finds its own part of a scheduler by its type ([`Parts::get`]).
//!
//! If neither a message nor a spawn needs some state of the kernel, this state is also a part, so
//! that a reader of their path need not read it. For example, the helpers of coroutines and the
//! samples of the watchdog are parts.
//!
//! A runtime of another library, of which a scheduler has at most one, is also a [`Companion`],
//! because the threads of the scheduler work in its context, and the test clock moves together with
//! its clock.
//!
//! # Contract
//!
//! | method | thread | locks of the runtime |
//! |---|---|---|
//! | `prepare`, `begin` | the thread that builds the scheduler | none |
//! | `process_failed` | the worker that runs the process, in its last step | none |
//! | `panic_taken` | any thread that takes the result of a process | none |
//! | `block_on_panicked` | the thread that blocks on a future, outside of processes | none |
//! | `last_handle_dropped` | the thread that drops the last handle, perhaps in a step | none |
//! | the `Drop` of a part | any thread, even a worker of another scheduler | none |
//! | `enter` | the thread that enters | none |
//! | `settled`, `drive`, `is_quiet`, `advance` | one worker that finds nothing to run | none |
//! | `scheduler_ended`, `note_ended`, `note_unowned` | any thread | none |
//! | `note_activity`, `note_foreign_wake`, `look_every` | any thread | perhaps some |
//!
//! Panics of `prepare` and `begin` go to the caller of `build`. But a part must not panic for a
//! wrong setting: it returns an error. Panics of `run` pass through `enter`. One panic of the
//! `Drop` of a part is caught, so a part with several values of the user drops each value
//! guarded. All other methods must not panic. `process_failed` therefore catches panics of user
//! code, and the companion catches the panics of tasks that the runtime drops in `note_ended` and
//! `note_unowned`.
//!
//! The methods of the last row run no code of the user and take no lock of the scheduler.
//!
//! User code may run in each method for which the table says that no lock is held. No method may
//! block for long, because the thread may be a worker.

use std::any::Any;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::process::slot::Slot;
use crate::process::unwind::{drop_each, drop_guarded};
use crate::scheduler::shared::Shared;
use crate::sys::World;
use crate::{Exit, Pid};

/// The span of a process that has failed, if it is open and the program has the feature `tracing`.
#[derive(Clone, Default)]
pub(crate) struct FailureSpan(#[cfg(feature = "tracing")] pub(crate) Option<tracing::span::Id>);

/// The error of a part that cannot work. `build` knows its type, the kernel need not.
pub(crate) type PartError = Box<dyn Error + Send + Sync>;

/// The scheduler that is being built.
#[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "only the part of tokio asks"))]
pub(crate) struct Plan<'a> {
    pub(crate) name: &'a str,
    pub(crate) width: usize,
    pub(crate) max_threads: usize,
    pub(crate) test_clock: bool,
    pub(crate) callers_drive: bool,
    /// The runtime of another library that belongs to the scheduler. A part may set it.
    pub(crate) companion: Option<Arc<dyn Companion>>,
}

/// A part of a scheduler. The [module](self) has the contract of each method.
pub(crate) trait Part: Any + Send + Sync {
    /// Prepares the part, before there is a scheduler. If it returns an error, `build` returns that
    /// error, and drops the parts.
    fn prepare(&mut self, plan: &mut Plan<'_>) -> Result<(), PartError> {
        let _ = plan;
        Ok(())
    }

    /// Begins to work for a scheduler that stands. If it returns an error, `build` returns that
    /// error, and ends the scheduler.
    fn begin(&self, shared: &Arc<Shared>) -> Result<(), PartError> {
        let _ = shared;
        Ok(())
    }

    /// Notes that a process ends by itself and not normally. It is not complete yet, so that
    /// everything that learns of its end finds the failure noted. Returns `true` if the slot of the
    /// process holds a report until it is known whether the failure has reached somebody.
    fn process_failed(&self, slot: &Slot, exit: &Exit, span: &FailureSpan) -> bool {
        let _ = (slot, exit, span);
        false
    }

    /// Notes that the owner of a process has taken its panic as the result.
    fn panic_taken(&self, process: Pid) {
        let _ = process;
    }

    /// Notes that the future that a thread blocks on has panicked with this text. The thread runs
    /// no process, so nothing reports the panic.
    fn block_on_panicked(&self, shared: &Shared, text: &str) {
        let _ = (shared, text);
    }

    /// Notes that nothing can run under the test clock, although waits for other processes have
    /// begun.
    fn settled(&self, shared: &Shared) {
        let _ = shared;
    }

    /// Notes that the last handle of the scheduler is dropped. Its processes end after that.
    fn last_handle_dropped(&self) {}

    /// Notes that the scheduler has ended.
    fn scheduler_ended(&self) {}
}

/// Selects descriptors.
#[cfg(feature = "tokio")]
type Which<'a> = &'a dyn Fn(i32) -> bool;

/// What a worker sees of its scheduler, for a [`Companion`].
#[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "the only companion is tokio"))]
pub(crate) struct SeenScheduler<'a> {
    pub(crate) waits_for_descriptors: bool,
    /// Returns a number that changes with each step.
    pub(crate) steps: &'a dyn Fn() -> u64,
    /// Returns `true` if a process waits for one of these descriptors.
    #[cfg(feature = "tokio")]
    pub(crate) any_waited_for: &'a dyn Fn(Which<'_>) -> bool,
}

/// A runtime of another library, for the processes of the scheduler. The [module](self) has the
/// contract of each method.
///
/// If the scheduler has a test clock, the clock of the runtime is paused, and the runtime has no
/// threads. A worker then runs its tasks, and both clocks move together. Only in this case, the
/// kernel calls the methods from `drive` to `note_foreign_wake`.
pub(crate) trait Companion: Send + Sync {
    /// Calls `run` once, in the context of the runtime. `is_worker` is `true` if the thread sits in
    /// a seat of the scheduler during the call.
    fn enter(&self, is_worker: bool, run: &mut dyn FnMut());

    /// Returns the time after which a parked worker looks at the runtime again, if the clock of the
    /// runtime is paused.
    fn look_every(&self) -> Option<Duration>;

    /// Runs the tasks of the runtime, with the scheduler's clock at `now`. Returns `true` if there
    /// may be more to run.
    fn drive(&self, now: u64) -> bool;

    /// Returns `true` if the test clock may move: nothing is on its way outside of the scheduler.
    fn is_quiet(&self, seen: &SeenScheduler<'_>) -> bool;

    /// Moves the clock of the runtime towards the scheduler's next deadline. Returns what the
    /// scheduler's clock, which is at `now`, is to show.
    fn advance(&self, now: u64, deadline: u64) -> u64;

    /// Notes that code has run. This code may have begun work that is now on its way.
    fn note_activity(&self);

    /// Notes that this thread, which is not one of the scheduler's workers, wakes a process of the
    /// scheduler.
    fn note_foreign_wake(&self);

    /// Notes that no process is left and none will come.
    fn note_ended(&self);

    /// Notes that the scheduler has no owner any more.
    fn note_unowned(&self);
}

/// The parts of a scheduler, in the order in which the kernel calls them.
#[derive(Default)]
pub(crate) struct Parts {
    list: Vec<Box<dyn Part>>,
    pub(crate) companion: Option<Arc<dyn Companion>>,
}

impl Parts {
    /// Adds a part. There is one of each type.
    pub(crate) fn with(mut self, part: impl Part) -> Self {
        self.list.push(Box::new(part));
        self
    }

    /// Returns the part of this type.
    pub(crate) fn get<T: Part>(&self) -> Option<&T> {
        self.list.iter().find_map(|part| {
            let part: &dyn Any = &**part;
            part.downcast_ref()
        })
    }

    /// Returns the part of this type, for its settings.
    pub(crate) fn get_mut<T: Part>(&mut self) -> Option<&mut T> {
        self.list.iter_mut().find_map(|part| {
            let part: &mut dyn Any = &mut **part;
            part.downcast_mut()
        })
    }

    /// `Part::prepare`
    pub(crate) fn prepare(&mut self, mut plan: Plan<'_>) -> Result<(), PartError> {
        for part in &mut self.list {
            part.prepare(&mut plan)?;
        }
        self.companion = plan.companion;
        Ok(())
    }

    /// `Part::begin`
    pub(crate) fn begin(&self, shared: &Arc<Shared>) -> Result<(), PartError> {
        self.list.iter().try_for_each(|part| part.begin(shared))
    }

    /// `Part::process_failed`. Returns `true` if a part holds a report.
    #[cold]
    pub(crate) fn process_failed(&self, slot: &Slot, exit: &Exit, span: &FailureSpan) -> bool {
        let mut is_held = false;
        for part in &self.list {
            is_held |= part.process_failed(slot, exit, span);
        }
        is_held
    }

    /// `Part::panic_taken`
    #[cold]
    pub(crate) fn panic_taken(&self, process: Pid) {
        self.list.iter().for_each(|part| part.panic_taken(process));
    }

    /// `Part::block_on_panicked`
    #[cold]
    pub(crate) fn block_on_panicked(&self, shared: &Shared, text: &str) {
        self.list.iter().for_each(|part| part.block_on_panicked(shared, text));
    }

    /// `Part::settled`
    #[cold]
    pub(crate) fn settled(&self, shared: &Shared) {
        self.list.iter().for_each(|part| part.settled(shared));
    }

    /// `Part::last_handle_dropped`
    pub(crate) fn last_handle_dropped(&self) {
        self.list.iter().for_each(|part| part.last_handle_dropped());
    }

    /// `Part::scheduler_ended`
    pub(crate) fn scheduler_ended(&self) {
        self.list.iter().for_each(|part| part.scheduler_ended());
    }

    /// Returns the companion of the scheduler, if its clock is paused.
    pub(crate) fn paused(&self) -> Option<&dyn Companion> {
        self.companion.as_deref().filter(|companion| companion.look_every().is_some())
    }

    /// Moves the test clock to `deadline`, or to an earlier deadline of the paused runtime of the
    /// scheduler.
    pub(crate) fn advance(&self, world: &World, deadline: u64) {
        let until = match self.paused() {
            Some(runtime) => runtime.advance(world.now(), deadline),
            None => deadline,
        };
        world.advance_to(until);
    }

    /// Calls `run` in the context of the companion of the scheduler, if there is one.
    pub(crate) fn enter<T>(&self, is_worker: bool, run: impl FnOnce() -> T) -> T {
        let Some(companion) = &self.companion else { return run() };
        let (mut run, mut result) = (Some(run), None);
        companion.enter(is_worker, &mut || result = run.take().map(|run| run()));
        result.expect("`enter` calls the function")
    }

    /// Drops the parts one by one.
    pub(crate) fn drop_each(&mut self) {
        drop_each(self.list.drain(..));
        drop_guarded(self.companion.take());
    }
}
