//! UDP sockets of guests.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use procession::net::UdpSocket;
use procession::sync::CancellationToken;

use crate::limits::Hold;
use crate::net::{socket_charge, unless_cancelled, with_timeout};
use crate::permissions::{self, Bounds, Permissions};

/// The bytes of the largest datagram.
const BYTES_MAX: usize = 64 * 1024;

/// A UDP socket of a guest.
#[derive(Debug)]
pub struct Datagrams(UdpSocket, #[expect(dead_code, reason = "its drop ends a charge")] Hold);

pub(crate) async fn bind(bounds: Bounds, address: String) -> io::Result<Datagrams> {
    let charge = socket_charge(&bounds)?;
    let socket = UdpSocket::bind(address.as_str()).await?;
    Ok(Datagrams(socket, charge))
}

impl Datagrams {
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Sends a datagram to an address that the process may send to.
    pub(crate) async fn send(
        self: Arc<Self>,
        permissions: Permissions,
        address: String,
        bytes: Arc<[u8]>,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let sending = async {
            let allowed = permissions::resolve(&permissions, &address).await?;
            let first = allowed.first().ok_or(io::ErrorKind::NotFound)?;
            self.0.send_to(&bytes, *first).await
        };
        with_timeout(timeout, sending).await.map(drop)
    }

    /// Waits for a datagram, or until the token is cancelled. Returns the bytes and the sender.
    pub(crate) async fn receive(
        self: Arc<Self>,
        token: CancellationToken,
        timeout: Option<Duration>,
    ) -> io::Result<(Vec<u8>, SocketAddr)> {
        let mut bytes = vec![0; BYTES_MAX];
        let received = with_timeout(timeout, self.0.recv_from(&mut bytes));
        let (count, sender) = unless_cancelled(&token, received).await??;
        bytes.truncate(count);
        Ok((bytes, sender))
    }
}
