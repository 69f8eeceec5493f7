//! The frame of the coroutine that a thread runs.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::future::Future;
use std::panic::{Location, resume_unwind};
use std::pin::Pin;
use std::ptr;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use procession_coroutine::{Suspender, UNWINDINGS};
use procession_sync::atomic::AtomicU32;
use procession_sync::{Mutex, thread};

use crate::Exit;
use crate::process::exit::Exiting;
use crate::process::slot::Slot;
use crate::scheduler::current::{drive_depth, set_drive_depth};

/// The address of a local, and the depth of the schedulers that a thread drives. The depth is 0 if
/// the value belongs to the thread or to a coroutine, whatever runs there.
pub(crate) type LocalKey = (usize, u32);

/// The values of the locals that were used.
pub(crate) type LocalValues = RefCell<Vec<(LocalKey, Rc<dyn Any>)>>;

/// What a coroutine passes to its body when it suspends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Out {
    /// It waits for whatever wakes its process. If its process ends, it is unwound from here.
    Waits,
    /// It waits likewise, but below frames that are not to be unwound. If its process ends, the
    /// wait returns.
    TryWaits,
    /// It has caught its unwinding more often than the limit allows.
    Stuck,
    /// After its process was asked to end, it has tried to wait below frames that are not to be
    /// unwound more often than the limit allows. It is never resumed.
    Abandoned,
}

/// What a body passes to its coroutine when it resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// Something has woken its process.
    Step,
    /// Its process ends. Only a coroutine in [`Out::TryWaits`] is resumed like this.
    End,
}

/// The root frame of a coroutine, on its stack.
///
/// ## Invariants
/// - `[own thread]` A pinned coroutine is resumed, unwound and dropped by the thread that first
///   resumed it. It is bound to that thread's seat, and a seat for callers is given to no other
///   thread while it has live coroutines. The thread ends them before it ends itself.
/// - `[residual]` The code in coroutines keeps the [residual
///   rule](procession_coroutine#the-residual-rule).
///   [`Builder::enable_coroutines`](crate::Builder::enable_coroutines) asks for that promise.
/// - `[frame]` `CURRENT` names the frame at the root of the coroutine's stack that the thread runs
///   on, and the step's task context. Both live as long as the step.
pub(crate) struct Frame {
    pub(crate) suspender: *const Suspender<'static, Resume, Out>,
    pub(crate) slot: NonNull<Slot>,
    /// `true` if it stays on the thread on which it began.
    pub(crate) pinned: bool,
    /// Number of `no_suspend` calls that it is in.
    pub(crate) quiet: Cell<u32>,
    /// Number of `shield` calls that it is in.
    pub(crate) shields: Cell<u32>,
    /// `true` while a future is polled.
    pub(crate) polls: Cell<bool>,
    /// Number of times it was unwound.
    pub(crate) unwound: Cell<u32>,
    /// Number of waits that were refused.
    pub(crate) refused: Cell<u32>,
    /// `true` once its process ends and its frames go on.
    pub(crate) ends: Cell<bool>,
    pub(crate) locals: LocalValues,
    pub(crate) sleeper: OnceCell<Arc<Sleeper>>,
}

#[derive(Clone, Copy)]
pub(crate) struct StepFrame {
    frame: *const Frame,
    pub(crate) task: *mut TaskContext<'static>,
}

pub(crate) const NOTHING: StepFrame = StepFrame { frame: ptr::null(), task: ptr::null_mut() };

thread_local! {
    static CURRENT: Cell<StepFrame> = const { Cell::new(NOTHING) };
}

/// Returns what the thread runs. Not inlined, because a coroutine that migrates must read the word
/// of its present thread.
#[inline(never)]
pub(crate) fn current_step() -> StepFrame {
    CURRENT.try_with(Cell::get).unwrap_or(NOTHING)
}

