//! Behaviours, as OTP has them: loops that receive the messages of a process, and traits that
//! handle the messages.
//!
//! [`Server`] is OTP's `gen_server`: it handles messages, answers calls, and learns of the ends of
//! other processes. [`Statem`] is OTP's `gen_statem`: it handles each event in a state, can put an
//! event off until the next state, and has timeouts that end with the state.
//!
//! The messages of a behaviour are the messages of its process. A message with a
//! [`Reply`](crate::Reply) in it is a call, and the type of the reply is the type of the answer.
//!
//! A behaviour is run by any process with a mailbox, so it can be started with options, under a
//! supervisor, or under a name. A supervisor waits for the preparations of a child that is made by
//! [`ChildSpec::server`](crate::supervisor::ChildSpec::server) or
//! [`ChildSpec::statem`](crate::supervisor::ChildSpec::statem).
//!
//! ```
//! use std::time::Duration;
//! use procession::behaviour::{Server, ServerContext};
//! use procession::process::Named;
//! use procession::{Reply, SpawnOptions};
//!
//! struct Counter(u64);
//!
//! enum Count {
//!     Add(u64),
//!     Get(Reply<u64>),
//!     IsEven(Reply<bool>),
//! }
//!
//! impl Server for Counter {
//!     type Message = Count;
//!
//!     async fn handle(&mut self, message: Count, _: &mut ServerContext<Self>) {
//!         match message {
//!             Count::Add(n) => self.0 += n,
//!             Count::Get(reply) => reply.send(self.0),
//!             Count::IsEven(reply) => reply.send(self.0 % 2 == 0),
//!         }
//!     }
//! }
//!
//! procession::run(async {
//!     let counter = SpawnOptions::new().name("counter").start(|cx| Counter(0).serve(cx));
//!     let second = Duration::from_secs(1);
//!     counter.send(Count::Add(2))?;
//!     assert_eq!(counter.call(Count::Get, second).await?, 2);
//!     // The same, by name.
//!     let named = Named::new("counter");
//!     named.send(Count::Add(3))?;
//!     assert!(!named.call(Count::IsEven, second).await?);
//!     Ok::<(), Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub(crate) mod info;
pub(crate) mod server;
pub(crate) mod statem;

pub use self::info::Info;
pub use self::server::{Server, ServerContext};
pub use self::statem::{EnteredFrom, Statem, StatemContext, StatemEvent, Transition};
