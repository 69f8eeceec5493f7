//! The bytes of a connection on their way from and to the socket.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use procession::mailbox::Event;
use procession::net::TcpStream;
use procession::time::Sleep;
use procession::{Context, yield_now};

use crate::carrier::Carrier;
use crate::link::{Link, Order};
use crate::wire::frame::FRAGMENT_LEN;

/// The bytes that are read or written at a time, at most.
const CHUNK: usize = 64 << 10;
/// The bytes of the first read. A read that fills its room doubles the next one, so that a
/// connection with little traffic takes little memory.
const CHUNK_FIRST: usize = 4 << 10;
/// The bytes of room that are kept while no large frame arrives.
const KEPT: usize = 4 * CHUNK;
/// The bytes of a frame beside its message, at most.
const FRAME_HEAD: usize = 1 << 16;

/// The reason why a connection ends.
pub(crate) type Ends = String;

/// The end of a connection by the other node.
pub(super) const CLOSED: &str = "it has closed the connection";
/// The end of a connection by a cancel of its process.
pub(super) const SHUTS_DOWN: &str = "this node is shutting down";

/// The received bytes that were not read as frames yet.
#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) bytes: Vec<u8>,
    from: usize,
    pub(super) to: usize,
    /// The bytes of the next read, unless a large frame lacks more.
    chunk: usize,
    /// The end of the latest room.
    end: usize,
    /// The longest frame. Only nodes that make no fragments send large frames.
    frame_max: usize,
}

impl Inbox {
    /// Creates an inbox with the bytes that have come. `message_max` is the longest message.
    pub(super) fn new(come: Vec<u8>, message_max: usize) -> Self {
        let to = come.len();
        let frame_max = message_max.saturating_add(FRAME_HEAD);
        Self { bytes: come, from: 0, to, chunk: CHUNK_FIRST, end: usize::MAX, frame_max }
    }