#[inline(never)]
pub(crate) fn set_current(current: StepFrame) {
    // Never fails: the word has no destructor.
    let _ = CURRENT.try_with(|word| word.set(current));
}

/// Sets the task of a step, without a frame. Returns what was current before.
#[inline(never)]
fn begin_step(task: *mut TaskContext<'static>) -> StepFrame {
    CURRENT.try_with(|word| word.replace(StepFrame { frame: ptr::null(), task })).unwrap_or(NOTHING)
}

/// Sets the frame, and keeps the task.
#[inline(never)]
fn set_frame(frame: *const Frame) {
    // Ignored, as in `set_current`.
    let _ = CURRENT.try_with(|word| word.set(StepFrame { frame, ..word.get() }));
}

/// Returns the frame of the coroutine that runs on this thread, if one does.
#[inline]
pub(crate) fn frame<'a>() -> Option<&'a Frame> {
    // SAFETY: [frame] the frame lies below the caller's on the same stack, and no function of this
    // module keeps the reference for longer than its own frame.
    unsafe { current_step().frame.as_ref() }
}

/// Returns the frame of the coroutine that runs on this thread, if it can be suspended now.
#[inline]
pub(crate) fn suspendable<'a>() -> Option<&'a Frame> {
    frame().filter(|frame| frame.may_suspend())
}

/// What a thread runs: the frame of its coroutine, if any, and the number of schedulers that the
/// thread drives, one inside the other.
#[derive(Clone, Copy)]
pub(crate) struct SavedStep {
    step: StepFrame,
    depth: u32,
}

impl SavedStep {
    /// Returns what the calling thread runs now.
    pub(crate) fn now() -> Self {
        Self { step: current_step(), depth: drive_depth() }
    }
}

/// Restores on drop what a thread ran before it began something else on top of the same stack.
#[must_use]
pub(crate) struct SetAside(SavedStep);

impl SetAside {
    /// Sets aside what the thread runs, because it is about to drive a scheduler. The processes and
    /// timers of that scheduler are no part of what the thread ran before.
    pub(crate) fn all() -> Self {
        Self::for_running(SavedStep { step: NOTHING, depth: drive_depth() + 1 })
    }

    /// Makes `running` current until the guard is dropped. It must not end before that.
    #[inline(never)]
    pub(crate) fn for_running(running: SavedStep) -> Self {
        let before = SavedStep::now();
        set_current(running.step);
        set_drive_depth(running.depth);
        Self(before)
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        set_current(self.0.step);
        set_drive_depth(self.0.depth);
    }
}

/// Restores on drop what ran before a coroutine was resumed.
#[must_use]
pub(crate) struct Resuming(StepFrame);

impl Resuming {
    pub(crate) fn begin(task: &mut TaskContext<'_>) -> Self {
        Self(begin_step(ptr::from_mut(task).cast()))
    }
}

impl Drop for Resuming {
    fn drop(&mut self) {
        set_current(self.0);
    }
}

impl Frame {
    pub(crate) fn new(
        suspender: &Suspender<'_, Resume, Out>,
        slot: NonNull<Slot>,
        pinned: bool,
    ) -> Self {
        Self {
            suspender: ptr::from_ref(suspender).cast(),
            slot,
            pinned,
            quiet: Cell::new(0),
            shields: Cell::new(0),
            polls: Cell::new(false),
            unwound: Cell::new(0),
            refused: Cell::new(0),
            ends: Cell::new(false),
            locals: RefCell::new(Vec::new()),
            sleeper: OnceCell::new(),
        }
    }

    /// Marks this coroutine as running on the calling thread.
    pub(crate) fn enter(&self) {
        set_frame(self);
    }

    pub(crate) fn slot(&self) -> &Slot {
        // SAFETY: [running] a process in its step has its life pin.
        unsafe { self.slot.as_ref() }
    }

    pub(crate) fn may_suspend(&self) -> bool {
        self.quiet.get() == 0 && !self.polls.get() && !thread::panicking()
    }

