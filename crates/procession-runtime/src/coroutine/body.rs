//! The body of a coroutine: how it begins, runs its steps, is unwound, and ends.

use std::any::Any;
use std::ptr::NonNull;
use std::task::Context as TaskContext;
use std::{fmt, ptr};

use procession_coroutine::{Coroutine, Resumed, Stack, StackError, Suspender, UnwindError};
use procession_protocols::sync::wait_list::Place;

use crate::Exit;
use crate::coroutine::foreign;
use crate::coroutine::stack::is_shortage;
use crate::process::body::{Body, Step};
use crate::process::exit::{ByOutcome, Judge, Returns};
use crate::process::residence::{Begin, Residence, ResidentKind};
use crate::process::slot::Slot;
use crate::process::unwind::{drop_guarded, guarded, print_caught};
use crate::process::wait_reason::Waiting;
use crate::process::waker;
use crate::scheduler::current;
use crate::scheduler::frame::{Frame, LocalValues, NOTHING, Out, Resume, Resuming, set_current};
use crate::scheduler::local::LocalWorker;
use crate::scheduler::supply::StuckCoroutine;
use crate::sys;
use crate::sys::os::CallFault;

/// Ends a coroutine's function, by return or panic, and drops its locals while it is still the
/// running coroutine.
struct Root<'a>(&'a Frame);

/// Maximum number of rounds in which destructors of locals may make new locals. Any locals left
/// after the last round are leaked, with everything that they hold.
const LOCAL_ROUNDS: usize = 5;

impl Drop for Root<'_> {
    fn drop(&mut self) {
        for _ in 0..LOCAL_ROUNDS {
            drop_locals(&self.0.locals);
        }
        std::mem::forget(self.0.locals.take());
        set_current(NOTHING);
    }
}

fn drop_locals(locals: &LocalValues) {
    for local in locals.take() {
        drop_guarded(local);
    }
}

/// A coroutine in its slot.
pub(crate) struct CoBody<F, T: 'static> {
    stage: CoroutineStage<F, T>,
    bytes: usize,
    pinned: bool,
    /// The thread that the coroutine stays on, if it is pinned.
    residence: Residence,
    /// Set while a coroutine that is not pinned is counted.
    is_counted: bool,
    /// The way in which it was last suspended.
    out: Out,
}

enum CoroutineStage<F, T: 'static> {
    /// With its place among the coroutines that wait for a stack, if it waits there.
    Fresh(F, Option<Place>),
    Runs(Coroutine<Resume, Out, T>),
    Ended(Result<T, Exit>),
    Taken,
}

// SAFETY: [own thread]; a function that has not begun and a result are `Send`.
unsafe impl<F: Send, T: Send> Send for CoBody<F, T> {}

/// Describes a process to the overflow report.
///
/// # Safety
/// `slot` belongs to a process that runs.
unsafe fn tell(slot: *const (), to: &mut dyn fmt::Write) -> fmt::Result {
    // SAFETY: by the caller.
    let slot = unsafe { &*slot.cast::<Slot>() };
    write!(to, "process {}", slot.seen_pid())?;
    match slot.extra().and_then(|extra| extra.label.as_deref()) {
        Some(label) => write!(to, " {label:?}"),
        None => Ok(()),
    }
}

/// Resumes a coroutine when its process ends and its frames are not to be unwound: its wait
/// returns. Returns the way in which the coroutine is suspended again, if it has not ended.
fn go_on_to_end<T>(coroutine: &mut Coroutine<Resume, Out, T>) -> Out {
    match guarded(|| coroutine.resume(Resume::End)) {
        Ok(Resumed::Suspended(out)) => out,
        Ok(Resumed::Returned(value)) => {
            drop_guarded(value);
            Out::Waits
        }
        // The first exit stands.
        Err(_panicked) => Out::Waits,
    }
}

/// The result of an attempt to begin.
enum Attempt {
    Runs,
    /// It begins on another worker, or later.
    Later,
    /// There is no stack at present.
    Waits,
    /// There never will be a stack.
    Refused(Exit),
}

/// The workers that may resume a coroutine.
#[derive(Clone, Copy)]
pub(crate) struct Placement {
    pinned: bool,
}

impl Placement {
    /// Only the worker that resumed it first.
    pub(crate) const PINNED: Self = Self { pinned: true };

    /// All workers.
    ///
    /// # Safety
    /// The contract of [`try_start_migratable`](crate::SpawnOptions::try_start_migratable).
    pub(crate) unsafe fn migratable() -> Self {
        Self { pinned: false }
    }
}