    /// Returns room for one read: for a chunk, or for the rest of a large frame. More would be many
    /// operations in a row, without a turn for others.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.to == self.end {
            self.chunk = CHUNK.min(2 * self.chunk);
        }
        let is_large = self.bytes.len() > KEPT;
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.from > 0 && (is_large || self.bytes.len() - self.to < self.chunk) {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        if is_large && self.to <= CHUNK {
            // The large frame was read.
            self.bytes.truncate(KEPT);
            self.bytes.shrink_to_fit();
        }
        if self.bytes.len() - self.to < self.chunk {
            // Doubles, so that a large frame is not copied for each of its parts.
            self.bytes.resize((2 * self.to).max(self.to + self.chunk), 0);
        }
        self.end = self.bytes.len().min(self.to + self.lacking().max(self.chunk));
        &mut self.bytes[self.to..self.end]
    }

    /// Returns the number of bytes that the next frame lacks, as far as its length is known.
    fn lacking(&self) -> usize {
        let come = &self.bytes[self.from..self.to];
        let length = come.first_chunk().map_or(0, |digits| u32::from_be_bytes(*digits) as usize);
        (4 + length).saturating_sub(come.len())
    }

    /// Returns the place of the next frame without its length, if it is complete.
    pub(super) fn next(&mut self) -> Result<Option<std::ops::Range<usize>>, Ends> {
        let Some(digits) = self.bytes[self.from..self.to].first_chunk() else { return Ok(None) };
        let length = u32::from_be_bytes(*digits) as usize;
        if length > self.frame_max {
            let most = self.frame_max;
            return Err(format!("a frame of {length} bytes came, and at most {most} may"));
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
        link.outbound.written();
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

/// Waits until there is something to do, or until `time`. Also returns whether it had to wait. A
/// cancel is an error, unless the connection is ending already.
pub(super) async fn wait(
    cx: &mut Context<Order>,
    stream: &TcpStream,
    link: &Link,
    (has_more, is_ending): (bool, bool),
    mut time: Pin<&mut Sleep>,
) -> Result<(Option<Event<Order>>, bool), Ends> {
    let (mut has_waited, mut is_cancelled) = (false, false);
    let mut event = pin!(cx.recv_event());
    let mut readable = pin!(stream.readable());
    let mut writable = pin!(stream.writable());
    let mut filled = pin!(link.outbound.filled.notified());
    let come = poll_fn(|task| {
        if !is_cancelled && let Poll::Ready(event) = event.as_mut().poll(task) {
            if event.is_some() || !is_ending {
                return Poll::Ready(event.map(Some).ok_or_else(|| SHUTS_DOWN.to_owned()));
            }
            is_cancelled = true;
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

/// Waits for something, unless it is no use any more, for the reason that `ends` returns.
pub(super) async fn unless<T, E>(
    ends: impl Future<Output = E>,
    awaited: impl Future<Output = T>,
) -> Result<T, E> {
    let (mut ends, mut awaited) = (pin!(ends), pin!(awaited));
    poll_fn(|task| match ends.as_mut().poll(task) {
        Poll::Ready(why) => Poll::Ready(Err(why)),
        Poll::Pending => awaited.as_mut().poll(task).map(Ok),
    })
    .await
}

/// Waits until this node or the other node abandons an attempt to connect. Keeps the bytes that
/// arrive during the wait, up to about as much as a read of a connection takes. If more has
/// arrived, the function only watches this node.
pub(super) async fn given_up(
    cx: &mut Context<Order>,
    carrier: &mut Carrier,
    come: &mut Vec<u8>,
) -> Ends {
    let by_other = async {
        let mut chunk = vec![0; CHUNK];
        while come.len() < CHUNK {
            match carrier.read(&mut chunk).await {
                Ok(0) => return CLOSED.to_owned(),
                Ok(count) => come.extend(&chunk[..count]),
                Err(error) => return ends(&error),
            }
            yield_now().await;
        }
        std::future::pending().await
    };
    match unless(told_to_end(cx), by_other).await {
        Ok(why) | Err(Told::End(why) | Told::Close(why)) => why,
    }
}

/// Waits until this node ends a connection that is not served yet.
pub(super) async fn told_to_end(cx: &mut Context<Order>) -> Told {
    loop {
        match cx.recv_event().await {
            Some(Event::Message(Order::End(why))) => return Told::End(why),
            Some(Event::Message(Order::Close(why))) => return Told::Close(why),
            // It monitors nothing yet, and has brought no call.
            Some(_) => {}
            None => return Told::End(SHUTS_DOWN.to_owned()),
        }
    }
}

/// How this node ends a connection that is not served yet: in order, or immediately.
pub(super) enum Told {
    End(Ends),
    Close(Ends),
}

/// Returns an event that has already happened, without waiting. A cancel is an error.
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

#[cfg(test)]
mod tests {
    use super::{CHUNK, CHUNK_FIRST, Inbox, KEPT};

    /// Puts bytes into the inbox, and returns the lengths of the rooms for them.
    fn put(inbox: &mut Inbox, mut bytes: &[u8]) -> Vec<usize> {
        let mut rooms = Vec::new();
        while !bytes.is_empty() {
            let room = inbox.room();
            let count = room.len().min(bytes.len());
            room[..count].copy_from_slice(&bytes[..count]);
            rooms.push(room.len());
            bytes = &bytes[count..];
            inbox.to += count;
        }
        rooms
    }

    fn frame(length: usize) -> Vec<u8> {
        [&(length as u32).to_be_bytes()[..], &vec![7; length]].concat()
    }

    /// Goal: a node with many idle connections takes little memory for them, and a busy connection
    /// is read in few steps.
    #[test]
    fn the_room_grows_with_the_traffic() {
        let mut inbox = Inbox::new(Vec::new(), 16 << 20);
        for _ in 0..1000 {
            put(&mut inbox, &frame(100));
            let small = inbox.next().expect("it is right").expect("it is whole");
            assert_eq!(inbox.bytes[small], [7; 100]);
        }
        assert!(inbox.bytes.capacity() <= 2 * CHUNK_FIRST, "{}", inbox.bytes.capacity());
        let mut reads = 0;
        for _ in 0..16 {
            let rooms = put(&mut inbox, &frame(100).repeat(CHUNK / 104));
            reads += rooms.len();
            while inbox.next().expect("it is right").is_some() {}
        }
        assert!(reads < 2 * 16, "{reads} reads");
    }

    #[test]
    fn the_room_of_a_large_frame_is_given_back() {
        let length = 8 << 20;
        for before in [0, 1, CHUNK - 4, CHUNK] {
            let mut inbox = Inbox::new(frame(before), 16 << 20);
            let before = inbox.next().expect("it is right").expect("it is whole");
            assert!(inbox.bytes[before].iter().all(|&byte| byte == 7));
            let rooms = put(&mut inbox, &frame(length));
            assert!(rooms.len() < 100, "it is read in {} parts", rooms.len());
            let large = inbox.next().expect("it is right").expect("it is whole");
            assert!(inbox.bytes[large] == frame(length)[4..]);
            // Then small frames arrive, of which one is never whole.
            let mut small = frame(10).repeat(20 * CHUNK / 14);
            small.truncate(small.len() - 1);
            let mut left = &small[..];
            while !left.is_empty() {
                let room = inbox.room();
                assert!(room.len() <= CHUNK);
                let count = room.len().min(left.len()).min(CHUNK - 1);
                room[..count].copy_from_slice(&left[..count]);
                left = &left[count..];
                inbox.to += count;
                assert!(inbox.bytes.capacity() <= KEPT, "{}", inbox.bytes.capacity());
                while let Some(frame) = inbox.next().expect("it is right") {
                    assert_eq!(inbox.bytes[frame], [7; 10]);
                }
            }
        }
    }
}
