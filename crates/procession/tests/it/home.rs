//! Threads, channels and blocking sockets of std. `simulated.rs`, which includes the modules of all
//! rooms, has simulated ones.
#![allow(dead_code, unused_imports, reason = "each room uses some of these")]

pub(crate) use std::sync::{Barrier, mpsc};
pub(crate) use std::thread;

pub(crate) mod net {
    pub(crate) use std::net::TcpStream;
    pub(crate) use std::os::unix::net::UnixStream;
}

/// Lets other threads run, where they do not do so by themselves.
pub(crate) fn others_may_run() {}

/// Blocks in the kernel for up to this time.
pub(crate) fn block(longest: std::time::Duration) {
    thread::park_timeout(longest);
}

/// Returns the seed of a test that draws its input.
pub(crate) fn seed() -> u64 {
    fastrand::u64(..)
}
