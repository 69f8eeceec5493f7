//! Coroutines: processes written as straight-line code that blocks.
//!
//! A coroutine has a separate stack. While it waits, its stack stays as it is, and its worker runs
//! other processes. A coroutine can [`wait`] for everything that a process can await: messages,
//! sleeps, channels, locks, calls, the ends of other processes.
//!
//! ```
//! use std::time::Duration;
//! use procession::{Reply, Scheduler, SpawnOptions, coroutine};
//!
//! enum Count {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // SAFETY: none of the coroutines holds, across a suspension, a thread-local pointer that is
//! // scoped to a frame.
//! let scheduler = unsafe { Scheduler::builder().enable_coroutines() }.build()?;
//! let total = scheduler.block_on(async {
//!     let options = SpawnOptions::new();
//!     let counter = options.try_start_coroutine(|mut cx: coroutine::Context<Count>| {
//!         let mut n = 0;
//!         while let Some(message) = cx.recv() {
//!             match message {
//!                 Count::Add(k) => n += k,
//!                 Count::Get(reply) => reply.send(n),
//!             }
//!         }
//!     })?;
//!     let address = counter.address().clone();
//!     let options = SpawnOptions::new();
//!     let asks = options.try_start_coroutine(move |_: coroutine::Context<()>| {
//!         for k in 1..=10 {
//!             coroutine::sleep(Duration::from_micros(1));
//!             address.send(Count::Add(k)).expect("it is there");
//!         }
//!         coroutine::wait(address.call(Count::Get, Duration::from_secs(1)))
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
//! A coroutine that has not begun is a closure in a queue, without a stack, and any worker may take
//! it. The worker that first resumes it keeps it. Therefore addresses of thread-locals, values that
//! are not `Send`, `errno` and guards of locks stay valid on its stack. Valid guards are not enough
//! to hold a [lock](#locks) during a wait.
//!
//! Workers balance new coroutines before they begin. If a worker has many more coroutines than
//! another worker, it hands new coroutines to that worker. A coroutine that has begun cannot move
//! to another worker. So a worker with begun coroutines to run leaves new coroutines for a while to
//! workers without coroutines. A coroutine that is bound to a worker waits while that worker
//! computes or blocks.
//!
//! The [residual rule](procession_coroutine#the-residual-rule) has three parts, which no compiler
//! can check. [`Builder::enable_coroutines`](crate::Builder::enable_coroutines) asks you to promise
//! them.
//!
//! # Locks
//!
//! Do not wait while you hold a lock of std, such as a `Mutex`, or inside the initialisation of a
//! `OnceLock`. The lock stays locked while the coroutine is suspended. If another coroutine of the
//! same worker asks for it, that coroutine blocks the thread of the worker. Only this thread can
//! resume the first coroutine, so the lock is never released, and no coroutine that has begun on
//! the worker continues. The same holds for locks of other crates and of C.
//!
//! Such a deadlock is not reported as a cycle of waits, because a lock of std does not name its
//! holder. The watchdog reports it as a [stall](crate::Builder::on_stall): the step of the
//! coroutine that asks for the lock is blocked, and [`Stall::held_up`](crate::snapshot::Stall) is
//! the number of coroutines of the worker that can no longer run, the holder among them.
//!
//! Instead, do one of the following:
//!
//! - Release the lock before the wait, so that other code can take it.
//! - Use [`sync::Mutex`](crate::sync::Mutex) or [`sync::OnceCell`](crate::sync::OnceCell), which
//!   suspend coroutines that ask for the lock.
//! - Wait inside [`no_suspend`]. The worker's thread then blocks, so no other coroutine of the
//!   worker asks for the lock.
//!
//! # Ends
//!
//! [`OnCancel`](crate::OnCancel) compares this with other kinds of processes.
//!
//! A coroutine
//!
//! - *returns*: it ends with its result, like every process.
//! - *panics*: its stack is unwound ([`Exit::Panicked`](crate::Exit::Panicked)).
//! - *is cancelled*: [`recv`](Context::recv) returns `None` once the mailbox is empty, and
//!   [`cancelled`](crate::cancelled()) resolves. If the coroutine waits for anything else, now or
//!   later, its stack is unwound, on its worker ([`Exit::Shutdown`](crate::Exit::Shutdown)). Inside
//!   [`shield`] it is not unwound. If it was spawned with
//!   [`OnCancel::Drop`](crate::OnCancel::Drop), it is unwound as if it were terminated, but also
//!   with [`Exit::Shutdown`](crate::Exit::Shutdown).
//! - *is terminated*, for example by the deadline of a shutdown, or because its scheduler was
//!   dropped: its stack is unwound, on its worker, whatever it waits for except [`blocking`]
//!   ([`Exit::Killed`](crate::Exit::Killed)).
//! - *is cancelled or terminated while it waits below a frame that cannot be unwound*, for example
//!   a frame of C: if it waits in [`try_wait`](try_wait()) or [`wait_fd`](wait_fd()), this wait
//!   returns, and so does each later wait, up to a hundred times. Then its stack is leaked
//!   ([`Exit::Killed`](crate::Exit::Killed)). If it waits for anything else, the program aborts:
//!   keep such frames in [`no_suspend`].
//! - *loses its thread*, because it began on a thread that [drives](crate::Builder::callers_drive)
//!   its scheduler, and that thread ends: its stack is unwound on that thread, as if it were
//!   terminated ([`Exit::ThreadEnded`](crate::Exit::ThreadEnded)).
//! - *catches the unwinding and waits again*: it is unwound again, up to a hundred times. Then its
//!   stack is leaked, and its worker's thread never ends ([`Exit::Killed`](crate::Exit::Killed)).
//! - *overflows its stack*: a report names the coroutine and the place where it was spawned, and
//!   the program aborts.
//!
//! In a program that aborts on panics, nothing is unwound. A terminated coroutine is leaked, and
//! its worker's thread never ends. A cancelled coroutine continues until it returns or is
//! terminated (`examples/aborting`).
//!
//! Code that catches panics should resume a panic if [`is_unwinding`] returns `true` for its
//! payload.
//!
//! # Where a coroutine cannot be suspended
//!
//! In these places, an operation that would suspend the coroutine blocks its worker's thread
//! instead, because the frames below rely on nothing else running on that thread before they
//! continue:
//! - while the coroutine panics or is unwound,
//! - inside [`no_suspend`] and [`blocking`](crate::blocking()),
//! - while it drives another scheduler ([`callers_drive`](crate::Builder::callers_drive)),
//! - inside the `poll` of a future that it waits for.
//!
//! Whatever the coroutine waits for there must come from another thread. If all threads that the
//! scheduler may have are blocked already, waiting there panics.
//!
//! The processes of another scheduler that a coroutine drives run outside of the coroutine.
//!
//! Outside of coroutines, the functions of this module do the nearest equivalent: [`wait`],
//! [`sleep`] and [`yield_now`] block or yield the thread, [`Local`] is thread-local,
//! [`no_suspend`], [`shield`] and [`blocking`] only call their function, and [`suspend`] returns an
//! error.

pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod context;
mod count;
mod expiry;
#[expect(unsafe_code, reason = "the signal mask has no safe interface")]
mod foreign;
pub(crate) mod local;
mod migratable;
mod stack;
pub(crate) mod suspend;
mod try_wait;
mod wait_fd;

pub use crate::api::entry::Wait;
pub use blocking::blocking;
#[doc(hidden)]
pub use blocking::blocking_foreign;
pub use context::Context;
#[doc(hidden)]
pub use foreign::may_suspend_foreign;
pub use local::Local;
pub use suspend::{Token, suspend, token};
pub use try_wait::{Interrupted, try_wait};
#[doc(hidden)]
pub use wait_fd::HeldFd;
pub use wait_fd::{FdWait, Interest, wait_fd};

use std::any::Any;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use procession_coroutine::Unwinding;

use crate::process::exit::Exiting;
use crate::scheduler::block_on;
use crate::scheduler::checkpoint::is_due;
use crate::scheduler::frame::{Counted, Frame, Out, Quiet, current_step, frame, suspendable};
use crate::sys::yield_thread;

/// Waits for a future, by suspending the coroutine, or by parking a plain thread.
///
/// # Blocking
/// Blocks the worker where a coroutine [cannot be
/// suspended](self#where-a-coroutine-cannot-be-suspended), and in async processes and state
/// machines.
///
/// # Panics
/// Panics if the future panics, and if this would block the last thread that the scheduler may have
/// ([`Builder::max_threads`](crate::Builder::max_threads)).
///
/// # Cancellation
/// If the coroutine is cancelled and the future is not complete, or if the coroutine is terminated,
/// it unwinds from here. Unwinding drops the future.
#[inline]
#[track_caller]
pub fn wait<F: Future>(future: F) -> F::Output {
    // Pinned first: the future is then made in the place where it is polled, and not copied
    // (`co_channel_1`: 77 ns instead of 96). Where the thread blocks, it is dropped after the
    // blocking section.
    let future = pin!(future);
    match suspendable() {
        Some(frame) => frame.wait(future),
        None => block(future),
    }
}

/// Not inlined, for the reason given at `current_step`.
#[cold]
#[inline(never)]
fn block<F: Future>(future: Pin<&mut F>) -> F::Output {
    block_on::block_thread_on(&crate::scheduler::owner::here(), future)
}

/// Returns `true` if the caller runs in a coroutine.
pub fn is_coroutine() -> bool {
    frame().is_some()
}

/// Returns `true` if the caller runs in a coroutine that can be suspended now.
pub fn may_suspend() -> bool {
    suspendable().is_some()
}

