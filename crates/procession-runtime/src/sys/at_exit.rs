//! A function that runs at the end of the program.
//!
//! ## Invariants
//! - `[plain]` The function has no environment, and is there as long as the code of the program is.

/// Lets `call` run on the thread that ends the program in order: after `main` has returned, or in
/// [`exit`](std::process::exit). The locals of that thread may be gone by then.
pub(super) fn at_exit(call: extern "C" fn()) {
    // Ignored: without memory for one more entry, the program ends without the call.
    // SAFETY: [plain] `call` is a function.
    let _ = unsafe { libc::atexit(call) };
}