impl<F, T> CoBody<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    pub(crate) fn new(function: F, bytes: usize, placement: Placement) -> Self {
        let pinned = placement.pinned;
        Self {
            stage: CoroutineStage::Fresh(function, None),
            bytes,
            pinned,
            residence: Residence::new(ResidentKind::Coroutine),
            is_counted: false,
            out: Out::Waits,
        }
    }

    #[cold]
    fn begin(&mut self, slot: &Slot, task: &TaskContext<'_>) -> Attempt {
        current::with_local(|local| {
            let local = local.expect("[seat] processes run on workers");
            if self.pinned && self.residence.choose(slot, local) == Begin::Later {
                return Attempt::Later;
            }
            let stack = match self.take_stack(slot, local, task) {
                Ok(stack) => stack,
                Err(begun) => return begun,
            };
            let CoroutineStage::Fresh(function, _) =
                std::mem::replace(&mut self.stage, CoroutineStage::Taken)
            else {
                unreachable!("only what is fresh begins")
            };
            let pin = NonNull::from(slot);
            let pinned = self.pinned;
            if pinned {
                foreign::note_surroundings();
            }
            let entry = move |suspender: &Suspender<'_, Resume, Out>, _: Resume| {
                let frame = Frame::new(suspender, pin, pinned);
                frame.enter();
                let _root = Root(&frame);
                function()
            };
            // SAFETY: [residual] promised by the caller of `enable_coroutines`.
            let mut coroutine = unsafe { Coroutine::spawned_at(stack, slot.location(), entry) };
            // SAFETY: the slot lives as long as its process; `tell` only formats numbers and copies
            // text.
            unsafe { coroutine.describe_with(ptr::from_ref(slot).cast(), tell) };
            if self.pinned {
                self.residence.begin(slot, local);
            } else {
                // SAFETY: by the caller of `try_start_migratable`.
                unsafe { coroutine.let_migrate() };
            }
            self.stage = CoroutineStage::Runs(coroutine);
            Attempt::Runs
        })
    }

    /// Takes a stack. If there is none, returns what becomes of the coroutine.
    fn take_stack(
        &mut self,
        slot: &Slot,
        local: &LocalWorker,
        task: &TaskContext<'_>,
    ) -> Result<Stack, Attempt> {
        let shared = &*local.shared;
        if sys::has_fault(CallFault::Stack) {
            let error = StackError::refused(self.bytes);
            return Err(Attempt::Refused(Exit::failed(error.to_string())));
        }
        let handed = match self.take_place() {
            Some(place) => shared.coroutines.waiters.fetch(place).inspect_err(|_| {
                // Something else has woken it, and it may be counted for the seat of its choice.
                shared.return_stacks(|| self.uncount(slot));
            }),
            None => match self.take_free_stack(slot, local) {
                Some(Ok(stack)) => return Ok(stack),
                Some(Err(error)) => Ok(Err(error)),
                None => shared.wait_for_stack(self.bytes, waker::another(task.waker())),
            },
        };
        match handed {
            Ok(Ok(stack)) => {
                self.count(slot, local);
                shared.coroutines.uncount_migrating();
                Ok(stack)
            }
            Ok(Err(error)) => Err(Attempt::Refused(Exit::failed(error.to_string()))),
            Err(waits) => {
                if let CoroutineStage::Fresh(_, place) = &mut self.stage {
                    *place = Some(waits);
                }
                Err(Attempt::Waits)
            }
        }
    }

    /// Takes a stack that is free, and counts the coroutine. Returns `None` if it must wait.
    fn take_free_stack(
        &mut self,
        slot: &Slot,
        local: &LocalWorker,
    ) -> Option<Result<Stack, StackError>> {
        let shared = &*local.shared;
        let taken = shared.coroutines.waiters.take(|| {
            self.count(slot, local);
            let cache = &shared.workforce.seat(local.seat).stacks;
            match cache.take(&shared.coroutines, shared.workforce.width(), self.bytes) {
                Err(error) if is_shortage(&error) => None,
                taken => Some(taken),
            }
        });
        if !matches!(taken, Some(Ok(_))) {
            self.uncount(slot);
        }
        taken
    }

    fn take_place(&mut self) -> Option<Place> {
        match &mut self.stage {
            CoroutineStage::Fresh(_, place) => place.take(),
            _ => None,
        }
    }

    /// Counts the coroutine among those that may have a stack (`coroutine/stack.rs`).
    fn count(&mut self, slot: &Slot, local: &LocalWorker) {
        if self.pinned {
            self.residence.count(slot, local.seat);
        } else {
            slot.shared().coroutines.count_migrating();
            self.is_counted = true;
        }
    }

    fn uncount(&mut self, slot: &Slot) {
        self.residence.leave(slot);
        if std::mem::take(&mut self.is_counted) {
            slot.shared().coroutines.uncount_migrating();
        }
    }

    /// Takes the coroutine out and stores its result. Called only after the coroutine has ended, or
    /// if it never will. Called once more if the output panics.
    fn finish(&mut self, slot: &Slot, result: Result<T, Exit>) {
        let shared = slot.shared();
        if let Some(place) = self.take_place() {
            shared.stop_waiting_for_stack(place);
        }
        match std::mem::replace(&mut self.stage, CoroutineStage::Ended(result)) {
            CoroutineStage::Runs(coroutine) => match coroutine.into_stack() {
                Ok(stack) => {
                    let mut is_in_slab = true;
                    shared.return_stacks(|| {
                        current::with_local(|local| match local {
                            Some(local) => {
                                let seat = local.shared.workforce.seat(local.seat);
                                is_in_slab = seat.stacks.put(stack);
                            }
                            None => drop(stack),
                        });
                    });
                    if is_in_slab {
                        shared.let_stacks_expire();
                    }
                }
                Err(stuck) => {
                    shared.coroutines.note_stuck(StuckCoroutine {
                        pid: slot.seen_pid(),
                        label: slot.extra().and_then(|extra| extra.label.clone()),
                        location: slot.location(),
                    });
                    stuck.leak();
                }
            },
            // The coroutine was perhaps sent to another worker and did not begin there.
            before => drop_guarded(before),
        }
        // The coroutines that wait fail if no other coroutine is counted.
        shared.return_stacks(|| self.uncount(slot));
    }

    /// Aborts on a wrong thread. Called before anything on the coroutine's stack runs.
    fn assert_own_thread(&self) {
        if self.pinned {
            self.residence.assert_here();
        }
    }
}

