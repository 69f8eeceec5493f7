//! Sockets: what the network knows of each.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};

use crate::faults::Fault;
use crate::net::moment::Moment;
use crate::net::patience::Patience;

/// The other end of a socket of a program, and what the network knows of the socket.
pub(crate) struct Socket {
    /// The number of the start of the host that the socket belongs to.
    pub(crate) home: usize,
    pub(crate) host: usize,
    pub(crate) local: SocketAddr,
    pub(crate) far: FarEnd,
    /// `false` once the real system has said that the far end has nothing to read, until it says
    /// otherwise.
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// The program has closed its end.
    pub(crate) is_closed: bool,
    /// The end of the program is a socket of std.
    pub(crate) is_released: bool,
    pub(crate) kind: Kind,
}

/// The far end of a socket. Dropping it ends the socket of the program, even if a child that any
/// thread of this program has just started has copies of the descriptors.
pub(crate) struct FarEnd(pub(crate) OwnedFd);

impl Drop for FarEnd {
    fn drop(&mut self) {
        // It fails if the program has closed its socket.
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

impl AsFd for FarEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) enum Kind {
    Listener(Listener),
    Stream(Box<Stream>),
    Datagrams(Datagrams),
}

/// A socket for datagrams.
#[derive(Default)]
pub(crate) struct Datagrams {
    pub(crate) peer: Option<SocketAddr>,
    /// The error that the next call of the program gets.
    pub(crate) error: Option<Errno>,
}

pub(crate) struct Listener {
    pub(crate) backlog_max: usize,
    /// The streams that wait to be accepted, with the ends that the program will get.
    pub(crate) backlog: VecDeque<(u64, OwnedFd)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Connecting,
    Connected,
    /// The attempt to connect has failed.
    Failed(Errno),
}

/// One end of a connection.
pub(crate) struct Stream {
    pub(crate) peer_addr: SocketAddr,
    pub(crate) peer: Option<u64>,
    pub(crate) phase: Phase,
    /// What is on its way to the peer. Only the first segment has a flight.
    pub(crate) sent: VecDeque<Segment>,
    pub(crate) sent_bytes: usize,
    /// What has arrived, and finds no room in the socket of the program.
    pub(crate) arrived: VecDeque<u8>,
    /// The peer sends no more, and all it has sent has arrived.
    pub(crate) peer_has_ended: bool,
    /// The program sends no more.
    pub(crate) has_ended: bool,
    /// The connection is broken. What has arrived can still be read.
    pub(crate) is_broken: bool,
    /// The peer learns that the connection is broken once all that was sent has arrived.
    pub(crate) resets_at_end: bool,
    /// The program has closed its socket before it has read all.
    pub(crate) is_unread: bool,
    /// The program has learned that nothing more arrives.
    pub(crate) has_told_end: bool,
    /// The error that the next call of the program gets.
    pub(crate) error: Option<Errno>,
    /// How many bytes arrive at a time.
    pub(crate) grain: usize,
    /// The socket that holds the options, once the program has asked for one.
    pub(crate) options: Option<Arc<TcpStream>>,
    pub(crate) patience: Patience,
}

/// What is left of a broken stream, until its program closes it.
pub(crate) struct Broken {
    pub(crate) host: usize,
    pub(crate) local: SocketAddr,
    pub(crate) peer_addr: SocketAddr,
    pub(crate) phase: Phase,
    pub(crate) error: Option<Errno>,
    /// The far end stays open, because to close it would wake the program immediately, or when the
    /// last copy of the far end is closed. If the socket is one of std, the far end is closed,
    /// because nobody would report when it may be closed.
    pub(crate) far: Option<FarEnd>,
}

pub(crate) struct Segment {
    pub(crate) due: u64,
    /// The end of the stream is an empty segment.
    pub(crate) bytes: Vec<u8>,
}

impl Stream {
    pub(crate) fn new(
        peer_addr: SocketAddr,
        peer: Option<u64>,
        phase: Phase,
        moment: &mut Moment<'_>,
    ) -> Self {
        // Tiny parts are so costly that only some connections have them.
        let grain = moment.fault(Fault::SmallReads, &[0, 1, 1, 2, 7, 100]);
        let grain = grain.map_or(usize::MAX, |grain| grain as usize);
        if grain < usize::MAX {
            moment.tell(|| format!("bytes from {peer_addr} arrive {grain} at a time"));
        }
        Self {
            peer_addr,
            peer,
            phase,
            sent: VecDeque::new(),
            sent_bytes: 0,
            arrived: VecDeque::new(),
            peer_has_ended: false,
            has_ended: false,
            is_broken: false,
            resets_at_end: false,
            is_unread: false,
            has_told_end: false,
            error: None,
            grain,
            options: None,
            patience: Patience::new(moment.now),
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Returns `true` if all that the peer has sent has arrived, and it sends no more.
    pub(crate) fn has_heard_end(&self) -> bool {
        self.peer_has_ended
    }

    /// Returns `true` if the program has asked that closing the socket resets the connection.
    pub(crate) fn resets_when_closed(&self) -> bool {
        let linger = self.options.as_ref().map(|socket| {
            // An option of a socket of this network, which is open.
            rustix::net::sockopt::socket_linger(&**socket).ok().flatten()
        });
        linger.flatten() == Some(Duration::ZERO)
    }
}

impl Socket {
    pub(crate) fn new(
        home: usize,
        host: usize,
        local: SocketAddr,
        far: OwnedFd,
        kind: Kind,
    ) -> Self {
        let far = FarEnd(far);
        let (is_readable, is_writable, is_closed) = (false, true, false);
        let is_released = false;
        Self { home, host, local, far, is_readable, is_writable, is_closed, is_released, kind }
    }

    /// Returns `true` if the network has ended what the program reads.
    pub(crate) fn has_hung_up(&self) -> bool {
        match &self.kind {
            Kind::Stream(stream) => stream.has_told_end || stream.is_broken,
            Kind::Listener(_) | Kind::Datagrams(_) => false,
        }
    }

    pub(crate) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.kind {
            Kind::Stream(stream) => Some(stream),
            _ => None,
        }
    }
}
