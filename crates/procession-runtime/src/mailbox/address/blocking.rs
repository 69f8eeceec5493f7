//! Sends that block a plain thread.

use crate::mailbox::address::Address;
use crate::mailbox::send_error::SendError;
use crate::scheduler::{block_on, owner};

impl<M: Send + 'static> Address<M> {
    /// Sends a message like [`send_wait`](Self::send_wait), for plain threads.
    ///
    /// # Errors
    /// See [`send_wait`](Self::send_wait).
    ///
    /// # Blocking
    /// Blocks the thread while the mailbox is full. In a process, await `send_wait` instead. For a
    /// process of another node, a thread outside of a scheduler waits with the default scheduler,
    /// which is started if needed.
    pub fn send_blocking(&self, message: M) -> Result<(), SendError<M>> {
        match self.route.pin().map(|slot| slot.shared().arc()) {
            Some(shared) => block_on::block_on(&shared, self.send_wait(message)),
            None if self.far_process().is_some() => {
                block_on::block_on(&owner::here(), self.send_wait(message))
            }
            None => self.send(message),
        }
    }
}
