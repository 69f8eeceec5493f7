//! What a context has looked at, and left for another kind of receive.

use std::collections::VecDeque;

use procession_queue::Batch;

use crate::process::body::System;
use crate::relations::signal::{MonitorRef, Signal};

/// What was left, each kind oldest first, with numbers that order both.
pub(super) struct Aside<M> {
    pub(super) messages: VecDeque<(u64, M)>,
    pub(super) signals: VecDeque<(u64, Signal)>,
    pub(super) last: u64,
    pub(super) marked: Option<Mark<M>>,
}

impl<M> Default for Aside<M> {
    fn default() -> Self {
        Self { messages: VecDeque::new(), signals: VecDeque::new(), last: 0, marked: None }
    }
}

impl<M> Aside<M> {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.signals.is_empty() && self.marked.is_none()
    }
}

/// What came after a monitor was made, while much was in the mailbox: `Context::taken` is older.
/// The answer of this monitor, or of a later one, can only be here, or still in the queue.
pub(super) struct Mark<M> {
    pub(super) since: MonitorRef,
    /// The process does not wait for the answer of that monitor any more, so the next one may set
    /// the mark anew.
    pub(super) is_answered: bool,
    /// Looked through in the search for the answer of this monitor; older than the rest.
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

    /// Everything, oldest first.
    pub(super) fn into_batch(self) -> Batch<M, System> {
        let mut all = self.looked;
        all.append(self.rest);
        all
    }
}
