//! HTTP with [hyper](https://docs.rs/hyper).
//!
//! The feature `hyper` adds what hyper needs from a runtime: `Executor`, `Timer`, and hyper's I/O
//! traits for the streams of `net`. The feature `serve` adds `Server`, which serves tower services
//! such as an axum `Router`. The feature `client` adds `Connector`, with which the client of
//! hyper-util runs on processes, and `TracedClient`, which sends trace contexts on.
//!
//! For example, this server answers the health checks of a load balancer. A service passes its
//! pages, such as an axum `Router`, instead of `NotFound`:
//!
//! ```
//! # #[cfg(feature = "serve")] {
//! use procession::http::{HealthChecks, NotFound, Server};
//! use procession::net::{TcpListener, TcpStream};
//! use procession::{Context, start};
//!
//! procession::run(async {
//!     let listener = TcpListener::bind("127.0.0.1:0").await?;
//!     let client = TcpStream::connect(listener.local_addr()?).await?;
//!     let server = Server::new().serve(listener, HealthChecks::around(NotFound));
//!     // `start` and not `spawn`, so that a cancel lets it answer what has begun.
//!     let server = start(|_: Context<()>| server);
//!
//!     client.write_all(b"GET /healthz HTTP/1.1\r\nhost: me\r\n\r\n").await?;
//!     let mut status = [0; 15];
//!     client.read_exact(&mut status).await?;
//!     assert_eq!(&status, b"HTTP/1.1 200 OK");
//!     server.cancel();
//!     Ok::<(), std::io::Error>(())
//! })?;
//! # }
//! # Ok::<(), std::io::Error>(())
//! ```

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
