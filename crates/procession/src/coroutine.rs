//! Coroutines: processes written as straight-line code that blocks.
//!
//! A coroutine has a stack of its own. Where it waits, its stack is left as it is and its worker
//! runs others. All that processes can await, a coroutine can [`wait`] for: messages, sleeps,
//! channels, locks, calls, the ends of other processes.
//!
//! ```
//! use std::time::Duration;
//! use procession::{Reply, Scheduler, coroutine};
//!
//! enum Count {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: none of the coroutines holds a thread-local pointer that is scoped to a frame across a suspension.
//! let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
//! let total = scheduler.block_on(async {
//!     let counter = procession::coroutine::spawn_coroutine(|mut cx: coroutine::Context<Count>| {
//!         let mut n = 0;
//!         while let Some(message) = cx.recv() {
//!             match message {
//!                 Count::Add(k) => n += k,
//!                 Count::Get(reply) => reply.send(n),
//!             }
//!         }
//!     })?;
//!     let address = counter.address().clone();
//!     let asks = procession::coroutine::spawn_coroutine(move |cx: coroutine::Context<()>| {
//!         for k in 1..=10 {
//!             cx.sleep(Duration::from_micros(1));
//!             address.send(Count::Add(k)).expect("it is there");
//!         }
//!         cx.call(&address, Count::Get, Duration::from_secs(1))
//!     })?;
//!     Ok::<_, Box<dyn std::error::Error>>(asks.await??)
//! })?;
//! assert_eq!(total, 55);
//! # Ok(())
//! # }
//! ```
//!
//! # Where coroutines run
//!
//! One that has not begun is a closure in a queue, without a stack, and any worker may take it. The
//! worker that first resumes it keeps it: so addresses of thread-locals, values that are not
//! `Send`, `errno` and lock guards stay right on its stack. A worker that has many more of them
//! than another gives new ones away before they begin; one that has some to go on with, which no
//! other can, leaves new ones to those that have none, for a while. What is bound to a worker that
//! computes or blocks for long waits.
//!
//! The [residual rule](procession_coroutine#the-residual-rule) in its three parts cannot be
//! checked, and is what
//! [`Builder::enable_coroutines`](crate::Builder::enable_coroutines) makes you promise.
//!
//! # Ends
//!
//! | what happens | what becomes of the coroutine |
//! |---|---|
//! | it returns | its result, as of every process |
//! | it panics | its stack is unwound, [`Exit::Panicked`](crate::Exit::Panicked) |
//! | it is cancelled or terminated below a frame that cannot be unwound, as one of C | the program aborts: keep such frames in [`no_suspend`] |
//! | it is cancelled | [`recv`](Context::recv) answers `None` once the mailbox is empty; where it waits for anything else, or comes to, its stack is unwound, on its worker: [`Exit::Shutdown`](crate::Exit::Shutdown). Inside [`shield`] it is not |
//! | it is terminated, also by the deadline of a shutdown or because its scheduler was dropped | its stack is unwound, on its worker, whatever it waits for but [`blocking`]: [`Exit::Killed`](crate::Exit::Killed) |
//! | it catches the unwinding and waits again | it is unwound again, a hundred times; then its stack is leaked and its worker's thread never ends: [`Exit::Killed`](crate::Exit::Killed) |
//! | it is unwound in a program that aborts on panics | likewise leaked, when terminated; when cancelled, it goes on until it returns or is terminated (`examples/aborting`) |
//! | it overflows its stack | a report names it and where it was spawned, and the program aborts |
//!
//! Code that catches panics should let those that [`is_unwinding`] names go on.
//!
//! # Where a coroutine cannot be suspended
//!
//! While it panics or is unwound, inside [`no_suspend`] and [`blocking`](crate::blocking()), while
//! it drives another scheduler ([`callers_drive`](crate::Builder::callers_drive)), and inside the
//! `poll` of a future that it waits for, what would suspend it blocks its worker's thread instead:
//! the frames below count on nothing else running on that thread meanwhile. Anything it waits for
//! there has to come from another thread. If all threads that the scheduler may have are blocked
//! already, waiting there panics.
//!
//! What runs in another scheduler that a coroutine drives runs outside of the coroutine.
//!
//! Called outside of coroutines, the functions of this module do what comes nearest: [`wait`],
//! [`sleep`] and [`yield_now`] block or yield the thread, [`Local`] is thread-local,
//! [`no_suspend`], [`shield`] and [`blocking`] just call, and [`suspend`] says that there is
//! nothing to suspend.

pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod context;
mod count;
#[expect(unsafe_code, reason = "the frame lies on the stack of the coroutine")]
pub(crate) mod frame;
pub(crate) mod helpers;
pub(crate) mod local;
mod migratable;
pub(crate) mod supply;
pub(crate) mod suspend;

pub use crate::api::entry::{Wait, spawn_coroutine};
pub use blocking::blocking;
pub use context::Context;
pub use local::Local;
pub use suspend::{NoCoroutine, Token, suspend, token};

use std::any::Any;
use std::future::Future;
use std::pin::{Pin as StdPin, pin};
use std::time::Duration;

use procession_coroutine::Unwinding;
use procession_sync::thread;

use crate::coroutine::frame::{Counted, Frame, Out, Quiet, current_step, frame, suspendable};
use crate::process::exit::Exiting;
use crate::scheduler::block_on;

/// Waits for a future, in the way of whoever calls: in a coroutine, it is suspended meanwhile; a
/// plain thread is parked.
///
/// # Blocking
/// Where a coroutine [cannot be suspended](self#where-a-coroutine-cannot-be-suspended), and in
/// async processes and state machines, this blocks the worker.
///
/// # Panics
/// With what the future panics with; and where this would block the last thread that the scheduler
/// may have ([`Builder::max_threads`](crate::Builder::max_threads)).
///
/// # Cancellation
/// A coroutine that was cancelled unwinds from here, if the future is not complete. One that is
/// terminated unwinds from here, too; the future is dropped by that.
#[inline]
pub fn wait<F: Future>(future: F) -> F::Output {
    // First of all: it is made where it is polled then, and not copied (`co_channel_1`: 77 ns
    // instead of 96). Where the thread blocks, it is dropped after the blocking section.
    let future = pin!(future);
    match suspendable() {
        Some(frame) => frame.wait(future),
        None => block(future),
    }
}

/// Not inlined, as `current`.
#[cold]
#[inline(never)]
fn block<F: Future>(future: StdPin<&mut F>) -> F::Output {
    block_on::block_thread_on(&crate::scheduler::owner::here(), future)
}

/// Whether a coroutine runs here.
pub fn is_coroutine() -> bool {
    frame().is_some()
}

/// Whether a coroutine runs here that can be suspended now.
pub fn may_suspend() -> bool {
    suspendable().is_some()
}

/// Waits for `duration`. Blocks, panics, and unwinds as [`wait`] does.
pub fn sleep(duration: Duration) {
    wait(crate::sleep(duration));
}

/// Gives way: all that is ready on this worker runs before the coroutine goes on. Unwinds as
/// [`wait`] does; where the coroutine cannot be suspended, and outside of coroutines, the thread
/// gives way to others of the system.
#[inline(always)]
pub fn yield_now() {
    match suspendable() {
        Some(frame) => {
            frame.give_way();
            frame.unwind_if_cancelled();
            frame.suspend(Out::Waits);
        }
        None => thread::yield_now(),
    }
}

/// Calls `function`, in which nothing suspends the coroutine: what would, blocks the thread. For
/// code that keeps a thread-local pointer to its own frame, and for locks of `std` around something
/// that may wait.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::coroutine;
/// use procession::coroutine::spawn_coroutine;
///
/// let child = scheduler.block_on(async {
///     spawn_coroutine(|_: coroutine::Context<()>| coroutine::no_suspend(coroutine::may_suspend)).expect("they are enabled").await
/// });
/// assert_eq!(child, Ok(false));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub fn no_suspend<R>(function: impl FnOnce() -> R) -> R {
    let _quiet = Quiet::begin();
    function()
}

/// Calls `function`, in which a cancel does not unwind the coroutine: for cleaning up that has to
/// wait. It can still be terminated. A cancel that came meanwhile unwinds the coroutine where it
/// waits next.
pub fn shield<R>(function: impl FnOnce() -> R) -> R {
    let _shield = frame().map(|frame| Counted::up(&frame.shields));
    function()
}

/// Whether a panic payload is no error but the unwinding of a process that ends: it should go on
/// ([`resume_unwind`](std::panic::resume_unwind)).
pub fn is_unwinding(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Exiting>() || payload.is::<Unwinding>()
}

impl Frame {
    /// Asks for the step to be followed by another. Not inlined, as `poll`.
    #[inline(never)]
    fn give_way(&self) {
        // SAFETY: [frame] it is the step's, which is suspended below.
        crate::scheduler::budget::give_way(unsafe { &*current_step().task });
    }
}
