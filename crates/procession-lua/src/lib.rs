//! Processes written in Lua 5.4.
//!
//! A [`Program`] is a Lua source. A [`Guest`] is a process of it: a state machine with a Lua state of its own, whose entry point is a
//! global function of the program. What it sends is copied ([`Value`]). `docs/LUA.md` is the reference of what programs may call.
//!
//! ```
//! use procession_lua::{Program, Value};
//!
//! let program = Program::load("double", "function double(n) return 2 * n end")?;
//! let doubled = procession::run(async { program.spawn("double", [Value::Integer(21)])?.await.map_err(procession_lua::Error::from) })?;
//! assert_eq!(doubled, Value::Integer(42));
//! # Ok::<(), procession_lua::Error>(())
//! ```
//!
//! What programs print goes through an [`Output`], so that a slow reader suspends the processes that
//! print and blocks no worker.
#![cfg(not(procession_loom))]
#![forbid(unsafe_code)]

mod guest;
mod json;
mod library;
mod net;
mod output;
mod program;
mod value;

pub use guest::{Guest, Message};
pub use output::Output;
pub use program::{Error, Program};
pub use value::{CopyError, Socket, Value};
