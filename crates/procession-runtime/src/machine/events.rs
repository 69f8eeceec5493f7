//! The events of a step of a state machine.

use std::collections::VecDeque;

use crate::mailbox::context::Event;
use crate::mailbox::header::{Header, RequestContext};
use crate::mailbox::request;
use crate::scheduler::current;

/// The events since the last step, oldest first.
#[derive(Debug)]
pub struct Events<M>(pub(super) VecDeque<Event<M>>, pub(super) Option<Box<EventHeaders>>);

/// The headers of the messages among the events of a state machine, and its urgent events.
#[derive(Debug, Default)]
pub(super) struct EventHeaders {
    /// The number of events that were taken since this exists.
    taken: usize,
    /// The number of urgent events, which are before all others.
    urgent: usize,
    /// The headers, each with the number of events that are taken before its message.
    headers: VecDeque<(usize, Header)>,
}

impl<M> Events<M> {
    /// Adds an event with a header, or an urgent event, which goes behind the urgent events and
    /// before the others.
    #[cold]
    pub(super) fn push_rare(&mut self, event: Event<M>, header: Option<Header>, is_urgent: bool) {
        let noted = self.1.get_or_insert_default();
        let place = if is_urgent { noted.urgent } else { self.0.len() };
        let number = noted.taken + place;
        let after = noted.headers.partition_point(|(other, _)| *other < number);
        noted.headers.range_mut(after..).for_each(|(other, _)| *other += 1);
        if let Some(header) = header {
            noted.headers.insert(after, (number, header));
        }
        noted.urgent += usize::from(is_urgent);
        self.0.insert(place, event);
    }

    /// Receives the header of the event that is taken next, if it has one.
    #[cold]
    fn accept_header(&mut self) {
        if let Some(header) = self.take_header()
            && let Some(slot) = current::current()
        {
            request::accept(&slot, header);
        }
    }

    /// Returns the header of the event that is taken next, if it has one.
    fn take_header(&mut self) -> Option<Header> {
        let noted = self.1.as_mut()?;
        let taken = noted.taken;
        noted.taken += 1;
        noted.urgent = noted.urgent.saturating_sub(1);
        noted.headers.front().filter(|(number, _)| *number == taken)?;
        noted.headers.pop_front().map(|(_, header)| header)
    }

    /// Takes an event that the process does not receive, with the request of its message.
    pub(super) fn take_untold(&mut self) -> Option<(Event<M>, Option<RequestContext>)> {
        let request = self.take_header().and_then(|header| header.request);
        Some((self.0.pop_front()?, request))
    }
}

impl<M> Iterator for Events<M> {
    type Item = Event<M>;

    fn next(&mut self) -> Option<Event<M>> {
        if self.1.is_some() {
            self.accept_header();
        }
        self.0.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl<M> ExactSizeIterator for Events<M> {}
