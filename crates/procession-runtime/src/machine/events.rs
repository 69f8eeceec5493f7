//! The events of a step of a state machine.

use std::collections::VecDeque;

use crate::mailbox::event::Event;
use crate::mailbox::header::Header;
use crate::mailbox::request;
use crate::scheduler::current;

/// The events since the last step, oldest first.
#[derive(Debug)]
pub struct Events<M>(pub(super) VecDeque<Event<M>>, pub(super) Option<Box<EventHeaders>>);

/// The headers of the messages among the events of a state machine.
#[derive(Debug, Default)]
pub(super) struct EventHeaders {
    /// The number of events that were taken since this exists.
    taken: usize,
    /// The headers, each with the number of events that are taken before its message.
    headers: VecDeque<(usize, Header)>,
}

impl<M> Events<M> {
    /// Notes the header of a message, which is to be pushed next.
    #[cold]
    pub(super) fn note_header(&mut self, header: Header) {
        let noted = self.1.get_or_insert_default();
        noted.headers.push_back((noted.taken + self.0.len(), header));
    }

    /// Receives the header of the event that is taken next, if it has one.
    #[cold]
    fn accept_header(&mut self) {
        let Some(noted) = &mut self.1 else { return };
        let taken = noted.taken;
        noted.taken += 1;
        if noted.headers.front().is_some_and(|(number, _)| *number == taken)
            && let Some((_, header)) = noted.headers.pop_front()
            && let Some(slot) = current::current()
        {
            request::accept(&slot, header);
        }
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
