//! The queue of a connection: what its processes have sent and the socket has not taken yet.
//!
//! Each sender has a lane, so that its messages stay in order. Lanes take turns: a turn sends some
//! small messages, or one fragment of a large one, so that no message holds up the messages of
//! other senders for longer than a fragment takes.
//!
//! While messages wait, an orderly end of the scheduler or the program also waits: the queue has an
//! entry ([`Outgoing`]) from the first message until the system has taken the last one. A
//! connection that ends in order has another entry until it has ended.
//!
//! A connection that ends in order accepts nothing more, and sends what it has accepted. See
//! [`farewell`](crate::connection).
//!
//! A sender never waits. If there is no room, it gets its message back. A reply to a typed message
//! cannot go back, so replies have a room of their own, and the word that there is no reply is
//! always accepted. So are signals, such as the end of a process. If more of these wait than
//! allowed, the connection ends. If the reason of a signal cannot be sent, or is long and finds no
//! room, a word takes its place.

use std::collections::{BTreeMap, VecDeque};
#[cfg(feature = "serde")]
use std::ops::RangeInclusive;
use std::ops::{Index, IndexMut};
use std::time::Duration;

use procession::Pid;
use procession::mailbox::relay::Outgoing;
use procession::sync::Notify;
use procession::time::Instant;
use procession_sync::Mutex;

use crate::handshake::flags;
use crate::term::encode::Writer;
use crate::term::{EncodeError, Term};
use crate::wire::control::{Control, Target};
use crate::wire::frame::{FRAGMENT_LEN, PLAIN_HEADER, write_fragment};

/// The bytes of small messages that may wait. One sender may have half of this room.
pub(crate) const ROOM: usize = 4 << 20;
/// The bytes of large messages that may wait, apart from the small messages, so that they take no
/// room from them. One sender may have half of this room.
const LARGE_ROOM: usize = 32 << 20;
/// The bytes of replies to typed messages that may wait. One process may have half of this room.
const REPLIES_ROOM: usize = 64 << 20;
/// The bytes of signals that may wait: 256 for each of the 262 144 processes that another node may
/// monitor, because they may all end together.
const SIGNALS_MAX: usize = 64 << 20;
/// The bytes of small messages that a lane sends in one turn.
const TURN: usize = 16 << 10;

/// The bytes in front of a large message that are not sent: the length and the header of a frame.
const LARGE_HEAD: usize = 4 + PLAIN_HEADER.len();

/// The sender of a message: the number of a process, or 0 for the node itself.
pub(crate) type Lane = u64;

/// The lane of the questions and answers of the [pulse](crate::pulse), so that they do not wait
/// behind messages.
pub(crate) const PULSE_LANE: Lane = u64::MAX;

/// Returns the lane of the signals of a process of this node.
pub(crate) fn lane_of(target: &Target) -> Lane {
    match target {
        Target::Pid(pid) => pid.number(),
        Target::Name(_) => 0,
    }
}

/// The reason why nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unqueued {
    /// There is no room for so many bytes.
    Full(usize),
    TooLong,
    Closed,
    /// It asks for something, and the other node is leaving the cluster.
    Leaving,
    Wrong(EncodeError),
    /// The other node does not permit it.
    NotAllowed,
}

/// The kinds of what is queued.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It is refused if there is no room.
    Message,
    /// A message that asks for a reply. In addition, it is refused if the other node is leaving.
    Call,
    /// A message that is refused if there is no room among the replies.
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "its messages need serde"))]
    Reply,
    /// A short message in the place of a reply. It is never refused.
    #[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "its messages need serde"))]
    NoReply,
    /// An operation that is no message, and is refused as a call is.
    Request,
    /// An operation that is no message. It is never refused if it is short.
    Signal,
}

impl Kind {
    /// Returns the room in which something of this length waits.
    fn room(self, length: usize, is_large: bool) -> Room {
        match self {
            Self::Reply => Room::Replies,
            Self::NoReply => Room::Signals,
            Self::Signal if length <= FRAGMENT_LEN => Room::Signals,
            // The reason of a long signal can be left out.
            Self::Message | Self::Call | Self::Request | Self::Signal => Room::of_message(is_large),
        }
    }

    fn is_signal(self) -> bool {
        matches!(self, Self::Signal)
    }

    fn is_message(self) -> bool {
        matches!(self, Self::Message | Self::Call | Self::Reply | Self::NoReply)
    }

