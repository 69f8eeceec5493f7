//! The public interface, by area.
#![cfg(not(procession_loom))]
#![expect(
    clippy::type_complexity,
    clippy::redundant_async_block,
    clippy::borrowed_box,
    clippy::needless_range_loop,
    clippy::async_yields_async,
    reason = "tables of cases, and cases that are about just these types"
)]

/// Threads, channels and blocking sockets of std. `simulated.rs`, which includes these modules, has
/// simulated ones.
mod home {
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
}

mod basics;
mod beam;
mod behaviour;
mod blocked;
mod bounds;
#[cfg(feature = "tokio")]
mod bridge;
mod budget;
mod cancel;
mod channels;
mod children;
mod contracts;
mod copies;
mod coroutines;
#[cfg(feature = "observe")]
mod door;
mod ends;
#[cfg(feature = "metrics")]
mod facade;
mod fairness;
mod files;
mod group;
mod here;
mod hostile;
#[cfg(all(
    feature = "client",
    feature = "http2",
    feature = "serve",
    feature = "signal",
    feature = "tls",
    feature = "tokio-io"
))]
mod http;
mod idle;
mod key_value;
mod layers;
mod local;
mod look;
mod machines;
mod messages;
mod net;
mod order;
mod outcomes;
mod panics;
mod pool;
mod promises;
mod recorder;
mod refusals;
mod reports;
mod request_ids;
mod requests;
mod scene;
mod seeded;
mod select;
#[cfg(feature = "serde")]
mod serialize;
mod shutdown;
#[cfg(feature = "signal")]
mod signals;
mod sockets;
mod spawn;
mod stalls;
mod stress;
mod sync;
mod time;
