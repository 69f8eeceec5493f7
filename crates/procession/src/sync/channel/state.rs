//! The part of a channel that its ends share.

use procession_sync::atomic::AtomicUsize;

use crate::sync::channel::core::ChannelCore;

pub(crate) struct Channel<T> {
    pub(crate) core: ChannelCore<T>,
    pub(crate) senders: AtomicUsize,
    pub(crate) receivers: AtomicUsize,
}

impl<T> Channel<T> {
    pub(crate) fn close(&self) {
        self.core.close().wake();
    }
}