    /// Returns `true` if a node that is leaving gets nothing of this kind.
    fn asks(self) -> bool {
        matches!(self, Self::Call | Self::Request)
    }
}

/// Where bytes wait. No room takes anything from another one.
#[derive(Clone, Copy, Debug)]
enum Room {
    Small,
    Large,
    Replies,
    /// It takes everything.
    Signals,
}

impl Room {
    fn of_message(is_large: bool) -> Self {
        if is_large { Self::Large } else { Self::Small }
    }

    /// Returns the bytes that may wait here.
    fn size(self) -> usize {
        match self {
            Self::Small => ROOM,
            Self::Large => LARGE_ROOM,
            Self::Replies => REPLIES_ROOM,
            Self::Signals => usize::MAX,
        }
    }
}

#[derive(Debug)]
enum Part {
    /// Whole frames, their bytes, and the number of messages in them.
    Small { frames: Vec<u8>, bytes: Waiting, messages: u64 },
    /// An operation with its message, without a header.
    Large { bytes: Vec<u8>, room: Room, sent: usize, sequence: u64, messages: u64 },
}

#[derive(Debug, Default)]
struct LaneQueue {
    parts: VecDeque<Part>,
    /// The times when the parts were begun.
    times: VecDeque<Instant>,
    bytes: Waiting,
    /// How many of the parts were there when calls were refused.
    accepted_before: usize,
}

impl LaneQueue {
    /// Removes the first part, which was sent. Returns 1 if it is the last of the parts that were
    /// there when calls were refused, and otherwise 0.
    fn pop(&mut self) -> usize {
        self.parts.pop_front();
        self.times.pop_front();
        let before = self.accepted_before;
        self.accepted_before = before.saturating_sub(1);
        usize::from(before == 1)
    }
}

/// The bytes that wait in each room.
#[derive(Clone, Copy, Debug, Default)]
struct Waiting([usize; 4]);

impl Waiting {
    fn remove(&mut self, bytes: &Self) {
        for (waiting, gone) in self.0.iter_mut().zip(bytes.0) {
            *waiting -= gone;
        }
    }
}

impl Index<Room> for Waiting {
    type Output = usize;

    fn index(&self, room: Room) -> &usize {
        &self.0[room as usize]
    }
}

impl IndexMut<Room> for Waiting {
    fn index_mut(&mut self, room: Room) -> &mut usize {
        &mut self.0[room as usize]
    }
}

/// What a queue accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Accepts {
    #[default]
    All,
    /// Questions and answers whether the nodes are there. The connection ends in order.
    Pulses,
    Nothing,
}

#[derive(Debug, Default)]
struct Queue {
    lanes: BTreeMap<Lane, LaneQueue>,
    /// The lanes that have something to send, in the order of their turns.
    turns: VecDeque<Lane>,
    bytes: Waiting,
    sequence: u64,
    /// The messages that were accepted so far.
    accepted: u64,
    /// The messages that found no room so far.
    refused: u64,
    /// The messages that wait.
    waiting: u64,
    /// The messages that the latest call of [`fill`](Outbound::fill) has moved.
    moved: u64,
    accepts: Accepts,
    /// The other node is leaving.
    is_leaving: bool,
    /// How many lanes have parts that were there when calls were refused.
    accepted_before: usize,
    /// The entry of the messages that the system does not have.
    outgoing: Option<Outgoing>,
    /// The entry of a connection that ends in order.
    ending: Option<Outgoing>,
    /// More signals have waited than allowed.
    is_overrun: bool,
    /// Some sender waits for room.
    is_awaited: bool,
    /// The writer sleeps until it is notified.
    sleeps: bool,
}

impl Queue {
    /// Returns `true` if so many bytes of a sender may wait in a room.
    fn has_room(&self, lane: Lane, length: usize, room: Room) -> bool {
        let own = self.lanes.get(&lane).map_or(0, |lane| lane.bytes[room]);
        let (waiting, size) = (self.bytes[room], room.size());
        // A message may be longer than the room, and needs it alone.
        (waiting + length <= size || waiting == 0) && (own + length <= size / 2 || own == 0)
    }
}

/// The queue of a connection.
#[derive(Debug)]
pub(crate) struct Outbound {
    queue: Mutex<Queue>,
    /// Wakes the process of the connection.
    pub(crate) filled: Notify,
    /// Wakes senders that wait for room.
    room: Notify,
    /// What both nodes are able to do.
    flags: u64,
    /// The process of the connection.
    connection: Pid,
    /// The bytes of the longest message.
    message_max: usize,
}