/// Waits for `duration`. Blocks, panics and unwinds as [`wait`] does.
#[track_caller]
pub fn sleep(duration: Duration) {
    wait(crate::sleep(duration));
}

/// Yields: everything that is ready on this worker runs before the coroutine continues.
///
/// Unwinds as [`wait`] does. Where the coroutine cannot be suspended, and outside of coroutines,
/// the thread yields to other threads of the system.
#[inline(always)]
pub fn yield_now() {
    match suspendable() {
        Some(frame) => {
            frame.yield_step();
            frame.unwind_if_cancelled();
            frame.suspend(Out::Waits);
        }
        None => yield_thread(),
    }
}

/// Yields if somebody waits for the worker, and is nearly free otherwise. See
/// [`checkpoint`](crate::checkpoint()), which is the same for async code.
///
/// Unwinds as [`wait`] does. Where the coroutine cannot be suspended, and outside of coroutines,
/// this does nothing.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::{SpawnOptions, coroutine};
///
/// let sum = scheduler.block_on(async {
///     let adds = |_: coroutine::Context<()>| {
///         (0..1_000_000_u64).inspect(|_| coroutine::checkpoint()).sum::<u64>()
///     };
///     SpawnOptions::new().try_start_coroutine(adds).expect("they are enabled").await
/// });
/// assert_eq!(sum, Ok(499_999_500_000));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
#[inline]
pub fn checkpoint() {
    if is_due() && may_suspend() {
        yield_now();
    }
}

/// Calls `function`, in which nothing suspends the coroutine: an operation that would suspend it
/// blocks the thread.
///
/// Use it for code that keeps a thread-local pointer to its own frame, and where a lock of `std` is
/// held around an operation that may wait.
///
/// ```
/// # let scheduler = unsafe { procession::Scheduler::builder().enable_coroutines() }.build()?;
/// use procession::{SpawnOptions, coroutine};
///
/// let child = scheduler.block_on(async {
///     let look = |_: coroutine::Context<()>| coroutine::no_suspend(coroutine::may_suspend);
///     SpawnOptions::new().try_start_coroutine(look).expect("they are enabled").await
/// });
/// assert_eq!(child, Ok(false));
/// # Ok::<(), procession::scheduler::BuildError>(())
/// ```
pub fn no_suspend<R>(function: impl FnOnce() -> R) -> R {
    let _quiet = Quiet::begin();
    function()
}

/// Calls `function`, in which a cancel does not unwind the coroutine. Use it for clean-up that must
/// wait.
///
/// The coroutine can still be terminated. If it is cancelled during the call, it unwinds where it
/// next waits.
pub fn shield<R>(function: impl FnOnce() -> R) -> R {
    let _shield = frame().map(|frame| Counted::up(&frame.shields));
    function()
}

/// Returns `true` if a panic payload is not an error but the unwinding of a process that ends. Such
/// a payload should be resumed ([`resume_unwind`](std::panic::resume_unwind)).
pub fn is_unwinding(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Exiting>() || payload.is::<Unwinding>()
}

/// Returns `true` if a panic payload unwinds a coroutine because its process ends, and not because
/// the code in it wishes to end.
pub(crate) fn is_unwound(payload: &(dyn Any + Send)) -> bool {
    let has_ended = |frame: &Frame| frame.slot().state.see().is_terminated();
    payload.is::<Unwinding>() || payload.is::<Exiting>() && frame().is_some_and(has_ended)
}

impl Frame {
    /// Requests another step after this one. Not inlined, for the reason given at `poll`.
    #[inline(never)]
    pub(crate) fn yield_step(&self) {
        // SAFETY: [frame] the task is the step's, and the coroutine is suspended only below.
        crate::scheduler::budget::yield_step(unsafe { &*current_step().task });
    }

    /// Unwinds the coroutine, which was cancelled, unless the future is complete. See
    /// [`poll_last`](Self::poll_last).
    #[cold]
    pub(crate) fn poll_cancelled<F: Future + ?Sized>(
        &self,
        future: Pin<&mut F>,
        is_late: bool,
    ) -> Option<F::Output> {
        match self.poll_last(future, is_late)? {
            Poll::Ready(output) => return Some(output),
            Poll::Pending => self.unwind_cancelled(),
        }
        None
    }

    /// Polls a future once more before a cancel ends its wait: the cancel may have come after the
    /// last poll. If the step has spent its budget, returns `None`, and the next step calls this
    /// with `is_late`. As in the last poll of a timeout, the budget is fresh.
    #[cold]
    #[inline(never)]
    pub(crate) fn poll_last<F: Future + ?Sized>(
        &self,
        future: Pin<&mut F>,
        is_late: bool,
    ) -> Option<Poll<F::Output>> {
        let has_time = !is_late && !self.slot().state.see().is_terminated();
        if has_time && crate::scheduler::budget::is_spent() {
            self.yield_step();
            return None;
        }
        Some(crate::scheduler::budget::with_fresh(|| self.poll(future)))
    }
}
