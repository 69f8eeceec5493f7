//! A message on its way to another scheduler, and what carries it.

use std::any::{Any, type_name};
use std::fmt;

use crate::Pid;

/// A message on its way to a process of another scheduler.
#[non_exhaustive]
pub struct Parcel {
    /// The process that it is for.
    pub to: Pid,
    /// The message.
    pub message: Box<dyn Any + Send>,
    /// The name of its type.
    pub type_name: &'static str,
}

impl Parcel {
    /// Packs a message.
    pub fn new<M: Send + 'static>(to: Pid, message: M) -> Self {
        Self { to, message: Box::new(message), type_name: type_name::<M>() }
    }
}

impl fmt::Debug for Parcel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parcel")
            .field("to", &self.to)
            .field("type_name", &self.type_name)
            .finish_non_exhaustive()
    }
}

/// What carries the messages that a scheduler's processes send by PID to others than its own. See
/// [`Builder::relay`](crate::Builder::relay).
pub trait Relay: Send + Sync + 'static {
    /// Takes a message over. It runs on the sender's thread and must not block.
    ///
    /// # Errors
    /// The same message, if it cannot be taken: the sender gets it back. Once taken, it may still
    /// be lost.
    ///
    /// # Panics
    /// The sender panics if it is given back a message of another type.
    fn relay(&self, parcel: Parcel) -> Result<(), Parcel>;
}

impl fmt::Debug for dyn Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}
