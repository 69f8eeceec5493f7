//! Events that a context has looked at, and left for another kind of receive.

use std::collections::VecDeque;

use procession_protocols::util::sorted_map::SortedMap;
use procession_queue::Batch;

use crate::mailbox::header::Header;
use crate::process::body::System;
use crate::relations::signal::{MonitorRef, Signal};

/// The events that were left, each kind oldest first. Their numbers order the two kinds.
pub(super) struct Aside<M> {
    pub(super) messages: VecDeque<(u64, M)>,
    pub(super) signals: VecDeque<(u64, Signal)>,
    pub(super) last: u64,
    /// The headers of the messages, by number.
    pub(super) headers: SortedMap<u64, Header>,
    /// The header of the message that a receive looks at.
    pub(super) looked_at: Option<Header>,
    pub(super) marked: Option<Mark<M>>,
}

impl<M> Default for Aside<M> {
    fn default() -> Self {
        Self {
            messages: VecDeque::new(),
            signals: VecDeque::new(),
            last: 0,
            headers: SortedMap::new(),
            looked_at: None,
            marked: None,
        }
    }
}

impl<M> Aside<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.signals.is_empty() && self.marked.is_none()
    }
}

/// The events that came after a monitor was made while the mailbox was long. `Context::taken` is
/// older. The answer of this monitor, or of a later monitor, can only be here or still in the
/// queue.
pub(super) struct Mark<M> {
    pub(super) since: MonitorRef,
    /// Set if the process no longer waits for the answer of that monitor. The next monitor may then
    /// set a new mark.
    pub(super) is_answered: bool,
    /// The events that were searched for the answer of `looked_for`. They are older than `rest`.
    pub(super) looked: Batch<M, System>,
    pub(super) looked_for: MonitorRef,
    pub(super) rest: Batch<M, System>,
}

impl<M> Mark<M> {
    pub(super) fn new(since: MonitorRef) -> Self {
        Self {
            since,
            is_answered: false,
            looked: Batch::new(),
            looked_for: since,
            rest: Batch::new(),
        }
    }

    /// Returns all events, oldest first.
    pub(super) fn into_batch(self) -> Batch<M, System> {
        let mut all = self.looked;
        all.append(self.rest);
        all
    }
}
