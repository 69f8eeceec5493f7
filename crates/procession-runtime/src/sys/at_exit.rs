//! Functions that run at the end of the program.
//!
//! ## Invariants
//! - `[plain]` The function has no environment, and is there as long as the code of the program is.

use std::sync::OnceLock;

use procession_sync::Mutex;

use super::own_process::SystemProcess;

/// The functions that have not run yet.
static CALLS: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// The program that registered functions. A child of `fork` runs none, because it has no threads to
/// wait for, and the files of its parent are in use.
static PROGRAM: OnceLock<SystemProcess> = OnceLock::new();

/// Lets `call` run on the thread that ends the program in order: after `main` has returned, or in
/// [`exit`](std::process::exit). The locals of that thread may be gone by then. The latest function
/// runs first.
pub(super) fn at_exit(call: fn()) {
    CALLS.lock().push(call);
    PROGRAM.get_or_init(|| {
        // Ignored: without memory for one more entry, the program ends without the calls.
        // SAFETY: [plain] `run` is a function.
        let _ = unsafe { libc::atexit(run) };
        SystemProcess::this()
    });
}

extern "C" fn run() {
    // Asks nothing if the program had not noted itself when it forked, because another thread may
    // have been about to do so, and is not here.
    if PROGRAM.get().is_none_or(|program| *program != SystemProcess::this()) {
        return;
    }
    loop {
        // Not in the head of the loop, because the lock must be free while the function runs.
        let Some(call) = CALLS.lock().pop() else { return };
        call();
    }
}
