//! Channels: any number of senders, any number of receivers, and each message is received once.
//!
//! All kinds of processes can use channels, and plain threads can use them with the trait
//! [`Wait`](crate::coroutine::Wait). Unlike a mailbox, a channel belongs to no process, and exists
//! as long as one of its ends exists. Waiting senders and receivers are served in the order in
//! which they began to wait.
//!
//! [`bounded`] makes senders wait for room, which slows them down to the pace of the receivers.
//! [`unbounded`] never makes a sender wait.
//!
//! ```
//! use procession::sync::channel;
//!
//! procession::run(async {
//!     let (sender, receiver) = channel::bounded(2);
//!     let squares = procession::spawn(async move {
//!         for n in 1..=10 {
//!             sender.send(n * n).await?;
//!         }
//!         Ok::<_, procession::sync::SendError<u32>>(())
//!     });
//!     let mut sum = 0;
//!     // Ends once the sender is dropped and the channel is empty.
//!     while let Some(square) = receiver.recv().await {
//!         sum += square;
//!     }
//!     assert_eq!(sum, 385);
//!     assert_eq!(squares.await, Ok(Ok(())));
//! });
//! ```
//!
//! A sender can [reserve](Sender::reserve) room before it has a message, and a [`WeakSender`] does
//! not keep the channel open. With the feature `stream`, a receiver is a stream
//! (`Receiver::into_stream`) and a sender is a sink (`Sender::into_sink`).

use std::sync::Arc;

mod receiver;
mod sender;
mod state;

#[cfg(feature = "stream")]
pub(crate) use self::receiver::poll_recv;
pub use self::receiver::{Receiver, Receiving, ReceivingMany};
pub(crate) use self::receiver::{cancel_receiver, look_receiver};
#[cfg(feature = "stream")]
pub(crate) use self::sender::poll_send;
pub use self::sender::{OwnedPermit, Permit, Sender, Sending, WeakSender};
use procession_protocols::sync::channel::core::ChannelCore;
use procession_protocols::sync::end_count::EndCount;

use self::state::Channel;

/// Creates a channel that holds at most `capacity` messages.
///
/// While the channel is full, senders wait. With a capacity of 0 it is a rendezvous: each message
/// is handed from a sender to a waiting receiver.
///
/// ```
/// use procession::sync::{SendError, channel};
///
/// let (sender, receiver) = channel::bounded(1);
/// assert!(sender.try_send("first").is_ok());
/// assert_eq!(sender.try_send("second"), Err(SendError::Full("second")));
/// assert_eq!(receiver.try_recv(), Ok("first"));
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (senders, receivers) = (EndCount::new(1), EndCount::new(1));
    let channel = Arc::new(Channel { core: ChannelCore::new(capacity), senders, receivers });
    (Sender::new(Arc::clone(&channel)), Receiver::new(channel))
}

/// Creates a channel without a capacity. A sender never waits.
///
/// Only memory limits the number of messages, so the receivers must keep up with the senders.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    bounded(usize::MAX)
}
