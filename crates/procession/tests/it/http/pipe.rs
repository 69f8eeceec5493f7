//! Connections inside the program, so that time limits can be tested on the test clock.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use procession::http::{Listener, Peer};
use procession::sync::channel::{self, Receiver, Sender};
use procession_sync::Mutex;

/// What one direction holds at most.
const ROOM: usize = 4096;

#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    is_closed: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Direction {
    fn wake(place: &mut Option<Waker>) {
        if let Some(waker) = place.take() {
            waker.wake();
        }
    }

    fn close(&mut self) {
        self.is_closed = true;
        Self::wake(&mut self.reader);
        Self::wake(&mut self.writer);
    }
}

/// One end of a connection.
pub(super) struct Pipe {
    inward: Arc<Mutex<Direction>>,
    outward: Arc<Mutex<Direction>>,
}

pub(super) fn pipe() -> (Pipe, Pipe) {
    let (one, other) = (Arc::default(), Arc::default());
    let end = Pipe { inward: Arc::clone(&one), outward: Arc::clone(&other) };
    (end, Pipe { inward: other, outward: one })
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.inward.lock().close();
        self.outward.lock().close();
    }
}

impl Read for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inward = self.inward.lock();
        if inward.bytes.is_empty() && !inward.is_closed {
            inward.reader = Some(task.waker().clone());
            return Poll::Pending;
        }
        let count = inward.bytes.len().min(buffer.remaining());
        let bytes: Vec<_> = inward.bytes.drain(..count).collect();
        buffer.put_slice(&bytes);
        Direction::wake(&mut inward.writer);
        Poll::Ready(Ok(()))
    }
}

impl Write for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        task: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut outward = self.outward.lock();
        if outward.is_closed {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let count = bytes.len().min(ROOM - outward.bytes.len());
        if count == 0 {
            outward.writer = Some(task.waker().clone());
            return Poll::Pending;
        }
        outward.bytes.extend(&bytes[..count]);
        Direction::wake(&mut outward.reader);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outward.lock().close();
        Poll::Ready(Ok(()))
    }
}

impl Pipe {
    pub(super) async fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let write = std::future::poll_fn(|task| Pin::new(&mut *self).poll_write(task, bytes));
            bytes = &bytes[write.await?..];
        }
        Ok(())
    }

    /// Closes the direction to the other end.
    pub(super) fn close_half(&mut self) {
        self.outward.lock().close();
    }

    /// Receives up to `count` bytes. Nothing is the end.
    pub(super) async fn receive(&mut self, count: usize) -> Vec<u8> {
        let mut memory = vec![0; count];
        let mut buffer = hyper::rt::ReadBuf::new(&mut memory);
        std::future::poll_fn(|task| {
            ready!(Pin::new(&mut *self).poll_read(task, buffer.unfilled()))
                .expect("it never fails");
            Poll::Ready(())
        })
        .await;
        buffer.filled().to_vec()
    }

    /// Receives everything until the end.
    pub(super) async fn receive_all(&mut self) -> String {
        let mut all = Vec::new();
        loop {
            match self.receive(1024).await {
                part if part.is_empty() => return String::from_utf8_lossy(&all).into_owned(),
                part => all.extend(part),
            }
        }
    }

    /// Receives until the answer ends with `end`.
    pub(super) async fn receive_until(&mut self, end: &str) -> String {
        let mut all = Vec::new();
        while !all.ends_with(end.as_bytes()) {
            let part = self.receive(1024).await;
            assert!(!part.is_empty(), "\"{end}\" is missing: {}", String::from_utf8_lossy(&all));
            all.extend(part);
        }
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// A listener for clients in the same program.
pub(super) struct Pipes(Receiver<io::Result<Pipe>>);

/// Where the clients connect.
#[derive(Clone)]
pub(super) struct Door(Sender<io::Result<Pipe>>);

pub(super) fn listen() -> (Door, Pipes) {
    let (sender, receiver) = channel::unbounded();
    (Door(sender), Pipes(receiver))
}

impl Door {
    /// Connects, or returns `None` if the listener is gone.
    pub(super) fn try_connect(&self) -> Option<Pipe> {
        let (client, server) = pipe();
        self.0.try_send(Ok(server)).ok().map(|()| client)
    }

    pub(super) fn connect(&self) -> Pipe {
        self.try_connect().expect("the listener is there")
    }

    /// Makes the listener fail.
    pub(super) fn break_listener(&self) {
        self.0.try_send(Err(io::ErrorKind::AddrInUse.into())).expect("the listener is there");
    }
}

impl Listener for Pipes {
    type Stream = Pipe;

    async fn next(&self) -> io::Result<(Pipe, Peer)> {
        let stream =
            self.0.recv().await.unwrap_or_else(|| Err(io::ErrorKind::BrokenPipe.into()))?;
        Ok((stream, Peer::LOCAL))
    }
}
