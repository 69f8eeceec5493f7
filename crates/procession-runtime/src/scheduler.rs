//! The scheduler: its workers, their seats, parking and shutdown, and the state that they share.

mod attend;
pub(crate) mod block_on;
pub(crate) mod blocking_step;
pub(crate) mod budget;
pub(crate) mod builder;
mod callers;
pub(crate) mod chance;
pub(crate) mod checkpoint;
pub(crate) mod clock;
#[expect(unsafe_code, reason = "a core moves between threads with the right to its seat")]
pub(crate) mod core;
#[expect(unsafe_code, reason = "the running process is pinned by its worker")]
pub(crate) mod current;
pub(crate) mod end;
pub(crate) mod enter;
mod entries;
pub(crate) mod error;
#[expect(unsafe_code, reason = "the frame lies on the stack of the coroutine")]
pub(crate) mod frame;
pub(crate) mod handle;
pub(crate) mod handle_error;
pub(crate) mod handles;
pub(crate) mod health;
pub(crate) mod helpers;
pub(crate) mod inherit;
pub(crate) mod lane;
pub(crate) mod lending;
mod levels;
pub(crate) mod listener;
pub(crate) mod local;
pub(crate) mod log;
pub(crate) mod nodes;
pub(crate) mod origin;
pub(crate) mod owner;
mod park;
pub(crate) mod part;
pub(crate) mod placed;
pub(crate) mod reach;
pub(crate) mod registered_root;
pub(crate) mod root;
#[expect(unsafe_code, reason = "a worker runs bodies, which the state protocol hands to it")]
pub(crate) mod run;
mod run_queues;
mod search;
pub(crate) mod seat;
pub(crate) mod section;
mod service;
pub(crate) mod serving;
pub(crate) mod settle;
pub(crate) mod shared;
pub(crate) mod spawn_error;
pub(crate) mod stalls;
pub(crate) mod starved;
pub(crate) mod supply;
mod thread_end;
mod threads;
pub(crate) mod wait_graph;
pub(crate) mod wake_waits;
pub(crate) mod worker;
pub(crate) mod workforce;
pub(crate) mod writes;

pub use self::enter::EnterGuard;
pub use self::error::BuildError;
pub use self::handle_error::{BlockOnError, MisplacedCall};
pub use self::health::{Health, NotReady};
pub use self::spawn_error::SpawnCause;
pub use crate::util::out_of_range::OutOfRange;
