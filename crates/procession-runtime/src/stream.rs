//! Streams and sinks: the traits of the crates `futures-core` and `futures-sink`.

use std::fmt;
#[cfg(feature = "io")]
use std::future::Future;
#[cfg(feature = "io")]
use std::io;
#[cfg(feature = "io")]
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use futures_core::Stream;
use futures_sink::Sink;
use procession_protocols::sync::wait_list::Place;

#[cfg(feature = "supervision")]
use crate::Exit;
#[cfg(feature = "io")]
use crate::fs::{DirEntry, ReadDir};
#[cfg(feature = "supervision")]
use crate::group::join_set::JoinSet;
#[cfg(feature = "supervision")]
use crate::group::process_groups::{GroupEvent, GroupMonitor};
#[cfg(feature = "supervision")]
use crate::group::registry::{RegistryEvent, RegistryListener};
use crate::mailbox::context::Context;
#[cfg(feature = "io")]
use crate::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use crate::process::unwind::drop_guarded;
use crate::sync::channel::{self, cancel_receiver, poll_recv};
use crate::sync::{RecvError, SendError};
use crate::sync::{broadcast, watch};
use crate::time::{Instant, Interval};

/// Yields the messages that [`Context::recv`] receives, and ends when the process is cancelled and
/// its mailbox is empty.
///
/// # Panics
/// Polling it panics if it has to wait outside its own process.
impl<M: Send + 'static> Stream for Context<M> {
    type Item = M;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<M>> {
        self.get_mut().poll_recv(task)
    }
}

/// Yields the moments at which the ticks were due. It never ends.
impl Stream for Interval {
    type Item = Instant;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Instant>> {
        self.get_mut().poll_tick(task).map(Some)
    }
}

/// Yields the results that [`JoinSet::join_next`] returns, and ends when the set is empty.
#[cfg(feature = "supervision")]
impl<T: Send + 'static> Stream for JoinSet<T> {
    type Item = Result<T, Exit>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let next = ready!(self.get_mut().poll_join_next(task));
        Poll::Ready(next.map(|(_, result)| result))
    }
}

/// Yields the events that [`GroupMonitor::recv`] receives. It never ends.
#[cfg(feature = "supervision")]
impl Stream for GroupMonitor {
    type Item = GroupEvent;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<GroupEvent>> {
        self.get_mut().poll_recv(task).map(Some)
    }
}

/// Yields the events that [`RegistryListener::recv`] receives. It never ends.
#[cfg(feature = "supervision")]
impl<V: Send + Sync + 'static> Stream for RegistryListener<V> {
    type Item = RegistryEvent<V>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_recv(task).map(Some)
    }
}

/// Yields the entries, and errors between them.
#[cfg(feature = "io")]
impl Stream for ReadDir {
    type Item = io::Result<DirEntry>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_next_entry(task).map(Result::transpose)
    }
}

/// Yields a value for each [`Signal::recv`](crate::signal::Signal::recv), and ends when no signal
/// can come any more.
#[cfg(feature = "signal")]
impl Stream for crate::signal::Signal {
    type Item = ();

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<()>> {
        self.get_mut().poll_recv(task)
    }
}

/// Yields the messages, and a [`RecvError::Lagged`] for messages that
/// were missed. Ends when all senders are dropped and all messages were received.
impl<T: Clone> Stream for broadcast::Receiver<T> {
    type Item = Result<T, RecvError>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let received = ready!(self.get_mut().poll_recv(task));
        Poll::Ready(Some(received).filter(|received| !matches!(received, Err(RecvError::Closed))))
    }
}

/// The messages of a channel, as a stream. Made by [`channel::Receiver::into_stream`].
///
/// It ends when the channel is closed and empty.
#[must_use = "streams do nothing unless polled"]
pub struct ReceiverStream<T> {
    receiver: channel::Receiver<T>,
    place: Option<Place>,
}

