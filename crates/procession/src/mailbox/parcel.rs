//! Messages that leave their scheduler, and the interface that carries them.

use std::any::{Any, type_name};
use std::fmt;

use crate::Pid;

/// A message to a process of another scheduler.
#[non_exhaustive]
pub struct Parcel {
    /// The process that receives it.
    pub to: Pid,
    /// The message.
    pub message: Box<dyn Any + Send>,
    /// The name of the message's type.
    pub type_name: &'static str,
}

impl Parcel {
    /// Creates a parcel.
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

/// Carries messages by PID from the processes of a scheduler to other schedulers. See
/// [`Builder::relay`](crate::Builder::relay).
pub trait Relay: Send + Sync + 'static {
    /// Accepts a message. It runs on the sender's thread and must not block. An accepted message
    /// may still be lost.
    ///
    /// # Errors
    /// Returns the same message if it is refused. The sender gets it back.
    ///
    /// # Panics
    /// If the returned message has another type, the sender panics.
    fn relay(&self, parcel: Parcel) -> Result<(), Parcel>;
}

impl fmt::Debug for dyn Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Relay")
    }
}
