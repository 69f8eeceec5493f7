//! What is on its way, and how often it is sent again.

use std::net::SocketAddr;

use rustix::io::Errno;

use crate::time::{MS, SECOND};

/// How often TCP repeats a request to connect, and a segment. This takes 127 s, and 15 minutes.
const SYN_RETRIES: u32 = 6;
const RETRIES: u32 = 15;

/// Something on its way.
pub(crate) struct Flight {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// How often it was sent again.
    pub(crate) again: u32,
    pub(crate) cargo: Cargo,
}

#[derive(Debug)]
pub(crate) enum Cargo {
    /// A stream wants to be connected.
    Request {
        client: u64,
        to: SocketAddr,
        /// It gets no answer while there are faults.
        is_ignored: bool,
    },
    /// Another stream answers, or there is none.
    Answer {
        client: u64,
        answer: Result<u64, Errno>,
    },
    /// The first of the segments that a stream has sent.
    Segment {
        from: u64,
    },
    /// The connection is broken, as a stream learns.
    Reset {
        to: u64,
    },
    Datagram {
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A stream with keep-alive probes whether its peer is there, after so many other probes.
    Probe {
        of: u64,
        count: u32,
    },
    /// A host has no socket at the address that a datagram was sent to.
    Unreachable {
        socket: SocketAddr,
        peer: SocketAddr,
    },
}

impl Cargo {
    /// Returns after how long TCP sends this again first, and how often it does. `None` is sent
    /// once.
    pub(crate) fn retries(&self) -> Option<(u64, u32)> {
        match self {
            Self::Request { .. } | Self::Answer { .. } => Some((SECOND, SYN_RETRIES)),
            Self::Segment { .. } => Some((200 * MS, RETRIES)),
            Self::Reset { .. }
            | Self::Probe { .. }
            | Self::Datagram { .. }
            | Self::Unreachable { .. } => None,
        }
    }
}
