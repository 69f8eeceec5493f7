//! The process of the system that runs this code, as opposed to a child that it forks.
//!
//! ## Invariants
//! - `[plain]` The function has no environment, and is there as long as the code of the program is.

use std::process;
use std::sync::OnceLock;

use procession_sync::atomic::AtomicU32;
use procession_sync::atomic::Ordering::Relaxed;

/// Number of forks from the process that asked first to this process.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// A process of the system. A child of `fork` is another one: it has the memory of its parent, but
/// neither its threads nor its descriptors of `epoll`. So is a child of `vfork`, which runs in the
/// memory of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SystemProcess {
    /// The only sign of a child of `vfork`, in which no function of `pthread_atfork` is called.
    pid: u32,
    /// A parent and its child may have the same PID: each is the first of its own PID namespace.
    forks: u32,
}

impl SystemProcess {
    /// Returns the process of the caller. Two answers can be compared if the first was given before
    /// the fork.
    pub(crate) fn this() -> Self {
        static COUNTS: OnceLock<()> = OnceLock::new();
        COUNTS.get_or_init(|| {
            // Ignored: without memory for one more entry, only the PID tells.
            // SAFETY: [plain] `count_fork` is a function, which a child of a program with threads
            // may call.
            let _ = unsafe { libc::pthread_atfork(None, None, Some(count_fork)) };
        });
        // Relaxed: a child has a single thread when it counts.
        Self { pid: process::id(), forks: FORKS.load(Relaxed) }
    }
}

/// Returns the process group of this process.
#[cfg(feature = "io")]
pub(crate) fn own_group() -> i32 {
    // SAFETY: it has no preconditions, and cannot fail.
    unsafe { libc::getpgrp() }
}

extern "C" fn count_fork() {
    FORKS.fetch_add(1, Relaxed);
}
