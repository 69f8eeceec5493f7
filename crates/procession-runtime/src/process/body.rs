//! Bodies of processes: the future, state machine or coroutine, and later the result.
//!
//! ## User code
//! User code is code that a type of the user decides: `poll`, `Drop`, wakers, closures, panic
//! payloads. It may panic, call the runtime again, or never run. It follows these rules:
//!
//! - It never runs under a lock or a borrow of the runtime. What a lock guards is moved out first.
//! - The operation that calls it is complete before, or is completed by a `Drop`: a count, a state,
//!   a place in a list.
//! - A call goes through [`guarded`], unless the panic belongs to the caller.
//! - A value is dropped by [`drop_guarded`], and several values by [`drop_each`], because while one
//!   of two values unwinds, a panic of the other would abort the program. A field that is dropped
//!   with its owner is a [`DropGuarded`].
//! - The `Drop` of a value that the user holds (a handle, a future) guards as well, since it may
//!   run while a stack unwinds.
//!
//! `tests/it/hostile.rs` and `tests/it/panics.rs` test the places where user code runs.
//!
//! ## Invariants
//! - `[in place]` a body never moves. It lives in its box from spawn to the end, and its future is
//!   dropped there.
//! - `[pinned within]` once a `Guarded`, a `Beside`, an `OwnOr` or an `AsyncBody` is pinned, its
//!   future, the only part that is pinned structurally, is not moved out, and is dropped in place.
//!   A function that takes such a value by value or by `&mut` and touches its future does so before
//!   the first step or poll.

use std::any::Any;
use std::task::Context as TaskContext;

use procession_protocols::process::state::WaitPhase;

use crate::Exit;
use crate::machine::value::CommandResult;
use crate::mailbox::header::Header;
use crate::process::request::Inspection;
use crate::process::slot::Slot;
use crate::relations::signal::Signal;
use crate::time::action::Armed;

/// An entry of a mailbox.
pub(crate) type Queued<M> = procession_queue::Event<M, System>;

/// An entry that the runtime pushes.
pub(crate) enum System {
    /// A yielded command is complete.
    Completion { tag: u64, result: CommandResult },
    /// A yielded sleep is over. `timer` was its timer.
    Slept { tag: u64, timer: Armed },
    /// Another process has ended, or has sent an exit signal.
    Signal(Signal),
    /// The header of a message. It is always followed by that message.
    Header(Header),
}

/// The result of a step.
pub(crate) enum Step {
    /// The process waits.
    Waits(WaitPhase),
    /// The process is ready again.
    GoesOn,
    /// The process has ended, and its result is in the body. `None` is [`Exit::Normal`]. Any other
    /// exit is boxed, so that this value is returned in registers.
    Ended(Option<Box<Exit>>),
}

// A tag and a word in every variant, so that it is returned in registers. A value written byte by
// byte and read whole stalls on the stores (a tenth of `co_yield_1`).
const _: () = assert!(
    size_of::<Step>() == 2 * size_of::<usize>() && size_of::<WaitPhase>() == size_of::<usize>()
);

impl Step {
    /// Returns the step of a process that has ended with `exit`.
    pub(crate) fn ended(exit: Exit) -> Self {
        Self::judged(Some(exit))
    }

    /// Returns the step of a process that has returned an output, with the exit that the output
    /// reports.
    #[inline]
    pub(crate) fn judged(exit: Option<Exit>) -> Self {
        Self::Ended(exit.filter(|exit| !exit.is_normal()).map(Box::new))
    }
}

/// The type-erased content of a process. The worker that runs the process makes all calls except
/// `take_result`.
pub(crate) trait Body: Send {
    /// Runs the process until it waits, yields or ends. May unwind.
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step;

    /// Ends the process from outside, or after a panic. Drops its state, and may unwind.
    fn end(&mut self, slot: &Slot, exit: Exit);

    /// Adds what the state shows of itself. May unwind.
    fn inspect(&self, _: &mut Inspection) {}

    /// Returns the span of the process while it is open.
    #[cfg(feature = "tracing")]
    fn span(&mut self) -> Option<&mut tracing::Span> {
        None
    }

    /// Moves the result of an ended process into `result`, a `&mut Option<Result<T, Exit>>`.
    fn take_result(&mut self, result: &mut dyn Any);
}
