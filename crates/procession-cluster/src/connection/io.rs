//! The bytes of a connection on their way from and to the socket.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use procession::net::TcpStream;
use procession::time::Sleep;
use procession::{Context, Event};

use crate::carrier::Carrier;
use crate::connection::Ends;
use crate::link::{Link, Order};
use crate::outbound::MESSAGE_MAX;
use crate::wire::frame::FRAGMENT_LEN;

/// The bytes that are read or written at a time.
const CHUNK: usize = 64 << 10;
/// The longest frame. Larger messages come in fragments, except from nodes that cannot make them.
const FRAME_MAX: usize = MESSAGE_MAX + (1 << 16);

/// The end of a connection by a cancel of its process.
const SHUTS_DOWN: &str = "this node is shutting down";

/// The bytes that have come and were not read as frames yet.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) bytes: Vec<u8>,
    from: usize,
    pub(super) to: usize,
}

impl Inbox {
    pub(super) fn new(come: Vec<u8>) -> Self {
        let to = come.len();
        Self { bytes: come, from: 0, to }
    }

    /// Returns room for one read.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.from > 0 && self.bytes.len() - self.to < CHUNK {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if self.bytes.len() - self.to < CHUNK {
            // Doubles, so that a large frame is not copied for each of its parts.
            self.bytes.resize((2 * self.to).max(self.to + CHUNK), 0);
        }
        &mut self.bytes[self.to..]
    }

    /// Returns the place of the next frame without its length, if it is complete.
    pub(super) fn next(&mut self) -> Result<Option<std::ops::Range<usize>>, Ends> {
        let Some(digits) = self.bytes[self.from..self.to].first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*digits) as usize;
        if length > FRAME_MAX {
            return Err(format!("a frame of {length} bytes came, and at most {FRAME_MAX} may"));
        }
        let start = self.from + 4;
        if self.to - start < length {
            return Ok(None);
        }
        self.from = start + length;
        Ok(Some(start..start + length))
    }
}

/// Bytes for the socket.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

pub(super) fn ends(error: &io::Error) -> Ends {
    error.to_string()
}

/// Writes as much as the socket takes. Returns `true` if it took something.
pub(super) fn write(link: &Link, carrier: &mut Carrier, outbox: &mut Outbox) -> Result<bool, Ends> {
    if outbox.is_empty() {
        outbox.bytes.clear();
        outbox.sent = 0;
        link.outbound.fill(&mut outbox.bytes, CHUNK);
        outbox.bytes.shrink_to(4 * FRAGMENT_LEN);
    }
    if outbox.is_empty() && !carrier.has_more() {
        return Ok(false);
    }
    match carrier.try_write(&outbox.bytes[outbox.sent..]) {
        // Only the session had something, and the socket has taken it.
        Ok(0) => Ok(false),
        Ok(count) => {
            outbox.sent += count;
            crate::link::count(&link.counts.bytes_sent, count as u64);
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        Err(error) => Err(ends(&error)),
    }
}

/// Waits until there is something to do, or until `time`. Also returns whether it had to wait.
pub(super) async fn wait(
    cx: &mut Context<Order>,
    stream: &TcpStream,
    link: &Link,
    has_more: bool,
    mut time: Pin<&mut Sleep>,
) -> Result<(Option<Event<Order>>, bool), Ends> {
    let mut has_waited = false;
    let mut event = pin!(cx.recv_event());
    let mut readable = pin!(stream.readable());
    let mut writable = pin!(stream.writable());
    let mut filled = pin!(link.outbound.filled.notified());
    let come = poll_fn(|task| {
        if let Poll::Ready(event) = event.as_mut().poll(task) {
            return Poll::Ready(event.map(Some).ok_or_else(|| SHUTS_DOWN.to_owned()));
        }
        let is_ready = readable.as_mut().poll(task).is_ready()
            || (has_more && writable.as_mut().poll(task).is_ready())
            || (!has_more && filled.as_mut().poll(task).is_ready())
            || time.as_mut().poll(task).is_ready();
        if is_ready {
            return Poll::Ready(Ok(None));
        }
        has_waited = true;
        Poll::Pending
    })
    .await?;
    Ok((come, has_waited))
}

/// Returns an event that has come, without waiting.
pub(super) async fn ready_event(cx: &mut Context<Order>) -> Result<Option<Event<Order>>, Ends> {
    let mut event = pin!(cx.recv_event());
    poll_fn(|task| {
        Poll::Ready(match event.as_mut().poll(task) {
            Poll::Ready(Some(event)) => Ok(Some(event)),
            Poll::Ready(None) => Err(SHUTS_DOWN.to_owned()),
            Poll::Pending => Ok(None),
        })
    })
    .await
}
