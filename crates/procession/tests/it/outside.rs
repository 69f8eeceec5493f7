//! Time, sockets, files, HTTP, signals and other programs.
#![expect(
    clippy::type_complexity,
    clippy::needless_range_loop,
    clippy::async_yields_async,
    reason = "tables of cases, and cases that are about just these types"
)]

#[macro_use]
extern crate procession_sim_attribute;

#[cfg(feature = "tokio")]
mod bridge;
mod children;
mod files;
mod home;
#[cfg(all(
    feature = "client",
    feature = "http2",
    feature = "serve",
    feature = "signal",
    feature = "tls",
    feature = "tokio-io"
))]
mod http;
mod key_value;
mod net;
#[cfg(feature = "tokio")]
mod paused;
#[allow(dead_code, reason = "each room uses some of it")]
mod scene;
#[cfg(feature = "signal")]
mod signals;
mod simulated;
mod sockets;
mod time;
