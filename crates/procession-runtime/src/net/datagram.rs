//! Datagrams that may be longer than the buffer.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, SocketAddrAny, recvmsg};

/// A datagram that was received into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram<A> {
    /// The number of bytes in the buffer.
    pub len: usize,
    /// The number of bytes that were sent.
    pub full_len: usize,
    /// The address of the sender.
    pub sender: A,
}

impl<A> Datagram<A> {
    pub(super) fn new(room: usize, full_len: usize, sender: A) -> Self {
        Self { len: full_len.min(room), full_len, sender }
    }

    /// Returns `true` if the end of the datagram did not fit into the buffer and was discarded.
    pub fn is_truncated(&self) -> bool {
        self.len < self.full_len
    }
}

/// Receives one datagram. Returns its whole length, and the address of its sender.
pub(super) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<SocketAddrAny>)> {
    let parts = &mut [IoSliceMut::new(buffer)];
    let received = recvmsg(socket, parts, &mut RecvAncillaryBuffer::default(), RecvFlags::TRUNC)?;
    Ok((received.bytes, received.address))
}
