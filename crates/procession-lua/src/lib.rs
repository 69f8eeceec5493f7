//! Processes written in Lua 5.4.
//!
//! A [`Program`] is loaded from Lua source. A [`Guest`] is a process of it: a state machine that
//! calls a global function of the program, in a separate Lua state. Everything that it sends is
//! copied, see [`Value`]. `docs/LUA.md` is the reference of the functions that programs may call.
//!
//! ```
//! use procession_lua::{Program, Value};
//!
//! let program = Program::load("double", "function double(n) return 2 * n end")?;
//! let doubled = procession::run(async {
//!     program.spawn("double", [Value::Integer(21)])?.await.map_err(procession_lua::Error::from)
//! })?;
//! assert_eq!(doubled, Value::Integer(42));
//! # Ok::<(), procession_lua::Error>(())
//! ```
//!
//! A program may use no files, sockets or variables of the environment, unless its [`Permissions`]
//! say so.
//!
//! Programs print through an [`Output`]. A slow reader suspends the processes that print, but it
//! blocks no worker.
//!
//! # What nothing can interrupt
//! A process that is terminated ends within 100 ms. With 64 MiB, Lua takes up to 50 ms to close a
//! state, and up to 200 ms for one conversion of a long text. The handlers of `<close>` variables
//! run for up to 1 s. Nothing bounds these operations, because they are Lua's own loops in C:
//!
//! | operation | measured |
//! |---|---|
//! | `<close>` variables with handlers in C and a long `__name` | 2 to 30 ms each, for 8 MiB |
//! | the traceback of an error, which searches all globals | 1 s for 200 000 globals, 22 calls |
//! | a chain of tables with `__call` | 0.2 s for 30 000 tables, more than a minute for a circle |
//! | the collection of a chain of weak keys | 1 s for 20 000 tables, 42 s for 80 000 |
//! | `string.char`, `utf8.char`, `math.max` and `math.min` | 16 ms for each text of 8 MiB |
//!
//! Other processes continue, but a processor is busy. So do not run programs of authors that you do
//! not trust.
#![deny(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod account;
mod arguments;
mod budget;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(not(feature = "cluster"))]
#[path = "no_cluster.rs"]
mod cluster;
mod datagrams;
mod deployment;
mod ends;
mod entry;
mod failure;
mod fs;
#[cfg(test)]
mod fuzz;
mod groups;
mod guest;
mod host;
mod http;
mod inbox;
mod information;
mod input;
mod interrupt;
mod json;
mod lazy;
mod library;
mod limits;
mod message;
mod messages;
mod modules;
mod net;
mod output;
mod owner;
mod pattern;
mod permissions;
mod program;
mod protect;
mod reference;
mod repeatable;
mod secured;
#[cfg(feature = "sim")]
mod simulation;
mod source;
mod stream;
mod supervisors;
mod testing;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod value;
mod version;
mod watch;

/// The example in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use check::{Finding, check};
pub use deployment::{Deployment, Replaced, Rolling};
pub use failure::Error;
pub use guest::Guest;
pub use message::{Charged, Message};
pub use output::Output;
pub use permissions::{PermissionError, Permissions};
pub use program::{Program, Upgrade};
pub use reference::annotations;
pub use testing::{TestReport, Tests};
#[cfg(feature = "tls")]
#[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
pub use tls::{Tls, TlsError};
#[cfg(feature = "cluster")]
#[cfg_attr(docsrs, doc(cfg(feature = "cluster")))]
pub use value::RemoteCall;
pub use value::{CopyError, Socket, Value};
pub use version::Version;
