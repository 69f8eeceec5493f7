//! Threads, channels and blocking sockets. In a simulation they belong to it. Otherwise they are
//! those of std, behind the same types.
#![allow(dead_code, unused_imports, reason = "each room uses some of these")]

use std::cell::Cell;
use std::time::Duration;

pub(crate) use procession_sim::sync::Barrier;
pub(crate) use procession_sim::{mpsc, thread};

pub(crate) use crate::simulated::sockets as net;

use crate::simulated::is_simulated;

thread_local! {
    /// The seed that the run of a simulation has drawn, on its first thread.
    pub(super) static SEED: Cell<u64> = const { Cell::new(0) };
}

/// Lets other threads run, where they do not do so by themselves: in a simulation.
pub(crate) fn others_may_run() {
    if is_simulated() {
        thread::yield_now();
    }
}

/// Blocks in the kernel for up to this time, or for this time of a simulation.
pub(crate) fn block(longest: Duration) {
    if is_simulated() {
        #[expect(clippy::disallowed_methods, reason = "this is what the caller asks for")]
        thread::sleep(longest);
    } else {
        std::thread::park_timeout(longest);
    }
}

/// Returns the seed of a test that draws its input.
pub(crate) fn seed() -> u64 {
    if is_simulated() { SEED.get() } else { fastrand::u64(..) }
}
