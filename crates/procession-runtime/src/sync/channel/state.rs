//! The part of a channel that its ends share.

use procession_protocols::sync::channel::core::ChannelCore;
use procession_protocols::sync::end_count::EndCount;

use crate::process::served::WakeServed;
use crate::process::unwind::drop_guarded;

pub(crate) struct Channel<T> {
    pub(crate) core: ChannelCore<T>,
    pub(crate) senders: EndCount,
    pub(crate) receivers: EndCount,
}

impl<T> Channel<T> {
    pub(crate) fn close(&self) {
        self.core.close().wake();
    }

    /// Sends a message for which room is reserved.
    pub(crate) fn send_reserved(&self, message: T) {
        crate::scheduler::budget::spend();
        self.core.send_reserved(message).wake();
        // The last receiver is counted as gone before it takes the messages under the lock of the
        // channel. This message came before that, or it came later and finds no receiver.
        if self.receivers.is_none() {
            self.core.drain().into_iter().for_each(drop_guarded);
        }
    }
}