    /// Suspends the coroutine.
    ///
    /// Always inlined, and so is `yield_now`; `wait` and what calls it may be. The processor
    /// predicts return addresses from the last calls, which were made on another stack. Each return
    /// between a suspension and the coroutine's own loop is a misprediction, and so is the return
    /// of the switch itself (`co_yield_1`: 66 ns with two such returns, 33 without).
    #[inline(always)]
    pub(crate) fn suspend(&self, out: Out) -> Resume {
        /// Makes the coroutine current again, whether it is resumed or unwound.
        struct Back<'a>(&'a Frame);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.enter();
            }
        }
        let _back = Back(self);
        // SAFETY: the suspender is in the frame below the root of this frame, which lives as long
        // as this frame.
        unsafe { &*self.suspender }.suspend(out)
    }

    /// Returns `true` if the coroutine was unwound before and caught it.
    fn is_unwound(&self) -> bool {
        self.unwound.get() > 0
    }

    /// Returns `true` if the coroutine was cancelled and is unwound where it waits.
    #[inline]
    fn is_to_unwind(&self) -> bool {
        self.slot().state.is_cancelled() && self.shields.get() == 0 && !cfg!(panic = "abort")
    }

    /// Unwinds the coroutine if it was cancelled.
    #[inline]
    pub(crate) fn unwind_if_cancelled(&self) {
        if self.is_to_unwind() {
            self.unwind_cancelled();
        }
    }

    #[cold]
    pub(crate) fn unwind_cancelled(&self) {
        if self.slot().state.see().is_terminated() && !self.is_unwound() {
            // The worker ends it once it is suspended, and knows the exit.
            return;
        }
        let unwound = self.unwound.get() + 1;
        self.unwound.set(unwound);
        if unwound > UNWINDINGS {
            // Its body resumes it only to unwind it, and abandons that as well.
            self.suspend(Out::Stuck);
            return;
        }
        resume_unwind(Box::new(Exiting(Exit::Shutdown)));
    }

    #[inline]
    #[track_caller]
    pub(crate) fn wait<F: Future + ?Sized>(&self, mut future: Pin<&mut F>) -> F::Output {
        let place = Location::caller();
        let mut is_late = false;
        loop {
            if let Poll::Ready(output) = self.poll(future.as_mut()) {
                return output;
            }
            if self.is_to_unwind() {
                if let Some(output) = self.poll_cancelled(future.as_mut(), is_late) {
                    return output;
                }
                is_late = true;
            }
            self.slot().waited_at.set(place);
            self.suspend(Out::Waits);
        }
    }

    /// Not inlined: a coroutine that migrates must not keep an address of its former thread.
    #[inline(never)]
    pub(crate) fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        struct Polls<'a>(&'a Cell<bool>);
        impl Drop for Polls<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.polls.set(true);
        let _polls = Polls(&self.polls);
        // SAFETY: [frame] the task is the step's, and the coroutine is suspended only below. This
        // poll alone borrows it: a poll inside blocks the thread.
        future.poll(unsafe { &mut *current_step().task })
    }
}

/// Keeps the running coroutine, if there is one, from being suspended until this is dropped.
#[must_use]
pub(crate) struct Quiet(
    #[expect(dead_code, reason = "held for its drop")] Option<Counted<'static>>,
);

impl Quiet {
    pub(crate) fn begin() -> Self {
        Self(frame().map(|frame| Counted::up(&frame.quiet)))
    }
}

pub(crate) struct Counted<'a>(&'a Cell<u32>);

impl<'a> Counted<'a> {
    pub(crate) fn up(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The suspensions of a coroutine, one after the other.
pub(crate) struct Sleeper {
    /// Twice the number of the suspension, plus one if it was woken.
    pub(crate) word: AtomicU32,
    pub(crate) waker: Mutex<Option<Waker>>,
}