impl<T> channel::Receiver<T> {
    /// Returns the messages as a stream.
    pub fn into_stream(self) -> ReceiverStream<T> {
        ReceiverStream { receiver: self, place: None }
    }
}

impl<T> ReceiverStream<T> {
    /// Returns the receiver.
    pub fn get_ref(&self) -> &channel::Receiver<T> {
        &self.receiver
    }

    /// Returns the receiver, and ends the stream. No message is lost.
    pub fn into_inner(self) -> channel::Receiver<T> {
        // Cloned, because the `Drop` of this value abandons its place in the channel.
        self.receiver.clone()
    }
}

// No pointer refers into the stream.
impl<T> Unpin for ReceiverStream<T> {}

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<T>> {
        let Self { receiver, place } = self.get_mut();
        poll_recv(receiver.channel(), place, &mut false, task)
    }

    // No upper bound, also once the channel is closed: a reservation may still bring a message, and
    // another receiver may give one back.
}

impl<T> Drop for ReceiverStream<T> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            cancel_receiver(self.receiver.channel(), place);
        }
    }
}

impl<T> fmt::Debug for ReceiverStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReceiverStream").field(&self.receiver).finish()
    }
}

/// The values of a watch, as a stream. Made by [`watch::Receiver::into_stream`].
///
/// It yields a clone of the value whenever the receiver has not seen the value, and marks it as
/// seen. It ends when all senders are dropped and the last value was seen.
#[must_use = "streams do nothing unless polled"]
pub struct WatchStream<T> {
    receiver: watch::Receiver<T>,
}

impl<T> watch::Receiver<T> {
    /// Returns the values as a stream, which begins with the first value that this receiver has not
    /// seen. To begin with the present value, call [`mark_changed`](Self::mark_changed) before.
    ///
    /// ```
    /// use futures_lite::StreamExt;
    /// use procession::sync::watch;
    ///
    /// procession::run(async {
    ///     let (sender, mut receiver) = watch::channel(1);
    ///     receiver.mark_changed();
    ///     let mut values = receiver.into_stream();
    ///     assert_eq!(values.next().await, Some(1));
    ///     sender.send(2)?;
    ///     sender.send(3)?;
    ///     drop(sender);
    ///     assert_eq!(values.next().await, Some(3));
    ///     assert_eq!(values.next().await, None);
    ///     Ok::<_, procession::sync::SendError<u32>>(())
    /// })?;
    /// # Ok::<(), procession::sync::SendError<u32>>(())
    /// ```
    pub fn into_stream(self) -> WatchStream<T> {
        WatchStream { receiver: self }
    }
}

impl<T: Clone> Stream for WatchStream<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<T>> {
        let receiver = &mut self.get_mut().receiver;
        let changed = ready!(receiver.poll_changed(task));
        Poll::Ready(changed.ok().map(|()| receiver.borrow_and_update().clone()))
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchStream").field(&self.receiver).finish()
    }
}

#[cfg(feature = "io")]
type Accepting<'a, S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send + 'a>>;

/// The connections of a listener, as a stream that never ends. Made by [`TcpListener::incoming`]
/// and [`UnixListener::incoming`].
///
/// The errors are the errors of the listener's `accept`. The stream continues after an error.
#[cfg(feature = "io")]
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a, S> {
    accept: Box<dyn Fn() -> Accepting<'a, S> + Send + 'a>,
    /// Present while a connection is waited for.
    accepting: Option<Accepting<'a, S>>,
}

#[cfg(feature = "io")]
impl TcpListener {
    /// Returns the connections as a stream, each with the address of its peer.
    ///
    /// ```
    /// use futures_lite::StreamExt;
    /// use procession::net::{TcpListener, TcpStream};
    ///
    /// procession::run(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let (_server, peer) = listener.incoming().next().await.expect("it never ends")?;
    ///     assert_eq!(peer, client.local_addr()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn incoming(&self) -> Incoming<'_, (TcpStream, SocketAddr)> {
        Incoming { accept: Box::new(|| Box::pin(self.accept())), accepting: None }
    }
}

