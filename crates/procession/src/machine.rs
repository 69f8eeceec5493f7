//! State machines: processes that are called with events, and the commands that processes yield.
//!
//! A state machine implements [`Process`].
//! [`SpawnOptions::try_start_machine`](crate::SpawnOptions::try_start_machine) starts it. For
//! example, this state machine counts messages until a cancel:
//!
//! ```
//! use std::error::Error;
//! use procession::SpawnOptions;
//! use procession::machine::{Events, InitError, Process, Status, WaitingFor, Yields};
//! use procession::mailbox::Event;
//!
//! struct Counter(u64);
//!
//! impl Process for Counter {
//!     type Input = ();
//!     type Message = &'static str;
//!     type Output = u64;
//!
//!     fn init(&mut self, _method: &str, (): ()) -> Result<(), InitError> {
//!         Ok(())
//!     }
//!
//!     fn step(
//!         &mut self,
//!         events: &mut Events<&'static str>,
//!         _yields: &mut Yields<'_>,
//!     ) -> Result<Status<u64>, Box<dyn Error + Send + Sync>> {
//!         for event in events {
//!             match event {
//!                 Event::Message(_) => self.0 += 1,
//!                 Event::Cancel => return Ok(Status::Done(self.0)),
//!                 _ => {}
//!             }
//!         }
//!         Ok(Status::Wait(WaitingFor::Messages))
//!     }
//! }
//!
//! procession::run(async {
//!     let counter = SpawnOptions::new().try_start_machine(Counter(0), "", ())?;
//!     counter.send("one")?;
//!     counter.send("two")?;
//!     counter.cancel();
//!     assert_eq!(counter.await, Ok(2));
//!     Ok::<(), Box<dyn Error>>(())
//! })?;
//! # Ok::<(), Box<dyn Error>>(())
//! ```
//!
//! # Commands
//! A [`Command`] is a request with a number and an output, which a handler of the scheduler serves.
//! A scheduler knows the handler by
//! [`Builder::command`](crate::scheduler::Builder::command). A state machine issues commands by
//! [`Yields::perform`], and receives their completions as
//! [`Event::Completion`](crate::mailbox::Event::Completion). An async process or a coroutine awaits
//! [`perform`].
//!
//! Untyped commands, for guests such as interpreters, are a [`CommandId`] and a [`Value`]. Their
//! [`Handler`] receives a [`Completion`].

#[doc(inline)]
pub use procession_runtime::command::{
    AsyncWork, BlockingWork, Command, CommandError, CommandId, CommandResult, Completion, Done,
    Handler, SendParcel, SpawnProcess, Value, command, perform,
};
#[doc(inline)]
pub use procession_runtime::machine::{
    Events, InitError, Process, Status, Successor, WaitingFor, Yields, is_awaited, is_terminated,
    processor_time,
};
