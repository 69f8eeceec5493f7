//! A key on its node: its process, and the messages that wait for it.

use std::collections::VecDeque;
use std::sync::Arc;

use procession::mailbox::request::RequestContext;
use procession::sync::Notify;
use procession_sync::atomic::AtomicU64;

use super::error::Refusal;
use crate::term::{NodePid, Term};

/// A key as its term is written. Nodes compare and hash these bytes.
pub(super) type Key = Arc<[u8]>;

/// A message to a key, on its way.
#[derive(Debug)]
pub(super) struct Envelope<M> {
    /// The router of the node at which it was sent.
    pub(super) origin: NodePid,
    /// Greater than the numbers of all earlier messages of the origin to the shard.
    pub(super) number: u64,
    /// The call of the origin that it belongs to, or 0.
    pub(super) call: u64,
    pub(super) hops: u8,
    /// The router that has handed it to this node.
    pub(super) via: NodePid,
    /// The request that the message belongs to.
    pub(super) request: Option<RequestContext>,
    pub(super) message: M,
}

/// What is to be done once the lock of the shard is released.
#[derive(Debug)]
pub(super) enum Act<M> {
    Start(Key, Arc<Notify>, Option<Term>),
    Forward(Key, Envelope<M>),
    Refuse(Key, Envelope<M>, Refusal),
}

/// What the process of a key does next.
#[derive(Debug)]
pub(super) enum Taken<M> {
    Message(Envelope<M>),
    Wait,
    End,
}

/// A key with a process, with messages that wait for one, or with the state of its last one.
#[derive(Debug)]
pub(super) struct Slot<M> {
    pub(super) queue: VecDeque<Envelope<M>>,
    /// The messages that came while the shard waits for an earlier home.
    pub(super) early: VecDeque<Envelope<M>>,
    /// Wakes the process, and tells it from a later process of the key.
    pub(super) process: Option<Arc<Notify>>,
    /// The process was told that there is nothing more for it.
    pub(super) is_ending: bool,
    /// It was told so because the shard had moved, and not because it was idle.
    pub(super) has_moved: bool,
    /// The process has been idle for long enough, and continues only because the shard waits.
    pub(super) is_overdue: bool,
    pub(super) state: Option<Term>,
}

impl<M> Slot<M> {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            early: VecDeque::new(),
            process: None,
            is_ending: false,
            has_moved: false,
            is_overdue: false,
            state: None,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let has_messages = !self.queue.is_empty() || !self.early.is_empty();
        !has_messages && self.process.is_none() && self.state.is_none()
    }

    /// Returns `true` if this is the process of the key.
    pub(super) fn is_of(&self, process: &Arc<Notify>) -> bool {
        self.process.as_ref().is_some_and(|own| Arc::ptr_eq(own, process))
    }

    /// Lets the process look again, or makes one.
    pub(super) fn rouse(&mut self, key: &Key) -> Option<Act<M>> {
        match &self.process {
            Some(process) => {
                process.notify_one();
                None
            }
            None => {
                let process = Arc::new(Notify::new());
                self.process = Some(Arc::clone(&process));
                (self.is_ending, self.has_moved) = (false, false);
                Some(Act::Start(Arc::clone(key), process, self.state.take()))
            }
        }
    }
}

/// What has happened to messages and keys of this node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) keys: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) handled: AtomicU64,
    pub(super) forwarded: AtomicU64,
    pub(super) returned: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) moves: AtomicU64,
    pub(super) states_dropped: AtomicU64,
}

/// How the process of a key has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Unstarted,
    Returned,
    Cancelled,
    Failed,
}
