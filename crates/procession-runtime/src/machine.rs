//! State machines: processes that are called with events, and the commands they yield.

pub(crate) mod awaited;
pub(crate) mod command;
pub(crate) mod completion;
pub(crate) mod events;
pub(crate) mod process;
pub(crate) mod registry;
pub(crate) mod value;

pub use self::events::Events;
pub use self::process::{Process, Status, Successor, WaitingFor, Yields, is_terminated};
pub use crate::scheduler::checkpoint::{is_awaited, processor_time};
pub use crate::scheduler::spawn_error::InitError;