impl Outbound {
    pub(crate) fn new(flags: u64, connection: Pid, message_max: usize) -> Self {
        let queue = Mutex::new(Queue::default());
        Self { queue, filled: Notify::new(), room: Notify::new(), flags, connection, message_max }
    }

    /// Queues a message of a process.
    pub(crate) fn send(
        &self,
        lane: Lane,
        control: &Control,
        message: &Term,
    ) -> Result<(), Unqueued> {
        self.put(lane, control, Some(message), Kind::Message)
    }

    /// Queues a message of a process that asks for a reply.
    pub(crate) fn call(
        &self,
        lane: Lane,
        control: &Control,
        message: &Term,
    ) -> Result<(), Unqueued> {
        self.put(lane, control, Some(message), Kind::Call)
    }

    /// Queues a reply to a message of the other node.
    #[cfg(feature = "serde")]
    pub(crate) fn reply(
        &self,
        lane: Lane,
        control: &Control,
        message: &Term,
    ) -> Result<(), Unqueued> {
        self.put(lane, control, Some(message), Kind::Reply)
    }

    /// Queues the message that there is no reply to a message of the other node. Like a signal, it
    /// is not refused for a lack of room.
    #[cfg(feature = "serde")]
    pub(crate) fn no_reply(
        &self,
        lane: Lane,
        control: &Control,
        message: &Term,
    ) -> Result<(), Unqueued> {
        self.put(lane, control, Some(message), Kind::NoReply)
    }

    /// Queues a request, which the other node does not count as a message.
    pub(crate) fn request(
        &self,
        lane: Lane,
        control: &Control,
        message: &Term,
    ) -> Result<(), Unqueued> {
        self.put(lane, control, Some(message), Kind::Request)
    }

    /// Looks whether a small call of a sender is accepted. Counts as a refused message if it has no
    /// room.
    pub(crate) fn check_call(&self, lane: Lane) -> Result<(), Unqueued> {
        let mut queue = self.queue.lock();
        if queue.is_leaving {
            return Err(Unqueued::Leaving);
        }
        if queue.has_room(lane, 1, Room::Small) {
            return Ok(());
        }
        queue.refused += 1;
        Err(Unqueued::Full(1))
    }

    fn put(
        &self,
        lane: Lane,
        control: &Control,
        message: Option<&Term>,
        kind: Kind,
    ) -> Result<(), Unqueued> {
        let bytes = self.encode(control, message).map_err(Unqueued::Wrong)?;
        if bytes.len() > self.message_max {
            return Err(Unqueued::TooLong);
        }
        self.push(lane, bytes, kind)
    }

    /// Queues a signal. It does nothing if the connection has ended, because the end is the signal
    /// then.
    ///
    /// Its reason may be a term of the user. If that cannot be sent, or is long and finds no room,
    /// a word takes its place, so that the signal is not lost and does not end the connection.
    pub(crate) fn signal(&self, lane: Lane, control: &Control, message: Option<&Term>) {
        let word = match self.put(lane, control, message, Kind::Signal) {
            Ok(()) | Err(Unqueued::Closed) => return,
            Err(Unqueued::Wrong(_)) => "unencodable",
            Err(_) => "too_large",
        };
        let word = Term::atom(word);
        let control = control.with_reason(&word);
        // Ignored: the connection has ended by now.
        let _ = self.put(lane, &control, message.map(|_| &word), Kind::Signal);
    }

    /// Writes an operation and its message: as a frame, unless it is large.
    fn encode(&self, control: &Control, message: Option<&Term>) -> Result<Vec<u8>, EncodeError> {
        let payload = message.and_then(Term::as_bytes).map_or(0, <[u8]>::len);
        let mut out = Vec::with_capacity(128 + payload);
        let has_headers = self.flags & flags::HEADERS != 0;
        out.extend([0; 4]);
        if has_headers {
            out.extend(PLAIN_HEADER);
        } else {
            // The form without headers: each term has the version of the format in front.
            out.extend([b'p', 131]);
        }
        control.write(&mut out)?;
        if let Some(message) = message {
            if !has_headers {
                out.push(131);
            }
            Writer::new(&mut out).term(message)?;
        }
        Ok(out)
    }