#[cfg(feature = "io")]
impl UnixListener {
    /// Returns the connections as a stream, each with the address of its peer.
    pub fn incoming(&self) -> Incoming<'_, (UnixStream, std::os::unix::net::SocketAddr)> {
        Incoming { accept: Box::new(|| Box::pin(self.accept())), accepting: None }
    }
}

#[cfg(feature = "io")]
impl<S> Stream for Incoming<'_, S> {
    type Item = io::Result<S>;

    fn poll_next(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<Option<Self::Item>> {
        let Self { accept, accepting } = self.get_mut();
        let accepted = ready!(accepting.get_or_insert_with(accept).as_mut().poll(task));
        *accepting = None;
        Poll::Ready(Some(accepted))
    }
}

#[cfg(feature = "io")]
impl<S> fmt::Debug for Incoming<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Incoming(..)")
    }
}

/// The sending end of a channel, as a sink. Made by [`channel::Sender::into_sink`].
///
/// It holds one message beyond the messages in the channel: the last message that was started and
/// has not found room. A flush waits until that message is in the channel, or in a rendezvous until
/// it is received. A close flushes, and does not close the channel, which closes when the last
/// sender is dropped.
///
/// # Errors
/// [`SendError`] with the message, if the channel is closed.
///
/// # Cancellation
/// The sink keeps the message that has not found room. If it is dropped, that message is dropped.
pub struct SenderSink<T> {
    sender: channel::Sender<T>,
    /// A message that was started and has not been tried to send.
    message: Option<T>,
    /// The place of a message that waits for room.
    place: Option<Place>,
}

impl<T> channel::Sender<T> {
    /// Returns the sender as a sink.
    ///
    /// ```
    /// use futures_util::SinkExt;
    /// use procession::sync::channel;
    ///
    /// procession::run(async {
    ///     let (sender, receiver) = channel::bounded(1);
    ///     procession::spawn(async move {
    ///         let mut sink = sender.into_sink();
    ///         for n in 1..=3 {
    ///             sink.feed(n).await?;
    ///         }
    ///         sink.close().await
    ///     });
    ///     let mut received = Vec::new();
    ///     while let Some(n) = receiver.recv().await {
    ///         received.push(n);
    ///     }
    ///     assert_eq!(received, [1, 2, 3]);
    /// });
    /// ```
    pub fn into_sink(self) -> SenderSink<T> {
        SenderSink { sender: self, message: None, place: None }
    }
}

impl<T> SenderSink<T> {
    /// Returns the sender.
    pub fn get_ref(&self) -> &channel::Sender<T> {
        &self.sender
    }
}

// No pointer refers into the sink.
impl<T> Unpin for SenderSink<T> {}

impl<T> Sink<T> for SenderSink<T> {
    type Error = SendError<T>;

    fn poll_ready(
        self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        self.poll_flush(task)
    }

    /// # Panics
    /// Panics if `poll_ready` has not returned `Ready(Ok(()))` since the last call.
    fn start_send(self: Pin<&mut Self>, message: T) -> Result<(), SendError<T>> {
        let Self { message: held, place, .. } = self.get_mut();
        assert!(held.is_none() && place.is_none(), "a sink takes a message only when it is ready");
        *held = Some(message);
        Ok(())
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        let Self { sender, message, place } = self.get_mut();
        if message.is_none() && place.is_none() {
            return Poll::Ready(Ok(()));
        }
        channel::poll_send(sender.channel(), message, place, task)
    }

    fn poll_close(
        self: Pin<&mut Self>,
        task: &mut TaskContext<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        self.poll_flush(task)
    }
}

impl<T> Drop for SenderSink<T> {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            drop_guarded(self.sender.channel().core.cancel_sender(place));
        }
        drop_guarded(self.message.take());
    }
}

impl<T> fmt::Debug for SenderSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SenderSink").field(&self.sender).finish()
    }
}
