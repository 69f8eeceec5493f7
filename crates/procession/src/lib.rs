//! Processes on a work-stealing scheduler.
//!
//! A *process* is a small, isolated, addressable state machine inside this program; it is not an operating-system process. It has a
//! [`Pid`], perhaps a mailbox, and ends with a result or an [`Exit`]. It is written as an async function ([`spawn`], [`start`]) or
//! as a state machine ([`Process`]). A [`Scheduler`] runs processes on as many *workers* as there are CPUs.
//!
//! ```
//! use std::time::Duration;
//! use procession::{Context, Reply};
//!
//! enum Count {
//!     Add(u64),
//!     Get(Reply<u64>),
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     procession::run(async {
//!         let counter = procession::start(|mut cx: Context<Count>| async move {
//!             let mut n = 0;
//!             while let Some(message) = cx.receive().await {
//!                 match message {
//!                     Count::Add(k) => n += k,
//!                     Count::Get(reply) => reply.send(n),
//!                 }
//!             }
//!         });
//!         counter.send(Count::Add(2))?;
//!         let n = counter.call(Count::Get, Duration::from_secs(1)).await?;
//!         let doubled = procession::spawn(async move { n * 2 }).await?;
//!         assert_eq!(doubled, 4);
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # What moves between threads
//!
//! A process may run on one worker now and on another later, so what it is made of is `Send`:
//!
//! ```compile_fail,E0277
//! let local = std::rc::Rc::new(1);
//! drop(procession::spawn(async move { *local }));
//! ```
//!
//! ```compile_fail,E0277
//! drop(procession::spawn(async {
//!     let held = std::rc::Rc::new(1);
//!     procession::yield_now().await;
//!     *held
//! }));
//! ```
//!
//! ```compile_fail,E0277
//! let child = procession::start(|mut cx: procession::Context<std::rc::Rc<u32>>| async move { cx.receive().await; });
//! ```
//!
//! The future that [`run`] and [`Scheduler::block_on`] are given stays on its thread, and need not be `Send`.
//!
//! # Features
//!
//! None is on by default.
//! - `hyper`: `http::{Executor, Timer}`, and hyper's I/O traits for streams; `serve`: `http::serve` for tower services.
//! - `tokio-io`: tokio's I/O traits for streams, without its runtime.
//! - `tokio`: crates that need tokio run unchanged in processes; see `Builder::tokio`, and `compat` for single futures. The default scheduler
//!   has it on then. Implies `tokio-io`.
//! - `tracing`: a span `process` of the target `procession` for each process but those of async pools, at the level `INFO`, with its PID,
//!   label, kind, parent, where it was spawned, and in the end its [`Exit`]. It is a root: never a child of the span that its spawner or a sender was in; it
//!   follows from the former. It is entered for each step, and for jobs of [`spawn_blocking`] that the process submits, and closed when both
//!   have ended. Each stall that [`Builder::on_stall`]
//!   would be told of is an event at the level `WARN`.
#![cfg_attr(not(procession_loom), deny(unsafe_code))]
#![cfg_attr(
    procession_loom,
    expect(dead_code, unreachable_pub, reason = "only the protocols are built, for their models")
)]

// The protocols, which are built for models, too.
#[cfg(procession_loom)]
#[path = "channel"]
mod channel {
    mod core;
}
mod answer;
mod closing;
mod doze;
mod fences;
mod few;
mod idle;
mod keeper;
#[cfg_attr(not(procession_loom), expect(unsafe_code, reason = "what is locked is in a cell"))]
mod lock;
mod mailbox;
mod next;
mod pace;
mod pins;
mod poll;
#[cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "a hint to the processor, by an intrinsic"))]
mod prefetch;
#[cfg(procession_loom)]
#[path = "pool"]
mod pool {
    mod core;
}
mod state;
#[cfg(procession_loom)]
#[path = "sync"]
mod sync {
    mod bell;
    mod gate;
}
mod ties;
#[cfg_attr(not(procession_loom), expect(unsafe_code, reason = "slots are shared by protocol"))]
mod timer;
mod wait_cycle;
#[cfg_attr(not(procession_loom), expect(unsafe_code, reason = "a cell that changes hands by protocol"))]
mod waiter;
mod waiters;

#[cfg(not(procession_loom))]
mod action;
#[cfg(not(procession_loom))]
#[expect(unsafe_code, reason = "futures are pinned in the body's box")]
mod body;
#[cfg(all(not(procession_loom), feature = "tokio"))]
mod bridge;
#[cfg(not(procession_loom))]
mod call;
#[cfg(not(procession_loom))]
pub mod channel;
#[cfg(not(procession_loom))]
#[expect(unsafe_code, reason = "coroutines run on stacks of their own")]
pub mod co;
#[cfg(not(procession_loom))]
mod command;
#[cfg(not(procession_loom))]
mod context;
#[cfg(not(procession_loom))]
mod dead;
#[cfg(not(procession_loom))]
mod exit;
#[cfg(not(procession_loom))]
mod handle;
#[cfg(not(procession_loom))]
mod helpers;
#[cfg(not(procession_loom))]
#[expect(unsafe_code, reason = "the running process is pinned by its worker")]
mod here;
#[cfg(all(not(procession_loom), feature = "hyper"))]
pub mod http;
#[cfg(not(procession_loom))]
mod names;
#[cfg(not(procession_loom))]
pub mod net;
#[cfg(not(procession_loom))]
mod pid;
#[cfg(not(procession_loom))]
mod poller;
#[cfg(not(procession_loom))]
pub mod pool;
#[cfg(not(procession_loom))]
mod process;
#[cfg(not(procession_loom))]
mod relations;
#[cfg(not(procession_loom))]
mod relay;
#[cfg(not(procession_loom))]
mod root;
#[cfg(not(procession_loom))]
mod scheduler;
#[cfg(not(procession_loom))]
mod select;
#[cfg(not(procession_loom))]
mod shared;
#[cfg(not(procession_loom))]
#[expect(unsafe_code, reason = "control blocks are shared by protocol, not by reference count")]
mod slot;
#[cfg(not(procession_loom))]
mod snapshot;
#[cfg(not(procession_loom))]
mod spawn;
#[cfg(not(procession_loom))]
pub mod supervisor;
#[cfg(not(procession_loom))]
pub mod sync;
#[cfg(not(procession_loom))]
mod thread;
#[cfg(not(procession_loom))]
mod time;
#[cfg(all(not(procession_loom), feature = "tracing"))]
mod trace;
#[cfg(not(procession_loom))]
mod variance;
#[cfg(not(procession_loom))]
mod wait;
#[cfg(not(procession_loom))]
#[expect(unsafe_code, reason = "wakers are raw")]
mod waker;
#[cfg(not(procession_loom))]
mod watchdog;
#[cfg(not(procession_loom))]
#[expect(unsafe_code, reason = "a worker runs bodies, which the state protocol hands to it")]
mod worker;
#[cfg(not(procession_loom))]
mod world;

/// The program in the README is a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(not(procession_loom))]
mod api;
#[cfg(not(procession_loom))]
pub use api::*;
