//! Datagrams that may be longer than the buffer.

use std::io::{self, IoSliceMut};
use std::os::fd::AsFd;

use rustix::net::{RecvAncillaryBuffer, ReturnFlags, SocketAddrAny, recvmsg};

use crate::sys::system::sockets::WHOLE_LENGTH;

/// A datagram that was received into a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram<A> {
    /// The number of bytes in the buffer.
    pub len: usize,
    /// The number of bytes that were sent. macOS does not report it for a datagram that did not
    /// fit, so it is `len + 1` there.
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

/// Receives one datagram. Returns its whole length, or the least that it may be, and the address of
/// its sender.
pub(super) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<(usize, Option<SocketAddrAny>)> {
    let (room, parts) = (buffer.len(), &mut [IoSliceMut::new(buffer)]);
    let received = recvmsg(socket, parts, &mut RecvAncillaryBuffer::default(), WHOLE_LENGTH)?;
    let is_cut = received.flags.contains(ReturnFlags::TRUNC);
    let length_min = if is_cut { room + 1 } else { 0 };
    Ok((received.bytes.max(length_min), received.address))
}
