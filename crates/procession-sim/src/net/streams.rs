//! Streams: what their programs write arrives at their peers in order, sooner or later.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};

use crate::faults::Fault;
use crate::net::Net;
use crate::net::cargo::Cargo;
use crate::net::moment::Moment;
use crate::net::sockets::{Broken, Kind, Phase, Segment, Socket, Stream};
use crate::time::US;

/// Bytes that a stream has on the way, or that its peer has not taken, at most.
const WINDOW: usize = 64 << 10;
/// The longest segment.
const SEGMENT_MAX: usize = 16 << 10;
/// Nanoseconds between two parts of a segment that arrives in parts.
const GAP: u64 = US;

/// What a look at a far end has found.
enum Found {
    Bytes(Vec<u8>),
    End,
    Reset,
    Nothing,
}

impl Net {
    /// A program is about to close a socket.
    ///
    /// The real system would report that only once nobody has a copy of the descriptor. A child
    /// that any thread of this program starts has copies of all descriptors, until it executes its
    /// own program.
    pub(crate) fn close(&mut self, id: u64, near: BorrowedFd<'_>) {
        self.broken.remove(&id);
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.is_closed = true;
            if let Kind::Stream(stream) = &mut socket.kind {
                stream.is_unread = rustix::io::ioctl_fionread(near).is_ok_and(|count| count > 0);
            }
        }
        // It fails if the far end is closed already.
        let _ = shutdown(near, Shutdown::Both);
    }

    /// The end of the program becomes a socket of std.
    pub(crate) fn release(&mut self, id: u64) {
        if let Some(broken) = self.broken.get_mut(&id) {
            drop(broken.far.take());
        }
        if let Some(socket) = self.sockets.get_mut(&id) {
            socket.is_released = true;
        }
    }

    /// Takes what the program of a stream has written, as far as the window allows.
    pub(super) fn drain(&mut self, moment: &mut Moment<'_>, id: u64) {
        while let Some(room) = self.room(id) {
            let found = match self.sockets.get_mut(&id) {
                Some(socket) => look(socket, room.min(SEGMENT_MAX)),
                None => return,
            };
            match found {
                Found::Nothing => break,
                Found::Bytes(bytes) => self.send_segment(moment, id, bytes),
                Found::End => {
                    let Some(stream) = self.stream(id) else { return };
                    stream.has_ended = true;
                    let resets = stream.is_unread || stream.resets_when_closed();
                    if resets && self.sockets[&id].is_closed {
                        self.abort(moment, id);
                    } else {
                        self.send_segment(moment, id, Vec::new());
                    }
                }
                Found::Reset => self.abort(moment, id),
            }
        }
        self.tidy(id);
    }

    /// Returns how many bytes a stream may send now.
    fn room(&mut self, id: u64) -> Option<usize> {
        let socket = self.sockets.get_mut(&id)?;
        let (is_readable, is_closed) = (socket.is_readable, socket.is_closed);
        let stream = socket.stream()?;
        if stream.phase == Phase::Connecting && is_closed {
            // The program has closed its end.
            stream.has_ended = true;
            return None;
        }
        if !is_readable || stream.has_ended || stream.phase != Phase::Connected {
            return None;
        }
        let (sent, peer) = (stream.sent_bytes, stream.peer);
        let waiting = peer.and_then(|peer| self.stream(peer)).map_or(0, |peer| peer.arrived.len());
        WINDOW.checked_sub(sent + waiting).filter(|&room| room > 0)
    }

    /// Sends a segment, which arrives after all earlier segments.
    fn send_segment(&mut self, moment: &mut Moment<'_>, id: u64, bytes: Vec<u8>) {
        let Some(way) = self.way(id) else { return };
        if moment.happens(Fault::Reset) {
            moment.tell(|| "a connection is reset".to_owned());
            let peer = self.stream(id).and_then(|stream| stream.peer);
            self.break_stream(id, Errno::CONNRESET);
            if let Some(peer) = peer {
                self.send(moment, way, Cargo::Reset { to: peer });
            }
            return;
        }
        let Some(stream) = self.stream(id) else { return };
        stream.sent_bytes += bytes.len();
        let last = stream.sent.back().map(|segment| segment.due);
        stream.sent.push_back(Segment { due: 0, bytes });
        match last {
            None => {
                let due = self.send(moment, way, Cargo::Segment { from: id });
                self.set_due(id, due);
            }
            // It leaves when all earlier segments have arrived, and takes no time then.
            Some(last) => self.set_due(id, last),
        }
    }

    fn set_due(&mut self, id: u64, due: u64) {
        if let Some(segment) = self.stream(id).and_then(|stream| stream.sent.back_mut()) {
            segment.due = due;
        }
    }

    /// Forgets how late the segments were that wait for others.
    pub(super) fn hasten_segments(&mut self, now: u64) {
        for socket in self.sockets.values_mut() {
            if let Kind::Stream(stream) = &mut socket.kind {
                stream.sent.iter_mut().for_each(|segment| segment.due = segment.due.min(now));
            }
        }
    }

    /// Returns the hosts of a stream and of its peer.
    pub(super) fn way(&self, id: u64) -> Option<(usize, usize)> {
        let socket = self.sockets.get(&id)?;
        let Kind::Stream(stream) = &socket.kind else { return None };
        Some((socket.host, self.host_at(socket.host, stream.peer_addr.ip())?))
    }

    /// The first of the segments that a stream has sent arrives.
    pub(super) fn arrive_segment(&mut self, moment: &mut Moment<'_>, from: u64) {
        let Some(stream) = self.stream(from) else { return };
        let Some(mut segment) = stream.sent.pop_front() else { return };
        let peer = stream.peer;
        let target = peer.and_then(|peer| self.sockets.get(&peer)).filter(|one| !one.is_closed);
        let Some((peer, target)) = peer.zip(target) else {
            // There is no such connection any more, as the peer's system says.
            if !segment.bytes.is_empty() {
                self.refuse_segment(moment, from);
            } else {
                self.tidy(from);
            }
            return;
        };
        let Kind::Stream(receiver) = &target.kind else { return };
        let grain = receiver.grain;
        let is_end = segment.bytes.is_empty();
        let rest = segment.bytes.split_off(grain.min(segment.bytes.len()));
        if let Some(stream) = self.stream(from) {
            stream.sent_bytes -= segment.bytes.len();
            stream.patience.heard_at = moment.now;
            if !rest.is_empty() {
                stream.sent.push_front(Segment { due: moment.now + GAP, bytes: rest });
            }
        }
        if let Some(receiver) = self.stream(peer).filter(|receiver| !receiver.is_broken) {
            receiver.patience.heard_at = moment.now;
            receiver.arrived.extend(&segment.bytes);
            receiver.peer_has_ended |= is_end;
        }
        self.flush(moment, peer);
        self.reset_at_end(moment, from);
        self.go_on(moment, from);
        self.drain(moment, from);
    }

    /// Lets the next segment of a stream leave, if it has one.
    fn go_on(&mut self, moment: &mut Moment<'_>, from: u64) {
        let next = self.stream(from).and_then(|stream| Some(stream.sent.front()?.due));
        if let (Some(due), Some(way)) = (next, self.way(from)) {
            self.follow(way, Cargo::Segment { from }, due.max(moment.now));
        }
    }

    /// The peer's system says that there is no such connection, behind what it has sent before.
    fn refuse_segment(&mut self, moment: &mut Moment<'_>, from: u64) {
        self.forget_sent(from);
        let peer = self.stream(from).and_then(|stream| stream.peer);
        if let Some(peer) = peer.filter(|&peer| self.has_sent(peer)) {
            self.abort(moment, peer);
        } else if let Some((own, other)) = self.way(from) {
            self.send(moment, (other, own), Cargo::Reset { to: from });
        }
        self.tidy(from);
    }

    /// Returns `true` if something that a stream has sent is on its way.
    pub(super) fn has_sent(&mut self, id: u64) -> bool {
        self.stream(id).is_some_and(|stream| !stream.sent.is_empty())
    }

    fn forget_sent(&mut self, id: u64) {
        if let Some(stream) = self.stream(id) {
            stream.sent.clear();
            stream.sent_bytes = 0;
        }
    }

    /// Passes to the program of a stream what has arrived.
    pub(super) fn flush(&mut self, moment: &mut Moment<'_>, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        let had = stream.arrived.len();
        while socket.is_writable && !stream.arrived.is_empty() {
            let (first, _) = stream.arrived.as_slices();
            match send(&socket.far, first, SendFlags::NOSIGNAL) {
                Ok(count) => drop(stream.arrived.drain(..count)),
                Err(Errno::AGAIN) => socket.is_writable = false,
                Err(Errno::INTR) => {}
                // The program has closed its socket, or reads no more.
                Err(_) => stream.arrived.clear(),
            }
        }
        // Once: each call wakes both ends.
        if stream.peer_has_ended
            && stream.arrived.is_empty()
            && !std::mem::replace(&mut stream.has_told_end, true)
        {
            // It fails if the program has closed its socket.
            let _ = shutdown(&socket.far, Shutdown::Write);
        }
        let (has, peer) = (stream.arrived.len(), stream.peer);
        self.retire(id);
        if has < had
            && let Some(peer) = peer
        {
            self.drain(moment, peer);
        }
    }

    /// Ends a stream so that its peer gets an error behind what was sent before. This is what Linux
    /// does: what has left arrives in order, and then the reset.
    pub(super) fn abort(&mut self, moment: &mut Moment<'_>, id: u64) {
        let Some(way) = self.way(id) else { return };
        let Some(stream) = self.stream(id) else { return };
        stream.has_ended = true;
        if !stream.sent.is_empty() {
            stream.resets_at_end = true;
        } else if let Some(peer) = stream.peer {
            self.send(moment, way, Cargo::Reset { to: peer });
        }
    }

    /// Sends the reset that waits for the last segment, once that has arrived.
    fn reset_at_end(&mut self, moment: &Moment<'_>, from: u64) {
        let Some(way) = self.way(from) else { return };
        let Some(stream) = self.stream(from) else { return };
        if stream.sent.is_empty()
            && std::mem::take(&mut stream.resets_at_end)
            && let Some(peer) = stream.peer
        {
            self.follow(way, Cargo::Reset { to: peer }, moment.now);
        }
    }

    /// Breaks a stream: the program's next call gets the error.
    pub(super) fn break_stream(&mut self, id: u64, error: Errno) {
        let Some(stream) = self.stream(id) else { return };
        if !stream.is_broken && stream.phase == Phase::Connected {
            stream.error = Some(error);
            self.hang_up(id);
        }
    }

    /// Breaks both directions of a stream, so that the program wakes. The program can still read
    /// what has arrived, as on Linux. What it has written is lost.
    pub(super) fn hang_up(&mut self, id: u64) {
        self.forget_sent(id);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Stream(stream) = &mut socket.kind else { return };
        (stream.is_broken, stream.has_ended) = (true, true);
        // It fails if the program has closed its socket.
        let _ = shutdown(&socket.far, Shutdown::Read);
        // A writer that waits for room wakes.
        while let Found::Bytes(_) = look(socket, SEGMENT_MAX) {}
        self.retire(id);
    }

    /// Ends a broken stream, once all that has arrived is with the program.
    fn retire(&mut self, id: u64) {
        let is_over = |stream: &Stream| stream.is_broken && stream.arrived.is_empty();
        if !self.stream(id).is_some_and(|stream| is_over(stream)) {
            return;
        }
        let Some(socket) = self.sockets.remove(&id).filter(|socket| !socket.is_closed) else {
            return;
        };
        let Socket { host, local, far, is_released, kind: Kind::Stream(stream), .. } = socket
        else {
            return;
        };
        let _ = shutdown(&far, Shutdown::Both);
        let Stream { peer_addr, phase, error, .. } = *stream;
        let far = (!is_released).then_some(far);
        self.broken.insert(id, Broken { host, local, peer_addr, phase, error, far });
    }

    /// Returns the phase of a stream.
    pub(crate) fn phase(&mut self, id: u64) -> Option<Phase> {
        let of_broken = self.broken.get(&id).map(|broken| broken.phase);
        of_broken.or_else(|| self.stream(id).map(|stream| stream.phase))
    }

    /// Returns the address of the peer of a stream.
    pub(crate) fn peer_addr(&mut self, id: u64) -> Option<SocketAddr> {
        let of_broken = self.broken.get(&id).map(|broken| broken.peer_addr);
        of_broken.or_else(|| self.stream(id).map(|stream| stream.peer_addr))
    }

    /// Returns the place of the error that the next call of the program on a socket gets.
    pub(crate) fn error(&mut self, id: u64) -> Option<&mut Option<Errno>> {
        if let Some(broken) = self.broken.get_mut(&id) {
            return Some(&mut broken.error);
        }
        match &mut self.sockets.get_mut(&id)?.kind {
            Kind::Listener(_) => None,
            Kind::Stream(stream) => Some(&mut stream.error),
            Kind::Datagrams(own) => Some(&mut own.error),
        }
    }

    /// Returns `true` if something has arrived that the program cannot read yet.
    pub(crate) fn has_more(&mut self, id: u64) -> bool {
        self.stream(id).is_some_and(|stream| !stream.arrived.is_empty())
    }

    /// Removes a stream that its program has closed, once all it has sent has arrived.
    fn tidy(&mut self, id: u64) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let is_closed = socket.is_closed;
        let Some(stream) = socket.stream() else { return };
        let is_over = stream.sent.is_empty() && !stream.resets_at_end;
        if is_closed && stream.has_ended && is_over {
            self.sockets.remove(&id);
        }
    }
}

/// Looks for what the program has written, of at most `room` bytes.
fn look(socket: &mut Socket, room: usize) -> Found {
    let mut bytes = vec![0; room];
    loop {
        match recv(&socket.far, &mut bytes[..], RecvFlags::empty()) {
            Ok((0, _)) => return Found::End,
            Ok((count, _)) => {
                bytes.truncate(count);
                return Found::Bytes(bytes);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                socket.is_readable = false;
                return Found::Nothing;
            }
            // The program has closed its socket before it has read all.
            Err(_) => return Found::Reset,
        }
    }
}
