//! Takes events out of a mailbox, and out of the events that were put aside.

use procession_queue::{Batch, Entry, EventQueue};

use super::{Aside, Context, Event};
use crate::mailbox::dead_letter;
use crate::mailbox::dead_letter::DeadCause;
use crate::mailbox::deliver::{leave, take_bounded, take_urgent};
use crate::mailbox::header::{Header, RequestContext};
use crate::mailbox::request;
use crate::process::body::{Queued, System};
use crate::process::slot::Mailbox;
use crate::process::unwind::drop_guarded;
use crate::process::wait_edge::Habit;
use crate::relations::links;
use crate::relations::signal::Signal;
use crate::scheduler::current;

/// A message that a filter looks at. If it is dropped, for example because the filter panics, the
/// message is put aside.
struct LookedAt<'a, M: Send + 'static> {
    context: &'a mut Context<M>,
    message: Option<M>,
}

impl<M: Send + 'static> Drop for LookedAt<'_, M> {
    fn drop(&mut self) {
        if let Some(message) = self.message.take() {
            self.context.put_aside(Event::Message(message));
        }
    }
}

impl<M: Send + 'static> Context<M> {
    #[cold]
    pub(super) fn put_aside(&mut self, event: Event<M>) {
        if let Event::Message(_) = event {
            // It was not received after all.
            self.slot.uncount_received();
        }
        let aside = self.make_aside();
        let header = aside.looked_at.take();
        aside.leave(event, header);
        self.pass_mark();
    }

    /// Takes the oldest event of all.
    pub(super) fn take_any(&mut self) -> Option<Event<M>> {
        self.take_aside().or_else(|| self.take_event())
    }

    /// Puts the urgent events of the mailbox aside, if other events were put aside, which would
    /// otherwise be received before them.
    #[inline]
    pub(super) fn gather_urgent(&mut self) {
        if self.aside.is_some() && self.slot.extra().is_some_and(|extra| extra.urgent.is_some()) {
            self.gather_all_urgent();
        }
    }

    #[cold]
    fn gather_all_urgent(&mut self) {
        let Mailbox::Bounded(ring) = self.slot.mailbox() else { return };
        let (entries, terminated) = self.slot.state.take_for_step(|| take_urgent(&self.slot, ring));
        if terminated {
            self.discard(entries);
            return;
        }
        for entry in entries {
            let (header, event) = match entry {
                Queued::Message(message) => (None, Event::Message(message)),
                Queued::Headed(entry) => {
                    let (header, message) = request::take(&self.slot, entry);
                    (header, Event::Message(message))
                }
                Queued::System(entry) => match self.accept(entry) {
                    Some(signal) => (None, signal.into()),
                    None => continue,
                },
            };
            let aside = self.make_aside();
            aside.is_urgent = true;
            aside.leave(event, header);
        }
    }

    /// Takes the oldest event that was put aside.
    pub(super) fn take_aside(&mut self) -> Option<Event<M>> {
        self.gather_urgent();
        let aside = self.aside()?;
        let first = |number: Option<&u64>| number.copied().unwrap_or(u64::MAX);
        let message = first(aside.messages.front().map(|(number, _)| number));
        let signal = first(aside.signals.front().map(|(number, _)| number));
        if signal < message {
            return aside.signals.pop_front().map(|(_, signal)| signal.into());
        }
        self.take_message_aside().map(Event::Message)
    }

    #[inline]
    pub(super) fn take_message_aside(&mut self) -> Option<M> {
        self.aside.as_ref()?;
        self.gather_urgent();
        let aside = self.aside()?;
        let message = aside.messages.pop_front();
        let is_empty = aside.is_empty();
        let Some((number, message)) = message else {
            if is_empty {
                self.aside = None;
            }
            self.pass_mark();
            return None;
        };
        self.receive_aside(number);
        if is_empty {
            self.aside = None;
        }
        Some(message)
    }

    /// Takes the oldest message that was put aside and is wanted.
    pub(super) fn take_wanted_aside(&mut self, mut wanted: impl FnMut(&M) -> bool) -> Option<M> {
        self.pass_mark();
        self.gather_urgent();
        let aside = self.aside()?;
        let place = aside.messages.iter().position(|(_, message)| wanted(message))?;
        let (number, found) = aside.messages.remove(place)?;
        let is_empty = aside.is_empty();
        self.receive_aside(number);
        if is_empty {
            self.aside = None;
        }
        if place > 0 {
            self.slot.mark(Habit::Selects);
        }
        Some(found)
    }

    /// Counts a message that was put aside under this number as received now.
    fn receive_aside(&mut self, number: u64) {
        self.slot.count_received(1);
        if let Some(header) = self.aside().and_then(|aside| aside.headers.remove(&number)) {
            request::accept(&self.slot, header);
        }
    }

    /// Takes the next message: first the messages that were put aside, then the mailbox.
    #[inline]
    pub(super) fn take_message(&mut self) -> Option<M> {
        loop {
            match self.take_event()? {
                Event::Message(message) => return Some(message),
                other => self.put_aside(other),
            }
            // Signals need no room in a bounded mailbox, so they may come as fast as they are
            // taken.
            crate::scheduler::budget::spend();
            if crate::scheduler::budget::is_spent() {
                return None;
            }
        }
    }

    /// Takes an event as `take_event` does, for callers that look at many. Each event is charged.
    /// Returns `None` once the step has spent its budget. A caller that keeps a message calls
    /// `receive_looked_at`, and puts any other aside.
    pub(super) fn take_charged(&mut self) -> Option<Event<M>> {
        if crate::scheduler::budget::is_spent() {
            return None;
        }
        crate::scheduler::budget::spend();
        self.take_event_with(|context, header| context.make_aside().looked_at = Some(header))
    }

    /// Receives a message that `take_charged` has returned, if it is wanted.
    pub(super) fn receive_if(
        &mut self,
        message: M,
        wanted: &mut impl FnMut(&M) -> bool,
    ) -> Option<M> {
        let mut looked_at = LookedAt { context: self, message: Some(message) };
        let message = looked_at.message.take_if(|message| wanted(message))?;
        looked_at.context.receive_looked_at();
        if looked_at.context.aside().is_some_and(|aside| !aside.messages.is_empty()) {
            looked_at.context.slot.mark(Habit::Selects);
        }
        Some(message)
    }

    /// Receives the header of the message that `take_charged` has returned.
    pub(super) fn receive_looked_at(&mut self) {
        if let Some(header) = self.aside().and_then(|aside| aside.looked_at.take()) {
            request::accept(&self.slot, header);
        }
    }

    /// Takes the next event: first the events that were put aside, then the mailbox.
    #[inline]
    pub(super) fn take_event(&mut self) -> Option<Event<M>> {
        self.take_event_with(|context, header| request::accept(&context.slot, header))
    }

    /// Takes the next event. Passes the header of a message to `keep`.
    #[inline]
    fn take_event_with(&mut self, keep: impl Fn(&mut Self, Header)) -> Option<Event<M>> {
        loop {
            let queued = match self.taken.next() {
                Some(queued) => queued,
                None => match self.slot.mailbox() {
                    Mailbox::Unbounded(queue) | Mailbox::Headed(queue) => {
                        let more = self.take_batch(queue)?;
                        self.taken.append(more);
                        continue;
                    }
                    Mailbox::Bounded(ring) => {
                        let ((queued, is_urgent), terminated) =
                            self.slot.state.take_for_step(|| take_bounded(&self.slot, ring));
                        if terminated {
                            self.discard(queued);
                            return None;
                        }
                        if is_urgent {
                            self.make_aside().is_urgent = true;
                        } else if let Some(aside) = self.aside() {
                            aside.is_urgent = false;
                        }
                        queued?
                    }
                },
            };
            match queued {
                Queued::Message(message) => {
                    self.slot.count_received(1);
                    return Some(Event::Message(message));
                }
                Queued::Headed(entry) => {
                    return Some(Event::Message(self.receive_headed(entry, keep)));
                }
                Queued::System(entry) => {
                    if let Some(signal) = self.accept(entry) {
                        return Some(signal.into());
                    }
                    self.pass_mark();
                    // As in `take_message`.
                    crate::scheduler::budget::spend();
                    if crate::scheduler::budget::is_spent() {
                        return None;
                    }
                }
            }
        }
    }

    /// Receives a message with a header. Separate from the messages without, which come more often.
    #[cold]
    fn receive_headed(&mut self, entry: Entry<(System, M)>, keep: impl Fn(&mut Self, Header)) -> M {
        let (header, message) = request::take(&self.slot, entry);
        self.slot.count_received(1);
        if let Some(header) = header {
            keep(self, header);
        }
        message
    }

    /// Takes the content of the mailbox, which is unbounded. Also returns `None` if this process
    /// has been terminated.
    #[inline]
    pub(super) fn take_batch(&self, queue: &EventQueue<M, System>) -> Option<Batch<M, System>> {
        let (more, terminated) = self.slot.state.take_for_step(|| queue.take());
        if more.len() == 0 {
            return None;
        }
        if terminated {
            self.discard(more);
            return None;
        }
        self.slot.note_length();
        Some(more)
    }

    /// Takes the content as `take_batch` does, if the mailbox is unbounded.
    pub(super) fn take_queued(&self) -> Option<Batch<M, System>> {
        match self.slot.mailbox() {
            Mailbox::Unbounded(queue) | Mailbox::Headed(queue) => self.take_batch(queue),
            Mailbox::Bounded(_) => None,
        }
    }

    /// Returns the number of entries of the mailbox that a search has yet to look at.
    pub(super) fn unsearched(&mut self) -> usize {
        if let Mailbox::Bounded(ring) = self.slot.mailbox() {
            return ring.entries();
        }
        let more = self.take_queued().unwrap_or_default();
        let Some(marked) = self.marked() else {
            self.taken.append(more);
            return self.taken.len();
        };
        marked.rest.append(more);
        marked.looked.len() + marked.rest.len() + self.taken.len()
    }

    /// Drops events that the process no longer receives.
    #[cold]
    pub(super) fn discard(&self, events: impl IntoIterator<Item = Queued<M>>) {
        let shared = self.slot.shared();
        let mut discarded = 0;
        for event in events {
            match request::message_of(event) {
                // Each message is dropped by itself, because a `Drop` that panics must not keep the
                // remaining messages from being dropped.
                Ok((request, message)) => {
                    discarded += u64::from(leave(&self.slot, request, message));
                }
                Err(entry) => drop_guarded(entry),
            }
        }
        current::count(shared, |stats| &stats.discarded, discarded);
    }

    /// Drops the messages that were put aside.
    #[cold]
    pub(super) fn discard_aside(&self, aside: &mut Aside<M>) {
        let mut discarded = 0;
        for (number, message) in std::mem::take(&mut aside.messages) {
            let header = aside.headers.get(&number);
            let request = header.and_then(|header| header.request.clone());
            discarded += u64::from(leave(&self.slot, request, message));
        }
        current::count(self.slot.shared(), |stats| &stats.discarded, discarded);
    }

    /// Drops messages that the process has not handled. A message with `true` counts as received
    /// before, and as discarded afterwards. A message with `false` was made by the process itself,
    /// and was never counted.
    pub(crate) fn discard_received(
        &self,
        messages: impl IntoIterator<Item = (M, bool, Option<RequestContext>)>,
    ) {
        let shared = self.slot.shared();
        // Only the process itself may change its count.
        let is_own = crate::scheduler::budget::budget_of(&self.slot).is_some();
        let mut discarded = 0;
        for (message, is_counted, request) in messages {
            if is_own && is_counted {
                self.slot.uncount_received();
                discarded += u64::from(leave(&self.slot, request, message));
            } else {
                let observer = shared.extensions.dead_letters();
                dead_letter::bury(observer, self.slot.pid(), DeadCause::Ended, message);
            }
        }
        current::count(shared, |stats| &stats.discarded, discarded);
    }

    /// Returns the signal, if the process is to receive it. Separate from the messages, which come
    /// more often.
    #[cold]
    pub(super) fn accept(&self, entry: Entry<System>) -> Option<Signal> {
        match entry.into_inner() {
            System::Signal(signal) => links::accept(&self.slot, signal),
            // An async process yields no commands, and a header never arrives without its message.
            System::Completion { .. } | System::Slept { .. } | System::Header(_) => None,
        }
    }
}
