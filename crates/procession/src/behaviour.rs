//! Behaviours: loops that receive the messages of a process, and traits for what the process does
//! with them, as OTP has them.
//!
//! [`Server`] is OTP's `gen_server`: it answers calls, handles casts, and learns of the ends of
//! other processes. [`Statem`] is OTP's `gen_statem`: it handles each event in a state, can put an
//! event off until the next state, and has timeouts that end with the state.
//!
//! A behaviour is run by any process with a mailbox, so it can be started with options, under a
//! supervisor, or under a name. A supervisor waits for the preparations of a child that is made by
//! [`ChildSpec::server`](crate::supervisor::ChildSpec::server) or
//! [`ChildSpec::statem`](crate::supervisor::ChildSpec::statem).
//!
//! ```
//! use std::time::Duration;
//! use procession::behaviour::{Server, ServerContext};
//! use procession::{Reply, start};
//!
//! struct Counter(u64);
//!
//! impl Server for Counter {
//!     type Call = u64;
//!     type Answer = u64;
//!     type Cast = ();
//!
//!     async fn handle_call(&mut self, n: u64, reply: Reply<u64>, _: &mut ServerContext<Self>) {
//!         self.0 += n;
//!         reply.send(self.0);
//!     }
//! }
//!
//! procession::run(async {
//!     let counter = start(|cx| Counter(0).serve(cx));
//!     assert_eq!(counter.ask(2, Duration::from_secs(1)).await.ok(), Some(2));
//!     assert_eq!(counter.ask(3, Duration::from_secs(1)).await.ok(), Some(5));
//! });
//! ```

pub(crate) mod info;
pub(crate) mod server;
pub(crate) mod statem;

pub use self::info::Info;
pub use self::server::{Server, ServerContext, ServerMessage};
pub use self::statem::{EnteredFrom, Statem, StatemContext, StatemEvent, Transition};
