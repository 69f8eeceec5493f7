//! Channels of a simulated program, with the interface of [`std::sync::mpsc`].
//!
//! A thread that waits for a message passes its turn on. Outside of a simulation, these are the
//! channels of std.

use std::sync::mpsc as real;
use std::time::Duration;

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError};

use crate::engine::threads::current;
use crate::engine::wait::{notify, publish, wait_until};

/// The sending side.
#[derive(Debug)]
pub struct Sender<T>(Option<real::Sender<T>>);

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Sender<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// The message, if the receiver is gone.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let Some(real) = &self.0 else { return Err(SendError(message)) };
        publish();
        let sent = real.send(message);
        notify();
        sent
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        publish();
        drop(self.0.take());
        notify();
    }
}

/// The receiving side.
#[derive(Debug)]
pub struct Receiver<T>(real::Receiver<T>);

impl<T> Receiver<T> {
    /// Returns a message that is there.
    ///
    /// # Errors
    /// There is no message now, or no message will be sent any more.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.0.try_recv()
    }

    fn wait(&self, timeout: Option<Duration>) -> Result<T, TryRecvError> {
        let mut received = Err(TryRecvError::Empty);
        wait_until(timeout, || {
            received = self.0.try_recv();
            !matches!(received, Err(TryRecvError::Empty))
        });
        received
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// No message will be sent any more.
    pub fn recv(&self) -> Result<T, RecvError> {
        if current().is_none() {
            return self.0.recv();
        }
        self.wait(None).map_err(|_| RecvError)
    }

    /// Waits for a message, for some time at most.
    ///
    /// # Errors
    /// The time is over, or no message will be sent any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        if current().is_none() {
            return self.0.recv_timeout(timeout);
        }
        self.wait(Some(timeout)).map_err(|error| match error {
            TryRecvError::Empty => RecvTimeoutError::Timeout,
            TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Returns the messages until no message will be sent any more, and waits for each.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// Returns the messages that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        self.0.try_iter()
    }
}

/// The messages of a receiver, until no message will be sent any more.
#[derive(Debug)]
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

/// Creates a channel without a bound.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = real::channel();
    (Sender(Some(sender)), Receiver(receiver))
}
