//! State machines: processes that are called with events, and the commands that processes yield.
//!
//! A state machine implements [`Process`].
//! [`SpawnOptions::try_start_machine`](crate::SpawnOptions::try_start_machine) starts it.
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
