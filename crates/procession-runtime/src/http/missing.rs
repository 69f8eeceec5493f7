//! The names of `http`, for the compiler's message if the feature `hyper` is off.
//!
//! The compiler remembers the names that a feature would have added to a module, and names the
//! feature to whoever uses them, but only if the module exists. So this module takes the place of
//! `http`. Each of its features implies `hyper`, so nothing here is ever compiled.

#[cfg(feature = "client")]
pub use self::client::{Connected, Connector};
#[cfg(feature = "serve")]
pub use self::server::{Listener, Peer, RequestBody, Server, serve, serve_connection};
#[cfg(feature = "hyper")]
pub use self::{Executor, Timer};
