//! The bridge to tokio: a runtime of its, in whose context a scheduler's threads work.
//!
//! A future that needs tokio asks a thread-local for its runtime, when it is polled or dropped, and registers its sockets and timers
//! there. So each thread of the scheduler enters the runtime once, when it begins, and not for each step. Coroutines run on top of that, on
//! stacks of their own: the guard is never on one of these, and so never leaves its thread.
//!
//! The runtime outlives the processes, whose `Drop`s may still need it, and the last owner of the scheduler, who may still block on a
//! future. It is never waited for: whoever drops the last of the two may be one of its own threads.

mod compat;
pub(crate) mod runtime;

pub use self::compat::{Compat, CompatError, compat};