impl<F, T> Body for CoBody<F, T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    fn() -> T: Returns,
{
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step {
        if let CoroutineStage::Fresh(..) = self.stage {
            match self.begin(slot, task) {
                Attempt::Runs => {}
                Attempt::Later => return Step::GoesOn,
                Attempt::Waits => {
                    slot.waiting.note(Waiting::STACK);
                    return Step::Waits(slot.waiting.get().wait_phase());
                }
                Attempt::Refused(exit) => {
                    self.finish(slot, Err(exit.clone()));
                    return Step::ended(exit);
                }
            }
        }
        self.assert_own_thread();
        let CoroutineStage::Runs(coroutine) = &mut self.stage else {
            return Step::Ended(None);
        };
        let resuming = Resuming::begin(task);
        let resumed = coroutine.resume(Resume::Step);
        drop(resuming);
        match resumed {
            Resumed::Suspended(out) => {
                self.out = out;
                match out {
                    Out::Waits | Out::TryWaits => Step::Waits(slot.waiting.get().wait_phase()),
                    Out::Stuck | Out::Abandoned => {
                        self.end(slot, Exit::Killed);
                        Step::ended(Exit::Killed)
                    }
                }
            }
            Resumed::Returned(value) => {
                self.finish(slot, Ok(value));
                match &self.stage {
                    // If this panics, `end` replaces the output.
                    CoroutineStage::Ended(Ok(output)) => Step::judged(ByOutcome::judge(output)),
                    _ => Step::Ended(None),
                }
            }
        }
    }

    fn end(&mut self, slot: &Slot, exit: Exit) {
        let suspended =
            matches!(&self.stage, CoroutineStage::Runs(coroutine) if !coroutine.is_done());
        if suspended {
            self.assert_own_thread();
        }
        if suspended && let CoroutineStage::Runs(coroutine) = &mut self.stage {
            let waker = waker::borrowed(slot);
            let mut task = TaskContext::from_waker(&waker);
            let resuming = Resuming::begin(&mut task);
            if self.out == Out::TryWaits {
                self.out = go_on_to_end(coroutine);
            }
            // The frames of an abandoned coroutine must not be unwound.
            let unwound = if self.out == Out::Abandoned { Ok(None) } else { coroutine.unwind() };
            drop(resuming);
            // The first exit stands.
            match unwound {
                Ok(result) => drop_guarded(result),
                Err(UnwindError::Panicked(payload)) => print_caught(payload),
                Err(UnwindError::Stuck | UnwindError::Aborts) => {}
            }
        }
        self.finish(slot, Err(exit));
    }

    fn take_result(&mut self, result: &mut dyn Any) {
        if let CoroutineStage::Ended(ended) =
            std::mem::replace(&mut self.stage, CoroutineStage::Taken)
            && let Some(result) = result.downcast_mut::<Option<Result<T, Exit>>>()
        {
            *result = Some(ended);
        }
    }
}
