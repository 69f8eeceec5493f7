//! The addresses of datagrams in the network of a simulated system.

use std::net::SocketAddr;

/// The address at the beginning of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramAddress([u8; Self::LENGTH]);

impl DatagramAddress {
    /// The length in bytes.
    pub const LENGTH: usize = 19;
    /// Shorter than a datagram with its address. It only wakes a program that waits to read,
    /// because the network has an [error](crate::sys::os::Network::error) for the program.
    pub const NO_DATAGRAM: &[u8] = &[0];

    /// Encodes an address. `None` is the address of the peer.
    pub fn encode(address: Option<SocketAddr>) -> Self {
        let mut bytes = [0; Self::LENGTH];
        if let Some(address) = address {
            match address.ip() {
                std::net::IpAddr::V4(ip) => {
                    bytes[0] = 4;
                    bytes[1..5].copy_from_slice(&ip.octets());
                }
                std::net::IpAddr::V6(ip) => {
                    bytes[0] = 6;
                    bytes[1..17].copy_from_slice(&ip.octets());
                }
            }
            bytes[17..].copy_from_slice(&address.port().to_be_bytes());
        }
        Self(bytes)
    }

    /// Takes the address from the beginning of a datagram. Returns `None` if the datagram is
    /// shorter than an address.
    pub fn take(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (address, rest) = datagram.split_first_chunk()?;
        Some((Self(*address), rest))
    }

    /// Returns the address, or `None` if it is the address of the peer.
    pub fn decode(self) -> Option<SocketAddr> {
        let bytes = self.0;
        let ip = match bytes[0] {
            4 => <[u8; 4]>::try_from(&bytes[1..5]).ok()?.into(),
            6 => <[u8; 16]>::try_from(&bytes[1..17]).ok()?.into(),
            _ => return None,
        };
        Some(SocketAddr::new(ip, u16::from_be_bytes([bytes[17], bytes[18]])))
    }

    /// Returns the encoded form.
    pub fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }
}
