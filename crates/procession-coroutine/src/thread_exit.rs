//! Threads that coroutines keep.
//!
//! A frame on a coroutine's stack may have lent one of its thread's locals to another thread (a scope waits for that thread, and the
//! scope's frame is on the stack). If the thread ended first, the local would be gone. So a thread that has started coroutines which have not
//! ended does not end.
//!
//! This is a net below the contract of `Coroutine::new`, not a proof: a local that was first
//! touched after [`begin`] is destroyed before [`KEEPER`] makes the thread wait, and the main
//! thread ends with the program.

use std::cell::Cell;

thread_local! {
    /// Started here, and not ended.
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static KEEPER: Keeper = const { Keeper };
    /// Touched first when a coroutine turns out to be stuck, so that it is destroyed before what was touched up to then.
    static LATE_KEEPER: Keeper = const { Keeper };
}

struct Keeper;

impl Drop for Keeper {
    fn drop(&mut self) {
        // Locals are destroyed the last touched first. What is destroyed before this was touched after the first coroutine began.
        while LIVE.try_with(Cell::get).unwrap_or(0) > 0 && !is_main() {
            procession_sync::thread::park();
        }
    }
}

/// The main thread ends with the program, and every other thread with it.
fn is_main() -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // SAFETY: it has no preconditions.
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

/// A coroutine begins on this thread.
#[inline]
pub(crate) fn begin() {
    LIVE.with(|live| {
        if live.get() == 0 {
            KEEPER.with(|_| {});
        }
        live.set(live.get() + 1);
    });
}

/// A coroutine of this thread has ended.
#[inline]
pub(crate) fn end() {
    // While the thread's locals are destroyed there is nothing to keep any more.
    let _ = LIVE.try_with(|live| live.set(live.get().saturating_sub(1)));
}

/// A coroutine of this thread will never end.
pub(crate) fn stuck() {
    let _ = LATE_KEEPER.try_with(|_| {});
}
