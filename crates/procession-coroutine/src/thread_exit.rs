//! Threads that do not end before their coroutines.
//!
//! A frame on a coroutine's stack may have lent one of its thread's locals to another thread. A
//! scope would wait for that thread, and the scope's frame is on the stack of the coroutine. If the
//! first thread ended now, the local would be gone. Therefore a thread does not end while
//! coroutines that it started have not ended.
//!
//! This is a safety net below the contract of `Coroutine::new`, not a proof. A local that was first
//! used after [`begin`] is destroyed before [`EXIT_BLOCKER`] makes the thread wait, and the main
//! thread ends with the program.

use std::cell::Cell;

thread_local! {
    /// The number of coroutines that this thread started and that have not ended.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static EXIT_BLOCKER: ExitBlocker = const { ExitBlocker };
    /// Used for the first time when a coroutine turns out to be stuck. It is then destroyed before
    /// all locals that were used up to that time.
    static LATE_EXIT_BLOCKER: ExitBlocker = const { ExitBlocker };
}

struct ExitBlocker;

impl Drop for ExitBlocker {
    fn drop(&mut self) {
        // Locals are destroyed in the reverse order of their first use. All locals destroyed before
        // this one were first used after the first coroutine began.
        while LIVE.try_with(Cell::get).unwrap_or(0) > 0 && !is_main() {
            procession_sync::thread::park();
        }
    }
}

/// Returns `true` on the main thread, which ends with the program and all other threads.
fn is_main() -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // SAFETY: this call has no preconditions.
        let process = unsafe { libc::getpid() };
        // SAFETY: this call has no arguments.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) };
        libc::c_long::from(process) == thread
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        procession_sync::thread::current().name() == Some("main")
    }
}

/// Records that a coroutine begins on this thread.
#[inline]
pub(crate) fn begin() {
    LIVE.with(|live| {
        if live.get() == 0 {
            // Refused once the blocker was destroyed: then the thread waits for nothing any more.
            let _ = EXIT_BLOCKER.try_with(|_| {});
        }
        live.set(live.get() + 1);
    });
}

/// Records that a coroutine of this thread has ended.
#[inline]
pub(crate) fn end() {
    // While the thread's locals are destroyed, there is nothing to wait for any more.
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(1)));
}

/// Records that a coroutine of this thread will never end.
pub(crate) fn stuck() {
    let _ = LATE_EXIT_BLOCKER.try_with(|_| {});
}
