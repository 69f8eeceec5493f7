//! The protocol of the pools, built for its models under the cfg `procession_loom`.
//!
//! These are the same files as in `procession`, without the runtime around them: threads, sockets
//! and coroutines do not exist under loom. Without the cfg this crate is empty.
#![cfg(procession_loom)]
#![expect(dead_code, unreachable_pub, reason = "without the runtime, only the models use them")]

#[path = "../../procession/src/pool"]
mod pool {
    pub(crate) mod state;
}
