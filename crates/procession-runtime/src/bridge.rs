//! The bridge to tokio: a tokio runtime, and the threads of a scheduler inside its context.
//!
//! A future that needs tokio looks up the runtime in a thread-local when it is polled or dropped,
//! and registers its sockets and timers there. Each thread of the scheduler therefore enters the
//! runtime once, when it begins, and not for each step. Coroutines run on separate stacks. The
//! guard is on the thread's own stack and never on the stack of a coroutine, so it never leaves its
//! thread.
//!
//! The runtime must outlive the processes, since dropping their futures may still need it. It must
//! also outlive the last owner of the scheduler, since that owner may still block on a future.
//! Stopping the runtime never waits for it, because the thread that drops the last of the two may
//! be a thread of the runtime.
//!
//! On the test clock, the runtime has no threads, and its clock moves together with the scheduler's
//! clock (`bridge/paused.rs`).

mod compat;
pub(crate) mod part;
pub(crate) mod paused;
pub(crate) mod program;
pub(crate) mod quiet;
pub(crate) mod runtime;
pub(crate) mod threads;

pub use self::compat::{Compat, CompatError, compat};
