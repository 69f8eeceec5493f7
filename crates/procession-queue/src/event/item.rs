//! What an event queue carries.

use std::convert::Infallible;

use super::Entry;

/// An item of an event queue: a message, or an item of the system that runs the consumer.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<M, S = Infallible> {
    /// A message from a producer, sent by [`push`](super::EventQueue::push).
    Message(M),
    /// An item of the system that the consumer is part of, sent by
    /// [`push_system`](super::EventQueue::push_system).
    System(Entry<S>),
    /// A message and its header, an item of the system, sent by
    /// [`push_headed`](super::EventQueue::push_headed).
    Headed(Entry<(S, M)>),
}

impl<M> Event<M> {
    /// Returns the message of a queue that carries only messages.
    pub fn into_inner(self) -> M {
        match self {
            Self::Message(message) => message,
            Self::System(Entry(node)) => match node.item {},
            Self::Headed(Entry(node)) => match node.item.0 {},
        }
    }
}
