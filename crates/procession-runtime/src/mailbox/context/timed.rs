//! Receiving within a time.

use std::time::Duration;

use crate::mailbox::context::{Context, Recv};
use crate::time::Timeout;

impl<M: Send + 'static> Context<M> {
    /// Receives the next message if it arrives within `timeout`.
    ///
    /// # Errors
    /// [`Elapsed`](crate::time::Elapsed) if no message arrived in time.
    #[track_caller]
    pub fn recv_timeout(&mut self, timeout: Duration) -> Timeout<Recv<'_, M>> {
        crate::time::timeout(timeout, self.recv())
    }
}
