//! Events that a context has looked at, and left for another kind of receive.

use std::collections::VecDeque;

use procession_protocols::util::sorted_map::SortedMap;
use procession_queue::Batch;

use crate::mailbox::event::Event;
use crate::mailbox::header::Header;
use crate::process::body::System;
use crate::relations::signal::{MonitorRef, Signal};

/// The numbers of urgent events are smaller than this number, and the numbers of others larger.
const ORDINARY: u64 = 1 << 63;

/// The events that were left, each kind urgent ones first, then the oldest. Their numbers order the
/// two kinds.
pub(super) struct Aside<M> {
    pub(super) messages: VecDeque<(u64, M)>,
    pub(super) signals: VecDeque<(u64, Signal)>,
    pub(super) last: u64,
    /// The number of urgent events that were left.
    pub(super) urgent: u64,
    /// Set if the event that a receive looks at is urgent.
    pub(super) is_urgent: bool,
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
            last: ORDINARY,
            urgent: 0,
            is_urgent: false,
            headers: SortedMap::new(),
            looked_at: None,
            marked: None,
        }
    }
}

/// Inserts an event behind all with smaller numbers.
fn insert<T>(events: &mut VecDeque<(u64, T)>, number: u64, event: T) {
    if number > ORDINARY {
        return events.push_back((number, event));
    }
    let place = events.partition_point(|(other, _)| *other < number);
    events.insert(place, (number, event));
}

impl<M> Aside<M> {
    /// Leaves an event, which is not received.
    pub(super) fn leave(&mut self, event: Event<M>, header: Option<Header>) {
        let last =
            if std::mem::take(&mut self.is_urgent) { &mut self.urgent } else { &mut self.last };
        *last += 1;
        let number = *last;
        if let Some(header) = header {
            self.headers.insert(number, header);
        }
        match event {
            Event::Message(message) => insert(&mut self.messages, number, message),
            Event::Down(down) => insert(&mut self.signals, number, Signal::Down(down)),
            Event::Exit(exit) => insert(&mut self.signals, number, Signal::Exit(exit)),
            Event::MailboxFull => insert(&mut self.signals, number, Signal::MailboxFull),
            Event::Completion { .. } | Event::Cancel => {
                unreachable!("a state machine is told these")
            }
        }
    }

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
