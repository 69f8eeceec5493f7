//! The places in which foreign code may suspend a coroutine.
//!
//! A signal handler runs on top of whatever the thread does, with its signal blocked. If it
//! suspended the coroutine, others would run with the signal blocked, and perhaps in the middle of
//! an allocation. The same holds for a coroutine that has blocked a signal by itself, as clients do
//! with SIGPIPE around a call. So the signal mask decides. It does not show a handler that was
//! installed with `SA_NODEFER` and an empty mask.
//!
//! ## Invariants
//! - `[mask]` A signal set is plain memory that the call fills.

use std::cell::Cell;
use std::mem::MaybeUninit;

use crate::scheduler::frame::suspendable;
use crate::sys::own_process::SystemProcess;

/// What foreign code may not change if it suspends a coroutine.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Surroundings {
    process: SystemProcess,
    /// The signals that the thread blocks.
    blocked: u64,
}

impl Surroundings {
    fn now() -> Self {
        Self { process: SystemProcess::this(), blocked: signal_mask() }
    }
}

thread_local! {
    /// The surroundings in which the first coroutine began on this thread.
    static FIRST: Cell<Option<Surroundings>> = const { Cell::new(None) };
}

/// Returns the signals that the calling thread blocks. The standard and the real-time signals fit.
fn signal_mask() -> u64 {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: [mask] without a new set, the call only writes the present one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), set.as_mut_ptr()) };
    // SAFETY: [mask] the set is larger than eight bytes, and all its bytes were zero before the
    // call.
    unsafe { set.as_ptr().cast::<u64>().read_unaligned() }
}

/// Notes the process, and which signals the thread blocks, unless it has done so before.
pub(crate) fn note_surroundings() {
    // Ignored, in the destructors of thread-locals: a thread that ends begins no coroutine.
    let _ = FIRST.try_with(|first| first.set(first.get().or_else(|| Some(Surroundings::now()))));
}

/// Returns `true` if code that the runtime does not know may suspend the coroutine here: it stays
/// on its thread, the thread blocks the signals that it blocked at first, and this is no forked
/// child, which has the memory of the runtime without its threads. Private: used by
/// `procession-hook`.
#[doc(hidden)]
pub fn may_suspend_foreign() -> bool {
    suspendable().is_some_and(|frame| frame.pinned)
        && FIRST.try_with(Cell::get).is_ok_and(|first| first == Some(Surroundings::now()))
}
