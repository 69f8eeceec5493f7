//! What a process is made of besides its slot: its future or state machine, and later its result.
//!
//! ## User code
//! User code is whatever a type of the user's decides: `poll`, `Drop`, wakers, closures, the
//! payloads of panics. It may panic, call the runtime again, or never run. The rule for it is:
//!
//! - It never runs under a lock or a borrow of the runtime's. What a lock guards is moved out
//!   first.
//! - Whatever it is called for is finished first, or is finished by a `Drop`: a count, a state, a
//!   place in a list.
//! - A call goes through [`guarded`], unless the panic belongs to the caller.
//! - A value is dropped by [`drop_guarded`], and several of them by [`drop_each`]. While one of two
//!   values unwinds, a panic of the other would abort the program.
//! - The `Drop` of what the user holds (a handle, a future) guards as well: it may run in an
//!   unwinding.
//!
//! `tests/it/hostile.rs` and `tests/it/panics.rs` go through the places.
//!
//! ## Invariants
//! - `[in place]` a body never moves: it lives in its box from spawn to the end, and its future is
//!   dropped there.
//! - `[pinned within]` once a `Guarded`, a `Beside`, an `OwnOr` or an `AsyncBody` is pinned, its
//!   future, the only part that cares, is not moved out, and dropped where it is. What takes one by
//!   value or by `&mut`, and touches its future, does so before the first step or poll.

use std::any::Any;
use std::task::Context as TaskContext;

use crate::Exit;
use crate::machine::value::CommandResult;
use crate::process::slot::Slot;
use crate::process::state::WaitFor;
use crate::relations::signal::Signal;
use crate::time::armed::Armed;

/// What a mailbox holds.
pub(crate) type Event<M> = procession_queue::Event<M, System>;

/// What the runtime tells a process.
pub(crate) enum System {
    /// A command that the process yielded is done.
    Completion { tag: u64, result: CommandResult },
    /// So is its sleep, of which this was the timer.
    Slept { tag: u64, timer: Armed },
    /// Another process ended, or sent an exit signal.
    Signal(Signal),
}

/// How a step left its process.
pub(crate) enum Step {
    /// It waits.
    Waits(WaitFor),
    /// It wants to go on.
    GoesOn,
    /// It ended; its result is in the body. `None` is [`Exit::Normal`]; any other is boxed, so that
    /// the answer to a step is in registers.
    Ended(Option<Box<Exit>>),
}

// A tag and a word, whichever it is, so that it is returned in registers: written byte by byte and
// read whole, it waits for the stores, a tenth of `co_yield_1`.
const _: () = assert!(
    size_of::<Step>() == 2 * size_of::<usize>() && size_of::<WaitFor>() == size_of::<usize>()
);

impl Step {
    /// It ended in this way.
    pub(crate) fn ended(exit: Exit) -> Self {
        Self::Ended(Some(exit).filter(|exit| !exit.is_normal()).map(Box::new))
    }
}

/// The type-erased content of a process. All calls but the last are by the worker that runs it.
pub(crate) trait Body: Send {
    /// Runs the process until it waits, gives way or ends. May unwind.
    fn step(&mut self, slot: &Slot, task: &mut TaskContext<'_>) -> Step;

    /// Ends the process from outside, or after a panic. The state is dropped; may unwind.
    fn end(&mut self, slot: &Slot, exit: Exit);

    /// After the end: moves the result into `result`, a `&mut Option<Result<T, Exit>>`.
    fn take_result(&mut self, result: &mut dyn Any);
}
