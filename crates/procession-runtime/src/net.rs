//! Sockets, and the readiness of any file descriptor.

pub(crate) mod accept;
mod attempts;
pub(crate) mod credentials;
mod datagram;
mod descriptors;
mod half;
pub(crate) mod io;
mod options;
mod parts;
#[cfg(any(feature = "tokio-io", feature = "hyper"))]
#[expect(unsafe_code, reason = "buffers are received into before they are initialised")]
mod read_buf;
mod resolve;
mod several;
mod simulated;
mod stream;
mod tcp;
mod traits;
mod udp;
mod unix;

pub use credentials::UCred;
pub use datagram::Datagram;
pub use descriptors::ReceivedFds;
pub use half::{ReadHalf, ReuniteError, WriteHalf};
pub use io::Readiness;
pub use options::SocketOptions;
#[cfg(feature = "door")]
pub(crate) use options::bind_before;
pub use resolve::Host;
pub use several::{PollFd, PollFlags, poll};
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
