//! The byte stream of a connection: a socket, with a session of TLS or without one.

use std::io::{self, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

use procession::net::{PollFd, PollFlags, TcpStream, poll};

use crate::account::Account;
use crate::tls::Session;

/// A connection as bytes that the program sees. All of its readers and writers may use it at a
/// time.
#[derive(Debug)]
pub(crate) struct Stream {
    socket: TcpStream,
    session: Option<Session>,
}

/// What the system knows of the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerEnd {
    Open,
    /// The peer has ended its direction, or has closed the connection.
    HalfClosed,
    /// The peer has reset the connection.
    Gone,
}

/// A socket that is read even if the reactor has not seen its bytes yet. It takes more time.
struct Direct<'a>(&'a TcpStream);

impl Read for Direct<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The duplicate shares the mode of the socket, which does not block.
        let socket = self.0.as_fd().try_clone_to_owned()?;
        std::net::TcpStream::from(socket).read(buffer)
    }
}

/// A socket that is read if the reactor has seen bytes.
struct Seen<'a>(&'a TcpStream);

impl Read for Seen<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.try_read(buffer)
    }
}

impl Stream {
    /// Creates a stream. A session of a server makes its handshake when the stream is first used.
    pub(crate) fn new(socket: TcpStream, session: Option<Session>) -> Self {
        Self { socket, session }
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.session.is_some()
    }

    pub(crate) fn charge_to(&self, account: &Arc<Account>) {
        if let Some(session) = &self.session {
            session.charge_to(account);
        }
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Completes the handshake, if there is a session.
    pub(crate) async fn handshake(&self) -> io::Result<()> {
        match &self.session {
            Some(session) => session.handshake(&self.socket).await,
            None => Ok(()),
        }
    }

    /// Reads bytes that are known to have arrived. Zero bytes are the end.
    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_from(&mut Seen(&self.socket), buffer)
    }

    /// Reads bytes that have arrived, even if the reactor has not seen them yet.
    pub(crate) fn read_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_from(&mut Direct(&self.socket), buffer)
    }

    fn read_from(&self, from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.session {
            Some(session) => session.try_read(&self.socket, from, buffer),
            None => from.read(buffer),
        }
    }

    /// Waits until there may be something to read that has not arrived yet.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match &self.session {
            Some(session) => session.readable(&self.socket).await,
            None => self.socket.readable().await,
        }
    }

    /// Writes as much of `bytes` as the kernel takes immediately. Returns `None` if it has taken
    /// everything. Otherwise returns the number of bytes that need not be passed again, and
    /// [`write_all`](Self::write_all) must follow, even if these are all bytes.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        if let Some(session) = &self.session {
            return session.try_write(&self.socket, bytes);
        }
        match self.socket.try_write(bytes) {
            Ok(count) => Ok((count < bytes.len()).then_some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Some(0)),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match &self.session {
            Some(session) => session.write_all(&self.socket, bytes).await,
            None => self.socket.write_all(bytes).await,
        }
    }

    /// Ends the direction to the peer, which learns that nothing is missing. What the peer sends
    /// can still be [dropped](Self::drop_some).
    pub(crate) fn end(&self) {
        if let Some(session) = &self.session {
            session.end(&self.socket);
        }
        // Ignored: the peer may have closed the connection.
        drop(self.socket.shutdown(Shutdown::Write));
    }

    /// Reads bytes of the socket into a buffer in which nobody looks. Zero bytes are the end.
    pub(crate) fn drop_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.try_read(buffer)
    }

    /// Waits until [`drop_some`](Self::drop_some) may find something.
    pub(crate) async fn until_more(&self) -> io::Result<()> {
        self.socket.readable().await
    }

    /// Waits until the socket has something to read, which may be its end, and returns what the
    /// system knows of the peer. Reads nothing, so an end may be behind bytes.
    pub(crate) async fn peer_end(&self) -> PeerEnd {
        let Ok(unread) = self.socket.peek(&mut [0]).await else { return PeerEnd::Gone };
        let mut asked = [PollFd::new(self.socket.as_fd().as_raw_fd(), PollFlags::RDHUP)];
        let flags = match poll(&mut asked, Some(Duration::ZERO)) {
            Ok(_) => asked[0].answer(),
            Err(_) => PollFlags::EMPTY,
        };
        // A system without `RDHUP` reports `HUP` of a peer that has ended its direction.
        let knows_half = !PollFlags::RDHUP.is_empty();
        if flags.contains(PollFlags::ERR) || knows_half && flags.contains(PollFlags::HUP) {
            PeerEnd::Gone
        } else if unread == 0 || flags.contains(PollFlags::RDHUP) && knows_half {
            PeerEnd::HalfClosed
        } else {
            PeerEnd::Open
        }
    }

    /// Closes the connection in both directions. The peer of a session learns that nothing is
    /// missing.
    pub(crate) fn close(&self) {
        if let Some(session) = &self.session {
            session.end(&self.socket);
        }
        // Ignored: the peer may have closed the connection.
        drop(self.socket.shutdown(Shutdown::Both));
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            session.end(&self.socket);
        }
    }
}
