//! HTTP with [hyper](https://docs.rs/hyper), for processes.
//!
//! This is an inner crate of `procession`, and makes no promise of stability: any version may
//! change or remove any item. Depend on `procession` instead, because its module `http` has the
//! same items.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(feature = "client")]
mod client;
#[cfg(any(feature = "serve", feature = "client"))]
mod error;
#[cfg(feature = "serve")]
mod health;
#[cfg(any(
    all(feature = "serve", not(feature = "http2")),
    all(any(feature = "client", feature = "serve"), not(feature = "tls"))
))]
mod missing_features;
mod rt;
#[cfg(feature = "serve")]
mod server;
#[cfg(feature = "tls")]
mod tls;
#[cfg(any(feature = "serve", feature = "client"))]
mod trace;

#[cfg(feature = "client")]
pub use self::client::{Connected, Connector};
#[cfg(any(feature = "serve", feature = "client"))]
pub use self::error::Error;
#[cfg(feature = "serve")]
pub use self::health::{HealthBody, HealthChecks, HealthFuture, NotFound};
pub use self::rt::{Executor, Timer};
#[cfg(feature = "serve")]
pub use self::server::{Listener, Peer, RequestBody, Server, serve, serve_connection};
#[cfg(feature = "client")]
pub use self::trace::TracedClient;
