//! HTTP with [hyper](https://docs.rs/hyper).
//!
//! The feature `hyper` adds what hyper needs from a runtime: `Executor`, `Timer`, and hyper's I/O
//! traits for the streams of `net`. The feature `serve` adds `Server`, which serves tower services
//! such as an axum `Router`. The feature `client` adds `Connector`, with which the client of
//! hyper-util runs on processes, and `TracedClient`, which sends trace contexts on.

// The module exists even if its features are off, because the compiler remembers the names that a
// feature would have added to a module. If a program uses such a name, the error message names the
// feature.

#[cfg(any(feature = "serve", feature = "client"))]
#[doc(inline)]
pub use procession_http::Error;
#[cfg(feature = "client")]
#[doc(inline)]
pub use procession_http::{Connected, Connector, TracedClient};
#[cfg(feature = "hyper")]
#[doc(inline)]
pub use procession_http::{Executor, Timer};
#[cfg(feature = "serve")]
#[doc(inline)]
pub use procession_http::{
    HealthBody, HealthChecks, HealthFuture, Listener, NotFound, Peer, RequestBody, Server, serve,
    serve_connection,
};