    fn push(&self, lane: Lane, mut bytes: Vec<u8>, kind: Kind) -> Result<(), Unqueued> {
        let length = bytes.len();
        bytes[..4].copy_from_slice(&((length - 4) as u32).to_be_bytes());
        let is_large = self.is_large(length);
        let mut guard = self.queue.lock();
        let queue = &mut *guard;
        let is_accepted = match queue.accepts {
            Accepts::All => true,
            Accepts::Pulses => lane == PULSE_LANE,
            Accepts::Nothing => false,
        };
        if !is_accepted {
            return Err(Unqueued::Closed);
        }
        if kind.asks() && queue.is_leaving {
            return Err(Unqueued::Leaving);
        }
        let room = kind.room(length, is_large);
        if !queue.has_room(lane, length, room) {
            queue.refused += u64::from(!kind.is_signal());
            return Err(Unqueued::Full(length));
        }
        let messages = u64::from(kind.is_message());
        if kind.is_message() {
            queue.outgoing.get_or_insert_with(|| Outgoing::accept(self.connection));
        }
        queue.accepted += messages;
        queue.waiting += messages;
        queue.bytes[room] += length;
        queue.is_overrun |= queue.bytes[Room::Signals] > SIGNALS_MAX;
        let own = queue.lanes.entry(lane).or_default();
        if own.parts.is_empty() {
            queue.turns.push_back(lane);
        }
        own.bytes[room] += length;
        if is_large {
            queue.sequence += 1;
            let sequence = queue.sequence;
            let sent = LARGE_HEAD;
            own.parts.push_back(Part::Large { bytes, room, sent, sequence, messages });
            own.times.push_back(Instant::now());
        } else {
            match own.parts.back_mut() {
                Some(Part::Small { frames, bytes: waiting, messages: count })
                    if frames.len() < TURN =>
                {
                    frames.extend(bytes);
                    waiting[room] += length;
                    *count += messages;
                }
                _ => {
                    let mut waiting = Waiting::default();
                    waiting[room] = length;
                    own.parts.push_back(Part::Small { frames: bytes, bytes: waiting, messages });
                    own.times.push_back(Instant::now());
                }
            }
        }
        let wakes = std::mem::take(&mut queue.sleeps);
        drop(guard);
        if wakes {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Moves bytes to `out` until it has `most`, or nothing is left. Returns `false` if there was
    /// nothing: then the next thread that queues something notifies the writer.
    pub(crate) fn fill(&self, out: &mut Vec<u8>, most: usize) -> bool {
        let mut guard = self.queue.lock();
        let queue = &mut *guard;
        let from = out.len();
        queue.moved = 0;
        while out.len() < most
            && let Some(lane) = queue.turns.pop_front()
        {
            let Some(own) = queue.lanes.get_mut(&lane) else { continue };
            match own.parts.front_mut() {
                Some(Part::Small { frames, bytes, messages }) => {
                    queue.waiting -= *messages;
                    queue.moved += *messages;
                    own.bytes.remove(bytes);
                    queue.bytes.remove(bytes);
                    out.append(frames);
                    queue.accepted_before -= own.pop();
                }
                Some(Part::Large { bytes, room, sent, sequence, messages }) => {
                    let is_first = *sent == LARGE_HEAD;
                    let part = &bytes[*sent..bytes.len().min(*sent + FRAGMENT_LEN)];
                    let left = (bytes.len() - *sent).div_ceil(FRAGMENT_LEN) as u64;
                    write_fragment(out, *sequence, left, is_first, part);
                    *sent += part.len();
                    if *sent == bytes.len() {
                        // Until then it has its room, so that the other node never holds the parts
                        // of more than that.
                        own.bytes[*room] -= bytes.len();
                        queue.bytes[*room] -= bytes.len();
                        queue.waiting -= *messages;
                        queue.moved += *messages;
                        queue.accepted_before -= own.pop();
                    }
                }
                None => {}
            }
            if own.parts.is_empty() {
                queue.lanes.remove(&lane);
            } else {
                queue.turns.push_back(lane);
            }
        }
        queue.sleeps = out.len() == from;
        let tells = out.len() > from && std::mem::take(&mut queue.is_awaited);
        drop(guard);
        if tells {
            self.room.notify_waiters();
        }
        out.len() > from
    }

    fn is_large(&self, length: usize) -> bool {
        length > FRAGMENT_LEN && self.flags & flags::FRAGMENTS != 0
    }

    /// Waits until there is room for so many bytes of a sender, or the connection has ended.
    pub(crate) async fn room(&self, lane: Lane, length: usize) {
        loop {
            let mut room = std::pin::pin!(self.room.notified());
            room.as_mut().enable();
            {
                let mut queue = self.queue.lock();
                let is_open = queue.accepts == Accepts::All;
                let needed = Room::of_message(self.is_large(length));
                if !is_open || queue.has_room(lane, length, needed) {
                    return;
                }
                queue.is_awaited = true;
            }
            room.await;
        }
    }

    /// Refuses all that is sent from now on, and keeps what waits. Only questions and answers
    /// whether the nodes are there are still accepted.
    pub(crate) fn drain(&self) {
        let mut queue = self.queue.lock();
        if queue.accepts == Accepts::All {
            queue.accepts = Accepts::Pulses;
            queue.ending = Some(Outgoing::accept(self.connection));
        }
        drop(queue);
        self.room.notify_waiters();
    }

    /// Refuses calls and requests from now on, because the other node is leaving.
    pub(crate) fn refuse_calls(&self) {
        let mut guard = self.queue.lock();
        let queue = &mut *guard;
        queue.is_leaving = true;
        queue.accepted_before = queue.lanes.len();
        queue.lanes.values_mut().for_each(|lane| lane.accepted_before = lane.parts.len());
    }

    /// Returns `true` if nothing is left of what was in the queue when calls were refused.
    pub(crate) fn has_sent_calls(&self) -> bool {
        self.queue.lock().accepted_before == 0
    }

    /// Returns `true` if the other node is leaving.
    pub(crate) fn is_leaving(&self) -> bool {
        self.queue.lock().is_leaving
    }

    /// Returns `true` if the connection ends, or has ended.
    pub(crate) fn is_ending(&self) -> bool {
        self.queue.lock().accepts != Accepts::All
    }

    /// Notes that the system has taken all that has left the queue.
    pub(crate) fn written(&self) {
        let mut queue = self.queue.lock();
        let outgoing = if queue.turns.is_empty() { queue.outgoing.take() } else { None };
        drop(queue);
        // Outside of the lock, because it wakes the waiting threads.
        drop(outgoing);
    }

    /// Refuses all that is sent from now on, and drops what waits. Returns the entry of a
    /// connection that ends in order, or of the messages that the system does not have.
    pub(crate) fn close(&self) -> Option<Outgoing> {
        let mut queue = self.queue.lock();
        queue.accepts = Accepts::Nothing;
        queue.turns.clear();
        let lanes = std::mem::take(&mut queue.lanes);
        queue.bytes = Waiting::default();
        let entries = (queue.ending.take(), queue.outgoing.take());
        drop(queue);
        drop(lanes);
        self.room.notify_waiters();
        entries.0.or(entries.1)
    }

    /// Returns `true` if nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().turns.is_empty()
    }

    /// Returns the number of messages that were accepted and not sent, even after
    /// [`close`](Self::close). The messages of the latest call of [`fill`](Self::fill) count until
    /// the next call, because the socket may not have taken them.
    pub(crate) fn unsent(&self) -> u64 {
        let queue = self.queue.lock();
        queue.waiting + queue.moved
    }

    /// Returns `true` if something of a sender waits.
    pub(crate) fn has_waiting(&self, lane: Lane) -> bool {
        self.queue.lock().lanes.contains_key(&lane)
    }

    /// Returns `true` if something waits in these lanes.
    #[cfg(feature = "serde")]
    pub(crate) fn has_waiting_in(&self, lanes: RangeInclusive<Lane>) -> bool {
        self.queue.lock().lanes.range(lanes).next().is_some()
    }

    pub(crate) fn is_overrun(&self) -> bool {
        self.queue.lock().is_overrun
    }

    /// Returns the number of bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().bytes.0.iter().sum()
    }

    /// Returns how long the oldest bytes have waited.
    pub(crate) fn oldest_wait(&self) -> Option<Duration> {
        let oldest = {
            let queue = self.queue.lock();
            queue.lanes.values().filter_map(|lane| lane.times.front().copied()).min()
        };
        oldest.map(|since| Instant::now().saturating_duration_since(since))
    }

    /// Returns the number of messages that were accepted so far.
    pub(crate) fn accepted(&self) -> u64 {
        self.queue.lock().accepted
    }

    /// Returns the number of messages that found no room so far.
    pub(crate) fn refused(&self) -> u64 {
        self.queue.lock().refused
    }

    pub(crate) fn flags(&self) -> u64 {
        self.flags
    }
}

#[cfg(test)]
mod tests;
