//! What the system says of a TCP socket that is known only by its number.
//!
//! Another thread may close the descriptor at any time, so nothing here borrows it.
//!
//! ## Invariants
//! - `[bytes]` The kernel writes at most as many bytes as it is given, to memory of the calling
//!   function, in which every value is valid. A number that is no open descriptor is an error.

use std::ffi::c_int;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

/// The length of an address of IPv6, which is longer than one of IPv4.
const LONGEST: usize = size_of::<libc::sockaddr_in6>();

type AddressCall = unsafe extern "C" fn(c_int, *mut libc::sockaddr, *mut libc::socklen_t) -> c_int;

/// Returns the state of the socket, or `None` if this is no TCP socket.
pub(crate) fn state(descriptor: i32) -> Option<u8> {
    // The state is the first byte, and the kernel writes no more than fits.
    let (mut state, mut length) = (0_u8, 1);
    let (protocol, value) = (libc::IPPROTO_TCP, (&raw mut state).cast());
    // SAFETY: [bytes]
    let result =
        unsafe { libc::getsockopt(descriptor, protocol, libc::TCP_INFO, value, &raw mut length) };
    (result == 0).then_some(state)
}

/// Returns `true` if the peer of this TCP socket has not confirmed all bytes.
pub(crate) fn sends(descriptor: i32) -> bool {
    let mut bytes: c_int = 0;
    // SAFETY: [bytes] the call writes one such number.
    let result = unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &raw mut bytes) };
    result == 0 && bytes > 0
}

/// Returns the address of this end of a socket.
pub(crate) fn local(descriptor: i32) -> Option<SocketAddr> {
    ask(descriptor, libc::getsockname)
}

/// Returns the address of the other end of a socket.
pub(crate) fn remote(descriptor: i32) -> Option<SocketAddr> {
    ask(descriptor, libc::getpeername)
}

fn ask(descriptor: i32, call: AddressCall) -> Option<SocketAddr> {
    let mut bytes = [0_u8; LONGEST];
    let mut length = LONGEST as libc::socklen_t;
    // SAFETY: [bytes]
    let result = unsafe { call(descriptor, bytes.as_mut_ptr().cast(), &raw mut length) };
    let family = c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
    let port = u16::from_be_bytes([bytes[2], bytes[3]]);
    match family {
        _ if result != 0 => None,
        libc::AF_INET => {
            let host = <[u8; 4]>::try_from(&bytes[4..8]).ok()?;
            Some((Ipv4Addr::from(host), port).into())
        }
        libc::AF_INET6 => {
            let host = <[u8; 16]>::try_from(&bytes[8..24]).ok()?;
            Some((Ipv6Addr::from(host), port).into())
        }
        _ => None,
    }
}
