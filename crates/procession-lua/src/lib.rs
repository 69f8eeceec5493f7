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
